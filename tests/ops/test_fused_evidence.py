"""Evidence that kernels make among the messages."""

import pytest
import torch

import torchlgm as lgm
from helpers.kernel_cases import (
    EXACT,
    KERNELS,
    MARK,
    NAN,
    assert_same,
    cases,
    model_of,
    numbers,
    watch_launches,
)
from torchlgm import Dense, Graph, Layer, Local
from torchlgm.inference import solve
from torchlgm.inference.run import run
from torchlgm.ops.backend import backend

pytestmark = MARK


# Evidence among the messages

FROM_WINDOWS = {  # a kernel makes evidence out of these on every device
    "left": Graph([Layer("x", (1, 3)), Layer("h", (1, 2)), Layer("y", 1)], [Local("x", "h", 2), Dense("h", "y")]),
    "right": Graph([Layer("h", (1, 3)), Layer("x", (1, 2)), Layer("y", 1)], [Local("h", "x", 2), Dense("h", "y")]),
    "labels": Graph(
        [Layer("x", (1, 3)), Layer("h", (1, 2), 3), Layer("y", 1, 4)], [Local("x", "h", 2), Dense("h", "y")]
    ),
    "two": Graph(
        [Layer("x", (1, 3)), Layer("z", (1, 2)), Layer("h", (1, 2)), Layer("y", 1)],
        [Local("x", "h", 2), Local("z", "h", 1), Dense("h", "y")],
    ),
}


@pytest.fixture
def linear_sends(monkeypatch):
    """Notes each time that kernels make evidence."""
    made = []
    watch_launches(monkeypatch, "send", lambda step, wires, slots: made.extend([step] * (wires.mode == "linear")))
    return made


def evidence_answers(name, model, batch, method, want, missing=False):
    """Beliefs, and the gradients of everything, inputs included."""
    seen = {key: numbers(batch, *model.graph.layer(key).sizes).sigmoid() for key in ("x", "z") if key in model.unary}
    if missing:
        seen["x"].flatten(1)[0, 0] = NAN
    leaves = [x.requires_grad_() for x in seen.values()]
    with backend(name):
        beliefs = solve(model.condition(seen), method, want)
        found = {layer: beliefs[layer].log_probs for layer in want}
        loss = sum((x * numbers(*x.shape)).sum() for x in found.values())
        grads = torch.autograd.grad(loss, [*leaves, *model.parameters()], allow_unused=True)
    return found | dict(zip([*[f"input {key}" for key in seen], *dict(model.named_parameters())], grads, strict=True))


@cases(
    ("kind", "batch", "method", "missing", "made"),
    [("right", 3, lgm.trw(2, "sequential"), False, 1), ("two", 2, lgm.lbp(2), False, 0)],
    [
        ("left", 600, lgm.trw(2, "sequential"), False, 1),
        ("left", 2, lgm.lbp(2, product="max"), False, 1),
        ("left", 2, lgm.lbp(3), True, 1),
        ("labels", 20, lgm.lbp(2, "sequential"), False, 1),
        ("right", 2, lgm.lbp(2, "parallel"), False, 1),
    ],
)
def test_evidence_is_made_among_the_messages(kind, batch, method, missing, made, linear_sends):
    """Where it comes over one connection; that of several is added up before."""
    model = model_of(FROM_WINDOWS[kind])
    mine = evidence_answers(KERNELS, model, batch, method, ("y",), missing)
    among = len(linear_sends) - (0 if made else 2)
    assert among == made
    assert_same(mine, evidence_answers("eager", model, batch, method, ("y",), missing), **EXACT)


@cases(
    ("method", "want"),
    [(lgm.lbp(2), ("h", "y"))],
    [(lgm.lbp(3, tolerance=1e-3), ("y",)), (lgm.lbp(3, gradient="checkpoint"), ("y",))],
)
def test_evidence_that_is_read_elsewhere_is_made_once(method, want, linear_sends):
    model = model_of(FROM_WINDOWS["left"])
    mine = evidence_answers(KERNELS, model, 2, method, want)
    assert len(linear_sends) == 1
    assert_same(mine, evidence_answers("eager", model, 2, method, want), **EXACT)


def test_nobody_wants_the_gradient_of_evidence(monkeypatch):
    model = model_of(FROM_WINDOWS["left"])
    model.table["x-h"].requires_grad_(False)
    with backend(KERNELS):
        x = numbers(2, 1, 3).sigmoid()
        belief = run(model.condition({"x": x}), lgm.lbp(2), ("y",)).beliefs["y"]
        modes = set()
        watch_launches(monkeypatch, "send_backward", lambda step, wires, slots: modes.add(wires.mode))
        belief.sum().backward()
    assert modes == {"sum"}
