"""The bytes of a saved run: gzip around one line of text, a header of JSON, and arrays as raw little-endian numbers.

The line is "token-by-token run VERSION LENGTH", LENGTH being the header's size in bytes; `zcat` shows it. Nothing is
unpickled, and nothing is unpacked further than a run can need: what is larger is refused while it is unpacked.
"""

from __future__ import annotations

import gzip
import re
import zlib

from core.refusal import Refusal

VERSION = 2
SUFFIX = ".tbtrun"
MOST_FILE_BYTES = 20 << 20
MOST_UNPACKED_BYTES = 48 << 20
MOST_HEADER_BYTES = 6 << 20

_MAGIC = b"token-by-token run "
_LINE = re.compile(rb"token-by-token run ([0-9]{1,4}) ([0-9]{1,9})\n")
_LONGEST_LINE = 64
_PIECE = 1 << 20
_GZIP = 31  # zlib's word for a gzip file with the largest window
_GZIP_BEGINS = b"\x1f\x8b"


def pack(header: bytes, arrays: bytes, version: int = VERSION) -> bytes:
    """The file. Raises Refusal for a run that is too large to be opened again."""
    content = b"%b%d %d\n%b%b" % (_MAGIC, version, len(header), header, arrays)
    if len(header) > MOST_HEADER_BYTES or len(content) > MOST_UNPACKED_BYTES:
        raise Refusal("saved.run_too_large", most=MOST_UNPACKED_BYTES >> 20)
    file = gzip.compress(content, mtime=0)
    if len(file) > MOST_FILE_BYTES:
        raise Refusal("saved.run_too_large", most=MOST_FILE_BYTES >> 20)
    return file


def unpack(file: bytes) -> tuple[int, bytes, bytes]:
    """Version, header and arrays of a file. Raises Refusal for bytes that are none, or not all of one."""
    if not file:
        raise Refusal("saved.empty")
    if len(file) > MOST_FILE_BYTES:
        raise Refusal("saved.file_too_large", size=len(file) / 2**20, most=MOST_FILE_BYTES >> 20)
    if not file.startswith(_GZIP_BEGINS):
        raise Refusal("saved.not_ours")
    content = _unzipped(file)
    line = _LINE.match(content)
    if line is None:
        raise Refusal("saved.not_ours")
    version, length = int(line[1]), int(line[2])
    if version > VERSION:
        raise Refusal("saved.newer", version=version, known=VERSION)
    begin, end = line.end(), line.end() + length
    if version < 1 or length > MOST_HEADER_BYTES or end > len(content):
        raise Refusal("saved.damaged")
    return version, content[begin:end], content[end:]


def _unzipped(file: bytes) -> bytes:
    """What the gzip file holds, unpacked piece by piece; its own checksum says whether it is whole."""
    reader, size, rest = zlib.decompressobj(_GZIP), 0, file
    pieces: list[bytes] = []
    wanted = _LONGEST_LINE  # whether it is ours is seen before more is unpacked
    while not reader.eof:
        try:
            piece = reader.decompress(rest, wanted)
        except zlib.error:
            raise Refusal("saved.damaged") from None
        if not pieces and not piece.startswith(_MAGIC[: len(piece)]):
            raise Refusal("saved.not_ours")
        pieces.append(piece)
        size, rest, wanted = size + len(piece), reader.unconsumed_tail, _PIECE
        if size > MOST_UNPACKED_BYTES:
            raise Refusal("saved.too_large", most=MOST_UNPACKED_BYTES >> 20)
        if not piece and not rest and not reader.eof:
            raise Refusal("saved.damaged")  # cut off
    if reader.unused_data:
        raise Refusal("saved.damaged")
    return b"".join(pieces)
