"""Running: stopping per sample, damping, warm starts, gradients by storing and by recomputing."""

from copy import deepcopy
from itertools import pairwise

import pytest
import torch
from torch.autograd import gradcheck
from torch.testing import assert_close

import torchlgm as lgm
from helpers.problems import BY_NAME, Case, as_function, by_case, evidence_for, model_of
from torchlgm.inference.schedule import Events, Send, Update

MAKERS = {"lbp": lgm.lbp, "trw": lgm.trw, "mean-field": lgm.mean_field}
SCHEDULES = ("parallel", "sequential", "sweep")
METHODS = {f"{name}-{s}": (make, s) for name, make in MAKERS.items() for s in SCHEDULES}
EVERY_METHOD = pytest.mark.parametrize(("make", "schedule"), METHODS.values(), ids=METHODS)
CHAIN, SKIP = Case(BY_NAME["chain"], "missing"), Case(BY_NAME["skip"], "missing")


def close(mine, theirs):
    assert_close(mine, theirs, rtol=0, atol=1e-12)


def same_beliefs(mine, theirs):
    for layer in mine.mrf.shapes:
        close(mine[layer].probs, theirs[layer].probs)


@EVERY_METHOD
def test_each_sample_stops_as_if_it_were_alone(make, schedule):
    method = make(100, schedule, tolerance=1e-5)
    mrf = SKIP.model.condition(evidence_for(SKIP.problem, SKIP.kind, batch=4))
    together = lgm.solve(mrf, method)
    assert together.converged.all()
    assert len(set(together.iterations.tolist())) > 1, "all stop at once: the test shows nothing"
    for b in range(mrf.batch):
        alone = lgm.solve(mrf.take(torch.tensor([b])), method)
        assert alone.iterations[0] == together.iterations[b]
        assert_close(alone.residual[0], together.residual[b], rtol=1e-6, atol=1e-12)
        close(alone.log_z[0], together.log_z[b])
        for layer in mrf.shapes:
            close(alone[layer].probs[0], together[layer].probs[b])


@EVERY_METHOD
def test_a_sample_stops_no_later_for_a_hole_in_another(make, schedule):
    """With a hole in one sample a layer stays, though nobody reads what is sent to its pinned nodes."""
    method = make(200, schedule, tolerance=1e-3)
    graph = lgm.zoo.deep_boltzmann_machine(3, [4, 2])
    last = graph.layers[-1].name
    holed = torch.tensor([[1.0, 0.0], [torch.nan, 0.0]])
    for seed in range(20):
        model = lgm.LGM(graph, "paper", generator=torch.Generator().manual_seed(seed))
        alone, beside = (lgm.infer(model, {last: seen}, method) for seen in (holed[:1], holed))
        assert alone.iterations[0] == beside.iterations[0]


@EVERY_METHOD
def test_figures_of_a_run(make, schedule):
    """A sample stops after the first iteration whose residual is within the tolerance, with what it has then."""
    model, evidence, tolerance = CHAIN.model, CHAIN.evidence, 1e-4
    stopped = lgm.infer(model, evidence, make(100, schedule, tolerance=tolerance))
    most = int(stopped.iterations.max())
    fixed = [lgm.infer(model, evidence, make(t, schedule)) for t in range(1, most + 1)]
    for b, t in enumerate(stopped.iterations.tolist()):
        residuals = [float(answer.residual[b]) for answer in fixed[:t]]
        assert residuals[-1] <= tolerance < min(residuals[:-1])
        assert_close(float(stopped.residual[b]), residuals[-1], rtol=1e-6, atol=1e-12)
        close(stopped["c"].probs[b], fixed[t - 1]["c"].probs[b])


@EVERY_METHOD
def test_residual_is_the_largest_relative_change_of_an_inflow_of_free_nodes(make, schedule):
    before, after = (lgm.infer(CHAIN.model, CHAIN.evidence, make(t, schedule)) for t in (3, 4))
    expected = torch.zeros(3)
    for hop, message in after.messages.items():
        new, old = message.inflow.expand(3, -1, -1), before.messages[hop].inflow.expand(3, -1, -1)
        change = ((new - old).abs() / (1 + new.abs())).amax(2)
        clamp = after.mrf.clamps.get(hop.target)
        free = torch.ones_like(change, dtype=torch.bool) if clamp is None or clamp.free is None else clamp.free
        expected = torch.maximum(expected, change.masked_fill(~free, 0).amax(1))
    close(after.residual, expected)
    assert after.iterations.tolist() == [4] * 3
    assert not after.converged.any()


def test_fixed_iterations_say_whether_they_were_enough():
    answers = [lgm.infer(CHAIN.model, CHAIN.evidence, lgm.lbp(t, "sweep")) for t in (2, 60)]
    assert [bool(a.converged.all()) for a in answers] == [False, True]


@EVERY_METHOD
def test_running_out_of_iterations(make, schedule):
    method = make(3, schedule, tolerance=1e-12)
    beliefs = lgm.infer(CHAIN.model, CHAIN.evidence, method)
    assert not beliefs.converged.any()
    assert beliefs.iterations.tolist() == [3, 3, 3]
    same_beliefs(beliefs, lgm.infer(CHAIN.model, CHAIN.evidence, make(3, schedule)))


@EVERY_METHOD
def test_messages_that_do_not_know_the_evidence_have_not_converged(make, schedule):
    """The first messages of the paper's schedules are almost 0 here, until the evidence comes in."""
    graph = lgm.Graph(
        [lgm.Layer("v", 1), lgm.Layer("h", 2), lgm.Layer("c", 1)], [lgm.Dense("v", "h"), lgm.Dense("h", "c")]
    )
    model = lgm.LGM(graph, init="zero")
    with torch.no_grad():
        for name, value in (("v-h", -100.0), ("h-c", -30.0)):
            model.table[name].fill_(value)
        for name in ("h", "c"):
            model.unary[name].fill_(50.0)
    beliefs = lgm.infer(model, {"v": torch.ones(1, 1)}, make(50, schedule, tolerance=1e-6))
    assert beliefs.converged.all()
    assert beliefs["c"].probs[0, 0, 1] > 0.999
    first = lgm.infer(model, {"v": torch.ones(1, 1)}, make(1, schedule))
    assert first.residual.isinf().all()
    assert not first.converged.any()


@pytest.mark.parametrize("method", [lgm.lbp(5, tolerance=1e-6), lgm.mean_field(5, "sweep"), lgm.lbp(1)])
def test_without_messages_there_is_nothing_to_wait_for(method):
    case = Case(BY_NAME["rbm"], "hard")
    beliefs = lgm.infer(case.model, case.evidence, method)
    assert beliefs.converged.all()
    assert beliefs.residual.tolist() == [0, 0, 0]
    close(beliefs["hidden"].probs, lgm.infer(case.model, case.evidence, lgm.exact())["hidden"].probs)


@EVERY_METHOD
def test_damping_leads_to_the_same_fixed_point(make, schedule):
    answers = [
        lgm.infer(CHAIN.model, CHAIN.evidence, make(500, schedule, damping=damping, tolerance=1e-13))
        for damping in (0.0, 0.5)
    ]
    assert answers[0].converged.all()
    assert answers[0].iterations.sum() < answers[1].iterations.sum()
    for layer in answers[0]:
        assert_close(answers[0][layer].probs, answers[1][layer].probs, rtol=0, atol=1e-10)


@EVERY_METHOD
@pytest.mark.parametrize("damping", [0.0, 0.3])
def test_three_iterations_and_two_more_are_five(make, schedule, damping):
    model, evidence = CHAIN.model, CHAIN.evidence
    three, two, five = (make(t, schedule, damping=damping) for t in (3, 2, 5))
    begun = lgm.infer(model, evidence, three)
    finished, uninterrupted = lgm.infer(model, evidence, two, start=begun.messages), lgm.infer(model, evidence, five)
    same_beliefs(finished, uninterrupted)
    assert (finished.residual >= uninterrupted.residual - 1e-12).all()  # single messages are looked at too
    close(finished.log_z, uninterrupted.log_z)
    wanted = lgm.infer(model, evidence, two, want=["c"], start=begun.messages)
    close(wanted["c"].probs, uninterrupted["c"].probs)


@EVERY_METHOD
def test_a_warm_start_at_the_fixed_point_is_done_at_once(make, schedule):
    method = make(200, schedule, tolerance=1e-9)
    cold = lgm.infer(CHAIN.model, CHAIN.evidence, method)
    again = lgm.infer(CHAIN.model, CHAIN.evidence, method, start=cold.messages)
    assert again.iterations.tolist() == [1, 1, 1]
    other = {"v": evidence_for(CHAIN.problem, "missing")["v"].flip(2)}
    near = lgm.infer(CHAIN.model, other, method, start=cold.messages)
    fresh = lgm.infer(CHAIN.model, other, method)
    for layer in near:
        assert_close(near[layer].probs, fresh[layer].probs, rtol=0, atol=1e-7)


@EVERY_METHOD
def test_a_warm_start_waits_for_no_message_to_a_pinned_node(make, schedule):
    method = make(200, schedule, tolerance=1e-3)
    graph = lgm.zoo.deep_boltzmann_machine(3, [4, 2])
    last = graph.layers[-1].name
    before, now = torch.tensor([[1.0, 0.0], [torch.nan, 0.0]]), torch.tensor([[0.0, 1.0], [torch.nan, 1.0]])
    for seed in range(20):
        model = lgm.LGM(graph, "paper", generator=torch.Generator().manual_seed(seed))
        starts = (lgm.infer(model, {last: seen}, method).messages for seen in (before[:1], before))
        alone, beside = (
            lgm.infer(model, {last: seen}, method, start=start)
            for seen, start in zip((now[:1], now), starts, strict=True)
        )
        assert alone.iterations[0] == beside.iterations[0]


@pytest.mark.pairs
@pytest.mark.parametrize("make", [lgm.lbp, lgm.trw])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("at_a_time", [500, 1])
@pytest.mark.parametrize("between", [(), ("c",)])
def test_changes_that_cancel_out_are_changes(make, schedule, at_a_time, between):
    """What x tells the two nodes of `a` is contrary, so that b hears the same from them in sum."""
    names = ("x", *between)
    layers = (*(lgm.Layer(name, 1) for name in names), lgm.Layer("a", 2), lgm.Layer("b", 1))
    model = lgm.LGM(lgm.Graph(layers, [lgm.Dense(*pair) for pair in pairwise((*names, "a", "b"))]), "zero")
    with torch.no_grad():
        for below, above in pairwise(names):
            model.table[f"{below}-{above}"].fill_(-3.0)
        model.table[f"{names[-1]}-a"].copy_(torch.tensor([-4.0, 4.0]).view(1, 2, 1, 1))
        model.unary["a"].copy_(torch.tensor([4.0, 0.0] if between else [2.0, 2.0]).view(2, 1))
        model.table["a-b"].fill_(-4.0)
        model.unary["b"].fill_(4.0)
    one, other = ({"x": torch.tensor([[label]])} for label in (0, 1))
    start = lgm.infer(model, one, make(500, schedule, tolerance=1e-9)).messages
    for _ in range(500):
        beliefs = lgm.infer(model, other, make(at_a_time, schedule, tolerance=1e-9), start=start)
        start = beliefs.messages
        if beliefs.converged:
            break
    cold = lgm.infer(model, other, make(500, schedule, tolerance=1e-9))
    assert_close(beliefs["a"].probs, cold["a"].probs, rtol=0, atol=1e-6)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_the_residual_does_not_count_damping(make):
    start = lgm.infer(CHAIN.model, CHAIN.evidence, make(3, "parallel")).messages
    plain, damped = (
        lgm.infer(CHAIN.model, CHAIN.evidence, make(1, "parallel", damping=d), start=start).residual for d in (0, 0.9)
    )
    assert_close(damped, plain, rtol=0.5, atol=0)  # relative to sizes that differ a little


def test_a_start_from_another_question_is_refused():
    model, method = CHAIN.model, lgm.lbp(2)
    all_free = lgm.infer(model, {}, method)
    seen = lgm.infer(model, evidence_for(CHAIN.problem, "soft"), method)
    assert seen.messages.keys() < all_free.messages.keys() or not set(seen.messages) <= set(all_free.messages)
    with pytest.raises(lgm.errors.InferenceError, match="same observed layers"):
        lgm.infer(model, evidence_for(CHAIN.problem, "soft"), method, start=all_free.messages)
    partial = lgm.infer(model, {}, method, want=["c"])
    for again in (method, lgm.lbp(9, tolerance=1e-3)):
        with pytest.raises(lgm.errors.InferenceError, match="without want="):
            lgm.infer(model, {}, again, start=partial.messages)
    with pytest.raises(lgm.errors.InferenceError, match="3 samples, but the evidence is about 2"):
        lgm.infer(model, {"v": evidence_for(CHAIN.problem, "soft")["v"][:2]}, method, start=seen.messages)
    single = deepcopy(model).float()
    with pytest.raises(lgm.errors.InferenceError, match=r"of another model: .*float32, expected .*float64"):
        lgm.infer(model, {}, method, start=lgm.infer(single, {}, method).messages)
    small, large = (lgm.LGM(lgm.zoo.grid(n, n)) for n in (2, 3))
    with pytest.raises(lgm.errors.InferenceError, match=r"to layer '\w+' of another model: 4 nodes .* expected 9"):
        lgm.infer(large, {}, method, start=lgm.infer(small, {}, method).messages)
    coarse = lgm.infer(model, {}, lgm.mean_field(2))
    with pytest.raises(lgm.errors.InferenceError, match=r"messages of mean field, which are too little for lbp\("):
        lgm.infer(model, {}, lgm.lbp(2), start=coarse.messages)


def test_one_start_serves_every_sample():
    case = Case(BY_NAME["chain"], "none")
    begun = lgm.infer(case.model, {}, lgm.lbp(3))
    unseen = {"v": torch.full((4, 2), torch.nan)}
    for method in (lgm.lbp(2), lgm.lbp(2, tolerance=1e-12)):
        beliefs = lgm.infer(case.model, unseen, method, start=begun.messages)
        close(beliefs["c"].probs, lgm.infer(case.model, {}, lgm.lbp(5))["c"].probs.expand(4, -1, -1))


def only_forward(wiring):
    events = tuple(e for n in wiring.layers for e in (Update(n), Send(wiring.onward(n, reverse=False))))
    return Events(events, events)


def test_schedules_that_never_send_some_messages_can_stop_and_go_on():
    method = lgm.lbp(3, only_forward)
    model, evidence = CHAIN.model, CHAIN.evidence
    begun = lgm.infer(model, evidence, method)
    same_beliefs(begun, lgm.infer(model, evidence, method, start=begun.messages))
    stopped = lgm.infer(model, evidence, lgm.lbp(9, only_forward, tolerance=1e-6))
    assert stopped.iterations.tolist() == [2, 2, 2]
    same_beliefs(begun, stopped)


GRADIENTS = {
    **{f"{name}-{s}": make(3, s) for name, make in MAKERS.items() for s in SCHEDULES},
    **{f"max-{s}": lgm.lbp(3, s, product="max") for s in SCHEDULES},
    **{f"{name}-damped": make(3, damping=0.3) for name, make in MAKERS.items()},
    **{f"{name}-tolerance": make(20, tolerance=1e-2) for name, make in MAKERS.items()},
    **{f"{name}-checkpoint": make(4, gradient="checkpoint") for name, make in MAKERS.items()},
    **{f"{n}-implicit": make(500, "sweep", tolerance=1e-12, gradient="implicit") for n, make in MAKERS.items()},
}


@pytest.mark.each
@pytest.mark.parametrize("method", GRADIENTS.values(), ids=GRADIENTS)
@pytest.mark.parametrize(**by_case([SKIP, Case(BY_NAME["conv"], "missing")]))
def test_gradients_of_beliefs(case, method):
    mrf, parameters = as_function(case.model, case.evidence)

    def probs(*values):
        return torch.cat([belief.probs.flatten() for belief in lgm.solve(mrf(*values), method).values()])

    assert gradcheck(probs, parameters, fast_mode=True)


@pytest.mark.parametrize("name", ["lbp-sequential", "trw-parallel", "mean-field-sweep", "lbp-tolerance"])
def test_gradients_in_soft_evidence(name):
    problem = BY_NAME["skip"]
    model, soft = model_of(problem), evidence_for(problem, "soft")["v"].requires_grad_()
    assert gradcheck(lambda v: lgm.infer(model, {"v": v}, GRADIENTS[name])["c"].probs, [soft])


def value_and_gradients(case, method, want=None):
    model = case.model
    beliefs = lgm.infer(model, case.evidence, method, want=want)
    probs = beliefs["c"].probs
    probs.square().sum().backward()
    return [probs.detach(), *[torch.zeros(()) if p.grad is None else p.grad for p in model.parameters()]]


@EVERY_METHOD
@pytest.mark.parametrize("options", [{}, {"damping": 0.3}, {"tolerance": 1e-4}], ids=["fixed", "damped", "tolerance"])
def test_recomputing_gives_the_same_as_storing(make, schedule, options):
    for want in (None, ["c"]):
        with lgm.backend("eager"):  # kernels add up in another order where a plan is cut
            stored, recomputed = (
                value_and_gradients(SKIP, make(8, schedule, gradient=g, **options), want)
                for g in ("unroll", "checkpoint")
            )
        for mine, theirs in zip(stored, recomputed, strict=True):
            assert torch.equal(mine, theirs)


def saved_bytes(method):
    total = 0

    def count(tensor):
        nonlocal total
        total += tensor.numel() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        lgm.infer(CHAIN.model, CHAIN.evidence, method, want=["c"])["c"].probs.sum()
    return total


@pytest.mark.parametrize(
    ("make", "schedule"), [(lgm.lbp, "sequential"), (lgm.trw, "parallel"), (lgm.mean_field, "sweep")]
)
def test_recomputing_stores_far_less(make, schedule):
    few, many = (saved_bytes(make(t, schedule, gradient="checkpoint")) for t in (8, 64))
    unrolled = [saved_bytes(make(t, schedule)) for t in (8, 64)]
    assert unrolled[1] > 7 * unrolled[0]
    assert many < 3 * few
    assert many < unrolled[1] / 10
