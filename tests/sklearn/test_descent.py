"""Training in compiled C and in PyTorch: the same steps, on any stack."""

import ctypes

import numpy as np
import pandas as pd
import pytest
import torch

import torchlgm as lgm
from torchlgm import LGMClassifier
from torchlgm.errors import DivergedError
from torchlgm.ops import backend as backends
from torchlgm.ops import softplus, star
from torchlgm.ops.native import compiler
from torchlgm.ops.softplus import softplus_sum
from torchlgm.ops.star import Draws
from torchlgm.sklearn.descent import Descent
from torchlgm.sklearn.encoding import Place
from torchlgm.sklearn.slots import Slots
from torchlgm.sklearn.stack import Stack

pytestmark = pytest.mark.usefixtures("single_precision")
MEMBERS, BATCH, STEPS = 3, 24, 8
PLACES = (Place("columns2", (1,), 2), Place("columns4", (0, 3), 4), Place("columns7", (2,), 7))


def stack_and_rows(hidden, classes, loud=1.0):
    """Categories and numbers, some entries missing."""
    rng = np.random.default_rng(0)
    layers = [lgm.Layer(p.layer, len(p.columns), p.labels) for p in PLACES]
    layers += [lgm.Layer("hidden1", hidden), lgm.Layer("classes", 1, classes)]
    links = [lgm.Dense(p.layer, "hidden1") for p in PLACES] + [lgm.Dense("hidden1", "classes")]
    start = lgm.LGM(lgm.Graph(tuple(layers), tuple(links)), lgm.Init(0.3, scale="energy"), dtype=torch.float32)
    slots = Slots(PLACES, np.array([False, True, False, True]), torch.device("cpu"))
    stack = Stack(slots, start, MEMBERS, "hidden1", "classes", seed=1)
    stack.out.mul_(10)
    stack.flat.mul_(loud)
    stack.unary.add_(torch.randn(stack.unary.shape, generator=torch.Generator().manual_seed(0)))
    x = np.stack([rng.random(60), rng.integers(0, 2, 60), rng.random(60), rng.integers(0, 4, 60) / 3], 1)
    x[rng.random(x.shape) < 0.1] = np.nan
    return stack, slots.encode(x, rng.integers(0, classes, 60), rng.random(60))


def draws(steps=STEPS):
    rng = np.random.default_rng(1)
    index = rng.integers(0, 60, (steps, MEMBERS, BATCH))
    shown = rng.integers(0, 257, index.shape).astype(np.uint16)
    return Draws(index, shown, rng.integers(0, 256, (*index.shape, 4)).astype(np.uint8))


def descent(backend, hidden, classes, loud=1.0, threads=1):
    stack, rows = stack_and_rows(hidden, classes, loud)
    with lgm.backend(backend):
        return Descent(stack, rows, np.array([0.0, 0.1, 0.0]), stack.flat.numel() * BATCH, threads)


@pytest.mark.parametrize(("hidden", "classes", "loud"), [(5, 2, 1), (16, 3, 1), (70, 2, 1), (70, 21, 1), (40, 4, 8)])
def test_compiled_steps_are_those_of_pytorch(hidden, classes, loud):
    native, plain = (descent(backend, hidden, classes, loud) for backend in ("native", "eager"))
    assert native.code is not None
    assert plain.code is None
    with torch.no_grad():
        torch.testing.assert_close(native.log_probs(draws(1)), plain.log_probs(draws(1)), rtol=1e-4, atol=2e-5)
    losses = [d.advance(draws(1), np.array([0.01])) for d in (native, plain)]
    np.testing.assert_allclose(*losses, rtol=1e-5)
    gradients = native.moments.mean, plain.optimizer.state[plain.stack.flat]["exp_avg"]
    scale = float(gradients[1].abs().max())
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-5 * scale)
    squares = native.moments.square, plain.optimizer.state[plain.stack.flat]["exp_avg_sq"]
    torch.testing.assert_close(*squares, rtol=1e-2, atol=1e-5 * float(squares[1].max()))


def test_courses_stay_together():
    rates = np.linspace(0.05, 0.0, STEPS)
    native, plain = (descent(backend, 20, 3) for backend in ("native", "eager"))
    losses = [d.advance(draws(), rates) for d in (native, plain)]
    np.testing.assert_allclose(*losses, rtol=2e-3)
    apart = (native.stack.flat - plain.stack.flat).detach().abs()
    assert apart.median() < 1e-5
    assert losses[0][-1].mean() < losses[0][0].mean()


def test_members_do_not_depend_on_threads_or_on_how_steps_are_parted():
    rates = np.full(STEPS, 0.05)
    whole, parted = descent("native", 20, 3), descent("native", 20, 3, threads=2)
    whole.advance(draws(), rates)
    for i in (0, 3):
        part = slice(i, STEPS if i else 3)
        parted.advance(Draws(*(x[part].copy() for x in draws())), rates[part])
    assert torch.equal(whole.stack.flat, parted.stack.flat)


def test_slots_are_the_labels_of_columns_and_dense_rows_say_the_same():
    stack, rows = stack_and_rows(4, 2)
    one = draws(1)
    dense, seen = stack.slots.dense(rows, one), stack.slots.seen(rows, one)
    assert dense.shape == (1, MEMBERS, BATCH, 17 + 4)
    by_column = torch.zeros(*dense.shape[:-1], 4).index_add_(-1, stack.slots.column, dense[..., :17])
    torch.testing.assert_close(by_column, torch.as_tensor(seen, dtype=torch.float32))
    torch.testing.assert_close(dense[..., 17:], 1 - by_column)


def test_structs_that_differ_are_noticed(fresh, monkeypatch):
    monkeypatch.setattr(star, "_Course", type("Shorter", (ctypes.Structure,), {"_fields_": star._Course._fields_[1:]}))
    assert descent("auto", 20, 3).code is None  # plain PyTorch takes over
    with pytest.raises(lgm.errors.InferenceError, match="make their fields agree"):
        descent("native", 20, 3)


def test_a_compiler_that_fails_for_stars_alone(fresh, monkeypatch, caplog):
    """Plain PyTorch trains them, and the compiler is asked once."""
    asked, load = [], compiler.load

    def broken(file, define=()):
        asked.append(file.name)
        if file.name in ("star.c", "softplus.c"):
            raise compiler.NoLibrary("internal compiler error")
        return load(file, define)

    monkeypatch.setattr(compiler, "load", broken)
    caplog.set_level("INFO", logger="torchlgm")
    a, w = torch.rand(3, 70, 37, requires_grad=True), torch.rand(3, 70, 30)
    for _ in range(2):
        assert descent("auto", 20, 3).code is None
        softplus_sum(a, w).sum().backward()
    assert asked.count("star.c") == asked.count("softplus.c") == 1
    assert sum("internal compiler error" in line for line in caplog.messages) == 2


@pytest.fixture
def fresh():
    """As if nothing had been compiled, before and afterwards."""
    caches = star._library, softplus._library, backends._why_not, backends._log_fallback
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


@pytest.mark.parametrize("backend", ["native", "eager"])
def test_a_classifier_learns_with_either(backend):
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 3, 120)
    table = pd.DataFrame({"size": kind + rng.normal(0, 0.3, 120), "name": pd.Categorical(kind.astype(str))})
    with lgm.backend(backend):
        model = LGMClassifier(hidden=5, epochs=60, n_members=2, random_state=0, n_jobs=2).fit(table, kind)
    assert model.score(table, kind) > 0.95


@pytest.mark.parametrize("backend", ["native", "eager"])
def test_a_training_that_diverges(backend):
    X = np.random.default_rng(0).normal(size=(80, 3))
    model = LGMClassifier(hidden=5, epochs=2, n_members=2, learning_rate=1e30, random_state=0)
    with lgm.backend(backend), pytest.raises(DivergedError, match="try a lower learning_rate"):
        model.fit(X, X[:, 0] > 0)


def test_nan_stays_nan():
    for backend in ("native", "eager"):
        steps = descent(backend, 20, 3)
        with torch.no_grad():
            steps.stack.flat[1, 2] = torch.nan
        assert steps.log_probs(draws(1))[1].isnan().any()
        assert np.isnan(steps.advance(draws(1), np.array([0.01]))[0]).tolist() == [False, True, False]
