"""Training stars side by side in compiled C; `torchlgm.sklearn.descent` says the same in PyTorch.

Arrays are NumPy's, contiguous, of the types named here, as the C code reads memory without looking.
"""

from __future__ import annotations

import ctypes
from ctypes import CDLL, c_float, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from torchlgm.ops.backend import kernels, optional
from torchlgm.ops.native.threads import usable_threads

ALL = 256  # more than any noise: every entry is shown
BETAS, EPSILON = (0.9, 0.999), 1e-8  # Adam's


class Shape(NamedTuple):
    """Of the members; they have a class, `columns`, slots for the labels of these, and hidden nodes."""

    first: np.ndarray  # (columns + 1) int32: the slot of label 0
    step: np.ndarray  # (columns) float32: of the values of a number, which add up from knot to knot; 0: a category
    hidden: int
    classes: int

    @property
    def slots(self) -> int:
        return int(self.first[-1])

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of the parameters: values of slots, bias, energies of the class, unaries of slots and of classes."""
        return self.slots * self.hidden, self.hidden, self.hidden * self.classes, self.slots, self.classes


class EncodedRows(NamedTuple):
    """A table as slots: `(N, columns)`, and for each row its class and weight."""

    slot: np.ndarray  # int32, -1 where missing
    share: np.ndarray  # float32, of the next slot
    label: np.ndarray  # (N) int32
    weight: np.ndarray  # (N) float32


class Draws(NamedTuple):
    """Which rows are taken, and which entries are shown: those with less noise than their row has in `shown`."""

    rows: np.ndarray  # (steps, M, batch) int64
    shown: np.ndarray  # (steps, M, batch) uint16
    noise: np.ndarray  # (steps, M, batch, columns) uint8


class Moments(NamedTuple):
    """What Adam keeps, `(M, size)`, and the parameters."""

    parameters: Tensor
    mean: Tensor
    square: Tensor


def native_code(like: Tensor, work: float) -> CDLL | None:
    """The compiled code, where it can run and pays for so much `work`."""
    if like.dtype != torch.float32 or like.is_cuda:
        return None
    found = kernels(like, work)
    if found is None or found.name != "native":
        return None
    return optional(_library, "trains the members of an ensemble")


def train(
    code: CDLL,
    shape: Shape,
    rows: EncodedRows,
    moments: Moments,
    draws: Draws,
    rates: np.ndarray,
    penalty: np.ndarray,
    done: int,
    threads: int,
) -> np.ndarray:
    """Make as many steps as there are `rates`, after those `done`; the losses `(steps, M)`."""
    losses = np.empty((len(rates), len(penalty)), np.float32)
    floats = _floats(rates), _floats(penalty)
    star = _star(shape, rows, moments.parameters, threads)
    course = _Course(
        len(rates), draws.rows.shape[2], done, *map(_at, (*draws, *floats)),
        moments.mean.data_ptr(), moments.square.data_ptr(), _at(losses), *BETAS, EPSILON,
    )  # fmt: skip
    _require(code.train(ctypes.byref(star), ctypes.byref(course)))
    return losses


def log_probs(
    code: CDLL, shape: Shape, rows: EncodedRows, parameters: Tensor, draws: Draws, threads: int
) -> np.ndarray:
    """Log-beliefs about the classes of rows of each member, `(M, batch, classes)`; `draws` are of one step."""
    out = np.empty((*draws.rows.shape[1:], shape.classes), np.float32)
    star = _star(shape, rows, parameters, threads)
    course = _Course(1, draws.rows.shape[2], 0, *map(_at, draws))
    _require(code.star_log_probs(ctypes.byref(star), ctypes.byref(course), _at(out)))
    return out


class Asked(NamedTuple):
    """Stars of which one more column becomes known, in float32: M members, entries of rows and columns."""

    odds: Tensor  # (M, rows, H): but for what the class says
    change: Tensor  # (M, columns, K, H): of the odds by a label
    out: Tensor  # (M, H, C), minus the energies, as the next
    target: Tensor  # (M, C)
    weight: Tensor  # (M, entries): of the members, which sum to 1
    row: Tensor  # (entries,)
    column: Tensor


def given(code: CDLL, asked: Asked, threads: int) -> Tensor:
    """p(class | what is known, column = k), `(entries, K, C)`."""
    parts = Asked(*(part.contiguous() for part in asked))
    members, rows, hidden = parts.odds.shape
    columns, labels = parts.change.shape[1:3]
    probs = parts.odds.new_empty(len(parts.row), labels, parts.out.shape[2])
    sizes = members, rows, columns, labels, hidden, probs.shape[2], len(probs), usable_threads(threads, threads)
    ask = _Ask(*sizes, *(part.data_ptr() for part in parts), probs.data_ptr())
    _require(code.star_given(ctypes.byref(ask)))
    return probs


def agreeing(code: CDLL, chances: Tensor, after: Tensor, now: Tensor, rounds: int, threads: int) -> Tensor:
    """Chances of labels `(n, K)`, moved so that the mean of beliefs `after` each, `(n, K, C)`, nears `now` `(n, C)`;
    all are float32."""
    chances, after, now = chances.contiguous().clone(), after.contiguous(), now.contiguous()
    at = (part.data_ptr() for part in (chances, after, now))
    _require(code.star_agree(*at, *after.shape, rounds, usable_threads(threads, threads)))
    return chances


class _Ask(ctypes.Structure):
    """As in `star.c`, like the next."""

    _fields_ = (
        *[
            (name, c_int64)
            for name in ("members", "rows", "columns", "labels", "hidden", "classes", "entries", "threads")
        ],
        *[(name, c_void_p) for name in ("odds", "change", "out", "target", "weight", "row", "column", "probs")],
    )


class _Star(ctypes.Structure):
    """As in `star.c`, like the next."""

    _fields_ = (
        *[(name, c_int64) for name in ("members", "columns", "slots", "hidden", "classes", "threads")],
        *[(name, c_void_p) for name in ("first", "step", "slot", "share", "label", "weight", "parameters")],
    )


class _Course(ctypes.Structure):
    _fields_ = (
        *[(name, c_int64) for name in ("steps", "batch", "first")],
        *[(name, c_void_p) for name in ("index", "shown", "noise", "rate", "penalty", "mean", "square", "loss")],
        *[(name, c_float) for name in ("beta1", "beta2", "epsilon")],
    )


def _star(shape: Shape, rows: EncodedRows, parameters: Tensor, threads: int) -> _Star:
    assert parameters.is_contiguous()
    assert parameters.shape[1] == sum(shape.sizes)
    counts = (
        len(parameters),
        len(shape.step),
        shape.slots,
        shape.hidden,
        shape.classes,
        usable_threads(threads, threads),
    )
    return _Star(*counts, *map(_at, (shape.first, shape.step, *rows)), parameters.data_ptr())


def _at(x: np.ndarray) -> int:
    assert x.flags.c_contiguous
    return x.ctypes.data


def _floats(x: Any) -> np.ndarray:
    return np.ascontiguousarray(x, np.float32)


def _require(failed: int) -> None:
    if failed:
        raise MemoryError("the code for stars could not get its working memory")


@cache
def _library() -> CDLL:
    from torchlgm.ops.native.launcher import compiled

    file = Path(__file__).parent / "native" / "star.c"
    library = compiled(file, star_size=_Star, course_size=_Course, ask_size=_Ask)
    library.star_given.argtypes = [c_void_p]
    library.star_agree.argtypes = [c_void_p] * 3 + [c_int64] * 5
    library.train.argtypes, library.star_log_probs.argtypes = [c_void_p] * 2, [c_void_p] * 3
    return library
