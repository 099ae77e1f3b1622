"""A server that has been greeted: which model it serves, which of the two interfaces, which wishes it understands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from core.lab.remote.address import Address, Key
from core.lab.remote.events import Usage, object_of, usage_of
from core.lab.remote.exchange import Exchange
from core.lab.remote.faults import Fault, Kind
from core.lab.remote.interface import Api
from core.lab.remote.limits import Limits
from core.lab.remote.watch import Watch
from core.refusal import Refusal

_MOST_LIST_BYTES = 2**22
_MOST_NAMED = 8


WISHES: dict[str, Any] = {"stream_options": {"include_usage": True}, "ignore_eos": True}
"""Fields that not every server takes. Without `ignore_eos` answers may be short; vLLM, SGLang and llama.cpp know it."""


@dataclass(frozen=True, slots=True)
class Client:
    """What every request to a server needs."""

    address: Address
    key: Key
    limits: Limits
    watch: Watch

    def exchange(self) -> Exchange:
        """A new connection's."""
        return Exchange(self.address, self.key, self.limits, self.watch)


@dataclass(frozen=True, slots=True)
class Server:
    """How this server is asked.

    Attributes:
        model: the name by which it knows the model; empty where it wants none.
        wishes: the names of WISHES it accepts.
    """

    model: str
    api: Api
    wishes: frozenset[str]

    @property
    def path(self) -> str:
        """The route behind /v1/."""
        return self.api.route

    def body(self, prompt: str, n_new: int, *, stream: bool) -> dict[str, Any]:
        """The request for `n_new` greedy tokens behind `prompt`."""
        body: dict[str, Any] = {"max_tokens": n_new, "temperature": 0, "stream": stream}
        if self.model:
            body["model"] = self.model
        if self.api is Api.CHAT:
            body["messages"] = [{"role": "user", "content": prompt}]
        else:
            body["prompt"] = prompt
        wanted = self.wishes if stream else self.wishes - {"stream_options"}
        return body | {name: WISHES[name] for name in sorted(wanted)}


def served_model(client: Client, wanted: str = "") -> str:
    """The name of the model to ask for: the one wanted, else the only one that the server lists.

    Raises:
        Refusal: it lists several, which the sentence names.
        Fault: it does not answer.
    """
    if wanted:
        return wanted
    try:
        with client.exchange() as exchange:
            exchange.ask("GET", client.address.of("models"))
            listed = object_of(exchange.whole(_MOST_LIST_BYTES)).get("data")
    except Fault as fault:
        if fault.kind in (Kind.NOT_FOUND, Kind.NOT_JSON):  # it keeps no list
            return ""
        raise
    entries = listed if isinstance(listed, list) else []
    names = [entry["id"] for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str)]
    if len(names) > 1:
        shown = ", ".join(client.key.without(name) for name in names[:_MOST_NAMED])
        raise Refusal("endpoint.several_models", models=shown, n=len(names))
    return names[0] if names else ""


def greeted(client: Client, model: str, api: Api | None = None) -> Server:
    """The server as it wants to be asked, found by asking for one token. Raises Fault where no way works."""
    refused: Fault | None = None
    for server in _ways(model, api):
        if refused is not None and refused.kind is Kind.NOT_FOUND and server.wishes != frozenset(WISHES):
            continue  # the route is not there, whatever is asked of it
        try:
            count(client, server, "Hello", wishes_too=True)
            return server
        except Fault as fault:
            if fault.kind not in (Kind.REJECTED, Kind.NOT_FOUND):
                raise
            refused = fault
    assert refused is not None
    raise refused


def _ways(model: str, api: Api | None) -> Iterator[Server]:
    """From the one that is measured best to the one that any server knows."""
    for one in (api,) if api else (Api.COMPLETIONS, Api.CHAT):
        for wishes in (frozenset(WISHES), frozenset({"stream_options"}), frozenset[str]()):
            yield Server(model, one, wishes)


def count(client: Client, server: Server, prompt: str, *, wishes_too: bool = False) -> Usage | None:
    """What the server counts for a prompt and one token behind it; None where it reports no usage. Raises Fault.

    `wishes_too`: asked as a stream, so that the server sees all it will be asked; its end is not waited for.
    """
    with client.exchange() as exchange:
        exchange.ask("POST", client.address.of(server.path), server.body(prompt, 1, stream=wishes_too))
        return None if wishes_too else usage_of(object_of(exchange.whole()))
