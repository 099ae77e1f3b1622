"""A run as a file that is opened without its model: `save` and `open_saved`.

The file holds what the record shows: settings, tokens, every step's figures, the norms of keys and values, attention
as far as it was kept. It does not hold keys and values themselves, so an opened run can be looked at, not continued.
"""

from __future__ import annotations

from core.engine.saved.container import MOST_FILE_BYTES, SUFFIX, VERSION, pack, unpack
from core.engine.saved.fields import parse_header
from core.engine.saved.read import read_run
from core.engine.saved.record import KeptRow, SavedRun, saved_run
from core.engine.saved.versions import brought_up
from core.engine.saved.write import arrays_of, header_of

__all__ = ["MOST_FILE_BYTES", "SUFFIX", "VERSION", "KeptRow", "SavedRun", "open_saved", "save", "saved_run"]


def save(saved: SavedRun) -> bytes:
    """The file of a run. The same run always gives the same bytes. Raises Refusal for one that is too large."""
    return pack(header_of(saved), arrays_of(saved))


def open_saved(file: bytes) -> SavedRun:
    """The run in a file of this version or an older one. Raises Refusal for anything else; nothing is half-opened."""
    version, header, arrays = unpack(file)
    return read_run(brought_up(parse_header(header), version), arrays)
