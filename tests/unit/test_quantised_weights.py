"""Quantised weights: bytes to the unit, products equal to their own numbers, the original untouched."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from core.engine.engine import Engine
from core.estimate.dtypes import DTYPES, Dtype, WeightDtypes
from core.estimate.quantised import INT8_ROWS, Scheme, quantised_weight_bytes
from core.estimate.weights import weight_bytes_read
from core.lab.before_after import Asked, BeforeAfter, Compared
from core.lab.cached_lane import CachedLane
from core.lab.quality import held_ids, held_text, text_for
from core.lab.quantise import dequantise, in_groups, quantise
from core.lab.quantised_weights.experiment import QuantisedWeightsExperiment
from core.lab.quantised_weights.model import quantised
from core.lab.quantised_weights.products import Dequantised, Int4Groups, Int8Rows, pack_quantised
from core.model.load import LanguageModel, load_model
from core.model.products import BlockedProduct, HalfProduct, PlainProduct, has_blocked_product, has_half_product
from tests.engines import MANY_BYTES, PATIENCE
from tests.peer import random_ids, random_pair

SCHEMES = [
    INT8_ROWS,
    Scheme(8, 32),
    Scheme(4, 32),
    Scheme(4, 32, has_zero=True),
    Scheme(4, 64, has_zero=True),
    Scheme(4, 128, has_zero=True),
    Scheme(4, None),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return random_pair("llama", tmp_path_factory.mktemp("quantised") / "m")[1]


def matrix(n_outputs: int, n_inputs: int) -> Tensor:
    return torch.randn(n_outputs, n_inputs, generator=torch.Generator().manual_seed(n_inputs)) / n_inputs**0.5


def as_codes_say(weight: Tensor, scheme: Scheme) -> Tensor:
    codes = quantise(in_groups(weight, scheme.group), scheme.bits, has_zero=scheme.has_zero)
    return dequantise(codes).flatten(1)[:, : weight.shape[1]]


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize(("n_outputs", "n_inputs"), [(48, 64), (37, 45), (16, 577), (5, 33), (64, 128)])
@pytest.mark.parametrize("rows", [1, 5])
def test_a_product_is_that_of_its_own_numbers(scheme: Scheme, n_outputs: int, n_inputs: int, rows: int) -> None:
    weight, bias = matrix(n_outputs, n_inputs), torch.randn(n_outputs)
    product = pack_quantised(weight, bias, scheme)
    x = torch.randn(rows, n_inputs, generator=torch.Generator().manual_seed(1))
    expected = x @ as_codes_say(weight, scheme).T + bias
    # bf16 activations and results in torch's 4-bit product: 8 bits of mantissa
    tolerance = 0.04 if scheme.bits == 4 else 2e-3
    torch.testing.assert_close(product(x), expected, rtol=tolerance, atol=tolerance)
    assert product(x).dtype == x.dtype
    torch.testing.assert_close(product.unpacked()[0], as_codes_say(weight, scheme), rtol=2**-8, atol=1e-6)
    assert product.n_bytes == n_outputs * scheme.row_bytes(n_inputs)


def test_each_scheme_takes_its_product() -> None:
    def kinds(scheme: Scheme, n_outputs: int = 48) -> list[type]:
        return [type(part) for part in pack_quantised(matrix(n_outputs, 64), None, scheme)._parts]

    assert kinds(INT8_ROWS) == [Int8Rows]
    assert kinds(Scheme(8, 32)) == [Dequantised]
    assert kinds(Scheme(4, 32)) == [Int4Groups] == kinds(Scheme(4, 64, has_zero=True))
    assert kinds(Scheme(4, 32), 50) == [Int4Groups, Dequantised]
    assert kinds(Scheme(4, 32), 10) == [Dequantised]


def test_int8_rows_do_not_depend_on_their_neighbours() -> None:
    product, x = pack_quantised(matrix(24, 96), None, INT8_ROWS), torch.randn(7, 96)
    assert torch.equal(product(x)[3:4], product(x[3:4]))
    assert torch.equal(product(torch.zeros(1, 96)), torch.zeros(1, 24))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_loaded_matrix_comes_back_as_it_is_multiplied_with(dtype: torch.dtype) -> None:
    weight, bias = matrix(9, 11), torch.randn(9)
    products = [PlainProduct(weight, bias, dtype)]
    if dtype == torch.float16 and has_half_product():
        products.append(HalfProduct(weight, bias))
    elif dtype != torch.float16 and has_blocked_product(dtype):
        products.append(BlockedProduct(weight, bias, dtype))
    for product in products:
        unpacked, own_bias = product.unpacked()
        assert torch.equal(unpacked.float(), weight.to(dtype).float()) and own_bias is not None
        torch.testing.assert_close(own_bias.float(), bias.to(own_bias.dtype).float())


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("with_head", [True, False])
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_bytes_measured_are_bytes_computed(scheme: Scheme, with_head: bool, dtype: str) -> None:
    """The tiny model has 2,981 rows in its head, which is no multiple of anything, and 352 inputs to `down`."""
    tiny = load_model("tiny", device="cpu", dtype=dtype)
    made = quantised(tiny, scheme, with_head=with_head).transformer
    assert made.product_bytes == quantised_weight_bytes(tiny.shape, scheme, DTYPES[dtype], with_head=with_head)


def test_bytes_by_the_estimates_own_formats(tiny_f32: LanguageModel) -> None:
    scheme = Scheme(4, 64, has_zero=True)
    same = WeightDtypes(Dtype("int4", 64, 36, 4))
    computed = quantised_weight_bytes(tiny_f32.shape, scheme, DTYPES["f32"], with_head=True)
    assert computed == weight_bytes_read(tiny_f32.shape, same, 1)


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_the_original_stays_as_it_was(architecture: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    model = random_pair(architecture, tmp_path_factory.mktemp("untouched") / "m")[1]
    ids = torch.tensor([random_ids(20)])
    with torch.inference_mode():
        before = model.transformer.logits(model.transformer.hidden(ids))
        held = model.transformer.product_bytes
        made = quantised(model, INT8_ROWS)
        after = model.transformer.logits(model.transformer.hidden(ids))
        rounded = made.transformer.logits(made.transformer.hidden(ids))
    assert torch.equal(before, after) and model.transformer.product_bytes == held
    assert made.transformer.embedding is model.transformer.embedding
    assert made.transformer.final_norm is model.transformer.final_norm and made.config == model.config
    error = float((rounded - before).abs().max() / before.abs().max())
    assert 0 < error < 0.03


def test_a_wrong_scale_shows(model: LanguageModel) -> None:
    """One layer's scales a third too large, and the divergence is many times what int8 costs."""
    right = compared(model, quantised(model, INT8_ROWS))
    broken = quantised(model, INT8_ROWS)
    part = broken.transformer.layers[0].down._parts[0]  # type: ignore[attr-defined]
    part._scales = part._scales * 1.33
    wrong = compared(model, broken)
    assert wrong.quality.mean_divergence > 10 * right.quality.mean_divergence > 0


def test_identity_costs_nothing(model: LanguageModel) -> None:
    same = compared(model, model)
    assert same.quality.max_divergence == 0 and same.quality.perplexity_ratio == 1 and same.quality.agreement == 1
    assert same.texts.first_difference is None and same.kv_bytes.ratio == 1


def compared(before: LanguageModel, after: LanguageModel) -> Compared:
    asked = Asked(random_ids(9), 4, random_ids(40, seed=3))
    comparison = BeforeAfter(before, lambda: (CachedLane(before), CachedLane(after)), asked)
    for point in comparison.points():
        point()
    return comparison.result


def measured(model: LanguageModel, scheme: Scheme, asked: Asked, tries: int = 1) -> QuantisedWeightsExperiment:
    experiment = QuantisedWeightsExperiment(model, scheme, asked)
    for point in experiment.measurement().points:
        for _ in range(tries):
            point()
    return experiment


def test_a_point_may_be_done_again(model: LanguageModel) -> None:
    asked = Asked(random_ids(70), 5, random_ids(40, seed=3))
    once, twice = (measured(model, Scheme(4, 32), asked, tries).result for tries in (1, 2))
    assert once.compared.quality == twice.compared.quality and len(once.compared.quality.positions) == 39
    assert once.compared.texts == twice.compared.texts and len(once.compared.tokens) == 5
    assert [token.n_tokens for token in twice.compared.tokens] == [70, 71, 72, 73, 74]
    assert once.weight_bytes == once.weight_bytes_formula == twice.weight_bytes


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine(lambda: MANY_BYTES)
    yield engine
    engine.stop()


def test_in_the_exclusive_slot(model: LanguageModel, engine: Engine) -> None:
    """The result can be read at any time; behind the end only the record is left."""
    experiment = QuantisedWeightsExperiment(model, INT8_ROWS, Asked(random_ids(9), 3, random_ids(20)))
    assert experiment.result.weight_bytes is None and experiment.result.compared.tokens == ()
    measurement = experiment.measurement()
    assert measurement.n_bytes > experiment.result.weight_bytes_formula.after
    engine.measure(measurement).future.result(PATIENCE)
    assert len(experiment.result.compared.tokens) == 3
    deadline = time.monotonic() + PATIENCE  # who waits for a result hears of it before what was added to be done then
    while experiment._quantiser._layers or experiment._comparison._reading:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_tiny_model_keeps_its_couplet(tiny_f32: LanguageModel) -> None:
    asked = Asked(tiny_f32.prompt_ids("白日依山尽"), 12, held_ids(tiny_f32, text_for(tiny_f32, "zh"), 128))
    result = measured(tiny_f32, INT8_ROWS, asked).result.compared
    assert result.texts.before.startswith("，黄河入海流") and result.texts.first_difference is None
    assert 0.95 < result.quality.perplexity_ratio < 1.05 and 0 < result.quality.mean_divergence < 0.02
    coarse = measured(tiny_f32, Scheme(4, 128), asked).result.compared
    assert coarse.quality.mean_divergence > 5 * result.quality.mean_divergence


def test_the_real_model_in_int8(smollm2_f32: LanguageModel) -> None:
    held = held_ids(smollm2_f32, held_text("en"), 48)
    result = measured(smollm2_f32, INT8_ROWS, Asked(smollm2_f32.prompt_ids("Name three fruits."), 2, held)).result
    assert result.weight_bytes == result.weight_bytes_formula and 0.25 < result.weight_bytes_formula.ratio < 0.252
    assert 0.97 < result.compared.quality.perplexity_ratio < 1.03
    assert 0 < result.compared.quality.mean_divergence < 0.02
