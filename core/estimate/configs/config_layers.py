"""What differs from layer to layer in a config.json: windows, and which layers have experts."""

from __future__ import annotations

from core.estimate.configs.config_fields import ConfigFields, note
from core.estimate.shape import Note
from core.model.files.fields import MOST_LAYERS, MOST_POSITIONS, shown
from core.refusal import Refusal

_FULL, _WINDOWED = "full_attention", "sliding_attention"
# transformers' older name of the same.
_KINDS = {_FULL: False, "attention": False, _WINDOWED: True}
_BEHIND_FLAG = ("from_layer", "every_second", "all_if_on", "without_rope")


def windows(config: ConfigFields, n_layers: int) -> tuple[list[int | None], list[Note]]:
    """The window of each layer, None where it sees all positions, and what there is to say about them.

    `layer_types` overrides every other rule. Raises Refusal.
    """
    if "layer_types" in config.fields:
        is_windowed = _by_layer_types(config, n_layers)
        # Where the flag is off the class keeps no window at all, so windowed layers would have none.
        if any(is_windowed) and config.family.window in _BEHIND_FLAG and not _is_on(config, True):
            raise Refusal("model.field_contradicts", field="layer_types / use_sliding_window", file=config.file)
    elif config.family.window == "none" or (config.family.window in _BEHIND_FLAG and not _is_on(config, False)):
        return [None] * n_layers, _switched_off(config)
    else:
        is_windowed = _by_rule(config, n_layers)
    if not any(is_windowed):
        return [None] * n_layers, _switched_off(config)
    window = config.whole_or_none("sliding_window", at_most=MOST_POSITIONS)
    if window is None:
        if "layer_types" in config.fields:
            raise Refusal("model.field_missing", field="sliding_window", file=config.file)
        return [None] * n_layers, []
    said = note("estimate.note_window", n_windowed=sum(is_windowed), n_layers=n_layers, window=f"{window:,}")
    return [window if on else None for on in is_windowed], [said]


def experts_in(config: ConfigFields, n_layers: int) -> list[bool]:
    """Which layers choose among experts. Raises Refusal."""
    rule = config.family.experts
    if rule == "behind_dense":
        first = config.whole("first_k_dense_replace", at_most=MOST_LAYERS, at_least=0)
        # Read by DeepSeek's own code; transformers knows only the 1 that all published files have.
        every = config.whole_or_none("moe_layer_freq", at_most=MOST_LAYERS) or 1
        return [layer >= first and layer % every == 0 for layer in range(n_layers)]
    if rule == "every_nth":
        step = config.whole("decoder_sparse_step", at_most=MOST_LAYERS)
        dense = _numbers(config, "mlp_only_layers")
        return [layer not in dense and (layer + 1) % step == 0 for layer in range(n_layers)]
    return [rule == "all"] * n_layers


def _is_on(config: ConfigFields, default: bool) -> bool:
    return config.flag("use_sliding_window") if "use_sliding_window" in config.fields else default


def _switched_off(config: ConfigFields) -> list[Note]:
    """A word about a window that is stated and that no layer has."""
    if "sliding_window" not in config.fields:
        return []
    window = config.whole("sliding_window", at_most=MOST_POSITIONS, at_least=0)
    return [note("estimate.note_window_off", window=f"{window:,}")] if window else []


def _by_layer_types(config: ConfigFields, n_layers: int) -> list[bool]:
    kinds = config.fields.get(config.name("layer_types"))
    if not isinstance(kinds, list):
        raise Refusal("estimate.field_not_a_list", field="layer_types", value=shown(kinds), file=config.file)
    for kind in kinds:
        if not isinstance(kind, str) or kind not in _KINDS:
            raise Refusal(
                "estimate.layer_kind_unknown", kind=shown(kind), known=f"{_FULL}, {_WINDOWED}", file=config.file
            )
    _check_length(config, "layer_types", len(kinds), n_layers)
    if config.family.is_latent and _WINDOWED in kinds:
        config.fields.refuse("layer_types")
    return [_KINDS[kind] for kind in kinds]


def _by_rule(config: ConfigFields, n_layers: int) -> list[bool]:
    """Which layers have the window where the file has one; every rule as the class itself applies it."""
    rule, layers = config.family.window, range(n_layers)
    if rule == "pattern":
        pattern = config.family.window_pattern
        if config.family.reads_pattern and "sliding_window_pattern" in config.fields:
            pattern = config.whole("sliding_window_pattern", at_most=MOST_LAYERS)
        return [(layer + 1) % pattern != 0 for layer in layers]
    if rule == "from_layer":
        first = config.whole("max_window_layers", at_most=MOST_POSITIONS, at_least=0)
        return [layer >= first for layer in layers]
    if rule == "every_second":
        end = config.whole("max_window_layers", at_most=MOST_POSITIONS, at_least=0)
        return [layer % 2 == 0 and layer < end for layer in layers]
    if rule == "without_rope":
        return _without_rope(config, n_layers)
    return [True] * n_layers


def _without_rope(config: ConfigFields, n_layers: int) -> list[bool]:
    """smollm3: `no_rope_layers` holds a 1 for each layer that does have rotary positions."""
    if "no_rope_layers" not in config.fields:
        every = config.whole("no_rope_layer_interval", at_most=MOST_LAYERS)
        return [(layer + 1) % every == 0 for layer in range(n_layers)]
    has_rope = _numbers(config, "no_rope_layers")
    _check_length(config, "no_rope_layers", len(has_rope), n_layers)
    return [not rope for rope in has_rope]


def _numbers(config: ConfigFields, name: str) -> list[int]:
    """A list of whole numbers, empty where it is absent."""
    numbers = config.fields.get(config.name(name))
    if numbers is None:
        return []
    if not isinstance(numbers, list) or not all(type(number) is int and number >= 0 for number in numbers):
        raise Refusal("estimate.field_not_a_list", field=name, value=shown(numbers), file=config.file)
    return numbers


def _check_length(config: ConfigFields, name: str, found: int, n_layers: int) -> None:
    if found != n_layers:
        raise Refusal("estimate.wrong_length", field=name, found=found, n_layers=n_layers, file=config.file)
