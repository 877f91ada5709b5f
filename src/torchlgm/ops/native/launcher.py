"""Launching the C code of `native.c`, compiled when it is first needed."""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from ctypes import c_int64, c_void_p
from functools import cache
from pathlib import Path
from time import monotonic

import torch
from torch import Tensor

from torchlgm._utils.atomic import atomic_write
from torchlgm.errors import DataError, InferenceError
from torchlgm.layout import LEFT
from torchlgm.ops.launch import Sent, Sink, Sinks, added_up, width

logger = logging.getLogger(__name__)
SOURCE = Path(__file__).with_name("native.c")
FLAGS = ("-std=gnu11", "-O2", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi")
EXTRAS = (("-march=native", "-fopenmp"), ("-march=native",), ("-fopenmp",), ())  # the first that compile are taken
MODES = {"sum": 0, "max": 1, "linear": 2}
LANES = 8  # as there
SAMPLES = 512  # in a block
SHARE = 2**14  # table entries times samples that are worth another thread
looks_back = False  # messages are as quickly made again


class _Part(ctypes.Structure):
    _fields_ = (("tensor", c_void_p), ("wide", c_int64))


class _Sink(ctypes.Structure):
    _fields_ = (("tensor", c_void_p), ("wide", c_int64), ("old", c_int64))


_SIZES = (
    "mode", "models", "sources", "targets", "edges", "table_rows", "s", "t", "step_s", "step_t", "width", "samples",
    "blocks", "threads",
)  # fmt: skip
_LISTS = ("table", "factor", "rho", "edge_ids", "node_ids", "rows", "starts")


class _Job(ctypes.Structure):
    _fields_ = (
        *[(name, c_int64) for name in _SIZES],
        *[(name, c_void_p) for name in _LISTS],
        ("belief", _Part * 4),
        ("reverse", _Part),
        ("beliefs", c_void_p),
        ("beliefs_wide", c_int64),
        *[(name, c_void_p) for name in ("edges_out", "inflow_out", "inflow_grad", "edges_grad")],
        ("to_belief", _Sink * 4),
        ("to_reverse", _Sink),
        ("to_table", _Sink),
    )


def padded(batch: int) -> int:
    """The width of tensors for `batch` samples."""
    return 1 if batch == 1 else -(-batch // LANES) * LANES


def blocks(batch: int) -> int:
    """How many blocks of samples are taken one by one."""
    return -(-batch // SAMPLES)


def pack(x: Tensor, wide: int) -> Tensor:
    """`(models, nodes, k, batch)` with any strides -> the same in one piece, padded with 0."""
    batch = x.shape[-1]
    out = x.new_empty(*x.shape[:-1], wide)
    out[..., :batch] = x
    out[..., batch:] = 0
    return out


def send(sent: Sent, edges: Tensor | None, norms: Tensor | None, inflow: Tensor) -> None:
    del norms  # see looks_back
    _require_alike(sent, edges, inflow)
    job, held = _job(sent, 1 - sent.side)
    job.edges_out, job.inflow_out = _at(edges), _at(inflow)
    _call(library(inflow.dtype).send, job)
    del held


def send_backward(
    sent: Sent,
    message: Tensor | None,
    norms: Tensor | None,
    inflow_grads: Sequence[Tensor],
    edges_grad: Tensor | None,
    sinks: Sinks,
) -> None:
    del message, norms
    inflow_grad = added_up(inflow_grads) if inflow_grads else None
    edges_grad = None if edges_grad is None else added_up([edges_grad])
    written = [sink.tensor for sink in (*sinks.belief, sinks.reverse, sinks.table) if sink]
    _require_alike(sent, inflow_grad, edges_grad, *written)
    job, held = _job(sent, sent.side)
    job.inflow_grad, job.edges_grad = _at(inflow_grad), _at(edges_grad)
    for i, (sink, part) in enumerate(zip(sinks.belief, sent.belief, strict=True)):
        job.to_belief[i] = _sink(sink, part, sent.width)
    job.to_reverse = _sink(sinks.reverse, sent.reverse, sent.width)
    job.to_table = _sink(sinks.table, None, sent.width)
    _call(library(sent.wires.table.dtype).send_backward, job)
    del held


def add_up(sums: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    return [added_up(terms) for terms in sums]


def _job(sent: Sent, listed: int) -> tuple[_Job, Tensor]:
    """What both directions share, lists being read in the order of the side `listed`; and memory to be held on to."""
    wires, side, belief, reverse, batch = sent
    lists, sides = wires.lists, wires.lists.sides
    s, t = wires.labels(side)
    step_s, step_t = (t, 1) if side == LEFT else (1, s)
    work = wires.models * lists.count * s * t * batch
    sizes = (
        MODES[wires.mode], wires.models, sides[side].nodes, sides[1 - side].nodes, lists.count, wires.table.shape[1],
        s, t, step_s, step_t, batch, SAMPLES, blocks(batch),
        max(1, min(torch.get_num_threads(), work // SHARE)),
    )  # fmt: skip
    here, rows = sides[listed], wires.rows[listed]
    factor, rho = wires.weights.factor[listed], wires.weights.rho[listed]
    constants = [_at(x) for x in (wires.table, factor, rho, here.edges, here.others, rows, here.starts)]
    job = _Job(*sizes, *constants)
    for i, part in enumerate(belief):
        job.belief[i] = _part(part, batch)
    job.reverse = _part(reverse, batch)
    wide = width(*belief)
    total = wires.table.new_empty(wires.models, sides[side].nodes, s, wide)
    job.beliefs, job.beliefs_wide = _at(total), int(wide == batch)
    return job, total


def _part(x: Tensor | None, batch: int) -> _Part:
    return _Part() if x is None else _Part(_at(x), int(x.shape[-1] == batch))


def _sink(sink: Sink | None, like: Tensor | None, batch: int) -> _Sink:
    if sink is None:
        return _Sink()
    return _Sink(_at(sink.tensor), int(like is not None and like.shape[-1] == batch), int(sink.old))


def _at(x: Tensor | None) -> int | None:
    return None if x is None else x.data_ptr()


def _require_alike(sent: Sent, *others: Tensor | None) -> None:
    """The C code reads memory as it is told."""
    table = sent.wires.table
    for x in (*sent.belief, sent.reverse, *others):
        if x is not None and not (x.dtype == table.dtype and x.is_contiguous()):
            raise InferenceError(
                f"expected contiguous tensors of {table.dtype} like the tables, got {x.dtype} with strides "
                f"{x.stride()}; convert the inputs, or use backend='eager'"
            )


def _call(function: Callable[..., int], job: _Job) -> None:
    if function(ctypes.byref(job)):
        raise MemoryError("the kernels for the CPU could not get their working memory")


@cache
def library(dtype: torch.dtype) -> ctypes.CDLL:
    """The compiled code; raises InferenceError with the compiler's message where there is none."""
    compilers = [path for name in (os.environ.get("CC"), "cc", "gcc", "clang") if name and (path := shutil.which(name))]
    if not compilers:
        raise InferenceError("no C compiler was found (cc, gcc, clang or $CC)")
    define = ("-DDOUBLE",) if dtype == torch.float64 else ()
    source = SOURCE.read_bytes()
    known = "\n".join((compilers[0], *FLAGS, *define, repr(EXTRAS), platform.machine(), _processor()))
    name = f"native-{hashlib.sha256(source + known.encode()).hexdigest()[:20]}.so"
    path = _folder() / name
    with tempfile.TemporaryDirectory() as scratch:
        if not path.exists():
            made = Path(scratch) / name
            _compile(compilers[0], define, made)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                atomic_write(path, made.read_bytes())
            except (OSError, DataError):  # nowhere to keep it
                path = made
        try:
            loaded = ctypes.CDLL(str(path))
        except OSError as error:
            raise InferenceError(f"{path} cannot be loaded ({error}); delete it and try again") from error
    loaded.job_size.restype = c_int64
    if loaded.job_size() != ctypes.sizeof(_Job):
        raise InferenceError(
            f"a Job has {loaded.job_size()} bytes in {SOURCE.name}, {ctypes.sizeof(_Job)} in {Path(__file__).name}; "
            "make their fields agree"
        )
    return loaded


def _compile(compiler: str, define: tuple[str, ...], to: Path) -> None:
    message, start = "", monotonic()
    logger.info("starting %s to compile %s, once for this machine", compiler, SOURCE.name)
    for extra in EXTRAS:
        command = [compiler, *FLAGS, *extra, *define, "-fPIC", "-shared", "-o", str(to), str(SOURCE)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InferenceError(f"{compiler} could not be run ({error})") from error
        if done.returncode == 0:
            logger.info("compiled %s in %.1f s: %s", SOURCE.name, monotonic() - start, " ".join(command))
            return
        message = message or done.stderr.strip()
    raise InferenceError(f"{compiler} could not compile {SOURCE.name}: {message[-2000:]}")


def _folder() -> Path:
    """Where compiled code is kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "torchlgm"


def _processor() -> str:
    """What `-march=native` depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
