"""What a model consists of: every trained tensor once, how many numbers they hold, and the bytes that takes.

The one list of tensors is `weights`; parameter counts, weight memory, what a step reads and the FLOP of every product
are sums over it. Checked to the unit against transformers' models and the makers' published totals.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import NamedTuple

from core.estimate.derivation import Factor
from core.estimate.dtypes import Part, WeightDtypes
from core.estimate.elementwise import Numbers, exact, whole
from core.estimate.shape import Experts, FeedForward, LatentAttention, ModelShape
from core.estimate.symbols import GroupSymbols, d_model, group_symbols


class Weight(NamedTuple):
    """One kind of tensor over all layers of a group.

    Attributes:
        factors: their product is how many numbers there are; of a routed expert's tensor, in one expert.
        row: numbers in a row as it is stored, the inputs of a matrix.
        multiplies: it is a matrix that positions are multiplied with; norms, biases and look-up tables are not.
        experts: whose tensor it is: it exists n_experts times and a token uses n_active of them.
        term: the name under which products of one kind stand together in a derivation.
        group: which group of layers it belongs to, None outside of the layers.
    """

    name: str
    part: Part
    factors: tuple[Factor, ...]
    row: int
    multiplies: bool
    term: str = ""
    experts: Experts | None = None
    group: int | None = None

    @property
    def size(self) -> int:
        """Numbers, of one expert where there are experts."""
        return prod([int(factor.amount) for factor in self.factors])

    @property
    def total(self) -> int:
        """Numbers in all."""
        return self.size * (self.experts.n_experts if self.experts else 1)

    @property
    def active(self) -> int:
        """Numbers that one token meets."""
        return self.size * (self.experts.n_active if self.experts else 1)

    def bytes_of(self, dtypes: WeightDtypes) -> int:
        """Bytes, of one expert where there are experts."""
        return self.size // self.row * dtypes.of(self.part, self.follows_part).row_bytes(self.row)

    @property
    def follows_part(self) -> bool:
        """Whether a dtype given to its part alone is its own: the matrices and tables; routers stay as they are."""
        is_matrix = self.multiplies or self.part in ("input_table", "positions")
        return is_matrix and self.term != "router"


@lru_cache(maxsize=256)
def weights(shape: ModelShape) -> tuple[Weight, ...]:
    """All tensors of a model; a tied head is the input table and not listed twice."""
    d, V = d_model(shape), Factor("V", shape.vocab_size)
    listed = [Weight("input_table", "input_table", (V, d), shape.d_model, shape.tied_head, "head")]
    if shape.n_positions:
        rows = Factor("n_{\\mathrm{pos}}", shape.n_positions)
        listed.append(Weight("positions", "positions", (rows, d), shape.d_model, False, "positions"))
    for position, symbols in enumerate(group_symbols(shape)):
        layer = [*_attention(symbols, d), *_feed_forward(symbols, d), *_norms(symbols, d)]
        listed.extend(weight._replace(group=position) for weight in layer)
    if shape.final_norm_width:
        listed.append(_norm("final_norm", (), shape.final_norm_width, d))
    if not shape.tied_head:
        listed.append(Weight("head", "head", (V, d), shape.d_model, True, "head"))
    if shape.has_head_bias:
        listed.append(Weight("head_bias", "head", (V,), shape.vocab_size, False, "biases"))
    return tuple(listed)


def _attention(symbols: GroupSymbols, d: Factor) -> Iterator[Weight]:
    attention, L = symbols.group.attention, symbols["L"]
    if isinstance(attention, LatentAttention):
        yield from _latent_attention(attention, symbols, d)
        return
    if attention is None:
        return
    h, n_kv, d_h = symbols["h"], symbols["n_kv"], symbols["d_h"]
    d_v = symbols.factors.get("d_v", d_h)
    q_width, k_width = attention.n_heads * attention.head_dim, attention.n_kv_heads * attention.head_dim
    v_width, o_width = attention.n_kv_heads * attention.value_dim, attention.n_heads * attention.value_dim
    in_width = int(d.value)
    yield Weight("q_proj", "attention", (L, d, h, d_h), in_width, True, "queries_and_output")
    yield Weight("k_proj", "attention", (L, d, n_kv, d_h), in_width, True, "keys_and_values")
    yield Weight("v_proj", "attention", (L, d, n_kv, d_v), in_width, True, "keys_and_values")
    yield Weight("o_proj", "attention", (L, d, h, d_v), o_width, True, "queries_and_output")
    if attention.has_qkv_bias:
        yield Weight("q_bias", "attention", (L, h, d_h), q_width, False, "biases")
        yield Weight("k_bias", "attention", (L, n_kv, d_h), k_width, False, "biases")
        yield Weight("v_bias", "attention", (L, n_kv, d_v), v_width, False, "biases")
    if attention.has_output_bias:
        yield Weight("o_bias", "attention", (L, d), in_width, False, "biases")
    if attention.has_sinks:
        yield Weight("sinks", "attention", (L, h), attention.n_heads, False, "sinks")
    if attention.qk_norm == "head":
        yield Weight("q_norm", "norms", (L, d_h), attention.head_dim, False, "norms")
        yield Weight("k_norm", "norms", (L, d_h), attention.head_dim, False, "norms")
    elif attention.qk_norm == "full":
        yield Weight("q_norm", "norms", (L, h, d_h), q_width, False, "norms")
        yield Weight("k_norm", "norms", (L, n_kv, d_h), k_width, False, "norms")


def _latent_attention(attention: LatentAttention, symbols: GroupSymbols, d: Factor) -> Iterator[Weight]:
    L, h, r_kv = symbols["L"], symbols["h"], symbols["r_kv"]
    in_width = int(d.value)
    if attention.query_rank is None:
        yield Weight("q_proj", "attention", (L, d, h, symbols["qk"]), in_width, True, "queries")
    else:
        r_q = symbols["r_q"]
        yield Weight("q_down", "attention", (L, d, r_q), in_width, True, "queries")
        yield Weight("q_latent_norm", "norms", (L, r_q), attention.query_rank, False, "norms")
        yield Weight("q_up", "attention", (L, r_q, h, symbols["qk"]), attention.query_rank, True, "queries")
    yield Weight("kv_down", "attention", (L, d, symbols["latent"]), in_width, True, "latents")
    yield Weight("kv_latent_norm", "norms", (L, r_kv), attention.kv_rank, False, "norms")
    yield Weight("k_up", "attention", (L, r_kv, h, symbols["d_nope"]), attention.kv_rank, True, "latent_to_heads")
    yield Weight("v_up", "attention", (L, r_kv, h, symbols["d_v"]), attention.kv_rank, True, "latent_to_heads")
    yield Weight(
        "o_proj", "attention", (L, d, h, symbols["d_v"]), attention.n_heads * attention.value_dim, True, "output"
    )


def _feed_forward(symbols: GroupSymbols, d: Factor) -> Iterator[Weight]:
    part, L = symbols.group.feed_forward, symbols["L"]
    if isinstance(part, FeedForward):
        yield from _mlp("", "feed_forward", (L, d, symbols["d_ff"]), part.is_gated, part.has_bias, None)
    elif isinstance(part, Experts):
        in_width = int(d.value)
        yield Weight("router", "experts", (L, d, symbols["E"]), in_width, True, "router")
        if part.has_router_bias:
            yield Weight("router_bias", "experts", (L, symbols["E"]), part.n_experts, False, "biases")
        yield from _mlp("expert_", "experts", (L, d, symbols["d_e"]), part.is_gated, part.has_bias, part)
        if part.d_shared:
            yield from _mlp("shared_", "experts", (L, d, symbols["d_s"]), part.is_gated, False, None)
        if part.has_shared_gate:
            yield Weight("shared_gate", "experts", (L, d), in_width, True, "router")


def _mlp(
    prefix: str, part: Part, factors: tuple[Factor, ...], is_gated: bool, has_bias: bool, experts: Experts | None
) -> Iterator[Weight]:
    """Gate, up and down of width d_ff, (d_ff × d) each, their biases, or without a gate."""
    L, d, width = factors
    into, out_of = (["gate", "up"] if is_gated else ["up"]), "down"
    term = {"": "feed_forward", "expert_": "routed_experts", "shared_": "shared_experts"}[prefix]
    for name in into:
        yield Weight(f"{prefix}{name}", part, factors, int(d.value), True, term, experts)
    yield Weight(f"{prefix}{out_of}", part, factors, int(width.value), True, term, experts)
    if has_bias:
        for name in into:
            yield Weight(f"{prefix}{name}_bias", part, (L, width), int(width.value), False, "biases", experts)
        yield Weight(f"{prefix}{out_of}_bias", part, (L, d), int(d.value), False, "biases", experts)


def _norms(symbols: GroupSymbols, d: Factor) -> Iterator[Weight]:
    width = symbols.group.norm_width
    if width:
        yield _norm("norms", (symbols["L"],), width, d)


def _norm(name: str, layers: tuple[Factor, ...], width: int, d: Factor) -> Weight:
    """A norm's numbers, as rows of d where they are a multiple of it."""
    times, rest = divmod(width, int(d.value))
    if rest:
        return Weight(name, "norms", (*layers, Factor("", width)), width, False, "norms")
    several = (Factor("", times),) if times > 1 else ()
    return Weight(name, "norms", (*layers, *several, d), int(d.value), False, "norms")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParamCounts:
    """How many trained numbers a model has, by part; the parts add up to `total`.

    Attributes:
        input_table: the table of token embeddings, which is the output head too where the two are tied.
        experts: routed and shared experts with their routers.
        active: what one token uses besides the look-up: everything but the input table, experts only as many as are
            chosen; a tied table is the head and counts.
    """

    total: int
    active: int
    input_table: int
    positions: int
    attention: int
    feed_forward: int
    experts: int
    norms: int
    head: int

    @property
    def resident(self) -> int:
        """What has to be in memory: all of them, whichever experts a token chooses."""
        return self.total


@lru_cache(maxsize=256)
def parameters(shape: ModelShape) -> ParamCounts:
    """The parameter counts of a model."""
    parts = dict.fromkeys(("input_table", "positions", "attention", "feed_forward", "experts", "norms", "head"), 0)
    for weight in weights(shape):
        parts[weight.part] += weight.total
    active = sum(weight.active for weight in weights(shape))
    unused = 0 if shape.tied_head else parts["input_table"]
    return ParamCounts(total=sum(parts.values()), active=active - unused, **parts)


@lru_cache(maxsize=256)
def weight_bytes(shape: ModelShape, dtypes: WeightDtypes) -> int:
    """M_w in bytes: all weights, every expert included."""
    copies = ((weight, weight.experts.n_experts if weight.experts else 1) for weight in weights(shape))
    return sum(weight.bytes_of(dtypes) * n for weight, n in copies)


def weight_bytes_read(shape: ModelShape, dtypes: WeightDtypes, n_positions: Numbers) -> Numbers:
    """Bytes of the weights that `n_positions` positions are multiplied with in one pass, each read once.

    `n_positions` are all of the batch. Of the experts, as many as that many tokens are expected to choose.
    """
    common, routed = _bytes_read(shape, dtypes)
    return common + whole(sum(expected_distinct_experts(experts, n_positions) * one for experts, one in routed))


@lru_cache(maxsize=256)
def _bytes_read(shape: ModelShape, dtypes: WeightDtypes) -> tuple[int, tuple[tuple[Experts, int], ...]]:
    """Bytes that every pass reads, and of each group with experts those of one expert."""
    common = 0
    routed: dict[tuple[int | None, Experts], int] = {}
    for weight in weights(shape):
        if weight.multiplies and weight.experts is None:
            common += weight.bytes_of(dtypes)
        elif weight.multiplies and weight.experts is not None:
            key = weight.group, weight.experts
            routed[key] = routed.get(key, 0) + weight.bytes_of(dtypes)
    return common, tuple((experts, one) for (_, experts), one in routed.items())


def expected_distinct_experts(experts: Experts, n_positions: Numbers) -> Numbers:
    """How many experts of one layer at least one of `n_positions` tokens chooses: E·(1 − (1 − k/E)^n).

    Each token misses a given expert with probability 1 − k/E when routing is uniform and tokens choose alone. Real
    routing is uneven and meets fewer, so this is an upper bound; one token meets exactly k.
    """
    E, k = experts.n_experts, experts.n_active
    return E * (1 - (1 - k / E) ** exact(n_positions))
