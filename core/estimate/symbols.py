"""A model's shape as factors, under the symbols of the formulas. What differs between layer groups says which it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from core.estimate.derivation import Factor
from core.estimate.shape import Attention, Experts, FeedForward, LatentAttention, LayerGroup, ModelShape

_LATEX = {
    "n_kv": "n_{\\mathrm{kv}}",
    "d_ff": "d_{\\mathrm{ff}}",
    "d_e": "d_{\\mathrm{e}}",
    "d_s": "d_{\\mathrm{s}}",
    "r_q": "r_{\\mathrm{q}}",
    "r_kv": "r_{\\mathrm{kv}}",
    "d_nope": "d_{\\mathrm{nope}}",
    "d_rope": "d_{\\mathrm{rope}}",
    "qk": "(d_{\\mathrm{nope}} + d_{\\mathrm{rope}})",
    "latent": "(r_{\\mathrm{kv}} + d_{\\mathrm{rope}})",
}


@dataclass(frozen=True, slots=True)
class GroupSymbols:
    """One group of layers with its factors by name: L, h, n_kv, d_h …; `label` is the key of the word that tells the
    group from the others, empty where there is one group or only its place tells it apart (L^{(2)})."""

    group: LayerGroup
    label: str
    factors: dict[str, Factor]

    def __getitem__(self, name: str) -> Factor:
        return self.factors[name]


def d_model(shape: ModelShape) -> Factor:
    """d."""
    return Factor("d", shape.d_model)


@lru_cache(maxsize=256)
def group_symbols(shape: ModelShape) -> tuple[GroupSymbols, ...]:
    """The factors of every group; those with a value of their own bear the group's label."""
    values = [_values(group) for group in shape.groups]
    labels = _labels(shape.groups)
    everywhere = {name: {own[name] for own in values if name in own} for own in values for name in own}
    shared = {name for name, found in everywhere.items() if len(found) == 1 and (name != "L" or len(values) == 1)}
    return tuple(
        GroupSymbols(
            group,
            label,
            {
                name: _factor(name, value, "" if name in shared else label, 0 if name in shared else place)
                for name, value in own.items()
            },
        )
        for place, (group, label, own) in enumerate(zip(shape.groups, labels, values, strict=True), 1)
    )


def _factor(name: str, value: int, label: str, place: int) -> Factor:
    """A number of a group; where groups differ in it, with what tells them apart."""
    symbol = _LATEX.get(name, name)
    return Factor(symbol if label or not place else f"{symbol}^{{({place})}}", value, label)


def merged(
    shape: ModelShape, products: Iterable[tuple[str, tuple[Factor, ...]]]
) -> Iterator[tuple[str, tuple[Factor, ...]]]:
    """Named products, in order, with equal ones written once and multiplied; what all groups have alike is one product
    over all L layers."""
    alike: dict[tuple[str, tuple[Factor, ...]], int] = {}
    for product in products:
        alike[product] = alike.get(product, 0) + 1
    layers = [symbols["L"] for symbols in group_symbols(shape)]
    all_layers = Factor("L", shape.n_layers)
    done: set[tuple[str, tuple[Factor, ...]]] = set()
    for (name, factors), times in alike.items():
        place = next((i for i, factor in enumerate(factors) if factor in layers), None)
        if len(layers) > 1 and place is not None:
            others = [(name, (*factors[:place], layer, *factors[place + 1 :])) for layer in layers]
            if all(alike.get(other) == times for other in others):
                if others[0] in done:
                    continue
                done.add(others[0])
                factors = (*factors[:place], all_layers, *factors[place + 1 :])
        yield name, (*([Factor("", times)] if times > 1 else []), *factors)


def _values(group: LayerGroup) -> dict[str, int]:
    values = {"L": group.n_layers}
    attention, feed_forward = group.attention, group.feed_forward
    if isinstance(attention, Attention):
        values |= {"h": attention.n_heads, "n_kv": attention.n_kv_heads, "d_h": attention.head_dim}
        values["d_v" if attention.value_dim != attention.head_dim else "d_h"] = attention.value_dim
    elif isinstance(attention, LatentAttention):
        nope, rope, kv_rank = attention.nope_dim, attention.rope_dim, attention.kv_rank
        values |= {"h": attention.n_heads, "r_kv": kv_rank, "d_nope": nope, "d_rope": rope, "d_v": attention.value_dim}
        values |= {"qk": nope + rope, "latent": kv_rank + rope}
        if attention.query_rank is not None:
            values["r_q"] = attention.query_rank
    if isinstance(feed_forward, FeedForward):
        values["d_ff"] = feed_forward.d_ff
    elif isinstance(feed_forward, Experts):
        values |= {"E": feed_forward.n_experts, "k": feed_forward.n_active, "d_e": feed_forward.d_expert}
        values["d_s"] = feed_forward.d_shared
    return values


def _labels(groups: tuple[LayerGroup, ...]) -> list[str]:
    """What tells the groups apart: how far attention sees, or what the feed-forward part is, or just their order."""
    if len(groups) == 1:
        return [""]
    reach = ["none" if g.attention is None else "window" if g.attention.window else "full" for g in groups]
    parts = ["moe" if isinstance(group.feed_forward, Experts) else "dense" for group in groups]
    for labels in (reach, parts):
        if len(set(labels)) == len(groups):
            return labels
    return [""] * len(groups)
