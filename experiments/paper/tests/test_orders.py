"""The star of table 3 by formulas of its own, beside the library's schedules: neither can be wrong alone."""

import pytest
import torch
from experiments.paper.ablations.history import Epoch
from experiments.paper.ablations.orders import PUBLISHED, figures, orders_shown, orders_summary
from experiments.paper.ablations.star import (
    INPUTS_FIRST,
    ORDERS,
    OUTPUT_FIRST,
    Energies,
    Order,
    analytic_gradient,
    infer,
    nll,
    start,
)
from torch.testing import assert_close

import torchlgm as lgm
from torchlgm import learn
from torchlgm.inference.schedule import Events, Send, Update

PIXELS, HIDDEN, CLASSES = 6, 4, 3


def output_first(wiring):
    """As the paper's sequential schedule, but layer by layer from the output to the inputs."""
    sends = tuple(Send((hop,)) for layer in wiring.layers[::-1] for hop in wiring.out_of(layer))
    first = tuple(Update(layer, evidence=False) for layer in wiring.layers)
    return Events(first + sends, tuple(Update(layer) for layer in wiring.layers) + sends)


SCHEDULES = dict(zip(ORDERS, ("sequential", output_first), strict=True))


@pytest.fixture
def star():
    """A model, the same energies for the formulas, inputs and classes."""
    model = lgm.LGM(
        lgm.zoo.dense(PIXELS, (HIDDEN,), CLASSES), "paper", generator=torch.Generator().manual_seed(3)
    ).double()
    names = [connection.name for connection in model.graph.connections]
    (hidden, output), (inward, outward) = list(model.unary)[1:], [model.energies(name).detach() for name in names]
    energies = Energies(
        model.unary[hidden].detach().reshape(1, HIDDEN),
        model.unary[output].detach().reshape(1, 1, CLASSES - 1),
        inward.reshape(1, PIXELS, HIDDEN),
        outward.reshape(1, HIDDEN, CLASSES - 1),
    )
    draw = torch.Generator().manual_seed(4)
    x = (torch.rand(5, PIXELS, generator=draw) < 0.5).double()
    return model, energies, x, torch.randint(CLASSES, (5,), generator=draw)


@pytest.mark.parametrize("iterations", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("name", ORDERS)
def test_the_schedules_give_what_the_formulas_give(star, name, iterations):
    model, energies, x, _ = star
    beliefs = lgm.infer(model, {model.graph.layers[0].name: x}, lgm.lbp(iterations, SCHEDULES[name]))
    expected = infer(energies, x[None], Order(name, iterations))
    assert_close(beliefs[model.graph.root].probs[:, 0], expected.output[0].softmax(-1))
    hidden = model.graph.layers[1].name
    assert_close(beliefs[hidden].probs[..., 1].flatten(1), expected.hidden[0].sigmoid())


@pytest.mark.parametrize("iterations", [2, 3, 6])
@pytest.mark.parametrize("name", ORDERS)
def test_so_are_the_analytic_gradients(star, name, iterations):
    model, energies, x, y = star
    posterior = lgm.Posterior(model, lgm.lbp(iterations, SCHEDULES[name])).for_complete_inputs()
    loss = learn.MomentMatching().loss(posterior, x, y)
    inward, outward = torch.autograd.grad(loss, [p for n, p in model.named_parameters() if "unary" not in n])
    value, expected = analytic_gradient(energies, x[None], y[None], Order(name, iterations))
    assert_close(loss.detach(), value[0])
    assert_close(inward.flatten(), expected.inward.flatten())
    assert_close(outward.flatten(), expected.outward.flatten())


def test_inputs_first_settles_at_once_and_output_first_does_not():
    """At the size of the paper, from its start."""
    energies = Energies(*(part.double() for part in start([0], 784)))
    x = (torch.rand(1, 20, 784, generator=torch.Generator().manual_seed(0)) < 0.13).double()  # as dark as digits
    settled = infer(energies, x, Order(ORDERS[0], 50)).hidden.sigmoid()
    assert_close(infer(energies, x, Order(ORDERS[0], 3)).hidden.sigmoid(), settled)
    for iterations in (5, 20, 50):
        swinging = infer(energies, x, Order(ORDERS[1], iterations)).hidden.sigmoid()
        assert (swinging - settled).abs().max() > 0.3


@pytest.mark.parametrize("hidden", range(4))
def test_output_first_keeps_the_triangle_of_table_1(hidden):
    """Evidence advances one connection per iteration in this order too."""
    graph = lgm.zoo.dense(3, (2,) * hidden, 2)
    model = lgm.LGM(graph, "paper", generator=torch.Generator().manual_seed(0)).double()
    x = torch.tensor([[0, 1, 0], [1, 0, 1]])
    for iterations in range(1, 6):
        probs = lgm.infer(model, {graph.layers[0].name: x}, lgm.lbp(iterations, output_first))[graph.root].probs
        assert torch.equal(probs[0], probs[1]) == (iterations < hidden + 1)


@pytest.mark.parametrize("name", ORDERS)
def test_without_a_last_belief_evidence_advances_as_slowly_and_what_settles_is_the_same(star, name):
    _, energies, x, _ = star
    first = infer(energies, x[None], Order(name, 1, last_belief=False)).output
    assert_close(first, first[:, :1].expand_as(first))
    second = infer(energies, x[None], Order(name, 2, last_belief=False)).output
    assert (second - second[:, :1]).abs().max() > 0.01
    if name == INPUTS_FIRST:
        settled, exact = (infer(energies, x[None], Order(name, t, last)) for t, last in ((4, False), (3, True)))
        assert_close(settled.hidden, exact.hidden)
        assert_close(settled.output.log_softmax(-1), exact.output.log_softmax(-1))


def test_backpropagation_is_that_of_the_likelihood(star):
    _, energies, x, y = star
    leaves = Energies(*(part.clone().requires_grad_() for part in energies))
    nll(leaves, x[None], y[None], Order(ORDERS[0], 3)).sum().backward()
    exact = analytic_gradient(energies, x[None], y[None], Order(ORDERS[0], 3))[1]
    for leaf, expected in zip(leaves, exact, strict=True):
        assert_close(leaf.grad, expected)


def test_trainings_by_order_are_rows_of_an_ablation(paper):
    code, _, log = paper("ablate", "orders", "--quick", "--seeds", "2")
    assert code == 0
    assert "done" in log
    histories = [[Epoch(1.0, 0.5), Epoch(0.5, 0.775), Epoch(0.4, accuracy)] for accuracy in (0.84, 0.86)]
    order = {"order": OUTPUT_FIRST, "last belief": True, "seeds": 2} | figures(histories, 5)
    rows = [order | {"gradient": kind, "T": t} for kind in PUBLISHED for t in (2, 5)]
    paper, ended, second, *_ = orders_shown(rows)
    assert [paper["T=2"], ended["T=2"], second["T=2"]] == ["0.770", "0.850 ± 0.014 (2)", "0.775"]
    assert ended["T=8"] == ""
    summary = orders_summary(rows)
    assert "are 0 of 2 at the end with output first, with a last belief; 1 of 2 after two epochs with" in summary
