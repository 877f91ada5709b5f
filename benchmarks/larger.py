"""How good do larger layered graphical models get? A search over recipes on MNIST and FashionMNIST, nothing augmented.

Each recipe is trained on the first 48,000 training images; the last 12,000 choose the epoch, the recipe and what is put
together, so that the test images choose nothing. Several models joined at the class node are one model again, whose
class belief is the product of theirs; at the end the best ones are joined so, and by the mean of their probabilities.

    python benchmarks/larger.py --list
    python benchmarks/larger.py --data DIR --minutes 4 --out larger.json
    python benchmarks/larger.py --data DIR --final NAME --full --seeds 5 --data-set mnist --out final.json

`--final` trains one recipe from several seeds; with `--full` on all 60,000 images for its fixed number of epochs, the
weights being the last ones.
"""

from __future__ import annotations

import argparse
import json
import math
import threading
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from common import machine, rounded, table
from experiments.paper.sources import Parts, first
from experiments.pool import Budget, TimeUp, Watch, run_all
from recipes import METHODS, RECIPES, Dropout, Noise, Recipe, make_model, settings_of, tiny
from torch import Tensor

import torchlgm as lgm
from torchlgm import LGM, data, learn
from torchlgm._utils.atomic import atomic_write
from torchlgm.data import Data

DATA_SETS = ("mnist", "fashion-mnist")
TRAIN_SCORED = 10_000  # training images that are scored too
TINY = (256, 100, 100)  # images to train on, to validate and to test
MOST_JOINED = 8


class Epochs(Watch):
    """Prints every epoch, keeps the weights of the last one and ends the training when time is up."""

    def __init__(self, title: str, recipe: Recipe, model: LGM, budget: Budget) -> None:
        super().__init__(budget)
        self.title, self.recipe, self.model = title, recipe, model
        self.rows: list[Mapping[str, Any]] = []
        self.last: dict[str, Tensor] = {}

    def epoch(self, row: Mapping[str, Any]) -> None:
        self.rows.append(row)
        print(
            f"  {self.title} {row['epoch']}/{self.recipe.epochs}: loss {row['train_loss']:.4f} valid "
            f"{row['valid_loss']:.4f} {row['valid_accuracy']:.4f}  {row['seconds']:.1f} s",
            flush=True,
        )
        if row["epoch"] == self.recipe.epochs:
            self.last = {name: t.detach().clone() for name, t in self.model.state_dict().items()}
        else:
            super().epoch(row)


@dataclass
class Trained:
    """What came of one training; log-probabilities stay in memory, to be joined with those of others."""

    run: dict[str, Any]
    valid: Tensor
    test: Tensor


@dataclass(frozen=True)
class Job:
    recipe: Recipe
    data_set: str
    seed: int = 0
    full: bool = False

    def __str__(self) -> str:
        return f"{self.recipe.name} {self.data_set} seed {self.seed}"


def train(job: Job, parts: Parts, budget: Budget) -> Trained:
    """One training from start to test."""
    recipe, (fitted, valid, test), device = job.recipe, parts, parts[0].inputs.device
    model = make_model(recipe, job.seed, first(fitted, TRAIN_SCORED).inputs)
    posterior = Dropout(model, METHODS[recipe.method], recipe.dropped, Noise(job.seed, device))
    objective = learn.Likelihood(recipe.smoothing)
    epochs = Epochs(str(job), recipe, model, budget)
    settings = settings_of(recipe, job.seed, device)
    try:
        best = learn.fit(posterior, fitted, valid, objective, settings, device=device, reporters=[epochs]).best_epoch
        if job.full:
            model.load_state_dict(epochs.last)
            best = recipe.epochs
    except TimeUp:
        if not epochs.rows:
            raise
        best = len(epochs.rows)

    posterior.settle()
    plain = lgm.Posterior(model, METHODS[recipe.method])

    def ask(part: Data) -> Tensor:
        return learn.predict_log_proba(plain, part.inputs, settings.valid_batch_size).double()

    some, log_probs = first(fitted, TRAIN_SCORED), (ask(valid), ask(test))
    times = sorted(row["seconds"] for row in epochs.rows)
    run: dict[str, Any] = {"name": recipe.name, "data": job.data_set, "seed": job.seed, "full": job.full}
    run |= {"edges": model.graph.edges, "parameters": model.graph.parameters}
    run |= {"best_epoch": best, "epochs": len(epochs.rows), "seconds_per_epoch": times[len(times) // 2]}
    run |= {} if job.full else scores("valid", log_probs[0], valid.targets)
    run |= scores("test", log_probs[1], test.targets)
    run |= {"train_accuracy": scores("train", ask(some), some.targets)["train_accuracy"]}
    if device.type == "cuda":
        run["peak_gib"] = torch.cuda.max_memory_allocated(device) / 2**30  # of all that trained at the same time
    return Trained(run | {"recipe": asdict(recipe)}, *log_probs)


def scores(of: str, log_probs: Tensor, targets: Tensor) -> dict[str, float]:
    right = log_probs.argmax(-1) == targets
    loss = torch.nn.functional.nll_loss(log_probs, targets)
    return {f"{of}_accuracy": float(right.double().mean()), f"{of}_loss": float(loss)}


# --- several at once, and together


@dataclass
class Search:
    """Trains jobs, several at the same time on a GPU, and keeps what came of them in a file."""

    parts: Mapping[str, Parts]
    device: torch.device
    budget: Budget
    out: Path | None
    done: list[Trained] = field(default_factory=list)
    failed: list[dict[str, str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, jobs: Sequence[Job], workers: int) -> None:
        """Those for PyTorch's convolutions first, then those for our kernels, so that they do not share the GPU."""
        for kernels in (False, True):
            some = [job for job in jobs if job.recipe.by_kernels == kernels]
            with lgm.backend("auto" if kernels else "eager"):
                run_all(self._do, some, workers, self.device, self.budget)

    def _do(self, job: Job) -> None:
        began = time.monotonic()
        try:
            trained = train(job, self.parts[job.data_set], self.budget)
        except TimeUp:
            return
        except Exception as error:  # the other recipes are still worth having
            traceback.print_exc()
            with self.lock:
                self.failed.append({"job": str(job), "error": f"{type(error).__name__}: {error}"[:500]})
            return
        trained.run["seconds"] = time.monotonic() - began
        with self.lock:
            self.done.append(trained)
            print(f"{job}: " + lines(trained.run) + f", {self.budget.spent:.0f} s gone", flush=True)
            self.write()

    def together(self) -> list[dict[str, Any]]:
        """The best k by validation loss as one: the product of their class beliefs, and the mean."""
        rows = []
        for name, (_, valid, test) in self.parts.items():
            here = [t for t in self.done if t.run["data"] == name]
            best = sorted(here, key=lambda t: t.run.get("valid_loss", t.run["seed"]))
            for k in range(2, min(len(best), MOST_JOINED) + 1):
                for how, join in (("product", product), ("mean", mean)):
                    row: dict[str, Any] = {"data": name, "how": how, "models": k}
                    if not best[0].run["full"]:
                        row |= scores("valid", join([t.valid for t in best[:k]]), valid.targets)
                    row |= scores("test", join([t.test for t in best[:k]]), test.targets)
                    rows.append(row | {"names": [f"{t.run['name']}/{t.run['seed']}" for t in best[:k]]})
        return rows

    def write(self) -> None:
        if self.out is None:
            return
        found = {"machine": machine("torch", "triton"), "seconds": self.budget.spent}
        found |= {"runs": [t.run for t in self.done], "together": self.together(), "failed": self.failed}
        self.out.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(self.out, (json.dumps(rounded(found), indent=1) + "\n").encode())


def product(log_probs: Sequence[Tensor]) -> Tensor:
    return torch.log_softmax(torch.stack(list(log_probs)).sum(0), -1)


def mean(log_probs: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(log_probs)).logsumexp(0) - math.log(len(log_probs))


def lines(run: Mapping[str, Any]) -> str:
    valid = "" if run["full"] else f" valid {run['valid_accuracy']:.4f} loss {run['valid_loss']:.4f},"
    spent = f"epoch {run['best_epoch']}/{run['epochs']}, {run['seconds_per_epoch']:.2f} s each"
    return f"test {run['test_accuracy']:.4f},{valid} train {run['train_accuracy']:.4f}, {spent}"


def load(name: str, folder: str | None, device: torch.device, full: bool, small: bool) -> Parts:
    """Images to train on, to validate with and to test. With `full`, those to validate with only watch."""
    dataset = data.load(name, folder)
    fitted, valid = (dataset.train, data.paper_split(dataset.train)[1]) if full else data.paper_split(dataset.train)
    parts = (fitted, valid, dataset.test)
    if small:
        parts = tuple(first(part, count) for part, count in zip(parts, TINY, strict=True))
    fitted, valid, test = (part.to(device) for part in parts)
    return fitted, valid, test


def overview(recipes: Iterable[Recipe]) -> str:
    rows = []
    for recipe in recipes:
        graph = recipe.graph
        rows.append(
            {
                "recipe": recipe.name,
                "method": recipe.method,
                "edges": graph.edges,
                "parameters": graph.parameters,
                "epochs": recipe.epochs,
                "seconds, guessed": round(recipe.seconds, 1),
            }
        )
    total = sum(recipe.seconds for recipe in recipes)
    return f"{table(rows)}\n{total:.0f} seconds in all, guessed, one after the other on one H200, for one data set"


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [recipe.name for recipe in RECIPES]
    parser.add_argument("--data", help="the folder of the data sets")
    parser.add_argument("--data-set", choices=(*DATA_SETS, "both"), default="both")
    parser.add_argument("--minutes", type=float, help="when to leave")
    parser.add_argument("--out", type=Path, help="a JSON file, rewritten after each training")
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME", help="recipes, see --list")
    parser.add_argument("--workers", type=int, default=2, help="trainings at the same time on a GPU")
    parser.add_argument("--epochs", type=int, help="instead of those of the recipes")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--tiny", action="store_true", help="few images, channels and epochs: does everything run?")
    parser.add_argument("--final", choices=names, metavar="NAME", help="this recipe alone, from several seeds")
    parser.add_argument("--full", action="store_true", help="with --final: train on all training images")
    parser.add_argument("--seeds", type=int, default=5, help="with --final: how many")
    parser.add_argument("--list", action="store_true", help="only show the recipes")
    chosen = parser.parse_args()
    if chosen.full and not chosen.final:
        parser.error("--full needs --final NAME: without validation images no recipe can be chosen")
    return chosen


def main() -> None:
    chosen = options()
    wanted = [chosen.final] if chosen.final else chosen.only
    recipes = [recipe for recipe in RECIPES if recipe.name in wanted]
    if chosen.epochs:
        recipes = [replace(recipe, epochs=chosen.epochs) for recipe in recipes]
    if chosen.list:
        print(overview(recipes))
        return
    if chosen.tiny:
        recipes = [replace(tiny(recipe), epochs=1) for recipe in recipes]
    cuda = torch.cuda.is_available() if chosen.device == "auto" else chosen.device == "cuda"
    device = torch.device("cuda" if cuda else "cpu")
    names = DATA_SETS if chosen.data_set == "both" else (chosen.data_set,)
    parts = {name: load(name, chosen.data, device, chosen.full, chosen.tiny) for name in names}
    seeds = range(chosen.seeds if chosen.final else 1)
    jobs = [Job(recipe, name, seed, chosen.full) for recipe in recipes for seed in seeds for name in names]
    search = Search(parts, device, Budget(chosen.minutes), chosen.out)
    search.run(jobs, chosen.workers if cuda else 1)
    search.write()
    hide = ("recipe", "names")
    print(table([{k: v for k, v in t.run.items() if k not in hide} for t in search.done]))
    print(table([{k: v for k, v in row.items() if k not in hide} for row in search.together()]))
    for failure in search.failed:
        print(f"{failure['job']} failed: {failure['error']}")


if __name__ == "__main__":
    main()
