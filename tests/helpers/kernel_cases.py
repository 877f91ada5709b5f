"""What the tests of fused kernels share: graphs, numbers, and comparisons with plain PyTorch.

Where there is a GPU they have the marker `gpu` and test the kernels in Triton; elsewhere those in C. With
TRITON_INTERPRET=1 they test the kernels in Triton on the CPU, in fewer and smaller cases since its interpreter takes
some 50 ms for a program: `test_interpreted.py` does that.
"""

import os
from shutil import which

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import torchlgm as lgm
from torchlgm import Conv, Dense, Graph, Layer, Local, Sparse
from torchlgm.inference.rules import BeliefPropagation
from torchlgm.ops.backend import KERNELS as BACKENDS
from torchlgm.ops.backend import backend
from torchlgm.ops.program import MessageStep

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = torch.device("cuda" if torch.cuda.is_available() and not INTERPRETED else "cpu")
KERNELS = "triton" if INTERPRETED or DEVICE.type == "cuda" else "native"
if INTERPRETED:
    pytest.importorskip("triton")
    MARK = pytest.mark.filterwarnings("ignore:(overflow|invalid|divide).*:RuntimeWarning")  # numpy's
elif DEVICE.type == "cuda":
    MARK = pytest.mark.gpu
else:
    MARK = pytest.mark.skipif(not any(map(which, ("cc", "gcc", "clang"))), reason="needs a C compiler")
only_gpu = pytest.mark.skipif(DEVICE.type != "cuda", reason="needs a GPU")
only_triton = pytest.mark.skipif(KERNELS != "triton", reason="is about the kernels in Triton")


def cases(names, few, more=()):
    """`few` cases everywhere, `more` where they are quick."""
    return pytest.mark.parametrize(names, [*few] if INTERPRETED else [*few, *more])


def numbers(*shape, seed=0):
    generator = torch.Generator().manual_seed(100 * seed + sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(DEVICE, torch.get_default_dtype())


def assert_same(mine, eager, **tolerance):
    """Tensors by name; what no gradient reaches may be None or 0."""
    assert mine.keys() == eager.keys()
    assert any(x is not None and x.abs().max() > 1e-2 for x in eager.values())
    for name, x in eager.items():
        if x is not None or mine[name] is not None:
            like = x if x is not None else mine[name]
            pair = [torch.zeros_like(like) if y is None else y for y in (mine[name], x)]
            assert_close(*pair, msg=lambda text, name=name: f"{name}: {text}", **tolerance)


EXACT = {"rtol": 1e-9, "atol": 1e-11}
SUM, MAX = BeliefPropagation(), BeliefPropagation(maximise=True)
TRW, MAX_TRW = BeliefPropagation(reweighted=True), BeliefPropagation(reweighted=True, maximise=True)
UNDIVIDED = BeliefPropagation(reweighted=True, divide_by_rho=False)

SMALL = Sparse("left", "right", ((0, 0), (0, 1), (1, 1)))
LAYOUTS = {
    "dense": (3, 2, Dense("left", "right")),
    "conv": ((1, 3), (2, 2), Conv("left", "right", 2, 2, ((1, 0),))),
    "conv-3d": ((1, 2, 2, 1), (2, 1, 1, 2), Conv("left", "right", (2, 2, 1), padding=((0, 0), (0, 0), (1, 0)))),
    "local": ((1, 2, 2), (1, 2, 2), Local("left", "right", 2, 1, ((1, 0), (0, 1)))),
    "sparse-with-lone-nodes": (4, 3, Sparse("left", "right", ((3, 2), (0, 0), (2, 2), (0, 2), (2, 0)))),
}
LARGE = {
    "conv-complete": ((2, 3), (1, 2), Conv("left", "right", 2)),
    "dense-large": (70, 33, Dense("left", "right")),
    "conv-2d-large": ((3, 9, 8), (5, 5, 4), Conv("left", "right", 3, 2, ((1, 1), (1, 0)))),
    "local-2d-large": ((3, 9, 8), (5, 5, 4), Local("left", "right", 3, 2, ((1, 1), (1, 0)))),
    "local-dilated": ((2, 9), (3, 5), Local("left", "right", 3, 1, dilation=2)),
    "conv-3d-large": ((2, 4, 5, 3), (3, 3, 3, 2), Conv("left", "right", 2, (1, 2, 1), ((0, 0), (1, 0), (0, 0)))),
}


def layout_of(left, right, connection):
    return connection.make_layout(Layer("left", left), Layer("right", right)).to(DEVICE)


NAN = torch.nan
TINY = {
    "chain": Graph([Layer("x", 2), Layer("h", 2), Layer("y", 1, 3)], [Dense("x", "h"), Dense("h", "y")]),
    "line": Graph(
        [Layer("x", 2), Layer("h", 1), Layer("g", 1), Layer("y", 1)],
        [Dense("x", "h"), Dense("h", "g"), Dense("g", "y")],
    ),
    "skip": Graph(  # y has three links
        [Layer("x", 2), Layer("h", 2), Layer("g", 1, 3), Layer("y", 1)],
        [Dense("x", "h"), Dense("h", "g"), Dense("g", "y"), Dense("h", "y"), Dense("x", "y")],
    ),
    "conv": Graph([Layer("x", (1, 3)), Layer("h", (1, 2)), Layer("y", 1)], [Conv("x", "h", 2), Dense("h", "y")]),
    "lateral": Graph([Layer("x", (1, 2, 2), 3), Layer("y", 1)], [Conv("x", "x", 3), Dense("x", "y")]),
}
LARGER = {
    "dense-large": Graph(
        [Layer("x", 30), Layer("h", 40, 3), Layer("g", 20), Layer("y", 1, 10)],
        [Dense("x", "h"), Dense("h", "g"), Dense("g", "y"), Dense("h", "y")],
    ),
    "conv-large": lgm.zoo.windows("conv", (1, 12, 12), (4, 6), (5, 5), (1, 1), 0, 20, 10),
    "lateral-large": Graph(
        [Layer("x", (2, 9, 8)), Layer("h", 20, 3)],
        [Conv("x", "x", 3), Local("x", "x", (1, 3), name="across"), Dense("x", "h"), Dense("h", "h")],
    ),
    "local-large": lgm.zoo.windows("local", (1, 12, 12), (4, 6), (3, 3), (2, 1), 1, 20, 10),
}


def model_of(graph, scale="energy"):
    return lgm.LGM(graph, lgm.Init(1.0, 1.0, scale), generator=torch.Generator().manual_seed(1)).to(DEVICE)


def evidence_for(graph, kind, batch=2):
    """About the first layer: "soft", or "missing" here and there, or "none"."""
    layer = graph.layers[0]
    values = numbers(batch, *layer.sizes, *([layer.labels] if layer.labels > 2 else [])).sigmoid()
    values = values if layer.labels == 2 else values / values.sum(-1, keepdim=True)
    if kind == "missing":
        values[0].view(layer.nodes, -1)[::2] = NAN
    return {} if kind == "none" else {layer.name: values}


def answers(name, model, evidence, method, edges=False, **options):
    """Beliefs of every layer, what was made of the kept messages, and every gradient."""
    with backend(name):
        beliefs = lgm.infer(model, evidence, method, **options)
        found = {f"belief of {layer}": beliefs[layer].log_probs for layer in beliefs if layer in beliefs.mrf.unary}
        if edges:
            found |= {f"edges of {link.name}": beliefs.edges(link.name) for link in beliefs.mrf.links}
            found["log Z"] = beliefs.log_z
        loss = sum((x * numbers(*x.shape)).sum() for x in found.values())
        grads = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    names = [f"gradient of {key}" for key, _ in model.named_parameters()]
    return beliefs, found | dict(zip(names, grads, strict=True))


def assert_same_answers(model, evidence, method, **options):
    mine, eager = (answers(name, model, evidence, method, **options) for name in (KERNELS, "eager"))
    assert_same(mine[1], eager[1], **EXACT)
    assert_close(mine[0].iterations, eager[0].iterations)
    return mine[0]


class Classifier(nn.Module):
    def __init__(self, graph, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.model = lgm.LGM(graph, "paper").to(DEVICE)
        self.want = graph.layers[-1].name

    def forward(self, evidence):
        method = lgm.trw(2 if INTERPRETED else 4, "sequential")
        return lgm.infer(self.model, evidence, method, want=(self.want,))[self.want].log_probs


def watch_launches(monkeypatch, name, seen):
    """Has `seen(step, wires, slots)` called before each launch of "send" or "send_backward"."""
    launcher = BACKENDS[KERNELS].launcher()
    owner = type(launcher) if KERNELS == "triton" else launcher
    plain = getattr(owner, name)

    def watched(*given):
        at = next(i for i, x in enumerate(given) if isinstance(x, MessageStep))
        seen(*given[at : at + 3])
        return plain(*given)

    monkeypatch.setattr(owner, name, watched)
