"""The runs in a folder, finished or not."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from torchlgm.cli.evaluate import at_shares
from torchlgm.cli.runs import CONFIG, METRICS, Run, read_config
from torchlgm.errors import CheckpointError, DataError


def list_runs(folder: Path) -> list[dict[str, Any]]:
    """A row for each run folder below `folder`, the newest first."""
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; train a model with `torchlgm train`, or name a folder of runs")
    return sorted(map(_row, (path.parent for path in folder.glob(f"*/{CONFIG}"))), key=lambda row: row["date"])[::-1]


def _row(folder: Path) -> dict[str, Any]:
    date = datetime.fromtimestamp((folder / CONFIG).stat().st_mtime).isoformat(" ", "minutes")
    row: dict[str, Any] = {"folder": str(folder), "date": date, "state": "finished"}
    try:
        config = read_config(folder)
        row |= {"data": Path(config.data).name}
        if not (folder / METRICS).is_file():
            return row | {"state": "not finished"}
        run = Run.load(folder)
    except CheckpointError:
        return row | {"state": "damaged"}
    first, *_, last = at_shares(run.metrics["test"]["lgm"])
    row["model"] = "table" if run.is_table else config.model
    return row | {"accuracy": first["accuracy"], "visible": last["visible"], "accuracy_visible": last["accuracy"]}
