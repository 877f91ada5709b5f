"""Class probabilities of samples in a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchlgm.cli import tables
from torchlgm.cli.config import AS_TRAINED, ImageForm
from torchlgm.cli.io import as_csv, as_json, require_new_file
from torchlgm.cli.pretrained import find_model
from torchlgm.cli.unlabelled import read_samples
from torchlgm.errors import DataError


def predict(
    folder: Path, file: Path, missing_value: float | None = None, form: ImageForm = AS_TRAINED
) -> list[dict[str, Any]]:
    """A row for each sample: its name, the most probable class and the probabilities of all."""
    run = find_model(folder)
    if run.is_table:
        model = tables.load_classifier(run)
        classes: Sequence[str] = tables.class_names(model)
        probs = tables.probabilities(model, tables.read_rows(file, run, model, missing_value).X)
        names = [str(i) for i in range(len(probs))]
    else:
        classifier = run.classifier()
        samples = read_samples(file, classifier, run.missing_value(missing_value), form, run.brightness)
        classes, names, probs = classifier.classes, samples.names, classifier.predict_proba(samples.inputs)
    return [
        {"sample": name, "class": classes[int(p.argmax())], "probs": dict(zip(classes, p.tolist(), strict=True))}
        for name, p in zip(names, probs, strict=True)
    ]


def as_text(rows: list[dict[str, Any]], kind: str) -> str:
    """The rows as "csv" or "json"."""
    if kind == "json":
        return as_json(rows) + "\n"
    header = ["sample", "class", *rows[0]["probs"]]
    return as_csv(header, [[r["sample"], r["class"], *[f"{p:.6g}" for p in r["probs"].values()]] for r in rows])


def kind_of(out: Path) -> str:
    """What to write to `out`, "csv", "json" or "parquet"; it must not exist yet."""
    kind = out.suffix.lower().removeprefix(".")
    if kind not in ("csv", "json", "parquet"):
        raise DataError(f"{out}: expected a name that ends in .csv or .json, or of a table in .parquet")
    require_new_file(out)
    return kind
