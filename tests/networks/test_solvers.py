"""Who answers which rows: orders of elimination, and what a GPU leaves to the processor beside it."""

import random

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import torchlgm as lgm
from helpers.networks import hard, random_network
from torchlgm.networks import network_of, posteriors
from torchlgm.networks.solvers import base, elimination, junction
from torchlgm.networks.solvers.base import rows_that_fit
from torchlgm.networks.solvers.clusters import ByClusters
from torchlgm.networks.solvers.elimination import ByRow, ByTree
from torchlgm.networks.solvers.loopy import Loopy
from torchlgm.ops import Buckets


def ladder(labels, seed):
    """Factors of two and three variables with so many labels, here and there."""
    rng = np.random.default_rng(seed)
    n = len(labels)
    scopes = {tuple(sorted({int(v), *(int(u) for u in rng.integers(0, n, 2))})) for v in range(n) for _ in range(2)}
    return tuple(sorted(scopes))


def test_the_tree_is_the_smallest_of_several_orders():
    smallest = set()
    for seed in range(6):
        labels = tuple(np.random.default_rng(seed).integers(2, 9, 20).tolist())
        scopes = ladder(labels, seed)
        entries = {}
        for number, rule in enumerate(junction.RULES):
            buckets = junction._eliminated(labels, scopes, 10**12, random.Random(number), rule)
            entries[rule] = junction._tree(labels, scopes, buckets).entries
        found = junction.junction_tree(labels, scopes, 10**12)
        assert found.entries <= min(entries.values())
        smallest |= {rule for rule, size in entries.items() if size == min(entries.values())}
    assert len(smallest) > 1  # no rule is always the best


def test_rows_are_solved_in_a_good_order_too():
    if not Buckets.available():
        pytest.skip("needs a C compiler")
    for seed in range(6):
        labels = tuple(np.random.default_rng(seed).integers(2, 9, 20).tolist())
        scopes = ladder(labels, seed)
        solver = Buckets(labels, scopes, [np.zeros([labels[v] for v in scope]) for scope in scopes])
        asked = [(v,) for v in range(20)]
        found = solver.solve(np.full((1, 20), -1), asked, limit=2**40, dry=True)
        for rule in junction.RULES:
            buckets = junction._eliminated(labels, scopes, 10**12, random.Random(0), rule)
            size = sum(junction._size(labels, bucket) for bucket in buckets.values())
            assert found.entries[0] <= 1.2 * size  # ties are broken otherwise


def test_what_is_too_wide_for_a_gpu_is_left_to_the_processor(monkeypatch):
    network = network_of(*random_network())
    monkeypatch.setitem(elimination.TREE_ENTRIES, "cuda", 2)
    solver = posteriors.solver_for(network, [(0,)], None, torch.device("cuda"))
    if Buckets.available():
        assert isinstance(solver, ByRow)
    codes = hard(network.labels, 5)
    assert_close(
        solver.solve(torch.from_numpy(codes), {}, [(0,)]).marginals[0], network.posteriors(codes)[0], rtol=0, atol=1e-9
    )
    monkeypatch.setattr(Buckets, "available", staticmethod(lambda: False))
    wide = posteriors.solver_for(network, [(0,)], None, torch.device("cuda"))
    assert isinstance(wide.solver, ByClusters)
    assert wide.solver.device.type == "cuda"


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(4))
def test_a_gpu_gives_the_same_answers(seed):
    network = network_of(*random_network(seed, zeros=0.1))
    joint = network.posteriors({})
    codes = np.array([[int(p.argmax()) if v % 2 else -1 for v, p in joint.items()], [-1] * 6] * 100)
    soft = np.random.default_rng(seed).random((200, 4)) + 0.1
    asked = {"pairs": [(0, 1), (5, 2)], "likelihoods": {3: soft}}
    ours, theirs = (network.posteriors(codes, **asked, device=device) for device in ("cuda", "cpu"))
    assert isinstance(posteriors.solver_for(network, [(0,)], None, torch.device("cuda")), ByTree)
    assert_close(ours.log_evidence, theirs.log_evidence)
    for name, p in [*theirs.items(), *theirs.pairs.items()]:
        assert_close({**ours, **ours.pairs}[name], p, rtol=0, atol=1e-9)


DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_are_those_of_the_processor(device):
    """On a GPU, and without a C compiler, from counts by the junction tree."""
    labels, factors = random_network(2)
    network = network_of(labels, factors)
    codes, soft = hard(labels, 40, 1, 0.3), torch.rand(40, 4, dtype=torch.float64, requires_grad=True)

    def gradients(device):
        energies = [torch.from_numpy(e).to(device).requires_grad_() for _, e in network.factors]
        found = network.posteriors(codes, [0, 5], [(0, 1)], {3: soft}, energies=energies)
        parts = [*found.values(), *found.pairs.values(), found.log_evidence.exp()]
        loss = torch.stack([(x * torch.linspace(-1, 1, x.numel()).reshape(x.shape)).sum() for x in parts]).sum()
        return torch.autograd.grad(loss, [soft, *energies])

    with lgm.backend("eager" if device == "cpu" else "auto"):
        ours = gradients(device)
    assert {g.device.type for g in ours[1:]} == {device}
    for a, b in zip(ours, gradients("cpu"), strict=True):
        assert_close(a.cpu(), b, rtol=1e-6, atol=1e-8)


@pytest.mark.gpu
def test_a_gpu_passes_messages_as_the_processor_does():
    network = network_of(*random_network(3))
    codes, method = hard(network.labels, 100, 1, 0.3), lgm.lbp(20, "sweep", damping=0.1, tolerance=1e-6)
    ours, theirs = (network.posteriors(codes, method=method, device=device) for device in ("cuda", "cpu"))
    assert (ours.method, ours.trusted.tolist()) == (theirs.method, theirs.trusted.tolist())
    for name, p in theirs.items():
        assert_close(ours[name], p, rtol=0, atol=1e-4)


def test_rows_are_as_many_as_fit(monkeypatch):
    """Of tables with many labels fewer are solved at once, and a GPU's free memory counts."""
    rng = np.random.default_rng(0)
    narrow = network_of([2] * 3, [((0, 1, 2), rng.random((2, 2, 2)))])
    wide = network_of([60, 60, 60], [((0, 1, 2), rng.random((60, 60, 60)))])
    monkeypatch.setattr(base, "physical_memory", lambda: 2**34)
    sizes = [Loopy(network, lgm.lbp(3), torch.device("cpu")).rows for network in (narrow, wide)]
    assert 1 <= sizes[1] < sizes[0]
    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "mem_get_info", lambda device: (2**30, 2**34))
        assert 1 <= Loopy(wide, lgm.lbp(3), torch.device("cuda")).rows < 2**16 == rows_that_fit(torch.device("cuda"), 1)
