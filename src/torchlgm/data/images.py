"""Data sets from a folder of images, one subfolder per class."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchlgm._utils.compressed import MOST_PACKED
from torchlgm._utils.optional import import_optional
from torchlgm.data.dataset import Data, Dataset
from torchlgm.data.splits import split_holdout
from torchlgm.errors import DataError

IMAGE_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm"}
_GREY_MODES = {"1", "L", "LA"}
_COLOUR_MODES = {"P", "PA", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "HSV"}

_MOST_PIXELS = 2**24  # of an image

_Labelled = list[tuple[Path, str]]


def load_image_folder(folder: Path) -> Dataset:
    """Images (N, C, H, W) of `folder`/<class>/, or of <class>/ below its train/ and test/; all of one size.

    One channel when all images are grey, else three. Without train/ and test/ the images are split 80/20.
    """
    parts = [folder / "train", folder / "test"]
    folders = [part for part in parts if part.is_dir()]
    if len(folders) == 1 and not images_in(folders[0]):
        raise DataError(f"{folder}: expected train/ and test/, or the classes, got {folders[0].name}/ alone")
    if len(folders) < 2:
        parts = [folder]
    listed = [_list_images(part) for part in parts]
    classes = tuple(sorted({label for images in listed for _, label in images}))
    mode = _common_mode([path for images in listed for path, _ in images])
    loaded = [_load(images, classes, mode, folder.resolve().name) for images in listed]
    return split_holdout(loaded[0]) if len(loaded) == 1 else Dataset(*loaded)


def _list_images(folder: Path) -> _Labelled:
    labels = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not labels:
        raise DataError(f"{folder}: expected one subfolder of images per class, or idx files like MNIST's; got neither")
    listed: _Labelled = []
    for label in labels:
        images = images_in(label)
        if not images:
            raise DataError(f"{label}: expected images of class {label.name!r}, got none; add some or remove it")
        listed += [(path, label.name) for path in images]
    return listed


def images_in(folder: Path) -> list[Path]:
    """By their names; those that start with a dot are hidden, and often no images."""
    return sorted(p for p in folder.iterdir() if p.suffix.lower() in IMAGE_SUFFIXES and not p.name.startswith("."))


def _common_mode(paths: list[Path]) -> str:
    """Grey (L) or RGB, as fits all images; raises unless all have the size that most have."""
    looks = {path: _look(path) for path in paths}
    usual = Counter(size for size, _ in looks.values()).most_common(1)[0][0]
    for path, (size, _) in looks.items():
        if size != usual:
            raise DataError(
                f"{path}: expected {usual[0]}x{usual[1]} pixels like most images, got {size[0]}x{size[1]}; resize it"
            )
    return "L" if {mode for _, mode in looks.values()} <= _GREY_MODES else "RGB"


def _look(path: Path) -> tuple[tuple[int, int], str]:
    """(width, height) and mode, without decoding the pixels."""
    with _opened(path) as image:
        return image.size, image.mode


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """An image of a mode and a size that can be used, or DataError."""
    pillow = import_optional("PIL.Image", "cli")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pillow.DecompressionBombWarning)  # we have a limit of our own
            with pillow.open(path) as image:
                _check(path, image)
                yield image
    except DataError:
        raise
    except Exception as error:  # a damaged file may make anything of a reader
        raise DataError(f"{path}: not a readable image ({' '.join(str(error).split())})") from error


def _check(path: Path, image: Any) -> None:
    if image.mode not in _GREY_MODES | _COLOUR_MODES:
        raise DataError(f"{path}: expected 8-bit grey or colour, got mode {image.mode!r}; convert it")
    width, height = image.size
    if width * height > _MOST_PIXELS:
        raise DataError(f"{path}: expected up to {_MOST_PIXELS:,} pixels, got {width}x{height}; make it smaller")
    if image.format == "PNG" and width * height // 8 > MOST_PACKED * path.stat().st_size:
        raise DataError(f"{path}: too short a file for an image of {width}x{height} pixels; it is damaged")


def _load(images: _Labelled, classes: tuple[str, ...], mode: str, name: str) -> Data:
    pixels = torch.stack([_read_pixels(path, mode) for path, _ in images])
    targets = torch.tensor([classes.index(label) for _, label in images])
    return Data(pixels, targets, classes, name)


def _read_pixels(path: Path, mode: str) -> Tensor:
    """(C, H, W) in [0, 1], NaN where transparent."""
    return (decode(path, mode) / 255).float()


def decode(path: Path, mode: str) -> Tensor:
    """The pixels (C, H, W) of an image from 0 to 255, float64, NaN where transparent."""
    with _opened(path) as image:
        colours = np.array(image.convert(mode), dtype=np.float64)
        alpha = np.array(image.convert("RGBA"))[..., 3]
    pixels = torch.from_numpy(colours).reshape(*colours.shape[:2], -1).permute(2, 0, 1)
    return pixels.masked_fill(torch.from_numpy(alpha < 128), math.nan)
