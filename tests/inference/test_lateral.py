"""Edges inside a layer: chains against forward and backward passes, and layers split by colour, which say the same."""

from itertools import pairwise

import pytest
import torch
from torch.testing import assert_close

import torchlgm as lgm
from helpers import problems
from helpers.problems import BY_NAME, Case, by_case
from torchlgm.errors import InferenceError
from torchlgm.inference.schedule import Events, Hop, Send, Update, Wiring, sweep

LATERAL = [case for case in problems.CASES if any(c.is_lateral for c in case.problem.graph.connections)]
CHAIN = 6  # nodes


def chain(labels=3, seed=0):
    """A chain with a table for each pair of neighbours, and its factors with all labels."""
    graph = lgm.Graph([lgm.Layer("t", (1, CHAIN), labels)], [lgm.Local("t", "t", 3)])
    model = lgm.LGM(graph, "paper", generator=torch.Generator().manual_seed(seed)).requires_grad_(False)
    nodes = torch.nn.functional.pad(-model.unary["t"], (1, 0))
    pairs = torch.nn.functional.pad(-model.energies("t-t")[0], (1, 0, 1, 0))
    return model, nodes.unbind(), pairs.unbind()[:-1]


def passes(nodes, pairs, reduce):
    """What reaches each node from the left, itself included, and from the right."""
    forward, backward = [nodes[0]], [torch.zeros_like(nodes[0])]
    for node, pair in zip(nodes[1:], pairs, strict=True):
        forward.append(node + reduce(forward[-1][:, None] + pair, 0))
    for node, pair in zip(nodes[:0:-1], pairs[::-1], strict=True):
        backward.insert(0, reduce(pair + node + backward[0], 1))
    return forward, backward


@pytest.mark.parametrize("labels", [2, 3])
@pytest.mark.parametrize("method", [lgm.lbp, lgm.trw])
@pytest.mark.parametrize(("schedule", "iterations"), [("parallel", CHAIN), ("sweep", CHAIN // 2 + 1)])
def test_a_chain_is_solved_as_by_forward_and_backward_passes(labels, method, schedule, iterations):
    model, nodes, pairs = chain(labels)
    forward, backward = passes(nodes, pairs, lambda x, axis: x.logsumexp(axis))
    for how in (method(iterations, schedule), lgm.exact()):
        beliefs = lgm.infer(model, {}, how)
        assert_close(beliefs["t"].probs[0, 0], torch.softmax(torch.stack(forward) + torch.stack(backward), -1))
        assert_close(beliefs.log_z, forward[-1].logsumexp(0, keepdim=True))
        for at, pair in enumerate(pairs):
            joint = forward[at][:, None] + pair + nodes[at + 1] + backward[at + 1]
            assert_close(beliefs.edges("t-t")[0, 0, at], joint.flatten().softmax(0).view_as(joint))
        assert beliefs.edges("t-t")[0, 0, CHAIN - 1].eq(0).all()


def test_the_most_probable_labels_of_a_chain_are_viterbis():
    model, nodes, pairs = chain()
    forward, backward = passes(nodes, pairs, lambda x, axis: x.amax(axis))
    best = (torch.stack(forward) + torch.stack(backward)).argmax(-1)
    for how in (lgm.lbp(CHAIN, product="max"), lgm.exact()):
        found = lgm.infer(model, {}, how).map()
        assert torch.equal(found.labels["t"][0, 0], best)
        assert_close(found.energy, -forward[-1].amax(0, keepdim=True))


def split(model):
    """A grid of two labels in a layer as two layers, of either colour, with the same energies."""
    colours = model.condition().colours["x"]
    assert len(colours) == 2
    number = {int(node): (name, i) for name, mask in zip("ab", colours, strict=True)
              for i, node in enumerate(mask.nonzero())}  # fmt: skip
    edges, energies = [], []
    for c in model.graph.connections:
        for edge in c.list_edges(*model.graph.ends(c)):
            ends, table = [number[edge.left], number[edge.right]], model.energies(c.name)[edge.table]
            edges.append(tuple(i for _, i in sorted(ends)))
            energies.append(table if ends[0][0] == "a" else table.T)
    layers = [lgm.Layer(name, int(mask.sum()), 3) for name, mask in zip("ab", colours, strict=True)]
    other = lgm.LGM(lgm.Graph(layers, [lgm.Sparse("a", "b", tuple(edges))]), "zero").requires_grad_(False)
    other.table["a-b"].copy_(torch.stack(energies))
    for name, mask in zip("ab", colours, strict=True):
        other.unary[name].copy_(model.unary["x"][mask])
    return other, colours


def grid(seed=0):
    layers = [lgm.Layer("x", (1, 3, 4), 3)]
    connections = [lgm.Local("x", "x", (1, 3), name="across"), lgm.Conv("x", "x", (3, 1), name="down")]
    generator = torch.Generator().manual_seed(seed)
    return lgm.LGM(lgm.Graph(layers, connections), "paper", generator=generator).requires_grad_(False)


@pytest.mark.parametrize("schedule", ["parallel", "sequential", "sweep"])
@pytest.mark.parametrize("method", [lgm.lbp, lgm.mean_field, lambda *a: lgm.lbp(*a, product="max", damping=0.2)])
def test_a_grid_is_what_its_two_colours_as_layers_are(method, schedule):
    model = grid()
    other, colours = split(model)
    seen = torch.rand(3, 1, 3, 4, 3, generator=torch.Generator().manual_seed(1))
    seen = seen / seen.sum(-1, keepdim=True)
    seen[torch.rand(3, 1, 3, 4, generator=torch.Generator().manual_seed(2)) < 0.6] = torch.nan
    for iterations in (1, 2, 3):
        ours = lgm.infer(model, {"x": seen}, method(iterations, schedule))
        theirs = {name: seen.flatten(1, 3)[:, mask] for name, mask in zip("ab", colours, strict=True)}
        theirs = lgm.infer(other, theirs, method(iterations, schedule))
        for name, mask in zip("ab", colours, strict=True):
            assert_close(ours["x"].probs.flatten(1, 3)[:, mask], theirs[name].probs)


@pytest.mark.parametrize("schedule", ["sequential", "sweep"])
def test_the_mean_field_bound_never_falls(schedule):
    """Four colours and strong energies: nodes with an edge between them never change at once."""
    layers = [lgm.Layer("x", (1, 3, 3)), lgm.Layer("h", 3, 3)]
    graph = lgm.Graph(layers, [lgm.Conv("x", "x", 3), lgm.Dense("x", "h"), lgm.Dense("h", "h")])
    fell = 0
    for seed in range(5):
        model = lgm.LGM(graph, lgm.Init(table=4.0, unary=1.0), generator=torch.Generator().manual_seed(seed))
        values = [lgm.infer(model, {}, lgm.mean_field(t, schedule)).log_z for t in range(1, 12)]
        assert all(b >= a - 1e-9 for a, b in pairwise(values))
        assert values[-1] <= lgm.infer(model, {}, lgm.exact()).log_z
        parallel = [lgm.infer(model, {}, lgm.mean_field(t, "parallel")).log_z for t in range(1, 12)]
        fell += any(b < a - 1e-3 for a, b in pairwise(parallel))
    assert fell


def test_messages_start_where_they_are_set():
    """An edge whose left end has the higher colour starts with its ends exchanged."""
    start = torch.tensor([[0.3, -0.2]]), torch.tensor([[1.1, 0.4]])
    one = lgm.LGM(lgm.Graph([lgm.Layer("a", 2, 3)], [lgm.Sparse("a", "a", ((1, 0),))]), "paper")
    two = lgm.LGM(lgm.Graph([lgm.Layer("p", 1, 3), lgm.Layer("q", 1, 3)], [lgm.Dense("p", "q")]), "paper")
    with torch.no_grad():
        two.table["p-q"].copy_(one.table["a-a"].view(1, 1, 2, 2))
        two.unary["p"].copy_(one.unary["a"][1:])
        two.unary["q"].copy_(one.unary["a"][:1])
    one.set_start("a-a", *start)
    two.set_start("p-q", *[x.view(1, 1, 2) for x in start])
    assert not torch.equal(one.condition().links[0].table, one.table["a-a"])  # it is turned
    beliefs, expected = (lgm.infer(m, {}, lgm.lbp(1, "parallel", damping=0.5)) for m in (one, two))
    assert_close(beliefs["a"].probs[0], torch.cat([expected["q"].probs[0], expected["p"].probs[0]]))


@pytest.mark.parametrize("mode", ["checkpoint", "implicit"])
@pytest.mark.parametrize("method", [lgm.lbp, lgm.trw, lgm.mean_field])
def test_every_way_to_a_gradient_gives_the_same(method, mode):
    case = Case(BY_NAME["grid"], "missing")
    model, grads = case.model, []
    for gradient in ("unroll", mode):
        how = method(300, "sweep", damping=0.3, tolerance=1e-12, gradient=gradient)
        loss = lgm.infer(model, case.evidence, how)["c"].log_probs[..., 0].sum()
        grads.append(torch.autograd.grad(loss, list(model.parameters())))
    assert_close(*grads, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(**by_case([case for case in LATERAL if case.kind in ("none", "missing")]))
def test_an_answer_can_be_gone_on_from(case):
    for how in (lgm.lbp, lgm.mean_field):
        once, long = (lgm.infer(case.model, case.evidence, how(t, "sweep")) for t in (2, 5))
        more = lgm.infer(case.model, case.evidence, how(3, "sweep"), start=once.messages)
        for name in more:
            assert_close(more[name].probs, long[name].probs)


def test_messages_go_up_the_colours_and_down():
    up, down, out, back = Hop(0, 0, "a", "a"), Hop(0, 1, "a", "a"), Hop(1, 0, "a", "b"), Hop(1, 1, "b", "a")
    wiring = Wiring(("a", "b"), (up, down, out, back), (("a", 2),))
    forward = Update("a"), Send((up,)), Update("a"), Send((out,))
    events = *forward, Update("b"), Send((back,)), Update("a"), Send((down,))
    assert sweep(wiring) == Events(events, events)
    assert wiring.colours_of("a") == range(2)
    assert wiring.colours_of("b") == (None,)


def test_colours_that_cannot_be_sent_to():
    model = grid()
    wrong = {
        r"expected colours from wiring.colours_of": lambda w: Events((Update("x"), Send(w.hops, 2)), ()),
        "messages that are kept on edges are sent to all nodes": lambda w: Events((Update("x"), Send(w.hops, 0)), ()),
    }
    for message, schedule in wrong.items():
        with pytest.raises(InferenceError, match=message):
            lgm.infer(model, {}, lgm.lbp(1, schedule))
