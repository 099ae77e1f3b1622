"""The model that `--model` or `--config` asks for, as the estimates see it."""

from __future__ import annotations

import argparse
from pathlib import Path

from core.estimate import catalogue
from core.estimate.configs.huggingface import from_hf
from core.estimate.shape import ModelShape
from core.model.files.fields import shown
from core.model.files.json_file import parse_json_object
from core.refusal import Refusal

MOST_CONFIG_BYTES = 2**20


def wanted_shape(arguments: argparse.Namespace) -> ModelShape:
    """The model of the catalogue, or the one in a file, called by its folder where the file is a plain config.json.

    Raises:
        Refusal: there is no such model or file, or it is not understood.
    """
    if arguments.config is None:
        return catalogue.shape(arguments.model)
    path = Path(arguments.config)
    file = shown(path.name) or "config.json"
    try:
        if not path.is_file():  # a folder; or a pipe, which would be waited for, or a device, which has no end
            raise FileNotFoundError
        with path.open("rb") as opened:
            data = opened.read(MOST_CONFIG_BYTES + 1)
        folder = path.resolve().parent.name
    except (OSError, ValueError):  # ValueError: a NUL in the name
        raise Refusal("model.file_unreadable", file=file) from None
    if len(data) > MOST_CONFIG_BYTES:
        raise Refusal("model.file_too_large", file=file, most=MOST_CONFIG_BYTES // 2**20)
    name = shown(folder if file == "config.json" and folder else path.stem)
    return from_hf(parse_json_object(data, file), name=name, file=file)
