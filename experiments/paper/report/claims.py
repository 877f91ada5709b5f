"""The paper's claims with a verdict for each column."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.paper.ablations.silhouettes import MEAN, MODEL
from experiments.paper.ablations.small_size import training_worse
from experiments.paper.cells import all_cells, find_cell
from experiments.paper.report.comparisons import Comparison, judge
from experiments.paper.report.summary import NEAR, Summaries, summaries, summary
from experiments.paper.significance import CHANCE, Lead
from experiments.paper.store import Store
from experiments.paper.tables import TABLE1

CLAIMS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["claim"]
COLUMNS = {"published": "the paper's numbers", "paper": "as the paper", "ours": "ours"}
NOTHING = "-"

Comparisons = Mapping[str, Comparison | None]


def claims(
    comparisons: Mapping[str, Comparison | None],
    changes: Sequence[str],
    rows: Mapping[str, Sequence[Mapping]],
    store: Store,
) -> list[Mapping[str, str]]:
    """A row for each claim. `changes` are those of table 5 by colours, `rows` those of the ablations."""
    counted = _counted(changes, rows, store)
    return [_row(claim, comparisons, counted) for claim in CLAIMS]


def _row(
    claim: Mapping[str, str], comparisons: Mapping[str, Comparison | None], counted: Mapping[str, str]
) -> Mapping[str, str]:
    row = {"claim": claim["text"]} | dict.fromkeys(COLUMNS.values(), NOTHING)
    if comparison := comparisons.get(claim.get("pairs", "")):
        for column, name in COLUMNS.items():
            leads = [by_column[column] for by_column in comparison.leads.values() if column in by_column]
            if leads:
                row[name] = _verdict(leads, "comparable" in claim)
    for column, name in COLUMNS.items():
        if column in claim:
            row[name] = claim[column].format_map(counted) or NOTHING
    return row | {"more": claim["more"]}


def _verdict(leads: Sequence[Lead], comparable: bool) -> str:
    """Such as "holds (9 of 9)"; of sides said to be comparable, how often each is ahead."""
    if comparable:
        ahead, behind = (sum(lead.clear == sign for lead in leads) for sign in (1, -1))
        return f"ahead in {ahead}, behind in {behind} of {len(leads)}"
    word, ahead, count = judge(leads)
    return f"{word} ({ahead} of {count})" if count else word


def _counted(changes: Sequence[str], rows: Mapping[str, Sequence[Mapping]], store: Store) -> Mapping[str, str]:
    """What is counted for single claims, empty where nothing is known."""
    failing = [s for cell, s in _as_paper(store).items() if cell.paper.failed]
    exact = [summary(find_cell(name, "paper"), store) for name in ("cjinf/LGM/Exact", "seqstruct/T=5/0 hidden")]
    result = {"triangle": _share([s["mean"] < CHANCE for s in failing], "failing cells at chance"), "exact": ""}
    if all("mean" in s for s in exact):
        gap = exact[0]["mean"] - exact[1]["mean"]
        result["exact"] = f"{'holds' if abs(gap) <= NEAR else 'not confirmed'} ({gap:+.4f})"
    for way, name in (("paper", "as the paper"), ("ours", "ours")):
        own = [line for line in changes if f", {name}, " in line]
        result[f"over_fits_{way}"] = _share([line.endswith(": over-fits") for line in own], "series")
    tested = [{key: value for key, value in row.items() if key.startswith("T=")} for row in rows.get("iterations", ())]
    trained = [row["trained with"] for row in rows.get("iterations", ())]
    best = [values[own] >= max(values.values()) - 0.001 for values, own in zip(tested, trained, strict=True)]
    result["iterations"] = _share(best, "models, Local")
    result["training"] = _share(training_worse(rows.get("training", ())), "pairs of small trainings") or "not trained"
    gaps = [row["mean absolute gap"] for row in rows.get("soft_clamping", ()) if row["trained"] == "yes"]
    result["soft_clamping"] = (
        f"not confirmed (off by {min(gaps):.1f} to {max(gaps):.1f} nats once trained)" if gaps else ""
    )
    result["silhouettes"] = "; ".join(
        _share(
            [row[MODEL] < row[MEAN] for row in rows.get("silhouettes", ()) if row["cell"].endswith(f"/{name}")], name
        )
        for name in ("LGM", "LGM+fill")
        if rows.get("silhouettes")
    )
    return result


def _as_paper(store: Store) -> Summaries:
    return summaries(all_cells([TABLE1], ["paper"]), store)


def _share(holds: Sequence[bool], what: str) -> str:
    if not holds:
        return ""
    word = "holds" if all(holds) else "holds in part" if any(holds) else "not confirmed"
    return f"{word} ({sum(holds)} of {len(holds)} {what})"
