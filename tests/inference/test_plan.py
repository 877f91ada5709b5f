"""Plans: what is left out never matters, bit for bit; what evidence has not reached is made once for all samples."""

from itertools import pairwise

import pytest
import torch
from torch.testing import assert_close

import torchlgm as lgm
from helpers.problems import BY_NAME, Case, by_case, evidence_for, model_of
from torchlgm.inference.engine import Engine, wiring_of
from torchlgm.inference.methods import Method
from torchlgm.inference.plan import MakeBelief, MakeMessage, build
from torchlgm.inference.rules import BeliefPropagation, Rule
from torchlgm.inference.run import run
from torchlgm.inference.schedule import Hop, Wiring, parallel, sequential, sweep
from torchlgm.layout import RIGHT

METHODS = {
    f"{make.__name__}-{schedule}-{damping}": make(4, schedule, damping=damping)
    for make in (lgm.lbp, lgm.trw, lgm.mean_field)
    for schedule in ("parallel", "sequential", "sweep")
    for damping in (0.0, 0.3)
}
PRUNED = [Case(BY_NAME[name], "missing") for name in ("conv", "clique", "twin", "grid")]
PRUNED += [Case(BY_NAME["chain"], "soft")]


def naive_beliefs(mrf, method, want):
    """Every step of the schedule, none shared and none dropped."""
    wiring = wiring_of(mrf)
    events = method.schedule(wiring)
    iterations = [events.first, *[events.later] * (method.iterations - 1)]
    damped = method.damping > 0
    plan = build(wiring, iterations, want, uses_reverse=method.rule.uses_reverse, damped=damped, prune=False)
    values = Engine(mrf, method).execute(plan, [])
    return {name: values.beliefs[v] for name, v in plan.beliefs.items()}


@pytest.mark.each
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize(**by_case(PRUNED))
def test_pruned_plans_give_the_naive_answer_bit_for_bit(case, method):
    mrf = case.model.condition(case.evidence)
    everything = naive_beliefs(mrf, method, tuple(mrf.unary))
    for layer in mrf.unary:
        assert torch.equal(run(mrf, method, want=[layer]).beliefs[layer], everything[layer])
    kept = run(mrf, method)
    assert all(torch.equal(kept.beliefs[layer], everything[layer]) for layer in mrf.unary)


def chain_wiring(layers, evidence_hop):
    """A chain of layers whose first one is observed: it sends and hears nothing, or is left out altogether."""
    hops = []
    for i, (a, b) in enumerate(pairwise(layers)):
        hops += [Hop(i, 0, a, b), Hop(i, 1, b, a)]
    if evidence_hop:
        return Wiring(tuple(layers), tuple(h for h in hops if h.target != layers[0]))
    return Wiring(tuple(layers[1:]), tuple(h for h in hops if layers[0] not in (h.source, h.target)))


def count_messages(wiring, schedule, prune):
    events = schedule(wiring)
    plan = build(wiring, [events.first, *[events.later] * 4], want=wiring.layers[-1:], prune=prune)
    return sum(isinstance(step, MakeMessage) for step in plan.steps)


@pytest.mark.parametrize(
    ("schedule", "evidence_hop", "naive", "pruned"),
    [
        (sequential, True, 35, 23),
        (parallel, True, 35, 13),
        (sequential, False, 30, 21),
        (parallel, False, 30, 12),
        (sweep, False, 30, 27),
    ],
    ids=lambda x: getattr(x, "__name__", x),
)
def test_how_many_messages_can_reach_the_output(schedule, evidence_hop, naive, pruned):
    """Five iterations at depth 4. Evidence is a field of our plans; as messages it is 5 of the naive 35."""
    wiring = chain_wiring(["v", "h1", "h2", "h3", "c"], evidence_hop)
    assert count_messages(wiring, schedule, prune=False) == naive
    assert count_messages(wiring, schedule, prune=True) == pruned


def test_parallel_messages_that_remain_have_one_parity():
    """The parallel schedule splits into two interleaved halves; the output hears one of them."""
    wiring = chain_wiring(["v", "h1", "h2", "h3", "c"], evidence_hop=False)
    events = parallel(wiring)
    plan = build(wiring, [events.first, *[events.later] * 4], want=["c"])
    age = {}  # of each value: the iteration whose messages it is or sums up
    for value, step in enumerate(plan.steps):
        if isinstance(step, MakeBelief):
            age[value] = max((age[v] for v in step.messages), default=0)
            continue
        age[value] = age[step.belief] + 1
        assert (age[value] + wiring.layers.index(step.hop.source)) % 2 == (5 + 2) % 2


@pytest.mark.parametrize("schedule", [parallel, sequential, sweep])
def test_plans_are_straight_programs(schedule):
    """Every value is made before it is used, is dropped right after its last use, and is used or asked for."""
    wiring = chain_wiring(["v", "h1", "h2", "h3", "c"], evidence_hop=False)
    events = schedule(wiring)
    plan = build(wiring, [events.first, *[events.later] * 4], want=["h1", "c"], damped=True)
    alive, used = set(), set()
    for value, (step, dropped) in enumerate(zip(plan.steps, plan.last_uses, strict=True)):
        assert alive.issuperset(step.needs)
        assert set(dropped) <= set(step.needs)
        used |= set(step.needs)
        alive = (alive | {value}) - set(dropped)
    assert alive == plan.outputs
    assert used | plan.outputs == set(range(len(plan.steps)))


def test_equal_steps_are_made_once():
    """Without feedback and damping, later iterations of a fully informed chain repeat the same steps."""
    wiring = chain_wiring(["v", "h", "c"], evidence_hop=False)
    forward = wiring._replace(hops=tuple(h for h in wiring.hops if h.side == 0))
    events = sweep(forward)
    plans = [
        build(forward, [events.first, *[events.later] * extra], want=["c"], uses_reverse=False) for extra in (0, 5)
    ]
    assert vars(plans[0]) == vars(plans[1])


FOLDED = [Case(BY_NAME[name], kind) for name, kind in (("chain", "soft"), ("conv", "hard"), ("clique", "soft"))]


@pytest.mark.each
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize(**by_case(FOLDED))
def test_constant_values_equal_expanded_ones(case, method):
    mrf = case.model.condition(case.evidence)
    expanded = mrf._replace(unary={n: u.expand(mrf.batch, -1, -1).clone() for n, u in mrf.unary.items()})
    mine, theirs = run(mrf, method), run(expanded, method)
    for layer, belief in theirs.beliefs.items():
        assert_close(mine.beliefs[layer].expand_as(belief), belief, rtol=0, atol=1e-12)


@pytest.mark.parametrize("schedule", ["parallel", "sequential"])
@pytest.mark.parametrize("make", [lgm.lbp, lgm.trw])
def test_what_evidence_has_not_reached_has_a_batch_of_one(make, schedule):
    problem = BY_NAME["chain"]
    mrf = model_of(problem).condition(evidence_for(problem, "soft"))
    reach = {1: {"g"}, 2: {"g", "h"}, 3: {"g", "h", "c"}}
    for iterations, reached in reach.items():
        beliefs = run(mrf, make(iterations, schedule)).beliefs
        assert {name: b.shape[0] for name, b in beliefs.items()} == {
            name: mrf.batch if name in reached else 1 for name in beliefs
        }


class Recorder(Rule):
    """Loopy belief propagation that writes down the direction and the batch of every message."""

    uses_reverse = True

    def __init__(self):
        self.sent = []

    def prepare(self, link):
        return BeliefPropagation().prepare(link)

    def send(self, link, side, belief, reverse):
        message = BeliefPropagation().send(link, side, belief, reverse)
        self.sent.append((side, message.inflow.shape[0]))
        return message


def test_parallel_feedback_toward_the_input_is_constant_up_to_depth_plus_one():
    problem = BY_NAME["chain"]
    mrf = model_of(problem).condition(evidence_for(problem, "soft"))
    depth = 3
    for iterations, constant in ((depth + 1, True), (depth + 2, False)):
        rule = Recorder()
        run(mrf, Method(rule, parallel, iterations), want=["c"])
        feedback = {batch for side, batch in rule.sent if side == RIGHT}
        assert (feedback == {1}) is constant
