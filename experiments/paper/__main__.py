"""`python -m experiments.paper`: train the paper's tables, run ablations, draw the figures, write the report."""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from experiments.paper import ablations, figures, model_cards
from experiments.paper.cells import all_cells, find_table
from experiments.paper.options import WORKERS, Options
from experiments.paper.report.page import lines_of, write
from experiments.paper.store import Store, plural
from experiments.paper.tables import TABLES, WAYS
from experiments.paper.train import Trainer, plan
from experiments.pool import STREAMS
from torchlgm.errors import DataError, LGMError

RESULTS = Path(__file__).parent / "results"
DOCS = Path(__file__).parents[2] / "docs"


def train(chosen: argparse.Namespace) -> None:
    tables = list(dict.fromkeys(map(find_table, chosen.tables))) or list(TABLES)
    ways = list(WAYS) if chosen.column == "both" else [chosen.column]
    cells = list(all_cells(tables, ways, chosen.cells))
    if not cells:
        other = any(all_cells(tables, pattern=chosen.cells))
        hint = "only of the other; leave out --column" if other else "whose names are table/row/column"
        labels = ", ".join(table.label for table in tables)
        raise DataError(f"--cells {chosen.cells!r} fits no cell of {labels} in the column {chosen.column}, {hint}")
    with _options(chosen) as options:
        trainer = Trainer(options, _log)
        if any(cell.seeds < (chosen.seeds or 0) for cell in cells):
            _log(f"--seeds {chosen.seeds}: some cells have fewer, {min(cell.seeds for cell in cells)} at least")
        try:
            trainer.run(plan(cells, options))
        finally:
            model_cards.write(trainer.store)
        print("\n".join(lines_of(cells, trainer.store)))
        if chosen.quick:
            print("Measured with a few steps on a few images: this says nothing about the paper's tables.")


def ablate(chosen: argparse.Namespace) -> None:
    with _options(chosen) as options:
        ablations.run(chosen.names, options, _log)


def draw(chosen: argparse.Namespace) -> None:
    Store(chosen.out).require_writable()
    if failed := figures.draw(Store(chosen.out), chosen.data, _log):
        raise DataError(f"{plural(failed, 'figure')} could not be drawn; each line above says what one needs")


def report(chosen: argparse.Namespace) -> None:
    if not any(chosen.out.glob("*/*.json")):
        raise DataError(f"{chosen.out}: there are no results yet; train some tables, or name their folder by --out")
    for path in write(Store(chosen.out), chosen.docs):
        print(path)


@contextmanager
def _options(chosen: argparse.Namespace) -> Iterator[Options]:
    """The options of trainings; quick ones keep nothing."""
    if chosen.quick and chosen.out != RESULTS:
        raise DataError("--quick keeps nothing, since its results mean nothing; leave out --out")
    with tempfile.TemporaryDirectory() as temporary:
        names = ("data", "device", "workers", "seeds", "epochs", "minutes", "quick", "cells")
        options = {name: getattr(chosen, name) for name in names}
        if chosen.quick:
            options |= {"seeds": chosen.seeds or 1}
        Store(chosen.out).require_writable()
        yield Options(Path(temporary) if chosen.quick else chosen.out, **options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m experiments.paper", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    out, data, training = (argparse.ArgumentParser(add_help=False) for _ in range(3))
    out.add_argument("--out", type=Path, default=RESULTS, help="folder of results; experiments/paper/results")
    data.add_argument("--data", help="where the data is, or is downloaded to")
    training.add_argument("--seeds", type=_count, help="seeds, at most; 3, for some tables 5; with --quick 1")
    training.add_argument("--epochs", type=_count, help="a cap on the epochs of a training")
    training.add_argument("--minutes", type=float, help="leave after so many minutes; the same command continues")
    most = f"trainings at once, at most {STREAMS} on a GPU; {WORKERS} on a GPU, else 1"
    training.add_argument("--workers", type=_count, help=most)
    training.add_argument("--quick", action="store_true", help="a few steps on a few images; keeps nothing")
    training.add_argument(
        "--cells", default="*", metavar="PATTERN", help="only cells whose name, table/row/column, fits"
    )
    training.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto prefers CUDA")

    command = commands.add_parser("train", parents=[training, data, out], help="train cells of the tables")
    command.add_argument("tables", nargs="*", metavar="TABLE", help="table1 to table8, or LaTeX labels; all")
    command.add_argument(
        "--column", choices=(*WAYS, "both"), default="both", help="as the paper, in our own way, or both"
    )
    command.set_defaults(run=train)
    command = commands.add_parser("ablate", parents=[training, data, out], help="answer what the paper leaves open")
    command.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(ablations.ABLATIONS)}; all")
    command.set_defaults(run=ablate)
    command = commands.add_parser("figures", parents=[data, out], help="draw the paper's figures")
    command.set_defaults(run=draw)
    command = commands.add_parser("report", parents=[out], help="write the pages of results, in Markdown")
    command.add_argument("--docs", type=Path, default=DOCS, help="folder of the pages; docs")
    command.set_defaults(run=report)
    return parser


def _count(text: str) -> int:
    if int(text) < 1:
        raise ValueError(text)
    return int(text)


def _log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = _parser().parse_args(arguments)
    try:
        chosen.run(chosen)
    except LGMError as error:
        _log(f"error: {error}")
        return 1
    except KeyboardInterrupt as error:
        _log(str(error) or "stopped")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
