"""Surgery on a cache: each edit is what it says, compared with passes over whole texts and masks made by hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from core.engine.engine import Engine
from core.engine.steps import generate
from core.estimate.kv import kv_bytes
from core.lab.cache_edits import recomputed, with_column_of, with_zeros, without
from core.lab.lane import difference, fill
from core.lab.surgery import Surgery
from core.lab.surgery_records import Edit, EditKind, EditResult, SurgeryResult
from core.model.attention import attention_weights
from core.model.kv_cache import KVCache
from core.model.load import LanguageModel
from core.refusal import Refusal
from tests.engines import MANY_BYTES, PATIENCE
from tests.peer import our_logits, random_ids, random_pair
from tests.runs import new_run

ROUNDING = 1e-4
TEXT = random_ids(12)
N_AFTER = 4


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return random_pair("qwen3", tmp_path_factory.mktemp("surgery") / "m", num_hidden_layers=3)[1]


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine(lambda: MANY_BYTES)
    yield engine
    engine.stop()


def operated(model: LanguageModel, *edits: Edit, tries: int = 1, n_written: int = 0) -> SurgeryResult:
    surgery = Surgery(model, TEXT, edits, n_written=n_written, n_after=N_AFTER)
    for point in surgery.points():
        for _ in range(tries):
            point()
    return surgery.result


def one(model: LanguageModel, edit: Edit) -> tuple[SurgeryResult, EditResult]:
    result = operated(model, edit)
    return result, result.edits[0]


def masked_logits(model: LanguageModel, ids: list[int], hidden_from: int, columns: range) -> Tensor:
    """Logits of all positions where those from `hidden_from` on cannot see some columns, by plain softmax."""

    def attend(layer: int, queries: Tensor, keys_values: Tensor) -> Tensor:
        keys, values = keys_values.chunk(2, 1)
        weights = attention_weights(queries, keys.transpose(0, 1)).clone()  # (h, n, n)
        weights[:, hidden_from:, columns.start : columns.stop] = 0
        weights = weights / weights.sum(-1, keepdim=True)
        values = values.repeat_interleave(queries.shape[1] // values.shape[1], 1)
        return torch.einsum("hqk,khd->qhd", weights, values)

    with torch.inference_mode():
        hidden = model.transformer.hidden(torch.tensor([ids]), attend=attend)
        return model.transformer.logits(hidden[0])[:, : model.tokenizer.vocab_size]


def check_against(made: EditResult, untouched: Tensor, edited: Tensor) -> None:
    """Each step's numbers from the logits [n_after, usable] of both."""
    for step, true, other in zip(made.steps, untouched, edited, strict=True):
        away = difference(true, other)
        assert step.from_untouched.logit == pytest.approx(away.logit, abs=ROUNDING)
        assert step.from_untouched.kl == pytest.approx(away.kl, abs=ROUNDING)
        assert (step.untouched_id, step.edited_id) == (int(true.argmax()), int(other.argmax()))


def later(model: LanguageModel, ids: list[int]) -> Tensor:
    return our_logits(model, ids)[-N_AFTER:, : model.tokenizer.vocab_size]


def fed(result: SurgeryResult) -> list[int]:
    """The text with what the steps were fed."""
    return [*result.ids, *result.untouched_ids[:-1]]


def test_untouched_is_plain_decoding(model: LanguageModel) -> None:
    result = operated(model, Edit(EditKind.DROP, 3), n_written=5)
    run = new_run(model, TEXT, max_new=5 + N_AFTER)
    written = [event.sampled.token_id for event in generate(model, run) if event.sampled]
    assert list(result.ids) == TEXT + written[:5] and result.n_given == len(TEXT)
    assert list(result.untouched_ids) == written[5:]
    assert result.kv_bytes == kv_bytes(model.shape, n_tokens=len(result.ids) - 1, dtypes=model.kv_dtypes)


def test_an_edit_that_changes_nothing_changes_nothing(model: LanguageModel) -> None:
    """The same token again: only rounding, for its column is computed in another pass."""
    for kind in (EditKind.REPLACE, EditKind.RECOMPUTE):
        _, made = one(model, Edit(kind, 5, token_id=TEXT[5]))
        assert made.n_changed == 0 and made.largest.logit < ROUNDING
        assert made.free_ids == tuple(step.untouched_id for step in made.steps)


def test_recomputing_is_another_text(model: LanguageModel) -> None:
    result, made = one(model, Edit(EditKind.RECOMPUTE, 4, token_id=99))
    text = fed(result)
    other = [*text[:4], 99, *text[5:]]
    check_against(made, later(model, text), later(model, other))
    assert (made.begin, made.old_id, made.new_id) == (4, TEXT[4], 99)
    assert all(step.from_recomputed is None for step in made.steps) and made.largest.logit > 100 * ROUNDING
    run = new_run(model, [*TEXT[:4], 99, *TEXT[5:]], max_new=N_AFTER)
    assert list(made.free_ids) == [event.sampled.token_id for event in generate(model, run) if event.sampled]


def test_a_stale_cache_is_neither_text(model: LanguageModel) -> None:
    result, made = one(model, Edit(EditKind.REPLACE, 4, token_id=99))
    text = fed(result)
    other = [*text[:4], 99, *text[5:]]
    caches = [model.transformer.new_cache() for _ in range(2)]
    for cache, ids in zip(caches, (text, other), strict=True):
        fill(model.transformer, ids[: len(TEXT) - 1], cache)
    stale = with_column_of(caches[0], caches[1], 4)
    with torch.inference_mode():
        hidden = model.transformer.hidden(torch.tensor([text[len(TEXT) - 1 :]]), [stale])
        logits = model.transformer.logits(hidden[0])[:, : model.tokenizer.vocab_size]
    check_against(made, later(model, text), logits)
    for step, right, edited in zip(made.steps, later(model, other), logits, strict=True):
        assert step.from_recomputed is not None
        assert step.from_recomputed.logit == pytest.approx(difference(right, edited).logit, abs=ROUNDING)
        assert step.from_recomputed.logit > 10 * ROUNDING


def test_the_last_column_edited_leaves_nothing_stale(model: LanguageModel) -> None:
    _, made = one(model, Edit(EditKind.REPLACE, -1, token_id=99))
    assert made.begin == len(TEXT) - 2
    assert all(step.from_recomputed is not None and step.from_recomputed.logit < ROUNDING for step in made.steps)


@pytest.mark.parametrize("columns", [range(4, 5), range(0, 1), range(0, 3), range(6, 10)])
def test_dropping_is_a_mask(model: LanguageModel, columns: range) -> None:
    """Columns that are gone are columns that later queries cannot see; all others stay where they were."""
    result, made = one(model, Edit(EditKind.DROP, columns.start, len(columns)))
    text = fed(result)
    masked = masked_logits(model, text, len(TEXT) - 1, columns)[-N_AFTER:]
    check_against(made, later(model, text), masked)
    left = len(TEXT) - 1 - len(columns)
    assert made.new_id is None and made.kv_bytes == result.kv_bytes * left // (len(TEXT) - 1)


def test_positions_that_move_are_another_edit(model: LanguageModel) -> None:
    """All before the gap seems nearer to what comes behind it than it was."""
    middle = operated(model, Edit(EditKind.DROP, 4), Edit(EditKind.DROP_AND_SHIFT, 4)).edits
    assert abs(middle[0].largest.logit - middle[1].largest.logit) > 10 * ROUNDING
    assert middle[0].kv_bytes == middle[1].kv_bytes


def test_zero_keys_still_take_part(model: LanguageModel) -> None:
    zeroed, dropped = operated(model, Edit(EditKind.ZERO, 4), Edit(EditKind.DROP, 4)).edits
    assert zeroed.kv_bytes > dropped.kv_bytes
    assert abs(zeroed.largest.logit - dropped.largest.logit) > 10 * ROUNDING


def test_points_may_be_done_again(model: LanguageModel) -> None:
    edits = [Edit(kind, 4) for kind in EditKind]
    assert operated(model, *edits, n_written=3) == operated(model, *edits, n_written=3, tries=2)


def test_the_replacement_is_the_second_best(model: LanguageModel) -> None:
    result = operated(model, Edit(EditKind.REPLACE, -2), n_written=5)
    begin = result.edits[0].begin
    scores = our_logits(model, result.ids[:begin])[-1, : model.tokenizer.vocab_size]
    assert [result.edits[0].old_id, result.edits[0].new_id] == scores.topk(2).indices.tolist()
    assert one(model, Edit(EditKind.REPLACE, 0))[1].new_id == TEXT[-1]


def filled(model: LanguageModel, ids: list[int]) -> KVCache:
    cache = model.transformer.new_cache()
    fill(model.transformer, ids, cache)
    return cache


def test_the_edits_leave_the_cache_alone(model: LanguageModel) -> None:
    cache = filled(model, TEXT)
    before = cache.columns(0, 12)
    other = recomputed(model.transformer, cache, 3, [7, *TEXT[4:]])
    one_column, zeros, shorter = with_column_of(cache, other, 3), with_zeros(cache, 2, 4), without(cache, 2, 5)
    assert torch.equal(cache.columns(0, 12), before) and cache.n_tokens == 12
    torch.testing.assert_close(
        other.columns(0, 12), filled(model, [*TEXT[:3], 7, *TEXT[4:]]).columns(0, 12), rtol=0, atol=ROUNDING
    )
    assert torch.equal(one_column.columns(3, 4), other.columns(3, 4))
    assert torch.equal(one_column.columns(4, 12), before[..., 4:, :])
    assert not zeros.columns(2, 4).any() and torch.equal(zeros.columns(4, 12), before[..., 4:, :])
    assert shorter.n_tokens == 9
    assert torch.equal(shorter.columns(0, 9), torch.cat([before[..., :2, :], before[..., 5:, :]], -2))


def test_the_real_models_first_column_matters_most(smollm2_f32: LanguageModel, engine: Engine) -> None:
    """Much attention rests on the first position of a trained model, whatever stands there."""
    ids = smollm2_f32.prompt_ids("Why is the sky blue?")
    surgery = Surgery(smollm2_f32, ids, [Edit(EditKind.DROP, 0), Edit(EditKind.DROP, 20)], n_after=2)
    engine.measure(surgery.measurement()).future.result(PATIENCE)
    first, middle = surgery.result.edits
    assert first.largest.logit > 3 * middle.largest.logit and first.largest.kl > 3 * middle.largest.kl


def test_what_cannot_be_operated_on_is_refused(model: LanguageModel) -> None:
    n_columns = len(TEXT) - 1
    for edit in (
        Edit(EditKind.DROP, n_columns),
        Edit(EditKind.DROP, -n_columns - 1),
        Edit(EditKind.DROP, 0, n_columns),
        Edit(EditKind.DROP, 3, 0),
        Edit(EditKind.REPLACE, 3, 2),
        Edit(EditKind.REPLACE, 3, token_id=10**6),
    ):
        with pytest.raises(Refusal):
            Surgery(model, TEXT, [edit])
    for ids, n_after in (([], 4), ([3], 4), (TEXT, 0), (random_ids(model.config.context_limit), 4)):
        with pytest.raises(Refusal):
            Surgery(model, ids, [], n_after=n_after)
