"""Compressed content of files, of which no more is unpacked than is expected."""

from __future__ import annotations

import zlib

MOST_PACKED = 1032  # bytes that one byte of deflated data, as in .gz, .zip and .png, can stand for
GZIP_START = b"\x1f\x8b"
_WITH_HEADER = 16 + zlib.MAX_WBITS  # a gzip file's, as zlib takes it


def gunzip(content: bytes, most: int) -> bytes:
    """The first `most` bytes of what is in a gzip file, of one part or several.

    Raises ValueError if the file is damaged.
    """
    parts: list[bytes] = []
    try:
        while content and most > 0:
            reader = zlib.decompressobj(_WITH_HEADER)
            parts.append(reader.decompress(content, most))
            most -= len(parts[-1])
            if not reader.eof and most > 0:
                raise ValueError("cut short")
            content = reader.unused_data.lstrip(b"\0")
    except zlib.error as error:
        raise ValueError(str(error)) from error
    return b"".join(parts)
