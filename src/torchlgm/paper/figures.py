"""The paper's figures: graphs, requantised images, soft clamping, and what models believe about pixels not seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torchlgm import LGM, data, infer, learn, viz, zoo
from torchlgm.data import Data
from torchlgm.errors import DataError
from torchlgm.paper.cells import Cell, all_cells, make_method
from torchlgm.paper.run import Options, model_folder
from torchlgm.paper.sources import TEST_MASK_SEED
from torchlgm.viz.canvas import BLUE, FAINT, ORANGE, new_figure, plain_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = (2, 4, 256)
SILHOUETTES, DIGIT = "exp_partial_input_fm/Local (0.3)/LGM", "exp_partial_input_m/Local (0.7)/LGM"
PAIR = (4, 9)  # the digits between which the paper's sample is ambiguous


def draw(out: Path, options: Options, tell: Callable[[str], None]) -> list[Path]:
    """Write all figures that can be drawn to `out/figures`, and tell what the others need."""
    folder = out / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, make in _figures(out, options):
        try:
            figure = make()
        except DataError as error:
            tell(f"{name}: {error}")
            continue
        paths.append(folder / f"{name}.png")
        viz.save(figure, paths[-1])
        tell(f"{paths[-1]}")
    return paths


def _figures(out: Path, options: Options) -> Iterator[tuple[str, Callable[[], Figure]]]:
    yield "graph-sequential", lambda: viz.draw_graph(zoo.dense((1, 28, 28), (100, 100)))
    yield "graph-conv", lambda: viz.draw_graph(zoo.windows("conv"))
    yield "graph-local", lambda: viz.draw_graph(zoo.windows("local"))
    yield "soft-clamping", soft_clamping
    yield "requantised", lambda: requantised(_test("fashion-mnist", options))
    yield "silhouettes", lambda: silhouettes(*_model(SILHOUETTES, out), _test("fashion-mnist", options))
    yield "silhouettes-fill", lambda: silhouettes(*_model(f"{SILHOUETTES}+fill", out), _test("fashion-mnist", options))
    yield "ambiguous", lambda: ambiguous(*_model(DIGIT, out), _test("mnist", options))


def _test(name: str, options: Options) -> Data:
    return data.load(name, options.data).test


def _model(name: str, out: Path) -> tuple[LGM, Cell]:
    """The model that our column of a cell left behind."""
    cell = next(cell for cell in all_cells(ways=["ours"]) if cell.name == name)
    folder = model_folder(cell, out)
    if not folder.exists():
        table, rest = name.split("/", 1)
        command = f"torchlgm reproduce {table} --cells '{rest}' --column ours --seeds 1"
        raise DataError(f"needs the model of a training: {command}")
    return learn.load(folder), cell


def _one_of_each(part: Data) -> Tensor:
    """Indices of the first sample of each class."""
    return torch.stack([(part.targets == target).nonzero()[0, 0] for target in part.targets.unique()])


def requantised(part: Data) -> Figure:
    """A sample of each class with 2, 4 and 256 colours."""
    some = _one_of_each(part)
    images, names = part.inputs[some], [part.classes[target] for target in part.targets[some].tolist()]
    rows = {f"{colours} colours": data.requantise(images, colours) / (colours - 1) for colours in COLOURS}
    return viz.image_rows(rows, names)


def _show(axes: Axes, image: Tensor) -> None:
    axes.imshow(image.numpy(), cmap="gray", vmin=0, vmax=1)
    axes.set_axis_off()


def soft_clamping(value: float = 0.7, labels: int = 8) -> Figure:
    """How one grey value enters: as one of many labels, or as the mean of a node with two."""
    figure = new_figure(8, 2.6)
    hard, soft = figure.subplots(1, 2, width_ratios=[labels, 4])
    chosen = int(value * labels)
    hard.bar(range(labels), [1.0 * (k == chosen) for k in range(labels)], color=BLUE)
    hard.set_xticks(range(labels))
    hard.set(title=f"discretised: one of {labels} labels", xlabel="label", ylabel="probability", ylim=(0, 1.05))
    soft.bar([0, 1], [1 - value, value], color=[FAINT, ORANGE], width=0.5)
    soft.set_xticks([0, 1], ["black", "white"])
    soft.set(title="soft clamped: two labels", ylim=(0, 1.05), xlim=(-0.8, 1.8))
    for axes in (hard, soft):
        plain_axes(axes)
    figure.suptitle(f"A grey value of {value:g} as evidence")
    return figure


def _believed(model: LGM, cell: Cell, seen: Tensor) -> tuple[Tensor, Tensor]:
    """Images with beliefs where nothing was seen, and class probabilities (N, K)."""
    with torch.no_grad():
        beliefs = infer(model, {"pixels": seen}, make_method(cell.experiment))
    filled = torch.where(seen.isnan(), beliefs["pixels"].probs[..., 1], seen)
    return filled, beliefs["digit"].probs[:, 0]


def _seen(part: Data, cell: Cell) -> Tensor:
    """The test images as the cell was tested on them."""
    share = cell.experiment.visible
    assert isinstance(share, float)
    return data.hide(part.inputs, share, torch.Generator().manual_seed(TEST_MASK_SEED))


def silhouettes(model: LGM, cell: Cell, part: Data) -> Figure:
    """A sample of each class: the truth, the few pixels that were seen, and beliefs about the others."""
    some = _one_of_each(part)
    seen = _seen(part, cell)[some]
    filled, _ = _believed(model, cell, seen)
    names = [part.classes[target] for target in part.targets[some].tolist()]
    return viz.filled_images(part.inputs[some], seen, filled, names)


def ambiguous(model: LGM, cell: Cell, part: Data) -> Figure:
    """The test image that is most ambiguous between two digits, filled with beliefs, and its class beliefs."""
    seen = _seen(part, cell)
    probs = torch.cat([_believed(model, cell, x)[1] for x in seen.split(500)])
    chosen = int(probs[:, list(PAIR)].min(1).values.argmax())
    filled, _ = _believed(model, cell, seen[chosen : chosen + 1])
    figure = new_figure(8, 2.6)
    left, middle, right = figure.subplots(1, 3, width_ratios=[1, 1, 1.8])
    _show(left, seen[chosen, 0].nan_to_num(0.5))
    left.set_title("what was seen", fontsize=10)
    _show(middle, filled[0, 0])
    middle.set_title("filled with beliefs", fontsize=10)
    target = int(part.targets[chosen])
    colours = [ORANGE if label == target else BLUE for label in range(10)]
    right.bar(range(10), probs[chosen].tolist(), color=colours)
    right.set_xticks(range(10))
    right.set(title=f"class beliefs; it is a {target}", ylim=(0, 1))
    plain_axes(right)
    return figure
