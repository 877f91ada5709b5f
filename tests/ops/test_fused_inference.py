"""Fused kernels against plain PyTorch: inferences by every method, with every gradient."""

from itertools import product
from weakref import ref

import pytest
import torch
from torch.func import functional_call, grad
from torch.testing import assert_close

import torchlgm as lgm
from helpers.kernel_cases import (
    DEVICE,
    EXACT,
    INTERPRETED,
    KERNELS,
    LARGER,
    MARK,
    NAN,
    TINY,
    Classifier,
    answers,
    assert_same,
    assert_same_answers,
    cases,
    evidence_for,
    model_of,
    numbers,
    only_gpu,
    watch_launches,
)
from torchlgm import Dense, Graph, Layer
from torchlgm.errors import InferenceError
from torchlgm.inference import solve
from torchlgm.inference.rules import Message
from torchlgm.learn.cuda.capture import capture
from torchlgm.mrf import Clamp
from torchlgm.ops.backend import backend, kernels

pytestmark = MARK


@pytest.mark.pairs
@cases(
    ("kind", "evidence", "method"),
    [
        ("chain", "missing", lgm.trw(2, "sequential")),
        ("skip", "soft", lgm.lbp(2, "sequential")),
        ("conv", "none", lgm.trw(1)),
        ("lateral", "missing", lgm.trw(1)),
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


@pytest.mark.pairs
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
    graph, read, alive = TINY["chain"], [], []

    def watched(step, wires, slots):
        alive.append(len({id(known()) for known in read} - {id(None)}))
        read.extend(ref(slots[i]) for i in step.reads)

    def most_alive(iterations):
        read.clear()
        alive.clear()
        with backend(KERNELS):
            lgm.infer(model_of(graph), {}, lgm.lbp(iterations, "parallel", damping=damping), want=("y",))
        return max(alive)

    watch_launches(monkeypatch, "send", watched)
    assert most_alive(8) > most_alive(4)
    with torch.no_grad():
        assert most_alive(8) == most_alive(4)


def test_who_computes(monkeypatch):
    calls = []
    watch_launches(monkeypatch, "send", lambda *given: calls.append(1))
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
