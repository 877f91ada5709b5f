"""Training: repeatable, stopped in time, and refused with one clear line where it cannot work."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from helpers.tiny_training import METHOD, OBJECTIVE, Watcher, bars, figures, model, posterior, settings, train, weights
from torchlgm import LGM, Posterior, baselines, exact, lbp, mean_field, trw, zoo
from torchlgm.errors import CheckpointError, DivergedError, TrainingError
from torchlgm.learn import (
    Likelihood,
    MomentMatching,
    Samples,
    evaluate_loss,
    fit,
    fit_seeds,
    mean_std,
    predict_log_proba,
    step_choice,
    trainer,
)
from torchlgm.mrf import MRF

pytestmark = pytest.mark.usefixtures("single_precision")


def test_same_seed_same_training():
    (a, first), (b, second), (c, other) = train(seed=1), train(seed=1), train(seed=2)
    assert torch.equal(weights(a), weights(b))
    assert figures(first) == figures(second)
    assert not torch.equal(weights(a), weights(c))
    assert [row["epoch"] for row in other.history] == [1, 2, 3, 4]


@pytest.mark.parametrize("method", [lbp(2), trw(2), mean_field(2, "sweep"), exact()], ids=["lbp", "trw", "mf", "exact"])
def test_learns(method):
    trained, result = train(method=method, epochs=15)
    assert result.history[-1]["train_loss"] < 0.5 * result.history[0]["train_loss"]
    assert result.best["valid_accuracy"] == 1.0
    loss, accuracy = evaluate_loss(trained, bars(20, seed=1))
    assert loss == pytest.approx(result.best_loss, rel=1e-5)  # `fit` leaves out messages that nobody reads
    assert accuracy == 1.0


def test_learns_by_moments_and_networks():
    _, result = train(method=lbp(3), objective=MomentMatching(), epochs=15)
    assert result.best["valid_accuracy"] == 1.0
    network = baselines.network("dense", (1, 3, 3), classes=2, hidden=6)
    result = fit(network, bars(), bars(20, seed=1), Likelihood(), settings(epochs=15))
    assert result.best["valid_accuracy"] == 1.0


def test_mean_losses_are_over_samples():
    """With almost no learning rate, the training loss of an epoch is that of the whole set, uneven batch included."""
    trained, result = train(learning_rate=1e-12, epochs=1)
    loss, _ = evaluate_loss(trained, bars())
    assert result.history[0]["train_loss"] == pytest.approx(loss, rel=1e-6)


@pytest.mark.parametrize("batch", [1, 45, 1000])
def test_any_batch_size(batch: int):
    _, result = train(batch_size=batch, epochs=1)
    assert math.isfinite(result.best_loss)


def _scripted(monkeypatch: pytest.MonkeyPatch, losses: list[float]) -> list[Tensor]:
    """Validation losses by script; returns the weights that were validated."""
    seen: list[Tensor] = []

    def validate(loop: Any) -> list[tuple[float, float]]:
        seen.append(weights(loop.training.model))
        return [(losses[len(seen) - 1], 0.5)]

    monkeypatch.setattr(trainer._Loop, "_validate", validate)
    return seen


def test_early_stopping_restores_the_best_weights(monkeypatch: pytest.MonkeyPatch):
    seen = _scripted(monkeypatch, [3.0, 2.0, 2.5, 1.0, 1.0, 1.2, 0.5])
    trained, result = train(epochs=7, patience=2)
    assert len(result.history) == 6
    assert (result.best_epoch, result.best_loss, result.best["valid_loss"]) == (4, 1.0, 1.0)
    assert torch.equal(weights(trained), seen[3])


def test_without_patience_all_epochs(monkeypatch: pytest.MonkeyPatch):
    seen = _scripted(monkeypatch, [1.0, 2.0, 3.0, 4.0, 5.0])
    trained, result = train(epochs=5, patience=None)
    assert (len(result.history), result.best_epoch) == (5, 1)
    assert torch.equal(weights(trained), seen[0])


def test_clip():
    def moved(clip: float | None) -> float:
        trained, _ = train(epochs=1, batch_size=1000, clip=clip, optimizer=lambda p: torch.optim.SGD(p, lr=1.0))
        return float((weights(trained) - weights(model())).norm())

    assert moved(None) > 0.02
    assert moved(0.01) == pytest.approx(0.01, rel=1e-3)
    assert moved(100.0) == moved(None)


def test_optimizer_and_scheduler_of_choice():
    rates = []

    class Remember(torch.optim.SGD):
        def step(self, closure=None):
            rates.append(self.param_groups[0]["lr"])
            return super().step(closure)

    train(
        epochs=3,
        batch_size=45,
        optimizer=lambda p: Remember(p, lr=0.8),
        scheduler=lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.5),
    )
    assert rates == [0.8, 0.4, 0.2]


def test_scheduler_that_looks_at_the_validation_loss(monkeypatch: pytest.MonkeyPatch):
    _scripted(monkeypatch, [1.0, 2.0, 2.0, 2.0])
    made = []

    def plateau(optimizer: torch.optim.Optimizer):
        made.append(optimizer)
        return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.1, patience=0)

    train(epochs=4, learning_rate=1.0, scheduler=plateau)
    assert made[0].param_groups[0]["lr"] == pytest.approx(1e-3)


class _Counts(Posterior):
    """Notes the share of missing entries of every batch, and the inputs of every validation."""

    def __init__(self) -> None:
        super().__init__(model(), METHOD)
        self.train_shares: list[float] = []
        self.valid: list[Tensor] = []

    def condition(self, x: Tensor, seen: Tensor | None = None) -> MRF:
        if self.training:
            self.train_shares.append(float(x.isnan().float().mean()))
        else:
            self.valid.append(x)
        return super().condition(x, seen)


@pytest.mark.parametrize(
    ("visible", "missing", "low", "high"),
    [("auto", 0.0, 0.0, 0.0), (None, 0.1, 0.05, 0.15), ("auto", 0.1, 0.3, 0.6), (0.25, 0.0, 0.7, 0.8)],
)
def test_hiding(visible, missing: float, low: float, high: float):
    counts = _Counts()
    how = settings(visible=visible, epochs=30, learning_rate=1e-6)
    fit(counts, bars(missing=missing), bars(20, seed=1), settings=how)
    assert low <= sum(counts.train_shares) / len(counts.train_shares) <= high
    assert len(counts.train_shares) == 5 * 30
    validated = counts.valid[-30:]
    assert len(counts.valid) == 33, "two checks of the data and one of the method came before"
    assert all(torch.equal(a.isnan(), validated[0].isnan()) for a in validated), "validation masks are fixed"
    assert bool(validated[0].isnan().any()) == (visible == 0.25 or (visible == "auto" and missing > 0))


def test_channels_of_a_pixel_are_hidden_together():
    from torchlgm.learn.masking import RandomMask

    x = RandomMask((0.5, 0.5))(torch.zeros(10, 3, 8, 8), torch.Generator().manual_seed(0)).isnan()
    assert torch.equal(x[:, 0], x[:, 1])
    assert 0.4 < x.float().mean() < 0.6


def test_data_that_does_not_fit_streams_to_the_same_weights(monkeypatch: pytest.MonkeyPatch):
    resident, _ = train(visible=0.5)
    for module in (trainer, step_choice):
        monkeypatch.setattr(module, "fits_on", lambda device, data: False)
    moves = []
    to = Tensor.to
    monkeypatch.setattr(Tensor, "to", lambda self, *a, **k: (moves.append(self.shape), to(self, *a, **k))[1])
    streamed, _ = train(visible=0.5)
    assert torch.equal(weights(streamed), weights(resident))
    assert (10, 1, 3, 3) in moves
    assert (45, 1, 3, 3) not in moves, "the whole of the data was moved"


def test_many_targets_with_missing_ones():
    """Each output node copies one condition."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(2, (80, 3), generator=generator).float()
    y = x.long()
    y[torch.rand(y.shape, generator=generator) < 0.2] = -1
    trained = LGM(zoo.conditional_rbm(3, 4, 3), generator=generator)
    posterior = Posterior(trained, lbp(3))
    result = fit(posterior, Samples(x[:60], y[:60]), Samples(x[60:], y[60:]), settings=settings(epochs=15))
    assert result.best["valid_accuracy"] > 0.95
    probs = torch.nn.functional.one_hot(x.long(), 2).float()
    probs[0, 0] = math.nan
    soft = Samples(x, probs)
    assert evaluate_loss(posterior, soft)[1] > 0.95


def test_quantised_inputs():
    graph = zoo.dense((1, 3, 3), (6,), 2, input_labels=4)
    trained = Posterior(LGM(graph, generator=torch.Generator().manual_seed(0)), lbp(2))
    result = fit(trained, bars(), bars(20, seed=1), settings=settings(epochs=15, visible=0.9))
    assert result.best["valid_accuracy"] > 0.9


def test_double_precision_model():
    trained = posterior().double()
    fit(trained, bars(), bars(20, seed=1), OBJECTIVE, settings(epochs=1))
    assert weights(trained).dtype == torch.float64


def test_predictions_leave_the_mode_alone():
    trained = posterior()
    trained.train()
    log_probs = predict_log_proba(trained, bars().inputs, batch_size=7)
    assert trained.training
    assert log_probs.shape == (45, 2)
    torch.testing.assert_close(log_probs, trained(bars().inputs))


def test_several_seeds(tmp_path: Path):
    runs = fit_seeds(posterior, bars(), bars(20, seed=1), OBJECTIVE, settings(), seeds=(0, 3), folder=tmp_path)
    assert [run.seed for run in runs] == [0, 3]
    assert {p.name for p in tmp_path.iterdir()} == {"seed-0", "seed-3"}
    alone = posterior(3)
    fit(alone, bars(), bars(20, seed=1), OBJECTIVE, settings(seed=3))
    assert torch.equal(weights(runs[1].predictor), weights(alone))
    again = fit_seeds(
        posterior, bars(), bars(20, seed=1), OBJECTIVE, settings(), seeds=(0, 3, 4), folder=tmp_path, resume=True
    )
    assert again[1].result.seconds == runs[1].result.seconds, "it was trained again"
    assert torch.equal(weights(again[1].predictor), weights(alone))
    accuracy = mean_std(run.result.best["valid_accuracy"] for run in again)
    assert accuracy.count == 3


def test_several_seeds_in_one_step():
    data = bars(), bars(20, seed=1)
    alone = fit_seeds(posterior, *data, OBJECTIVE, settings(), seeds=(1, 2))
    together = fit_seeds(posterior, *data, OBJECTIVE, settings(), seeds=(1, 2), together=True)
    for one, other in zip(alone, together, strict=True):
        assert one.seed == other.seed
        torch.testing.assert_close(weights(one.predictor), weights(other.predictor))
        assert one.result.best_loss == pytest.approx(other.result.best_loss)
        assert one.result.best.keys() == other.result.best.keys()
    with pytest.raises(TrainingError, match="follow one another"):
        fit_seeds(posterior, *data, OBJECTIVE, settings(), seeds=(0, 2), together=True)


class DivergesFromLargeEnergies(Likelihood):
    def loss(self, predictor: Any, x: Tensor, y: Tensor, complete: Tensor | None = None) -> Tensor:
        large = predictor.model.unary["hidden"].mean() > 5
        return super().loss(predictor, x, y, complete) * torch.where(large, math.nan, 1.0)


def test_seeds_are_trained_one_by_one_if_one_of_them_diverges(tmp_path: Path):
    def make(seed: int) -> Posterior:
        made = posterior(seed)
        if seed == 1:
            with torch.no_grad():
                made.model.unary["hidden"].fill_(10.0)
        return made

    data, objective = (bars(), bars()), DivergesFromLargeEnergies()
    with pytest.raises(DivergedError, match="the loss became nan"):
        fit_seeds(make, *data, objective, settings(), seeds=(0, 1), folder=tmp_path, together=True)
    assert {p.name for p in tmp_path.iterdir()} == {"seeds-0-1", "seed-0", "seed-1"}


def test_mean_std():
    assert str(mean_std([1.0, 2.0, 3.0])) == "2.0000 ± 1.0000 (n=3)"
    assert mean_std([0.5]).std == 0
    with pytest.raises(TrainingError, match="expected at least one"):
        mean_std([])
    for seeds in ((), (1, 1)):
        with pytest.raises(TrainingError, match="at least one, all different"):
            fit_seeds(posterior, bars(), bars(), OBJECTIVE, seeds=seeds)
    with pytest.raises(TrainingError, match=r"seeds=3; expected the seeds themselves, such as range\(3\)"):
        fit_seeds(posterior, bars(), bars(), OBJECTIVE, settings(), seeds=3)  # pyright: ignore[reportArgumentType]


def test_the_learning_rate_falls_along_a_half_cosine():
    rates = []

    class Rates(Watcher):
        def epoch(self, row):
            rates.append(optimizers[0].param_groups[0]["lr"])

    optimizers = []

    def optimizer(parameters):
        optimizers.append(torch.optim.SGD(parameters, lr=0.4))
        return optimizers[0]

    train(epochs=4, scheduler="cosine", optimizer=optimizer, reporters=[Rates(lambda *_: None)])
    half = 0.4 * 0.5 * (1 + 0.5**0.5)
    assert rates == pytest.approx([half, 0.2, 0.4 - half, 0.0])


def test_a_half_cosine_is_resumed_over_the_same_epochs_only(tmp_path):
    train(tmp_path, epochs=2, scheduler="cosine")
    with pytest.raises(CheckpointError, match="scheduler"):
        train(tmp_path, resume=True, epochs=3, scheduler="cosine")


def test_energies_that_nothing_could_be_inferred_from_end_a_training():
    made = posterior()
    before = weights(made)
    with pytest.raises(DivergedError, match="energies became too large to compute with in epoch 1; the model has"):
        fit(made, bars(), bars(20, seed=1), OBJECTIVE, settings(learning_rate=1e30), reporters=[])
    torch.testing.assert_close(weights(made), before)
    made(bars().inputs)
