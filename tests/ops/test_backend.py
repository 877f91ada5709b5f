"""Which code computes messages is chosen by a `with` block, and a choice that cannot be met raises."""

import os
from importlib.util import find_spec

import pytest
import torch

import torchlgm as lgm
from torchlgm.errors import InferenceError
from torchlgm.ops import backend as choice
from torchlgm.ops.backend import backend, fused
from torchlgm.ops.linear import linear

X = torch.zeros(2)
LITTLE = {"work": 1.0}


@pytest.fixture
def model():
    return lgm.LGM(lgm.zoo.dense(3, (2,), 3))


@pytest.fixture
def unlimited(monkeypatch):
    """As if kernels could run here."""
    monkeypatch.setattr(choice, "_lacking", lambda x, kernels: None)


def test_an_unknown_name_is_refused():
    with pytest.raises(InferenceError, match=r"backend='cuda'; known: auto, eager, triton, native"), backend("cuda"):
        pass
    assert not fused(X, **LITTLE)


def test_an_unknown_name_in_the_environment_is_refused():
    with pytest.raises(InferenceError, match=r"TORCHLGM_BACKEND='cuda'; known: auto, eager, triton, native"):
        choice._known("cuda", "TORCHLGM_BACKEND")


def test_the_former_choice_comes_back(unlimited):
    assert not fused(X, **LITTLE)
    with backend("triton"):
        assert fused(X, **LITTLE)
        with backend("eager"):
            assert not fused(X, **LITTLE)
        assert fused(X, **LITTLE)
    assert not fused(X, **LITTLE)


def test_the_former_choice_comes_back_after_an_exception(unlimited):
    with backend("triton"):
        with pytest.raises(ZeroDivisionError), backend("eager"):
            raise ZeroDivisionError
        assert fused(X, **LITTLE)
    with pytest.raises(ZeroDivisionError), backend("triton"):
        raise ZeroDivisionError
    assert not fused(X, **LITTLE)


def test_auto_is_eager_on_a_cpu_where_there_is_little_to_do(unlimited):
    with backend("triton"), backend("auto"):
        assert not fused(X, **LITTLE)
        assert fused(X, work=1e9)
        assert choice.launcher(X).__name__ == "torchlgm.ops.cpu"


def test_triton_that_is_not_installed(model, monkeypatch):
    monkeypatch.setattr(choice, "_installed", lambda: False)
    for evidence in ({}, {"pixels": torch.rand(2, 3)}):
        with backend("triton"), pytest.raises(InferenceError, match="triton is not installed; use backend='auto'"):
            lgm.infer(model, evidence)


@pytest.mark.skipif(not find_spec("triton"), reason="needs triton")
@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="interpreted kernels run on a CPU")
def test_tensors_on_a_cpu(model):
    table = model.table["pixels-hidden"]
    with backend("triton"):
        with pytest.raises(InferenceError, match="kernels need tensors on a GPU, not on cpu"):
            lgm.infer(model, {})
        with pytest.raises(InferenceError, match="kernels need tensors on a GPU, not on cpu"):
            linear(model.layouts["pixels-hidden"], table, torch.rand(2, 3, 1), 0)


def test_damping_has_no_kernel(model, unlimited):
    with backend("triton"), pytest.raises(InferenceError, match="was asked for, but its kernels do not damp"):
        lgm.infer(model, {}, lgm.lbp(2, damping=0.5))


def test_compiled_code_has_no_kernel(monkeypatch):
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    with backend("triton"), pytest.raises(InferenceError, match=r"torch.compile and torch.export take the plain code"):
        fused(X, **LITTLE)


def test_the_linear_op_without_kernels(model):
    layout, table, q = model.layouts["pixels-hidden"], model.table["pixels-hidden"], torch.rand(2, 3, 1)
    assert torch.equal(linear(layout, table, q, 0, -2.0), -2.0 * layout.linear(table, q, 0))


@pytest.mark.skipif(find_spec("triton") is None, reason="needs triton")
def test_kernels_are_compiled_ahead_instead_of_launched():
    from torchlgm.ops import gpu

    made = []

    class Kernel:
        def __getitem__(self, grid):
            return lambda *arguments, **options: made.append(("launched", grid, arguments, options))

        def warmup(self, *arguments, grid, **options):
            made.append(("compiled", grid, arguments, options))

    belief, labels = torch.zeros(1, 4, 1, 2), torch.zeros(1, 4, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu.kernels, "score", Kernel())
        with choice.compiling_ahead():
            gpu.score(belief, labels)
            assert not made
        (how, grid, arguments, _), *more = made
        assert (how, grid, more) == ("compiled", (1, 1), [])
        assert arguments[:4] == (torch.float64, torch.float64, torch.float64, torch.int64)
        gpu.score(belief, labels)
        assert [how for how, *_ in made] == ["compiled", "launched"]
