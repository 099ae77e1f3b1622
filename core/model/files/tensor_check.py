"""The tensors of a file held against the list of what the model is made of, and their numbers against sense."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from core.model.files.fields import shown
from core.refusal import Refusal

Shape = tuple[int, ...]


def check_tensors(expected: Mapping[str, Shape], found: Mapping[str, Shape], file: str) -> None:
    """Every expected tensor must be there in its shape, and nothing else: an unknown tensor is an unknown computation.

    Names are those of the file, so that a refusal names what the reader can look up in it.

    Raises:
        Refusal: a tensor is missing, has another shape, or is not part of the model.
    """
    for name, shape in expected.items():
        if name not in found:
            raise Refusal("model.tensor_missing", tensor=name, file=file)
        if found[name] != shape:
            raise Refusal(
                "model.tensor_shape", tensor=name, found=_written(found[name]), expected=_written(shape), file=file
            )
    for name in found:
        if name not in expected:
            raise Refusal("model.tensor_unknown", tensor=shown(name), file=file)


def check_finite(tensor: torch.Tensor, name: str, file: str) -> None:
    """One weight that is no number makes every answer of the model none; damaged scales of blocks look like this.

    Raises:
        Refusal: the tensor holds an infinity or something that is no number.
    """
    extremes = torch.stack(torch.aminmax(tensor))  # both are NaN as soon as one element is
    if not torch.isfinite(extremes).all():
        raise Refusal("model.tensor_not_finite", tensor=name, file=file)


def _written(shape: Shape) -> str:
    return " × ".join(str(size) for size in shape) or "1"
