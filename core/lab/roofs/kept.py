"""Roofs as they are kept from one start to the next: a file a machine, in the user's cache.

The file is TBT_CACHE's, else XDG's cache's, `roofs-HASH.json`; the hash is of all that makes the machine another one.
"""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path

from core.engine.saved.fields import parse_header
from core.lab.roofs.as_json import from_json, to_json
from core.lab.roofs.machine import this_machine
from core.lab.roofs.record import Machine, Roofs
from core.refusal import Refusal

FOLDER = "token-by-token"
MOST_BYTES = 2**20

_unwritten: dict[Machine, Roofs] = {}
"""What could not be written down: it holds as long as this process."""


def cache_folder() -> Path:
    """Where roofs are kept."""
    asked, shared = os.environ.get("TBT_CACHE"), os.environ.get("XDG_CACHE_HOME")
    # The XDG base directory specification: a relative path is to be ignored.
    base = Path(shared) if shared and os.path.isabs(shared) else Path("~/.cache")
    return Path(asked) if asked else base / FOLDER


def file_of(machine: Machine) -> Path:
    """The file of that machine's roofs, whether it is there or not. Raises RuntimeError where there is no home."""
    digest = blake2b(json.dumps(asdict(machine)).encode(), digest_size=8).hexdigest()
    return cache_folder().expanduser() / f"roofs-{digest}.json"


def kept_roofs(machine: Machine | None = None) -> Roofs | None:
    """The roofs of this machine, or of `machine`; None when none were measured.

    A file that is broken, of another form, or another machine's counts as none.
    """
    machine = machine or this_machine()
    if machine in _unwritten:
        return _unwritten[machine]
    try:
        with file_of(machine).open("rb") as file:
            roofs = from_json(parse_header(file.read(MOST_BYTES)))
    except (OSError, RuntimeError, Refusal):
        return None
    return roofs if roofs.machine == machine else None


def keep(roofs: Roofs) -> bool:
    """Keeps them in place of what was there; False when no file could be written, and only this process knows them.

    The file is written beside its place and then moved there: whoever reads meanwhile finds the old one or the new one.
    """
    try:
        place = file_of(roofs.machine)
        place.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=place.parent, prefix=f"{place.stem}-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(to_json(roofs), file)
            os.replace(name, place)
        except BaseException:
            with suppress(OSError):
                os.unlink(name)
            raise
    except (OSError, RuntimeError):
        _unwritten[roofs.machine] = roofs
        return False
    _unwritten.pop(roofs.machine, None)
    return True
