"""Numbers that hold: huge energies, tiny rho, many labels, wide layers, pinned nodes, float32 and bfloat16 autocast."""

import copy
from itertools import pairwise

import pytest
import torch
from torch.testing import assert_close

import torchlgm as lgm
from torchlgm.mrf import PIN
from torchlgm.ops.compact import full, log_norm
from torchlgm.ops.eager import _log_sum_exp, _product_of_exponentials, spread_limit, sum_message

SCHEDULES = ("sequential", "parallel", "sweep")
FAMILIES = {
    "mean_field": lgm.mean_field,
    "lbp": lgm.lbp,
    "trw": lgm.trw,
    "max": lambda *args: lgm.lbp(*args, product="max"),
    "max-trw": lambda *args: lgm.trw(*args, product="max"),
}
WIDE = 10_000


def _chain(*layers):
    names = [layer.name for layer in layers]
    return lgm.Graph(layers, [lgm.Dense(a, b) for a, b in pairwise(names)])


GRAPHS = {
    "rho of 1/1000": _chain(lgm.Layer("a", 4), lgm.Layer("b", 3), lgm.Layer("c", 1000)),
    "rho of 1/1000, more labels": _chain(lgm.Layer("a", 4, 3), lgm.Layer("b", 3, 4), lgm.Layer("c", 1000, 3)),
    "300 labels": _chain(lgm.Layer("a", 5), lgm.Layer("b", 2, 300), lgm.Layer("c", 1, 300)),
    "wide to one node": _chain(lgm.Layer("a", 2), lgm.Layer("b", WIDE), lgm.Layer("c", 1)),
    "wide windows": lgm.Graph(
        (lgm.Layer("a", (1, WIDE)), lgm.Layer("b", (1, WIDE // 2 - 1)), lgm.Layer("c", 1, 3)),
        (lgm.Conv("a", "b", 4, 2), lgm.Dense("b", "c")),
    ),
}


def _model(graph, size):
    return lgm.LGM(graph, init=lgm.Init(table=size, unary=size))


def _evidence(graph, missing):
    """One sample of exact labels and one of soft values (of labels, if there are more than two)."""
    layer = graph.layers[0]
    if layer.labels == 2:
        x = torch.rand(2, *layer.sizes)
        x[0] = x[0].round()
    else:
        x = torch.randint(0, layer.labels, (2, *layer.sizes)).double()
    if missing:
        x.view(2, -1)[:, ::2] = torch.nan
    return x


def _answers(model, x, method):
    """Everything a user can ask for, and the gradients of all of it."""
    dtype = model.unary["a"].dtype
    beliefs = lgm.infer(model, {"a": x.to(dtype)}, method)
    out = {f"log_probs of {name}": beliefs[name].log_probs for name in ("b", "c")}
    out["probs of a"] = beliefs["a"].probs
    out |= {f"edges of {c.name}": beliefs.edges(c.name) for c in model.graph.connections}
    if getattr(method.rule, "maximise", False):
        out["energy"] = beliefs.map().energy
    else:
        out["log_z"] = beliefs.log_z
    loss = sum((value * torch.linspace(0, 1, value.shape[-1], dtype=dtype)).sum() for value in out.values())
    gradients = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    names = [name for name, _ in model.named_parameters()]
    out |= {f"gradient of {n}": g for n, g in zip(names, gradients, strict=True) if g is not None}
    return {name: value.detach() for name, value in out.items()}


def _in_both(model, x, method):
    return _answers(model, x, method), _answers(copy.deepcopy(model).float(), x, method)


def _gap(double, single):
    """The largest difference, relative to 1 + the largest number."""
    return float((double - single.double()).abs().max() / (1 + double.abs().max()))


@pytest.mark.pairs
@pytest.mark.parametrize("missing", [False, True], ids=["observed", "partly observed"])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_huge_energies(graph, family, schedule, missing):
    """Energies of 1e4, so E / rho of 1e7: finite in both precisions, log-odds agree relative to their scale."""
    model, x = _model(graph, 1e4), _evidence(graph, missing)
    double, single = _in_both(model, x, FAMILIES[family](3, schedule))
    for name in double:
        assert double[name].isfinite().all(), name
        assert single[name].isfinite().all(), name
        if name.startswith(("probs", "edges")):  # near a tie, a log-odds' rounding error is as large as itself
            total = single[name].sum(-1 if name.startswith("probs") else (-2, -1))
            assert_close(total, torch.ones_like(total))
        elif not name.startswith("gradient"):
            assert _gap(double[name], single[name]) < 1e-3, name


@pytest.mark.pairs
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_float32_is_close_to_float64(graph, family, schedule):
    """Energies as after training: answers and gradients agree, but where a maximum passes to another label."""
    model, x = _model(graph, 0.3), _evidence(graph, True)
    double, single = _in_both(model, x, FAMILIES[family](3, schedule))
    for name in double:
        if not (family.startswith("max") and name.startswith("gradient")):
            assert _gap(double[name], single[name]) < 1e-3, name


def test_log_probs_of_what_is_all_but_impossible_keep_their_gradient():
    model = _model(_chain(lgm.Layer("a", 2), lgm.Layer("b", 1)), 0.0).float()
    with torch.no_grad():
        model.table["a-b"].fill_(300.0)
    belief = lgm.infer(model, {"a": torch.ones(1, 2)})["b"]
    assert belief.probs[..., 1].item() == 0
    assert_close(belief.log_probs[..., 1], torch.full((1, 1), -600.0, dtype=torch.float32))
    belief.log_probs[..., 1].sum().backward()
    assert_close(model.table["a-b"].grad, -torch.ones(2, 1, 1, 1, dtype=torch.float32))


def _reference(t, c):
    """One message in float64 with no regard for speed."""
    t, c = t.double(), c.double()
    joint = full((t + c.unsqueeze(-1)).transpose(-1, -2)).logsumexp(-1)
    return joint - log_norm(c)


def _near_the_switch(dtype, factor):
    """Tables that span `factor` times the limit, some with nothing between the ends; cavities of every size."""
    limit = factor * spread_limit(dtype)
    smooth = (torch.rand(3, 4, 5) - 0.5) * limit
    ends = torch.where(torch.rand(3, 4, 5) < 0.5, -limit, 0.0)
    t = torch.stack([smooth, ends, -ends])
    c = torch.randn(6, 3, 3, 4) * torch.tensor([0.0, 1.0, limit, 10 * limit, 1e4, 0.0])[:, None, None, None]
    c[-1] = -PIN
    return t.to(dtype), c.to(dtype)


@pytest.mark.parametrize("factor", [0.1, 0.999, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_both_forms_of_a_message_agree_up_to_the_switch(dtype, factor):
    t, c = _near_the_switch(dtype, factor)
    scale = spread_limit(dtype)
    eps = 20 * torch.finfo(dtype).eps
    weight = torch.linspace(-1, 1, 6 * 3 * 3 * 5, dtype=dtype).reshape(6, 3, 3, 5)
    results = []
    for form in (_reference, _log_sum_exp, _product_of_exponentials):
        inputs = [x.clone().requires_grad_() for x in (t, c)]
        message = form(*inputs)
        results.append((message.detach(), *torch.autograd.grad((message * weight).sum(), inputs)))
    expected, *others = results
    for message, to_t, to_c in others:
        sized = scale + torch.where(c > -PIN, c, 0).abs().amax(-1, keepdim=True)  # a pinned node says exactly 0
        assert ((message - expected[0]).abs() / sized).max() < eps
        assert_close(to_t, expected[1], rtol=1e-4 if dtype == torch.float32 else 1e-11, atol=1e-30)
        assert_close(to_c, expected[2], rtol=1e-4 if dtype == torch.float32 else 1e-11, atol=scale * eps)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_beyond_the_switch_products_of_exponentials_would_fail(dtype):
    """So the switch is needed, and `sum_message` obeys it."""
    t = torch.tensor([[[0.0], [-4 * spread_limit(dtype)]]], dtype=dtype)
    c = torch.tensor([[[-10 * spread_limit(dtype), 1e4]]], dtype=dtype)
    assert not _product_of_exponentials(t, c).isfinite().all()
    assert_close(sum_message(t, c, None).double(), _reference(t, c), rtol=1e-5, atol=1e-5)


def test_windows_that_share_tables_of_more_than_two_labels():
    """A shared table broadcasts over positions in both forms of a message."""
    layers = (lgm.Layer("a", (2, 9), 3), lgm.Layer("b", (3, 7), 4))
    shared = lgm.LGM(lgm.Graph(layers, (lgm.Conv("a", "b", 3),)))
    apart = lgm.LGM(lgm.Graph(layers, (lgm.Local("a", "b", 3),)))
    with torch.no_grad():
        for name, unary in shared.unary.items():
            apart.unary[name].copy_(unary.normal_())
        apart.table["a-b"].copy_(shared.table["a-b"].unsqueeze(3).expand_as(apart.table["a-b"]))
    for size in (1.0, 2 * spread_limit(torch.float64)):
        with torch.no_grad():
            shared.table["a-b"].mul_(size)
            apart.table["a-b"].mul_(size)
        mine, theirs = lgm.infer(shared), lgm.infer(apart)
        assert_close(mine["b"].log_probs, theirs["b"].log_probs)
        assert_close(mine.log_z, theirs.log_z)


@pytest.mark.parametrize("kind", ["conv", "local", "dense"])
@pytest.mark.parametrize("method", [*(f(2) for f in FAMILIES.values()), lgm.exact()], ids=[*FAMILIES, "exact"])
def test_autocast_changes_nothing(kind, method):
    layers = (lgm.Layer("a", (1, 5)), lgm.Layer("b", (2, 3), 3), lgm.Layer("c", 1, 3))
    first = lgm.Dense("a", "b") if kind == "dense" else (lgm.Conv if kind == "conv" else lgm.Local)("a", "b", 3)
    model = lgm.LGM(lgm.Graph(layers, (first, lgm.Dense("b", "c"))), init="paper").float()
    x = torch.rand(3, 1, 5)
    maximise = not isinstance(method, lgm.Exact) and getattr(method.rule, "maximise", False)

    def answers():
        beliefs = lgm.infer(model, {"a": x}, method)
        return [beliefs["c"].log_probs, beliefs.edges("b-c"), beliefs.map().energy if maximise else beliefs.log_z]

    def gradients(out):
        return torch.autograd.grad(out[0][:, 0, 1].sum(), [model.table["b-c"], model.unary["b"]])

    plain = answers()
    with torch.autocast("cpu", torch.bfloat16):
        mixed = answers()
    for a, b in zip((*plain, *gradients(plain)), (*mixed, *gradients(mixed)), strict=True):
        assert b.dtype == torch.float32
        assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_autocast_changes_no_enumeration_and_no_sample():
    model = _model(_chain(lgm.Layer("a", 3), lgm.Layer("b", 2, 3)), 1.0).float()

    def answers():
        beliefs = lgm.infer(model, {}, lgm.exact("enumeration"))
        drawn = lgm.sample(model, {}, sweeps=20, generator=torch.Generator().manual_seed(0))
        return beliefs["b"].probs, beliefs.log_z, drawn["b"]

    plain = answers()
    with torch.autocast("cpu", torch.bfloat16):
        mixed = answers()
    assert all(torch.equal(a, b) for a, b in zip(plain, mixed, strict=True))
