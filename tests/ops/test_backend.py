"""Which code computes messages is chosen by a `with` block, and a choice that cannot be met raises."""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from threading import Barrier

import pytest
import torch

import torchlgm as lgm
from torchlgm.errors import InferenceError
from torchlgm.ops import backend as choice
from torchlgm.ops.backend import backend, kernels
from torchlgm.ops.linear import linear

X = torch.zeros(2)
LITTLE = {"work": 1.0}


@pytest.fixture
def model():
    return lgm.LGM(lgm.zoo.dense(3, (2,), 3))


@pytest.fixture
def unlimited(monkeypatch):
    """As if kernels could run here."""
    monkeypatch.setattr(choice, "_lacking", lambda x, wanted, constants: None)


def test_an_unknown_name_is_refused():
    with pytest.raises(InferenceError, match=r"backend='cuda'; known: auto, eager, triton, native"), backend("cuda"):
        pass
    assert not kernels(X, **LITTLE)


def test_an_unknown_name_in_the_environment_is_refused():
    with pytest.raises(InferenceError, match=r"TORCHLGM_BACKEND='cuda'; known: auto, eager, triton, native"):
        choice._checked("cuda", "TORCHLGM_BACKEND")


def test_the_former_choice_comes_back(unlimited):
    assert not kernels(X, **LITTLE)
    with backend("triton"):
        assert kernels(X, **LITTLE)
        with backend("eager"):
            assert not kernels(X, **LITTLE)
        assert kernels(X, **LITTLE)
    assert not kernels(X, **LITTLE)


def test_the_former_choice_comes_back_after_an_exception(unlimited):
    with backend("triton"):
        with pytest.raises(ZeroDivisionError), backend("eager"):
            raise ZeroDivisionError
        assert kernels(X, **LITTLE)
    with pytest.raises(ZeroDivisionError), backend("triton"):
        raise ZeroDivisionError
    assert not kernels(X, **LITTLE)


def test_auto_is_eager_on_a_cpu_where_there_is_little_to_do(unlimited):
    with backend("triton"), backend("auto"):
        assert not kernels(X, **LITTLE)
        assert kernels(X, work=1e9)
        assert kernels(X).name == "native"


def test_triton_that_is_not_installed(model, monkeypatch):
    monkeypatch.setattr(choice, "_installed", lambda: False)
    for evidence in ({}, {"inputs": torch.rand(2, 3)}):
        with backend("triton"), pytest.raises(InferenceError, match="triton is not installed; use backend='auto'"):
            lgm.infer(model, evidence)


@pytest.mark.skipif(not find_spec("triton"), reason="needs triton")
@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="interpreted kernels run on a CPU")
def test_tensors_on_a_cpu(model):
    table = model.table["inputs-hidden"]
    with backend("triton"):
        with pytest.raises(InferenceError, match="kernels need tensors on a GPU, not on cpu"):
            lgm.infer(model, {})
        with pytest.raises(InferenceError, match="kernels need tensors on a GPU, not on cpu"):
            linear(model.layouts["inputs-hidden"], table, torch.rand(2, 3, 1), 0)


def test_compiled_code_has_no_kernel(monkeypatch):
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    with backend("triton"), pytest.raises(InferenceError, match=r"torch.compile and torch.export take the plain code"):
        kernels(X, **LITTLE)


def test_the_linear_op_without_kernels(model):
    layout, table, q = model.layouts["inputs-hidden"], model.table["inputs-hidden"], torch.rand(2, 3, 1)
    assert torch.equal(linear(layout, table, q, 0, -2.0), -2.0 * layout.linear(table, q, 0))


def test_every_thread_has_a_choice_of_its_own(unlimited):
    """As trainings side by side do: neither sees what the other has chosen, whoever comes first."""
    both = Barrier(2, timeout=30)

    def seen(name):
        with backend(name):
            both.wait()
            return choice.chosen()

    with backend("eager"), ThreadPoolExecutor(2) as pool:
        assert list(pool.map(seen, ["triton", "native"])) == ["triton", "native"]
        assert pool.submit(choice.chosen).result() == choice._DEFAULT
        assert choice.chosen() == "eager"


def test_every_task_has_a_choice_of_its_own(unlimited):
    async def seen(name):
        with backend(name):
            await asyncio.sleep(0.01)
            return choice.chosen()

    async def both():
        return await asyncio.gather(seen("triton"), seen("native"))

    assert asyncio.run(both()) == ["triton", "native"]


def test_a_fallback_is_logged_once(monkeypatch, caplog):
    monkeypatch.setattr(choice, "_lacking", lambda x, wanted, constants: "there is no compiler")
    choice._log_fallback.cache_clear()
    with backend("auto"), caplog.at_level("INFO", logger="torchlgm"):
        assert kernels(X) is kernels(X) is None
    assert caplog.messages == ["plain PyTorch computes the messages instead of backend native: there is no compiler"]


several_at_once = pytest.mark.skipif(
    find_spec("triton") is None or not hasattr(import_module("triton"), "AsyncCompileMode"), reason="needs triton 3.5"
)


class Kernel:
    """Remembers what is done with it."""

    def __init__(self, name, done):
        self.name, self.done = name, done

    def __getitem__(self, grid):
        return lambda *arguments, **options: self.done.append((self.name, "launched", arguments))

    def warmup(self, *arguments, grid, **options):
        self.done.append((self.name, "compiled", arguments))


@several_at_once
def test_kernels_are_compiled_ahead_instead_of_launched(unlimited, monkeypatch):
    from torchlgm.ops.triton import launcher as gpu

    done = []
    names = {"send", "send_backward", "pack", "score", "add_up"}
    for name in names:
        monkeypatch.setattr(gpu.kernels, name, Kernel(name, done))
    model = lgm.LGM(lgm.zoo.dense((1, 3, 3), (6,), 4))
    posterior = lgm.Posterior(model, lgm.lbp(2))

    def step():
        with backend("triton"):
            posterior.label_nll(torch.zeros(3, 1, 3, 3), torch.zeros(3, dtype=torch.long)).backward()

    with choice.compiling_ahead():
        step()
        assert not done
    gathered = [(name, how) for name, how, _ in done]
    assert {*gathered} == {(name, "compiled") for name in names}
    for _, _, arguments in done:
        every = [one for x in arguments for one in (x if isinstance(x, tuple) else (x,))]
        assert not any(isinstance(x, torch.Tensor) for x in every)
    done.clear()
    step()
    assert [(name, "compiled") for name, how, _ in done if how == "launched"] == gathered


@pytest.mark.skipif(not find_spec("triton"), reason="needs triton")
def test_kernels_are_loaded_before_anybody_knows_of_them():
    from torchlgm.ops.triton.precompile import Loading

    done = []

    class Compiled:
        @property
        def run(self):
            done.append("loaded")

    def compile_kernel():
        done.append("compiled")
        return kernel

    kernel = Compiled()
    with ThreadPoolExecutor(1) as pool:
        assert Loading(pool).submit(compile_kernel).result() is kernel
        assert done == ["compiled", "loaded"]


@several_at_once
def test_nothing_is_compiled_ahead_of_work_that_fails(unlimited, monkeypatch):
    from torchlgm.ops.triton import launcher as gpu
    from torchlgm.ops.triton import precompile as calls

    done = []
    monkeypatch.setattr(gpu.kernels, "score", Kernel("score", done))

    def fail():
        gpu.score(torch.zeros(1, 4, 1, 2), torch.zeros(1, 1, 1, 2), torch.zeros(1, 4, 1), calls.gathering.get())
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), choice.compiling_ahead():
        fail()
    assert calls.gathering.get() is None
    assert not done
