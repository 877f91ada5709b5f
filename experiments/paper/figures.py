"""The paper's figures: graphs, requantised images, soft clamping, and what models believe about pixels not seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

import torchlgm as lgm
from experiments.paper.ablations import rows_of
from experiments.paper.ablations.cases import over_seeds
from experiments.paper.cells import Cell, find_cell
from experiments.paper.model_cards import kept, train_command
from experiments.paper.report.overview import overview
from experiments.paper.report.templates import MEASURES
from experiments.paper.runner import make_method
from experiments.paper.sources import hide, load
from experiments.paper.store import Run, Store
from torchlgm import LGM, Posterior, data, viz, zoo
from torchlgm._utils.optional import import_optional
from torchlgm.data import Data
from torchlgm.errors import CheckpointError, DataError, MissingExtraError
from torchlgm.viz.canvas import BLUE, COLOURS, FAINT, MARKERS, ORANGE, new_figure, plain_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHADES = (2, 4, 256)
PAIR = (4, 9)  # the digits between which the paper's sample is ambiguous
AMBIGUOUS = 5  # images
FRONT = 5  # images, a row of them
PALETTE = 256  # colours of a picture, which keeps its file small
CELLS = {  # whose models a figure shows
    "silhouettes": ("exp_partial_input_fm/Local (0.3)/LGM", "exp_partial_input_fm/Local (0.3)/LGM+fill"),
    "clothes": ("exp_partial_input_fm/Local (0.3)/LGM+fill",),
    "ambiguous": ("exp_partial_input_m/Local (0.7)/LGM", "exp_partial_input_m/Local (0.7)/LGM+fill"),
}


def draw(store: Store, folder: str | None, log: Callable[[str], None]) -> int:
    """Write all figures that can be drawn to `figures` of the store, and log what others need: how many those are."""
    (store.folder / "figures").mkdir(parents=True, exist_ok=True)
    failed = 0
    for name, make in DRAWINGS.items():
        path = store.folder / "figures" / f"{name}.png"
        try:
            viz.save(make(store, folder), path)
            _make_small(path)
            log(f"{path}")
        except (DataError, MissingExtraError) as error:
            failed += 1
            log(f"{name}: {error}")
    return failed


def _make_small(path: Path) -> None:
    """Keep the most frequent colours, of which others become the nearest; what is transparent stays so."""
    Image = import_optional("PIL.Image", "cli")
    with Image.open(path) as picture:
        pixels, size = torch.from_numpy(np.array(picture.convert("RGBA"))).reshape(-1, 4), picture.size
    colours, places, counts = pixels.unique(dim=0, return_inverse=True, return_counts=True)
    palette = colours[counts.argsort(descending=True)[:PALETTE]]
    nearest = torch.cdist(colours.double(), palette.double()).argmin(1).to(torch.uint8)
    small = Image.frombytes("P", size, nearest[places].numpy().tobytes())
    small.putpalette(palette.numpy().tobytes(), "RGBA")
    small.save(path, optimize=True)


def shown(store: Store) -> Mapping[str, str]:
    """What the figures whose models and rows are there show, by name."""
    made = {cell.name: _described(cell, run) for cell, run in kept(store)}
    rows = rows_of(store, "calibration")
    details = {name: [made.get(cell) for cell in cells] for name, cells in CELLS.items()}
    details["calibration"] = [f"{over_seeds(rows).capitalize()}." if rows else None]
    return {
        name: " ".join(filter(None, details.get(name, []))) for name in DRAWINGS if None not in details.get(name, [])
    }


def _described(cell: Cell, run: Run) -> str:
    e = cell.experiment
    method = f"{e.method.upper()}, {e.schedule}, T={e.iterations}"
    return f"{cell.column} ({e.model.capitalize()}, {method}) has a test accuracy of {run['accuracy']:.4f}."


def _models(figure: str, store: Store) -> list[tuple[LGM, Cell]]:
    """The models that a figure shows, or an error that says how to train each that is missing."""
    models, needs = [], []
    for cell in map(find_cell, CELLS[figure]):
        folder = store.model_folder(cell)
        command = train_command(cell, f"--seeds 1 --out {quote(str(store.folder))}")
        if not folder.exists():
            needs.append(f"needs the model of a training: {command}")
            continue
        try:
            models.append((lgm.load(folder), cell))
        except CheckpointError as error:
            needs.append(f"{error}; delete {folder} and train it again: {command}")
    if needs:
        raise DataError("; ".join(needs))
    return models


def _one_of_each(part: Data) -> Tensor:
    """Indices of the first sample of each class."""
    return torch.stack([(part.targets == target).nonzero()[0, 0] for target in part.targets.unique()])


def requantised(part: Data) -> Figure:
    """A sample of each class with 2, 4 and 256 colours."""
    some = _one_of_each(part)
    images, names = part.inputs[some], [part.classes[target] for target in part.targets[some].tolist()]
    rows = {f"{colours} colours": data.requantise(images, colours) / (colours - 1) for colours in SHADES}
    return viz.image_rows(rows, names)


def soft_clamping(value: float = 0.7, labels: int = 8) -> Figure:
    """How one grey value enters: as one of many labels, or as the mean of a node with two."""
    figure = new_figure(8, 2.8)
    hard, soft = figure.subplots(1, 2, width_ratios=[labels, 4], sharey=True)
    chosen = int(value * labels)
    bars = hard.bar(range(labels), [1.0 * (k == chosen) for k in range(labels)], color=BLUE)
    hard.bar_label(bars, fmt="{:g}", padding=2)
    hard.set_xticks(range(labels), [f"{k}" for k in range(labels)])
    hard.set(title=f"discretised: one of {labels} labels", xlabel="label, 0 is black", ylabel="probability")
    bars = soft.bar([0, 1], [1 - value, value], color=[FAINT, ORANGE], width=0.5)
    soft.bar_label(bars, fmt="{:g}", padding=2)
    soft.set_xticks([0, 1], ["0", "1"])
    soft.set(title="soft clamped: two labels", xlabel="label, 0 is black", xlim=(-0.8, 1.8), ylim=(0, 1.15))
    for axes in (hard, soft):
        plain_axes(axes)
        axes.grid(visible=False, axis="x")
    figure.suptitle(f"A grey value of {value:g} as evidence")
    return figure


def _believed(model: LGM, cell: Cell, seen: Tensor) -> tuple[Tensor, Tensor]:
    """Images with beliefs where nothing was seen, and class probabilities (N, K)."""
    with torch.no_grad():
        posterior = Posterior(model, make_method(cell.experiment))
        return posterior.complete(seen), posterior(seen).exp()


def _filled(models: Sequence[tuple[LGM, Cell]], part: Data, chosen: Tensor, classes: Sequence[str]) -> Figure:
    """Images as they are, as they were seen, and with the beliefs of models where nothing was seen."""
    seen = _seen(part, models[0][1])[chosen]
    rows = {"truth": part.inputs[chosen], "seen": seen}
    rows |= {f"believed by\n{cell.column}": _believed(model, cell, seen)[0] for model, cell in models}
    return viz.image_rows(rows, classes)


def _seen(part: Data, cell: Cell) -> Tensor:
    """The test images as the cell was tested on them."""
    assert isinstance(cell.experiment.visible, float)
    return hide(part.inputs, cell.experiment.visible)


def silhouettes(models: Sequence[tuple[LGM, Cell]], part: Data) -> Figure:
    """A sample of each class, of which few pixels were seen."""
    chosen = _one_of_each(part)
    figure = _filled(models, part, chosen, [part.classes[target] for target in part.targets[chosen].tolist()])
    visible = models[0][1].experiment.visible
    figure.suptitle(f"FashionMNIST with {visible:.0%} of the pixels visible (blue: missing)")
    return figure


def clothes(models: Sequence[tuple[LGM, Cell]], part: Data) -> Figure:
    """The first test images of different classes, and what the model that fills in believes: for the front page."""
    chosen: dict[int, int] = {}
    for i, target in enumerate(part.targets[:100].tolist()):
        chosen.setdefault(target, i)
    some, (model, cell) = torch.tensor(list(chosen.values())[:FRONT]), models[-1]
    seen = _seen(part, cell)[some]
    filled, probs = _believed(model, cell, seen)
    titles = []
    for target, p in zip(part.targets[some].tolist(), probs, strict=True):
        best = int(p.argmax())
        titles.append(f"{part.classes[best]} {p[best]:.0%}\n{'right' if best == target else 'wrong'}")
    return viz.image_rows({"truth": part.inputs[some], "seen": seen, "believed": filled}, titles)


def ambiguous(models: Sequence[tuple[LGM, Cell]], part: Data) -> Figure:
    """The test images that are most ambiguous between two digits, and what each model takes them for."""
    seen = _seen(part, models[0][1])
    probs = torch.cat([_believed(*models[0], x)[1] for x in seen.split(500)])
    chosen = probs[:, list(PAIR)].min(1).values.topk(AMBIGUOUS).indices
    titles = [f"truly {part.classes[target]}" for target in part.targets[chosen].tolist()]
    for model, cell in models:
        best = _believed(model, cell, seen[chosen])[1].max(-1)
        answers = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        lines = [f"{cell.column} {part.classes[label]} ({p:.0%})" for label, p in answers]
        titles = [f"{title}\n{line}" for title, line in zip(titles, lines, strict=True)]
    return _filled(models, part, chosen, titles)


def calibration(store: Store) -> Figure:
    """Every measure against the share of visible pixels, a line for each model, data below each other."""
    rows = rows_of(store, "calibration")
    if not rows:
        command = f"python -m experiments.paper ablate calibration --out {quote(str(store.folder))}"
        raise DataError(f"needs an ablation: {command}")
    sets, models = (list(dict.fromkeys(row[key] for row in rows)) for key in ("data", "model"))
    figure = new_figure(3.2 * len(MEASURES), 2.8 * len(sets) + 0.5)
    grid = figure.subplots(len(sets), len(MEASURES), squeeze=False, sharex=True)
    for (i, name), (j, (measure, words)) in product(enumerate(sets), enumerate(MEASURES.items())):
        axes = grid[i, j]
        for k, model in enumerate(models):
            line = [row for row in rows if (row["data"], row["model"]) == (name, model)]
            x, y = [100 * row["visible"] for row in line], [row[measure] for row in line]
            axes.plot(x, y, color=COLOURS[k], marker=MARKERS[k], markersize=4)
        plain_axes(axes)
        axes.set_title(f"{name}: {words}", fontsize=10)
        axes.xaxis.set_major_formatter("{x:.0f}%")
    for axes in grid[-1]:
        axes.set_xlabel("visible pixels")
    figure.legend(grid[0, 0].get_lines(), models, loc="outside upper center", ncols=len(models), frameon=False)
    return figure


DRAWINGS: Mapping[str, Callable[[Store, str | None], Figure]] = {  # from the results and the folder of the data
    "overview": lambda store, _: overview(store),
    "graph-sequential": lambda *_: viz.draw_graph(zoo.dense((1, 28, 28), (100, 100))),
    "graph-conv": lambda *_: viz.draw_graph(zoo.windows("conv")),
    "graph-local": lambda *_: viz.draw_graph(zoo.windows("local")),
    "soft-clamping": lambda *_: soft_clamping(),
    "requantised": lambda _, folder: requantised(load("fashion-mnist", folder).test),
    "silhouettes": lambda store, data: silhouettes(_models("silhouettes", store), load("fashion-mnist", data).test),
    "clothes": lambda store, data: clothes(_models("clothes", store), load("fashion-mnist", data).test),
    "ambiguous": lambda store, data: ambiguous(_models("ambiguous", store), load("mnist", data).test),
    "calibration": lambda store, _: calibration(store),
}
