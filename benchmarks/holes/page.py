"""The page of a record: what it says in short, pictures, ranks, where LGMClassifier loses, how it was measured."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

import pandas as pd
from common import table

from holes import boosters, methods, pictures, standings
from holes.methods import FAMILIES, OURS
from holes.record import Record
from holes.trainings import FIGURES
from torchlgm._utils.atomic import atomic_write

WRAPPED: Any = {"width": 120, "break_long_words": False, "break_on_hyphens": False}
CHOSEN_ON = ("german", "hypothyroid", "ionosphere", "letter", "pima", "soybean", "vote", "vowel")
PICTURES = "images"  # beside the page
LEVEL = 2  # percent behind the best that still count as level with it
TRAINING_TOO = ", in training rows too"
PATTERNS = {
    "random": "at random",
    "blocks": "blocks of columns",
    "group": "one group of columns",
    "by value": "large values",
}


@dataclass(frozen=True)
class Panel:
    """One picture: a line for LGMClassifier and each family of rivals."""

    file: Path
    title: str
    lines: pd.DataFrame
    value: str
    nothing_known: float

    def draw(self) -> None:
        pictures.panel(self.lines, self.title, self.value, self.nothing_known, self.file)

    @property
    def shown(self) -> str:
        return f"![{self.title}]({PICTURES}/{self.file.name})"


class Page:
    """Means over splits, `first` being those with holes in test rows at random if they were measured."""

    def __init__(self, record: Record, file: Path) -> None:
        self.record, self.file = record, file
        self.rows = standings.measured(record)
        self.cells = standings.with_entropy(standings.means(self.rows), record)
        self.wheres = [where for where in ("test", "both") if where in set(self.cells["where"])]
        first = self.cells[self.cells["where"] == self.wheres[0]]
        self.first = first[first["pattern"] == standings.in_order(first["pattern"])[0]]
        shares = sorted(set(self.first["share"]))
        self.shares = sorted({shares[0], shares[len(shares) // 2], shares[-1]})
        self.by_table, self.by_pattern = list(self._by_table()), list(self._by_pattern())

    def text(self) -> str:
        parts = [TITLE, *self._short(), *self._pictures(), *self._ranks(), *self._losses(), *self._how()]
        return "\n\n".join(parts) + "\n"

    def _short(self) -> Iterator[str]:
        tables, count = self.first["table"].nunique(), self.first["method"].nunique()
        cells = standings.families(standings.complete(self.first))
        together = cells.groupby(["family", "share"])[["accuracy", "left"]].mean()
        there = [family for family in (OURS, *FAMILIES) if family in together.index.get_level_values("family")]
        yield "## In short"
        if OURS in set(self.first["method"]):
            yield self._lowest(count)
        yield paragraph(
            f"""Means over {tables} tables with {listed(self.shares)} % of the entries of test rows missing at random;
            training rows are as the table has them. **Each row of rivals shows the best of its family in every single
            cell, picked in hindsight**, which nobody can do in practice. "Loss" is the negative log-likelihood divided
            by that of predicting class frequencies alone: 0 is perfect, and above 1 it would be better to ignore the
            columns."""
        )
        yield table(
            [
                {"": f"**{family}**" if family == OURS else family}
                | {f"accuracy, {share} %": f"{together.loc[(family, share), 'accuracy']:.3f}" for share in self.shares}
                | {f"loss, {share} %": f"{together.loc[(family, share), 'left']:.2f}" for share in self.shares}
                for family in there
            ]
        )
        yield self.by_pattern[0].shown
        yield self._falls(together, there)
        yield FAMILY_WORDS
        yield folded("Every method: means over tables", table(list(self._every_method())))

    def _falls(self, together: pd.DataFrame, families: list[str]) -> str:
        """How much accuracy each family loses from the least to the largest share."""
        ends = self.shares[0], self.shares[-1]
        told = []
        for family in families:
            first, last = (together.loc[(family, share), "accuracy"] for share in ends)
            told.append(f"{first:.3f} to {last:.3f} for {family}")
        return paragraph(f"Going from {ends[0]} to {ends[1]} % missing, accuracy falls from {'; '.join(told)}.")

    def _lowest(self, methods: int) -> str:
        against = standings.losses(self.first)
        level = (against["behind"] <= LEVEL / 100).groupby(against["share"]).sum()
        return paragraph(
            f"""Among all {methods} methods, LGMClassifier has the lowest negative log-likelihood, or comes within
            {LEVEL} % of it, on {listed(list(level))} of {against["table"].nunique()} tables with
            {listed(list(level.index))} % missing at random, in this order.{self._favoured()}"""
        )

    def _favoured(self) -> str:
        on = [name for name in sorted(set(self.first["table"])) if name in CHOSEN_ON]
        which = "these tables" if len(on) == self.first["table"].nunique() else ", ".join(on)
        return f" Its defaults were chosen on {which}, with other entries hidden, which favours it." if on else ""

    def _every_method(self) -> Iterator[dict[str, str]]:
        cells = standings.complete(self.first)
        found = cells.groupby(["method", "share"])[[*FIGURES, "left"]].mean()
        words = {"left": "loss", "auc": "AUC"}
        for method in methods.METHODS:
            if method in set(cells["method"]):
                yield {"method": method} | {
                    f"{words.get(figure, figure)}, {share} %": f"{found.loc[(method, share), figure]:.3f}"
                    for figure in ("left", "accuracy", "auc", "calibration error")
                    for share in self.shares
                }

    def _by_table(self) -> Iterator[Panel]:
        lines = standings.families(self.first)
        for name, facts in self.record.tables.items():
            if name in set(lines["table"]):
                title = f"{name}: {facts['rows']:,} rows, {facts['columns']} columns, {facts['classes']} classes"
                yield Panel(self._svg(name), title, lines[lines["table"] == name], "nll", facts["entropy"])

    def _by_pattern(self) -> Iterator[Panel]:
        for where in self.wheres:
            here = self.cells[self.cells["where"] == where]
            for pattern in standings.in_order(here["pattern"]):
                cells = standings.complete(here[here["pattern"] == pattern])
                lines = standings.families(cells)
                lines = lines.groupby(["family", "share"])["left"].mean().reset_index()
                begin = "in training too," if where == "both" else "missing"
                title = f"{begin} {PATTERNS[pattern]}: mean of {cells['table'].nunique()} tables"
                yield Panel(self._svg(f"{where}-{pattern}"), title, lines, "left", 1.0)

    def _svg(self, name: str) -> Path:
        return self.file.parent / PICTURES / f"holes-{name.replace(' ', '-')}.svg"

    def _pictures(self) -> Iterator[str]:
        yield "## Table by table"
        yield paragraph(
            """Negative log-likelihood in nats (lower is better) as entries of test rows go missing at random. The line
            of each family of rivals follows its best method at each point, and the numbers are the values at the right
            end. A line that leaves its picture (↑) is far worse than ignoring the columns altogether."""
        )
        yield "\n".join(panel.shown for panel in self.by_table)
        if len(self.by_pattern) < 2:
            return
        yield "## Pattern by pattern"
        yield paragraph(
            """The same means as in the first picture, with other patterns of missing entries: blocks of neighbouring
            columns that begin at a different column in each row; one group of neighbouring columns that is missing in
            all rows, as when an instrument breaks; and large values missing more often than small ones."""
        )
        yield "\n".join(panel.shown for panel in self.by_pattern[1:])

    def _ranks(self) -> Iterator[str]:
        lines = [(t.method, x["fit s"], x["row ms"]) for t, x in self.record.trainings.items()]
        times = pd.DataFrame(lines, columns=["method", "fit, s", "a row, ms"]).groupby("method").median()
        yield "## Ranks and time"
        for where in self.wheres:
            wide = standings.ranks(self.cells, where)
            here = "test rows only" if where == "test" else "training and test rows"
            timed = where == self.wheres[0]
            yield paragraph(
                f"""Entries missing in {here}: mean rank by negative log-likelihood over tables and patterns, where 1 is
                the best of {len(wide)}{"; and median CPU time on one core to fit and to predict" if timed else ""}."""
            )
            yield table(
                [
                    {"method": f"**{method}**" if method == OURS else method}
                    | {f"{share} %": f"{rank:.1f}" for share, rank in places.items()}
                    | {"mean": f"{places.mean():.1f}"}
                    | ({key: float(value) for key, value in times.loc[method].items()} if timed else {})
                    for method, places in wide.iterrows()
                ]
            )

    def _losses(self) -> Iterator[str]:
        against = standings.losses(self.cells)
        if against.empty:  # without LGMClassifier
            return
        worse = against[against["behind"] > LEVEL / 100].sort_values("behind", ascending=False)
        yield "## Where it loses"
        yield paragraph(
            f"""In {len(worse)} of {len(against)} cells (a table, a pattern and a share), the best of all rivals, picked
            in hindsight, beats the negative log-likelihood of LGMClassifier by more than {LEVEL} %."""
        )
        yield table(
            [
                {
                    "missing": f"{share} %",
                    "behind": f"{row['behind']} of {row['cells']} cells",
                    "mean ratio to the best": f"{row['ratio']:.2f}",
                    "most often best there": row["by"],
                }
                for share, row in standings.behind_by_share(against, worse).iterrows()
            ]
        )
        if len(worse):
            yield folded("All of these cells, the largest gap first", table(list(map(_loss, worse.to_dict("records")))))

    def _how(self) -> Iterator[str]:
        splits = self.rows.groupby("table")["seed"].nunique()
        count = (
            "one split" if splits.max() == 1 else f"{' or '.join(map(str, sorted(set(splits))))} splits of each table"
        )
        results = os.path.relpath(self.record.file.resolve(), self.file.resolve().parent)
        yield "## How it was measured"
        items = HOW.format(count=count, results=Path(results).as_posix(), trees=boosters.MOST_TREES)
        items = [*items.split("\n\n"), *dict.fromkeys(map(_run, self.record.about))]
        yield "\n".join(fill(f"- {' '.join(item.split())}", **WRAPPED, subsequent_indent="  ") for item in items)


def write_page(record: Record, file: Path) -> None:
    page = Page(record, file)
    (file.parent / PICTURES).mkdir(parents=True, exist_ok=True)
    for panel in (*page.by_table, *page.by_pattern):
        panel.draw()
    atomic_write(file, page.text().encode())


def paragraph(text: str) -> str:
    return fill(" ".join(text.split()), **WRAPPED)


def folded(summary: str, content: str) -> str:
    return f"<details>\n<summary>{summary}</summary>\n\n{content}\n\n</details>"


def listed(numbers: list[int]) -> str:
    return " and ".join(filter(None, [", ".join(map(str, numbers[:-1])), str(numbers[-1])]))


def _loss(row: dict) -> dict[str, str]:
    holes = PATTERNS[row["pattern"]] + (TRAINING_TOO if row["where"] == "both" else "")
    return {
        "table": row["table"],
        "missing": f"{row['share']} % ({holes})" if row["share"] else "0 %",
        "LGMClassifier": f"{row['nll of ours']:.3f}",
        "best rival": f"{row['nll of the best']:.3f}",
        "method": row["method"],
    }


def _run(about: dict) -> str:
    machine = about["machine"]
    versions = [f"{name} {version}" for name, version in machine.items() if name not in ("cpu", "cores", "python")]
    where = f"{machine['cores']} cores of an {machine['cpu']}, Python {machine['python']}"
    return f"{about['day']}, on {where}, with {', '.join(versions)}."


TITLE = """# Missing data: how LGMClassifier compares

How does [LGMClassifier](estimator.md) compare with other ways of handling missing entries? All figures on this page
come from one command, [HoleBench](https://github.com/torchlgm/torchlgm/blob/main/benchmarks/README.md), which you can
run on any folder of tables."""

FAMILY_WORDS = """- trees: HistGradientBoosting, XGBoost, LightGBM, CatBoost and a random forest, which take NaN
- trees, hiding: the same five, trained on rows with entries hidden at random
- imputation: means, nearest neighbours or `IterativeImputer`, followed by logistic regression or an MLP
- mask inputs: logistic regression and an MLP with extra inputs that mark missing entries, trained with hiding"""

HOW = """[The results]({results}) contain every figure of every split: negative log-likelihood, area under the curve
(mean over classes, each against the others), accuracy, expected calibration error over 15 bins, and CPU seconds.

Three quarters of the rows are for training, stratified by class; {count}. All methods get the same splits and the same
missing entries. Larger tables are represented by as many rows as the pictures say.

Gradient boosting stops when held-out rows no longer improve, after {trees} rounds at most, and is then fitted to all
rows with that number of rounds; with default numbers, its likelihoods are worse on most small tables, by half on some.
A random forest gets one extra tree that predicts class frequencies, so that no class has probability 0. The MLP with
mask inputs stops early. Everything else has the defaults of its library.

"Hiding" adds up to four copies of all rows, each row with a random share of its entries hidden, from 0 to 80 %.

Imputers and networks get standardised numbers and one-hot categories."""
