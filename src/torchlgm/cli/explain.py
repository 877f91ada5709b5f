"""Why a sample is taken for its class: what each input adds to the log-odds."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchlgm import viz
from torchlgm.cli import tables
from torchlgm.cli.classifier import Classifier
from torchlgm.cli.io import require_new_file
from torchlgm.cli.pictures import is_image
from torchlgm.cli.pretrained import find_model
from torchlgm.cli.runs import Run
from torchlgm.cli.unlabelled import read_samples
from torchlgm.data import load
from torchlgm.errors import DataError
from torchlgm.joint import shapley

_ORDERS = 16  # for each image: it has many pixels
_SUFFIXES = (".png", ".pdf", ".svg")


class Explained(NamedTuple):
    facts: dict[str, Any]  # in nats of log-odds
    text: str


def explain(
    folder: Path,
    row: str,
    file: Path | None = None,
    label: str | None = None,
    out: Path | None = None,
    missing_value: float | None = None,
) -> Explained:
    """A row of `file`, or of the data of the run, for a class, by default the most probable one; drawn in `out`."""
    run = find_model(folder)
    if out is not None:
        if out.suffix.lower() not in _SUFFIXES:
            raise DataError(f"{out}: expected a name that ends in {', '.join(_SUFFIXES)}")
        require_new_file(out)
    explained = _explain_table if run.is_table else _explain_sample
    return explained(run, row, file, label, out, missing_value)


def _explain_table(
    run: Run, row: str, file: Path | None, label: str | None, out: Path | None, missing_value: float | None
) -> Explained:
    classifier = tables.load_classifier(run)
    path = tables.find(run.config) if file is None else file
    X = tables.read_rows(path, run, classifier, missing_value).X
    place = _place(row, [str(i) for i in range(len(X))], path)
    with tables.data_errors():
        one = classifier.explain(X.iloc[place : place + 1].reset_index(drop=True).set_axis([place]))[0]
    names = tables.class_names(classifier)
    wanted = one.label if label is None else one.classes[_class(label, names)]
    if out is not None:
        viz.save(one.figure(wanted), out)
    facts = {
        "row": place,
        "class": str(wanted),
        "probability": one.probability(wanted),
        "base": one.base(wanted),
        "shares": [{**share._asdict(), "value": _plain(share.value)} for share in one.shares(wanted)],
        "answer": one.answer(wanted),
    }
    return Explained(facts, one.text(wanted))


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    value = value.item() if hasattr(value, "item") else value
    return value if isinstance(value, bool | int | float | str) else str(value)


def _explain_sample(
    run: Run, row: str, file: Path | None, label: str | None, out: Path | None, missing_value: float | None
) -> Explained:
    """An image or an array: for each class; the shares of pixels are for the picture and for JSON."""
    classifier = run.classifier()
    if file is None:
        config = run.config
        inputs = load(config.data, config.data_folder, missing_value=run.missing_value(missing_value)).test.inputs
        names, where = [str(i) for i in range(len(inputs))], f"the test part of {config.data}"
    else:
        samples = read_samples(file, classifier, run.missing_value(missing_value))
        inputs, names, where = samples.inputs, samples.names, str(file)
    place = _place(row, names, where)
    x = inputs[place : place + 1]
    posterior = classifier.posterior.double()
    shares = shapley(posterior, x.double(), _ORDERS)
    shown = int(shares.answer[0].argmax()) if label is None else _class(label, list(classifier.classes))
    by_class = shares.values[0].movedim(-1, 0)  # (classes, *shape)
    if out is not None:
        viz.save(_picture(classifier, x[0], by_class, shares.answer[0]), out)
    rows = [
        {
            "class": name,
            "probability": torch.sigmoid(answer).item(),
            "base": base.item(),
            "for": values.clamp(min=0).sum().item(),
            "against": values.clamp(max=0).sum().item(),
            "answer": answer.item(),
        }
        for name, base, answer, values in zip(
            classifier.classes, shares.base[0], shares.answer[0], by_class, strict=True
        )
    ]
    facts = {"row": names[place], "class": classifier.classes[shown], "classes": rows}
    facts["shares"] = by_class[shown].tolist()
    return Explained(facts, _text(names[place], rows, shown))


def _picture(classifier: Classifier, x: Tensor, by_class: Tensor, answer: Tensor) -> Any:
    if not is_image(classifier.shape):
        raise DataError(f"--out draws images and rows of tables, but a sample is shaped {classifier.shape}; use --json")
    return viz.class_evidence(x, by_class.sum(1), classifier.classes, answer)


def _text(name: str, rows: list[dict[str, Any]], shown: int) -> str:
    wide = max(len(row["class"]) for row in rows)
    heads = ("nothing seen", "for", "against", "answer", "probability")
    lines = [
        f"{name}: class {rows[shown]['class']}, {rows[shown]['probability']:.1%}; log-odds in nats, each answer the "
        "sum of the three columns before it",
        "  ".join(["", f"{'class':{max(5, wide)}}", *(f"{head:>12}" for head in heads)]),
    ]
    for row in sorted(rows, key=lambda row: -row["answer"]):
        numbers = [f"{row[key]:+12.2f}" for key in ("base", "for", "against", "answer")]
        lines.append("  ".join(["", f"{row['class']:{max(5, wide)}}", *numbers, f"{row['probability']:12.1%}"]))
    return "\n".join(lines)


def _place(row: str, names: list[str], where: object) -> int:
    if row in names:
        return names.index(row)
    some = f"rows 0 to {len(names) - 1}" if names[0] == "0" else ", ".join(names[:5])
    raise DataError(f"{where}: has no row {row!r}; expected one of {some}")


def _class(label: str, names: list[str]) -> int:
    if label not in names:
        raise DataError(f"--class {label}: expected one of {', '.join(names)}")
    return names.index(label)
