"""A run as one self-contained page: figures, pictures, and how it was made."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import asdict
from html import escape
from pathlib import Path
from shlex import quote

from torchlgm import __version__
from torchlgm.cli.config import Config, as_option
from torchlgm.cli.evaluate import at_shares
from torchlgm.cli.io import write_text
from torchlgm.cli.runs import Run
from torchlgm.cli.words import MEASURES, MODELS, PICTURES
from torchlgm.viz.canvas import DOTS_PER_INCH

PAGE = "report.html"
CSS_DOTS_PER_INCH = 96

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .8rem; text-align: right; border-bottom: 1px solid #8884; }
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2) { text-align: left; }
.best { font-weight: 600; }
figure { margin: 1rem 0; } figcaption { color: gray; font-size: .9rem; }
img { max-width: 100%; height: auto; }
code { background: #8882; padding: .1rem .3rem; border-radius: 4px; }
"""


def write_report(run: Run) -> Path:
    """Write the page into the folder of the run."""
    path = run.folder / PAGE
    write_text(path, _page(run))
    return path


def _page(run: Run) -> str:
    counts, name = run.metrics["samples"], escape(Path(run.config.data).name)
    total = f"Trained on {counts['train']:,} samples, tested on {counts['test']:,} others"
    parts = [
        f"<h1>A model of {name}</h1>",
        f"<p>{total}. {_headline(run)}</p>",
        "<h2>Test data, by share of visible inputs</h2>",
        _figures(run.metrics["test"]),
        *[_picture(run.folder / f"{picture}.png", text) for picture, text in PICTURES.items()],
        "<h2>How it was made</h2>",
        f"<p><code>{escape(command(run.config))}</code></p>",
        f"<p>torchlgm {__version__}. Everything else is in the folder of the run: the model, <code>config.json</code>, "
        "<code>metrics.json</code>, <code>log.csv</code>.</p>",
    ]
    body = "\n".join(filter(None, parts))
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{name}</title>'
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}<style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n'
    )


def _headline(run: Run) -> str:
    rows = run.metrics["test"]
    first, last = (at_shares(rows["lgm"])[k] for k in (0, -1))
    text = (
        f"With {first['visible']:.0%} of the inputs visible, the LGM classifies {first['accuracy']:.0%} of the samples "
        f"correctly, and {last['accuracy']:.0%} with {last['visible']:.0%} visible"
    )
    if "network" in rows:
        other = at_shares(rows["network"])
        text += f"; the neural network {other[0]['accuracy']:.0%} and {other[-1]['accuracy']:.0%}"
        if run.is_table:
            text += ", trained on the rows as they are, without hiding any inputs"
    return f"{text}."


def _figures(models: Mapping[str, list[dict[str, float]]]) -> str:
    heads = "".join(f"<th>{escape(head)}</th>" for head in MEASURES.values())
    lines = [f"<tr><th>visible</th><th>model</th>{heads}</tr>"]
    for rows in zip(*map(at_shares, models.values()), strict=True):
        for name, row in zip(models, rows, strict=True):
            cells = ""
            for key in MEASURES:
                best = (max if key == "accuracy" else min)(other[key] for other in rows)
                marked = ' class="best"' if row[key] == best and len(rows) > 1 else ""
                cells += f"<td{marked}>{row[key]:.3f}</td>"
            lines.append(f"<tr><td>{row['visible']:.0%}</td><td>{MODELS[name]}</td>{cells}</tr>")
    return f"<table>{''.join(lines)}</table>"


def _picture(path: Path, text: str) -> str:
    if not path.is_file():
        return ""
    content = path.read_bytes()
    width = int.from_bytes(content[16:20], "big") * CSS_DOTS_PER_INCH // DOTS_PER_INCH  # so that all texts are one size
    data = b64encode(content).decode()
    title = f"{text[0].upper()}{text[1:]}"
    return f'<h2>{title}</h2><figure><img alt="{title}" width="{width}" src="data:image/png;base64,{data}"></figure>'


def command(config: Config) -> str:
    """The command that trains it again."""
    default, words = asdict(Config()), ["torchlgm train", quote(config.data)]
    for name, value in asdict(config).items():
        if name == "data" or value == default[name] or value is None:
            continue
        flag = as_option(name)
        if isinstance(value, bool):
            words.append(flag if value else f"--no-{flag[2:]}")
        elif name == "visible":
            words.append(f"{flag} {'-'.join(f'{part:g}' for part in value)}")
        else:
            words.append(f"{flag} {quote(','.join(value) if isinstance(value, tuple) else str(value))}")
    return " ".join(words)
