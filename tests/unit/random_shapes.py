"""Random models for property tests: dense, with experts, windows, latents, and layers of several kinds."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st

from core.estimate.dtypes import DTYPES, KvDtypes, WeightDtypes
from core.estimate.shape import Attention, Experts, FeedForward, LatentAttention, LayerGroup, ModelShape

# The same examples in every run; machines may be slow.
fast = settings(max_examples=60, deadline=None, derandomize=True)

small = st.integers(1, 40)
lengths = st.integers(1, 200)
batches = st.integers(1, 9)
kv_formats = st.builds(KvDtypes, st.sampled_from(list(DTYPES.values())), st.sampled_from(list(DTYPES.values())))
weight_formats = st.builds(
    WeightDtypes,
    st.sampled_from(list(DTYPES.values())),
    st.lists(
        st.tuples(
            st.sampled_from(("input_table", "attention", "feed_forward", "experts", "head")),
            st.sampled_from(list(DTYPES.values())),
        ),
        max_size=3,
        unique_by=lambda part: part[0],
    ).map(tuple),
)


@st.composite
def grouped_attention(draw: st.DrawFn, windows: bool = True) -> Attention:
    """Multi-head, grouped-query or multi-query, with or without a window."""
    n_kv = draw(st.integers(1, 5))
    return Attention(
        n_heads=n_kv * draw(st.integers(1, 4)),
        n_kv_heads=n_kv,
        head_dim=draw(small),
        value_dim=draw(st.sampled_from((0, 0, 24))),
        window=draw(st.none() | st.integers(1, 150)) if windows else None,
        has_qkv_bias=draw(st.booleans()),
        has_output_bias=draw(st.booleans()),
        qk_norm=draw(st.sampled_from(("none", "head", "full"))),
        has_sinks=draw(st.booleans()),
    )


latent_attention = st.builds(
    LatentAttention,
    n_heads=st.integers(1, 6),
    query_rank=st.none() | small,
    kv_rank=small,
    nope_dim=small,
    rope_dim=small,
    value_dim=small,
)
dense_part = st.builds(FeedForward, d_ff=small, is_gated=st.booleans(), has_bias=st.booleans())


@st.composite
def expert_part(draw: st.DrawFn) -> Experts:
    """A mixture of experts."""
    n_experts, d_shared = draw(st.integers(1, 12)), draw(st.sampled_from((0, 20)))
    return Experts(
        n_experts=n_experts,
        n_active=draw(st.integers(1, n_experts)),
        d_expert=draw(small),
        is_gated=draw(st.booleans()),
        d_shared=d_shared,
        has_bias=draw(st.booleans()),
        has_router_bias=draw(st.booleans()),
        has_shared_gate=bool(d_shared) and draw(st.booleans()),
    )


@st.composite
def shapes(draw: st.DrawFn, *, windows: bool = True, latents: bool = True, idle: bool = True) -> ModelShape:
    """A model of one to three kinds of layers; every model has some attention."""
    d = draw(small)
    attentions: st.SearchStrategy[Attention | LatentAttention] = grouped_attention(windows)
    if latents:
        attentions = attentions | latent_attention
    group = st.builds(
        LayerGroup,
        n_layers=st.integers(1, 6),
        attention=st.none() | attentions if idle else attentions,
        feed_forward=st.none() | dense_part | expert_part() if idle else dense_part | expert_part(),
        norm_width=st.sampled_from((0, d, 2 * d, 4 * d)),
    )
    first = replace(draw(group), attention=draw(attentions))
    others = draw(st.lists(group, max_size=2, unique=True))
    return ModelShape(
        name="random",
        architecture="test",
        d_model=d,
        vocab_size=draw(st.integers(1, 300)),
        context_limit=0,
        groups=(first, *(other for other in others if other != first)),
        tied_head=draw(st.booleans()),
        has_head_bias=draw(st.booleans()),
        n_positions=draw(st.sampled_from((0, 0, 64))),
        final_norm_width=draw(st.sampled_from((d, 2 * d))),
    )
