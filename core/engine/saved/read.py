"""A run out of a header and arrays that a stranger may have written: every value is checked, and that they agree."""

from __future__ import annotations

from itertools import chain
from typing import Any

from core.engine.run import RunConfig
from core.engine.saved.events import read_steps
from core.engine.saved.fields import Entry
from core.engine.saved.numbers import read_norms, read_rows
from core.engine.saved.record import RecordedLabels, RecordedModel, SavedRun
from core.engine.saved.write import SIZES, SWITCHES
from core.engine.trace import Stop, StopKind, Trace
from core.model.config import ModelConfig
from core.model.device import DTYPES
from core.model.files.fields import MOST_LAYERS, MOST_POSITIONS, MOST_TOKENS, MOST_WIDTH
from core.model.sampling import SEED_LIMIT, SamplingConfig
from core.model.text.chat_template import Message
from core.refusal import Refusal

LONGEST_NAME, LONGEST_LABEL, LONGEST_TEXT = 200, 1000, 1_000_000
MOST_LABELS, MOST_MESSAGES, MOST_PROMPT = 200_000, 2000, 1_000_000
MOST_SHOWN = 4_000_000
"""Characters of all labels together, each as often as the stage shows it: a short file could ask for a long screen."""
MOST_SIZES = {
    "n_layers": MOST_LAYERS,
    "n_heads": 1 << 12,
    "n_kv_heads": 1 << 12,
    "head_dim": 1 << 14,
    "vocab_size": MOST_TOKENS,
    "context_limit": MOST_POSITIONS,
}
DEVICES = ("cpu", "cuda", "mps")
ROLES = ("system", "user", "assistant")


def read_run(header: dict[str, Any], arrays: bytes) -> SavedRun:
    """The run. Raises Refusal, which names the entry that is wrong."""
    top = Entry(header)
    model, settings = _model(top), top.entry("settings")
    config = _config(settings)
    prompt_ids = top.wholes("prompt_ids", most=MOST_TOKENS, at_most=MOST_PROMPT)
    if not prompt_ids:
        raise top.wrong("prompt_ids")
    steps, norms_end = read_norms(arrays, read_steps(top, model, config, len(prompt_ids)), model)
    trace = Trace(
        prompt_ids=prompt_ids,
        steps=steps,
        text=top.text("text", longest=LONGEST_TEXT),
        stopped=_stop(top),
        tokenising_seconds=top.number("tokenising_s"),
    )
    if not {*prompt_ids, *trace.output_ids} <= model.tokenizer.known.keys():
        raise top.wrong("labels")
    _check_shown(trace, model)
    return SavedRun(
        model=model,
        config=config,
        in_chat=settings.flag("in_chat"),
        prompt=settings.text("prompt", longest=LONGEST_TEXT),
        history=tuple(_message(entry) for entry in settings.entries("history", at_most=MOST_MESSAGES)),
        computed_again=top.whole("computed_again", most=len(prompt_ids)),
        waiting_seconds=top.number("waiting_s"),
        trace=trace,
        rows=read_rows(arrays[norms_end:], top, model, config, steps),
        saved_at=top.whole("saved_at", most=253_402_300_799),  # the last second of the year 9999
    )


def _check_shown(trace: Trace, model: RecordedModel) -> None:
    candidates = (each.token_id for step in trace.steps if step.sampled for each in step.sampled.candidates)
    shown = chain(trace.prompt_ids, trace.output_ids, candidates)
    if sum(len(model.tokenizer.token_label(token_id)) for token_id in shown) > MOST_SHOWN:
        raise Refusal("saved.too_long")


def _model(top: Entry) -> RecordedModel:
    entry, machine = top.entry("model"), top.entry("machine")
    sizes: dict[str, Any] = {name: entry.whole(name, least=1, most=MOST_SIZES.get(name, MOST_WIDTH)) for name in SIZES}
    name, architecture = (entry.text(each, longest=LONGEST_NAME) for each in ("name", "architecture"))
    switches: dict[str, Any] = {each: entry.flag(each) for each in SWITCHES}
    dtype, device = entry.text("dtype", longest=10), machine.text("device", longest=10)
    if dtype not in DTYPES:
        raise entry.wrong("dtype")
    if device not in DEVICES:
        raise machine.wrong("device")
    try:
        config = ModelConfig(name=name, architecture=architecture, **sizes, **switches)
    except Refusal:  # heads that cannot be shared out, a head of odd width
        raise entry.wrong("n_heads") from None
    labels = {
        each.whole("id", most=MOST_TOKENS): (each.text("label", longest=LONGEST_LABEL), each.flag("part"))
        for each in top.entries("labels", at_most=MOST_LABELS)
    }
    return RecordedModel(
        config=config,
        dtype_name=dtype,
        tokenizer=RecordedLabels(entry.whole("n_tokens_known", least=1, most=MOST_TOKENS), labels),
        device=device,
        n_cores=machine.whole("n_cores", most=1 << 16),
    )


def _config(settings: Entry) -> RunConfig:
    seed = settings.text("seed", longest=20)
    if not (seed.isascii() and seed.isdigit() and int(seed) < SEED_LIMIT):
        raise settings.wrong("seed")
    sampling = SamplingConfig(
        temperature=settings.number("temperature", most=1e6),
        top_k=settings.whole("top_k"),
        top_p=settings.number("top_p", most=1.0),
        repetition_penalty=settings.number("repetition_penalty", least=0.01, most=100.0),
        seed=int(seed),
    )
    in_one_pass = settings.is_null("prefill_chunk")
    return RunConfig(
        max_new=settings.whole("max_new"),
        sampling=sampling,
        use_cache=settings.flag("use_cache"),
        prefill_chunk=None if in_one_pass else settings.whole("prefill_chunk", least=1),
    )


def _message(entry: Entry) -> Message:
    role = entry.text("role", longest=20)
    if role not in ROLES:
        raise entry.wrong("role")
    return Message(role, entry.text("content", longest=LONGEST_TEXT))


def _stop(top: Entry) -> Stop | None:
    if top.is_null("stopped"):
        return None
    entry = top.entry("stopped")
    kind = entry.text("kind", longest=30)
    if kind not in set(StopKind):
        raise entry.wrong("kind")
    return Stop(StopKind(kind), None if entry.is_null("value") else entry.whole("value"))
