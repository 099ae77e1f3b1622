"""Rows of published figures, and shapes and devices that the catalogue does not have.

A row names the figure as its source prints it, the unit it is printed in, how close a right calculator comes, and the
calls that compute it. Ids are those of the collection of published cases; ids with a plus are further samples of the
same kind, worked out by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from core.estimate.accelerators import Accelerator
from core.estimate.dtypes import DTYPES, Dtype, KvDtypes, kv_dtypes
from core.estimate.fit import max_context
from core.estimate.kv import kv_bytes, kv_bytes_per_token
from core.estimate.shape import Attention, FeedForward, LatentAttention, LayerGroup, ModelShape, QkNorm

KIB, MIB, GIB = 2**10, 2**20, 2**30
GB = 10**9
NOTHING = Dtype("nothing", 1, 0)

# Rows of the sections A–H, J, K, M, N that no test computes, and why.
LEFT_OUT = {
    "N10": "a typing error in a table of prompt lengths (129,024 or 129,042): nothing there is computed",
}

Agrees = Callable[[float, float], bool]


class Case(NamedTuple):
    """A published figure in its unit, when a computed one agrees with it, and how to compute it in base units."""

    id: str
    published: float
    unit: float
    agrees: Agrees
    computed: Callable[[], float]

    def check(self) -> None:
        """Computes the figure and compares."""
        value = self.computed() / self.unit
        assert self.agrees(self.published, value), f"{self.id}: published {self.published}, computed {value}"


def exact(published: float, computed: float) -> bool:
    """Equal to the last digit."""
    return published == computed


def rounded(places: int) -> Agrees:
    """Equal as far as it is printed."""
    return units(0.5 * 10**-places)


def units(most: float) -> Agrees:
    """At most so many of its units apart."""
    return lambda published, computed: abs(published - computed) <= most * (1 + 1e-9)


def percent(most: float) -> Agrees:
    """At most so many percent apart."""
    return lambda published, computed: abs(computed - published) <= abs(published) * most / 100


def above(least: float, most: float) -> Agrees:
    """A measurement that lies so many percent above what is computed."""
    return lambda published, computed: least <= (published / computed - 1) * 100 <= most


def within_above(most: float) -> Agrees:
    """A measurement at or above what is computed, by at most so many units."""
    return lambda published, computed: computed <= published <= computed + most


def both_negative(published: float, computed: float) -> bool:
    """Less than nothing is left, whatever else was counted."""
    return published < 0 and computed < 0


def case_id(case: Case) -> str:
    """What pytest calls a row."""
    return case.id


def check_ids(ids: str, *tables: Iterable[Case]) -> None:
    """Every id of these sections is in a table or left out with a reason, never both, and there are no others."""
    expected, covered = set(ids.split()), {case.id for table in tables for case in table}
    left_out = {name for name in LEFT_OUT if name[0] in {name[0] for name in expected}}
    assert covered | left_out == expected and not covered & left_out


def cache_layers(n_layers: int, n_kv: int, head_dim: int, window: int | None = None) -> LayerGroup:
    """Layers of which only the cache is known."""
    attention = Attention(n_heads=n_kv, n_kv_heads=n_kv, head_dim=head_dim, window=window)
    return LayerGroup(n_layers=n_layers, attention=attention, feed_forward=None, norm_width=0)


def idle_layers(n_layers: int) -> LayerGroup:
    """Layers that cache nothing."""
    return LayerGroup(n_layers=n_layers, attention=None, feed_forward=None, norm_width=0)


def mixed(*groups: LayerGroup, d: int = 64, V: int = 1) -> ModelShape:
    """A model of such layers."""
    return ModelShape(
        name="mixed",
        architecture="test",
        d_model=d,
        vocab_size=V,
        context_limit=0,
        groups=groups,
        final_norm_width=0,
    )


def cache_only(n_layers: int, n_kv: int, head_dim: int, window: int | None = None) -> ModelShape:
    """A model of which a row states only the layers, KV heads and their width."""
    return mixed(cache_layers(n_layers, n_kv, head_dim, window))


def latent_only(n_layers: int, kv_rank: int = 512, rope_dim: int = 64, n_heads: int = 128) -> ModelShape:
    """A model with latent attention of which a row states only what is cached."""
    attention = LatentAttention(
        n_heads=n_heads, query_rank=None, kv_rank=kv_rank, nope_dim=128, rope_dim=rope_dim, value_dim=128
    )
    return mixed(LayerGroup(n_layers=n_layers, attention=attention, feed_forward=None, norm_width=0))


def dense(
    n_layers: int,
    d: int,
    h: int,
    n_kv: int,
    d_ff: int,
    V: int,
    *,
    head_dim: int = 128,
    tied: bool = False,
    gated: bool = True,
    qkv_bias: bool = False,
    qk_norm: QkNorm = "none",
    positions: int = 0,
) -> ModelShape:
    """A decoder with two norms a layer and one at the end, all layers alike."""
    attention = Attention(n_heads=h, n_kv_heads=n_kv, head_dim=head_dim, has_qkv_bias=qkv_bias, qk_norm=qk_norm)
    feed_forward = FeedForward(d_ff=d_ff, is_gated=gated)
    return ModelShape(
        name="dense",
        architecture="test",
        d_model=d,
        vocab_size=V,
        context_limit=0,
        groups=(LayerGroup(n_layers=n_layers, attention=attention, feed_forward=feed_forward, norm_width=2 * d),),
        tied_head=tied,
        n_positions=positions,
        final_norm_width=d,
    )


LLAMA_2_13B = dense(40, 5120, 40, 40, 13824, 32000)
LLAMA_2_70B = dense(80, 8192, 64, 8, 28672, 32000)
LLAMA_3_70B = dense(80, 8192, 64, 8, 28672, 128256)


def without_windows(shape: ModelShape) -> ModelShape:
    """The model in a build that keeps all positions in all layers."""
    return replace(
        shape,
        groups=tuple(
            replace(group, attention=replace(group.attention, window=None))
            if isinstance(group.attention, Attention)
            else group
            for group in shape.groups
        ),
    )


def device(*, memory: float = 0, bandwidth: float = 1, bf16: float = 1) -> Accelerator:
    """A device of which a row states its own memory, bandwidth or peak."""
    return Accelerator(
        slug="device",
        name="Device",
        kind="gpu",
        form="",
        memory_bytes=int(memory),
        bandwidth_bytes_per_s=int(bandwidth),
        dense_flops=(("bf16", bf16),),
    )


def per_token(shape: ModelShape, kv: str = "bf16") -> int:
    """Bytes that one more position adds."""
    rate = kv_bytes_per_token(shape, kv_dtypes(kv))
    assert rate is not None
    return rate


def cache(shape: ModelShape, n_tokens: int, kv: str = "bf16", *, batch: int = 1, ranks: int = 1, page: int = 1) -> int:
    """Bytes of the cache."""
    dtypes = kv_dtypes(kv)
    return int(kv_bytes(shape, n_tokens=n_tokens, batch=batch, dtypes=dtypes, ranks=ranks, page_tokens=page))


def keys(shape: ModelShape, n_tokens: int, dtype: str, ranks: int = 1) -> int:
    """Bytes of the cached keys alone."""
    return int(kv_bytes(shape, n_tokens=n_tokens, dtypes=KvDtypes(DTYPES[dtype], NOTHING), ranks=ranks))


def values(shape: ModelShape, n_tokens: int, dtype: str, ranks: int = 1) -> int:
    """Bytes of the cached values alone."""
    return int(kv_bytes(shape, n_tokens=n_tokens, dtypes=KvDtypes(NOTHING, DTYPES[dtype]), ranks=ranks))


def pool_tokens(shape: ModelShape, pool_gib: float, *, ranks: int = 1, page: int = 1, kv: str = "bf16") -> int:
    """How many positions a pool holds in whole pages."""
    room = int(pool_gib * GIB)
    most = max_context(shape, room=room, batch=1, kv_dtypes=kv_dtypes(kv), ranks=ranks)
    assert most is not None
    return most // page * page
