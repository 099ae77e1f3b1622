"""The settings of a config.json under our names: spellings, nested text parts and class defaults are settled here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.estimate.configs.families import FAMILIES, SAME_AS
from core.estimate.configs.family import Family, Switch
from core.estimate.shape import Note
from core.model.files.fields import Fields, shown
from core.model.files.huggingface_fields import class_names, unnested
from core.refusal import Refusal


def note(key: str, **values: object) -> Note:
    """A note from the word catalogue and what fills it."""
    return Note(key=key, values=tuple(values.items()))


class ConfigFields:
    """One file's settings, read by our names (transformers' usual ones).

    A setting that the file leaves out has its class's default where the family lists one; a null is a value of its
    own, "not used". Where the text part and the level around it differ, the setting is refused once it is read: what
    nobody reads may differ.

    Attributes:
        model_type: as the file states it, that of the text part if there is one.
        family: what is peculiar to it.
        fields: the settings under the file's own names.
        assumed: the numbers that were taken from the class's defaults, under the file's names.
    """

    def __init__(self, values: Mapping[str, Any], file: str) -> None:
        self._given, self._differing = unnested(values, file)
        self._levels = [Fields(values, file)]
        if isinstance(values.get("text_config"), dict):
            self._levels.append(Fields(values["text_config"], file))
        self.fields = Fields(self._given, file)
        self.file = file
        self.model_type = self._model_type()
        self.family: Family = FAMILIES[_family_name(self.model_type)]
        self.assumed: dict[str, int] = {}

    @property
    def is_text_part(self) -> bool:
        """Whether the model has other parts, for images or sound."""
        return len(self._levels) > 1 or "vision_config" in self.fields or "audio_config" in self.fields

    def name(self, ours: str) -> str:
        """How this file spells a setting. Raises Refusal where it gives it two values."""
        spellings = self.family.spelled.get(ours, (ours,))
        stated = [name for name in spellings if name in self.fields]
        for name in stated:
            if name in self._differing:
                raise Refusal("model.field_contradicts", field=f"text_config.{name}", file=self.file)
            if self.fields.get(name) != self.fields.get(stated[0]):
                raise Refusal("model.field_contradicts", field=f"{stated[0]} / {name}", file=self.file)
        null = [name for name in spellings if name in self._given]
        return [*stated, *null, *spellings][0]

    def is_left_out(self, ours: str) -> bool:
        """Whether the file does not mention it at all."""
        return self.name(ours) not in self._given

    def whole(self, ours: str, *, at_most: int, at_least: int = 1) -> int:
        """A whole number in [at_least, at_most]. Raises Refusal: absent without a default, no whole number, outside."""
        name = self.name(ours)
        if self.is_left_out(ours) and ours in self.family.defaults:
            default: int = self.family.defaults[ours]
            self.assumed[name] = default
            return default
        return self.fields.whole(name, at_most=at_most, at_least=at_least)

    def whole_or_none(self, ours: str, *, at_most: int, at_least: int = 1) -> int | None:
        """The same; None where the file has a null, or leaves out what the class has no default for."""
        is_silent = self.is_left_out(ours) and ours not in self.family.defaults
        if is_silent or (not self.is_left_out(ours) and self.name(ours) not in self.fields):
            return None
        return self.whole(ours, at_most=at_most, at_least=at_least)

    def flag(self, ours: str) -> bool:
        """True or false; the class's default, or false, where it is absent."""
        return self.fields.flag(self.name(ours), default=bool(self.family.defaults.get(ours, False)))

    def switch(self, switch: Switch) -> bool:
        """Whether a part of the family is there: said by the family, or by one of its flags."""
        return switch if isinstance(switch, bool) else any([self.flag(name) for name in switch])

    def is_tied(self) -> bool:
        """Whether the input table is the output head: the outer level says so, else the text part, else the class."""
        stated = [level.flag("tie_word_embeddings") for level in self._levels if "tie_word_embeddings" in level]
        if self.family.is_tied_by_either:
            return any(stated)
        return stated[0] if stated else bool(self.family.defaults.get("tie_word_embeddings", False))

    def _model_type(self) -> str:
        """The innermost `model_type`, or the one that `architectures` stands for, where nothing speaks against it.

        A level around the text part may be of a kind that is not known here: its text part says what it is.
        """
        stated = [text for text in (level.text("model_type") for level in self._levels) if text is not None]
        named: list[str] = []
        for level in self._levels:
            classes = class_names(level)
            if classes is None:
                value = shown(level.get("architectures"))
                raise Refusal("estimate.architectures_not_names", value=value, file=self.file)
            named += classes
        from_classes = [kind for kind in (_model_type_of(name) for name in named) if kind is not None]
        if not stated and not from_classes:
            raise Refusal("model.field_missing", field="model_type", file=self.file)
        model_type = [*from_classes[:1], *stated][-1]
        if _family_name(model_type) not in FAMILIES:
            raise Refusal(
                "estimate.model_type_unknown",
                model_type=shown(model_type),
                known=", ".join(sorted({*FAMILIES, *SAME_AS})),
                file=self.file,
            )
        family = FAMILIES[_family_name(model_type)]
        for other in stated:
            if _family_name(other) in FAMILIES and FAMILIES[_family_name(other)] is not family:
                self._contradicts(model_type, f"model_type {other}")
        for name in named:
            kinds = [kind for kind, known in FAMILIES.items() if name in known.architectures]
            if kinds and _family_name(model_type) not in kinds:
                self._contradicts(model_type, f"architectures {name}")
        return model_type

    def _contradicts(self, model_type: str, other: str) -> None:
        raise Refusal("estimate.model_types_differ", model_type=model_type, other=other, file=self.file)


def _family_name(model_type: str) -> str:
    return SAME_AS.get(model_type, model_type)


def _model_type_of(class_name: str) -> str | None:
    """The model_type of a class with an output head, None for a class that is not known here."""
    return next((kind for kind, family in FAMILIES.items() if class_name in family.architectures), None)
