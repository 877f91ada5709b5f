"""Data sets from a path: .npz, a folder of idx files or a folder of images by class."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from torchlgm._utils.numpy_files import read_npz
from torchlgm.data.dataset import Data, Dataset, mask_out, number_labels, warn_of_bits
from torchlgm.data.idx import read_idx
from torchlgm.data.images import load_image_folder
from torchlgm.data.splits import split_holdout
from torchlgm.data.tables import is_table
from torchlgm.errors import DataError

IDX_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def load_path(path: Path, missing_value: float | None = None) -> Dataset:
    """The data set at `path`, by its kind. Inputs that equal `missing_value` before they are scaled are missing."""
    if is_table(path):
        raise DataError(
            f"{path}: a table, whose columns differ in kind; read it with table = data.load_table(path) and train "
            "LGMClassifier().fit(table.X, table.y)"
        )
    if path.is_dir():
        loaded = load_idx_folder(path) if find_idx(path, IDX_FILES[0]) else load_image_folder(path)
        return loaded if missing_value is None else _masked(path, loaded, missing_value)
    if path.suffix.lower() != ".npz":
        raise DataError(f"{path}: expected a .npz file or a folder; of a table, a .csv, .tsv, .parquet or .xlsx file")
    return load_npz(path, missing_value)


def _masked(path: Path, dataset: Dataset, missing_value: float) -> Dataset:
    train, test = dataset.train, dataset.test
    train = replace(train, inputs=mask_out(train.inputs, missing_value, path, span=255))
    return replace(dataset, train=train, test=replace(test, inputs=mask_out(test.inputs, missing_value, span=255)))


def find_idx(folder: Path, name: str) -> Path | None:
    """The idx file `name` in `folder`, plain or gzipped."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def load_idx_folder(folder: Path, name: str | None = None, classes: tuple[str, ...] | None = None) -> Dataset:
    """The four MNIST-style idx files of a folder as images (N, 1, H, W)."""
    path_of = {file: find_idx(folder, file) for file in IDX_FILES}
    paths = [path for path in path_of.values() if path]
    if len(paths) < len(IDX_FILES):
        missing = ", ".join(f"{file}[.gz]" for file, path in path_of.items() if not path)
        raise DataError(f"{folder}: expected four idx files, but these are missing: {missing}")
    train, test = _read_idx_pair(*paths[:2]), _read_idx_pair(*paths[2:])
    if classes is None:
        classes = tuple(str(label) for label in range(1 + int(max(train[1].max(), test[1].max()))))
    name = name or folder.resolve().name
    return Dataset(Data(*train, classes, name), Data(*test, classes, name))


def _read_idx_pair(image_path: Path, label_path: Path) -> tuple[Tensor, Tensor]:
    images, labels = read_idx(image_path, ndim=3), read_idx(label_path, ndim=1)
    for path, array in ((image_path, images), (label_path, labels)):
        if array.dtype != np.uint8:
            raise DataError(f"{path}: expected unsigned bytes (type 08), got {array.dtype}")
    if len(images) != len(labels) or len(images) == 0:
        raise DataError(
            f"{label_path}: expected one label for each of the {len(images)} images in {image_path.name} "
            f"(at least one), got {len(labels)}"
        )
    return torch.from_numpy(images).unsqueeze(1).float() / 255, torch.from_numpy(labels).long()


def load_npz(path: Path, missing_value: float | None = None) -> Dataset:
    """Arrays x, y (split 80/20 here) or x_train, y_train, x_test, y_test; x is uint8 or in [0, 1].

    x of shape (N, H, W) becomes (N, 1, H, W).
    """
    arrays = read_npz(path)
    if {"x_train", "y_train", "x_test", "y_test"} <= arrays.keys():
        parts = [(arrays["x_train"], arrays["y_train"]), (arrays["x_test"], arrays["y_test"])]
    elif {"x", "y"} <= arrays.keys():
        parts = [(arrays["x"], arrays["y"])]
    else:
        raise DataError(
            f"{path}: expected arrays x, y or x_train, y_train, x_test, y_test; "
            f"got {', '.join(sorted(arrays)) or 'none'}"
        )
    for _, y in parts:
        if y.ndim != 1:
            raise DataError(f"{path}: expected labels of shape (N,), got {y.shape}")
        if y.dtype.kind == "f" and np.isnan(y).any():
            raise DataError(f"{path}: {np.isnan(y).sum()} of {len(y)} labels are missing (NaN); leave these out")
    classes, targets = number_labels([str(label) for _, y in parts for label in y.tolist()], path)
    targets = targets.split([len(y) for _, y in parts])
    inputs = [_scale(path, x, missing_value, path if i == 0 else None) for i, (x, _) in enumerate(parts)]
    loaded = [Data(x, y, classes, path.stem) for x, y in zip(inputs, targets, strict=True)]
    return split_holdout(loaded[0]) if len(loaded) == 1 else Dataset(*loaded)


def _scale(path: Path, x: np.ndarray, missing_value: float | None, where: Path | None) -> Tensor:
    if x.dtype.kind not in "buif":
        raise DataError(f"{path}: expected numbers as inputs, got {x.dtype}")
    inputs = mask_out(torch.from_numpy(x.astype(np.float32)), missing_value, where)
    if x.dtype == np.uint8:
        if where is not None:
            warn_of_bits(inputs, where)
        inputs = inputs / 255
    if x.ndim == 4 and x.shape[3] in (1, 3, 4) and x.shape[1] not in (1, 3, 4):
        raise DataError(
            f"{path}: images shaped {x.shape} seem to have their channels last; expected (N, channels, height, width), "
            "which is x.transpose(0, 3, 1, 2)"
        )
    if inputs.numel() and inputs.isnan().all():
        raise DataError(f"{path}: no input has a value, all are missing")
    return inputs.unsqueeze(1) if inputs.ndim == 3 else inputs
