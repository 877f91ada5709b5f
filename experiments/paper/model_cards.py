"""The models that are kept, and their cards: what each is, how it was made, what it can do and how to load it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from torch import nn

import torchlgm as lgm
from experiments.paper.cells import Cell, Experiment, all_cells
from experiments.paper.report.templates import MEASURES, render
from experiments.paper.runner import FROM_DATA, make_graph, make_method, make_start
from experiments.paper.store import Run, Store, plural
from torchlgm import LGM
from torchlgm._utils.atomic import atomic_write

DATA_NAMES = {"mnist": "MNIST", "fashion-mnist": "FashionMNIST"}
SEED = 0  # of the models that are kept


def keeps_model(cell: Cell) -> bool:
    """Whether the figures need the model: Local, inputs partly visible, our column."""
    e = cell.experiment
    return cell.way == "ours" and cell.is_lgm and e.model == "local" and e.visible is not None and e.smoothing > 0


def lacks_model(cell: Cell, store: Store) -> bool:
    """Whether the model of a good training should be in its folder, but is not. Only a training that is as long can
    bring it back: a shorter one would replace the result."""
    run = store.runs(cell).get(SEED, {})
    lacks = "accuracy" in run and keeps_model(cell) and not store.model_folder(cell).is_dir()
    return lacks and cell.experiment.epochs >= run["cap"]


def save_model(model: nn.Module, cell: Cell, run: Run, store: Store) -> None:
    assert isinstance(model, LGM)
    card = {"cell": cell.name, "column": cell.way, "seed": SEED, "accuracy": run["accuracy"], "machine": run["machine"]}
    folder = store.model_folder(cell)
    folder.parent.mkdir(parents=True, exist_ok=True)
    lgm.save(model, folder, card)


def kept(store: Store) -> list[tuple[Cell, Run]]:
    """The cells whose model is in its folder, and the record of its training; one that diverged left none."""
    made = [cell for cell in all_cells() if keeps_model(cell) and store.model_folder(cell).is_dir()]
    return [(cell, run) for cell in made if "accuracy" in (run := store.runs(cell).get(SEED, {}))]


def write(store: Store) -> Path | None:
    """Write the cards beside the models, if there are any."""
    if not kept(store):
        return None
    path = store.folder / "models" / "README.md"
    atomic_write(path, page(store).encode())
    return path


def page(store: Store) -> str:
    return render("model_cards.md", cards=[_card(cell, run, store) for cell, run in kept(store)])


def overview(store: Store) -> list[Mapping[str, str]]:
    """A row for each kept model."""
    return [
        {
            "model": store.model_folder(cell).name,
            "what it is": title(cell.experiment),
            "test accuracy": f"{run['accuracy']:.4f}",
        }
        for cell, run in kept(store)
    ]


def title(e: Experiment) -> str:
    """Such as "Local LGM, FashionMNIST with 30 % of the pixels visible"."""
    fills = ", also learns to fill in" if e.fill > 0 else ""
    return f"{e.model.capitalize()} LGM, {DATA_NAMES[e.data]} with {_share(e)} of the pixels visible{fills}"


def train_command(cell: Cell, options: str) -> str:
    return (
        f"python -m experiments.paper train {cell.table.label} --cells '{cell.row}/{cell.column}' "
        f"--column {cell.way} {options}"
    )


def _card(cell: Cell, run: Run, store: Store) -> Mapping[str, object]:
    folder = store.model_folder(cell)
    options = f"--seeds {run.get('together', 1)} --epochs {run['cap']} --out again"
    return {
        "name": folder.name,
        "title": title(cell.experiment),
        "facts": [{"property": name, "value": text} for name, text in _facts(cell, run, folder)],
        "method": _method(cell.experiment),
        "command": train_command(cell, options),
    }


def _facts(cell: Cell, run: Run, folder: Path) -> Iterator[tuple[str, str]]:
    e = cell.experiment
    yield "cell", f"{cell.name}, column {cell.way}"
    yield "data", f"{DATA_NAMES[e.data]}: the first 48,000 images to train, the last 12,000 to validate"
    yield "hidden in training and test", f"all but {_share(e)} of the pixels, at random, in training anew each time"
    yield "graph", ", ".join(f"{layer.name} {'x'.join(map(str, layer.sizes))}" for layer in make_graph(e).layers)
    yield "method", f"`{_method(e)}`"
    fills = f" and of the hidden pixels (weight {e.fill:g})" if e.fill else ""
    yield "objective", f"log-likelihood of the class{fills}, labels smoothed by {e.smoothing:g}"
    unaries = ", unaries of the pixels from the data" if e.start in FROM_DATA else ""
    yield "start", f"{e.start}: `{make_start(e)}`{unaries}"
    falls = " that falls to 0 along a half cosine" if e.cosine else ""
    yield (
        "settings",
        f"Adam with {e.learning_rate:g}{falls}, batches of {e.batch}, {plural(run['epochs'], 'epoch')}, the "
        f"weights of the lowest validation loss (epoch {run['best_epoch']})",
    )
    others = run.get("together", 1) - 1
    yield "seed", f"{SEED}" + (f", in one step with {plural(others, 'other seed')}" if others else "")
    yield "machine", f"{run['machine']}; {run['seconds']:.0f} s while other trainings ran beside it"
    yield "test", ", ".join(f"{name} {run[key]:.4f}" for key, name in MEASURES.items() if key in run)
    yield "size", f"{sum(file.stat().st_size for file in folder.iterdir()) / 1000:.0f} kB"


def _share(e: Experiment) -> str:
    assert isinstance(e.visible, float)
    return f"{100 * e.visible:.0f} %"


def _method(e: Experiment) -> str:
    """As it is written in Python."""
    return repr(make_method(e)).replace("'", '"')
