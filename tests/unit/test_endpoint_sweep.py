"""The sweep of a server that behaves badly in every way we know of: what is recorded, repeated, given up, and said."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from core.lab.remote import exchange, watch
from core.lab.remote.address import Key, address_of
from core.lab.remote.faults import Fault, Kind
from core.lab.remote.interface import Api
from core.lab.remote.limits import Limits
from core.lab.remote.patience import Pausing
from core.lab.remote.plan import PointKey, RemotePlan
from core.lab.remote.point import Note, RemotePoint
from core.lab.remote.sweep import RemoteSweep
from core.refusal import Refusal
from tests.fake_openai import FakeOpenAI
from tests.in_step import read_in_step
from tests.ports import free_port

N_NEW = 8
CALM = Limits(first_pause_s=0.01, retries=2)
NO_FIRST = Limits(first_token_s=20, first_pause_s=0.01, retries=2)
NO_FURTHER = Limits(first_token_s=3000, between_tokens_s=10, first_pause_s=0.01, retries=2)
WARM_UP = "ok"


def plan(contexts: tuple[int, ...] = (20,), batches: tuple[int, ...] = (1,), repeats: int = 1) -> RemotePlan:
    return RemotePlan(contexts=contexts, batches=batches, repeats=repeats, new_tokens=N_NEW)


def swept(fake: FakeOpenAI, wanted: RemotePlan | None = None, **more: Any) -> list[RemotePoint]:
    with RemoteSweep(address_of(fake.url), Key(), wanted or plan(), more.pop("limits", CALM), **more) as sweep:
        return list(sweep.points(sweep.greet()))


@contextmanager
def ends_with(kind: Kind) -> Iterator[None]:
    with pytest.raises(Fault) as caught:
        yield
    assert caught.value.kind is kind and caught.value.sentence("zh") and caught.value.sentence("en")


@pytest.fixture
def second_later(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Called, it is a second later for the sweep's patience, which then ends by what happened and not by the clock."""
    n_seconds = 0

    def pass_by() -> None:
        nonlocal n_seconds
        n_seconds += 1

    clock = SimpleNamespace(**{**vars(time), "monotonic": lambda: time.monotonic() + n_seconds})
    for module in (exchange, watch):
        monkeypatch.setattr(module, "time", clock)
    return pass_by


def test_a_healthy_server_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    read_in_step(monkeypatch)
    with FakeOpenAI(step_s=0.01, overhead=1) as fake:
        points = swept(fake, plan((20, 40), (1, 3), repeats=2))
    assert [point.key for point in points] == [
        *(PointKey(context, batch, 0) for context in (20, 40) for batch in (1, 3)),
        *(PointKey(context, batch, 1) for context in (40, 20) for batch in (3, 1)),
    ]
    for point in points:
        assert point.prompt_tokens == point.key.context - N_NEW // 2
        assert (point.tokens, point.pieces, point.notes, point.retries) == (N_NEW, N_NEW, (), 0)
        assert point.decode_step_s is not None and point.decode_step_s > 0
        assert point.ttft_s is not None and 0 < point.ttft_s <= point.ttft_last_s
    prompts = [body["prompt"] for body in fake.streams()]
    assert len(set(prompts)) == len(prompts) == 2 * 2 * (1 + 3) + 1
    assert all(body["ignore_eos"] and body["temperature"] == 0 and body["model"] == "m" for body in fake.streams())


def test_a_batch_is_under_way_together(monkeypatch: pytest.MonkeyPatch) -> None:
    read_in_step(monkeypatch)
    with FakeOpenAI(step_s=0.01) as fake:
        (point,) = swept(fake, plan(batches=(4,)))
    assert point.together is not None and point.together > 0 and point.decode_step_s is not None


def test_one_after_the_other_is_no_batch() -> None:
    with FakeOpenAI(step_s=0.005, queue=True) as fake:
        (point,) = swept(fake, plan(batches=(3,)))
    assert point.notes == (Note.QUEUED,) and point.decode_step_s is None and point.together == 0
    assert point.tpot_s is not None


@pytest.mark.parametrize("bundle", [4, 8])
def test_bundled_tokens(bundle: int) -> None:
    with FakeOpenAI(step_s=0.02, bundle=bundle) as fake:
        (point,) = swept(fake)
    assert point.pieces == N_NEW // bundle and point.tokens == N_NEW and Note.BUNDLED in point.notes
    if bundle == N_NEW:
        assert Note.ONE_PIECE in point.notes and point.tpot_s is None and point.decode_step_s is None
    else:
        assert point.tpot_s is not None and point.tpot_s == point.decode_step_s


@pytest.mark.parametrize(
    ("deed", "kind"),
    [
        ("429", Kind.RATE_LIMITED),
        ("500", Kind.SERVER_ERROR),
        ("not json", Kind.NOT_JSON),
        ("not an object", Kind.NOT_JSON),
        ("silent", Kind.SLOW_ANSWER),
        ("drips", Kind.SLOW_ANSWER),
        ("stalls", Kind.SLOW_TOKEN),
        ("cut", Kind.CUT),
        ("error event", Kind.SERVER_ERROR),
    ],
)
def test_what_may_pass_is_tried_again(deed: str, kind: Kind, second_later: Callable[[], None]) -> None:
    """Twice it happens, the third time is good; and where it never is, the point is given up and says so."""
    heard: list[Pausing] = []
    limits = {"silent": NO_FIRST, "drips": NO_FIRST, "stalls": NO_FURTHER}.get(deed, CALM)
    with FakeOpenAI(meanwhile=second_later) as fake:
        fake.deeds.extend([WARM_UP, deed, deed])
        (point,) = swept(fake, on_pause=heard.append, limits=limits)
        assert point.fault is None and point.retries == 2 and point.tokens == N_NEW
        assert [pausing.fault.kind for pausing in heard] == [kind, kind]
        fake.deeds.extend([WARM_UP, deed, deed, deed])
        first, second = swept(fake, plan((20, 30)), limits=limits)
        assert first.fault is not None and first.fault.kind is kind and first.retries == 2
        assert second.fault is None


def test_one_bad_stream_repeats_the_batch() -> None:
    with FakeOpenAI(step_s=0.01, refuses_after=1 + 3) as fake:
        fake.deeds.extend([WARM_UP, "ok", "500", "ok"])
        (point,) = swept(fake, plan(batches=(3,)))
    assert point.retries == 1 and point.tokens == N_NEW and len(fake.streams()) == 1 + 3 + 3


def test_a_server_that_stays_unwell_ends_the_sweep() -> None:
    with FakeOpenAI() as fake:
        fake.deeds.extend([WARM_UP, "ok"] + ["500"] * 100)
        points: list[RemotePoint] = []
        sweep = RemoteSweep(address_of(fake.url), Key(), plan(tuple(range(20, 30))), CALM)
        with ends_with(Kind.SERVER_ERROR), sweep:
            points.extend(sweep.points(sweep.greet()))
    assert len(points) == 4 and [point.fault is None for point in points] == [True, False, False, False]
    assert len(fake.streams()) == 1 + 1 + 3 * 3


@pytest.mark.parametrize(
    ("deed", "kind"),
    [("redirect", Kind.REDIRECTED), ("401", Kind.UNAUTHORISED), ("429 wait", Kind.LONG_WAIT)],
)
def test_what_meets_every_point_ends_the_sweep(deed: str, kind: Kind) -> None:
    with FakeOpenAI() as fake, ends_with(kind):
        fake.deeds.extend([WARM_UP, deed])
        swept(fake)
    assert len(fake.streams()) == 2  # not asked again


@pytest.mark.parametrize(("deed", "kind"), [("empty", Kind.EMPTY), ("whole", Kind.NOT_STREAMED)])
def test_what_will_not_change_is_not_tried_again(deed: str, kind: Kind) -> None:
    with FakeOpenAI(usage=False) as fake:
        fake.deeds.extend([WARM_UP, deed])
        (point,) = swept(fake)
    assert point.fault is not None and point.fault.kind is kind and point.retries == 0


def test_who_forgets_to_hang_up_has_answered() -> None:
    with FakeOpenAI() as fake:
        fake.deeds.extend([WARM_UP, "no end"])
        (point,) = swept(fake)
    assert point.fault is None and point.notes == (Note.NO_USAGE,) and point.tokens == N_NEW


def test_without_usage_pieces_are_counted() -> None:
    with FakeOpenAI(usage=False, overhead=2) as fake:
        (point,) = swept(fake)
    assert point.notes == (Note.NO_USAGE,)  # the prompt's length is known from the probe
    assert (point.tokens, point.prompt_tokens) == (N_NEW, 16)


def test_without_any_count_a_token_a_word_is_assumed() -> None:
    with FakeOpenAI(usage=False, counts=False) as fake:
        (point,) = swept(fake)
    assert set(point.notes) == {Note.NO_USAGE, Note.PROMPT_UNCOUNTED} and point.prompt_tokens is None
    assert len(fake.streams()[-1]["prompt"].split()) == 16


@pytest.mark.parametrize("takes", [{"stream_options", "ignore_eos"}, {"stream_options"}, set()])
@pytest.mark.parametrize("route", ["completions", "chat/completions"])
def test_the_server_is_asked_as_it_likes(takes: set[str], route: str) -> None:
    with FakeOpenAI(takes=takes, routes={route}, most_new=5) as fake:
        (point,) = swept(fake)
    assert set(fake.streams()[-1]) & {"stream_options", "ignore_eos"} == takes
    is_counted = "stream_options" in takes
    assert point.notes == ((Note.EARLY_END,) if is_counted else (Note.NO_USAGE,)) and point.tokens == 5


def test_a_wanted_interface_is_the_only_one_asked() -> None:
    with FakeOpenAI(routes={"completions"}) as fake, ends_with(Kind.NOT_FOUND):
        swept(fake, api=Api.CHAT)
    assert "/v1/completions" not in fake.paths


def test_several_models_are_named() -> None:
    with FakeOpenAI(models=["a", "b"]) as fake:
        with pytest.raises(Refusal, match="a, b"):
            swept(fake)
        assert swept(fake, wanted_model="b") and fake.streams()[-1]["model"] == "b"


def test_no_list_of_models_is_no_hindrance() -> None:
    with FakeOpenAI(models=None) as fake:
        assert swept(fake)[0].fault is None and "model" not in fake.streams()[-1]


def test_a_length_that_no_text_has_is_said() -> None:
    with FakeOpenAI(tokens_a_word=5) as fake:
        (point,) = swept(fake, plan((121,)))  # 117 wanted: 115 is the nearest
    assert point.prompt_tokens == 115 and point.notes == (Note.PROMPT_GAP,)


def test_too_long_a_prompt_is_one_points_own_trouble() -> None:
    with FakeOpenAI(most_prompt=50) as fake:
        points = swept(fake, plan((20, 100, 30), (1, 2)))
    faults = [point.fault.kind if point.fault else None for point in points]
    assert faults == [None, None, Kind.REJECTED, Kind.REJECTED, None, None]
    assert points[2].fault is not None and "maximum context is 50" in points[2].fault.sentence("zh")


def test_a_cached_prompt_is_said() -> None:
    with FakeOpenAI(cached=10) as fake:
        (point,) = swept(fake)
    assert point.cached_tokens == 10 and point.notes == (Note.CACHED,)


def test_the_cache_is_looked_at_while_all_write() -> None:
    with FakeOpenAI(metrics=True, step_s=0.1, running=1) as fake:
        (point,) = swept(fake)
    assert (point.kv_share, point.kv_tokens) == (0.25, 0.25 * 100 * 16)
    assert point.notes == (Note.BUSY,)  # one was running before we came


def test_nobody_there() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with ends_with(Kind.UNREACHABLE), RemoteSweep(address_of(url), Key(), plan(), CALM) as sweep:
        sweep.greet()


def answers(data: bytes) -> Callable[[socket.socket], None]:
    """A server below HTTP: reads a little, sends this, hangs up."""

    def serve(listening: socket.socket) -> None:
        while True:
            try:
                connected, _ = listening.accept()
            except OSError:
                return
            with connected:
                connected.recv(65536)
                connected.sendall(data)

    return serve


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", Kind.NOT_HTTP),
        (b"", Kind.CUT),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}", Kind.CUT),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}", Kind.CUT),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 500 + b"\r\n", Kind.NOT_HTTP),
    ],
)
def test_what_is_no_web_server(data: bytes, kind: Kind) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=answers(data), args=(listening,), daemon=True).start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with ends_with(kind), RemoteSweep(address_of(url), Key(), plan(), CALM) as sweep:
            sweep.greet()
        listening.shutdown(socket.SHUT_RDWR)


def test_a_port_that_never_answers_is_left_alone() -> None:
    """The connection stands, since the system accepts it, and the encryption never begins."""
    with socket.create_server(("127.0.0.1", 0)) as listening, ends_with(Kind.UNREACHABLE):
        url = f"https://127.0.0.1:{listening.getsockname()[1]}"
        impatient = Limits(connect_s=0.2, retries=0)
        with RemoteSweep(address_of(url), Key(), plan(), impatient) as sweep:
            sweep.greet()


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """For 127.0.0.1, signed by itself."""
    if not (openssl := shutil.which("openssl")):
        pytest.skip("makes its certificate with openssl, which is not installed")
    file = tmp_path / "certificate.pem"
    made = [*("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1")]
    where = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(file), "-out", str(tmp_path / "public.pem")]
    subprocess.run([openssl, *made, *where], check=True, capture_output=True)
    file.write_text(file.read_text() + (tmp_path / "public.pem").read_text())
    return file


def test_an_encrypted_server_is_measured_if_it_is_trusted(
    certificate: Path, monkeypatch: pytest.MonkeyPatch, second_later: Callable[[], None]
) -> None:
    with FakeOpenAI(certificate=certificate, meanwhile=second_later) as fake:
        with ends_with(Kind.UNTRUSTED):
            swept(fake)
        assert fake.paths == []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate.with_name("public.pem")))
        fake.deeds.extend([WARM_UP, "silent"])
        (point,) = swept(fake, plan(batches=(2,)), limits=NO_FIRST)
        assert point.fault is None and point.retries == 1


def test_a_stop_reaches_into_a_request() -> None:
    stop = threading.Event()
    with FakeOpenAI() as fake:
        fake.deeds.extend([WARM_UP, "silent"])
        patient = Limits(first_token_s=60, between_tokens_s=60)
        with RemoteSweep(address_of(fake.url), Key(), plan(), patient, cancel=stop) as sweep:
            threading.Timer(0.3, stop.set).start()
            with ends_with(Kind.CANCELLED):
                list(sweep.points(sweep.greet()))


def test_time_is_up_in_the_middle() -> None:
    with FakeOpenAI() as fake, ends_with(Kind.NO_TIME):
        fake.deeds.extend([WARM_UP, "silent"])
        swept(fake, limits=Limits(first_token_s=60, between_tokens_s=60, total_s=0.8))


def test_requests_are_counted_before_they_are_sent() -> None:
    with FakeOpenAI() as fake:
        fake.deeds.extend([WARM_UP] + ["500"] * 9)
        with pytest.raises(Refusal, match="All 10 requests"):
            swept(fake, plan(batches=(2,)), limits=Limits(requests=10, retries=20, first_pause_s=0.01))
        n_sent = len([body for body in fake.asked if not (body["stream"] and body["max_tokens"] == 1)])
    assert n_sent <= 10


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"contexts": ()}, "nothing_planned"),
        ({"contexts": (4,)}, "outside"),
        ({"batches": (257,)}, "outside"),
        ({"repeats": 0}, "outside"),
        ({"batches": (256,), "contexts": (2**20,)}, "outside"),
        ({"batches": (200,), "contexts": tuple(range(20, 60))}, "too_many_requests"),
    ],
)
def test_a_plan_beyond_the_limits_sends_nothing(changes: dict[str, Any], word: str) -> None:
    wanted = RemotePlan(**{"contexts": (20,), "batches": (1,), "new_tokens": N_NEW, **changes})
    with pytest.raises(Refusal) as refused:
        RemoteSweep(address_of("http://127.0.0.1:1"), Key(), wanted)
    assert refused.value.key == f"endpoint.{word}" and refused.value.sentence("zh")
