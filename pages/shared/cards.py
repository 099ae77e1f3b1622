"""The figures of a run as cards: memory, latency, the next token, and the shapes that meet in attention."""

from __future__ import annotations

from core.engine.trace import StepEvent, Trace
from core.model.sampling import Candidate
from core.model.text.tokenizer import Tokenizer
from pages.shared.html import Html, fill, join
from pages.shared.language import t
from pages.shared.ledger import step_name
from pages.shared.numbers import binary_bytes, count, milliseconds, percent
from pages.shared.visit import Started


def card(title: str, body: Html, kind: str = "") -> Html:
    """One idea with its heading."""
    return fill('<section class="tbt-card {kind}"><h2>{title}</h2>{body}</section>', kind=kind, title=title, body=body)


def memory_card(started: Started, trace: Trace) -> Html:
    """M_KV by its formula with this run's numbers, the tensors' own bytes, the gap; used against reserved."""
    event, config = trace.steps[-1], started.model.config
    if not started.config.use_cache:
        body = fill('<p class="tbt-number">0 B</p><p class="tbt-note">{text}</p>', text=t("memory_no_cache"))
        return card(t("memory"), body)
    per_position = event.kv_bytes_formula // event.n_tokens
    element_bytes = started.model.transformer.dtype.itemsize
    return card(
        t("memory"),
        fill(
            '<p class="tbt-number">{tensors} B <small>{binary}</small></p>'
            '<p class="tbt-note">{formula_word} 2·B·L·n<sub>kv</sub>·n·d<sub>h</sub>·b = '
            "2·1·{layers}·{heads}·<b>{n}</b>·{width}·{element} = <b>{formula}</b></p>"
            '<p class="tbt-note">{tensors_word} <b>{tensors}</b> · '
            '{gap_word} <b class="tbt-prefill-ink">{gap} B</b></p>'
            '<div class="tbt-bar" role="img" aria-label="{used} · {reserved}">'
            '<i class="tbt-used" style="width:{share}%"></i></div>'
            '<p class="tbt-note tbt-ends"><span>{used}</span><span>{reserved}</span></p>',
            tensors=count(event.kv_bytes),
            binary=binary_bytes(event.kv_bytes),
            formula_word=t("formula"),
            layers=config.n_layers,
            heads=config.n_kv_heads,
            n=event.n_tokens,
            width=config.head_dim,
            element=element_bytes,
            formula=count(event.kv_bytes_formula),
            tensors_word=t("tensors"),
            gap_word=t("gap"),
            gap=count(event.kv_bytes - event.kv_bytes_formula),
            share=f"{100 * event.kv_bytes / event.kv_reserved_bytes:.1f}",
            used=t("used_positions", count=count(event.n_tokens)),
            reserved=t("reserved_positions", count=count(event.kv_reserved_bytes // per_position)),
        ),
    )


def latency_card(trace: Trace, waiting_seconds: float) -> Html:
    """TTFT with its parts, and TPOT with the values of its definition."""
    first = trace.steps[0]
    sampling = first.sampled.seconds if first.sampled else 0.0
    parts = {
        "waiting": waiting_seconds,
        "tokenising": trace.tokenising_seconds,
        "model": first.seconds,
        "sampling": sampling,
    }
    to_first = waiting_seconds + (trace.time_to_first_token_s or 0.0)
    per_token, n_outputs = trace.time_per_output_token_s, len(trace.output_ids)
    rest = to_first + (per_token or 0.0) * (n_outputs - 1)
    substituted = (
        f"({milliseconds(rest)} − {milliseconds(to_first)}) / ({n_outputs} − 1)" if per_token else t("tpot_wait")
    )
    return card(
        t("latency"),
        fill(
            '<div class="tbt-pair"><div><p class="tbt-label">{ttft}</p>'
            '<p class="tbt-number tbt-prefill-ink">{to_first}</p></div>'
            '<div><p class="tbt-label">{tpot}</p><p class="tbt-number tbt-decode-ink">{per_token}</p></div></div>'
            '<p class="tbt-note"><b>TTFT</b> = {parts}</p><p class="tbt-note"><b>TPOT</b> = {substituted}</p>',
            ttft=t("ttft"),
            to_first=milliseconds(to_first),
            tpot=t("tpot"),
            per_token=milliseconds(per_token) if per_token is not None else "–",
            parts=" + ".join(f"{t(f'part_{name}')} {milliseconds(seconds)}" for name, seconds in parts.items()),
            substituted=substituted,
        ),
    )


def candidates_card(started: Started, event: StepEvent) -> Html:
    """The likeliest next tokens: the model's own probability, and what temperature, top-k and top-p make of it."""
    if event.sampled is None:
        return Html("")
    tokenizer, sampling = started.model.tokenizer, started.config.sampling
    rows = [_candidate(tokenizer, candidate, event.sampled.token_id) for candidate in event.sampled.candidates]
    if all(candidate.token_id != event.sampled.token_id for candidate in event.sampled.candidates):
        text = t("chosen_beyond", token=event.sampled.label)
        rows.append(fill('<tr><td colspan="4" class="tbt-note">{text}</td></tr>', text=text))
    return card(
        t("candidates"),
        fill(
            '<table class="tbt-candidates"><thead><tr><th scope="col">{token}</th><th aria-hidden="true"></th>'
            '<th scope="col">{before}</th><th scope="col">{after}</th></tr></thead><tbody>{rows}</tbody></table>'
            '<p class="tbt-note">{kept}</p>',
            token=t("column_token"),
            before=t("before_filters"),
            after=t("after_filters"),
            rows=join(rows),
            kept=t("kept_greedy")
            if sampling.is_greedy
            else t("kept", count=count(event.sampled.kept_count), share=percent(event.sampled.kept_mass)),
        ),
    )


def step_card(started: Started, trace: Trace) -> Html:
    """What the newest step computed and read, and the shapes of the tensors that met in each layer."""
    event, config = trace.steps[-1], started.model.config
    d_h, n, new = config.head_dim, event.n_tokens, event.new_positions
    share = 100 * new / n
    return card(
        t("newest_step", step=step_name(len(trace.steps) - 1, event)),
        fill(
            '<div class="tbt-shapes"><span class="tbt-q">Q [1, {h}, {new}, {d_h}]</span><span>×</span>'
            '<span class="tbt-k">K [1, {n_kv}, {n}, {d_h}]</span><span>→</span>'
            '<span class="tbt-a">{weights} [1, {h}, {new}, {n}]</span><span>×</span>'
            '<span class="tbt-v">V [1, {n_kv}, {n}, {d_h}]</span></div><p class="tbt-note">{names}</p>'
            '<div class="tbt-bar tbt-split" role="img" aria-label="{computed} · {reused}">'
            '<i class="tbt-used" style="width:{old}%"></i><i class="tbt-fill-{phase}" style="width:{share}%"></i>'
            '</div><p class="tbt-note tbt-ends"><span>{reused}</span><span>{computed}</span></p>',
            h=config.n_heads,
            n_kv=config.n_kv_heads,
            d_h=d_h,
            n=n,
            new=new,
            weights=t("attention_weights"),
            names=t("shape_names_prefill" if new > 1 else "shape_names"),
            old=f"{100 - share:.2f}",
            share=f"{share:.2f}",
            phase=event.phase,
            computed=t("positions_computed", count=count(new)),
            reused=t("positions_reused", count=count(event.reused_positions)),
        ),
    )


def _candidate(tokenizer: Tokenizer, candidate: Candidate, chosen_id: int) -> Html:
    state = "tbt-chosen" if candidate.token_id == chosen_id else "" if candidate.kept else "tbt-cut"
    return fill(
        '<tr class="{state}"><td><bdi class="tbt-mono">{label}</bdi></td>'
        '<td><span class="tbt-twin"><i class="tbt-before" style="width:{before_width}%"></i>'
        '<i class="tbt-after" style="width:{after_width}%"></i></span></td><td>{before}</td><td>{after}</td></tr>',
        state=state,
        label=tokenizer.token_label(candidate.token_id),
        before_width=f"{100 * candidate.probability:.2f}",
        after_width=f"{100 * candidate.probability_kept:.2f}",
        before=percent(candidate.probability),
        after=percent(candidate.probability_kept) if candidate.kept else t("filtered_away"),
    )
