"""Schedules, against the same inference written once more: probabilities, loops over nodes and labels, no tensors.

What is written down here follows the mathematics: messages start at 1 (0 in the log domain), an observed node sends
messages like any other, so its neighbours know it from their second belief on; only `sweep` knows evidence at once.
"""

import math
from itertools import pairwise
from typing import NamedTuple

import pytest
import torch
from torch.testing import assert_close

import torchlgm as lgm
from helpers import problems
from helpers.problems import BY_NAME, Case, Node, Spelled, by_case
from torchlgm.inference.schedule import Events, Hop, Send, Update, Wiring, parallel, sequential, sweep
from torchlgm.layout import colour

MOST = 4  # iterations


class Arc(NamedTuple):
    """An edge in one direction, `table[x source][x target]`. The arc back has the number `at ^ 1`."""

    at: int
    source: Node
    target: Node
    table: list[list[float]]
    rho: float


def arcs_of(spelled: Spelled) -> list[Arc]:
    arcs = []
    for edge in spelled.edges:
        turned = [list(column) for column in zip(*edge.table, strict=True)]
        arcs.append(Arc(len(arcs), edge.left, edge.right, edge.table, edge.rho))
        arcs.append(Arc(len(arcs), edge.right, edge.left, turned, edge.rho))
    return arcs


def colours_of(spelled: Spelled) -> dict[Node, int]:
    """Of the nodes of each layer: no edge joins two of one layer and colour."""
    inside = [(edge.left, edge.right) for edge in spelled.edges if edge.left[0] == edge.right[0]]
    colours = colour(spelled.unary, inside)
    assert all(colours[a] != colours[b] for a, b in inside)
    return colours


def normalised(weights):
    return [w / sum(weights) for w in weights]


class Messages:
    """Belief propagation, reweighted or not, with `add` the sum or the maximum."""

    def __init__(self, spelled, add=sum, reweighted=False, damping=0.0):
        self.spelled, self.add, self.damping = spelled, add, damping
        self.arcs = [arc if reweighted else arc._replace(rho=1.0) for arc in arcs_of(spelled)]
        self.message = [[1.0] * len(arc.table[0]) for arc in self.arcs]
        self.known: dict[Node, list[float]] = {}
        self.colours = colours_of(spelled)

    def inside(self, layer, up):
        """The arcs inside a layer from lower to higher colours, or back."""
        inside = [arc for arc in self.arcs if arc.source[0] == arc.target[0] == layer]
        return [arc for arc in inside if (self.colours[arc.source] < self.colours[arc.target]) == up]

    def believe(self, layers):
        for node in self.spelled.free:
            if node[0] in layers:
                self.known[node] = self.belief(node)

    def belief(self, node):
        weights = [math.exp(-e) for e in self.spelled.unary[node]]
        for arc, message in zip(self.arcs, self.message, strict=True):
            if arc.target == node:
                weights = [w * m**arc.rho for w, m in zip(weights, message, strict=True)]
        return normalised(weights)

    def new(self, arc):
        labels = range(len(arc.table[0]))
        if arc.source in self.spelled.seen:
            q = self.spelled.seen[arc.source]
            return [math.exp(-sum(p * row[x] for p, row in zip(q, arc.table, strict=True)) / arc.rho) for x in labels]
        cavity = [b / m for b, m in zip(self.known[arc.source], self.message[arc.at ^ 1], strict=True)]
        terms = [[c * math.exp(-e / arc.rho) for e in row] for c, row in zip(cavity, arc.table, strict=True)]
        message = [self.add(row[x] for row in terms) for x in labels]
        old, keep = self.message[arc.at], self.damping
        return [(m / message[0]) ** (1 - keep) * (o / old[0]) ** keep for m, o in zip(message, old, strict=True)]

    def send(self, arcs):
        new = {arc.at: self.new(arc) for arc in arcs}
        for at, message in new.items():
            self.message[at] = message

    def parallel(self):
        self.believe(self.spelled.layers)
        self.send(self.arcs)

    def sequential(self):
        self.believe(self.spelled.layers)
        for layer in self.spelled.layers:
            back = self.inside(layer, up=False)
            self.send([arc for arc in self.arcs if arc.source[0] == layer and arc not in back])
            self.send(back)

    def sweep(self):
        self.send([arc for arc in self.arcs if arc.source in self.spelled.seen])
        order = list(self.spelled.layers)
        for way in (order, order[::-1]):
            for at, layer in enumerate(way):
                self.believe([layer])
                self.send(self.inside(layer, up=way is order))
                self.believe([layer])
                self.send([arc for arc in self.arcs if arc.source[0] == layer and arc.target[0] in way[at + 1 :]])

    def answer(self):
        return {node: self.belief(node) for node in self.spelled.free}


class Means:
    """Mean field: the state is the beliefs; `pull` is what each arc brings, minus the expected energy."""

    def __init__(self, spelled, damping=0.0):
        self.spelled, self.damping, self.arcs = spelled, damping, arcs_of(spelled)
        self.pull = [[0.0] * len(arc.table[0]) for arc in self.arcs]
        self.known = dict(spelled.seen)
        self.started = False
        self.colours = colours_of(spelled)
        self.believe(spelled.layers)

    def believe(self, layers, number=None):
        for node in self.spelled.free:
            if node[0] in layers and number in (None, self.colours[node]):
                into = [self.pull[arc.at] for arc in self.arcs if arc.target == node]
                energies = enumerate(self.spelled.unary[node])
                self.known[node] = normalised([math.exp(-e + sum(pull[x] for pull in into)) for x, e in energies])

    def listen(self, arcs):
        for arc in arcs:
            q, labels = self.known[arc.source], range(len(arc.table[0]))
            new = [-sum(p * row[x] for p, row in zip(q, arc.table, strict=True)) for x in labels]
            keep = 0.0 if arc.source in self.spelled.seen else self.damping
            self.pull[arc.at] = [(1 - keep) * n + keep * o for n, o in zip(new, self.pull[arc.at], strict=True)]

    def parallel(self):
        self.listen(self.arcs)
        self.believe(self.spelled.layers)

    def sequential(self):
        self._visit()

    def _visit(self, back=False):
        parts = {(self.spelled.layers.index(node[0]), c): node[0] for node, c in self.colours.items()}
        for (_, number), layer in sorted(parts.items(), reverse=back):
            part = [node for node, c in self.colours.items() if node[0] == layer and c == number]
            self.listen([arc for arc in self.arcs if arc.target in part])
            self.believe([layer], number)

    def sweep(self):
        if not self.started:
            self.listen([arc for arc in self.arcs if arc.source in self.spelled.seen])
            self.believe(self.spelled.layers)
            self.started = True
        self._visit()
        self._visit(back=True)

    def answer(self):
        return {node: self.known[node] for node in self.spelled.free}


REFERENCES = {
    "lbp": (lgm.lbp, {}, Messages, {}),
    "trw": (lgm.trw, {}, Messages, {"reweighted": True}),
    "max": (lgm.lbp, {"product": "max"}, Messages, {"add": max}),
    "max-trw": (lgm.trw, {"product": "max"}, Messages, {"add": max, "reweighted": True}),
    "mean-field": (lgm.mean_field, {}, Means, {}),
}
SCHEDULES = ("parallel", "sequential", "sweep")
DIFFICULT = [case for case in problems.LOOPY if case.kind in ("soft", "missing") or case.problem.name == "chain"]
DIFFICULT += problems.DOUBLE + [Case(BY_NAME[name], "missing") for name in ("tree", "fan", "local-tree", "tagger")]


def expected_answers(case, schedule, reference, **options):
    """Beliefs of the free nodes after 1 .. MOST iterations, per sample."""
    answers = []
    for spelled in case.spelled:
        state = reference(spelled, **options)
        answers.append([])
        for _ in range(MOST):
            getattr(state, schedule)()
            answers[-1].append(state.answer())
    return answers


def compare(case, name, schedule, **common):
    method, options, reference, reference_options = REFERENCES[name]
    answers = expected_answers(case, schedule, reference, **reference_options, **common)
    model, evidence = case.model, case.evidence
    for iterations in range(1, MOST + 1):
        beliefs = lgm.infer(model, evidence, method(iterations, schedule, **options, **common))
        for sample, answer in enumerate(answers):
            for (layer, i), probs in answer[iterations - 1].items():
                mine = beliefs[layer].probs[sample].flatten(0, -2)[i]
                message = f"T={iterations}, sample {sample}, node {i} of {layer}: {mine.tolist()} instead of {probs}"
                assert_close(mine, torch.tensor(probs), rtol=0, atol=1e-11, msg=message)


@pytest.mark.pairs
@pytest.mark.parametrize(**by_case(DIFFICULT))
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", REFERENCES)
def test_plain_loops_say_the_same(case, schedule, name):
    compare(case, name, schedule)


@pytest.mark.pairs
@pytest.mark.parametrize(**by_case([Case(BY_NAME[name], "missing") for name in ("chain", "clique", "grid")]))
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", REFERENCES)
def test_plain_loops_say_the_same_with_damping(case, schedule, name):
    compare(case, name, schedule, damping=0.3)


@pytest.mark.pairs
@pytest.mark.parametrize("problem", ["chain", "clique"])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", REFERENCES)
def test_a_hole_in_one_sample_says_nothing_about_another(name, schedule, problem):
    """Whichever layer it is in: with a hole it stays as a whole, without it disappears."""
    method, options, *_ = REFERENCES[name]
    model = problems.model_of(BY_NAME[problem])
    for layer in model.graph.layers:
        seen = torch.nn.functional.one_hot(torch.zeros(2, *layer.sizes, dtype=torch.long), layer.labels).double()
        holed = seen.clone()
        holed[1, 0] = torch.nan
        for damping in (0.0, 0.5):
            how = method(3, schedule, damping=damping, **options)
            plain, beside = (lgm.infer(model, {layer.name: x}, how) for x in (seen, holed))
            for other in plain:
                assert_close(beside[other].probs[0], plain[other].probs[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", REFERENCES)
def test_schedules_differ(name):
    """Otherwise the tests above would not see a schedule taken for another."""
    case = Case(BY_NAME["clique"], "missing")
    method, options, *_ = REFERENCES[name]
    answers = [lgm.infer(case.model, case.evidence, method(3, s, **options)) for s in SCHEDULES]
    probs = [torch.cat([b.probs.flatten() for b in answer.values()]) for answer in answers]
    assert all((a - b).abs().max() > 1e-6 for a, b in pairwise([*probs, probs[0]]))


def deep(hidden):
    """The paper's sequential model in small: input, hidden layers of two nodes, one output node."""
    names = ["v", *[f"h{i}" for i in range(hidden)], "c"]
    sizes = [2] * (hidden + 1) + [1]
    layers = [lgm.Layer(n, s, 3 if n == "c" else 2) for n, s in zip(names, sizes, strict=True)]
    return lgm.LGM(lgm.Graph(layers, [lgm.Dense(a, b) for a, b in pairwise(names)]), init="paper")


def is_informed(model, layer, method):
    """Whether the belief of a layer depends on the input."""
    probs = lgm.infer(model, {"v": torch.tensor([[0, 1], [1, 0]])}, method)[layer].probs
    return not torch.equal(probs[0], probs[1])


@pytest.mark.pairs
@pytest.mark.parametrize("hidden", range(5))
@pytest.mark.parametrize("schedule", ["parallel", "sequential"])
@pytest.mark.parametrize("method", [lgm.lbp, lgm.trw, lgm.mean_field])
def test_evidence_advances_one_connection_per_iteration(method, schedule, hidden):
    """The failures of the paper's Table 1; sequential mean field alone goes all the way at once."""
    model = deep(hidden)
    for iterations in range(1, 7):
        at_once = method is lgm.mean_field and schedule == "sequential"
        assert is_informed(model, "c", method(iterations, schedule)) == (at_once or iterations >= hidden + 1)


@pytest.mark.parametrize("hidden", range(5))
@pytest.mark.parametrize("method", [lgm.lbp, lgm.trw, lgm.mean_field])
def test_one_sweep_goes_all_the_way(method, hidden):
    assert is_informed(deep(hidden), "c", method(1, "sweep"))


WIRING = Wiring(("b", "a"), (Hop(0, 0, "b", "a"), Hop(0, 1, "a", "b")))


def test_events_of_two_layers():
    out, back = WIRING.hops
    blind = (Update("b", evidence=False), Update("a", evidence=False))
    knowing = (Update("b"), Update("a"))
    assert parallel(WIRING) == Events((*blind, Send((out, back))), (*knowing, Send((out, back))))
    assert sequential(WIRING) == Events((*blind, Send((out,)), Send((back,))), (*knowing, Send((out,)), Send((back,))))
    once = (Update("b"), Send((out,)), Update("a"), Send((back,)))
    assert sweep(WIRING) == Events(once, once)


def outward(wiring):
    """From the last layer to the first and nothing back: a schedule of one's own."""
    order = wiring.layers[::-1]
    events = tuple(e for name in order for e in (Update(name), Send(wiring.onward(name, reverse=True))))
    return Events(events, events)


def test_a_schedule_may_be_any_function_of_the_wiring():
    case = Case(BY_NAME["fan"], "none")
    beliefs = lgm.infer(case.model, {}, lgm.lbp(1, outward))
    truth = problems.probs_of(case.truth, "top")
    assert_close(beliefs["top"].probs, truth)
    assert not torch.allclose(beliefs["bottom"].probs, problems.probs_of(case.truth, "bottom"))


def test_messages_that_are_never_sent_stay_0():
    """On a tree those toward the root are enough for log Z, and for the edges at the root."""
    case = Case(BY_NAME["fan"], "none")
    exact = lgm.infer(case.model, {}, lgm.exact())
    for how in (lgm.lbp(1, outward), lgm.lbp(3, outward, tolerance=1e-9)):
        beliefs = lgm.infer(case.model, {}, how)
        assert_close(beliefs.log_z, exact.log_z)
        assert_close(beliefs.edges("top-mid"), exact.edges("top-mid"))
        assert not torch.allclose(beliefs.edges("mid-bottom"), exact.edges("mid-bottom"))
    beliefs = lgm.infer(case.model, {}, lgm.trw(3, outward))
    assert beliefs.converged.all()
    assert beliefs.log_z_upper.isinf().all()


MISTAKES = {
    "gave a list; expected Events": lambda w: [Update("a")],
    "gave a generator; expected Events": lambda w: (event for event in ()),
    "sends from layer 'b' before its first Update": lambda w: Events((Send(w.hops), Update("b"), Update("a")), ()),
    "sends from layer 'a' before its first Update": lambda w: Events((Update("b"),), (Send(w.hops),)),
    r"has Update\(layer='zz', evidence=True\), but the layers .* are b, a; take names": lambda w: Events(
        (Update("zz"),), ()
    ),
    r"sends over Hop\(link=0, side=0, source='b', target='zz'\); expected": lambda w: Events(
        (Update("b"), Send((Hop(0, 0, "b", "zz"),))), ()
    ),
    "sends over 0; expected a tuple of hops": lambda w: Events((Update("b"), Send(w.hops[0])), ()),
    r"has 'b'; expected Update\(layer\) or Send\(hops\)": lambda w: Events(("b",), ()),
    r"gave Events\(first=None, later=\(\)\); expected two tuples": lambda w: Events(None, ()),
    r"has Send\(hops=None, colour=None\); expected a tuple of hops": lambda w: Events((Update("b"), Send(None)), ()),
}


@pytest.mark.parametrize("tolerance", [None, 1e-3])
@pytest.mark.parametrize("message", MISTAKES)
def test_schedules_that_cannot_be_planned(message, tolerance):
    model = lgm.LGM(lgm.Graph([lgm.Layer("b", 2), lgm.Layer("a", 1)], [lgm.Dense("b", "a")]))
    with pytest.raises(lgm.errors.InferenceError, match=f"the schedule {message}"):
        lgm.infer(model, {}, lgm.lbp(2, MISTAKES[message], tolerance=tolerance))


def test_events_may_be_any_collections():
    """Also ones that can be read only once."""

    def listed(wiring):
        return Events(iter([Update("b"), Send(iter(wiring.out_of("b")))]), [Update("a"), Send([*wiring.out_of("a")])])

    model = lgm.LGM(lgm.Graph([lgm.Layer("b", 2), lgm.Layer("a", 1)], [lgm.Dense("b", "a")]))
    ours, theirs = (lgm.infer(model, {}, lgm.lbp(t, order)) for t, order in ((2, listed), (1, "sweep")))
    assert all(torch.equal(ours[name].probs, theirs[name].probs) for name in theirs)
