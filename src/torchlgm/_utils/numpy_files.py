"""Arrays in .npy and .npz files, of numbers or text. What a file announces is held against its size first."""

from __future__ import annotations

import math
import os
import zipfile
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy

from torchlgm._utils.compressed import MOST_PACKED
from torchlgm._utils.machine import physical_memory
from torchlgm.errors import DataError

_PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def read_npy(path: Path) -> np.ndarray:
    """The array in a .npy file."""
    try:
        with path.open("rb") as file:
            return _read(file, os.fstat(file.fileno()).st_size)
    except Exception as error:  # a damaged file may make anything of a reader
        raise DataError(f"{path}: not a readable .npy file of a plain array ({_reason(error)})") from error


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """The arrays in a .npz file, by name."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {part.filename.removesuffix(".npy"): _unpack(archive, part) for part in archive.infolist()}
    except Exception as error:  # a damaged file may make anything of a reader
        raise DataError(f"{path}: not a readable .npz of plain arrays ({_reason(error)})") from error


def _unpack(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> np.ndarray:
    most = part.compress_size * (MOST_PACKED if part.compress_type == zipfile.ZIP_DEFLATED else 1)
    if part.compress_type not in _PACKINGS or part.file_size > most:
        raise DataError(f"{part.filename} is announced as {part.file_size:,} bytes, packed to {part.compress_size:,}")
    with archive.open(part) as file:
        return _read(file, part.file_size)


def _read(file: IO[bytes], size: int) -> np.ndarray:
    """The array in an open .npy file of `size` bytes."""
    version = npy.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise DataError(f"format {version[0]}.{version[1]}, which is for arrays with fields")
    read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, columns_first, dtype = read_header(file)
    if dtype.kind not in "buifcUS" or dtype.itemsize == 0:
        raise DataError(f"an array of type {dtype}; expected numbers or text")
    announced, there = math.prod(shape) * dtype.itemsize, size - file.tell()
    if announced != there or min(shape, default=0) < 0:
        raise DataError(f"an array of shape {shape} and type {dtype} has {announced:,} bytes, but there are {there:,}")
    if announced > physical_memory():
        raise DataError(f"an array of {announced:,} bytes, more than this machine has memory")
    values = np.empty(announced, np.uint8)
    read = file.readinto(values.data) if announced else 0  # pyright: ignore[reportAttributeAccessIssue]
    if read != announced or file.read(1):  # a read at the end has zipfile compare its checksum
        raise DataError("the file is cut short")
    return values.view(dtype).reshape(shape, order="F" if columns_first else "C")


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
