"""The compiled kernels for the CPU against plain PyTorch: values and all gradients, for every layout and rule."""

import ctypes
import shutil

import pytest
import torch
from torch import nn
from torch.func import functional_call, vmap
from torch.testing import assert_close

import torchlgm as lgm
from torchlgm.errors import InferenceError
from torchlgm.inference.engine import Engine
from torchlgm.mrf import Clamp
from torchlgm.ops import backend as choice
from torchlgm.ops.backend import backend, kernels
from torchlgm.ops.linear import linear
from torchlgm.ops.native import compiler
from torchlgm.ops.native import launcher as cpu

pytestmark = pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="needs a C compiler")

WINDOW = {"kernel": 3, "stride": 2, "padding": 1}


def _graph(connection, left=(1, 5, 5), right=(2, 3, 3), labels=(2, 2)):
    layers = [lgm.Layer("a", left, labels=labels[0]), lgm.Layer("b", right, labels=labels[1]), lgm.Layer("c", 9)]
    return lgm.Graph([*layers, lgm.Layer("d", 1, labels=4)], [connection, lgm.Dense("b", "c"), lgm.Dense("c", "d")])


GRAPHS = {
    "dense": _graph(lgm.Dense("a", "b"), 11, 70),
    "conv": _graph(lgm.Conv("a", "b", **WINDOW)),
    "local": _graph(lgm.Local("a", "b", **WINDOW)),
    "sparse": _graph(lgm.Sparse("a", "b", ((3, 2), (0, 0), (2, 2), (0, 2), (1, 1))), 4, 3),
    "labels": _graph(lgm.Local("a", "b", **WINDOW), labels=(3, 4)),
    "loop": lgm.Graph(
        [lgm.Layer(n, 5) for n in "abcd"],
        [lgm.Dense(x, y) for x, y in (("a", "b"), ("b", "c"), ("c", "d"), ("b", "d"))],
    ),
}
METHODS = {
    "trw": lgm.trw(4),
    "lbp": lgm.lbp(3, schedule="sweep"),
    "max": lgm.lbp(3, product="max"),
    "parallel": lgm.trw(3, schedule="parallel"),
    "mean field": lgm.mean_field(3),
}


def _model(graph, spread=1.0):
    torch.manual_seed(1)
    model = lgm.LGM(graph)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(spread * torch.randn_like(p))
    return model


def _evidence(model, batch, missing):
    torch.manual_seed(2)
    layer = model.graph.layers[0]
    shape = (batch, *layer.sizes)
    x = torch.rand(shape) if layer.labels == 2 else torch.randint(0, layer.labels, shape).to(torch.get_default_dtype())
    if missing:
        x[torch.rand(shape) < 0.4] = torch.nan
    return {layer.name: x}


def _answers(model, method, batch=5, missing=False, name="native"):
    """Beliefs of all layers and the gradients of all parameters, by name."""
    evidence = _evidence(model, batch, missing)
    with backend(name):
        beliefs = lgm.infer(model, evidence, method)
        found = {layer.name: beliefs[layer.name].probs for layer in model.graph.layers if missing or layer.name != "a"}
        loss = sum((x * torch.arange(x.numel()).reshape(x.shape).cos()).sum() for x in found.values())
        known = dict(model.named_parameters())
        grads = torch.autograd.grad(loss, list(known.values()), allow_unused=True)
    return found | {f"gradient of {k}": g for k, g in zip(known, grads, strict=True) if g is not None}


def _check(model, method, tolerance, **case):
    found, expected = _answers(model, method, **case), _answers(model, method, **case, name="eager")
    assert list(found) == list(expected)
    for key, x in expected.items():
        size = max(1.0, float(x.detach().abs().max()))
        assert_close(found[key], x, rtol=0, atol=tolerance * size, msg=lambda m, key=key: f"{key}: {m}")


@pytest.mark.pairs
@pytest.mark.parametrize("missing", [False, True], ids=["whole", "missing"])
@pytest.mark.parametrize("batch", [1, 5, 20])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("graph", GRAPHS)
def test_values_and_gradients(graph, method, batch, missing):
    _check(_model(GRAPHS[graph]), METHODS[method], 1e-12, batch=batch, missing=missing)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("graph", GRAPHS)
def test_single_precision(graph, method, single_precision):
    _check(_model(GRAPHS[graph], 0.5), METHODS[method], 3e-5, batch=9, missing=True)


@pytest.mark.parametrize("graph", ["dense", "labels"])
@pytest.mark.parametrize("spread", [60.0, 400.0])
def test_large_energies(graph, spread):
    """Beyond what exponentials may be multiplied for, with pinned nodes on top."""
    _check(_model(GRAPHS[graph], spread), lgm.trw(3), 1e-10, missing=True)


@pytest.mark.parametrize("spread", [30.0, 300.0, 3000.0])
@pytest.mark.parametrize("graph", ["local", "labels"])
def test_single_precision_stays_finite(graph, spread, single_precision):
    for x in _answers(_model(GRAPHS[graph], spread), lgm.lbp(4), missing=True).values():
        assert x.isfinite().all()


@pytest.mark.parametrize(("energy", "tolerance"), [(-30.0, 1e-3), (0.0, 3e-6), (30.0, 1e-3)])
def test_messages_of_one_sweep_add_up_however_large_their_sum(energy, tolerance, single_precision):
    """Several of them are multiplied before a logarithm is taken; a product of all has no room in a float."""
    layers = [lgm.Layer("a", 4), lgm.Layer("b", 100), lgm.Layer("c", 1, labels=3)]
    graph = lgm.Graph(layers, [lgm.Dense("a", "b"), lgm.Dense("b", "c")])
    model = lgm.LGM(graph, scale="energy", generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        model.get_parameter("table.b-c").add_(energy)
    x = torch.rand(20, 4)
    with backend("native"):
        found = lgm.Posterior(model, lgm.lbp(1))(x)
    with backend("eager"):
        expected = lgm.Posterior(model.double(), lgm.lbp(1))(x.double())
    assert expected.min() < -5
    assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)


def test_more_samples_than_a_block_holds(monkeypatch):
    monkeypatch.setattr(cpu, "SAMPLES", 16)
    for graph in ("local", "labels"):
        _check(_model(GRAPHS[graph]), lgm.trw(3), 1e-12, batch=37, missing=True)


def test_threads_change_nothing(monkeypatch):
    model = _model(GRAPHS["labels"])
    monkeypatch.setattr(cpu, "SHARE", 1)
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        try:
            found.append(_answers(model, lgm.trw(4), batch=20, missing=True))
        finally:
            torch.set_num_threads(1)
    for key, x in found[0].items():
        assert torch.equal(x, found[1][key]), key


@pytest.mark.parametrize(
    "method",
    [
        lgm.trw(5, gradient="checkpoint"),
        lgm.lbp(200, tolerance=1e-13),
        lgm.lbp(200, tolerance=1e-13, gradient="implicit"),
    ],
    ids=["checkpoint", "tolerance", "implicit"],
)
def test_ways_to_run(method):
    _check(_model(GRAPHS["local"], 0.3), method, 1e-11, batch=6)


class _Answer(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, evidence):
        x = lgm.infer(self.model, evidence, lgm.trw(3))["d"].probs
        return (x * torch.arange(x.numel()).reshape(x.shape).cos()).sum()


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # of the plain code
def test_models_side_by_side():
    """torch.func.vmap over stacked parameters."""
    asked = _Answer(_model(GRAPHS["labels"]))
    evidence = {"a": _evidence(asked.model, 3, False)["a"].long()}
    found = {}
    for name in ("eager", "native"):
        own = {k: torch.stack([p.detach(), p.detach() / 2]).requires_grad_() for k, p in asked.named_parameters()}
        with backend(name):
            values = vmap(lambda one: functional_call(asked, one, (evidence,)))(own)
            grads = torch.autograd.grad(values.sum(), list(own.values()), allow_unused=True)
        found[name] = [values, *[g for g in grads if g is not None]]
    for a, b in zip(found["native"], found["eager"], strict=True):
        assert_close(a, b, rtol=1e-11, atol=1e-12)


def test_gradients_of_gradients():
    """By way of plain PyTorch."""
    model = _model(GRAPHS["dense"])
    x = _evidence(model, 3, False)["a"]
    table = model.table["b-c"]
    found = []
    for name in ("eager", "native"):
        with backend(name):
            probs = lgm.infer(model, {"a": x}, lgm.trw(3))["d"].probs
            (first,) = torch.autograd.grad(probs[:, 0, 1].sum(), table, create_graph=True)
            found.append(torch.autograd.grad(first.square().sum(), table)[0])
    assert_close(*found, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("graph", ["dense", "conv", "local", "sparse", "labels"])
@pytest.mark.parametrize("side", [0, 1])
def test_the_linear_op(graph, side):
    model = _model(GRAPHS[graph])
    layout, table = model.layouts["a-b"], model.table["a-b"]
    q = torch.rand(3, layout.nodes[side], table.shape[-2 + side], requires_grad=True)
    found = linear_with_gradients("native", layout, table, q, side)
    for a, b in zip(found, linear_with_gradients("eager", layout, table, q, side), strict=True):
        assert_close(a, b, rtol=1e-12, atol=1e-12)


def linear_with_gradients(name, layout, table, q, side):
    with backend(name):
        out = linear(layout, table, q, side, -2.0)
        return out, *torch.autograd.grad(out.square().sum(), (table, q))


class TestChoice:
    x = torch.zeros(2)

    def test_auto_takes_kernels_for_much_work(self):
        assert kernels(self.x, work=choice.ENOUGH)
        assert not kernels(self.x, work=choice.ENOUGH - 1)
        with backend("native"):
            assert kernels(self.x, work=1)

    @pytest.mark.parametrize(
        ("method", "batch", "by_kernels"),
        [
            (lgm.lbp(1, "sweep"), 1, False),
            (lgm.lbp(1, "sweep"), 2000, True),
            (lgm.trw(5), 1, True),  # many messages, each of which costs something
            (lgm.trw(5, tolerance=1e-3), 1, False),  # one iteration at a time
        ],
    )
    def test_auto_takes_kernels_for_many_messages(self, method, batch, by_kernels):
        model = lgm.LGM(lgm.zoo.dense(4, (3,), 3))
        mrf = model.condition({"inputs": Clamp(torch.zeros(batch, 4, 1))})
        assert (Engine(mrf, method).backend is not None) == by_kernels

    def test_other_numbers_and_transforms(self):
        assert not kernels(self.x.bfloat16())
        with backend("native"), pytest.raises(InferenceError, match=r"float32 or float64, not torch\.float16"):
            kernels(self.x.half())
        seen = []
        torch.func.grad(lambda x: (seen.append(kernels(x)), x.sum())[1])(self.x)
        assert seen == [None]

    def test_without_a_compiler(self, monkeypatch):
        monkeypatch.setenv("PATH", "")
        monkeypatch.delenv("CC", raising=False)
        self._check_refusal("no C compiler was found")

    def test_a_compiler_that_fails(self, monkeypatch, tmp_path):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        monkeypatch.setattr(compiler, "FLAGS", ("--no-such-flag",))
        self._check_refusal("could not compile native.c: .*no-such-flag")
        assert not list(tmp_path.rglob("*.so"))

    def _check_refusal(self, message):
        try:
            choice._why_not.cache_clear()
            cpu.library.cache_clear()
            assert not kernels(self.x)
            with backend("native"), pytest.raises(InferenceError, match=message):
                kernels(self.x)
        finally:
            choice._why_not.cache_clear()
            cpu.library.cache_clear()

    def test_a_job_of_another_size_is_refused(self, monkeypatch):
        """A field on one side alone would have the C code read and write where it must not."""

        class Longer(cpu._Job):
            _fields_ = (("more", ctypes.c_int64),)

        monkeypatch.setattr(cpu, "_Job", Longer)
        with pytest.raises(InferenceError, match=r"job_size\(\) is \d+ bytes in native\.c, and \d+ in"):
            cpu.library.__wrapped__(torch.float32)

    def test_compiled_once(self, monkeypatch, tmp_path, caplog):
        caplog.set_level("INFO", logger="torchlgm")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        monkeypatch.setattr(compiler, "FLAGS", ("-O0", "-Wno-psabi"))
        build = cpu.library.__wrapped__
        build(torch.float32)
        assert "to compile native.c, once for this machine" in caplog.messages[0]
        assert "compiled native.c in" in caplog.messages[1]
        (made,) = (tmp_path / "torchlgm" / "kernels").iterdir()
        monkeypatch.setattr(compiler, "compile_file", None)
        build(torch.float32)
        assert made.name.endswith(".so")

    def test_nowhere_to_keep_it(self, monkeypatch, tmp_path):
        (tmp_path / "file").touch()
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
        monkeypatch.setattr(compiler, "FLAGS", ("-O0", "-Wno-psabi"))
        assert cpu.library.__wrapped__(torch.float32).send


FAMILIES = {
    "lbp": lgm.lbp(3),
    "trw": lgm.trw(3),
    "mean_field": lgm.mean_field(3),
    "max": lgm.lbp(3, product="max"),
}


@pytest.mark.parametrize("size", [0.5, 500.0])
@pytest.mark.parametrize("rows", [1, 9])
@pytest.mark.parametrize("method", FAMILIES.values(), ids=FAMILIES)
@pytest.mark.parametrize("graph", [GRAPHS["dense"], GRAPHS["labels"]], ids=["binary", "labels"])
@pytest.mark.usefixtures("single_precision")
def test_nan_stays_nan(graph, method, rows, size):
    """A training that diverges is noticed by its loss: bits of NaN must not become those of a number."""
    model = lgm.LGM(graph, lgm.Init(size), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        model.table["b-c"][0] = torch.nan  # to all nodes of "c"
    x = torch.rand(rows, *graph.layers[0].sizes) if graph.layers[0].labels == 2 else torch.ones(rows, 1, 5, 5)
    posterior = lgm.Posterior(model, method, "a", "d")
    for name in ("native", "eager"):
        with backend(name), torch.no_grad():
            assert posterior.log_probs(x).isnan().all()
