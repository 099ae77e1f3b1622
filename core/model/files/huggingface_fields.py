"""What every reader of a config.json does alike: raise a nested text part, name the classes, find the head's width."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.model.files.fields import MOST_WIDTH, Fields, shown
from core.refusal import Refusal


def unnested(values: Mapping[str, Any], file: str) -> tuple[dict[str, Any], frozenset[str]]:
    """The settings with those of a `text_config` raised to the top, and the names to which both give a value that
    differs; of these the inner one is among the settings.

    Raises:
        Refusal: `text_config` is no object.
    """
    inner = values.get("text_config") or {}
    if not isinstance(inner, dict):
        raise Refusal("model.option_unsupported", field="text_config", value=shown(inner), file=file)
    differing = {name for name, value in inner.items() if values.get(name) is not None and values[name] != value}
    return {**values, **inner}, frozenset(differing)


def class_names(fields: Fields) -> list[str] | None:
    """The names in `architectures`, none of them where it is absent, None where it is no list of names."""
    classes = fields.get("architectures") or []
    return classes if isinstance(classes, list) and all(isinstance(entry, str) for entry in classes) else None


def head_dim(fields: Fields, d_model: int, n_heads: int, name: str = "head_dim") -> int:
    """The head's width as stated under `name`; where it is not, d_model / n_heads.

    Raises:
        Refusal: what is stated is no width, or nothing is and d_model does not divide into heads.
    """
    if name not in fields and d_model % n_heads:
        raise Refusal("model.head_dim_not_whole", d_model=d_model, n_heads=n_heads)
    return fields.whole(name, at_most=MOST_WIDTH, default=max(1, d_model // n_heads))
