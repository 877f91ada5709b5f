"""Data sets by name: where they are looked for, where they are downloaded from."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path

import torch

from torchlgm._utils.machine import as_path
from torchlgm._utils.optional import import_optional
from torchlgm.data.dataset import Data, Dataset
from torchlgm.data.files import IDX_FILES, find_idx, load_idx_folder, load_path
from torchlgm.data.splits import split_holdout
from torchlgm.errors import DataError

_TIMEOUT_SECONDS = 30


@dataclass(frozen=True)
class Source:
    """Four gzipped idx files: class names, base addresses, sha256 sums in the order of IDX_FILES."""

    classes: tuple[str, ...]
    mirrors: tuple[str, ...]
    sums: tuple[str, str, str, str]


CATALOG: dict[str, Source] = {
    "mnist": Source(
        classes=tuple("0123456789"),
        mirrors=(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        sums=(
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
    ),
    "fashion-mnist": Source(
        classes=(
            *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
            *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
        ),
        mirrors=(
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        ),
        sums=(
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        ),
    ),
    "kmnist": Source(
        classes=("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"),
        mirrors=(
            "https://codh.rois.ac.jp/kmnist/dataset/kmnist/",
            "http://codh.rois.ac.jp/kmnist/dataset/kmnist/",
        ),
        sums=(
            "51467d22d8cc72929e2a028a0428f2086b092bb31cfb79c69cc0a90ce135fde4",
            "e38f9ebcd0f3ebcdec7fc8eabdcdaef93bb0df8ea12bee65224341c8183d8e17",
            "edd7a857845ad6bb1d0ba43fe7e794d164fe2dce499a1694695a792adfac43c5",
            "20bb9a0ef54c7db3efc55a92eef5582c109615df22683c380526788f98e42a1c",
        ),
    ),
}


def names() -> tuple[str, ...]:
    """The data sets `load` knows by name."""
    return ("digits", *CATALOG)


def load(
    name_or_path: str | os.PathLike[str],
    folder: str | os.PathLike[str] | None = None,
    download: bool = True,
    missing_value: float | None = None,
) -> Dataset:
    """Load a data set by its name or from a path. Tables are read by `load_table`.

    Parameters
    ----------
    name_or_path : str or Path
        One of `names()`, or a .npz file, a folder of idx files, or a folder of images by class.
    folder : str or Path, optional
        Where to look for files first; then in $TORCHLGM_DATA and in the cache of the user.
    download : bool
        Whether to download files that are not there.
    missing_value : float, optional
        Inputs that equal this before they are scaled are missing, as NaN is.

    Returns
    -------
    Dataset
        A training and a test part.
    """
    if not isinstance(name_or_path, str | os.PathLike):
        raise DataError(
            f"expected the name of a data set or a path, got {type(name_or_path).__name__}; a table in memory goes to "
            "LGMClassifier().fit(X, y), arrays become learn.Samples(inputs, targets)"
        )
    if missing_value is not None and (isinstance(missing_value, bool) or not isinstance(missing_value, int | float)):
        raise DataError(f"missing_value={missing_value!r}: expected one number, such as -999")
    if missing_value is not None and name_or_path in names():
        raise DataError(f"{name_or_path}: nothing is missing in it; leave out the missing value {missing_value:g}")
    if name_or_path == "digits":
        return _load_digits()
    if name_or_path in CATALOG:
        return _load_known(str(name_or_path), folder, download)
    path = find_path(name_or_path, folder)
    if path is None:
        close = get_close_matches(str(name_or_path), names(), 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        known = ", ".join(names())
        raise DataError(
            f"{str(name_or_path)!r} is neither a known data set ({known}) nor an existing file or folder{hint}"
        )
    return load_path(path, missing_value)


def find_path(name: str | os.PathLike[str], folder: str | os.PathLike[str] | None = None) -> Path | None:
    """A file or folder of this name, in the current folder or where data is looked for."""
    chosen = folder or os.environ.get("TORCHLGM_DATA") or "."
    paths = [as_path(path, DataError) for path in (name, os.path.join(chosen, name))]
    return next((path for path in paths if path.exists()), None)


def _load_digits() -> Dataset:
    bunch = import_optional("sklearn.datasets", "cli").load_digits()
    inputs = torch.from_numpy(bunch["images"]).unsqueeze(1).float() / 16
    digits = Data(inputs, torch.from_numpy(bunch["target"]).long(), tuple("0123456789"), "digits")
    return split_holdout(digits)


def _load_known(name: str, folder: str | os.PathLike[str] | None, download: bool) -> Dataset:
    base = Path(folder or os.environ.get("TORCHLGM_DATA") or _cache_folder(name))
    place = next((place for place in (base / name, base) if _holds(place, name)), None)
    if place is None:
        place = base / name
        _complete(place, name, download)
    return load_idx_folder(place, name, CATALOG[name].classes)


def _cache_folder(name: str) -> Path:
    pooch = import_optional("pooch", "cli", f"give the folder of the files of {name} (folder=... or $TORCHLGM_DATA)")
    return Path(pooch.os_cache("torchlgm"))


def _holds(place: Path, name: str) -> bool:
    """Whether all four files are in `place`, and not those of another known data set."""
    paths = [find_idx(place, file) for file in IDX_FILES]
    labels = paths[1]
    if labels is None or None in paths:
        return False
    checksum = hashlib.sha256(labels.read_bytes()).hexdigest()
    return all(checksum != source.sums[1] for other, source in CATALOG.items() if other != name)


def _complete(place: Path, name: str, download: bool) -> None:
    """Download into `place` the files it lacks."""
    missing = [
        (f"{file}.gz", checksum)
        for file, checksum in zip(IDX_FILES, CATALOG[name].sums, strict=True)
        if not find_idx(place, file)
    ]
    files = ", ".join(file for file, _ in missing)
    advice = f"put {files} (or the unzipped files) into {place}, or name the folder that has them by $TORCHLGM_DATA"
    if not download:
        raise DataError(f"{name}: not found, and download is off; {advice}")
    import_optional("pooch", "cli", advice)
    for file, checksum in missing:
        reasons = _fetch(file, checksum, CATALOG[name].mirrors, place)
        if reasons:
            raise DataError(f"{name}: {file} could not be downloaded ({'; '.join(reasons)}); {advice}")


def _fetch(file: str, checksum: str, mirrors: tuple[str, ...], place: Path) -> list[str]:
    """Download `file` from the first mirror that has the right one; else the reason why each failed."""
    import pooch

    shows_bar = sys.stderr.isatty() and find_spec("tqdm") is not None
    downloader = pooch.HTTPDownloader(progressbar=shows_bar, timeout=_TIMEOUT_SECONDS)
    reasons = []
    for mirror in mirrors:
        try:
            with _quiet_pooch():
                pooch.retrieve(mirror + file, f"sha256:{checksum}", file, place, downloader=downloader)  # pyright: ignore[reportArgumentType]
        except (OSError, ValueError) as error:
            reasons.append(f"{mirror}: {_reason(error)}")
        else:
            return []
    return reasons


def _reason(error: OSError | ValueError) -> str:
    from requests import ConnectionError, Timeout  # which pooch has imported

    if isinstance(error, Timeout):
        return f"no answer within {_TIMEOUT_SECONDS} s"
    if isinstance(error, ConnectionError):
        return "no connection"
    return str(error).splitlines()[0][:200]


@contextmanager
def _quiet_pooch() -> Iterator[None]:
    """pooch logs each download to stderr; the progress bar says enough."""
    from pooch import get_logger

    logger = get_logger()
    level = logger.level
    logger.setLevel("WARNING")
    try:
        yield
    finally:
        logger.setLevel(level)
