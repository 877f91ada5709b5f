"""Writes docs/benchmarks.md and its pictures from the results: every figure on the page was measured.

    PYTHONPATH=src python benchmarks/page.py

`tried.md` beside this script is the last section of the page.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from math import exp, log
from pathlib import Path
from statistics import linear_regression
from textwrap import fill
from typing import Any

from common import table
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator
from summary import TITLES, by, summary

from torchlgm._utils.atomic import atomic_write
from torchlgm.viz.canvas import BLUE, FAINT, GREEN, LGM, MARKERS, ORANGE, new_figure, plain_axes, save

HERE = Path(__file__).parent
ROOT = HERE.parent
PICTURES = "images"  # beside the page
LISTED = 12  # kernels in a table
SHARE = "share of the floor's rate"
Results = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", type=Path, default=HERE / "results" / "h200.json")
    parser.add_argument("--later", type=Path, default=HERE / "results" / "h200-sweep.json", help="a later run of some")
    parser.add_argument("--cpu", type=Path, default=HERE / "results" / "cpu-2core.json")
    parser.add_argument("--tried", type=Path, default=HERE / "tried.md")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "benchmarks.md")
    options = parser.parse_args()
    gpu, cpu = (json.loads(file.read_text()) for file in (options.gpu, options.cpu))
    if options.later.exists():
        gpu |= {name: entry for name, entry in json.loads(options.later.read_text()).items() if name != "machine"}
    tried = options.tried.read_text() if options.tried.exists() else ""
    write_page(gpu, cpu, tried, options.out)


def write_page(gpu: Results, cpu: Results, tried: str, out: Path) -> None:
    folder = out.parent / PICTURES
    folder.mkdir(parents=True, exist_ok=True)
    sections = [
        begin(gpu),
        *floor(gpu, folder),
        *sweep(gpu),
        *growth(gpu, folder),
        *profiled(gpu, folder),
        *first(gpu),
        *serving(gpu),
        *processor(cpu),
        HOW,
        *([tried.strip()] if tried else []),
    ]
    atomic_write(out, ("\n\n".join(sections) + "\n").encode())


TITLE = """# Benchmarks

What training and inference cost, compared with what you would otherwise use. The models are the paper's: Local and Conv
(28x28 - 6x13x13 - 16x5x5 - 100 - 10) and Dense (28x28 - 100 - 10), binary hidden nodes, sequential TRW, T = 5."""


def begin(gpu: Results) -> str:
    machine = gpu["machine"]
    versions = ", ".join(f"{name} {machine[name]}" for name in ("torch", "triton", "jax", "pgmax") if name in machine)
    where = machine.get("gpu", machine["cpu"])
    source = f"""Unless a section names another file, its numbers come from
        [one run](../benchmarks/results/h200.json) on one {where} ({versions}, Python {machine["python"]}); those of one
        sweep and of several models in one step come from [a later run](../benchmarks/results/h200-sweep.json). This
        page is generated from these files. Answers are compared before anything is timed. `torchlgm bench` measures on
        your machine what needs no other library."""
    goals = summary(gpu)
    reached = table(goals) + noted(gpu.get("train", {})) + noted(gpu.get("race", {}))
    return "\n\n".join([TITLE, in_short(goals), wrapped(source), "## Goals", reached])


def in_short(goals: list[Results]) -> str:
    """How many goals are reached, and which are not."""
    judged = [row for row in goals if row["reached"]]
    missed = [f"- {row['work']}: {row['result']}, target {row['target']}" for row in judged if row["reached"] == "no"]
    text = f"**In short**, {len(judged) - len(missed)} of {len(judged)} goals on the GPU are reached."
    return "\n".join([f"{text} The others ([why](#what-bounds-a-step)):\n", *missed]) if missed else text


def noted(entry: Results) -> str:
    """What is to be known of a measurement, if anything, as one more paragraph."""
    return f"\n\n{wrapped(entry['note'])}" if "note" in entry else ""


def wrapped(text: str) -> str:
    return fill(" ".join(text.split()), 120, break_long_words=False, break_on_hyphens=False)


def floor(gpu: Results, folder: Path) -> Iterator[str]:
    entry = gpu.get("floor", {})
    if "rows" not in entry:
        return
    ceilings, rows = entry["ceilings"], good(entry)
    save(roofline(ceilings, rows), folder / "benchmarks-roofline.png")
    shown = [
        {
            "model": TITLES[row["model"]],
            "batch": row["batch"],
            "step, ms": row["lgm ms"],
            "network, ms": row["network ms"],
            "bytes, GB": row["GB"],
            "moved in, ms": row["bytes ms"],
            "special functions, billions": row["special G"],
            "computed in, ms": row["special ms"],
            "share of the limit": f"{row[SHARE]:.0%}",
        }
        for row in rows
    ]
    yield f"""## How close to the hardware limit

A step cannot be faster than memory can move its bytes, nor than the special-function units can compute its
exponentials, logarithms and reciprocals. Both are counted from the plan of messages; a tensor counts each time
that a kernel has to read or write it, and what does not depend on the sample counts once. The ceilings are measured:
{ceilings["copy GB/s"]:,.0f} GB/s read and written by a copy of 2 GiB, {ceilings["special G/s"]:,.0f} billion special
functions a second ({ceilings["special by"]}). The limit is the larger of the two times.

{table(shown)}

![Roofline: special functions a second against special functions for each byte](images/benchmarks-roofline.png)

At batch 256 much of what is counted as moved can stay in the cache between kernels, so a share may exceed 100 %."""


def sweep(gpu: Results) -> Iterator[str]:
    """One sweep beside the network, with what it must move and compute."""
    entry = gpu.get("sweep", {})
    if "rows" not in entry:
        return
    shown = [
        {
            "model": TITLES[row["model"]],
            "batch": row["batch"],
            "step, ms": row["lgm ms"],
            "network, ms": row["network ms"],
            "bytes, GB": row["GB"],
            "moved in, ms": row["bytes ms"],
            "special functions, billions": row["special G"],
            "computed in, ms": row["special ms"],
            "limit over the network's step": row["floor ms"] / row["network ms"],
        }
        for row in good(entry)
    ]
    yield f"""## One sweep

The same for a training step by one sweep of belief propagation. The last column divides the limit by the time of the
network's step:

{table(shown)}"""


def roofline(ceilings: Results, rows: list[Results]) -> Any:
    figure = new_figure(6.5, 4.2)
    axes = figure.subplots()
    plain_axes(axes)
    top, slope = ceilings["special G/s"], ceilings["copy GB/s"]
    points = {(row["model"], row["batch"]): (row["special G"] / row["GB"], row["special G"] / row["lgm ms"] * 1000)
              for row in rows}  # fmt: skip
    least = min(x for x, _ in points.values()) / 2
    most = max(2 * top / slope, 2 * max(x for x, _ in points.values()))
    axes.plot([least, top / slope, most], [slope * least, top, top], color="0.4", linewidth=1.5)
    axes.text(most, top * 1.08, "special-function units", ha="right", va="bottom", fontsize=8, color="0.4")
    axes.text(least, slope * least * 2, "memory", fontsize=8, color="0.4")
    batches = sorted({batch for _, batch in points})
    together: dict[tuple[float, float], list[str]] = {}  # points that lie on each other have one label
    for (model, batch), (x, y) in sorted(points.items(), key=lambda point: -point[1][1]):
        axes.plot(x, y, linestyle="", color=LGM, marker=MARKERS[batches.index(batch)])
        near = next((at for at in together if abs(log(at[0] / x)) < 0.1 and abs(log(at[1] / y)) < 0.4), (x, y))
        together.setdefault(near, []).append(f"{TITLES[model]}, batch {batch}")
    for (x, y), labels in together.items():
        axes.annotate("\n".join(labels), (x, y), (8, 0), textcoords="offset points", fontsize=8, va="top")
    axes.set(xscale="log", yscale="log", xlabel="special functions for each byte",
             ylabel="billion special functions a second", title="A training step under its roof")  # fmt: skip
    ticks = [t for t in (0.1, 0.2, 0.5, 1, 2, 5, 10) if least <= t <= most]
    axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axes.set_xticks([], minor=True)
    return figure


GROWTH = {"batch": "samples in a batch", "iterations": "iterations T", "edges": "edges between hidden layers"}


def growth(gpu: Results, folder: Path) -> Iterator[str]:
    entry = gpu.get("growth", {})
    if "rows" not in entry:
        return
    save(curves(good(entry)), folder / "benchmarks-growth.png")
    series = {along: [row for row in good(entry) if row["along"] == along] for along in GROWTH}
    batch = series["iterations"][0]["batch"]
    yield f"""## Growth

Time and peak memory of a captured training step: of Local by batch size and, at batch {batch}, by number of iterations;
of a dense model with two hidden layers (100 nodes, and 100 to 1,000) by number of edges at batch {batch}. Dashed lines
are fitted powers, given in the titles. Steps below T = 5 skip messages that cannot matter and are not fitted. Memory
includes the model and its optimizer.

![Time and memory of a training step](images/benchmarks-growth.png)

{table([_grown(row) for rows in series.values() for row in rows])}{noted(entry)}"""


def _grown(row: Results) -> Results:
    return {"grows": GROWTH[row["along"]], "to": f"{row['value']:,}", "ms": row["ms"], "GB": row["GB"]}


def curves(rows: list[Results]) -> Any:
    figure = new_figure(11, 5.6)
    panels = figure.subplots(2, len(GROWTH), squeeze=False)
    for column, (along, name) in enumerate(GROWTH.items()):
        here = [row for row in rows if row["along"] == along]
        for line, (key, unit, colour) in enumerate((("ms", "ms", LGM), ("GB", "GB", LGM))):
            axes = panels[line][column]
            plain_axes(axes)
            xs, ys = [row["value"] for row in here], [row[key] for row in here]
            if None not in ys:
                fit = [(x, y) for x, y in zip(xs, ys, strict=True) if along != "iterations" or x >= 5]
                axes.plot(xs, ys, color=colour, marker="o", markersize=4)
                title = f"{here[0]['model']}: {unit}"
                if len(fit) > 1:
                    power, start = linear_regression([log(x) for x, _ in fit], [log(y) for _, y in fit])
                    fitted = [exp(start) * x**power for x, _ in fit]
                    axes.plot([x for x, _ in fit], fitted, color=FAINT, linestyle="--", zorder=1)
                    title += f" as {along}^{power:.2f}"
                axes.set_title(title, fontsize=10)
            axes.set(xscale="log", yscale="log", xlabel=name, ylabel=unit)
            axes.xaxis.set_major_locator(FixedLocator(xs))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
            axes.yaxis.set_minor_formatter(NullFormatter())
            axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
            axes.tick_params(axis="x", labelsize=7 if along == "edges" else 9)
    return figure


def profiled(gpu: Results, folder: Path) -> Iterator[str]:
    entry = gpu.get("profiled", {})
    if "rows" not in entry:
        return
    rows = good(entry)
    save(timeline(rows[0]), folder / "benchmarks-kernels.png")
    parts = [_profile(row) for row in rows]
    yield f"""## Where the time goes

Kernels of one captured step in PyTorch's profiler. `send` computes messages and adds them up at their targets,
`send_backward` is its gradient, `pack` converts inputs for the kernels, and `score` is the loss and its gradient; the
others are PyTorch's own: gathering the batch, adding up partial sums, and Adam. Kernels of different connections run in
parallel, and a kernel is launched before the previous one has ended, so their times add up to more than the step.

![Kernels of a step in order](images/benchmarks-kernels.png)

{(chr(10) * 2).join(parts)}{noted(entry)}"""


def _profile(row: Results) -> str:
    kernels = row["by kernel"]
    rest = kernels[LISTED:]
    shown = [
        {"kernel": f"`{k['kernel']}`", "launches": k["launches"], "microseconds": k["us"]} for k in kernels[:LISTED]
    ]
    if rest:
        launches, us = sum(k["launches"] for k in rest), sum(k["us"] for k in rest)
        shown.append({"kernel": f"{len(rest)} others", "launches": launches, "microseconds": us})
    for line in shown:
        line["share"] = f"{line['microseconds'] / row['kernel ms'] / 1000:.0%}"
    head = f"{TITLES[row['model']]}, batch {row['batch']}{by(row)}: a step of {row['step ms']:.3g} ms"
    return f"{head}, {row['kernels']} kernels that take {row['kernel ms']:.3g} ms:\n\n{table(shown)}"


def timeline(row: Results) -> Any:
    kernels = row["in order"]
    kinds = {"send": BLUE, "send_backward": ORANGE}
    figure = new_figure(9, 3)
    axes = figure.subplots()
    plain_axes(axes)
    ends = ("pack", "score", "add_up")
    colours = [kinds.get(k["kernel"], GREEN if k["kernel"] in ends else FAINT) for k in kernels]
    axes.bar(range(len(kernels)), [k["us"] for k in kernels], color=colours, width=0.9)
    for name, colour in (*kinds.items(), (", ".join(ends), GREEN), ("PyTorch's", FAINT)):
        axes.bar(0, 0, color=colour, label=name)
    axes.set(xlabel="kernel, in the order of the step", ylabel="microseconds")
    axes.set_title(f"{TITLES[row['model']]}, batch {row['batch']}", fontsize=10)
    axes.legend(fontsize=8, frameon=False, ncol=2)
    return figure


def first(gpu: Results) -> Iterator[str]:
    entry = gpu.get("first", {})
    if "rows" not in entry:
        return
    shown = [
        {"model": TITLES[row["model"]], "nothing compiled, s": row["cold s"], "kernels on disk, s": row["cached s"]}
        for row in good(entry)
    ]
    yield f"""## The first step

From a new graph to the end of its first captured step at batch {entry["batch"]}, in a new process: a first pass gathers
the kernels, several threads compile them, then the step is run to warm up and captured. The goal is 20 s with nothing
compiled and 5 s with the kernels in Triton's cache on disk. The three models are measured at the same time, each with a
cache of its own, so they share the processors.

{table(shown)}{noted(entry)}"""


def serving(gpu: Results) -> Iterator[str]:
    entry = gpu.get("serving", {})
    if "rows" not in entry:
        return
    shown = [
        {
            "model": TITLES[row["model"]],
            "method": "(neural network)" if row["method"] == "network" else row["method"],
            "one answer, ms": row["latency ms"],
            f"a batch of {entry['large']:,}, ms": row["batch ms"],
            "samples a second": row["samples/s"],
        }
        for row in good(entry)
    ]
    yield f"""## Serving

`torchlgm.learn.CapturedPredictor` captures a forward pass. One answer is the time from an image on the host to its
class probabilities on the host; batches of {entry["large"]:,} images stay on the device.

{table(shown)}{noted(entry)}"""


def processor(cpu: Results) -> Iterator[str]:
    step, race = cpu.get("step"), cpu.get("pgmax")
    if step is None or race is None:
        return
    steps = [
        {
            "model": TITLES[row["model"]],
            "batch": row["batch"],
            "network, ms": row["network ms"],
            "one sweep, ms": row["sweep ms"],
            "times the network": row["sweep over network"],
            "target": 4.0,
            "TRW, T = 5, ms": row["trw ms"],
            "times": row["trw over network"],
        }
        for row in step["steps"]
    ]
    races = [
        {
            "work": row["task"],
            "torchlgm, ms": row["torchlgm"],
            "PGMax, ms": row["PGMax"],
            "times faster": row["times faster"],
            "target": row["target"],
        }
        for row in race["rows"]
    ]
    yield f"""## On the CPU

A training step by one sweep of belief propagation and by sequential TRW with 5 iterations, beside the network of the
same shape: CPU time of one thread of an {step["machine"]["cpu"]}, torch {step["machine"]["torch"]}, the least of many
steps ([the results](../benchmarks/results/cpu-2core.json)). Only the sweep has a target.

{table(steps)}

Belief propagation against PGMax {race["machine"].get("pgmax", "")} on JAX {race["machine"].get("jax", "")}, CPU time of
one iteration at batch 20 on one thread of an {race["machine"]["cpu"]}:

{table(races)}"""


HOW = """## How it is measured

- `python benchmarks/gpu.py --json FILE` makes the results of one run; with `--device cpu` it measures what a CPU can
  do. `benchmarks/README.md` says how to install PGMax.
- Loss and gradients of the kernels in float32 are compared with plain PyTorch in float64, for the same weights and
  batch: the loss and the gradient as a whole must agree to 1e-4 in norm, that of every single parameter to 1e-3.
  Probabilities that are served must agree to 1e-4, marginals with PGMax's to 1e-4 and gradients to 1e-3.
- Both sides of a comparison use the same trainer and the same data on the device. The network has PyTorch's fused Adam,
  used in the ordinary way; ours is the same kernel applied to the parameters in pieces, and separate rows say what the
  network would gain by that. "Captured" means the whole step, including gathering the batch and updating the weights,
  as one CUDA graph; "launched from Python" is ordinary PyTorch.
- Times are medians of 10 groups of steps, each of at least 50 ms, with the device idle before and after; kernels are
  compiled before.
- Growth counts as linear if an additional sample, iteration or edge costs at most 1.1 times as much between the last
  two points as between the two before them. The fixed cost of a step, and the first iterations, in which little depends
  on the sample, do not count there; they do count in the power of the last two points.
- Memory is the peak of PyTorch's allocator without the data: the model, the optimizer, the step and all it keeps."""


def good(entry: Results) -> list[Results]:
    """Rows whose answers were right."""
    return [row for row in entry["rows"] if "incorrect" not in row]


if __name__ == "__main__":
    main()
