"""The models that are kept, and their cards: what each is, how it was made, what it can do and how to load it."""

from collections.abc import Mapping
from pathlib import Path

from torch import nn

import torchlgm as lgm
from experiments.paper.cells import Cell, Experiment, all_cells
from experiments.paper.report.templates import MEASURES, render
from experiments.paper.runner import make_method, make_start
from experiments.paper.store import Run, Store, plural
from torchlgm import LGM, Graph
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
    cards = [{"cell": cell, "e": cell.experiment, "run": run, **_facts(cell, run, store)} for cell, run in kept(store)]
    return render("model_cards.md", cards=cards, measures=MEASURES, plural=plural)


def _facts(cell: Cell, run: Run, store: Store) -> Mapping[str, object]:
    e, folder = cell.experiment, store.model_folder(cell)
    graph = Graph.from_json((folder / "graph.json").read_text())
    return {
        "input": graph.layers[0].name,
        "target": graph.root,
        "name": folder.name,
        "title": title(e),
        "data": DATA_NAMES[e.data],
        "graph": ", ".join(f"{layer.name} {'x'.join(map(str, layer.sizes))}" for layer in graph.layers),
        "method": repr(make_method(e)).replace("'", '"'),
        "init": make_start(e),
        "others": run.get("together", 1) - 1,
        "kilobytes": sum(file.stat().st_size for file in folder.iterdir()) / 1000,
        "command": train_command(cell, f"--seeds {run.get('together', 1)} --epochs {run['cap']} --out again"),
    }


def overview(store: Store) -> list[Mapping[str, str]]:
    """A row for each kept model."""
    names = [(store.model_folder(cell).name, title(cell.experiment), run["accuracy"]) for cell, run in kept(store)]
    return [{"model": name, "what it is": words, "test accuracy": f"{value:.4f}"} for name, words, value in names]


def title(e: Experiment) -> str:
    """Such as "Local LGM, FashionMNIST with 30 % of the pixels visible"."""
    assert isinstance(e.visible, float)
    fills = ", also learns to fill in" if e.fill > 0 else ""
    return f"{e.model.capitalize()} LGM, {DATA_NAMES[e.data]} with {100 * e.visible:.0f} % of the pixels visible{fills}"


def train_command(cell: Cell, options: str) -> str:
    return (
        f"python -m experiments.paper train {cell.table.label} --cells '{cell.row}/{cell.column}' "
        f"--column {cell.way} {options}"
    )
