"""A model that answers one question, p(target | the part of x that was seen), as a file that runs without torchlgm.

`.pt2` is a program of `torch.export`, `.onnx` an ONNX model. Both take any batch size, and the mask as an input. What
is written has been read back, run and compared with this package first.
"""

from __future__ import annotations

import copy
import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from torchlgm._utils.atomic import atomic_write
from torchlgm._utils.machine import as_path
from torchlgm._utils.optional import import_optional
from torchlgm.errors import DataError, InferenceError
from torchlgm.inference import Method
from torchlgm.model import LGM, require_finite_all
from torchlgm.posterior import Posterior, Predictor

TOLERANCE = 1e-5
NAMES = ("x", "seen", "probs")
ABOUT = "about.json"  # in a .pt2 file: the description of the model
CONVERTERS = ("torch.onnx", "onnxscript", "onnx_ir")  # loggers
Run = Callable[[Tensor, Tensor], Tensor]


class Scaling(Protocol):
    """Brings values in units of their own, float64, to [0, 1]; `unscale` makes examples of them from [0, 1]."""

    def scale(self, x: Tensor, /) -> Tensor: ...

    def unscale(self, x: Tensor, /) -> Tensor: ...


class _Program(nn.Module):
    """What is exported: values and a mask to probabilities.

    With `scaling`, values are in units of their own, in float64, and are scaled here.
    """

    def __init__(self, predictor: Predictor, scaling: Scaling | None) -> None:
        super().__init__()
        if not isinstance(predictor, Predictor):
            raise InferenceError(
                f"{type(predictor).__name__} cannot be exported; expected a Posterior, such as Posterior(model)"
            )
        models = [part for part in predictor.modules() if isinstance(part, LGM)]
        require_finite_all(models, "this model cannot be exported", InferenceError)
        self.predictor = copy.deepcopy(predictor).cpu().eval()
        for part in self.predictor.modules():
            if isinstance(part, Predictor):
                part.encoding = replace(part.encoding, missing=True)
            if isinstance(part, Posterior):
                part.method = _traceable(part)
        self.scaling = scaling

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        """Values and a boolean mask (True = seen), both `(B, *shape)` -> probabilities, shaped as the predictor's.

        Values of entries that were not seen are never read; NaN counts as not seen, whatever the mask.
        Values are not checked.
        """
        x = x if self.scaling is None else self.scaling.scale(x)
        return self.predictor.answer(x, seen).exp()

    def examples(self, batch: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Random values and masks; the first sample is seen altogether, the last one not at all."""
        model, (first, *others) = self.predictor.model, self.predictor.encoding.layers
        layer = model.graph.layer(first)
        sizes = (sum(model.graph.layer(name).nodes for name in (first, *others)),) if others else layer.sizes
        x = torch.rand(batch, *sizes, generator=generator, dtype=torch.float64)
        share = torch.linspace(1.0, 0.0, batch).reshape(-1, *[1] * len(sizes)) if batch > 1 else 0.5
        seen = torch.rand(x.shape, generator=generator, dtype=torch.float64) < share
        if self.scaling is not None:
            return self.scaling.unscale(1.2 * x - 0.1), seen
        return x.to(model.unary[first].dtype), seen


def _traceable(posterior: Posterior) -> Method:
    if not isinstance(posterior.method, Method) or not posterior.capturable:
        raise InferenceError(
            f"method={posterior.method!r} depends on values; expected lbp(), trw() or mean_field() without a tolerance"
        )
    return replace(posterior.method, gradient="unroll")


@dataclass(frozen=True)
class Exported:
    """A file that was written: its size, and by how much its probabilities differed at most from those of torchlgm."""

    path: Path
    bytes: int
    difference: float


def export(
    predictor: Predictor,
    path: str | Path,
    about: Mapping[str, Any] | None = None,
    scaling: Scaling | None = None,
    tolerance: float = TOLERANCE,
) -> Exported:
    """Write p(target | observed part of x) to a file that runs without torchlgm.

    What would be written is first compared with the predictor on random inputs and masks; if it differs too much, an
    InferenceError is raised and nothing is written.

    Parameters
    ----------
    predictor : Posterior
        Or a `Predictor` made of several.
    path : str or Path
        A name that ends in `.onnx` or `.pt2`.
    about : mapping, optional
        Any JSON to keep in the file: as metadata of an ONNX model, one JSON value for each key, or as the extra file
        `about.json` of a `.pt2` file.
    scaling : Scaling, optional
        Brings x from units of its own, in float64, to [0, 1].
    tolerance : float
        The largest difference of a probability.

    Returns
    -------
    Exported
        The path, its size, and the largest difference.
    """
    module = _Program(predictor, scaling)
    path = as_path(path, DataError)
    kinds = {".onnx": _onnx, ".pt2": _pt2}
    if path.suffix.lower() not in kinds:
        raise DataError(f"{path}: expected a name that ends in .onnx or .pt2")
    content, run = kinds[path.suffix.lower()](module, about or {})
    difference = _compare(module, run)
    if not difference <= tolerance:
        raise InferenceError(
            f"{path}: the exported model differs from torchlgm by {difference:.1e}, expected at most {tolerance:g}; "
            "nothing was written. Its energies may be too large for its precision"
        )
    atomic_write(path, content)
    return Exported(path, len(content), difference)


def as_program(predictor: Predictor, scaling: Scaling | None = None) -> torch.export.ExportedProgram:
    """`predictor` by `torch.export`: values and a mask to probabilities, for any batch size."""
    return _exported(_Program(predictor, scaling))


def _exported(module: _Program) -> torch.export.ExportedProgram:
    batch = {0: torch.export.Dim("batch")}
    inputs = module.examples(2, torch.Generator().manual_seed(0))
    with torch.no_grad():
        program = torch.export.export(module, inputs, dynamic_shapes=(batch, batch))
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # paths of this machine
    return program


def _pt2(module: _Program, about: Mapping[str, Any]) -> tuple[bytes, Run]:
    file = io.BytesIO()
    torch.export.save(_exported(module), file, extra_files={ABOUT: json.dumps(dict(about))})
    file.seek(0)
    return file.getvalue(), torch.export.load(file).module()


def _onnx(module: _Program, about: Mapping[str, Any]) -> tuple[bytes, Run]:
    """In single precision, since runtimes do not know all operations in double."""
    for needed in ("onnx", "onnxscript"):
        import_optional(needed, "onnx")
    runtime = import_optional("onnxruntime", "onnx")
    program = _exported(copy.deepcopy(module).float())
    with _quiet():
        exported = torch.onnx.export(program, dynamo=True, verbose=False, input_names=NAMES[:2], output_names=NAMES[2:])
    assert exported is not None
    proto = exported.model_proto
    _tidy(proto)
    for key, value in about.items():
        proto.metadata_props.add(key=key, value=json.dumps(value))
    content = proto.SerializeToString()
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])

    def run(x: Tensor, seen: Tensor) -> Tensor:
        x = x if module.scaling is not None else x.float()
        return torch.from_numpy(session.run(None, dict(zip(NAMES, (x.numpy(), seen.numpy()), strict=False)))[0])

    return content, run


def _tidy(proto: Any) -> None:
    """Without where in the source each operation comes from, and with a name for the batch axis."""
    graph = proto.graph
    values = (*graph.input, *graph.output, *graph.value_info)
    for part in (*graph.node, *values, graph):
        del part.metadata_props[:]
    batch = graph.input[0].type.tensor_type.shape.dim[0].dim_param
    for value in values:
        for dimension in value.type.tensor_type.shape.dim:
            if dimension.dim_param == batch:
                dimension.dim_param = "batch"


def _compare(module: _Program, run: Run) -> float:
    """The largest difference of a probability, over several batch sizes and masks, some with NaN under the mask."""
    generator = torch.Generator().manual_seed(1)
    worst = 0.0
    with torch.no_grad():
        for batch in (1, 2, 7):
            x, seen = module.examples(batch, generator)
            for values in (x, x.masked_fill(~seen, torch.nan)):
                difference = (module(values, seen) - run(values, seen)).abs().max()
                worst = max(worst, float(difference.nan_to_num(torch.inf)))
    return worst


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings of the ONNX converter about optional parts that it lacks."""
    loggers = [logging.getLogger(name) for name in CONVERTERS]
    before = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
