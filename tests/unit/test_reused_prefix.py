"""A chat behind its kept cache: only what is new is computed, nothing else changes, and a changed token ends it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.estimate.flops import layers_flops
from core.lab.reused_prefix import ReusedPrefix
from core.lab.reused_records import Case, ReusedResult
from core.model.load import LanguageModel
from core.model.text.chat_template import ChatTemplate
from core.refusal import Refusal
from tests.peer import our_logits

MESSAGES, N_NEW = ["The moon over the river", "is it far?", "say more"], 6
TURNS = "{% for m in messages %}[{{ m.role }}] {{ m.content CUT }}\n{% endfor %}[assistant] "


def model_of(tiny: LanguageModel, cut: str | None) -> LanguageModel:
    """Without a template, or with one that shows so much of what was said before."""
    if cut is None:
        return tiny
    template = ChatTemplate(TURNS.replace("CUT", cut), start_token="", end_token="")
    return replace(tiny, chat_template=template)


def chatted(model: LanguageModel, tries: int = 1) -> ReusedResult:
    experiment = ReusedPrefix(model, MESSAGES, N_NEW, system="be brief", first=MESSAGES[0] + "!")
    for point in experiment.points():
        for _ in range(tries):
            point()
    return experiment.result


@pytest.fixture(scope="module", params=[(None, 1), ("", 2)], ids=["one text", "in chat, each point twice"])
def result(request: pytest.FixtureRequest, tiny_f32: LanguageModel) -> ReusedResult:
    return chatted(model_of(tiny_f32, request.param[0]), request.param[1])


def test_only_what_is_new_is_computed(tiny_f32: LanguageModel, result: ReusedResult) -> None:
    assert len(result.turns) == 3 and result.turns[0].n_cached == result.turns[0].n_reused == 0
    for before, turn in zip(result.turns, result.later, strict=False):
        assert turn.n_cached == turn.n_reused == before.n_tokens + N_NEW - 1  # the newest token has no column
        assert turn.positions == (turn.n_tokens, turn.n_tokens - turn.n_reused)
        spared = layers_flops(tiny_f32.shape, turn.n_reused, 0, pairs="causal")
        assert turn.flops.anew - turn.flops.kept == spared > 0
    for turn in result.turns:
        assert turn.kv_bytes == (turn.kv_bytes_formula, turn.kv_bytes_formula)
        assert turn.kv_bytes_formula == 2 * 4 * 2 * 32 * 4 * turn.n_tokens
        assert turn.seconds.anew > 0 and turn.seconds.kept > 0
    total = result.of_later("positions")
    assert total.anew == sum(turn.n_tokens for turn in result.later) and total.ratio < 1


def test_the_answers_are_the_same(result: ReusedResult) -> None:
    assert result.has_same_tokens and result.largest_difference < 1e-4
    assert all(turn.kv_difference < 1e-4 and len(turn.kept_ids) == N_NEW for turn in result.turns)


def test_an_answer_is_what_passes_over_the_whole_text_give(tiny_f32: LanguageModel) -> None:
    turn, ids = chatted(tiny_f32).turns[0], tiny_f32.prompt_ids(MESSAGES[0])
    ends = sorted(tiny_f32.end_token_ids)
    for token_id in turn.kept_ids:
        logits = our_logits(tiny_f32, ids)[-1, : tiny_f32.tokenizer.vocab_size].clone()
        logits[ends] = float("-inf")
        assert token_id == int(logits.argmax())
        ids.append(token_id)


def test_the_cache_serves_up_to_the_first_other_token(tiny_f32: LanguageModel, result: ReusedResult) -> None:
    cases = {found.case: found for found in result.cases}
    whole, edited, system = (cases[case] for case in Case)
    assert whole.n_reused == whole.n_cached == edited.n_cached and whole.cached_id is None
    before = ("[user] " if result.in_chat else "") + MESSAGES[0]
    assert edited.n_reused == len(tiny_f32.tokenizer.encode(before))
    assert edited.prompt_id == tiny_f32.tokenizer.encode("!", add_start_token=False)[-1]
    assert system.n_reused <= len(tiny_f32.tokenizer.encode("[")) and system.cached_id != system.prompt_id
    assert result.n_same_cuts == result.n_cuts == N_NEW  # characters are tokens: text gives them back


def test_a_template_that_shortens_what_was_said_ends_the_reuse(tiny_f32: LanguageModel) -> None:
    """As templates that leave an earlier answer's thoughts out: behind the third character it is another text."""
    model = model_of(tiny_f32, "if m.role == 'user' else m.content[:3]")
    result = chatted(model)
    for before, turn in zip(result.turns, result.later, strict=False):
        assert turn.n_reused == before.n_tokens + 3 < turn.n_cached
        assert turn.positions.kept == turn.n_tokens - turn.n_reused
    assert result.has_same_tokens and result.n_same_cuts == 3


def test_a_chat_without_room_is_refused(tiny_f32: LanguageModel) -> None:
    with pytest.raises(Refusal) as refused:
        ReusedPrefix(tiny_f32, ["a" * 480, "b"])
    assert refused.value.key == "techniques.prompt_too_long"
