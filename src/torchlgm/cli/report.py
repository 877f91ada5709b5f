"""What a person reads on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any

from torchlgm.cli import samples
from torchlgm.cli.bench import Row
from torchlgm.cli.evaluate import at_shares
from torchlgm.cli.html import PAGE, command
from torchlgm.cli.pictures import is_image
from torchlgm.cli.runs import Run
from torchlgm.cli.words import MEASURES, MODELS, PICTURES

MOST_SHOWN = 50


def print_table(title: str, models: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Figures by share of visible inputs, those of all models together."""
    from rich.console import Console
    from rich.table import Table

    table = Table("visible", "model")
    for head in MEASURES.values():
        table.add_column(head, justify="right")
    for rows in zip(*models.values(), strict=True):
        for place, (name, row) in enumerate(zip(models, rows, strict=True)):
            share = f"{row['visible']:.0%}" if place == 0 else ""
            table.add_row(share, name, *[_figure(row, key) for key in MEASURES], end_section=place == len(models) - 1)
    print(title)
    Console().print(table)


def _figure(row: Mapping[str, Any], key: str) -> str:
    spread = row.get(f"{key}_std", 0.0)
    return f"{row[key]:.3f}" + (f" ± {spread:.3f}" if spread else "")


def print_run(run: Run) -> None:
    """The end of a training: figures, what is where, and what to try next."""
    counts, folder = run.metrics["samples"], run.folder
    title = f"Test data: {counts['test']:,} samples of {Path(run.config.data).name}"
    if run.config.seeds > 1:
        title += f", mean ± standard deviation of {run.config.seeds} seeds"
    print_table(title, {MODELS[name]: at_shares(rows) for name, rows in run.metrics["test"].items()})
    images = not run.is_table and is_image(run.classifier().shape)
    share = run.metrics["most_frequent"]
    if run.metrics["test"]["lgm"][0]["accuracy"] <= share:
        print(_nothing_learnt(share, run, images))
    if filling := run.metrics["filling"]:
        print(_filling_of_table(filling, run.config.fill) if run.is_table else _filling(filling))
    if temperatures := [t["temperature"] for t in run.metrics["seeds"]["lgm"] if "temperature" in t]:
        each = ", ".join(f"{value:.2f}" for value in temperatures)
        print(
            f"The LGM is calibrated on the validation part (temperature {each}); --no-calibrate leaves it as trained."
        )
    if chance := run.metrics.get("by_chance"):
        print(_chance(counts["test"], chance))
    seconds = {name: sum(t["seconds"] for t in trained) for name, trained in run.metrics["seeds"].items()}
    print("Trained in " + ", ".join(f"{value:.0f} s ({MODELS[name]})" for name, value in seconds.items()) + ".")
    print(f"\nEverything is in {folder}/; {PAGE} shows it on one page.")
    for name, meaning in PICTURES.items():
        if (folder / f"{name}.png").is_file():
            print(f"  {name + '.png':16} {meaning}")
    if run.is_table:
        print("The figures are those of a model trained on four fifths of the rows; `predict` uses one trained on all.")
    print("\nWhat to try next:")
    at, data = quote(str(folder)), quote(run.config.data)
    print(f"  torchlgm evaluate {at} --visible 1,0.5,0.1")
    given = next((name for name in (samples.FOLDER, samples.TABLE) if (folder / name).exists()), None)
    file = "FILE.npy" if given is None else quote(str(folder / given))
    print(f"  torchlgm predict {at} {file}")
    if run.is_table and not run.config.fill:
        print(f"  {command(replace(run.config, fill=0.5))}  # learns to fill in missing entries as well")
    else:
        print(f"  torchlgm complete {at} {file} --out filled")
    if images:
        print(f"  torchlgm train {data} --model {'local' if run.config.model == 'dense' else 'dense'}")


def _nothing_learnt(share: float, run: Run, images: bool) -> str:
    config = run.config
    tries = ["--visible 1"] if config.hides or config.visible is None else []
    tries += ["more --epochs"] + (["--colours 4"] if not run.is_table and config.colours < 4 else [])
    return (
        f"The LGM is right no more often than the most frequent class is ({share:.3f}): it has learnt nothing from "
        f"complete {'images' if images else 'rows'}. Try {' or '.join(tries)}."
    )


def _chance(samples: int, rows: Sequence[Mapping[str, float]]) -> str:
    each = ", ".join(f"{row['calibration_error']:.3f} ({row['visible']:.0%} visible)" for row in rows)
    return f"On {samples:,} samples even a perfectly calibrated model shows calibration errors of {each}, by chance."


def _filling(figures: Mapping[str, float]) -> str:
    text = (
        f"Filling in: with half of the inputs hidden, guesses are off by {figures['error']:.3f} (RMS on a 0-1 scale); "
    )
    text += f"always guessing the mean is off by {figures['of_mean']:.3f}."
    if figures["error"] >= figures["of_mean"]:
        text += " The model cannot fill in yet (train it longer, or with a larger --fill), or the inputs say little "
        text += "about each other."
    return text


def _filling_of_table(figures: Mapping[str, float], weight: float | None) -> str:
    parts, worse = [], False
    if "error" in figures:
        worse |= figures["error"] > figures["of_mean"]
        parts.append(
            f"numbers are off by {figures['error']:.2f} standard deviations (the mean of the column is off by "
            f"{figures['of_mean']:.2f})"
        )
    if "right" in figures:
        worse |= figures["right"] < figures["of_most_frequent"]
        parts.append(
            f"{figures['right']:.0%} of the categories are right (the most frequent one is in "
            f"{figures['of_most_frequent']:.0%})"
        )
    text = f"Filling in: with half of the entries hidden, {', '.join(parts)}."
    if worse and not weight:
        text += " This model learned to predict the class alone; --fill 0.5 trains one that also fills in."
    return text


def print_predictions(rows: Sequence[Mapping[str, Any]]) -> None:
    """The most probable class of each sample with its probability, and the second."""
    from rich.console import Console
    from rich.table import Table

    table = Table("sample", "class", "", "", "else", box=None, padding=(0, 2, 0, 0))
    for row in rows[:MOST_SHOWN]:
        (first, p), *others = sorted(row["probs"].items(), key=lambda pair: -pair[1])
        second = f"{others[0][0]} {others[0][1]:.0%}" if others else ""
        table.add_row(row["sample"], first, f"{p:4.0%}", f"[blue]{'█' * round(20 * p)}[/]", second)
    Console().print(table)
    if (more := len(rows) - MOST_SHOWN) > 0:
        print(f"... and {more:,} more; --out FILE.csv writes all of them with all probabilities.")


def print_runs(folder: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    if not rows:
        print(f"There are no runs in {folder}/; `torchlgm train` makes one.")
        return
    share = next((f"{row['visible']:.0%}" for row in rows if "visible" in row), "few")
    table = Table("run", "date", "data", "model", "accuracy", f"{share} visible", box=None, padding=(0, 2, 0, 0))
    for row in rows:
        figures = [f"{row[key]:.3f}" if key in row else "" for key in ("accuracy", "accuracy_visible")]
        figures[0] = figures[0] or row["state"]
        table.add_row(row["folder"], row["date"], row.get("data", ""), row.get("model", ""), *figures)
    Console().print(table)


def print_facts(facts: Mapping[str, Any]) -> None:
    """A run: its graph, its training and its figures."""
    metrics = facts["metrics"]
    counts = metrics["samples"]
    columns, shape = len(facts.get("columns", ())), "x".join(map(str, facts.get("shape", ())))
    kind = f"rows of {columns} columns" if columns else f"samples of {shape}"
    valid = f"{counts['valid']:,} to validate, " if "valid" in counts else ""
    print(facts["graph"])
    print(f"\ninference  {facts['inference']}")
    print(f"data       {facts['data']}, {kind}: ", end="")
    print(f"{counts['train']:,} to train, {valid}{counts['test']:,} to test")
    if "columns" in facts:
        print(f"columns    {_columns(facts['columns'])}")
    print(f"classes    {', '.join(facts['classes'])}")
    for name, trained in metrics["seeds"].items():
        for t in trained:
            print(f"{'training':10} {MODELS[name]}, seed {t['seed']}: {_training(t)}")
    print()
    print_table("Test data", {MODELS[name]: at_shares(rows) for name, rows in metrics["test"].items()})


def _training(figures: Mapping[str, Any]) -> str:
    epochs = f"{figures['epochs']} epochs in " if "epochs" in figures else ""
    best = figures.get("best")
    stopped = f", best epoch {best['epoch']} (validation loss {best['valid_loss']:.4f})" if best else ""
    return f"{epochs}{figures['seconds']:.0f} s{stopped}"


def _columns(kinds: Mapping[str, str]) -> str:
    return ", ".join(name if kind == "numbers" else f"{name} ({kind})" for name, kind in kinds.items())


def print_data(facts: Mapping[str, Any]) -> None:
    if "known" in facts:
        print(
            f"Known data sets: {', '.join(facts['known'])}; or a table, a .npz file, a folder of images or idx files."
        )
    elif "columns" in facts:
        _print_table_data(facts)
    else:
        print(f"{facts['name']}: {facts['train']:,} samples to train, {facts['test']:,} to test")
        print(f"shape    {'x'.join(map(str, facts['shape']))}")
        print(f"missing  {facts['missing']:.1%} of all values")
        print("classes  " + ", ".join(f"{name} ({train} + {test})" for name, (train, test) in facts["classes"].items()))


def _print_table_data(facts: Mapping[str, Any]) -> None:
    left_out = f", {facts['unlabelled']:,} more without a label" if facts["unlabelled"] else ""
    print(f"{facts['name']}: {facts['rows']:,} rows{left_out}")
    print(f"columns  {_columns(facts['columns'])}")
    print(f"target   {facts['target']}")
    print(f"missing  {facts['missing']:.1%} of all values")
    print("classes  " + ", ".join(f"{name} ({count})" for name, count in facts["classes"].items()))


def print_bench(machine: Mapping[str, Any], rows: Sequence[Row]) -> None:
    """Figures next to those of rivals, then what could not be measured."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    print(", ".join(f"{key} {value}" for key, value in machine.items()))
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for head in ("work", "model", "LGM", "rival", "times"):
        table.add_column(head, justify="left" if head in ("work", "model") else "right", no_wrap=True)
    for row in rows:
        if row.ours is not None and row.theirs is not None:
            ours, theirs = (_rounded(value) + f" {row.unit}" for value in (row.ours, row.theirs))
            table.add_row(row.work, row.model, ours, theirs, _rounded(row.ours / row.theirs))
    Console().print(table)
    print("The rival is a neural network of the same shape, run in the same way; for 10 models in one step, one LGM.")
    lacking: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        if row.needs:
            lacking.setdefault((row.work, row.rival, row.needs), []).append(row.model)
    if lacking:
        print("\nNot measured:")
    for (work, rival, needs), models in lacking.items():
        print(f"  {work} ({', '.join(models)}; rival: {rival}): {needs}")
    print("\nRivals that need more than this package are in docs/benchmarks.md of the repository.")


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
