"""Every layout of a matrix gives the plain product, within the rounding of its own dtype, and there is always one."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from core.model import products
from core.model.products import (
    BlockedProduct,
    HalfProduct,
    PlainProduct,
    Product,
    available_cores,
    has_blocked_product,
    has_half_product,
    n_torch_threads,
    pack,
    use_threads,
)

# Relative to the size of the sums: what a dtype's weights (and, for bf16, inputs and outputs) may be rounded by.
ROUNDING = {torch.float32: 1e-6, torch.float16: 1e-6, torch.bfloat16: 2**-7}
# Outputs, inputs: odd ones, one row, one column, sizes that fill no vector register and sizes that fill many.
SIZES = [(1, 1), (1, 7), (7, 1), (3, 5), (17, 31), (64, 64), (65, 129), (130, 48)]


@pytest.fixture(autouse=True)
def forget_what_works() -> Any:
    """What a build can do is found out once a process; here it changes under way."""
    yield
    available_cores.cache_clear()
    has_half_product.cache_clear()
    has_blocked_product.cache_clear()


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def exact(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The product in float64 with the weights as they are stored."""
    y = x.double() @ weight.double().T
    return y if bias is None else y + bias.double()


def packed(weight: Tensor, bias: Tensor | None = None) -> Product:
    """The best layout in the dtype the weights already have."""
    return pack(weight, bias, weight.dtype)


def assert_is_the_product(weight: Tensor, bias: Tensor | None, n_rows: int) -> None:
    product = packed(weight, bias)
    x = random(n_rows, weight.shape[1], seed=3)
    y = product(x)
    assert y.dtype == torch.float32 and y.shape == (n_rows, len(weight))
    # The length of the sums, not their value: terms may cancel.
    size = (x.abs().double() @ weight.abs().double().T).max().item() + 1
    assert (y.double() - exact(x, weight, bias)).abs().max().item() <= ROUNDING[weight.dtype] * size
    assert product.n_bytes == weight.numel() * weight.element_size()


@pytest.mark.parametrize("n_rows", [1, 2, 33])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_equals_the_plain_product(size: tuple[int, int], dtype: torch.dtype, with_bias: bool, n_rows: int) -> None:
    weight = random(*size, seed=1).to(dtype)
    assert_is_the_product(weight, random(size[0], seed=2).to(dtype) if with_bias else None, n_rows)


@pytest.mark.parametrize("dtype", ROUNDING)
def test_weights_are_rounded_once_to_their_dtype(dtype: torch.dtype) -> None:
    """From fp32, and from a file in another half precision: the same as rounding first."""
    for stored in (torch.float32, torch.float16, torch.bfloat16):
        weight, bias, x = random(9, 11, seed=1).to(stored), random(9, seed=2).to(stored), random(3, 11, seed=3)
        product = pack(weight, bias, dtype)
        torch.testing.assert_close(product(x), packed(weight.to(dtype), bias.to(dtype))(x), rtol=0, atol=2e-3)
        torch.testing.assert_close(pack(weight, None, dtype)(x), packed(weight.to(dtype))(x), rtol=0, atol=1e-6)
        assert product.n_bytes == 9 * 11 * dtype.itemsize


@pytest.fixture
def torch_threads() -> Any:
    """Sets how many threads torch's operators use, and sets it back."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("n_cores", [1, 2, 3, 64])
@pytest.mark.parametrize("n_rows", [1, 2, 7, 8, 17, 33, 200])
def test_a_row_gives_the_same_whatever_is_beside_it(torch_threads: Any, n_rows: int, n_cores: int) -> None:
    """Exactly, however many rows and cores share the product: a run does not notice who shares its pass.

    Without AVX-512 one row, two and more have kernels of their own: then but for the rounding of fp32 sums.
    """
    weight, bias = random(130, 31, seed=1).half(), random(130, seed=2).half()
    x = random(n_rows, 31, seed=3)
    torch_threads(1)
    one_by_one = torch.cat([packed(weight, bias)(row[None]) for row in x])
    torch_threads(n_cores)
    together = packed(weight, bias)(x)
    if torch.backends.cpu.get_cpu_capability() == "AVX512":
        assert torch.equal(together, one_by_one)
    size = (x.abs() @ weight.float().abs().T).max().item() + 1
    assert (together - one_by_one).abs().max().item() <= ROUNDING[torch.float16] * size
    assert packed(weight, bias)(x.view(1, n_rows, 31)).shape == (1, n_rows, 130)


@pytest.mark.parametrize("works", [True, False])
def test_few_rows_of_halves_take_one_core_and_many_take_all(
    monkeypatch: pytest.MonkeyPatch, torch_threads: Any, works: bool
) -> None:
    monkeypatch.setattr(products, "available_cores", lambda: 2)
    monkeypatch.setattr(products, "has_half_product", lambda: works)
    few = [n_torch_threads(torch.float16, n_rows) for n_rows in range(1, products.MANY_ROWS)]
    assert set(few) == {1 if works else 2}
    assert n_torch_threads(torch.float16, products.MANY_ROWS) == n_torch_threads(torch.float16, 64) == 2
    assert n_torch_threads(torch.float32) == n_torch_threads(torch.bfloat16) == n_torch_threads(torch.float32, 64) == 2
    for n_rows in (64, 1):
        use_threads(torch.float16, n_rows)
        assert torch.get_num_threads() == n_torch_threads(torch.float16, n_rows)


@pytest.mark.parametrize(
    ("value", "cores"), [("1", 1), ("0", 1), ("", None), ("lots", None), ("-1", None), ("9999", None)]
)
def test_the_operator_may_limit_the_cores(monkeypatch: pytest.MonkeyPatch, value: str, cores: int | None) -> None:
    available_cores.cache_clear()
    monkeypatch.delenv("TBT_THREADS", raising=False)
    everything = available_cores()
    assert 1 <= everything <= (os.cpu_count() or 1)
    available_cores.cache_clear()
    monkeypatch.setenv("TBT_THREADS", value)
    assert available_cores() == (everything if cores is None else cores)


@pytest.mark.parametrize("dtype", ROUNDING)
def test_any_number_of_axes(dtype: torch.dtype) -> None:
    product = packed(random(6, 10, seed=1).to(dtype))
    x = random(2, 3, 10, seed=2)
    y = product(x)
    assert y.shape == (2, 3, 6)
    torch.testing.assert_close(y.view(6, 6), product(x.view(6, 10)), rtol=0, atol=1e-5)
    torch.testing.assert_close(product(x[0, 0]), y[0, 0], rtol=0, atol=1e-5)
    strided = random(10, 4, seed=3).T  # rows that do not lie one behind the other
    torch.testing.assert_close(product(strided), product(strided.contiguous()), rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", ROUNDING)
def test_packing_leaves_the_weights_alone(dtype: torch.dtype) -> None:
    weight, bias = random(5, 8, seed=1).to(dtype), random(5, seed=2).to(dtype)
    kept = weight.clone(), bias.clone()
    product = packed(weight, bias)
    before = product(torch.ones(1, 8))
    assert torch.equal(weight, kept[0]) and torch.equal(bias, kept[1])
    if not isinstance(product, PlainProduct):
        weight.zero_()
        assert torch.equal(product(torch.ones(1, 8)), before)


def test_halves_that_are_large_or_small_survive() -> None:
    """The largest finite half, the smallest normal one and zero: FBGEMM's layout is exact, not a clamped copy."""
    weight = torch.tensor([[65504.0, 2**-14, 0.0, -65504.0], [2**-24, -1.0, 1.0, 0.5]]).half()
    rows = torch.eye(4)
    # What is below the normal halves may be flushed to zero by a processor; all others are exact.
    torch.testing.assert_close(packed(weight)(rows), weight.float().T, rtol=0, atol=2**-24)


class Missing:
    """An operator that this build of torch does not have, or refuses to run."""

    def __init__(self, problem: type[Exception]) -> None:
        self.problem = problem

    def default(self, *_: object) -> None:
        raise self.problem("not in this build")


@pytest.mark.parametrize("problem", [RuntimeError, NotImplementedError])
def test_without_fbgemm_halves_take_the_plain_product(
    monkeypatch: pytest.MonkeyPatch, problem: type[Exception]
) -> None:
    monkeypatch.setattr(torch.ops.quantized, "linear_dynamic_fp16", Missing(problem))
    has_half_product.cache_clear()
    assert not has_half_product()
    weight = random(17, 31, seed=1).half()
    assert isinstance(packed(weight), PlainProduct)
    x = random(2, 31, seed=2)
    torch.testing.assert_close(packed(weight)(x).double(), exact(x, weight, None), rtol=0, atol=0.05)


class NoOperators:
    """torch.ops.mkldnn of a build without oneDNN, torch.ops.quantized of one without FBGEMM."""

    def __getattr__(self, name: str) -> object:
        raise AttributeError(f"no operator {name} in this build")


def test_without_the_name_itself_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.ops, "quantized", NoOperators())
    has_half_product.cache_clear()
    assert not has_half_product() and isinstance(packed(random(3, 4, seed=1).half()), PlainProduct)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_without_onednn_the_plain_product_serves(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    monkeypatch.setattr(torch.ops, "mkldnn", NoOperators())
    has_blocked_product.cache_clear()
    assert not has_blocked_product(dtype)
    weight = random(17, 31, seed=1).to(dtype)
    assert isinstance(packed(weight), PlainProduct)
    assert_is_the_product(weight, None, 2)


def test_a_layout_that_computes_something_else_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = SimpleNamespace(default=lambda x, _: torch.zeros(len(x), 6))
    monkeypatch.setattr(torch.ops.quantized, "linear_dynamic_fp16", wrong)
    has_half_product.cache_clear()
    assert not has_half_product()


def test_a_processor_without_bf16_gets_the_plain_product(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    has_blocked_product.cache_clear()
    assert not has_blocked_product(torch.bfloat16)
    assert isinstance(packed(random(3, 4, seed=1).bfloat16()), PlainProduct)


def test_other_devices_and_dtypes_take_the_plain_product() -> None:
    assert isinstance(packed(torch.empty(3, 4, device="meta")), PlainProduct)
    assert isinstance(packed(torch.ones(3, 4, dtype=torch.float64)), PlainProduct)


def test_the_fast_layouts_are_really_used_where_they_work() -> None:
    for dtype, layout, works in (
        (torch.float16, HalfProduct, has_half_product()),
        (torch.float32, BlockedProduct, has_blocked_product(torch.float32)),
        (torch.bfloat16, BlockedProduct, has_blocked_product(torch.bfloat16)),
    ):
        assert isinstance(packed(random(3, 4, seed=1).to(dtype)), layout if works else PlainProduct)


def test_the_plain_product_can_be_trained() -> None:
    weight = random(3, 4, seed=1).requires_grad_()
    products.PlainProduct(weight, None, weight.dtype)(random(2, 4, seed=2)).sum().backward()
    assert weight.grad is not None and weight.grad.abs().sum() > 0
