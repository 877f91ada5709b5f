"""Rules: the laws of every rule, and the formulas on one edge in plain numbers."""

import math

import pytest
import torch
from torch.testing import assert_close

import torchlgm as lgm
from torchlgm.errors import InferenceError
from torchlgm.inference.rules import BeliefPropagation, LogZ, MeanField, Message, Rule
from torchlgm.inference.schedule import parallel, sweep
from torchlgm.layout import LEFT, RIGHT, DenseLayout
from torchlgm.mrf import Link
from torchlgm.ops.eager import spread_limit
from torchlgm.testing import check_rule

RULES = {
    "lbp": BeliefPropagation(),
    "trw": BeliefPropagation(reweighted=True),
    "max": BeliefPropagation(maximise=True),
    "max-trw": BeliefPropagation(reweighted=True, maximise=True),
    "mean-field": MeanField(),
}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_laws(rule):
    check_rule(rule)


class _Changed(BeliefPropagation):
    """Loopy belief propagation with its messages spoiled."""

    def send(self, link, side, belief, reverse):
        edges, inflow = BeliefPropagation.send(self, link, side, belief, reverse)
        return Message(edges, self.spoil(edges, inflow))

    def spoil(self, edges, inflow):
        raise NotImplementedError


class _KnowsNodeOrder(_Changed):
    def spoil(self, edges, inflow):
        return inflow * torch.arange(1, inflow.shape[1] + 1)[:, None]


class _KnowsEdgeCount(_Changed):
    def spoil(self, edges, inflow):
        return inflow / edges.shape[1]


class _MixesSamples(_Changed):
    def spoil(self, edges, inflow):
        return inflow - inflow.mean(0, keepdim=True)


class _NoGradient(_Changed):
    def spoil(self, edges, inflow):
        return inflow.detach() + 0 * inflow


class _Offset(_Changed):
    def spoil(self, edges, inflow):
        return inflow + 1e-3


@pytest.mark.parametrize(
    ("rule", "law"),
    [
        (_KnowsNodeOrder, "nodes_in_any_order"),
        (_KnowsEdgeCount, "one_edge_at_a_time"),
        (_MixesSamples, "samples_are_independent"),
        (_NoGradient, "gradients_are_right"),
        (_Offset, "one_edge_at_a_time"),
    ],
    ids=lambda x: x if isinstance(x, str) else x.__name__,
)
def test_conformance_suite_catches(rule, law):
    with pytest.raises(AssertionError, match=f"breaks the law '{law}'"):
        check_rule(rule())


def _one_edge(table, rho=1.0):
    table = torch.tensor(table)
    return Link("a-b", "a", "b", DenseLayout(1, 1), table[None, None], torch.full((1, 1), rho))


def _plain(table, rho, cavity, reduce):
    """The message as a ratio of sums over all labels, label 0 included; a table of energies without label 0."""
    rows = [[0.0] * (len(table[0]) + 1), *[[0.0, *row] for row in table]]
    weights = [math.exp(c) for c in (0.0, *cavity)]
    terms = [[w * math.exp(-e / rho) for e in row] for w, row in zip(weights, rows, strict=True)]
    sums = [reduce(column) for column in zip(*terms, strict=True)]
    return [math.log(s / reduce(weights)) for s in sums[1:]]


TABLES = {"2x2": [[0.7]], "2x3": [[0.7, -1.3]], "3x2": [[0.7], [-2.0]], "3x3": [[0.7, 0.2], [-2.0, 1.1]]}
CAVITIES = {1: ([0.4], [-0.3]), 2: ([0.4, -1.0], [0.8, 0.1])}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
@pytest.mark.parametrize("reduce", [sum, max])
@pytest.mark.parametrize("rho", [1.0, 0.4])
def test_message_is_the_formula(table, reduce, rho):
    belief, reverse = CAVITIES[len(table)]
    rule = BeliefPropagation(reweighted=rho != 1, maximise=reduce is max)
    link = rule.prepare(_one_edge(table, rho))
    message = rule.send(link, LEFT, torch.tensor([[belief]]), torch.tensor([[[reverse]]]))
    expected = _plain(table, rho, [b - r for b, r in zip(belief, reverse, strict=True)], reduce)
    assert_close(message.edges[0, 0, 0], torch.tensor(expected))
    assert_close(message.inflow[0, 0], rho * torch.tensor(expected))


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_mean_field_message_is_minus_the_expected_energy(table):
    belief = CAVITIES[len(table)][0]
    rule = MeanField()
    message = rule.send(rule.prepare(_one_edge(table)), LEFT, torch.tensor([[belief]]), None)
    weights = [math.exp(b) for b in (0.0, *belief)]
    q = [w / sum(weights) for w in weights]
    expected = [-sum(p * row[y] for p, row in zip(q[1:], table, strict=True)) for y in range(len(table[0]))]
    assert message.edges is None
    assert_close(message.inflow[0, 0], torch.tensor(expected))


def test_a_message_over_a_transposed_table_goes_the_other_way():
    rule = BeliefPropagation()
    table = TABLES["3x2"]
    link = rule.prepare(_one_edge([list(row) for row in zip(*table, strict=True)]))
    message = rule.send(link, RIGHT, torch.tensor([[[0.4, -1.0]]]), None)
    assert_close(message.inflow[0, 0], torch.tensor(_plain(table, 1.0, [0.4, -1.0], sum)))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_products_of_exponentials_are_used_while_safe(dtype):
    limit = spread_limit(dtype)
    rule = BeliefPropagation()
    for spread, small in ((0.99 * limit, True), (1.01 * limit, False)):
        link = _one_edge([[spread / 2, 0.0], [0.0, -spread / 2]])
        assert rule.prepare(link._replace(table=link.table.to(dtype))).small is small


def test_both_ways_to_add_up_labels_agree():
    table, belief = 20 * torch.randn(3, 2, 3, 4), 20 * torch.randn(5, 3, 3)
    rule = BeliefPropagation()
    link = rule.prepare(Link("a-b", "a", "b", DenseLayout(3, 2), table, torch.ones(3, 2)))
    assert link.small
    mine, theirs = (rule.send(link._replace(small=s), LEFT, belief, None) for s in (True, False))
    assert_close(mine.edges, theirs.edges, rtol=1e-12, atol=1e-10)


def test_max_product_is_the_cold_limit_of_sum_product():
    """Energies and beliefs times a large number, messages divided by it."""
    table, belief, cold = torch.randn(3, 2, 2, 3), torch.randn(4, 3, 2), 1e4
    link = Link("a-b", "a", "b", DenseLayout(3, 2), table, torch.ones(3, 2))
    top, total = BeliefPropagation(maximise=True), BeliefPropagation()
    limit = total.send(total.prepare(link._replace(table=cold * table)), LEFT, cold * belief, None)
    assert_close(top.send(top.prepare(link), LEFT, belief, None).inflow, limit.inflow / cold, rtol=0, atol=1e-3)


class Bare(Rule):
    """Only what a rule must have: loopy belief propagation."""

    uses_reverse = True

    def prepare(self, link):
        return BeliefPropagation().prepare(link)

    def send(self, link, side, belief, reverse):
        return BeliefPropagation().send(link, side, belief, reverse)

    def __repr__(self):
        return "Bare()"


class Bounded(Bare):
    """It also claims a lower bound, where it is at a fixed point, and that the ends of edges are independent."""

    def log_z(self, mrf, outcome, fixed):
        value = torch.zeros(mrf.batch)
        return LogZ(value, lower=value.masked_fill(~fixed, -torch.inf))

    def edge_probs(self, mrf, outcome, link):
        return MeanField().edge_probs(mrf, outcome, link)


PAIR = lgm.zoo.rbm(3, 2)


class TestWhatARuleMayLeaveOut:
    def test_its_marginals_need_nothing_more(self):
        model = lgm.LGM(PAIR)
        ours, theirs = lgm.infer(model, {}, lgm.Method(Bare(), sweep, 3)), lgm.infer(model, {}, lgm.lbp(3))
        assert_close(ours["hidden"].probs, theirs["hidden"].probs)

    @pytest.mark.parametrize(
        ("ask", "message"),
        [
            (lambda beliefs: beliefs.log_z, r"no log Z is known for the rule Bare\(\)"),
            (lambda beliefs: beliefs.edges("visible-hidden"), r"no edge beliefs are known for the rule Bare\(\)"),
            (lambda beliefs: beliefs.map(), "needs max-product or exact inference"),
        ],
    )
    def test_other_questions_are_refused(self, ask, message):
        beliefs = lgm.infer(lgm.LGM(PAIR), {}, lgm.Method(Bare(), sweep, 3))
        with pytest.raises(InferenceError, match=message):
            ask(beliefs)

    def test_it_is_shown_in_the_method(self):
        assert repr(lgm.Method(Bare(), sweep, 3, damping=0.5)) == "Method(Bare(), sweep, 3, damping=0.5)"


class TestWhatARuleMayAdd:
    @pytest.mark.parametrize(("iterations", "lower"), [(200, 0.0), (1, -math.inf)])
    def test_bounds_that_hold_at_a_fixed_point(self, iterations, lower):
        beliefs = lgm.infer(lgm.LGM(PAIR), {}, lgm.Method(Bounded(), parallel, iterations))
        assert (beliefs.log_z.tolist(), beliefs.log_z_lower.tolist()) == ([0.0], [lower])
        assert beliefs.log_z_upper is None

    def test_edge_beliefs(self):
        beliefs = lgm.infer(lgm.LGM(PAIR), {}, lgm.Method(Bounded(), sweep, 3))
        left, right = beliefs["visible"].probs, beliefs["hidden"].probs
        assert_close(beliefs.edges("visible-hidden"), left[:, :, None, :, None] * right[:, None, :, None, :])
