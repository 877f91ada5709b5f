"""Whether the parameters of a model can be computed with: of the right shape, and finite."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from torchlgm._utils.tracing import is_traced
from torchlgm.errors import InferenceError, LGMError
from torchlgm.mrf import PIN

if TYPE_CHECKING:
    from torchlgm.model.lgm import LGM

LARGEST = PIN / 1e4  # an energy beside which nodes can still be pinned

_Version = tuple[int, tuple[tuple[int, int, int], ...]]
_finite: WeakKeyDictionary[nn.Module, _Version] = WeakKeyDictionary()  # the versions that were looked at
_steps = 0  # of all optimizers: fused ones change parameters without counting a version


def _count_step(*_: object) -> None:
    global _steps
    _steps += 1


register_optimizer_step_post_hook(_count_step)


def require_shapes(model: LGM, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise InferenceError if a parameter was removed, or replaced by one of another shape."""
    named = dict(_named(model))
    _require_names(named, shapes)
    for name, p in named.items():
        shape = shapes.get(name, p.shape)
        if p.shape != shape:
            raise InferenceError(
                f"parameter '{name}' is shaped {tuple(p.shape)}; its graph has energies shaped {shape}"
            )


def require_finite(model: LGM) -> None:
    """Raise InferenceError, with the name of the parameter, if one is NaN, infinite, too large to compute with, or no
    plain tensor of floats any more.

    Values are looked at once for each version of the parameters, and not while they are traced or captured. PyTorch
    counts no version for what is written through `.data` or an array that shares memory.
    """
    if torch.compiler.is_compiling():
        return
    named = list(_named(model))
    for name, p in named:
        _require_floats(name, p)
    parameters = [p for _, p in named]
    if any(is_traced(p) for p in parameters):
        return
    version = None
    if not any(p.is_inference() for p in parameters):  # these count no versions
        version = _steps, tuple([(id(p), p.data_ptr(), p._version) for p in parameters])
        if _finite.get(model) == version:
            return
    _require_names(dict(named), model._shapes)
    with torch.no_grad():
        for name, p in named:
            _require_finite(name, p)
    if version is not None:
        _finite[model] = version


def require_finite_all(models: Iterable[LGM], purpose: str, error: type[LGMError]) -> None:
    """Raise `error`, which says what they cannot be used for and why, if one of them has such a parameter."""
    for model in models:
        if reason := wrong_energies(model):
            raise error(f"{purpose}: {reason}")


def wrong_energies(model: LGM) -> str | None:
    """Why `require_finite` would refuse a model; None if it would not."""
    try:
        require_finite(model)
    except InferenceError as reason:
        return str(reason)
    return None


def what_is_wrong(x: Tensor) -> str | None:
    """Of numbers that are to be energies; None if nothing is."""
    if x.numel() == 0 or float(torch.linalg.vector_norm(x, torch.inf)) <= LARGEST:  # NaN compares as False
        return None
    for what, wrong in (("NaN", x.isnan()), ("infinite", x.isinf())):
        count = int(wrong.sum())
        if count:
            return f"{count} of {x.numel()} numbers are {what}"
    return f"numbers as large as {float(x.abs().max()):g}"


def _named(model: LGM) -> Iterator[tuple[str, Tensor]]:
    for kind in ("unary", "table", "start_left", "start_right"):
        for name, p in getattr(model, kind).items():
            yield f"{kind}.{name}", p


def _require_names(named: Mapping[str, Tensor], expected: Iterable[str]) -> None:
    for name in expected:
        if name not in named:
            raise InferenceError(f"the model has no parameter '{name}' any more; load it again, or build a new one")


def _require_floats(name: str, p: Tensor | None) -> None:
    if p is None:
        raise InferenceError(f"parameter '{name}' is None; load the model again, or build a new one")
    if not p.is_floating_point():
        raise InferenceError(f"parameter '{name}' is of type {p.dtype}; expected real floating point energies")
    if p.layout != torch.strided:
        raise InferenceError(f"parameter '{name}' is sparse; expected a plain tensor, such as its to_dense()")


def _require_finite(name: str, p: Tensor) -> None:
    if p.is_meta:
        raise InferenceError(f"parameter '{name}' is on the meta device and has no values; load the model's weights")
    wrong = what_is_wrong(p)
    if wrong:
        raise InferenceError(
            f"{wrong} in parameter '{name}'; expected finite energies up to {LARGEST:g}; load or train the model "
            "again, and for a label that is impossible set an energy such as 100"
        )
