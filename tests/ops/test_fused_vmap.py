"""Several models, and several samples, at once: torch.func.vmap over fused kernels is a loop."""

from itertools import product

import pytest
import torch
from torch.func import functional_call, stack_module_state, vmap

from helpers.kernel_cases import (
    EXACT,
    INTERPRETED,
    KERNELS,
    LARGER,
    MARK,
    TINY,
    Classifier,
    assert_same,
    cases,
    evidence_for,
    numbers,
)
from torchlgm.errors import InferenceError
from torchlgm.ops.backend import backend

pytestmark = MARK


@cases(("kind", "evidence"), [("chain", "soft")], product([*TINY, *LARGER], ("soft", "missing")))
def test_vmap_over_stacked_parameters_is_a_loop(kind, evidence):
    graph = (TINY | LARGER)[kind]
    ensemble = [Classifier(graph, seed) for seed in range(2 if INTERPRETED else 3)]
    seen = evidence_for(graph, evidence, 2 if INTERPRETED else 33)
    parameters, _ = stack_module_state(ensemble)  # pyright: ignore[reportArgumentType]

    def one(p):
        return functional_call(ensemble[0], p, (seen,))

    def found(out):
        grads = torch.autograd.grad((out * numbers(*out.shape)).sum(), list(parameters.values()), allow_unused=True)
        return {"log probs": out} | {f"gradient of {name}": g for name, g in zip(parameters, grads, strict=True)}

    with backend(KERNELS):
        mine = found(vmap(one)(parameters))
    with backend("eager"):
        each = [{k: x[i] for k, x in parameters.items()} for i in range(len(ensemble))]
        eager = found(torch.stack([one(given) for given in each]))
    assert_same(mine, eager, **EXACT)


@cases("kind", ["chain", "conv"])
def test_stacked_rho_and_layouts_are_left_to_plain_code(kind):
    graph = TINY[kind]
    ensemble = [Classifier(graph, seed) for seed in range(2)]
    seen = evidence_for(graph, "soft", 2)
    stacked = stack_module_state(ensemble)  # pyright: ignore[reportArgumentType]

    def one(p, b):
        return functional_call(ensemble[0], (p, b), (seen,))

    with backend(KERNELS), pytest.raises(InferenceError, match="one layout and one rho for all models"):
        vmap(one)(*stacked)
    torch.testing.assert_close(vmap(one)(*stacked)[0], one({}, {}))


@cases(("kind", "evidence"), [("line", "soft")], product([*TINY, *LARGER], ("soft", "missing")))
def test_vmap_over_samples_and_parameters(kind, evidence):
    graph = (TINY | LARGER)[kind]
    ensemble = [Classifier(graph, seed) for seed in range(2)]
    (layer, values), *_ = evidence_for(graph, evidence).items()
    parameters, _ = stack_module_state(ensemble)  # pyright: ignore[reportArgumentType]

    def one(p, x):
        return functional_call(ensemble[0], p, ({layer: x.unsqueeze(0)},))

    def found(out):
        grads = torch.autograd.grad((out * numbers(*out.shape)).sum(), list(parameters.values()), allow_unused=True)
        return {"log probs": out} | {f"gradient of {name}": g for name, g in zip(parameters, grads, strict=True)}

    with backend(KERNELS):
        mine = found(vmap(vmap(one, (None, 0)), (0, None))(parameters, values))
    with backend("eager"):
        each = [[one({k: p[i] for k, p in parameters.items()}, x) for x in values] for i in range(2)]
        eager = found(torch.stack([torch.stack(row) for row in each]))
    assert_same(mine, eager, **EXACT)
