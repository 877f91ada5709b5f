"""Every kernel in Triton is compiled for a GPU, without one: its interpreter takes code that the compiler refuses."""

import ast
import os
from pathlib import Path
from threading import Thread

import pytest
import torch

import torchlgm as lgm
from torchlgm import Dense, Graph, Layer, Local, Posterior
from torchlgm.ops import backend as backends
from torchlgm.ops.backend import backend

pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="needs Triton's compiler")

GRAPH = Graph(
    (Layer("inputs", (1, 5, 5)), Layer("h", (2, 3, 3), labels=3), Layer("k", 20), Layer("classes", 1, labels=4)),
    (Local("inputs", "h", 3), Dense("h", "k"), Dense("k", "classes")),
)
TYPES = {torch.float32: "*fp32", torch.float64: "*fp64", torch.int32: "*i32", torch.int64: "*i64"}


def calls_of(monkeypatch, method, batch, dtype):
    """The calls of kernels in a training step, which are gathered, not made."""
    from torchlgm.ops.triton.precompile import gathering

    monkeypatch.setattr(backends, "interpreted", lambda: True)  # on a CPU, that is
    model = lgm.LGM(GRAPH).to(dtype)
    x, y = torch.rand(batch, 1, 5, 5, dtype=dtype), torch.zeros(batch, dtype=torch.long)
    found = []
    token = gathering.set(found)
    try:
        with backend("triton"):
            loss = Posterior(model, method).label_nll(x, y)
        backward = Thread(target=loss.backward)  # as on a GPU, where gradients are computed in another one
        backward.start()
        backward.join()
    finally:
        gathering.reset(token)
    return {str((one.call.arguments, one.call.options)): one.call for one in found}.values()


def type_of(argument):
    return TYPES.get(argument, "i32")


def compiled(call):
    from triton import compile
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel, _, arguments, options = call
    options = options | {"EARLY": True, "FAST": options.get("FAST") is not None and torch.float32 in arguments}
    names, signature, constants = kernel.arg_names, {}, {}
    for i, name in enumerate(names):
        given = arguments[i] if i < len(arguments) else options.get(name)
        if i >= len(arguments) or given is None:
            signature[name], constants[(i,)] = "constexpr", given
        else:
            signature[name] = tuple(map(type_of, given)) if isinstance(given, tuple) else type_of(given)
    others = {name: value for name, value in options.items() if name not in names}
    return compile(ASTSource(kernel, signature, constants), target=GPUTarget("cuda", 90, 32), options=others)


@pytest.mark.parametrize(
    ("method", "batch", "dtype"),
    [
        (lgm.trw(2), 20, torch.float32),
        (lgm.lbp(1), 128, torch.float32),
        (lgm.lbp(4, "parallel"), 300, torch.float32),
        (lgm.lbp(4, "parallel"), 600, torch.float32),
        (lgm.lbp(2, product="max"), 3, torch.float64),
    ],
    ids=["sum", "large batch", "few parts", "many parts", "max"],
)
def test_the_compiler_takes_every_kernel(monkeypatch, method, batch, dtype):
    from torchlgm.ops.triton import kernels

    calls = calls_of(monkeypatch, method, batch, dtype)
    every = {kernels.pack, kernels.send, kernels.send_backward, kernels.score, kernels.add_up}
    assert {call.kernel for call in calls} == every
    assert [call.kernel for call in calls].count(kernels.score) == 2  # the cost, and its gradients
    for call in calls:
        assert "ld.global" in compiled(call).asm["ptx"]


def test_older_compilers_take_every_comparison():
    """Those of Triton 3.6 and before know `a <= b`, but not `a <= b < c`."""
    from torchlgm.ops.triton import kernels

    files = [f for f in sorted(Path(kernels.__file__).parent.glob("*.py")) if "tl." in f.read_text()]
    found = [node for file in files for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Compare)]
    assert len(found) > 10
    assert [ast.unparse(node) for node in found if len(node.ops) > 1] == []
