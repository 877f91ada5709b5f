"""Programs for kernels: lowered once, every slot is made before it is read and dropped after its last use."""

import pytest
import torch

import torchlgm as lgm
from torchlgm.inference.engine import wiring_of
from torchlgm.inference.lowering import Role, Traits, inner_evidence, lower
from torchlgm.inference.run import plan_of, run
from torchlgm.ops.backend import backend
from torchlgm.ops.program import CombineStep, MessageStep

GRAPH = lgm.Graph(
    [lgm.Layer("x", 2), lgm.Layer("h", 2), lgm.Layer("g", 1, 3), lgm.Layer("y", 1)],
    [lgm.Dense("x", "h"), lgm.Dense("h", "g"), lgm.Dense("g", "y"), lgm.Dense("h", "y"), lgm.Dense("x", "y")],
)


def lowered(method, want=("y",), evidence=(), evidence_sides=(), gradients=True, look_back=False, observed=False):
    seen = {"x": torch.rand(3, 2)} if observed else {}
    mrf = lgm.LGM(GRAPH).condition(seen)
    plan = plan_of(wiring_of(mrf), method, want, False, ())
    labels = tuple((link.table.shape[-2], link.table.shape[-1]) for link in mrf.links)
    mode = method.rule.kernel_mode
    return lower(
        plan, 0, len(plan.steps), Traits(labels, evidence, evidence_sides, method.damping, mode, gradients, look_back)
    )


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("damping", [0.0, 0.3])
@pytest.mark.parametrize("schedule", ["parallel", "sequential", "sweep"])
def test_slots_are_made_before_they_are_read_and_dropped_after_their_last_use(schedule, damping, gradients):
    program = lowered(lgm.trw(3, schedule, damping=damping), gradients=gradients).program
    alive, made = {*program.inputs}, {*program.inputs}
    for step in program.steps:
        assert alive.issuperset(step.reads)
        assert made.isdisjoint(step.makes)
        alive |= {*step.makes}
        made |= {*step.makes}
        assert alive.issuperset(step.unused)
        alive -= {*step.unused}
    assert alive.issuperset(program.outputs)
    if gradients:
        assert alive.issuperset(program.kept)
    else:
        assert alive - {*program.tables} == {*program.outputs}


def test_a_program_is_lowered_once():
    assert lowered(lgm.lbp(2)) is lowered(lgm.lbp(2))
    assert lowered(lgm.lbp(2)) is not lowered(lgm.lbp(2), gradients=False)
    mrf = lgm.LGM(GRAPH).condition({"x": torch.rand(3, 2)})
    with backend("native"):
        run(mrf, lgm.lbp(3), ("y",))
        before = lower.cache_info()
        run(mrf, lgm.lbp(3), ("y",))
    assert lower.cache_info().misses == before.misses
    assert lower.cache_info().hits > before.hits


def test_more_than_two_inflows_are_added_up_once():
    steps = lowered(lgm.lbp(2), want=("x",)).program.steps
    sums = [step for step in steps if isinstance(step, CombineStep)]
    assert len({step.terms for step in sums}) == len(sums) > 0
    assert all(weight == 1 for step in sums for _, weight in step.terms)


def test_damping_mixes_inflows_and_the_edges_that_are_read():
    steps = lowered(lgm.lbp(3, "parallel", damping=0.25)).program.steps
    weights = {tuple(weight for _, weight in step.terms) for step in steps if isinstance(step, CombineStep)}
    assert weights == {(1.0, 1.0), (0.75,), (0.75, 0.25)}


def test_edges_that_nobody_reads_are_not_made():
    """A sweep without a way back has no use for them, but for the gradients of a source with several labels."""
    method = lgm.lbp(1)
    for look_back, kept in ((False, 0), (True, 1)):
        program = lowered(method, observed=True, look_back=look_back).program
        messages = [step for step in program.steps if isinstance(step, MessageStep)]
        read = {step.reverse for step in messages}
        extra = [step for step in messages if step.edges >= 0 and step.edges not in read]
        assert len(extra) == kept
        assert all(step.look_back and step.norms >= 0 for step in extra)


def test_evidence_is_made_right_before_it_is_read():
    program = lowered(lgm.lbp(1), evidence=("h", "y"), evidence_sides=(("h", 0),), observed=True)
    roles = [operand.role for operand in program.inputs]
    assert roles.count(Role.OBSERVED) == roles.count(Role.EVIDENCE_TABLE) == 1
    first, second, *_ = program.program.steps
    assert first.inflow in second.belief
    assert first.stream == first.table != second.stream


def test_evidence_of_an_asked_layer_is_read_outside():
    mrf = lgm.LGM(GRAPH).condition({"x": torch.rand(3, 2)})
    assert inner_evidence(plan_of(wiring_of(mrf), lgm.lbp(1), ("y",), False, ())) == ("g", "h")
    assert inner_evidence(plan_of(wiring_of(mrf), lgm.lbp(1), ("h", "y"), False, ())) == ("g",)
