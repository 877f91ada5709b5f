"""Fused kernels against plain PyTorch: one message, its sum at the nodes, whole inferences, and every gradient.

Where there is a GPU all of them have the marker `gpu` and test the kernels in Triton; elsewhere those in C. With
TRITON_INTERPRET=1 they test the kernels in Triton on the CPU, in fewer and smaller cases since its interpreter takes
some 50 ms for a program: `test_interpreted.py` does that.
"""

import os
from itertools import product
from shutil import which
from weakref import ref

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.testing import assert_close

import torchlgm as lgm
from torchlgm import Conv, Dense, Graph, Layer, Local, Sparse
from torchlgm.errors import InferenceError
from torchlgm.inference import solve
from torchlgm.inference.engine import Engine
from torchlgm.inference.plan import MakeBelief, MakeMessage, Plan
from torchlgm.inference.rules import BeliefPropagation, Message
from torchlgm.inference.run import run
from torchlgm.inference.schedule import Hop
from torchlgm.layout import LEFT, RIGHT
from torchlgm.learn.cuda.capture import capture
from torchlgm.mrf import MRF, PIN, Clamp, Link
from torchlgm.ops import launch as fused
from torchlgm.ops.backend import backend, kernels
from torchlgm.ops.linear import linear
from torchlgm.ops.nll import label_nll

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = torch.device("cuda" if torch.cuda.is_available() and not INTERPRETED else "cpu")
KERNELS = "triton" if INTERPRETED or DEVICE.type == "cuda" else "native"
if INTERPRETED:
    pytest.importorskip("triton")
    pytestmark = pytest.mark.filterwarnings("ignore:(overflow|invalid|divide).*:RuntimeWarning")  # numpy's
elif DEVICE.type == "cuda":
    pytestmark = pytest.mark.gpu
else:
    pytestmark = pytest.mark.skipif(not any(map(which, ("cc", "gcc", "clang"))), reason="needs a C compiler")
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


# One message

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


def parts(layout, labels, side, batch, narrow=("unary",), inflows=2, evidence=True, reverse=True, size=1.0):
    """What a message is made of, by name; `narrow` ones are the same for every sample."""
    kl, kr = labels[0] - 1, labels[1] - 1
    k, nodes = labels[side] - 1, layout.nodes[side]
    tensors = {"table": size * numbers(*layout.table_shape, kl, kr)}
    names = ["unary", *["evidence"] * evidence, *["reverse"] * reverse, *[f"inflow {i}" for i in range(inflows)]]
    for seed, name in enumerate(names, 1):
        shape = (*layout.edge_shape, k) if name == "reverse" else (nodes, k)
        tensors[name] = size * numbers(1 if name in narrow else batch, *shape, seed=seed)
    if reverse and layout.mask is not None:
        tensors["reverse"] = tensors["reverse"] * layout.mask.unsqueeze(-1)
    return tensors


def mrf_of(layout, side, tensors, batch, rho=None):
    """Two layers and a link between them."""
    kl, kr = tensors["table"].shape[-2:]
    source, target = ("left", "right")[side], ("left", "right")[1 - side]
    unary = {
        source: tensors["unary"],
        target: torch.zeros(1, layout.nodes[1 - side], (kl, kr)[1 - side], device=DEVICE),
    }
    field = {source: tensors["evidence"]} if "evidence" in tensors else {}
    link = Link("left-right", "left", "right", layout, tensors["table"], rho, scale=0.7)
    return MRF(unary, field, (link,), (), (), batch, {}, {})


def send(name, layout, side, tensors, batch, rule, rho):
    """The message `(edges, inflow)` out of `side`, made of `tensors`."""
    hop = Hop(0, side, ("left", "right")[side], ("left", "right")[1 - side])
    inputs = [Message(None, x) for name, x in tensors.items() if name.startswith("inflow")]
    count = len(inputs)
    reverse = None
    if "reverse" in tensors:
        reverse = count
        inputs.append(Message(tensors["reverse"], torch.zeros(1, device=DEVICE)))
    at = len(inputs)
    steps = (MakeBelief(hop.source, True, tuple(range(count))), MakeMessage(hop, at, reverse, None))
    plan = Plan((hop.back,) * at, steps, {}, {hop: at + 1}, {})
    with backend(name):
        engine = Engine(mrf_of(layout, side, tensors, batch, rho), lgm.Method(rule, lambda _: None, 1))
        assert engine.by_kernels == (name == KERNELS)
        return engine.execute(plan, inputs)[at + 1]


def message_and_gradients(name, layout, side, tensors, batch, rule, rho, wanted=("edges", "inflow")):
    leaves = {key: x.detach().clone().requires_grad_() for key, x in tensors.items()}
    found = send(name, layout, side, leaves, batch, rule, rho)._asdict()
    loss = sum((x * numbers(*x.shape, seed=9)).sum() for key, x in found.items() if key in wanted)
    grads = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    return found | {f"gradient of {key}": g for key, g in zip(leaves, grads, strict=True)}


def assert_same_message(layout, labels, side, batch, rule=TRW, wanted=("edges", "inflow"), change=None, **how):
    tensors = parts(layout, labels, side, batch, **how)
    if change is not None:
        change(tensors)
    rho = numbers(*layout.edge_shape).sigmoid() / 2 + 0.5 if rule.reweighted else None
    mine, eager = (
        message_and_gradients(name, layout, side, tensors, batch, rule, rho, wanted) for name in (KERNELS, "eager")
    )
    tolerance = EXACT if torch.get_default_dtype() == torch.float64 else {"rtol": 3e-4, "atol": 3e-5}
    assert_same(mine, eager, **tolerance)
    return mine


@pytest.mark.parametrize("side", [LEFT, RIGHT])
@cases("kind", LAYOUTS, LARGE)
def test_every_layout_in_both_directions(kind, side):
    layout = layout_of(*(LAYOUTS | LARGE)[kind])
    assert_same_message(layout, (2, 2), side, batch=3, inflows=1)


@pytest.mark.parametrize("side", [LEFT, RIGHT])
@cases("kind", [], [*LAYOUTS, *LARGE])
def test_every_layout_with_labels(kind, side):
    layout = layout_of(*(LAYOUTS | LARGE)[kind])
    assert_same_message(layout, (3, 4), side, batch=20)


MANY_LABELS = ((2, 2), (2, 3), (3, 2), (3, 3), (10, 3), (2, 10), (10, 10))
EVERY_RULE = [(TRW, LEFT), (SUM, RIGHT), (MAX, LEFT), (MAX_TRW, RIGHT)]


@cases(
    ("labels", "rule", "side"),
    [
        ((2, 3), SUM, LEFT),
        ((3, 2), TRW, LEFT),
        ((3, 4), TRW, RIGHT),
        ((2, 2), MAX_TRW, LEFT),
        ((3, 3), MAX, RIGHT),
        ((2, 3), UNDIVIDED, RIGHT),
    ],
    [(labels, rule, side) for labels, (rule, side) in product(MANY_LABELS, EVERY_RULE)],
)
def test_labels_and_rules(labels, rule, side):
    assert_same_message(layout_of(2, 2, SMALL), labels, side, 3, rule, inflows=1)


@pytest.mark.parametrize("labels", [(10, 2), (2, 10)])
def test_ten_labels(labels):
    assert_same_message(layout_of(1, 1, Dense("left", "right")), labels, LEFT, 2, inflows=0, evidence=False)


@cases(("labels", "rule"), [((2, 2), MAX), ((3, 3), MAX)], [((2, 4), MAX_TRW), ((4, 2), MAX)])
def test_ties_share_the_gradient(labels, rule):
    """Energies are whole numbers from -1 to 1, so that many labellings are the best."""

    def whole(tensors):
        for name, x in tensors.items():
            tensors[name] = x.round().clamp(-1, 1) * (1 / 0.7 if name == "table" else 1)

    assert_same_message(layout_of(2, 2, SMALL), labels, LEFT, 8, rule, change=whole, inflows=1)


@cases("batch", [1, 2, 10, 33, 130], [3, 5, 20, 32, 64, 65, 192, 1000])
def test_any_number_of_samples(batch):
    """Widths are padded, and a gradient of what is narrow is a sum over blocks of samples."""
    assert_same_message(layout_of(3, 2, Dense("left", "right")), (2, 2), LEFT, batch, inflows=1)


@cases("batch", [], [1, 2, 3, 20, 33, 65, 130])
def test_any_number_of_samples_with_labels(batch):
    layout = layout_of(*LARGE["conv-2d-large"])
    assert_same_message(layout, (3, 4), LEFT, batch)
    assert_same_message(layout, (3, 4), RIGHT, batch, MAX)


@cases(("labels", "batch", "rule"), [((3, 2), 10, SUM), ((2, 3), 12, TRW)], [((3, 3), 20, TRW), ((4, 2), 27, MAX)])
def test_lanes_without_samples_add_nothing(labels, batch, rule):
    """Not even where energies are so large that their exponentials are infinite."""

    def large(tensors):
        tensors["table"] = tensors["table"] * 2000

    how = {"change": large, "inflows": 1, "narrow": ("unary", "inflow 0")}
    assert_same_message(layout_of(2, 2, SMALL), labels, LEFT, batch, rule, **how)


PARTS = ("unary", "evidence", "reverse", "inflow 0", "inflow 1")


@cases(
    "narrow",
    [(), ("unary", "inflow 0"), ("evidence", "reverse"), ("unary", "evidence", "inflow 0", "inflow 1"), PARTS],
    [("reverse",), ("evidence",), ("inflow 1",), PARTS[1:], ("unary", "evidence", "reverse", "inflow 1")],
)
def test_narrow_and_wide_parts(narrow):
    found = assert_same_message(layout_of(2, 2, SMALL), (2, 2), LEFT, 3, narrow=narrow)
    assert found["inflow"].shape[0] == (1 if narrow == PARTS else 3)


@cases("narrow", [("unary", "evidence", "inflow 0")], [(), ("reverse",), PARTS])
@cases("batch", [2], [65, 130])
def test_narrow_and_wide_parts_with_labels(narrow, batch):
    assert_same_message(layout_of(1, 2, Dense("left", "right")), (3, 2), LEFT, batch, narrow=narrow)


@pytest.mark.parametrize(
    ("inflows", "evidence", "reverse"), [(0, False, False), (1, True, False), (3, False, True), (4, True, True)]
)
def test_any_number_of_parts(inflows, evidence, reverse):
    how = {"inflows": inflows, "evidence": evidence, "reverse": reverse, "narrow": ("unary", "inflow 0", "inflow 2")}
    batch = 3 if inflows or evidence else 1
    assert_same_message(layout_of(2, 2, SMALL), (2, 2), LEFT, batch, **how)


@cases("wanted", [("edges",), ("inflow",)])
def test_gradients_of_either_output(wanted):
    assert_same_message(layout_of(*LAYOUTS["conv"]), (2, 2), LEFT, 2, wanted=wanted, inflows=0)


@pytest.mark.parametrize("busy", [2048, 1] if KERNELS == "triton" else [None])
@cases(
    ("nodes", "labels", "batch"),
    [((33, 1), (2, 2), 20)],
    [((700, 2), (2, 2), 20), ((700, 2), (3, 4), 20), ((2100, 1), (2, 2), 1), ((1300, 1), (2, 3), 65)],
)
def test_few_nodes_with_many_edges(nodes, labels, batch, busy, monkeypatch):
    """More edges at a node than a block takes: in chunks side by side, or one after the other."""
    if busy:
        monkeypatch.setattr("torchlgm.ops.triton.launcher.BUSY", busy)
    layout = layout_of(*nodes, Dense("left", "right"))
    how = {"inflows": 1, "narrow": ("unary", "inflow 0"), "reverse": not INTERPRETED}
    assert_same_message(layout, labels, LEFT, batch, **how)
    assert_same_message(layout, labels, RIGHT, batch, **how)


def test_chunks_of_uneven_lists():
    """A node with far more edges than the mean, and one with none."""
    many = 40 if INTERPRETED else 900
    layout = layout_of(many, 3, Sparse("left", "right", (*((i, 0) for i in range(many)), (0, 2))))
    assert_same_message(layout, (2, 2), RIGHT, 33, inflows=0, reverse=False)


@pytest.mark.parametrize("size", ["large", "pinned"])
@cases(
    ("labels", "rule", "dtype"),
    [((2, 2), TRW, torch.float32), ((3, 2), TRW, torch.float32), ((3, 2), SUM, torch.float64)],
    [
        *product(((2, 2), (3, 2)), (TRW, MAX), (torch.float32, torch.float64)),
        *product(((2, 10), (10, 10)), (TRW, SUM), (torch.float32,)),
    ],
)
def test_large_energies_and_pins(labels, rule, dtype, size):
    def pinned(tensors):
        tensors["unary"][:, 0] = PIN

    torch.set_default_dtype(dtype)
    change, scale = (pinned, 1.0) if size == "pinned" else (None, 300.0)
    found = assert_same_message(layout_of(2, 2, SMALL), labels, LEFT, 2, rule, change=change, size=scale, inflows=1)
    assert all(x.isfinite().all() for x in found.values())
    if size == "pinned":
        assert not found["edges"][:, :2].any()  # a pinned node says nothing


@cases(("labels", "rule"), [((2, 3), TRW)], [((3, 2), SUM), ((10, 10), TRW), ((3, 3), MAX)])
def test_single_precision(labels, rule):
    """As near to the truth in float64 as one may ask of float32."""
    layout = layout_of(2, 2, SMALL)
    tensors = parts(layout, labels, LEFT, 3)
    rho = numbers(*layout.edge_shape).sigmoid() / 2 + 0.5 if rule.reweighted else None
    truth = message_and_gradients("eager", layout, LEFT, tensors, 3, rule, rho)
    single = {name: x.float() for name, x in tensors.items()}
    rho = None if rho is None else rho.float()
    mine = message_and_gradients(KERNELS, layout, LEFT, single, 3, rule, rho)
    assert all(x.dtype == torch.float32 for name, x in mine.items() if "gradient" in name)
    assert_same({name: x.double() for name, x in mine.items()}, truth, rtol=1e-4, atol=1e-5)


def test_gradcheck_of_a_message():
    layout = layout_of(2, 1, Dense("left", "right"))
    tensors = parts(layout, (2, 2), LEFT, 2, inflows=1)
    rho = torch.full((2, 1), 0.7, device=DEVICE)

    def message(*leaves):
        return tuple(send(KERNELS, layout, LEFT, dict(zip(tensors, leaves, strict=True)), 2, TRW, rho))

    leaves = [x.clone().requires_grad_() for x in tensors.values()]
    assert gradcheck(message, leaves, fast_mode=True)


# Messages that are linear in what is known


@pytest.mark.parametrize("side", [LEFT, RIGHT])
@cases(
    ("kind", "labels", "batch"),
    [("conv", (2, 2), 3), ("sparse-with-lone-nodes", (2, 3), 1)],
    [*product([*LAYOUTS, *LARGE], ((2, 2), (3, 4)), (20,)), *product(["dense-large"], [(2, 10)], (1, 2, 33, 130))],
)
def test_linear(kind, labels, batch, side):
    layout = layout_of(*(LAYOUTS | LARGE)[kind])
    table = numbers(*layout.table_shape, labels[0] - 1, labels[1] - 1)
    q = numbers(batch, layout.nodes[side], labels[side] - 1).sigmoid()

    def found(name):
        leaves = [x.clone().requires_grad_() for x in (table, q)]
        with backend(name):
            out = linear(layout, *leaves, side, -1.5)
            grads = torch.autograd.grad((out * numbers(*out.shape)).sum(), leaves)
        return {"sum": out, "gradient of table": grads[0], "gradient of q": grads[1]}

    assert_same(found(KERNELS), found("eager"), **EXACT)


def test_linear_with_an_expanded_table():
    """As the scale "rho" has it."""
    layout = layout_of(*LAYOUTS["conv"])
    table, q = layout.expand(numbers(*layout.table_shape, 1, 1)).expand(*layout.edge_shape, 1, 1), numbers(2, 3, 1)
    with backend(KERNELS):
        mine = linear(layout, table, q, LEFT)
    assert_close(mine, layout.linear(table, q, LEFT), **EXACT)


def test_gradcheck_of_linear():
    layout = layout_of(*LARGE["conv-complete"])
    leaves = [numbers(*layout.table_shape, 1, 1).requires_grad_(), numbers(2, 6, 1).requires_grad_()]
    with backend(KERNELS):
        assert gradcheck(lambda table, q: linear(layout, table, q, LEFT, 0.5), leaves, fast_mode=True)


# Whole inferences

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
}
LARGER = {
    "dense-large": Graph(
        [Layer("x", 30), Layer("h", 40, 3), Layer("g", 20), Layer("y", 1, 10)],
        [Dense("x", "h"), Dense("h", "g"), Dense("g", "y"), Dense("h", "y")],
    ),
    "conv-large": lgm.zoo.windows("conv", (1, 12, 12), (4, 6), (5, 5), (1, 1), 0, 20, 10),
    "local-large": lgm.zoo.windows("local", (1, 12, 12), (4, 6), (3, 3), (2, 1), 1, 20, 10),
}


def model_of(graph, scale="energy"):
    return lgm.LGM(graph, lgm.Init(1.0, 1.0, scale), generator=torch.Generator().manual_seed(1)).to(DEVICE)


def evidence_for(graph, kind, batch=2):
    """About the first layer: "soft", or "missing" here and there, or "none"."""
    layer = graph.layers[0]
    values = numbers(batch, *layer.sizes).sigmoid()
    if kind == "missing":
        values.flatten(1)[0, ::2] = NAN
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


@cases(
    ("kind", "evidence", "method"),
    [
        ("chain", "missing", lgm.trw(2, "sequential")),
        ("skip", "soft", lgm.lbp(2, "sequential")),
        ("conv", "none", lgm.trw(1)),
        ("conv", "missing", lgm.lbp(2, "parallel", product="max")),
    ],
    product(
        [*TINY, *LARGER],
        ("soft", "missing", "none"),
        (lgm.trw(3, "sequential"), lgm.lbp(2), lgm.trw(3, "parallel", product="max")),
    ),
)
def test_inference(kind, evidence, method):
    graph = (TINY | LARGER)[kind]
    summing = not method.rule.maximise
    assert_same_answers(model_of(graph), evidence_for(graph, evidence), method, edges=summing)


@cases("batch", [1, 65], [3, 20, 33, 130, 600])
def test_only_what_is_wanted(batch):
    graph = TINY["skip"] if INTERPRETED else LARGER["local-large"]
    assert_same_answers(
        model_of(graph, "balanced"),
        evidence_for(graph, "soft", batch),
        lgm.trw(3 if INTERPRETED else 5, "sequential"),
        want=(graph.layers[-1].name,),
    )


@cases("batch", [130, 520], [300, 1100, 4100])
def test_gradients_in_parts(batch):
    """Few parts, fewer than the power of two that kernels read at once, and many; none of them is kept."""
    graph = Graph([Layer("x", 1), Layer("h", 2), Layer("y", 1, 3)], [Dense("x", "h"), Dense("h", "y")])
    model, method = model_of(graph), lgm.lbp(3, "parallel")
    assert_same_answers(model, {"x": numbers(batch, 1).sigmoid()}, method, want=("y",))
    with backend(KERNELS):
        solve(model.condition({"x": numbers(batch, 1).sigmoid()}), method, ("y",))["y"].log_probs.sum().backward()
    for name, p in model.named_parameters():
        if p.grad is not None:
            assert p.grad.untyped_storage().nbytes() == p.grad.nbytes, name


@cases("count", [3, 18], [40])
def test_sums_of_parts(count):
    """More of them than one launch takes, of one tensor or two, with few parts or many, in all sizes."""
    sums = []
    for i in range(count):
        shape = (1 + i % 3, 1 + 37 * (i % 4))
        sums.append([numbers(parts, *shape, seed=i) for parts in (1 + 5 * (i % 5), 1 + i % 2)[: 1 + i % 2]])
    with backend(KERNELS):
        found = kernels(sums[0][0]).launcher().add_up(sums)
    for terms, x in zip(sums, found, strict=True):
        assert_close(x, sum(term.sum(0) for term in terms))


def test_no_sums_and_empty_ones():
    with backend(KERNELS):
        assert kernels(numbers(1)).launcher().add_up([]) == []
        assert kernels(numbers(1)).launcher().add_up([[numbers(2, 0)]])[0].shape == (0,)


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
    """Counts how often kernels make evidence."""
    made = []
    plain = fused.send

    def counted(launch, sent, *args, **how):
        made.extend([sent.side] * (sent.wires.mode == "linear"))
        return plain(launch, sent, *args, **how)

    monkeypatch.setattr(fused, "send", counted)
    return made


def deferred_answers(name, model, batch, method, want, missing=False):
    """Beliefs, and the gradients of everything, inputs included."""
    seen = {key: numbers(batch, *model.graph.layer(key).sizes).sigmoid() for key in ("x", "z") if key in model.unary}
    if missing:
        seen["x"].flatten(1)[0, 0] = NAN
    leaves = [x.requires_grad_() for x in seen.values()]
    with backend(name):
        beliefs = solve(model.condition(seen, deferred=True), method, want)
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
    mine = deferred_answers(KERNELS, model, batch, method, ("y",), missing)
    among = len(linear_sends) - (0 if made else 2)
    assert among == made
    assert_same(mine, deferred_answers("eager", model, batch, method, ("y",), missing), **EXACT)


@cases(
    ("method", "want"),
    [(lgm.lbp(2), ("h", "y"))],
    [(lgm.lbp(3, tolerance=1e-3), ("y",)), (lgm.lbp(3, gradient="checkpoint"), ("y",))],
)
def test_evidence_that_is_read_elsewhere_is_made_once(method, want, linear_sends):
    model = model_of(FROM_WINDOWS["left"])
    mine = deferred_answers(KERNELS, model, 2, method, want)
    assert len(linear_sends) == 1
    assert_same(mine, deferred_answers("eager", model, 2, method, want), **EXACT)


def test_nobody_wants_the_gradient_of_evidence(monkeypatch):
    model = model_of(FROM_WINDOWS["left"])
    model.table["x-h"].requires_grad_(False)
    with backend(KERNELS):
        x = numbers(2, 1, 3).sigmoid()
        belief = run(model.condition({"x": x}, deferred=True), lgm.lbp(2), ("y",)).beliefs["y"]
        launched = []
        launcher = kernels(x).launcher()
        launcher = type(launcher) if KERNELS == "triton" else launcher
        plain = launcher.send_backward
        monkeypatch.setattr(launcher, "send_backward", lambda *given: (launched.append(given), plain(*given))[1])
        belief.sum().backward()
    modes = {x.wires.mode for given in launched for x in given if isinstance(x, fused.Sent)}
    assert modes == {"sum"}


@cases(("kind", "evidence"), [("skip", "soft")], product(LARGER, ("soft", "missing", "none")))
def test_mean_field(kind, evidence):
    graph = (TINY | LARGER)[kind]
    method = lgm.mean_field(1 if INTERPRETED else 3)
    assert_same_answers(model_of(graph), evidence_for(graph, evidence), method, edges=True)


@cases("kind", ["line"], LARGER)
def test_checkpointed_gradient(kind):
    graph = (TINY | LARGER)[kind]
    method = lgm.trw(3 if INTERPRETED else 6, "sequential", gradient="checkpoint")
    want = (graph.layers[-1].name,)
    assert_same_answers(model_of(graph), evidence_for(graph, "soft"), method, want=want)


@pytest.mark.parametrize("gradient", ["unroll", "implicit"])
def test_convergence(gradient):
    """Samples leave the batch as they converge."""
    graph = Graph([Layer("x", 1), Layer("h", 1), Layer("y", 1)], [Dense("x", "h"), Dense("h", "y")])
    if not INTERPRETED:
        graph = LARGER["dense-large"]
    model = lgm.LGM(graph, lgm.Init(0.3 if INTERPRETED else 0.05, 0.3), generator=torch.Generator().manual_seed(1)).to(
        DEVICE
    )
    evidence = evidence_for(graph, "missing", 2 if INTERPRETED else 20)
    method = lgm.trw(100, tolerance=1e-4 if INTERPRETED else 1e-10, gradient=gradient)
    found = assert_same_answers(model, evidence, method, edges=True)
    assert found.converged.all()


def test_going_on_from_messages_of_the_other_code():
    graph = TINY["chain"] if INTERPRETED else LARGER["conv-large"]
    model, evidence = model_of(graph), evidence_for(graph, "missing")
    method = lgm.trw(1, "parallel")

    def gone_on(first, second):
        with backend(first):
            begun = lgm.infer(model, evidence, method).messages
        return answers(second, model, evidence, method, start=begun)[1]

    eager = gone_on("eager", "eager")
    assert_same(gone_on("eager", KERNELS), eager, **EXACT)
    assert_same(gone_on(KERNELS, "eager"), eager, **EXACT)


def test_a_table_that_two_connections_share():
    graph = Graph([Layer("a", 1, 3), Layer("b", 1, 3), Layer("c", 1, 3)], [Dense("a", "b"), Dense("b", "c")])
    model = model_of(graph)
    model.table["b-c"] = model.table["a-b"]
    assert len(list(model.parameters())) == 4
    assert_same_answers(model, {}, lgm.lbp(1))


@pytest.mark.parametrize("scale", ["rho", "balanced"])
def test_scaled_tables(scale):
    graph = TINY["conv"] if INTERPRETED else LARGER["conv-large"]
    want = (graph.layers[-1].name,)
    assert_same_answers(model_of(graph, scale), evidence_for(graph, "soft"), lgm.trw(2), want=want)


def test_two_runs_are_equal_bit_for_bit():
    graph = TINY["conv"] if INTERPRETED else LARGER["conv-large"]
    batch = 2 if INTERPRETED else 130
    model, evidence = model_of(graph), evidence_for(graph, "soft", batch)
    method, want = lgm.trw(1 if INTERPRETED else 5), (graph.layers[-1].name,)
    first, second = (answers(KERNELS, model, evidence, method, want=want)[1] for _ in range(2))
    for name, x in first.items():
        assert x is second[name] is None or torch.equal(x, second[name]), name


@only_gpu
@pytest.mark.parametrize("kind", LARGER)
def test_a_captured_graph_computes_the_same_bit_for_bit(kind):
    """There, connections have streams of their own."""
    model, (layer, *_, last) = model_of(LARGER[kind]), LARGER[kind].layers
    seen = {layer.name: Clamp(numbers(20, layer.nodes, 1).sigmoid())}
    weights, parameters = numbers(20, 1, last.labels), list(model.parameters())
    found = []

    def work():
        with backend(KERNELS):
            answer = lgm.infer(model, seen, lgm.trw(5, "sequential"), want=(last.name,))[last.name].log_probs
        grads = torch.autograd.grad((answer * weights).sum(), parameters, allow_unused=True)
        found[:] = [answer.detach(), *(g for g in grads if g is not None)]

    captured = capture(work, torch.Generator(DEVICE))
    again = [*found]
    for _ in range(3):
        for x in again:
            x.detach().fill_(NAN)
        captured.replay()
        torch.cuda.synchronize()
        work()
        assert len(found) == len(again) > 4
        assert all(map(torch.equal, again, found))


class Classifier(nn.Module):
    def __init__(self, graph, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.model = lgm.LGM(graph, "paper").to(DEVICE)
        self.want = graph.layers[-1].name

    def forward(self, evidence):
        method = lgm.trw(2 if INTERPRETED else 4, "sequential")
        return lgm.infer(self.model, evidence, method, want=(self.want,))[self.want].log_probs


def test_second_derivatives():
    """By way of the plain code."""
    graph = TINY["chain"]
    model = Classifier(graph)
    evidence = evidence_for(graph, "soft")
    tables = [model.model.table["x-h"], model.model.table["h-y"]]

    def found(name):
        with backend(name):
            loss = model(evidence)[..., 1].sum()
            first = torch.autograd.grad(loss, tables, create_graph=True)
            second = torch.autograd.grad(sum((g**2).sum() for g in first), tables)
        return {"loss": loss} | {
            f"order {i} of {k}": g for i, gs in ((1, first), (2, second)) for k, g in enumerate(gs)
        }

    assert_same(found(KERNELS), found("eager"), **EXACT)


@cases(("kind", "evidence"), [("chain", "soft")], product([*TINY, *LARGER], ("soft", "missing")))
def test_vmap_over_stacked_parameters_is_a_loop(kind, evidence):
    graph = (TINY | LARGER)[kind]
    ensemble = [Classifier(graph, seed) for seed in range(2 if INTERPRETED else 3)]
    seen = evidence_for(graph, evidence, 2 if INTERPRETED else 33)
    parameters, _ = stack_module_state(ensemble)  # pyright: ignore[reportArgumentType]

    def one(p):
        return functional_call(ensemble[0], p, (seen,))

    def found(out):
        grads = torch.autograd.grad((out * numbers(*out.shape)).sum(), list(parameters.values()), allow_unused=True)
        return {"log probs": out} | {f"gradient of {name}": g for name, g in zip(parameters, grads, strict=True)}

    with backend(KERNELS):
        mine = found(vmap(one)(parameters))
    with backend("eager"):
        each = [{k: x[i] for k, x in parameters.items()} for i in range(len(ensemble))]
        eager = found(torch.stack([one(given) for given in each]))
    assert_same(mine, eager, **EXACT)


@cases("kind", ["chain", "conv"])
def test_stacked_rho_and_layouts_are_left_to_plain_code(kind):
    graph = TINY[kind]
    ensemble = [Classifier(graph, seed) for seed in range(2)]
    seen = evidence_for(graph, "soft", 2)
    stacked = stack_module_state(ensemble)  # pyright: ignore[reportArgumentType]

    def one(p, b):
        return functional_call(ensemble[0], (p, b), (seen,))

    with backend(KERNELS), pytest.raises(InferenceError, match="one layout and one rho for all models"):
        vmap(one)(*stacked)
    torch.testing.assert_close(vmap(one)(*stacked)[0], one({}, {}))


@cases(("kind", "evidence"), [("line", "soft")], product([*TINY, *LARGER], ("soft", "missing")))
def test_vmap_over_samples_and_parameters(kind, evidence):
    graph = (TINY | LARGER)[kind]
    ensemble = [Classifier(graph, seed) for seed in range(2)]
    (layer, values), *_ = evidence_for(graph, evidence).items()
    parameters, _ = stack_module_state(ensemble)  # pyright: ignore[reportArgumentType]

    def one(p, x):
        return functional_call(ensemble[0], p, ({layer: x.unsqueeze(0)},))

    def found(out):
        grads = torch.autograd.grad((out * numbers(*out.shape)).sum(), list(parameters.values()), allow_unused=True)
        return {"log probs": out} | {f"gradient of {name}": g for name, g in zip(parameters, grads, strict=True)}

    with backend(KERNELS):
        mine = found(vmap(vmap(one, (None, 0)), (0, None))(parameters, values))
    with backend("eager"):
        each = [[one({k: p[i] for k, p in parameters.items()}, x) for x in values] for i in range(2)]
        eager = found(torch.stack([torch.stack(row) for row in each]))
    assert_same(mine, eager, **EXACT)


# What labels cost


def cost_and_gradients(name, inflow, labels, unary=None):
    unary = torch.zeros_like(inflow[:1]) if unary is None else unary
    given = [x.detach().clone().requires_grad_() for x in (inflow, unary)]
    with backend(name):
        cost = label_nll(*given, labels)
    found = torch.autograd.grad(2 * cost, given)
    return {"cost": cost, "gradient of inflow": found[0], "gradient of unary": found[1]}


@only_triton
@cases(
    ("shape", "k"),
    [((3, 1), 9), ((65, 2), 1), ((300, 1), 9)],
    [((1, 1), 9), ((20, 1), 9), ((4096, 1), 9), ((130, 3), 2)],
)
def test_cost_of_labels(shape, k):
    inflow, unary = 3 * numbers(*shape, k), numbers(1, shape[1], k, seed=1)
    labels = torch.arange(1, shape[0] * shape[1] + 1, device=DEVICE).reshape(shape) % (k + 2) - 1  # -1 is unknown
    turned = inflow.permute(1, 2, 0).contiguous().permute(2, 0, 1)
    for given in ((inflow, labels, unary), (turned, labels, unary), (inflow, labels, numbers(*shape, k, seed=2))):
        assert_same(*(cost_and_gradients(name, *given) for name in (KERNELS, "eager")), **EXACT)


@only_triton
def test_cost_of_labels_without_a_gradient_for_all():
    given, labels = [numbers(3, 1, 2), numbers(1, 1, 2, seed=1)], torch.tensor([[0], [2], [1]], device=DEVICE)
    both = cost_and_gradients("eager", given[0], labels, given[1])
    for i, name in enumerate(["gradient of inflow", "gradient of unary"]):
        wanted = [x.clone().requires_grad_(i == j) for j, x in enumerate(given)]
        with backend(KERNELS):
            (found,) = torch.autograd.grad(2 * label_nll(*wanted, labels), wanted[i])
        assert_close(found, both[name], **EXACT)


@only_triton
def test_cost_of_labels_far_apart():
    belief = torch.tensor([[[800.0, -800.0]], [[-800.0, 0.0]], [[-1e30, 3.0]]], device=DEVICE)
    labels = torch.tensor([[0], [1], [2]], device=DEVICE)
    found = cost_and_gradients(KERNELS, belief, labels)
    assert_same(found, cost_and_gradients("eager", belief, labels), **EXACT)
    assert found["cost"].isfinite()


@only_triton
def test_labels_without_a_sign():
    belief, labels = numbers(3, 1, 4), torch.tensor([[0], [4], [2]], device=DEVICE)
    assert_same(*(cost_and_gradients(KERNELS, belief, labels.to(t)) for t in (torch.uint8, torch.long)), rtol=0, atol=0)


@only_triton
def test_a_label_that_does_not_exist_costs_no_number():
    belief = numbers(2, 1, 2)
    assert cost_and_gradients(KERNELS, belief, torch.tensor([[0], [3]], device=DEVICE))["cost"].isnan()


@only_triton
@pytest.mark.parametrize("axis", [None, 0])
@pytest.mark.parametrize("times", [1, 400])  # in one block of samples, and in several
def test_cost_of_labels_under_several_models(axis, times):
    inflow, unary = numbers(2, 3 * times, 1, 4).requires_grad_(), numbers(2, 1, 1, 4).requires_grad_()
    labels = torch.tensor([[[0], [4], [2]], [[1], [-1], [3]]], device=DEVICE).repeat(1, times, 1)
    labels = labels[0] if axis is None else labels
    with backend(KERNELS):
        mine = vmap(label_nll, (0, 0, axis))(inflow, unary, labels)
    each = [label_nll(inflow[i], unary[i], labels if axis is None else labels[i]) for i in range(2)]

    def found(cost):
        grads = torch.autograd.grad(cost @ numbers(2), [inflow, unary])
        return {"cost": cost, "gradient of inflow": grads[0], "gradient of unary": grads[1]}

    assert_same(found(mine), found(torch.stack(each)), **EXACT)


# What is asked of whom


def test_who_computes(monkeypatch):
    from torchlgm.ops import launch as fused

    calls = []
    real = fused.send
    monkeypatch.setattr(fused, "send", lambda *given, **how: calls.append(1) or real(*given, **how))
    graph = TINY["chain"]
    model, evidence = model_of(graph), evidence_for(graph, "soft", 1)

    def by_kernels(name):
        calls.clear()
        with backend(name), torch.no_grad():
            lgm.infer(model, evidence, lgm.lbp(1), want=("y",))
        return len(calls)

    assert by_kernels(KERNELS) == 2  # the evidence, and what h tells y
    assert by_kernels("eager") == 0
    assert by_kernels("auto") == (2 if DEVICE.type == "cuda" else 0)


@only_gpu
@pytest.mark.parametrize(
    ("name", "samples", "labels", "by_kernels"),
    [
        ("dense-large", 20, (2, 2), 1),
        ("dense-large", 128, (2, 2), 0),
        ("dense-large", 20, (17, 2), 0),
        ("dense-large", 20, (5, 5), 0),
        ("conv-2d-large", 128, (17, 2), 1),
    ],
)
def test_many_samples_or_labels_of_a_dense_layout_are_a_product_of_matrices(
    name, samples, labels, by_kernels, monkeypatch
):
    from torchlgm.ops import launch as fused

    calls = []
    real = fused.send
    monkeypatch.setattr(fused, "send", lambda *given, **how: calls.append(1) or real(*given, **how))
    layout = layout_of(*LARGE[name])
    kl, kr = (n - 1 for n in labels)
    table, q = numbers(*layout.table_shape, kl, kr), numbers(samples, layout.nodes[LEFT], kl)
    assert_close(linear(layout, table, q, LEFT, -2.0), -2.0 * layout.linear(table, q, LEFT), **EXACT)
    assert len(calls) == by_kernels


def test_other_dtypes_have_no_kernel():
    graph = TINY["chain"]
    model = model_of(graph).bfloat16()
    with backend(KERNELS), pytest.raises(InferenceError, match=r"float32 or float64, not torch.bfloat16"):
        lgm.infer(model, evidence_for(graph, "soft"))


def test_gradients_of_torch_func_have_no_kernel():
    model = Classifier(TINY["chain"])
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def loss(p):
        return functional_call(model, p, (evidence_for(TINY["chain"], "soft"),)).sum()

    with backend(KERNELS), pytest.raises(InferenceError, match=r"transforms in torch.func its kernels know only vmap"):
        grad(loss)(parameters)
    with backend("auto"):
        grad(loss)(parameters)


@cases(
    ("kind", "evidence", "method"),
    [
        ("chain", "missing", lgm.trw(2, "sequential", damping=0.3)),
        ("skip", "soft", lgm.lbp(2, "parallel", damping=0.5)),
    ],
    product(
        [*TINY, *LARGER],
        ("soft", "missing", "none"),
        (
            lgm.trw(3, "sequential", damping=0.3),
            lgm.lbp(3, "parallel", damping=0.5),
            lgm.lbp(2, damping=0.1, product="max"),
            lgm.lbp(6, "sequential", damping=0.2, gradient="checkpoint"),
            lgm.lbp(30, "parallel", damping=0.4, tolerance=1e-3),
        ),
    ),
)
def test_damping(kind, evidence, method):
    graph = (TINY | LARGER)[kind]
    summing = not method.rule.maximise
    assert_same_answers(model_of(graph), evidence_for(graph, evidence), method, edges=summing)
    want = (graph.layers[-1].name,)
    assert_same_answers(model_of(graph), evidence_for(graph, evidence), method, want=want)


def test_a_damped_start():
    graph = TINY["skip"]
    model, evidence = model_of(graph), evidence_for(graph, "soft")
    for first in (lgm.lbp(1, "parallel"), lgm.lbp(2, "parallel", damping=0.2)):
        with backend("eager"):
            found = lgm.infer(model, evidence, first).messages
        start = {hop: Message(m.edges.detach(), m.inflow.detach()) for hop, m in found.items()}
        assert_same_answers(model, evidence, lgm.lbp(2, "parallel", damping=0.3), start=start)


@pytest.mark.parametrize("damping", [0.0, 0.3])
def test_messages_are_kept_for_gradients_alone(damping, monkeypatch):
    graph, send, read, alive = TINY["chain"], fused.send, [], []

    def watched(launch, sent, *args, **how):
        alive.append(len({id(known()) for known in read} - {id(None)}))
        read.extend(ref(x) for x in (*sent.belief, sent.reverse) if x is not None)
        return send(launch, sent, *args, **how)

    def most_alive(iterations):
        read.clear()
        alive.clear()
        with backend(KERNELS):
            lgm.infer(model_of(graph), {}, lgm.lbp(iterations, "parallel", damping=damping), want=("y",))
        return max(alive)

    monkeypatch.setattr(fused, "send", watched)
    assert most_alive(8) > most_alive(4)
    with torch.no_grad():
        assert most_alive(8) == most_alive(4)


@only_triton
@pytest.mark.parametrize(
    ("batch", "width"), [(1, 1), (2, 2), (3, 4), (20, 20), (29, 32), (32, 32), (33, 64), (64, 64), (130, 192)]
)
def test_padded(batch, width):
    from torchlgm.ops.triton.launcher import blocks, padded

    assert padded(batch) == width
    assert blocks(width) == max(1, width // 64)
