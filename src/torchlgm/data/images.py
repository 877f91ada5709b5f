"""Data sets from a folder of images, one subfolder per class."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from torchlgm._utils.optional import import_optional
from torchlgm.data.dataset import Data, Dataset
from torchlgm.data.splits import split_holdout
from torchlgm.errors import DataError

IMAGE_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm"}
_GREY_MODES = {"1", "L", "LA"}
_COLOUR_MODES = {"P", "PA", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "HSV"}

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
    try:
        with import_optional("PIL.Image", "cli").open(path) as image:
            _check_mode(path, image.mode)
            return image.size, image.mode
    except OSError as error:
        raise DataError(f"{path}: not a readable image ({error})") from error


def _check_mode(path: Path, mode: str) -> None:
    if mode not in _GREY_MODES | _COLOUR_MODES:
        raise DataError(f"{path}: expected 8-bit grey or colour, got mode {mode!r}; convert it")


def _load(images: _Labelled, classes: tuple[str, ...], mode: str, name: str) -> Data:
    pixels = torch.stack([_read_pixels(path, mode) for path, _ in images])
    targets = torch.tensor([classes.index(label) for _, label in images])
    return Data(pixels, targets, classes, name)


def _read_pixels(path: Path, mode: str) -> Tensor:
    """(C, H, W) in [0, 1], NaN where transparent."""
    return (decode(path, mode) / 255).float()


def decode(path: Path, mode: str) -> Tensor:
    """The pixels (C, H, W) of an image from 0 to 255, float64, NaN where transparent."""
    try:
        with import_optional("PIL.Image", "cli").open(path) as image:
            _check_mode(path, image.mode)
            colours = np.array(image.convert(mode), dtype=np.float64)
            alpha = np.array(image.convert("RGBA"))[..., 3]
    except OSError as error:
        raise DataError(f"{path}: not a readable image ({error})") from error
    pixels = torch.from_numpy(colours).reshape(*colours.shape[:2], -1).permute(2, 0, 1)
    return pixels.masked_fill(torch.from_numpy(alpha < 128), math.nan)
