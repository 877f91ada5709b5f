"""One experiment, from its settings to a trained model and its figures: all that uses `torchlgm.learn`."""

import math
import platform
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

import torchlgm as lgm
from experiments.paper.cells import Experiment
from experiments.paper.sources import Parts, first
from experiments.paper.store import Run
from experiments.pool import Watch
from torchlgm import LGM, Graph, Init, Method, Posterior, lbp, learn, mean_field, metrics, trw, zoo
from torchlgm.baselines import network
from torchlgm.data import Data
from torchlgm.errors import CheckpointError
from torchlgm.inference import Exact

METHODS = {"lbp": lbp, "trw": trw, "mf": mean_field, "published trw": partial(trw, divide_by_rho=False)}
STARTS = {
    "paper": Init(table=1.0, unary=1.0, scale="energy"),
    "default": Init(table=1.0, scale="balanced"),
    "weak": Init(table=0.1, scale="balanced"),
    "mild": Init(table=0.3, scale="balanced"),
    "strong": Init(table=1.0, scale="balanced"),
    "paper from data": Init(table=1.0, unary=1.0, scale="energy"),
    "rho": Init(table=1.0, unary=1.0, scale="rho"),
    "small": Init(table=0.1, scale="energy"),  # for contrastive divergence
}
FROM_DATA = (
    "weak",
    "mild",
    "strong",
    "paper from data",
)  # where inputs are missing, their unaries are taken from the data
COUNTED = 10_000  # images from which the inputs' unaries are taken
TRAIN_SCORED = 10_000  # training images that are scored too
_GLOBAL_RANDOM = threading.Lock()  # networks are drawn from it


# From an experiment to what is trained


def make_graph(e: Experiment) -> Graph:
    if e.model == "dense":
        return zoo.dense((1, 28, 28), e.hidden_nodes, 10, e.input_labels, e.hidden_labels)
    return zoo.windows(e.model, input_labels=e.input_labels, first_labels=e.first_labels)


def make_start(e: Experiment) -> Init:
    if e.start == "colours":  # N(0, 1) for two labels, weaker for more
        std = math.sqrt(2 / e.input_labels)
        return Init(table=std, unary=std, scale="energy")
    return STARTS[e.start]


def make_method(e: Experiment) -> Method:
    return METHODS[e.method](e.iterations, e.schedule, damping=e.damping)


def make_model(e: Experiment, seed: int, train: Data) -> nn.Module:
    """The model before training, on the device of the data."""
    device = train.inputs.device
    if e.learner == "network":
        with _GLOBAL_RANDOM, torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return network(e.model, activation=e.activation, mask_channel=e.mask_channel).to(device)  # pyright: ignore
    model = LGM(make_graph(e), make_start(e), generator=torch.Generator().manual_seed(seed)).to(device)
    if e.visible is not None and e.start in FROM_DATA:
        learn.start_from_data(model, model.graph.layers[0].name, train.inputs[:COUNTED])
    return model


def make_predictor(e: Experiment, model: nn.Module) -> nn.Module:
    """What is trained and predicts: a network itself, a graphical model by the method of the experiment."""
    if not isinstance(model, LGM):
        return model
    predictor = learn.TopLayer(model) if e.learner == "cd" else Posterior(model, make_method(e))
    return predictor if e.visible is not None else predictor.for_complete_inputs()


def make_objective(e: Experiment) -> learn.Objective:
    if e.learner == "cd":
        return learn.Likelihood()
    if e.gradient == "analytic":
        return learn.MomentMatching()
    if e.fill > 0:
        return learn.JointLikelihood(e.fill, e.smoothing)
    return learn.Likelihood(e.smoothing)


def make_settings(e: Experiment, seed: int) -> learn.Settings:
    return learn.Settings(
        epochs=e.epochs,
        batch_size=e.batch,
        learning_rate=e.learning_rate,
        optimizer=partial(_adamw, e) if e.weight_decay else None,
        patience=e.patience,
        seed=seed,
        visible=None if e.fixed_masks else e.visible,
        scheduler="cosine" if e.cosine else None,
        valid_batch_size=valid_batch(e),
    )


def _adamw(e: Experiment, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """In the form that a captured step on a GPU needs."""
    parameters = list(parameters)
    cuda = parameters[0].is_cuda
    rate = torch.tensor(e.learning_rate, device=parameters[0].device) if cuda else e.learning_rate
    return torch.optim.AdamW(parameters, rate, weight_decay=e.weight_decay, fused=True, capturable=cuda)


def valid_batch(e: Experiment) -> int:
    """Large, so that validation costs little, but not where samples are."""
    return 1000 if e.model != "dense" else max(100, min(2000, 16_000 // e.input_labels))


# Training


def fit(
    e: Experiment, seed: int, models: Sequence[nn.Module], parts: Parts, folder: Path | None, watch: Watch
) -> tuple[list[nn.Module], learn.Result]:
    """The models, trained in one step if there are several, after pretraining where that is asked for; with `folder`,
    continued from the state in it."""
    settings, objective, device = make_settings(e, seed), make_objective(e), parts[0].inputs.device
    predictors = [make_predictor(e, model) for model in models]
    predictor = predictors[0] if len(models) == 1 else learn.Ensemble(predictors)
    try:
        before = _pretrain(e, predictor, parts[0], settings, folder, watch) if e.learner == "cd" else 0.0
        resume = folder is not None
        result = learn.fit(predictor, *parts[:2], objective, settings, folder, resume, device, reporters=[watch])
    except CheckpointError as error:
        if isinstance(error.__cause__, OSError):  # a full disk, which has nothing to do with the state
            raise
        problem = str(error).partition(";")[0]
        raise CheckpointError(f"{problem}; delete {folder} to train it anew, or name another --out") from error
    trained = predictor.members() if isinstance(predictor, learn.Ensemble) else [predictor]
    models = [one.model if isinstance(one, Posterior | learn.TopLayer) else one for one in trained]
    return models, replace(result, seconds=before + result.seconds)


def _pretrain(
    e: Experiment, predictor: nn.Module, train: Data, settings: learn.Settings, folder: Path | None, watch: Watch
) -> float:
    """The seconds that it took, now or, if the pretrained model is in `folder`, before."""
    assert isinstance(predictor, learn.TopLayer)
    model = predictor.model
    kept = None if folder is None else folder / "pretrained"
    if kept is not None and kept.exists():
        pretrained, card = lgm.load_with_card(kept)
        model.load_state_dict(pretrained.state_dict())
        return card["seconds"]
    began = time.monotonic()
    settings = replace(settings, epochs=min(e.pretraining, e.epochs))
    learn.pretrain(predictor, train.inputs, settings, k=e.gibbs, after_step=watch.check)
    seconds = time.monotonic() - began
    if kept is not None:
        lgm.save(model, kept, {"seconds": seconds})
    return seconds


def train(
    e: Experiment, seeds: Sequence[int], parts: Parts, folder: Path | None, watch: Watch
) -> list[tuple[nn.Module, Run]]:
    """For each seed, a model trained from start to test, and its figures."""
    models = [make_model(e, seed, parts[0]) for seed in seeds]
    models, result = fit(e, seeds[0], models, parts, folder, watch)
    runs = []
    for model, one in zip(models, result.members or (result,), strict=True):
        run: Run = scores(model, e, parts[2])
        run |= {"train_accuracy": scores(model, e, first(parts[0], TRAIN_SCORED))["accuracy"]}
        run |= {"valid_loss": one.best_loss, "valid_accuracy": round(one.best["valid_accuracy"], 5)}
        run |= {"best_epoch": one.best_epoch, "epochs": len(one.history), "cap": e.epochs}
        runs.append(run | {"seconds": round(result.seconds, 2), "together": len(models)})
    return list(zip(models, runs, strict=True))


# The figures of trained models


def log_probs(model: nn.Module, e: Experiment, x: Tensor) -> Tensor:
    """Log-probabilities of the classes (N, K)."""
    return learn.predict_log_proba(make_predictor(e, model), x, valid_batch(e))


def scores(model: nn.Module, e: Experiment, part: Data) -> dict[str, float]:
    """The metrics of a model."""
    values = metrics.evaluate(log_probs(model, e, part.inputs).exp(), part.targets)
    return {name: round(value, 5) for name, value in values.items()}


def gradient(model: LGM, method: Method | Exact, x: Tensor, y: Tensor, analytic: bool = False) -> Tensor:
    """Of the negative log-likelihood of the classes, all parameters in one vector."""
    objective = learn.MomentMatching() if analytic else learn.Likelihood()
    posterior = Posterior(model, method).for_complete_inputs()
    parameters = list(model.parameters())
    parts = torch.autograd.grad(objective.loss(posterior, x, y), parameters, allow_unused=True)
    return torch.cat(
        [(torch.zeros_like(p) if g is None else g).flatten() for p, g in zip(parameters, parts, strict=True)]
    )


def accuracy(model: nn.Module, e: Experiment, part: Data) -> float:
    return metrics.accuracy(log_probs(model, e, part.inputs).exp(), part.targets)


def machine(device: torch.device) -> str:
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}"
    return f"{platform.machine()} CPU, {torch.get_num_threads()} threads, torch {torch.__version__}"


class Tester:
    """The accuracy on one part of a model that is asked again and again while it is trained, captured on a GPU."""

    def __init__(self, e: Experiment, part: Data) -> None:
        self.e, self.part = e, part
        self.answer: learn.CapturedPredictor | None = None

    def __call__(self, model: nn.Module) -> float:
        if self.answer is None:
            self.answer = learn.CapturedPredictor(make_predictor(self.e, model), valid_batch(self.e))
        return metrics.accuracy(self.answer(self.part.inputs).exp(), self.part.targets)
