"""Exact inference for many rows of evidence, each by bucket elimination of its own, in compiled C."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ctypes import CDLL, Structure, byref, c_int64, c_void_p
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from torchlgm.ops.backend import chosen, optional
from torchlgm.ops.native.threads import usable_threads

SUMS_TO_ONE = 1e-9  # how far a table may be from a constant sum over a variable that is summed out unseen

_NUMBERS = (
    "variables", "factors", "rows", "asked", "chunks", "threads", "width", "soft_width", "limit", "maximise", "dry",
)  # fmt: skip
_ARRAYS = (
    "labels", "scope_at", "scopes", "table_at", "tables", "child", "total", "least", "asked_at", "asked_scopes",
    "out_at", "soft_at", "soft", "codes", "order", "weights", "out", "log_z", "entries", "counts", "status", "best",
)  # fmt: skip


class RowStatus(IntEnum):
    """What became of a row; LOST: what it sums to is too small for numbers of 64 bits."""

    DONE, LOST, TOO_LARGE = range(3)


class _Job(Structure):
    """As in `buckets.c`."""

    _fields_ = (*[(name, c_int64) for name in _NUMBERS], *[(name, c_void_p) for name in _ARRAYS])


class RowAnswers(NamedTuple):
    """`marginals` (rows, labellings of each scope asked about), None if labellings are asked for.

    Where `status` is not DONE nothing of a row means anything but `entries`, the numbers in all of its buckets. A row
    that is impossible is DONE, with a log Z of -inf.
    """

    marginals: list[np.ndarray]
    log_z: np.ndarray
    status: np.ndarray
    entries: np.ndarray
    best: np.ndarray | None
    counts: list[np.ndarray] | None


class Buckets:
    """Factors over variables with so many `labels` each: their scopes, ascending, and energies, inf = impossible."""

    def __init__(self, labels: Sequence[int], scopes: Sequence[Sequence[int]], energies: Sequence[np.ndarray]) -> None:
        self.labels = np.asarray(labels, np.int32)
        self.shapes = [e.shape for e in energies]
        self.constant = float(sum(e.min() for e in energies))
        tables = [np.exp(-(e - e.min())) for e in energies]
        self.scope_at, self.scopes = _ragged(scopes)
        self.table_at = np.concatenate([[0], np.cumsum([t.size for t in tables])]).astype(np.int64)
        self.tables = np.concatenate([np.zeros(0), *[t.ravel() for t in tables]])
        self.least = np.array([e.min() - e[np.isfinite(e)].max() for e in energies] + [0.0])
        children = [_child(scope, table) for scope, table in zip(scopes, tables, strict=True)]
        self.child = np.array([v for v, _ in children] + [-1], np.int32)
        self.total = np.array([total for _, total in children] + [0.0])

    @staticmethod
    def available() -> bool:
        """Whether there is a C compiler, or "native" was asked for, which raises if there is none."""
        return chosen() in ("auto", "native") and optional(_library, "eliminates variables") is not None

    def solve(
        self,
        codes: np.ndarray,
        asked: Sequence[Sequence[int]] = (),
        soft: Mapping[int, np.ndarray] | None = None,
        *,
        limit: int,
        weights: np.ndarray | None = None,
        counted: bool = False,
        maximise: bool = False,
        dry: bool = False,
    ) -> RowAnswers:
        """Answers for `codes` (rows, variables), -1 = not observed, and likelihoods `soft` (rows, labels).

        `asked` are the scopes whose marginals are wanted. `counted` also gives the marginals of all factors, summed
        over rows times `weights`. `maximise` gives the most probable labellings instead. Rows that need more than
        `limit` numbers are not answered; `dry` only finds out which.
        """
        rows, variables = codes.shape
        codes = np.ascontiguousarray(codes, np.int32)
        order = _by_pattern(codes)
        asked_at, asked_scopes = _ragged(asked)
        shapes = [tuple(self.labels[list(scope)]) for scope in asked]
        out_at = np.concatenate([[0], np.cumsum([int(np.prod(shape)) for shape in shapes])]).astype(np.int64)
        soft = soft or {}
        soft_at, soft_values = _side_by_side(soft, variables, rows)
        chunks = min(8, rows) if counted else -(-rows // 64)
        threads = usable_threads(chunks)
        arrays = {
            "labels": self.labels, "scope_at": self.scope_at, "scopes": self.scopes, "table_at": self.table_at,
            "tables": self.tables, "child": self.child, "total": self.total, "least": self.least,
            "asked_at": asked_at, "asked_scopes": asked_scopes, "out_at": out_at, "soft_at": soft_at,
            "soft": soft_values, "codes": codes, "order": order,
            "weights": None if weights is None else np.ascontiguousarray(weights, np.float64),
            "out": np.zeros((rows, 0 if dry else out_at[-1])), "log_z": np.full(rows, -np.inf),
            "entries": np.zeros(rows), "counts": np.zeros((chunks, self.table_at[-1])) if counted else None,
            "status": np.zeros(rows, np.int32), "best": np.zeros((rows, variables), np.int32) if maximise else None,
        }  # fmt: skip
        numbers = (
            variables, len(self.shapes), rows, len(asked), max(1, chunks), threads, out_at[-1], soft_values.shape[1],
            limit, maximise, dry,
        )  # fmt: skip
        job = _Job(
            *map(int, numbers), *[None if arrays[name] is None else arrays[name].ctypes.data for name in _ARRAYS]
        )
        if rows and _library().solve_rows(byref(job)):
            raise MemoryError("exact inference could not get its working memory; lower the limit of exact(limit=...)")
        out, counts = arrays["out"], arrays["counts"]
        parts = [] if dry else [
            out[:, out_at[q] : out_at[q + 1]].reshape(rows, *shape) for q, shape in enumerate(shapes)
        ]  # fmt: skip
        log_z = arrays["log_z"] - self.constant
        split = None if counts is None else np.split(counts.sum(0), self.table_at[1:-1])
        sums = None if split is None else [x.reshape(shape) for x, shape in zip(split, self.shapes, strict=False)]
        return RowAnswers(parts, log_z, arrays["status"], arrays["entries"], arrays["best"], sums)


@cache
def _library() -> CDLL:
    from torchlgm.ops.native.launcher import compiled

    library = compiled(Path(__file__).parent / "native" / "buckets.c", job_size=_Job)
    library.solve_rows.restype = c_int64
    library.solve_rows.argtypes = [c_void_p]
    return library


def _ragged(lists: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    at = np.concatenate([[0], np.cumsum([len(x) for x in lists])]).astype(np.int64)
    return at, np.array([v for x in lists for v in x] + [0], np.int32)


def _child(scope: Sequence[int], table: np.ndarray) -> tuple[int, float]:
    """The variable over which a table sums to a constant, and that; the last if there are several."""
    for axis in reversed(range(len(scope))):
        sums = table.sum(axis)
        if np.ptp(sums) <= SUMS_TO_ONE * sums.max():
            return scope[axis], float(sums.mean())
    return -1, 0.0


def _by_pattern(codes: np.ndarray) -> np.ndarray:
    """Rows in an order in which those that observe the same variables are neighbours."""
    bits = np.packbits(codes >= 0, axis=1)
    words = np.ascontiguousarray(bits).view(np.dtype((np.void, bits.shape[1]))).ravel()
    return np.argsort(words, kind="stable").astype(np.int64)


def _side_by_side(soft: Mapping[int, np.ndarray], variables: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    at, width = np.full(variables, -1, np.int64), 0
    for v, values in soft.items():
        at[v], width = width, width + values.shape[1]
    values = [np.asarray(x, np.float64) for x in soft.values()]
    return at, np.ascontiguousarray(np.concatenate(values, 1)) if values else np.zeros((rows, 0))
