"""Markdown from templates: the prose is in the `.md` files beside this one, the numbers come from the results."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

MEASURES = {"accuracy": "accuracy", "nll": "NLL", "brier": "Brier score", "calibration_error": "calibration error"}


def markdown_table(rows: Sequence[Mapping[Any, object] | Sequence[object]], heads: Sequence[str] = ()) -> str:
    """A table of rows below `heads` or, if they are mappings, with a column for each key, which a row may lack."""
    keys = heads or list(dict.fromkeys(key for row in rows for key in row))
    lines = [keys, *([row.get(key, "") for key in keys] if isinstance(row, Mapping) else row for row in rows)]
    texts = [f"| {' | '.join(map(str, line))} |" for line in lines]
    return "\n".join([texts[0], "|---" * len(keys) + "|", *texts[1:]])


def bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def render(template: str, **values: Any) -> str:
    """The template with its values, at most one blank line between paragraphs."""
    loader = FileSystemLoader(Path(__file__).parent)
    environment = Environment(loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"table": markdown_table, "bullets": bullets}
    text = environment.get_template(template).render(**values)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def bounds(values: Sequence[float], digits: int) -> str:
    """The least to the most, or one number if they are alike."""
    least, most = (f"{pick(values):.{digits}f}" for pick in (min, max))
    return least if least == most else f"{least} to {most}"


def listed(values: Sequence[object]) -> str:
    """Such as "5, 8 and 20", and nothing of nothing."""
    *head, last = map(str, values or [""])
    return f"{', '.join(head)} and {last}" if head else last
