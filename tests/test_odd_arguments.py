"""Odd uses of the Python interface: each has an answer, or an error that says what was expected."""

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

import torchlgm as lgm
from torchlgm import baselines, data, interop, joint, learn, metrics, viz
from torchlgm.errors import (
    CheckpointError,
    DataError,
    EvidenceError,
    GraphError,
    InferenceError,
    TooLargeError,
    TrainingError,
)
from torchlgm.inference.run import plan_of
from torchlgm.mrf import Clamp
from torchlgm.networks import Network, read_uai, write_uai

X = torch.tensor([[0.0, 1.0, 0.5, 0.2], [1.0, 0.0, 0.1, 0.9]])
LABELS = torch.tensor([0, 1])


def _model():
    return lgm.LGM(lgm.zoo.dense(inputs=4, hidden=[3], classes=3))


def _network():
    return Network({"a": ["no", "yes"]}, [((0,), np.log([2.0, 2.0]))], [0])


def _windows(kernel, padding, right):
    layers = [lgm.Layer("a", (1, 5)), lgm.Layer("b", (1, right))]
    return lgm.LGM(lgm.Graph(layers, [lgm.Conv("a", "b", kernel=kernel, padding=padding)]))


@pytest.mark.parametrize(
    "make",
    [
        lambda: lgm.zoo.dense(inputs=10**12),
        lambda: lgm.Layer("a", (10**6, 10**6)),
        lambda: lgm.Layer("a", 1, labels=10**12),
        lambda: lgm.LGM(lgm.zoo.dense(inputs=10**8, hidden=[10**6])),
        lambda: lgm.LGM(lgm.Graph([lgm.Layer(n, 50, 10**4) for n in "ab"], [lgm.Dense("a", "b")])),
        lambda: _windows(10**9, 10**9, 10**9 + 6),
        lambda: _windows(3, 10**10, 2 * 10**10 + 3),
        lambda: lgm.LGM(lgm.Graph([lgm.Layer("a", 20_000)], [lgm.Dense("a", "a")])),
        lambda: lgm.LGM(lgm.zoo.grid(10**4, 10**5)),
        lambda: lgm.LGM(lgm.Graph([lgm.Layer("a", (1, 10**4, 10**4))], [lgm.Conv("a", "a", kernel=9999)])),
        lambda: Network({"a": range(10**9)}, []),
        lambda: _network().sample(10**12),
    ],
)
def test_too_large_is_said_before_anything_is_allocated(make):
    with pytest.raises(TooLargeError):
        make()


@pytest.mark.filterwarnings("ignore::torchlgm.errors.GraphWarning")
def test_much_padding_takes_no_time():
    graph = _windows(3, 10**5, 2 * 10**5 + 3).graph
    assert graph.edges == 15


@pytest.mark.parametrize("device", ["nonsense", "cuda:99", 1.5])
def test_devices_that_are_not_there(device, tmp_path):
    saved = lgm.save(_model(), tmp_path / "model")
    with pytest.raises(GraphError, match="cannot be used here"):
        lgm.LGM(lgm.zoo.dense(inputs=4), device=device)
    with pytest.raises(CheckpointError, match="cannot be used here"):
        lgm.load(saved, device=device)
    with pytest.raises(TrainingError, match="cannot be used here"):
        learn.fit(lgm.Posterior(_model()), (X, LABELS), (X, LABELS), device=device)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu():
    with pytest.raises(GraphError, match="device='cuda' cannot be used here"):
        lgm.LGM(lgm.zoo.dense(inputs=4), device="cuda")


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("form", ["to_sparse", "to_sparse_csr", "quantized", "nested", "meta"])
def test_other_kinds_of_tensors(form):
    if form == "quantized":
        x = torch.quantize_per_tensor(X.float(), 0.1, 0, torch.quint8)
    elif form == "nested":
        x = torch.nested.nested_tensor([X[0], X[1][:2]], layout=torch.jagged)
    else:
        x = X.to("meta") if form == "meta" else getattr(X, form)()
    for ask in (lambda: lgm.infer(_model(), {"inputs": x}), lambda: lgm.Posterior(_model())(x)):
        with pytest.raises(EvidenceError, match=r"expected a plain tensor|no data"):
            ask()


@pytest.mark.parametrize("bad", [torch.nan, -torch.inf])
def test_energies_of_networks_that_are_none(bad):
    energies = [torch.tensor([0.5, bad])]
    for ask in (_network().posteriors, _network().log_evidence):
        with pytest.raises(DataError, match="have NaN or -inf among them"):
            ask({}, energies=energies)


@pytest.mark.parametrize("init", ["5", 5, [1], None, {}])
def test_what_is_no_init(init):
    with pytest.raises(GraphError, match="known: default, paper, zero"):
        lgm.LGM(lgm.zoo.dense(inputs=4), init=init)


@pytest.mark.parametrize("bad", ["a", None, [1], 1j, torch.nan, torch.inf, -1, 10**400, torch.tensor(1.0)])
def test_what_is_no_standard_deviation(bad):
    with pytest.raises(GraphError, match="expected a standard deviation"):
        lgm.Init(bad)
    with pytest.raises(GraphError, match="expected a standard deviation"):
        lgm.Init(1.0, unary=bad)


@pytest.mark.parametrize(
    "options",
    [
        {"strides": (0, 2)},
        {"strides": 2},
        {"kernels": (5, 0)},
        {"channels": (6,)},
        {"padding": -1},
        {"inputs": (28, 28)},
    ],
)
def test_windows_of_no_size(options):
    with pytest.raises(GraphError, match="expected"):
        lgm.zoo.windows("conv", **options)


@pytest.mark.parametrize("name", ["a\0b", "a" * 5000], ids=["NUL", "long"])
def test_names_that_no_file_has(name):
    for error, use in (
        (CheckpointError, lambda: lgm.load(name)),
        (CheckpointError, lambda: lgm.save(_model(), name)),
        (CheckpointError, lambda: lgm.LGMClassifier.load(name)),
        (DataError, lambda: data.load(name)),
        (DataError, lambda: data.load_table(name + ".csv")),
        (DataError, lambda: data.read_idx(name)),
        (DataError, lambda: data.write_idx(name, np.zeros(3, np.uint8))),
        (DataError, lambda: read_uai(name)),
        (DataError, lambda: write_uai(_model(), name)),
        (DataError, lambda: viz.save(Figure(), name + ".png")),
        (DataError, lambda: interop.export(lgm.Posterior(_model()), name + ".pt2")),
        (DataError, lambda: interop.export_web(lgm.Posterior(_model()), name + ".safetensors")),
        (TrainingError, lambda: learn.CsvLog(name)),
        (TrainingError, lambda: learn.TensorBoardLog(name)),
        (TrainingError, lambda: learn.fit(lgm.Posterior(_model()), (X, LABELS), (X, LABELS), folder=name)),
    ):
        with pytest.raises(error, match="not a path that can be used"):
            use()


@pytest.mark.parametrize("want", [5, [5], [["classes"]]])
def test_want_names_layers(want):
    with pytest.raises(InferenceError, match="want="):
        lgm.infer(_model(), {"inputs": X}, want=want)


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize(
    "method",
    [
        lambda t: lgm.lbp(t, schedule="parallel"),
        lambda t: lgm.trw(t, damping=0.3),
        lambda t: lgm.mean_field(t, damping=0.5),
        lambda t: lgm.mean_field(t, "sweep"),
        lambda t: lgm.trw(t, "sequential", divide_by_rho=False),
    ],
)
def test_long_runs_in_parts_answer_alike(method, backend, own, monkeypatch):
    """As one plan of all iterations does, gradients included; the size of plans does not depend on the iterations."""
    model, x = _model(), {"inputs": X.masked_fill(X == 0.5, torch.nan)}
    monkeypatch.setattr("torchlgm.inference.run.LONG", 10**9)
    expected = _answer(model, x, method(40), backend, own)
    monkeypatch.setattr("torchlgm.inference.run.LONG", 7)
    plan_of.cache_clear()
    for found, wanted in zip(_answer(model, x, method(40), backend, own), expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)


def _answer(model, x, method, backend, own):
    with lgm.backend(backend):
        if own:
            beliefs = lgm.infer(model, x, method)
            value = beliefs.log_z.sum() if method.rule.divide_by_rho else beliefs["classes"].probs[..., 0].sum()
            answers = [*(beliefs[name].probs for name in beliefs), beliefs.residual]
        else:
            value = lgm.Posterior(model, method).label_nll(x["inputs"], torch.tensor([0, 1]))
            answers = [value]
        return [*answers, *torch.autograd.grad(value, list(model.parameters()))]


def test_plans_do_not_grow_with_iterations():
    plan_of.cache_clear()
    with torch.no_grad():
        few, many = (lgm.infer(_model_at(0), {"inputs": X}, lgm.lbp(t))["classes"].probs for t in (300, 3000))
    torch.testing.assert_close(few, many, rtol=0, atol=1e-12)
    assert plan_of.cache_info().currsize <= 6


def _model_at(seed):
    torch.manual_seed(seed)
    return _model()


@pytest.mark.parametrize("value", [torch.nan, 0.0, -1, torch.inf, 10**400, "1"])
def test_what_is_no_temperature(value):
    with pytest.raises(InferenceError, match=r"temperature=.*; expected a positive number"):
        lgm.Posterior(_model()).temperature = value


Q = torch.full((2, 4, 1), 0.5)


@pytest.mark.parametrize(
    "clamp",
    [
        Clamp(Q.to("meta")),
        Clamp(Q.to_sparse()),
        Clamp(Q + 0j),
        Clamp(Q, [[True] * 4] * 2),  # pyright: ignore
    ],
)
def test_clamps_of_other_kinds(clamp):
    with pytest.raises(EvidenceError, match="a Clamp of layer 'inputs'"):
        lgm.infer(_model(), {"inputs": clamp})


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_clamps_are_computed_with_in_the_dtype_of_the_model(dtype):
    model, ones = _model(), torch.ones_like(Q)
    found, expected = (lgm.infer(model, {"inputs": Clamp(q)})["classes"].probs for q in (ones.to(dtype), ones))
    assert torch.equal(found, expected)


def test_messages_that_are_none():
    wrong = {
        hop: message._replace(inflow=message.inflow * torch.nan)
        for hop, message in lgm.infer(_model()).messages.items()
    }
    with pytest.raises(InferenceError, match="NaN or infinite"):
        lgm.infer(_model(), start=wrong)


@pytest.mark.parametrize("bad", [0, -1, 1.5, "a", None])
def test_batches_of_no_size(bad):
    posterior = lgm.Posterior(_model())
    for ask in (
        lambda: learn.predict_proba(posterior, X, bad),
        lambda: learn.evaluate_loss(posterior, (X, LABELS), bad),
        lambda: learn.CapturedPredictor(posterior, bad),
    ):
        with pytest.raises(InferenceError, match=r"batch_size=.*; expected a whole number >= 1"):
            ask()


@pytest.mark.parametrize(
    "use",
    [
        lambda: lgm.infer(3),  # pyright: ignore
        lambda: lgm.infer(_model().condition()),  # pyright: ignore
        lambda: lgm.solve(_model(), lgm.lbp()),  # pyright: ignore
        lambda: lgm.log_prob(_model(), {}, None),  # pyright: ignore
        lambda: lgm.lbp(schedule=[]),  # pyright: ignore
        lambda: lgm.lbp(product=[]),  # pyright: ignore
        lambda: next(lgm.gibbs(_model().condition(), None, {"inputs": LABELS})),
        lambda: lgm.LGM(None),  # pyright: ignore
        lambda: lgm.LGM(lgm.zoo.rbm(2, 2), generator=3),  # pyright: ignore
        lambda: lgm.LGM(lgm.zoo.rbm(2, 2), dtype="float32"),  # pyright: ignore
        lambda: lgm.Graph(None, None),  # pyright: ignore
        lambda: lgm.Graph(["a"], []),  # pyright: ignore
        lambda: lgm.Graph.from_json("[" * 10**5),
        lambda: lgm.Graph.from_json(None),  # pyright: ignore
        lambda: lgm.zoo.windows_for("a", 3),  # pyright: ignore
        lambda: baselines.network(input_shape=(0, 4, 4)),
        lambda: baselines.network(hidden="a"),  # pyright: ignore
        lambda: data.hide(X, "a"),  # pyright: ignore
        lambda: data.hide(X, 0.5, 3),  # pyright: ignore
        lambda: data.requantise(X, "a"),  # pyright: ignore
        lambda: data.threshold(X, torch.nan),
        lambda: data.smooth_labels(LABELS, 2, "a"),  # pyright: ignore
        lambda: data.random_split(data.Data(X.float(), LABELS, ("a", "b")), "a", 0),  # pyright: ignore
        lambda: data.random_split(data.Data(X.float(), LABELS, ("a", "b")), 0.5, "a"),  # pyright: ignore
        lambda: joint.CalibrationRows(None, None),  # pyright: ignore
        lambda: lgm.acquire(lgm.Posterior(_model()), X * torch.nan, loss="a"),
        lambda: lgm.Acquisition(lgm.Posterior(_model())).run(X, [0, 9]),
        lambda: lgm.Acquisition(lgm.Posterior(_model())).run(X, [0.5, torch.nan]),
        lambda: lgm.Acquisition(lgm.Posterior(_model())).run(X, None),
        lambda: lgm.Acquisition(lgm.Posterior(_model())).next(None),
        lambda: lgm.Acquisition(lgm.Posterior(_model())).next(X[0] * torch.nan, None),  # pyright: ignore
        lambda: _model().set_start("a", X, X),
        lambda: _model().set_start("inputs-hidden", None, None),  # pyright: ignore
        lambda: metrics.calibration_error(Q[0, :, :1].expand(4, 2), torch.zeros(4), 10**9),
        lambda: metrics.calibration_chance(Q[0, :, :1].expand(4, 2), draws=0),
        lambda: learn.mean_std([torch.nan, 1.0]),
        lambda: learn.Likelihood("a"),  # pyright: ignore
        lambda: learn.fit_seeds(None, X, X),  # pyright: ignore
        lambda: learn.fit(lgm.Posterior(_model()), (X, LABELS), (X, LABELS), settings=learn.Settings(scheduler=id)),  # pyright: ignore
        lambda: learn.fit(lgm.Posterior(_model()), (X.to("meta"), LABELS), (X, LABELS)),
        lambda: interop.export_web([], "a.safetensors"),
        lambda: interop.export_web(None, "a.safetensors"),  # pyright: ignore
    ],
)
def test_arguments_of_other_types(use):
    with pytest.raises(lgm.LGMError):
        use()


@pytest.mark.parametrize("card", [{"accuracy": torch.nan}, {"accuracy": [torch.inf]}, [1], "text"])
def test_cards_that_json_cannot_hold(card, tmp_path):
    with pytest.raises(CheckpointError, match="JSON"):
        lgm.save(_model(), tmp_path / "model", card)
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("chosen", [3, "a", [9], [[0]]])
def test_what_names_no_column(chosen):
    with pytest.raises(ValueError, match="does not name columns"):
        lgm.LGMClassifier(categorical_features=chosen, epochs=1).fit(X.numpy(), [0, 1])
