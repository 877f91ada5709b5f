"""Fused kernels against plain PyTorch: one message with its sum at the nodes, linear ones, and all their gradients."""

from itertools import product

import pytest
import torch
from torch.autograd import gradcheck
from torch.testing import assert_close

import torchlgm as lgm
from helpers.kernel_cases import (
    DEVICE,
    EXACT,
    INTERPRETED,
    KERNELS,
    LARGE,
    LAYOUTS,
    MARK,
    MAX,
    MAX_TRW,
    SMALL,
    SUM,
    TRW,
    UNDIVIDED,
    assert_same,
    cases,
    layout_of,
    numbers,
    only_gpu,
    only_triton,
    watch_launches,
)
from torchlgm import Dense, Sparse
from torchlgm.inference.engine import Engine
from torchlgm.inference.plan import MakeBelief, MakeMessage, Plan
from torchlgm.inference.rules import Message
from torchlgm.inference.schedule import Hop
from torchlgm.layout import LEFT, RIGHT
from torchlgm.mrf import MRF, PIN, Link
from torchlgm.ops.backend import backend
from torchlgm.ops.linear import linear

pytestmark = MARK


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
        assert (engine.backend is not None) == (name == KERNELS)
        return engine.execute(plan, inputs).messages[at + 1]


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
    calls = []
    watch_launches(monkeypatch, "send", lambda *given: calls.append(1))
    layout = layout_of(*LARGE[name])
    kl, kr = (n - 1 for n in labels)
    table, q = numbers(*layout.table_shape, kl, kr), numbers(samples, layout.nodes[LEFT], kl)
    assert_close(linear(layout, table, q, LEFT, -2.0), -2.0 * layout.linear(table, q, LEFT), **EXACT)
    assert len(calls) == by_kernels


@only_triton
@pytest.mark.parametrize(
    ("batch", "width"), [(1, 1), (2, 2), (3, 4), (20, 20), (29, 32), (32, 32), (33, 64), (64, 64), (130, 192)]
)
def test_padded(batch, width):
    from torchlgm.ops.triton.launcher import blocks, padded

    assert padded(batch) == width
    assert blocks(width) == max(1, width // 64)
