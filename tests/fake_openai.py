"""A server on loopback that speaks OpenAI's protocol as badly as it is told to. It counts a token a word.

What it does with the next streams is a list of deeds; without one it answers well. It writes down what it was asked.
"""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from select import select
from types import TracebackType
from typing import Any, Self

VLLM_METRICS = """# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} {running}
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="100"} 1.0
"""


class FakeOpenAI:
    """The server, and the knobs that make it one or another.

    Attributes:
        deeds: what befalls the next streams of more than one token: "429", "429 wait", "500", "401", "redirect",
            "not json", "not an object", "silent" (accepts and never answers), "stalls" (after two tokens), "drips"
            (comments without end), "cut", "error event", "empty", "whole" (no stream), "no end" (says that it is over,
            and stays), "ok".
        bundle: tokens a piece of text. `usage`: whether streams say what they count.
        takes: fields beyond the oldest protocol that it does not refuse.
        step_s: between pieces. `queue`: one stream after the other.
        meanwhile: called every 10 ms while "silent", "stalls" or "drips" keep a client waiting.
        refuses_after: streams that must have been asked for before one is refused: who asks for several at once hangs
            up on the others at the first refusal, and what had not arrived by then never does.
    """

    def __init__(self, **knobs: Any) -> None:
        self.deeds: deque[str] = deque()
        self.bundle, self.usage, self.counts, self.step_s, self.queue = 1, True, True, 0.0, False
        self.refuses_after = 0
        self.meanwhile: Callable[[], None] = lambda: None
        self.takes, self.routes = {"stream_options", "ignore_eos"}, {"completions", "chat/completions"}
        self.models: list[str] | None = ["m"]
        self.overhead, self.tokens_a_word, self.cached, self.most_prompt = 0, 1, 0, 10**9
        self.most_new, self.metrics, self.key = 10**9, False, ""
        self.asked: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.keys: list[str] = []
        self.running = 0
        self.certificate: Path | None = None  # with its key; the server then speaks https
        vars(self).update(knobs)
        self.lock, self.turn, self.closing = threading.Lock(), threading.Lock(), threading.Event()
        handler = type("Handler", (_Handler,), {"fake": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._http.daemon_threads = True
        scheme = "http"
        if self.certificate is not None:
            scheme, context = "https", ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.certificate)
            self._http.socket = context.wrap_socket(self._http.socket, server_side=True)
        self.url = f"{scheme}://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()

    def streams(self) -> list[dict[str, Any]]:
        """What was asked for as a stream of more than one token."""
        return [body for body in self.asked if body.get("stream") and body["max_tokens"] > 1]


class _Handler(BaseHTTPRequestHandler):
    fake: FakeOpenAI
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Silent."""

    def do_GET(self) -> None:
        self.fake.paths.append(self.path)
        if self.path == "/v1/models" and self.fake.models is not None:
            self._answer(200, {"data": [{"id": name} for name in self.fake.models]})
        elif self.path == "/metrics" and self.fake.metrics:
            self._bytes(200, VLLM_METRICS.replace("{running}", str(self.fake.running)).encode())
        else:
            self._answer(404, {"error": "nothing here"})

    def do_POST(self) -> None:
        fake = self.fake
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if len(data) < int(self.headers["Content-Length"]):  # hung up in the middle
            self.close_connection = True
            return None
        body = json.loads(data)
        with fake.lock:
            fake.paths.append(self.path)
            fake.keys.append(self.headers.get("Authorization", ""))
            fake.asked.append(body)
            is_measured = body["stream"] and body["max_tokens"] > 1
            deed = fake.deeds.popleft() if is_measured and fake.deeds else "ok"
        is_chat = self.path.endswith("chat/completions")
        text = body["messages"][0]["content"] if is_chat else body.get("prompt", "")
        n_prompt = len(text.split()) * fake.tokens_a_word + fake.overhead
        unknown = {"stream_options", "ignore_eos"} & set(body) - fake.takes
        if self.path.removeprefix("/v1/") not in fake.routes:
            return self._answer(404, {"detail": "Not Found"})
        if fake.key and self.headers.get("Authorization") != f"Bearer {fake.key}":
            return self._answer(401, {"error": {"message": f"no good: {self.headers.get('Authorization')}"}})
        if unknown:
            return self._answer(422, {"detail": f"Unexpected fields: {sorted(unknown)}"})
        if n_prompt > fake.most_prompt:
            return self._answer(400, {"error": {"message": f"maximum context is {fake.most_prompt}"}})
        n_new = min(body["max_tokens"], fake.most_new)
        usage = {"prompt_tokens": n_prompt, "completion_tokens": n_new, "total_tokens": n_prompt + n_new}
        if fake.cached:
            usage["prompt_tokens_details"] = {"cached_tokens": fake.cached}
        if not body["stream"] or deed == "whole":
            return self._answer(200, {"choices": [{"text": "a"}], "usage": usage} if fake.counts else {"choices": []})
        if deed in ("429", "429 wait", "500", "401", "redirect", "not json", "not an object", "silent"):
            return self._misbehave(deed)
        with fake.turn if fake.queue else threading.Lock():
            self._stream(deed, n_new, is_chat, usage if fake.usage and "stream_options" in body else None)

    def _misbehave(self, deed: str) -> None:
        while len(self.fake.streams()) < self.fake.refuses_after and not self.fake.closing.wait(0.005):
            pass
        if deed == "silent":
            for _ in self._until_hung_up():
                pass
            self.close_connection = True
        elif deed == "redirect":
            self._bytes(307, b"", ("Location", "http://127.0.0.1:9/v1/completions"))
        elif deed == "not json":
            self._event_stream(["<html>", "data: {"])
        elif deed == "not an object":
            self._event_stream(["[1, 2]"])
        elif deed.startswith("429"):
            wait = "3600" if deed.endswith("wait") else "0"
            self._bytes(429, b'{"error": {"message": "slow down"}}', ("Retry-After", wait))
        else:
            self._answer(int(deed), {"error": {"message": "it broke"}})

    def _stream(self, deed: str, n_new: int, is_chat: bool, usage: dict[str, Any] | None) -> None:
        fake = self.fake
        self._begin_stream()
        if is_chat:
            self._send({"choices": [{"delta": {"role": "assistant", "content": ""}, "finish_reason": None}]})
        if deed == "drips":
            for _ in self._until_hung_up():
                self._chunk(b": ping\n\n")
        if deed == "error event":
            return self._send({"error": {"message": "out of memory"}})
        for n_sent, begin in enumerate(range(0, 0 if deed == "empty" else n_new, fake.bundle)):
            if deed == "stalls" and n_sent == 2:
                for _ in self._until_hung_up():
                    pass
            if deed == "cut" and n_sent == 2:
                self.close_connection = True
                return
            time.sleep(fake.step_s)
            text = " a" * min(fake.bundle, n_new - begin)
            piece = {"delta": {"content": text}} if is_chat else {"text": text}
            is_last = begin + fake.bundle >= n_new
            self._send({"choices": [{**piece, "finish_reason": "length" if is_last else None}]})
        if deed == "empty":
            self._send({"choices": [{"text": "", "finish_reason": "stop"}]})
        if deed == "no end":
            fake.closing.wait(60)
        if usage:
            self._send({"choices": [], "usage": usage})
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _until_hung_up(self) -> Iterator[None]:
        """A turn every 10 ms until the client hangs up, which has nothing more to send; for a minute at most."""
        until = time.monotonic() + 60
        while time.monotonic() < until and not self.fake.closing.is_set():
            if select([self.connection], [], [], 0.01)[0]:
                return
            self.fake.meanwhile()
            yield

    def _event_stream(self, data: Iterable[str]) -> None:
        self._begin_stream()
        for one in data:
            self._chunk(f"data: {one}\n\n".encode())
        self._chunk(b"")

    def _begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _send(self, event: dict[str, Any]) -> None:
        self._chunk(f"data: {json.dumps(event)}\n\n".encode())

    def _chunk(self, data: bytes) -> None:
        try:
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        except OSError:
            self.close_connection = True

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        self._bytes(status, json.dumps(body).encode())

    def _bytes(self, status: int, data: bytes, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
