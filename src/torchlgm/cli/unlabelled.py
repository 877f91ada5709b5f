"""Samples without classes, from arrays and images, in the form that a classifier takes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from torchlgm._utils.numpy_files import read_npy, read_npz
from torchlgm.cli.classifier import Classifier
from torchlgm.cli.config import AS_TRAINED, ImageForm
from torchlgm.data import is_table
from torchlgm.data.dataset import mask_out, warn_of_bits
from torchlgm.data.images import IMAGE_SUFFIXES, decode, images_in
from torchlgm.errors import DataError, DataWarning, warn

CLEARLY = 0.2  # nearer in brightness


@dataclass(frozen=True, eq=False)
class Unlabelled:
    """`inputs` `(N, *shape)` in [0, 1], NaN = missing, a name for each sample, and `raw`: the inputs before scaling.

    `raw` goes from 0 to `span`. `array` is what they were read from, if it was one.
    """

    inputs: Tensor
    names: list[str]
    raw: Tensor
    span: float
    array: np.ndarray | None = None


def read_samples(
    path: Path,
    classifier: Classifier,
    missing_value: float | None = None,
    form: ImageForm = AS_TRAINED,
    brightness: float | None = None,
) -> Unlabelled:
    """What is at `path`: a .npz or .npy file, an image or a folder of images.

    Missing are NaN, transparent pixels, and whatever equals `missing_value` before scaling. Images are brought to the
    `form` of the training; it warns if they look inverted beside the mean `brightness` there.
    """
    suffix = path.suffix.lower()
    names: list[str] | None = None
    array: np.ndarray | None = None
    if not path.exists():
        raise DataError(f"{path}: no such file or folder; expected .npz, .npy, an image or a folder of images")
    if path.is_dir() or suffix in IMAGE_SUFFIXES:
        files = _images(path)
        raw = torch.stack([_read_pixels(file, classifier.shape, form.resize) for file in files])
        names, span = [file.name for file in files], 255.0
    elif suffix in (".npz", ".npy"):
        array = _read_array(path)
        raw, span = torch.from_numpy(array.astype(np.float64)), 255.0 if array.dtype == np.uint8 else 1.0
        if missing_value is not None and array.dtype.kind == "f":
            missing_value = float(array.dtype.type(missing_value))  # 0.9 in single precision is another number
    elif is_table(path):
        raise DataError(
            f"{path}: a table, but the model was trained on images or arrays; expected .npz, .npy or images"
        )
    else:
        raise DataError(f"{path}: expected a .npz or .npy file, an image or a folder of images")
    raw = mask_out(_shaped(path, raw, classifier.shape), missing_value)
    if array is not None and array.dtype == np.uint8:
        warn_of_bits(raw, path)
    raw = span - raw if form.invert else raw
    inputs = (raw / span).float()
    if names is not None and brightness is not None and not form.invert:
        _warn_if_inverted(path, float(inputs.nanmean()), brightness)
    _check_range(path, inputs)
    return Unlabelled(inputs, names or [str(i) for i in range(len(raw))], raw, span, array)


def _images(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = images_in(path)
    if not files:
        folders = sorted(folder.name for folder in path.iterdir() if folder.is_dir())
        advice = f"; name one of its folders: {', '.join(folders)}" if folders else ""
        raise DataError(f"{path}: expected images in this folder, got none{advice}")
    return files


def _read_pixels(path: Path, shape: tuple[int, ...], resize: bool) -> Tensor:
    """(C, H, W) from 0 to 255, NaN where transparent."""
    if len(shape) != 3 or shape[0] not in (1, 3):
        raise DataError(f"{path}: an image, but the model takes samples shaped {shape}")
    pixels = decode(path, "L" if shape[0] == 1 else "RGB")
    if tuple(pixels.shape) != shape and resize:
        return _resized(pixels, shape)
    if tuple(pixels.shape) != shape:
        size, expected = (f"{s[2]}x{s[1]}" for s in (tuple(pixels.shape), shape))
        raise DataError(f"{path}: expected {expected} pixels, as in the training, got {size}; --resize scales it")
    return pixels


def _resized(pixels: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The pixels at another size, NaN where most of what a pixel covers is missing."""
    seen = (~pixels.isnan()).to(pixels.dtype)
    both = torch.stack([pixels.nan_to_num(0.0), seen])
    values, share = interpolate(both, size=shape[1:], mode="bilinear", antialias=True)
    return torch.where(share > 0.5, (values / share.clamp_min(1e-6)).clamp(0.0, 255.0), torch.nan)


def _warn_if_inverted(path: Path, mean: float, brightness: float) -> None:
    """Dark strokes on white paper, say, where the training had light ones on black."""
    if abs(mean - (1 - brightness)) + CLEARLY < abs(mean - brightness):
        text = f"{path}: mean brightness {mean:.2f}, that of the training {brightness:.2f}; dark and light look swapped"
        warn(f"{text}, --invert swaps them", DataWarning)


def _read_array(path: Path) -> np.ndarray:
    arrays = read_npz(path) if path.suffix.lower() == ".npz" else {"": read_npy(path)}
    if len(arrays) > 1 and "x" not in arrays:
        raise DataError(f"{path}: expected one array, or one named x; got {', '.join(sorted(arrays))}")
    array = arrays["x"] if "x" in arrays else next(iter(arrays.values()), np.zeros(0))
    if array.dtype.kind not in "buif":
        raise DataError(f"{path}: expected numbers, got {array.dtype}")
    return array


def _shaped(path: Path, raw: Tensor, shape: tuple[int, ...]) -> Tensor:
    """(N, *shape), also from samples without the axes of length 1, flat ones, or a single one without N."""

    def without_ones(sizes: tuple[int, ...]) -> list[int]:
        return [size for size in sizes if size != 1]

    for candidate in (raw, raw.unsqueeze(0)):
        given = tuple(candidate.shape[1:])
        flat = given == (math.prod(shape),)
        if candidate.numel() and (without_ones(given) == without_ones(shape) or flat):
            return candidate.reshape(-1, *shape)
    expected = ", ".join(["N", *map(str, shape)])
    raise DataError(f"{path}: the model takes samples shaped ({expected}), N > 0, got {tuple(raw.shape)}")


def _check_range(path: Path, inputs: Tensor) -> None:
    outside = (inputs < 0) | (inputs > 1)
    if outside.any():
        raise DataError(
            f"{path}: expected values in [0, 1], or whole numbers of type uint8, got {inputs[outside][0]:g}; "
            "scale them first"
        )
