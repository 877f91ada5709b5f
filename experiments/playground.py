"""Train the models that the playground shows first: `python -m experiments.playground DATA_FOLDER`.

MNIST and FashionMNIST go on from the Local models kept in `experiments/paper/results/models`, which were trained with
scattered pixels hidden; here half of the images hide a rectangle, a band or a half instead. Digits and the table of
wines, from scikit-learn, are trained from the start. Beside each model of images stands a network of the same shape,
trained with the same pixels hidden. Files go to the page's folder, figures to `benchmarks/results/playground.json`.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import torchlgm as lgm
from torchlgm import data, interop, learn
from torchlgm.baselines import network

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "experiments" / "paper" / "results" / "models"
MODELS = ROOT / "src" / "torchlgm" / "interop" / "web" / "page" / "models"
FIGURES = ROOT / "benchmarks" / "results" / "playground.json"
HIDING: dict[str, Any] = {"visible": (0.1, 1.0), "blocks": 0.5, "patience": None}
EXAMPLES = 3  # of each class


@dataclass(frozen=True)
class Images:
    """A data set of images with the model and the network to train on it."""

    name: str
    title: str
    data: str
    train: int  # the first so many samples train, the others validate
    model: Callable[[data.Data], lgm.LGM]
    network: Callable[[], nn.Module]
    network_title: str
    settings: learn.Settings
    network_settings: learn.Settings


def kept(name: str) -> Callable[[data.Data], lgm.LGM]:
    return lambda train: lgm.load(KEPT / name)


def small_dense(train: data.Data) -> lgm.LGM:
    graph = lgm.zoo.dense((1, 8, 8), [100])
    model = lgm.LGM(graph, lgm.Init(0.1, scale="balanced"), generator=torch.Generator().manual_seed(0))
    learn.start_from_data(model, "inputs", train.inputs)
    return model


LOCAL = replace(learn.Settings(**HIDING), epochs=2, batch_size=50, learning_rate=0.006, valid_batch_size=500)
LOCAL_NETWORK = replace(LOCAL, epochs=8, batch_size=100, learning_rate=2e-3)
SMALL = replace(learn.Settings(**HIDING), epochs=60, learning_rate=0.02)


def with_mask() -> nn.Module:
    return network("local", activation="relu", mask_channel=True)


IMAGES = (
    Images(
        "mnist", "Handwritten digits", "mnist", 48_000, kept("exp_partial_input_m-local-0.3-lgm-fill.ours"),
        with_mask, "Network, told what is hidden", LOCAL, LOCAL_NETWORK,
    ),
    Images(
        "fashion-mnist", "Clothes", "fashion-mnist", 48_000, kept("exp_partial_input_fm-local-0.3-lgm-fill.ours"),
        with_mask, "Network, told what is hidden", LOCAL, LOCAL_NETWORK,
    ),
    Images(
        "digits", "Small digits", "digits", 1_200, small_dense,
        lambda: network("dense", (1, 8, 8), activation="relu"), "Network, hidden pixels as 0.5",
        SMALL, replace(SMALL, learning_rate=2e-3),
    ),
)  # fmt: skip


def train_images(job: Images, folder: str | None, most: int | None = None) -> dict[str, Any]:
    dataset = data.load(job.data, folder)
    whole, test = dataset.train, dataset.test
    train = learn.Samples(whole.inputs[: job.train][:most], whole.targets[: job.train][:most])
    valid = learn.Samples(whole.inputs[job.train :][-3000:][:most], whole.targets[job.train :][-3000:][:most])
    began = time.process_time()
    posterior = lgm.Posterior(job.model(whole), lgm.lbp(iterations=1))
    learn.fit(posterior, train, valid, learn.JointLikelihood(), job.settings)
    learn.fit_temperature(posterior, valid, batch_size=500)
    seconds = time.process_time() - began
    torch.manual_seed(0)
    beside = job.network()
    learn.fit(beside, train, valid, learn.Likelihood(), job.network_settings)
    figures = {
        "model": judged(posterior, test, train.inputs.mean(0)),
        "network": judged(beside, test),
        "cpu_seconds": [round(seconds), round(time.process_time() - began - seconds)],
        "epochs": [job.settings.epochs, job.network_settings.epochs],
    }
    about = {
        "title": job.title,
        "classes": list(dataset.train.classes),
        "network_title": job.network_title,
        "look": "photo" if job.name == "fashion-mnist" else "ink",
    }
    examples = pick(test)
    written = interop.export_web(
        posterior, MODELS / f"{job.name}.safetensors", about, network=beside, examples=examples
    )
    return figures | {"bytes": written.bytes, "rounding": written.difference}


def pick(test: data.Data) -> interop.Examples:
    """The first images of each class, class by class in turn."""
    places = [(test.targets == k).nonzero()[:EXAMPLES, 0] for k in range(len(test.classes))]
    order = torch.stack(places, 1).flatten()
    return interop.Examples(test.inputs[order], test.targets[order].tolist())


def hidings(x: Tensor) -> dict[str, Tensor]:
    """The same images with pixels hidden in several ways."""
    half = x.shape[-1] // 2
    scattered = torch.rand(x.shape, generator=torch.Generator().manual_seed(0)) < 0.7
    lower, left = torch.zeros_like(scattered), torch.zeros_like(scattered)
    lower[..., half:, :], left[..., :half] = True, True
    hide = {"nothing": torch.zeros_like(scattered), "70 % scattered": scattered, "lower half": lower, "left half": left}
    return {name: x.masked_fill(hidden, math.nan) for name, hidden in hide.items()}


def judged(predictor: nn.Module, test: data.Data, mean: Tensor | None = None) -> dict[str, dict[str, float]]:
    """Accuracy and negative log-likelihood by what is hidden; of a model also how far off the hidden pixels are."""
    rows: dict[str, dict[str, float]] = {}
    for name, x in hidings(test.inputs).items():
        log_probs = learn.predict_log_proba(predictor, x, 500)
        targets = test.targets.flatten()
        row = {
            "accuracy": float((log_probs.argmax(-1) == targets).double().mean()),
            "nll": float(nn.functional.nll_loss(log_probs, targets)),
        }
        hidden = x.isnan()
        if isinstance(predictor, lgm.Posterior) and mean is not None and hidden.any():
            with torch.no_grad():
                filled = torch.cat([predictor.complete(part) for part in x.split(500)])
            for what, guess in (("rms", filled), ("rms_of_the_mean", mean.expand_as(x))):
                row[what] = float((guess - test.inputs)[hidden].square().mean().sqrt())
        rows[name] = {key: round(value, 4) for key, value in row.items()}
    return rows


def train_wine() -> dict[str, Any]:
    from sklearn.datasets import load_wine
    from sklearn.metrics import log_loss
    from sklearn.model_selection import train_test_split

    from torchlgm.sklearn import LGMClassifier
    from torchlgm.sklearn.web import export_web

    wine = load_wine(as_frame=True)
    names = {name: name.replace("od280/od315_of_diluted_wines", "OD280/OD315").replace("_", " ") for name in wine.data}
    table, y = wine.data.rename(columns=names), wine.target.map(lambda k: f"cultivar {k + 1}")
    train, test, y_train, y_test = train_test_split(table, y, test_size=0.3, random_state=0, stratify=y)
    classifier = LGMClassifier(n_members=1, random_state=0).fit(train, y_train)
    rows = test.groupby(y_test).head(2)
    about = {"title": "Wines"}
    written = export_web(
        classifier, MODELS / "wine.safetensors", about, rows=rows, labels=y_test.loc[rows.index].tolist()
    )
    figures: dict[str, Any] = {}
    draw = torch.Generator().manual_seed(0)
    for name, share in (("nothing", 0.0), ("70 % scattered", 0.7)):
        hidden = (torch.rand(test.shape, generator=draw) < share).numpy()
        probs = classifier.predict_proba(test.mask(hidden))
        right = classifier.classes_[probs.argmax(1)] == y_test
        figures[name] = {"accuracy": round(float(right.mean()), 4), "nll": round(float(log_loss(y_test, probs)), 4)}
    return {"model": figures, "bytes": written.bytes, "rounding": written.difference}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", help="where MNIST and FashionMNIST are, or are downloaded to")
    parser.add_argument("--only", help="one of mnist, fashion-mnist, digits, wine")
    parser.add_argument("--most", type=int, help="train on so many samples only, to try it")
    given = parser.parse_args()
    MODELS.mkdir(exist_ok=True)
    jobs: dict[str, Callable[[], dict[str, Any]]] = {"digits": lambda: train_images(IMAGES[2], None, given.most)}
    jobs |= {"wine": train_wine}
    jobs |= {job.name: lambda job=job: train_images(job, given.folder, given.most) for job in IMAGES[:2]}
    for name, job in jobs.items():
        if given.only in (None, name):
            figures = job()
            print(name, json.dumps(figures, indent=1), flush=True)
            results = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
            results |= {name: figures, "torch": torch.__version__}
            FIGURES.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
