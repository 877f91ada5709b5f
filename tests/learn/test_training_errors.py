"""Trainings that cannot start or go on: one clear line, and what was good before stays good."""

import errno
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from helpers.tiny_training import METHOD, OBJECTIVE, bars, model, posterior, settings, train, weights
from torchlgm import (
    LGM,
    Dense,
    Graph,
    Layer,
    Posterior,
    exact,
    lbp,
    mean_field,
    zoo,
)
from torchlgm.errors import CheckpointError, DataError, DivergedError, EvidenceError, InferenceError, TrainingError
from torchlgm.interop import Head, export, export_web
from torchlgm.learn import (
    Ensemble,
    JointLikelihood,
    Likelihood,
    Objective,
    Samples,
    Settings,
    TopLayer,
    evaluate_loss,
    fit,
    fit_seeds,
    predict_log_proba,
    pretrain,
)
from torchlgm.learn.learner import Learner
from torchlgm.learn.step_choice import capture_obstacle

pytestmark = pytest.mark.usefixtures("single_precision")


@dataclass(frozen=True)
class _Breaks(Objective):
    """Fine until its loss has been asked for `after` times."""

    value: float
    after: int
    calls: list[int]

    def __repr__(self) -> str:
        return "breaks"

    def loss(self, predictor: Any, x: Tensor, y: Tensor, complete: Tensor | None = None) -> Tensor:
        self.calls.append(len(x))
        return OBJECTIVE.loss(predictor, x, y) * (self.value if len(self.calls) > self.after else 1.0)


class _BreaksInEvaluation(Posterior):
    """Answers are NaN after `good` ones."""

    good = 3  # two checks of the data, and the first validation

    def log_probs(self, x: Tensor, seen: Tensor | None = None) -> Tensor:
        self.calls.append(len(x))
        return super().log_probs(x, seen) * (1.0 if len(self.calls) <= self.good else math.nan)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_non_finite_loss_stops_with_the_last_good_weights(tmp_path: Path, value: float):
    good, _ = train(epochs=2)
    trained = posterior()
    data = bars(), bars(20, seed=1)
    with pytest.raises(
        TrainingError, match=r"loss became (nan|inf) in epoch 3; .* weights of epoch 2 .* learning rate"
    ):
        fit(trained, *data, _Breaks(value, 12, []), settings(), tmp_path)
    assert torch.equal(weights(trained), weights(good))
    resumed = posterior()
    fit(resumed, *data, _Breaks(value, 1000, []), settings(), tmp_path, resume=True)
    assert torch.equal(weights(resumed), weights(train()[0])), "the state on disk was not good"


def test_non_finite_validation_loss(tmp_path: Path):
    trained = _BreaksInEvaluation(model(), METHOD)
    trained.calls = []
    with pytest.raises(TrainingError, match="loss became nan in epoch 2; the model has the weights of epoch 1 again"):
        fit(trained, bars(), bars(20, seed=1), OBJECTIVE, settings(), tmp_path)
    assert torch.equal(weights(trained), weights(train(epochs=1)[0]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epochs": 0}, "epochs=0; expected a whole number >= 1"),
        ({"batch_size": 2.5}, "batch_size=2.5"),
        ({"valid_batch_size": -1}, "valid_batch_size=-1"),
        ({"patience": 0}, "patience=0; expected a whole number >= 1"),
        ({"seed": -1}, "seed=-1; expected a whole number >= 0"),
        ({"learning_rate": 0.0}, "learning_rate=0.0; expected a positive number"),
        ({"learning_rate": math.nan}, "learning_rate=nan"),
        ({"clip": -1.0}, "clip=-1.0; expected a positive number"),
        ({"capture": "maybe"}, "capture='maybe'; expected 'auto'"),
        ({"scheduler": "step"}, "scheduler='step'; expected 'cosine'"),
        ({"scheduler": 3}, "scheduler=3; expected 'cosine'"),
        ({"optimizer": "adam"}, "optimizer='adam'; expected a function of the parameters"),
        ({"visible": "some"}, "visible='some'; expected a share"),
        ({"visible": 0.0}, "visible=0.0; expected shares with 0 < low <= high <= 1"),
        ({"visible": (0.5, 0.2)}, r"visible=\(0.5, 0.2\)"),
        ({"visible": (0.3, 0.5, 1.0)}, r"expected a share, a range \(low, high\)"),
        ({"visible": [0.3, "1"]}, r"expected a share, a range \(low, high\)"),
        ({"learning_rate": "0.1"}, "learning_rate='0.1'; expected a positive number"),
        ({"epochs": True}, "epochs=True; expected a whole number"),
        ({"seed": 2**45}, "seed=35184372088832; expected at most"),
    ],
)
def test_wrong_settings(change: dict[str, Any], message: str):
    with pytest.raises(TrainingError, match=message):
        Settings(**change)


def test_numbers_and_lists_of_other_kinds_are_settings_too():
    made = Settings(epochs=np.int64(3), seed=np.uint8(4), learning_rate=np.float32(0.5), visible=[0.3, 1.0])
    assert (made.epochs, made.seed, made.visible_range) == (3, 4, (0.3, 1.0))
    assert (type(made.epochs), type(made.learning_rate)) == (int, float)


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [(torch.optim.LBFGS, "LBFGS asks for the loss several times"), (lambda p: None, "optimizer= returned None")],
)
def test_optimizers_that_are_none(optimizer: Any, message: str):
    with pytest.raises(TrainingError, match=message):
        fit(posterior(), bars(), bars(), OBJECTIVE, settings(optimizer=optimizer), reporters=[])


def test_a_frozen_model():
    with pytest.raises(TrainingError, match="no parameter of the predictor is to be trained"):
        fit(posterior().requires_grad_(False), bars(), bars(), OBJECTIVE, settings(), reporters=[])


def _one_class() -> Any:
    data = bars()
    return replace(data, targets=torch.zeros_like(data.targets))


def _other_shape() -> Any:
    data = bars()
    return replace(data, inputs=data.inputs[..., :2])


@pytest.mark.parametrize(
    ("data", "changes", "error", "message"),
    [
        (_one_class, {}, DataError, "at least two classes"),
        (_other_shape, {}, DataError, r"bars: inputs shaped \(1, 3, 2\) do not fit layer 'inputs'"),
        (
            lambda: replace(bars(), targets=bars().targets + 1, classes=tuple("abc")),
            {},
            DataError,
            "label 2 does not fit",
        ),
        (lambda: Samples(bars().inputs, torch.zeros(45, 1)), {}, DataError, "all 45 known targets are the same"),
        (
            lambda: Samples(bars().inputs, torch.rand(45, 1, 3)),
            {},
            DataError,
            r"taken for probabilities \(floats\), do not fit 1 target nodes with 2 labels each",
        ),
        (
            lambda: Samples(bars().inputs, torch.full((45,), -1)),
            {},
            DataError,
            "no target is known, all 45 are missing",
        ),
        (
            lambda: Samples(bars().inputs, torch.randn(45, 1, 2)),
            {},
            DataError,
            "taken for probabilities, but go from -",
        ),
        (
            lambda: Samples(bars().inputs, torch.tensor([-1, 1, 1]).repeat(15)),
            {},
            DataError,
            "all 30 known targets are the same",
        ),
        (bars, {"capture": "always"}, TrainingError, "cannot be captured: it needs one CUDA device"),
        (
            lambda: bars(missing=0.2),
            {"predictor": posterior().for_complete_inputs()},
            TrainingError,
            "entries are missing or hidden, but the predictor's inputs are declared complete",
        ),
    ],
    ids=[
        "one-class",
        "shape",
        "label",
        "constant",
        "probabilities",
        "unknown",
        "negative",
        "one-known",
        "capture",
        "missing",
    ],
)
def test_refused_before_anything_is_written(tmp_path: Path, data, changes, error, message):
    changes = dict(changes)
    predictor = changes.pop("predictor", None) or posterior()
    with pytest.raises(error, match=message):
        fit(predictor, data(), bars(20, seed=1), OBJECTIVE, settings(**changes), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_steps_that_cannot_be_captured():
    def obstacle(predictor: nn.Module, objective: Objective = OBJECTIVE, **changes: Any) -> str | None:
        options = {"lr": torch.tensor(0.1), "capturable": True, **changes}
        return capture_obstacle(Learner(predictor, objective), torch.optim.Adam(model().parameters(), **options))

    class Looks(Likelihood):
        capturable = False

    assert obstacle(posterior()) is None
    assert obstacle(nn.Linear(2, 2)) is None
    for method in (exact(), lbp(2, tolerance=1e-3)):
        for predictor in (posterior(method=method), nn.Sequential(nn.Identity(), Head(posterior(method=method)))):
            assert "depends on values" in str(obstacle(predictor))
    assert "depends on values" in str(obstacle(posterior(), Looks()))
    for changes in ({"lr": 0.1}, {"capturable": False, "lr": 0.1}):
        assert "a tensor as its learning rate" in str(obstacle(posterior(), **changes))


def test_validation_data_of_another_shape():
    with pytest.raises(DataError, match="do not fit layer"):
        fit(posterior(), bars(), _other_shape(), OBJECTIVE, settings())


def test_unwritable_folder(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot write to"):
        train(tmp_path / "file" / "run")


def _full(*args: object, **kwargs: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("where", ["torchlgm.learn.state.write_tensors", "torchlgm.learn.state.as_json"])
def test_full_disk_keeps_the_state_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str):
    train(tmp_path, epochs=2)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with monkeypatch.context() as patch:
        patch.setattr(where, _full)
        with pytest.raises(CheckpointError, match=r"cannot write to .*No space left on device"):
            train(tmp_path, resume=True)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
    resumed, _ = train(tmp_path, resume=True)
    assert torch.equal(weights(resumed), weights(train()[0]))


def test_disk_that_fills_up_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from torchlgm.learn import state

    write, calls = state.write_tensors, []
    with monkeypatch.context() as patch:
        patch.setattr(state, "write_tensors", lambda *a: calls.append(1) or (_full() if len(calls) > 3 else write(*a)))
        with pytest.raises(CheckpointError, match="No space left on device"):
            train(tmp_path)
    assert len(list(tmp_path.glob("*"))) == 2, "one state and the log"
    resumed, result = train(tmp_path, resume=True)
    assert torch.equal(weights(resumed), weights(train()[0]))
    assert len(result.history) == 4


def test_log_that_cannot_be_written(tmp_path: Path):
    (tmp_path / "log.csv").mkdir()
    with pytest.raises(TrainingError, match=r"cannot write to .*log.csv"):
        train(tmp_path)


def test_resume_needs_a_folder():
    with pytest.raises(TrainingError, match="pass folder="):
        train(resume=True)


@pytest.mark.parametrize("wrong", [None, (1, 2, 3), torch.rand(3)])
def test_data_of_another_kind(wrong: Any):
    with pytest.raises(TrainingError, match=r"train must be Data, Samples, a pair \(inputs, targets\)"):
        fit(posterior(), wrong, bars(), OBJECTIVE)
    with pytest.raises(TrainingError, match=r"valid must be Data, Samples, a pair \(inputs, targets\)"):
        fit(posterior(), bars(), wrong, OBJECTIVE)


def test_a_pair_of_what_is_no_array():
    with pytest.raises(DataError, match=r"train: expected inputs \(N, ...\) and targets \(N, ...\)"):
        fit(posterior(), (1, 2), bars(), OBJECTIVE)


@pytest.mark.parametrize("label", [-2, 2])
def test_labels_that_do_not_exist(label):
    data = Samples(bars().inputs, bars().targets.clone())
    data.targets[3] = label
    with pytest.raises(DataError, match=rf"label {label} does not fit target nodes with 2 labels, expected 0 to 1, or"):
        fit(posterior(), data, bars(), OBJECTIVE, settings(epochs=1), reporters=[])


BRIGHT = (255 * bars().inputs).to(torch.uint8)


def _fit(inputs: Any, predictor: Posterior | None = None) -> None:
    data = Samples(inputs, bars().targets)
    fit(predictor or posterior(), data, data, OBJECTIVE, settings(epochs=1), reporters=[])


@pytest.mark.parametrize("inputs", [BRIGHT, BRIGHT.numpy(), BRIGHT.numpy().astype(">u2"), BRIGHT.int()])
def test_integer_images_are_no_labels(inputs: Any):
    with pytest.raises(DataError, match=r"labels, 0 to 1 in layer 'inputs', got 0 to 2\d\d; pass .* as x / 255"):
        _fit(inputs)
    with pytest.raises(DataError, match="got 0 to 2"):
        fit(posterior(), bars(), Samples(inputs, bars().targets), OBJECTIVE, settings(epochs=1), reporters=[])


def test_integers_are_labels_of_the_input_layer():
    labels = (bars().inputs > 0.5).long()
    for inputs in (labels, labels.bool(), labels.to(torch.uint8)):
        _fit(inputs)
    with pytest.raises(DataError, match="got -1 to 0"):
        _fit(-labels)
    four = Posterior(LGM(zoo.dense((1, 3, 3), (6,), 2, input_labels=4)), lbp(2))
    _fit(3 * labels, four)
    with pytest.raises(DataError, match="labels, 0 to 3 in layer 'inputs', got 0 to 4"):
        _fit(4 * labels, four)


def test_any_integers_may_go_to_a_network():
    network = torch.nn.Sequential(torch.nn.Embedding(256, 2), torch.nn.Flatten(), torch.nn.Linear(18, 2))
    data = Samples(BRIGHT.int(), bars().targets)
    fit(network, data, data, OBJECTIVE, settings(epochs=1), reporters=[])


def test_values_outside_of_0_to_1():
    for outside in (255 * bars().inputs, -bars(missing=0.2).inputs, bars().inputs.log()):
        with pytest.raises(DataError, match=r"expected inputs in \[0, 1\] or NaN \(missing\), got .* to .*; scale"):
            Samples(outside, bars().targets)
    with pytest.raises(EvidenceError, match="0 to 1 in layer 'inputs'"):
        evaluate_loss(posterior(), Samples(BRIGHT, bars().targets))


@pytest.mark.parametrize("turned", [np.asarray, lambda x: np.asarray(x)[::-1], lambda x: np.asarray(x).astype(">f4")])
def test_arrays_are_samples_too(turned: Any):
    data = bars()
    samples = Samples(turned(data.inputs), turned(data.targets))
    torch.testing.assert_close(samples.inputs, torch.as_tensor(turned(data.inputs).astype("f4")))
    assert Samples(data.inputs, data.targets.numpy().astype("i4")).targets.dtype == torch.int64


def test_what_is_masked_is_missing():
    inputs = np.ma.masked_array([[0.9, 0.1], [0.2, 0.3]], mask=[[0, 1], [0, 0]])
    samples = Samples(inputs, np.ma.masked_array([1, 0], mask=[False, True]))
    assert samples.inputs.isnan().tolist() == [[False, True], [False, False]]
    assert samples.targets.tolist() == [1, -1]
    for kind in (bool, np.uint8):
        assert Samples(inputs, np.ma.masked_array([1, 0], mask=[False, True], dtype=kind)).targets.tolist() == [1, -1]
    with pytest.raises(DataError, match="masked integers, which cannot be missing"):
        Samples(inputs.astype(int), [0, 1])


def test_tensors_of_any_strides_are_trained_on(tmp_path: Path):
    """A last axis of 1 may have any stride."""
    column = Samples(bars().inputs, bars().targets[None].T)
    fit(posterior(), column, column, OBJECTIVE, settings(epochs=1), tmp_path, reporters=[])


def test_a_network_is_asked_before_training_as_it_answers():
    """Of one sample, batch normalisation can say nothing in training mode."""
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(9, 4), torch.nn.BatchNorm1d(4))
    network.append(torch.nn.Linear(4, 2))
    fit(network, bars(), bars(), OBJECTIVE, settings(epochs=1), reporters=[])
    assert network[2].num_batches_tracked == -(-len(bars()) // settings().batch_size)


def test_samples_and_data_go_into_a_loader():
    for data in (bars(), Samples(bars().inputs, bars().targets)):
        x, y = next(iter(DataLoader(data, batch_size=9)))
        assert torch.equal(x, bars().inputs[:9])
        assert torch.equal(y, bars().targets[:9])


def test_arrays_are_predicted_and_half_precision_is_trained_on():
    data = bars()
    asked = predict_log_proba(posterior(), data.inputs.numpy())
    assert torch.equal(asked, predict_log_proba(posterior(), data.inputs))
    rough = Samples(data.inputs.bfloat16(), data.targets)
    fit(posterior(), rough, rough, OBJECTIVE, settings(epochs=1), reporters=[])


@pytest.mark.parametrize(
    ("inputs", "message"),
    [("inputs", "inputs of type str are no numbers"), (3, "got"), (torch.zeros(45, 9) * 1j, "complex")],
)
def test_samples_are_numbers(inputs: Any, message: str):
    with pytest.raises(DataError, match=message):
        Samples(inputs, bars().targets)


@pytest.mark.parametrize("targets", [-torch.ones(45, dtype=torch.long), torch.full((45, 1, 2), math.nan)])
def test_targets_that_are_all_missing(targets: Tensor):
    nothing = Samples(bars().inputs, targets)
    with pytest.raises(DataError, match="no target is known, all 45 are missing"):
        fit(posterior(), bars(), nothing, OBJECTIVE, settings(epochs=1), reporters=[])


def test_layers_may_have_any_names():
    layers = [Layer("image", (1, 3, 3)), Layer("parts", 4), Layer("number", 1)]
    other = LGM(Graph(layers, [Dense("image", "parts"), Dense("parts", "number")]))
    _fit(bars().inputs, Posterior(other, lbp(1)))
    pretrain(TopLayer(other), bars().inputs, settings(epochs=1))


@pytest.mark.parametrize("wrong", [model(), None, OBJECTIVE])
def test_predictors_of_another_kind(wrong: Any):
    with pytest.raises(TrainingError, match=r"is no predictor; expected lgm\.Posterior\(model, method\), an Ensemble"):
        fit(wrong, bars(), bars())


def test_objectives_of_another_kind():
    with pytest.raises(TrainingError, match=r"expected an instance of learn\.Objective, such as learn\.Likelihood\(\)"):
        fit(posterior(), bars(), bars(), settings())  # pyright: ignore[reportArgumentType]
    with pytest.raises(TrainingError, match="JointLikelihood needs a Posterior, got Linear"):
        fit(nn.Linear(9, 2), bars(), bars(), JointLikelihood())


def test_settings_of_another_kind():
    wrong: Any = {"epochs": 1}
    with pytest.raises(TrainingError, match=r"settings=\{'epochs': 1\}; expected learn.Settings"):
        fit(posterior(), bars(), bars(), OBJECTIVE, wrong)
    with pytest.raises(TrainingError, match=r"expected learn.Settings"):
        fit_seeds(posterior, bars(), bars(), OBJECTIVE, wrong)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("method", [lbp(1, "parallel"), lbp(1, "sequential"), mean_field(1, "parallel")], ids=str)
def test_evidence_that_does_not_reach_the_target(method: Any, missing: bool):
    def made(seed: int = 0, **changes: Any) -> Posterior:
        one = posterior(seed, replace(method, **changes))
        return one if missing else one.for_complete_inputs()

    with pytest.warns(UserWarning, match=r"'inputs' do not reach 'classes' by .*, so nothing is learned") as warned:
        _fit(bars().inputs, made())
    assert warned[0].filename == __file__
    with pytest.warns(UserWarning, match="do not reach"):
        fit(Ensemble([made(), made(1)]), bars(), bars(), OBJECTIVE, settings(epochs=1), reporters=[])
    _fit(bars().inputs, made(iterations=2))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e30])
def test_energies_that_are_not_finite_are_named_before_anything_is_trained(value: float, tmp_path: Path):
    """Also those of inputs that are always seen, which no loss would show."""
    for make in (posterior, lambda: Ensemble([posterior(0), posterior(1)])):
        trained = make()
        first = trained if isinstance(trained, Posterior) else trained.members()[1]
        with torch.no_grad():
            first.model.unary["inputs"].view(-1)[3] = value
        trained = trained if isinstance(trained, Posterior) else Ensemble([posterior(0), first])
        with pytest.raises(TrainingError, match=r"cannot be trained further: .* in parameter 'unary.inputs'"):
            fit(trained, bars(), bars(20), settings=settings(), reporters=[])
    with pytest.raises(TrainingError, match=r"cannot be trained further: .* in parameter 'unary.inputs'"):
        pretrain(first, bars().inputs, settings())
    for name in ("a.pt2", "a.onnx"):
        with pytest.raises(InferenceError, match=r"cannot be exported: .* in parameter 'unary.inputs'"):
            export(first, tmp_path / name)
    with pytest.raises(InferenceError, match=r"cannot be exported: .* in parameter 'unary.inputs'"):
        export_web(first, tmp_path / "a.safetensors")
    assert not list(tmp_path.iterdir())


def test_pretraining_that_diverges():
    trained = posterior()

    def spoil() -> None:
        trained.model.unary["hidden"].data.fill_(math.nan)

    with pytest.raises(DivergedError, match="'inputs' and 'hidden' became infinite or NaN in epoch 1"):
        pretrain(trained, bars().inputs, settings(), after_step=spoil)
