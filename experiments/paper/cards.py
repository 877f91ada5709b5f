"""The models that are kept, and their cards: what each is, how it was made, what it can do and how to load it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from torch import nn

import torchlgm as lgm
from experiments.paper.cells import FROM_DATA, METHODS, Cell, Experiment, all_cells, make_graph, make_start
from experiments.paper.results import Run, Store
from experiments.paper.words import MEASURES, number_of
from torchlgm import LGM
from torchlgm._utils.atomic import atomic_write

DATA_NAMES = {"mnist": "MNIST", "fashion-mnist": "FashionMNIST"}
SEED = 0  # of the models that are kept

HEAD = """# Kept models

Small models that `python -m experiments.paper` leaves behind, with the pictures of
[the results](../../../docs/reproduction.md) drawn from them. Each folder holds the graph as JSON, the weights as
safetensors, and checksums of both; loading runs no code from it. All classify images of 28x28 grey values in [0, 1],
of which any may be missing (NaN), and believe something about those that are. They are for study: they know nothing
but the ten classes of their data, and their probabilities are those of approximate inference."""


def keeps_model(cell: Cell) -> bool:
    """Whether the pictures need the model: Local, inputs partly visible, our column."""
    e = cell.experiment
    return cell.way == "ours" and cell.is_lgm and e.model == "local" and e.visible is not None and e.smoothing > 0


def model_folder(cell: Cell, out: Path) -> Path:
    return out / "models" / cell.file.removesuffix(".json").replace("/", "-")


def lacks_its_model(cell: Cell, store: Store) -> bool:
    """Whether the model of a training that went well should lie there, but does not. Only a training that is as long
    can bring it back: a shorter one would replace the result."""
    run = store.runs(cell).get(SEED, {})
    lacks = "accuracy" in run and keeps_model(cell) and not model_folder(cell, store.folder).is_dir()
    return lacks and cell.experiment.epochs >= run["cap"]


def save_model(model: nn.Module, cell: Cell, run: Run, out: Path) -> None:
    folder = model_folder(cell, out)
    folder.parent.mkdir(parents=True, exist_ok=True)
    card = {"cell": cell.name, "column": cell.way, "seed": SEED, "accuracy": run["accuracy"], "machine": run["machine"]}
    assert isinstance(model, LGM)
    lgm.save(model, folder, card)


def write(store: Store) -> Path | None:
    """Write the cards beside the models, if there are any."""
    if not kept(store):
        return None
    path = store.folder / "models" / "README.md"
    atomic_write(path, page(store).encode())
    return path


def page(store: Store) -> str:
    return "\n\n".join([HEAD, *[card(cell, run, store) for cell, run in kept(store)]]) + "\n"


def kept(store: Store) -> list[tuple[Cell, Run]]:
    """The cells whose model lies there, and the record of its training; one that diverged left none."""
    made = [cell for cell in all_cells() if keeps_model(cell) and model_folder(cell, store.folder).is_dir()]
    return [(cell, run) for cell in made if "accuracy" in (run := store.runs(cell).get(SEED, {}))]


def section(store: Store) -> str:
    """For the page of results."""
    rows = [
        f"| {model_folder(cell, store.folder).name} | {title(cell.experiment)} | {run['accuracy']:.4f} |"
        for cell, run in kept(store)
    ]
    if not rows:
        return ""
    how = (
        "One model of each of these cells is kept in `experiments/paper/results/models`, to be loaded with `lgm.load`. "
        "Their cards, `experiments/paper/results/models/README.md`, say how each was made and how to make it again."
    )
    return "\n".join(["## Kept models", "", how, "", "| model | what it is | test accuracy |", "|---|---|---|", *rows])


def title(e: Experiment) -> str:
    """Such as "Local LGM, FashionMNIST with 30 % of the pixels visible"."""
    seen = "" if e.visible is None else f" with {_share(e)} of the pixels visible"
    fills = ", also learns to fill in" if e.fill > 0 else ""
    return f"{e.model.capitalize()} LGM, {DATA_NAMES[e.data]}{seen}{fills}"


def card(cell: Cell, run: Run, store: Store) -> str:
    folder = model_folder(cell, store.folder)
    rows = [f"| {name} | {text} |" for name, text in _facts(cell, run, folder)]
    together = run.get("together", 1)
    again = f"python -m experiments.paper {cell.table.label} --cells '{cell.row}/{cell.column}' --column {cell.way}"
    again += f" --seeds {together} --epochs {run['cap']} --out again"
    load = [
        "import torchlgm as lgm",
        "",
        f'model = lgm.load("experiments/paper/results/models/{folder.name}")',
        f'beliefs = lgm.infer(model, {{"pixels": x}}, lgm.{_method(cell.experiment)})  # x: (N, 1, 28, 28)',
        'beliefs["digit"].probs, beliefs["pixels"].probs',
    ]
    head = [f"## {folder.name}", "", f"{title(cell.experiment)}.", "", "| | |", "|---|---|"]
    code = ["", "```python", *load, "```", "", "Made again by", "", "```sh", again, "```"]
    return "\n".join([*head, *rows, *code])


def _facts(cell: Cell, run: Run, folder: Path) -> Iterator[tuple[str, str]]:
    e = cell.experiment
    graph = make_graph(e)
    yield "cell", f"{cell.name}, column {cell.way}"
    yield "data", f"{DATA_NAMES[e.data]}: the first 48,000 images to train, the last 12,000 to validate"
    if e.visible is not None:
        yield "hidden in training and test", f"all but {_share(e)} of the pixels, at random, in training anew each time"
    yield "graph", ", ".join(f"{layer.name} {'x'.join(map(str, layer.sizes))}" for layer in graph.layers)
    yield "method", f"`{_method(e)}`"
    yield "objective", _objective(e)
    unaries = ", unaries of the pixels from the data" if e.start in FROM_DATA else ""
    yield "start", f"{e.start}: `{make_start(e)}`{unaries}"
    yield "settings", _settings(e, run)
    beside = f", in one step with {number_of(run['together'] - 1, 'other seed')}" if run.get("together", 1) > 1 else ""
    yield "seed", f"{SEED}{beside}"
    yield "machine", f"{run['machine']}; {run['seconds']:.0f} s while other trainings ran beside it"
    yield "test", ", ".join(f"{name} {run[key]:.4f}" for key, name in MEASURES.items() if key in run)
    yield "size", f"{sum(file.stat().st_size for file in folder.iterdir()) / 1000:.0f} kB"


def _share(e: Experiment) -> str:
    assert isinstance(e.visible, float)
    return f"{100 * e.visible:.0f} %"


def _method(e: Experiment) -> str:
    """As it is written in Python."""
    return repr(METHODS[e.method](e.iterations, e.schedule)).replace("'", '"')


def _objective(e: Experiment) -> str:
    what = "log-likelihood of the class"
    smooth = f", labels smoothed by {e.smoothing:g}" if e.smoothing else ""
    return what + (f" and of the hidden pixels (weight {e.fill:g})" if e.fill else "") + smooth


def _settings(e: Experiment, run: Run) -> str:
    falls = " that falls to 0 along a half cosine" if e.cosine else ""
    return (
        f"Adam with {e.learning_rate:g}{falls}, batches of {e.batch}, {number_of(run['epochs'], 'epoch')}, the "
        f"weights of the lowest validation loss (epoch {run['best_epoch']})"
    )
