"""The pictures of a run folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchlgm import viz
from torchlgm.cli.classifier import Classifier
from torchlgm.cli.evaluate import ShareRows
from torchlgm.data import Data, hide
from torchlgm.metrics import confusion
from torchlgm.spec import Conv, Dense, Local

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Predict = Callable[[Tensor], Tensor]

_FILLED = 10  # samples for each way of hiding, at most
_UNCERTAIN = 6
_FIELDS = 16
_HALF, FEW = 0.5, 0.3  # visible shares


def write_pictures(
    folder: Path,
    classifier: Classifier,
    history: Sequence[Mapping[str, Any]],
    test: Data,
    predictors: Mapping[str, Predict],
    curves: Mapping[str, ShareRows],
) -> list[Path]:
    """All pictures that such data allow; `predictors` and `curves` are by the name of the model, the LGM first."""
    paths = []
    for name, figure in _figures(classifier, history, test, predictors, curves):
        paths.append(folder / f"{name}.png")
        viz.save(figure, paths[-1])
    return paths


def _figures(
    classifier: Classifier,
    history: Sequence[Mapping[str, Any]],
    test: Data,
    predictors: Mapping[str, Predict],
    curves: Mapping[str, ShareRows],
) -> Iterator[tuple[str, Figure]]:
    probs = classifier.predict_proba(test.inputs)
    yield "graph", viz.draw_graph(classifier.model.graph)
    yield "learning", viz.learning_curves(history)
    yield "confusion", viz.confusion_matrix(confusion(probs, test.targets), classifier.classes)
    yield "reliability", viz.reliability_diagram(_reliability(test, predictors))
    inputs = "pixels" if is_image(classifier.shape) else "columns"
    chance = test.targets.bincount().max().item() / len(test.targets)
    yield "visible", viz.visible_share(curves, inputs=inputs, chance=chance)
    if not is_image(classifier.shape):
        return
    yield "filled", _filled(classifier, test)
    yield "uncertain", _uncertain(classifier, probs, test)
    fields = hidden_fields(classifier)
    if fields is not None:
        yield "hidden", viz.hidden_responses(*fields)


def is_image(shape: tuple[int, ...]) -> bool:
    return len(shape) == 3 and shape[0] in (1, 3)


def _reliability(test: Data, predictors: Mapping[str, Predict]) -> dict[str, tuple[Tensor, Tensor]]:
    few = hide(test.inputs, FEW, torch.Generator().manual_seed(0))
    return {f"{name}, {FEW:.0%} visible": (predict(few), test.targets) for name, predict in predictors.items()}


def _filled(classifier: Classifier, test: Data) -> Figure:
    """A sample of each class: random pixels missing above, a block below."""
    firsts = [(test.targets == target).nonzero()[:1, 0] for target in test.targets.unique()]
    some = torch.cat(firsts)[:_FILLED]
    truth, draw = test.inputs[some], torch.Generator().manual_seed(0)
    seen = torch.cat([hide(truth, _HALF, draw, like) for like in ("random", "block")])
    sure, answers = classifier.predict_proba(seen).max(1)
    titles = [f"{classifier.classes[k]} ({p:.0%})" for k, p in zip(answers.tolist(), sure.tolist(), strict=True)]
    right = answers.cpu() == torch.cat([test.targets[some]] * 2).cpu()
    return viz.filled_images(torch.cat([truth, truth]), seen, classifier.complete(seen), titles, right)


def _uncertain(classifier: Classifier, probs: Tensor, test: Data) -> Figure:
    order = torch.special.entr(probs).sum(1).argsort(descending=True, stable=True)[:_UNCERTAIN]
    return viz.uncertain_samples(test.inputs[order], probs[order], test.targets[order], classifier.classes)


def hidden_fields(classifier: Classifier) -> tuple[Tensor, list[str] | None] | None:
    """Minus the energies between the inputs and the first hidden nodes, `(n, H, W)`, and a title for each.

    Nodes that are joined with the class have the one they speak for most in the title, and those that say most about it
    come first; of others it is the strongest. Of windows it is one channel's kernel, for Local in the middle of the
    image. Labels beyond the second and the colours of a pixel are averaged. None if no such connection starts at the
    inputs.
    """
    model, (channels, *size) = classifier.model, classifier.shape
    first = next((c for c in model.graph.connections if c.left == classifier.input), None)
    if first is None or not isinstance(first, Dense | Conv | Local):
        return None
    table = -model.energies(first.name).detach().cpu().mean((-2, -1))
    if isinstance(first, Dense):
        maps = table.T.unflatten(1, (channels, *size)).mean(1)
        last = next((c for c in model.graph.connections if (c.left, c.right) == (first.right, classifier.target)), None)
        if isinstance(last, Dense):
            speaks = -model.energies(last.name).detach().cpu()[:, 0].mean(1)  # for each class but the first, whose is 0
            speaks = torch.nn.functional.pad(speaks, (1, 0))
            order = speaks.std(1).argsort(descending=True, stable=True)[:_FIELDS]
            return maps[order], [f"for {classifier.classes[k]}" for k in speaks[order].argmax(1).tolist()]
    else:
        while table.dim() > 4:  # (left channel, right channel, *kernel, *position)
            table = table[..., table.shape[-1] // 2]
        maps = table.mean(0)
    return maps[maps.flatten(1).norm(dim=1).argsort(descending=True, stable=True)[:_FIELDS]], None
