"""The table of targets: what was to be reached, and what was."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from textwrap import shorten
from typing import Any

Row = dict[str, Any]
TITLES = {"local": "Local", "conv": "Conv", "dense": "Dense"}
WINDOWS, DENSE = 1.5, 1.2  # times the network's step
ONE_SWEEP = 1.0  # times the network's step
LARGE, LARGEST = 4096, 2.0  # batch, and times the network's step there
AGAINST_LAUNCHED = 5.0
FLOOR = 0.5
MEMORY = 0.6  # GB
ENSEMBLE = 3.0
LINEAR = 1.1  # times the growth before
COLD, CACHED = 20.0, 5.0  # seconds


def summary(results: Row) -> list[Row]:
    """A row for each target; what was not measured says why."""
    makers: dict[str, Callable[[Row], Iterator[Row]]] = {
        "train": _train,
        "sweep": _sweep,
        "floor": _floor,
        "memory": _memory,
        "ensemble": _ensemble,
        "race": _race,
        "growth": _growth,
        "first": _first,
    }
    rows: list[Row] = []
    for name, make in makers.items():
        entry = results.get(name)
        if entry is None:
            continue
        if "rows" in entry:
            good = [row for row in entry["rows"] if "incorrect" not in row]
            rows += make({**entry, "rows": good})
            rows += [
                _row(entry["what"], "", None, None, f"{r['model']}: {r['incorrect']}", None, False)
                for r in entry["rows"]
                if "incorrect" in r
            ]
        else:
            rows.append(_row(entry["what"], "", None, None, _reason(entry), None, None))
    return rows


def _reason(entry: Row) -> str:
    """Why there are no figures; of an error a few words."""
    if "failed" in entry:
        return f"failed in this run: {shorten(entry['failed'], 60, placeholder=' ...')}"
    return next((f"{word}: {entry[word]}" for word in ("skipped", "incorrect") if word in entry), "")


def _row(
    work: str, rival: str, ours: str | None, theirs: str | None, result: str, target: str | None, met: bool | None
) -> Row:
    verdict = None if met is None else ("yes" if met else "no")
    return {
        "work": work,
        "rival": rival,
        "torchlgm": ours,
        "the rival": theirs,
        "result": result,
        "target": target,
        "reached": verdict,
    }


def _step(row: Row, batch: int) -> str:
    return f"train step, {TITLES[row['model']]}, batch {batch}"


def _train(entry: Row) -> Iterator[Row]:
    batch = entry["batch"]
    for row in entry["rows"]:
        most = DENSE if row["model"] == "dense" else WINDOWS
        times = row["times the network"]
        yield _row(
            _step(row, batch),
            "network of the same shape, captured",
            ms(row["lgm ms"]),
            ms(row["network ms"]),
            f"{times:.2f} times its time",
            f"at most {most} times",
            times <= most,
        )
    for row in entry["rows"]:
        if "network, our Adam ms" in row:
            theirs = row["network, our Adam ms"]
            yield _row(
                _step(row, batch),
                "the same with the optimizer of our trainer",
                ms(row["lgm ms"]),
                ms(theirs),
                f"{row['lgm ms'] / theirs:.2f} times its time",
                None,
                None,
            )
    for row in entry["rows"]:
        if row["model"] != "dense":
            faster = row["times faster than launched"]
            yield _row(
                _step(row, batch),
                "the network, launched from Python",
                ms(row["lgm ms"]),
                ms(row["network, launched ms"]),
                f"{faster:.1f} times faster",
                f"{AGAINST_LAUNCHED:g} times faster",
                faster >= AGAINST_LAUNCHED,
            )


def _sweep(entry: Row) -> Iterator[Row]:
    for row in entry["rows"]:
        most = LARGEST if row["batch"] >= LARGE else ONE_SWEEP
        times = row["times the network"]
        yield _row(
            f"{_step(row, row['batch'])}, one sweep",
            "network of the same shape, captured",
            ms(row["lgm ms"]),
            ms(row["network ms"]),
            f"{times:.2f} times its time",
            f"at most {most:g} times",
            times <= most,
        )


def _floor(entry: Row) -> Iterator[Row]:
    for row in entry["rows"]:
        share = row["share of the floor's rate"]
        yield _row(
            _step(row, row["batch"]),
            "bytes and special functions it needs, over the device's ceilings",
            ms(row["lgm ms"]),
            ms(row["floor ms"]),
            f"{share:.0%} of the hardware limit",
            f"at least {FLOOR:.0%}",
            share >= FLOOR,
        )


def _memory(entry: Row) -> Iterator[Row]:
    row = next(row for row in entry["rows"] if row["model"] == "local")
    yield _row(
        f"peak memory, Local, batch {entry['batch']}",
        "the reference demo (reported, not measured here)",
        f"{row['lgm GB']:.2f} GB",
        f"{entry['reference demo GB']:g} GB",
        f"{entry['reference demo GB'] / row['lgm GB']:.0f} times less",
        f"at most {MEMORY} GB",
        row["lgm GB"] <= MEMORY,
    )


def _ensemble(entry: Row) -> Iterator[Row]:
    for row in entry["rows"]:
        times = row["times one"]
        yield _row(
            f"{entry['models']} models in one step, {TITLES[row['model']]}, batch {entry['batch']}{by(row)}",
            "one model",
            ms(row["together ms"]),
            ms(row["one ms"]),
            f"{times:.2f} times its time",
            f"at most {ENSEMBLE:g} times",
            times <= ENSEMBLE,
        )


def _race(entry: Row) -> Iterator[Row]:
    for row in entry["rows"]:
        yield _row(
            f"{row['task']}, batch {row['batch']}, {row['iterations']} iterations",
            "PGMax on the same device",
            ms(row["torchlgm ms"]),
            ms(row["PGMax ms"]),
            f"{row['times faster']:.1f} times faster",
            f"{row['target']:g} times faster",
            row["times faster"] >= row["target"],
        )


def _growth(entry: Row) -> Iterator[Row]:
    """What one more costs between the last two points, over what it did between the two before."""
    for along in dict.fromkeys(row["along"] for row in entry["rows"]):
        points = [row for row in entry["rows"] if row["along"] == along][-3:]
        if len(points) < 3:
            continue
        earlier, before, last = points
        found = {word: _more(points, key) for key, word in (("ms", "time"), ("GB", "memory")) if last[key] is not None}
        power = math.log(last["ms"] / before["ms"]) / math.log(last["value"] / before["value"])
        factors = " and ".join(f"{times:.2f} times the {word}" for word, times in found.items())
        yield _row(
            f"growth, {last['model']}, {along} from {before['value']:,} to {last['value']:,}",
            f"from {earlier['value']:,} to {before['value']:,}",
            f"{ms(before['ms'])} to {ms(last['ms'])}",
            f"{ms(earlier['ms'])} to {ms(before['ms'])}",
            f"time grows as {along}^{power:.2f}; the next one costs {factors} of the one before",
            f"at most {LINEAR:g} times (linear)",
            max(found.values()) <= LINEAR,
        )


def _more(points: list[Row], key: str) -> float:
    earlier, now = ((b[key] - a[key]) / (b["value"] - a["value"]) for a, b in pairwise(points))
    return now / earlier if earlier > 0 else math.inf


def _first(entry: Row) -> Iterator[Row]:
    for row in entry["rows"]:
        cold, cached = row["cold s"], row["cached s"]
        yield _row(
            f"first step, {TITLES[row['model']]}, batch {entry['batch']}",
            "",
            f"{cold:.1f} s, {cached:.1f} s",
            None,
            "with nothing compiled, with kernels on disk",
            f"{COLD:g} s, {CACHED:g} s",
            cold <= COLD and cached <= CACHED,
        )


def by(row: Row) -> str:
    """The method, if it is another than the usual one."""
    return ", one sweep" if row.get("method") == "lbp(1, 'sweep')" else ""


def ms(value: float) -> str:
    return f"{value:.3g} ms" if value < 1000 else f"{value:,.0f} ms"
