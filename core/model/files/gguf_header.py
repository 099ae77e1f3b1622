"""The header of a GGUF file: settings and the table of tensors, read without believing a single count.

The `gguf` package's own reader allocates and loops as the file tells it to, and takes two seconds over the vocabulary
of smollm2. This one bounds every count, length and offset by the bytes that are there before it uses them.
Format: the GGUF specification in ggml's repository, versions 2 and 3, little-endian.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, NoReturn

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from core.model.files.fields import shown
from core.refusal import Refusal

# What `gguf.quants` turns back into numbers and llama.cpp writes by default.
TENSOR_TYPES = frozenset(
    GGMLQuantizationType[name]
    for name in ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")
)

_MOST_HEADER_BYTES = 1 << 27
_MOST_SETTINGS = 1 << 16
_MOST_TENSORS = 1 << 16
_MOST_ARRAY_ITEMS = 1 << 21  # all arrays together: the largest vocabularies have 0.3 M tokens and 0.5 M merges
_LONGEST_NAME = 1 << 10
_LARGEST_SIZE = 1 << 40
_STRING, _ARRAY = 8, 9
# Value type: struct letter. 7 is a truth value of one byte.
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


@dataclass(frozen=True, slots=True, kw_only=True)
class GGUFTensor:
    """Where one tensor lies: `shape` outermost first (as torch has it), `offset` and `n_bytes` in the file."""

    shape: tuple[int, ...]
    type: GGMLQuantizationType
    offset: int
    n_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GGUFHeader:
    """The settings by key, arrays as lists, and the tensors by name in the file's order."""

    fields: dict[str, Any]
    tensors: dict[str, GGUFTensor]


def read_gguf_header(file: BinaryIO, n_file_bytes: int, name: str) -> GGUFHeader:
    """The checked header of an open file of `n_file_bytes`; `name` stands in refusals.

    Raises:
        Refusal: not GGUF, a version or tensor type we do not read, or numbers that cannot be true of this file.
    """
    cursor = _Cursor(file, n_file_bytes, name)
    if cursor.take(4) != b"GGUF":
        raise Refusal("model.gguf_magic", file=name)
    version = cursor.scalar("I")
    if version not in (2, 3):  # 1 is older than any model here; a big-endian file reads as a number beyond all versions
        raise Refusal("model.gguf_version", version=version, file=name)
    n_tensors, n_settings = cursor.scalar("Q"), cursor.scalar("Q")
    if n_tensors > _MOST_TENSORS or n_settings > _MOST_SETTINGS:
        cursor.lies("tensor_count" if n_tensors > _MOST_TENSORS else "kv_count")
    fields: dict[str, Any] = {}
    for _ in range(n_settings):
        key = cursor.name()
        if key in fields:
            cursor.lies(key)
        fields[key] = cursor.value(cursor.scalar("I"), key)
    entries = _tensor_entries(cursor, n_tensors)
    alignment = fields.get("general.alignment", 32)
    if not isinstance(alignment, int) or not 1 <= alignment <= 1 << 16 or alignment & (alignment - 1):
        cursor.lies("general.alignment")
    return GGUFHeader(fields=fields, tensors=_placed(entries, cursor, alignment, n_file_bytes))


class _Cursor:
    """Moves forward through the header; every step is held against the end of the file before bytes are read."""

    def __init__(self, file: BinaryIO, n_file_bytes: int, name: str) -> None:
        self._file = file
        self._n_file_bytes = n_file_bytes
        self._file_name = name
        self._buffer = bytearray()
        self._n_items_left = _MOST_ARRAY_ITEMS
        self.position = 0

    def lies(self, field: str) -> NoReturn:
        """Refuse the file for a number or name that cannot be true."""
        raise Refusal("model.gguf_lies", field=shown(field), file=self._file_name)

    def truncated(self) -> NoReturn:
        """Refuse the file for ending before what it announces."""
        raise Refusal("model.file_truncated", file=self._file_name)

    def take(self, n_bytes: int) -> bytearray:
        """The next bytes."""
        end = self.position + n_bytes
        if end > len(self._buffer):
            self._fill(end)
        taken = self._buffer[self.position : end]
        self.position = end
        return taken

    def _fill(self, end: int) -> None:
        if end > self._n_file_bytes:
            self.truncated()
        if end > _MOST_HEADER_BYTES:
            raise Refusal("model.file_too_large", file=self._file_name, most=_MOST_HEADER_BYTES >> 20)
        self._buffer += self._file.read(max(end - len(self._buffer), 1 << 20))
        if end > len(self._buffer):
            self.truncated()

    def scalar(self, letter: str) -> Any:
        """One little-endian number of a `struct` letter."""
        layout = "<" + letter
        return struct.unpack(layout, self.take(struct.calcsize(layout)))[0]

    def string(self, what: str) -> str:
        """A length of 64 bits and as many bytes of UTF-8."""
        try:
            return self.take(self.scalar("Q")).decode("utf-8")
        except UnicodeDecodeError:
            self.lies(what)

    def name(self) -> str:
        """A string that names a setting or a tensor."""
        name = self.string("name")
        if len(name) > _LONGEST_NAME:
            self.lies(name)
        return name

    def value(self, kind: int, key: str) -> Any:
        """A setting's value of the stated kind."""
        if kind == _STRING:
            return self.string(key)
        if kind == _ARRAY:
            return self._array(key)
        if kind not in _SCALARS:
            self.lies(key)
        return self.scalar(_SCALARS[kind])

    def tensor_type(self, name: str) -> GGMLQuantizationType:
        """The number of a storage format, if it is one that we read."""
        number = self.scalar("I")
        known = number in GGMLQuantizationType.__members__.values()
        if not known or number not in TENSOR_TYPES:
            written = GGMLQuantizationType(number).name if known else str(number)
            raise Refusal("model.dtype_unsupported", tensor=shown(name), dtype=written, file=self._file_name)
        return GGMLQuantizationType(number)

    def _array(self, key: str) -> list[Any]:
        kind, n_items = self.scalar("I"), self.scalar("Q")
        self._n_items_left -= n_items
        if self._n_items_left < 0 or (kind != _STRING and kind not in _SCALARS):  # arrays in arrays are not read
            self.lies(key)
        if kind == _STRING:
            return [self.string(key) for _ in range(n_items)]
        layout = f"<{n_items}{_SCALARS[kind]}"
        return list(struct.unpack(layout, self.take(struct.calcsize(layout))))


def _tensor_entries(cursor: _Cursor, n_tensors: int) -> dict[str, GGUFTensor]:
    """The table of tensors, with offsets counted from the start of the data as in the file."""
    entries: dict[str, GGUFTensor] = {}
    for _ in range(n_tensors):
        name = cursor.name()
        n_dimensions = cursor.scalar("I")
        if name in entries or not 1 <= n_dimensions <= 4:
            cursor.lies(name)
        sizes = [cursor.scalar("Q") for _ in range(n_dimensions)]  # innermost first
        tensor_type = cursor.tensor_type(name)
        block, block_bytes = GGML_QUANT_SIZES[tensor_type]
        if not all(1 <= size <= _LARGEST_SIZE for size in sizes) or sizes[0] % block:
            cursor.lies(name)
        entries[name] = GGUFTensor(
            shape=tuple(reversed(sizes)),
            type=tensor_type,
            offset=cursor.scalar("Q"),
            n_bytes=math.prod(sizes) // block * block_bytes,
        )
    return entries


def _placed(
    entries: dict[str, GGUFTensor], cursor: _Cursor, alignment: int, n_file_bytes: int
) -> dict[str, GGUFTensor]:
    """The tensors with offsets counted from the start of the file: aligned, inside it, none over another."""
    start = -(-cursor.position // alignment) * alignment
    free_from = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1].offset):
        if entry.offset % alignment or entry.offset < free_from:
            cursor.lies(name)
        free_from = entry.offset + entry.n_bytes
        if start + free_from > n_file_bytes:
            cursor.truncated()
    return {name: replace(entry, offset=start + entry.offset) for name, entry in entries.items()}
