"""The idx format of MNIST: a four-byte magic, big-endian sizes, big-endian values; plain or gzipped."""

from __future__ import annotations

import gzip
import math
import os
import struct
from pathlib import Path

import numpy as np

from torchlgm._utils.atomic import atomic_write
from torchlgm._utils.compressed import GZIP_START, MOST_PACKED, gunzip
from torchlgm._utils.machine import as_path
from torchlgm.errors import DataError

_DTYPES = {
    0x08: np.dtype("u1"),
    0x09: np.dtype("i1"),
    0x0B: np.dtype(">i2"),
    0x0C: np.dtype(">i4"),
    0x0D: np.dtype(">f4"),
    0x0E: np.dtype(">f8"),
}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}
_LONGEST_HEADER = 4 + 4 * 255


def read_idx(path: str | os.PathLike[str], ndim: int | None = None) -> np.ndarray:
    """The array in an idx file, in native byte order; `ndim` is the number of dimensions it must have."""
    path = as_path(path, DataError)
    content = _read_bytes(path)
    packed = content.startswith(GZIP_START)
    dtype, shape = _read_header(path, _unpacked(path, content, _LONGEST_HEADER) if packed else content)
    if ndim is not None and len(shape) != ndim:
        raise DataError(f"{path}: expected {ndim} dimensions, got {len(shape)}, sizes {shape}")
    expected, begin = math.prod(shape) * dtype.itemsize, 4 + 4 * len(shape)
    if packed:
        content = _unpacked(path, content, min(begin + expected + 1, MOST_PACKED * len(content)))
    values = memoryview(content)[begin:]
    if len(values) != expected:
        problem = "is cut short" if len(values) < expected else "has trailing bytes"
        raise DataError(
            f"{path} {problem}: expected {expected} bytes of values for sizes {shape}, got {len(values)}; "
            f"fetch the file again"
        )
    return np.frombuffer(values, dtype).reshape(shape).astype(dtype.newbyteorder("="))


def write_idx(path: str | os.PathLike[str], array: np.ndarray) -> None:
    """Write `array` as idx, gzipped when the name ends in .gz, atomically."""
    path, array = as_path(path, DataError), np.asarray(array)
    dtype = array.dtype.newbyteorder(">")
    if dtype not in _CODES or not 1 <= array.ndim <= 255:
        supported = ", ".join(dtype.newbyteorder("=").name for dtype in _CODES)
        raise DataError(f"{path}: idx holds arrays of {supported}; got {array.dtype} with {array.ndim} dimensions")
    header = struct.pack(f">HBB{array.ndim}I", 0, _CODES[dtype], array.ndim, *array.shape)
    content = header + array.astype(dtype).tobytes()
    atomic_write(path, gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error


def _unpacked(path: Path, content: bytes, most: int) -> bytes:
    """The first `most` bytes of a gzip file."""
    try:
        return gunzip(content, most)
    except ValueError as error:
        raise DataError(f"{path}: damaged gzip file ({error}); fetch it again") from error


def _read_header(path: Path, content: bytes) -> tuple[np.dtype, tuple[int, ...]]:
    magic = content[:4]
    valid = len(magic) == 4 and magic[:2] == b"\0\0" and magic[2] in _DTYPES and magic[3] > 0
    if not valid:
        raise DataError(
            f"{path}: not an idx file: expected the magic 00 00 <type 08..0e> <dimensions>, "
            f"got {magic.hex(' ') or 'an empty file'}"
        )
    ndim = magic[3]
    if len(content) < 4 + 4 * ndim:
        raise DataError(
            f"{path} is cut short: expected a header of {4 + 4 * ndim} bytes for {ndim} dimensions, "
            f"got {len(content)} bytes; fetch the file again"
        )
    return _DTYPES[magic[2]], struct.unpack(f">{ndim}I", content[4 : 4 + 4 * ndim])
