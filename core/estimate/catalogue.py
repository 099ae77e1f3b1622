"""Released models by slug: their shape as in their config.json, and what was published of their size, with sources.

The data is assets/catalogue/models.toml, read when it is first asked for. Parameter totals are computed from the shape.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from core.estimate.configs.huggingface import from_hf
from core.estimate.shape import ModelShape
from core.refusal import Refusal

CATALOGUE_FOLDER = Path(__file__).resolve().parents[2] / "assets" / "catalogue"


class Remark(NamedTuple):
    """A sentence about an entry in both languages."""

    en: str
    zh: str

    def sentence(self, language: str = "en") -> str:
        """The remark in a language."""
        return self.zh if language == "zh" else self.en


class Source(NamedTuple):
    """Where a figure comes from: the short name it is cited by, and the repository, file or page."""

    key: str
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueModel:
    """A released model.

    Attributes:
        name: what people call it.
        config: its shape, as a Hugging Face config.json of its family has it.
        published_total: how many numbers its makers, its weight files or a public log state; None where nobody does
            exactly.
        published_active: how many of them a token uses, as the makers write it ("3.3B"); empty without experts.
        published_note: why either differs from what is computed here, or what it counts.
        other_names: what else `model_named` takes for it.
        sources: where shape and published figures come from.
    """

    slug: str
    name: str
    config: Mapping[str, Any] = field(hash=False)
    published_total: int | None
    published_active: str
    published_note: Remark | None
    other_names: tuple[str, ...]
    sources: tuple[Source, ...]


@lru_cache(maxsize=1)
def models() -> dict[str, CatalogueModel]:
    """All models by slug, in the order of the file."""
    entries, sources = read_catalogue("models.toml")
    return {
        slug: CatalogueModel(
            slug=slug,
            name=entry["name"],
            config=entry["config"] | dict.fromkeys(entry.get("config_nulls", ())),
            published_total=entry.get("published_total"),
            published_active=entry.get("published_active", ""),
            published_note=remark(entry, "published_note"),
            other_names=tuple(entry.get("other_names", ())),
            sources=tuple(sources[key] for key in entry["source"]),
        )
        for slug, entry in entries.items()
    }


@lru_cache(maxsize=1)
def _other_names() -> dict[str, str]:
    return {other: slug for slug, model in models().items() for other in model.other_names}


def model_named(slug: str) -> CatalogueModel:
    """The model of that slug, or of another name it goes by, in any case. Raises Refusal, which lists the slugs."""
    known, slug = models(), slug.lower()
    slug = _other_names().get(slug, slug)
    if slug not in known:
        raise Refusal("estimate.model_unknown", model=slug[:40], known=", ".join(known))
    return known[slug]


@lru_cache(maxsize=128)
def shape(slug: str) -> ModelShape:
    """The shape of the model of that slug. Raises Refusal for an unknown one."""
    model = model_named(slug)
    return from_hf(model.config, name=model.name)


def read_catalogue(file: str) -> tuple[dict[str, dict[str, Any]], dict[str, Source]]:
    """The entries of a file of the catalogue by slug, and its sources by key."""
    entries = tomllib.loads((CATALOGUE_FOLDER / file).read_text(encoding="utf-8"))
    sources = {key: Source(key, place) for key, place in entries.pop("sources").items()}
    return entries, sources


def remark(entry: Mapping[str, Any], field_name: str) -> Remark | None:
    """The sentence that an entry keeps as `…_en` and `…_zh`, None where it has neither."""
    if f"{field_name}_en" not in entry and f"{field_name}_zh" not in entry:
        return None
    return Remark(entry[f"{field_name}_en"], entry[f"{field_name}_zh"])
