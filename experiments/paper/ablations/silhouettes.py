"""How near beliefs about missing pixels come to the truth, by the models that are kept."""

from collections.abc import Iterator, Sequence
from functools import partial

import torch

import torchlgm as lgm
from experiments.paper.ablations.cases import Bench, Case, Row
from experiments.paper.cells import Cell
from experiments.paper.model_cards import kept
from experiments.paper.runner import make_method

BATCH, MODEL, MEAN = 500, "beliefs", "mean training image"


def silhouettes(bench: Bench) -> Iterator[Case]:
    for cell, _ in kept(bench.store):
        yield Case({"cell": cell.name}, partial(_errors, bench, cell))


@torch.no_grad()
def _errors(bench: Bench, cell: Cell) -> list[Row]:
    """Mean absolute errors at missing pixels of test images."""
    train, _, seen = bench.parts(cell.experiment)
    truth, missing = bench.sources.load(cell.experiment)[2].inputs[: len(seen)], seen.inputs.isnan()
    posterior = lgm.Posterior(lgm.load(bench.store.model_folder(cell)), make_method(cell.experiment))
    filled = torch.cat([posterior.complete(part) for part in seen.inputs.cpu().split(BATCH)]).to(truth.device)
    guesses = {MODEL: filled, MEAN: train.inputs.mean(0).expand_as(truth)}
    return [{name: float((guess - truth)[missing].abs().mean()) for name, guess in guesses.items()}]


def silhouettes_summary(rows: Sequence[Row]) -> str:
    nearer = [row["cell"].rsplit("/", 1)[1] for row in rows if row[MODEL] < row[MEAN]]
    counts = [
        f"{nearer.count(name)} of {sum(row['cell'].endswith(f'/{name}') for row in rows)} {name} models"
        for name in dict.fromkeys(row["cell"].rsplit("/", 1)[1] for row in rows)
    ]
    return f"Nearer to the truth than the mean of all training images are {' and '.join(counts)}."
