"""Inference inside the transforms of PyTorch: compile, export, vmap, grad. Each gives what the plain call gives."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, jacrev, stack_module_state, vmap
from torch.testing import assert_close

import torchlgm as lgm
from torchlgm._utils.tracing import is_traced
from torchlgm.mrf import Clamp

METHODS = {"mean_field": lgm.mean_field(2), "lbp": lgm.lbp(3), "trw": lgm.trw(3), "sweep": lgm.trw(2, "sweep")}
KINDS = ("dense", "conv", "local")
BATCH = 3


def _graph(kind):
    if kind == "dense":
        return lgm.zoo.dense(6, (4,), 3)
    connect = lgm.Conv if kind == "conv" else lgm.Local
    layers = (lgm.Layer("inputs", (1, 5)), lgm.Layer("hidden", (2, 3)), lgm.Layer("classes", 1, 3))
    return lgm.Graph(layers, (connect("inputs", "hidden", 3, 2, ((1, 1),)), lgm.Dense("hidden", "classes")))


class Classifier(nn.Module):
    """What a user would compile or export: values `(B, *shape)` -> probabilities of the output `(B, 1, K)`."""

    def __init__(self, kind, method):
        super().__init__()
        self.lgm = lgm.LGM(_graph(kind), init="paper")
        self.method = method

    def forward(self, x):
        return lgm.infer(self.lgm, {"inputs": x}, self.method, want=("classes",))["classes"].probs


class SureClassifier(Classifier):
    """The same, with the promise that nothing is missing."""

    def forward(self, x):
        seen = Clamp(x.flatten(1).unsqueeze(-1))
        return lgm.infer(self.lgm, {"inputs": seen}, self.method, want=("classes",))["classes"].probs


def _values(kind, batch=BATCH):
    return torch.rand(batch, *_graph(kind).layers[0].sizes)


def _with_missing(kind):
    x = _values(kind)
    x[0].view(-1)[:2] = torch.nan
    return x


def _loss(probs):
    return -probs[:, 0, 1].log().mean()


def _step(model, x, run=None):
    """Probabilities, loss and every gradient of one training step."""

    def forward(x):
        probs = model(x)
        return probs, _loss(probs)

    probs, loss = (run(forward) if run else forward)(x)
    gradients = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True, materialize_grads=True)
    return probs, loss, *gradients


def _check_compiled(model, x, backend):
    torch.compiler.reset()
    compiled = _step(model, x, lambda f: torch.compile(f, fullgraph=True, backend=backend))
    assert_close(compiled, _step(model, x))


every_kind = pytest.mark.parametrize("kind", KINDS)
every_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
batching_warns = pytest.mark.filterwarnings("ignore:There is a performance drop")  # vmap of the gradient of unfold
inductor_warns = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")


@pytest.mark.parametrize(("kind", "method"), [("dense", "lbp"), ("conv", "trw"), ("local", "mean_field")])
def test_compile_in_one_graph(kind, method):
    """Dynamo and the autograd tracer; what comes after them knows nothing of us."""
    _check_compiled(Classifier(kind, METHODS[method]), _with_missing(kind), "aot_eager")


def test_compile_nothing_missing():
    _check_compiled(SureClassifier("conv", METHODS["trw"]), _values("conv"), "aot_eager")


@inductor_warns
def test_compile_to_machine_code():
    _check_compiled(SureClassifier("dense", lgm.lbp(2)), _values("dense"), "inductor")


@pytest.mark.slow
@every_kind
@every_method
def test_compile_everything_in_one_graph(kind, method):
    _check_compiled(Classifier(kind, method), _with_missing(kind), "aot_eager")


@pytest.mark.slow
@inductor_warns
@every_kind
def test_compile_every_layout_to_machine_code(kind):
    _check_compiled(Classifier(kind, METHODS["trw"]), _with_missing(kind), "inductor")


@pytest.mark.slow
def test_compile_a_tolerance_between_graphs():
    """Looking for convergence cannot be one graph, but must not fail."""
    torch.compiler.reset()
    model = Classifier("dense", lgm.lbp(20, tolerance=1e-6))
    x = _with_missing("dense")
    with torch.no_grad():
        assert_close(torch.compile(model, backend="eager")(x), model(x))


@pytest.mark.each
@every_kind
@every_method
def test_export_with_any_batch(kind, method):
    model = Classifier(kind, method)
    program = torch.export.export(model, (_values(kind),), dynamic_shapes=({0: torch.export.Dim("batch")},))
    for x in (_values(kind, 2), _values(kind, 5), _with_missing(kind)):
        assert_close(program.module()(x), model(x))


@every_kind
@every_method
def test_vmap_over_stacked_parameters(kind, method):
    ensemble = [Classifier(kind, method) for _ in range(3)]
    parameters, buffers = stack_module_state(ensemble)  # pyright: ignore[reportArgumentType]
    for x in (_values(kind), _with_missing(kind)):
        together = vmap(lambda p, b, x=x: functional_call(ensemble[0], (p, b), (x,)))(parameters, buffers)
        assert_close(together, torch.stack([model(x) for model in ensemble]))


@every_kind
@every_method
def test_vmap_over_samples(kind, method):
    model = Classifier(kind, method)
    x = _with_missing(kind)
    assert_close(vmap(lambda one: model(one.unsqueeze(0)).squeeze(0))(x), model(x))


@batching_warns
@every_kind
@every_method
def test_gradient_of_each_sample(kind, method):
    """vmap of grad, against one backward pass for each sample."""
    model = Classifier(kind, method)
    x = _with_missing(kind)
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def loss(p, one):
        return _loss(functional_call(model, p, (one.unsqueeze(0),)))

    each = vmap(grad(loss), in_dims=(None, 0))(parameters, x)
    for i in range(BATCH):
        model.zero_grad()
        _loss(model(x[i : i + 1])).backward()
        for name, p in model.named_parameters():
            assert_close(each[name][i], torch.zeros_like(p) if p.grad is None else p.grad)


@batching_warns
@every_kind
@every_method
def test_jacobian_in_the_evidence(kind, method):
    model = Classifier(kind, method)
    x = _values(kind)
    expected = torch.autograd.functional.jacobian(model, x)
    assert_close(jacrev(model)(x), expected)
    assert expected.abs().max() > 1e-3


def test_log_z_and_edges_in_transforms():
    model = lgm.LGM(_graph("conv"), init="paper")
    x = _with_missing("conv")

    def answers(x):
        beliefs = lgm.infer(model, {"inputs": x}, lgm.trw(3))
        return beliefs.log_z, beliefs.edges("hidden-classes")

    plain = answers(x)
    torch.compiler.reset()
    assert_close(torch.compile(answers, fullgraph=True, backend="eager")(x), plain)
    each = vmap(lambda one: answers(one.unsqueeze(0)))(x)
    assert_close([out.squeeze(1) for out in each], list(plain))


def test_wrong_evidence_is_still_found_where_values_can_be_seen():
    """A transform over parameters leaves the evidence in sight."""
    ensemble = [Classifier("dense", METHODS["lbp"]) for _ in range(2)]
    parameters, buffers = stack_module_state(ensemble)  # pyright: ignore[reportArgumentType]
    x = _values("dense") + 1
    with pytest.raises(lgm.errors.EvidenceError, match=r"must lie in \[0, 1\]"):
        vmap(lambda p, b: functional_call(ensemble[0], (p, b), (x,)))(parameters, buffers)


def test_hidden():
    seen = []
    x, outside = torch.rand(2), torch.rand(2)

    def look(x):
        seen.append((is_traced(x), is_traced(outside)))
        return x.sum()

    look(x)
    vmap(look)(x)
    grad(look)(x)
    assert seen == [(False, False), (True, False), (True, False)]
    assert torch.compile(lambda x: x + is_traced(x), fullgraph=True, backend="eager")(torch.zeros(1)) == 1
