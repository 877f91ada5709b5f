"""The paper's eight tables as data: its numbers, and what each row and each column sets.

A cell's experiment is what the table sets for `every` cell, then what its column and its row set (see
`experiments.paper.cells.Experiment` for the words). In `numbers`, a star marks the cells that the paper greys out as
failed, `?` a cell that the paper does not have and we add, `-` no cell at all. `ours`, of a table, of one of its
columns or, in `exceptions`, of a single cell, is what the LGMs of our own column do otherwise than the paper.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Changes = Mapping[str, Any]


class Ways(StrEnum):
    """Which of our two columns."""

    PAPER = "paper"
    OURS = "ours"
    BOTH = "both"


@dataclass(frozen=True)
class Number:
    """What the paper says of a cell: None if it says nothing."""

    accuracy: float | None
    failed: bool = False


@dataclass(frozen=True, eq=False)
class Table:
    """One table of the paper; `label` is its LaTeX label, `seeds` how many we give it."""

    number: int
    label: str
    title: str
    every: Changes
    rows: Mapping[str, Changes]
    columns: Mapping[str, Changes]
    numbers: str
    ours: Changes = field(default_factory=dict)
    exceptions: Mapping[str, Changes] = field(default_factory=dict)  # by "row/column"
    our_epochs: int = 12  # of all cells, networks too, unless `ours` says otherwise
    seeds: int = 3
    core: bool = True

    def cells(self) -> Iterator[tuple[str, str, Number]]:
        """Row, column and number of each cell, in the order of the table."""
        names = list(self.rows)
        lines = [line.strip() for line in self.numbers.strip().splitlines()]
        for row, line in zip(names, lines, strict=True):
            words = line.removeprefix(row).split()
            for column, word in zip(self.columns, words, strict=True):
                if word != "-":
                    yield row, column, _number(word)


def _number(word: str) -> Number:
    return Number(None if word == "?" else float(word.rstrip("*")), word.endswith("*"))


SIGMOID = {"learner": "network", "activation": "sigmoid"}
RELU = {"learner": "network", "activation": "relu"}
MASKED = {"mask_channel": True, "only": "ours"}
SHAPES = {"Dense": {"model": "dense"}, "Conv": {"model": "conv"}, "Local": {"model": "local"}}
SWEEP = {"schedule": "sweep", "iterations": 1}
PUBLISHED = {"method": "published trw"}  # that which the paper's numbers amount to
WEAK, MILD = {"start": "weak"}, {"start": "mild"}

TABLE1 = Table(
    number=1,
    label="seqstruct",
    title="Depth (columns: hidden layers) against iterations of inference (rows), binary MNIST, sequential LBP",
    every={"data": "mnist", "colours": 2, "method": "lbp", "schedule": "sequential"},
    rows={f"T={t}": {"iterations": t} for t in range(1, 6)},
    columns={f"{depth} hidden": {"hidden": (100,) * depth} for depth in range(5)},
    #      hidden layers: 0      1       2       3       4
    numbers="""     T=1   0.913  0.096*  0.114*  0.096*  0.097*
                    T=2   0.911  0.947   0.114*  0.114*  0.096*
                    T=3   0.912  0.946   0.937   0.114*  0.114*
                    T=4   0.911  0.941   0.946   0.937   0.098*
                    T=5   0.912  0.945   0.941   0.936   0.929  """,
    ours={"schedule": "sweep"},
    exceptions={"T=5/4 hidden": {"learning_rate": 3e-3}},
    core=False,
)

TABLE2 = Table(
    number=2,
    label="softclamp",
    title="Soft clamping against thresholding of MNIST, one hidden layer, sequential LBP",
    every={"data": "mnist", "method": "lbp", "schedule": "sequential", "iterations": 5},
    rows={"LGM": {}},
    columns={"Soft clamp": {}, "Binary threshold": {"colours": 2}},
    #           soft clamp   binary threshold
    numbers="LGM     0.963   0.945",
    ours=SWEEP,
)

TABLE3 = Table(
    number=3,
    label="cjinf",
    title="The analytic gradient, binary MNIST, sequential LBP (number of iterations)",
    every={"data": "mnist", "colours": 2, "method": "lbp", "schedule": "sequential", "gradient": "analytic"},
    rows={"LGM": {}},
    columns={
        "Exact": {"hidden": (), "iterations": 5},
        **{f"Dense({t})": {"hidden": (100,), "iterations": t} for t in (2, 5, 8, 20)},
    },
    #          Exact    2      5      8     20
    numbers="LGM     0.910  0.770  0.874  0.879  0.880",
    ours={"schedule": "sweep"},
)

TABLE4 = Table(
    number=4,
    label="mpcompare",
    title="Inference methods and neural networks on MNIST",
    every={"data": "mnist", "iterations": 5},
    rows={
        "ParMF": {"method": "mf", "schedule": "parallel"},
        "SeqMF": {"method": "mf", "schedule": "sequential"},
        "ParLBP": {"method": "lbp", "schedule": "parallel"},
        "SeqLBP": {"method": "lbp", "schedule": "sequential"},
        "ParTRW": PUBLISHED | {"schedule": "parallel", "ours": {"method": "trw"}},
        "SeqTRW": PUBLISHED | {"schedule": "sequential", "ours": {"method": "trw"}},
        "CD1": {"learner": "cd", "gibbs": 1},
        "CD10": {"learner": "cd", "gibbs": 10},
        "NN(sigmoid)": SIGMOID,
        "NN(relu)": RELU,
        "SweepMF": {"method": "mf", "only": "ours", **SWEEP},
        "SweepLBP": {"method": "lbp", "only": "ours", **SWEEP},
    },
    columns=SHAPES,
    #                           Dense    Conv     Local
    numbers="""     ParMF       0.952    0.968    0.976
                    SeqMF       0.951    0.927    0.936
                    ParLBP      0.962    0.968    0.974
                    SeqLBP      0.963    0.970    0.979
                    ParTRW      0.967    0.982    0.985
                    SeqTRW      0.966    0.983    0.984
                    CD1         0.938    0.939    ?
                    CD10        0.936    0.935    ?
                    NN(sigmoid) 0.970    0.984    0.983
                    NN(relu)    0.973    0.982    0.984
                    SweepMF     ?        ?        ?
                    SweepLBP    ?        ?        ?     """,
    exceptions={f"{row}/Local": {"learning_rate": 0.03} for row in ("ParTRW", "SeqTRW")},
    seeds=5,
)

TABLE5 = Table(
    number=5,
    label="fashionmnist",
    title="Quantisation against soft clamping on FashionMNIST, dense, sequential LBP; for 2^n colours F has 100 binary "
    "hidden nodes, N has 100 n of them, L has 100 with n + 1 labels",
    every={"data": "fashion-mnist", "method": "lbp", "schedule": "sequential", "iterations": 5},
    rows={"F": {}, "N": {"grow": "nodes"}, "L": {"grow": "labels"}, "NN(sigmoid)": SIGMOID, "NN(relu)": RELU},
    columns={
        "2": {"colours": 2},
        "4": {"colours": 4, "ours": WEAK},
        "8": {"colours": 8, "ours": WEAK},
        "32": {"colours": 32, "batch": 4, "ours": WEAK},
        "256": {"colours": 256, "batch": 1, "seeds": 1, "epochs": 3, "ours": WEAK},
        "Soft": {},
    },
    #                    colours: 2        4        8        32       256      soft
    numbers="""     F             0.801    0.813    0.804    0.794    0.775    0.865
                    N             -        0.816    0.800    0.790    0.734    -
                    L             -        0.817    0.812    0.777    0.725    -
                    NN(sigmoid)   -        -        -        -        -        ?
                    NN(relu)      -        -        -        -        -        ?    """,
    ours=SWEEP | {"batch": 20},
    core=False,
)

TABLE6 = Table(
    number=6,
    label="fashionmnist_nncomp",
    title="LGMs and neural networks on FashionMNIST, sequential TRW",
    every={"data": "fashion-mnist", **PUBLISHED, "schedule": "sequential", "iterations": 5},
    rows={"Conv": {"model": "conv"}, "Local": {"model": "local"}},
    columns={
        "Soft": {},
        "Requant.": {"colours": 4, "first_labels": 3, "ours": MILD | {"epochs": 6}},
        "NN(sigmoid)": SIGMOID,
        "NN(relu)": RELU,
    },
    #                        soft     requant.  sigmoid  relu
    numbers="""     Conv     0.884    0.865     0.889    0.894
                    Local    0.894    0.863     0.894    0.894    """,
    ours={"method": "lbp", **SWEEP},
)

PARTIAL_ROWS = {
    "Conv (0.3)": {"model": "conv", "visible": 0.3},
    "Local (0.3)": {"model": "local", "visible": 0.3},
    "Conv (0.7)": {"model": "conv", "visible": 0.7},
    "Local (0.7)": {"model": "local", "visible": 0.7},
    "Local (0.3), no smoothing": {"model": "local", "visible": 0.3, "smoothing": 0.0, "only": "ours", "seeds": 3},
}
PARTIAL_COLUMNS = {
    "LGM": {},
    "NN(sigmoid)": SIGMOID,
    "NN(relu)": RELU,
    "NN(sigmoid)+mask": SIGMOID | MASKED,
    "NN(relu)+mask": RELU | MASKED,
    "LGM+fill": {"fill": 1.0, "only": "ours", "seeds": 3},
}
PARTIAL = {**PUBLISHED, "schedule": "sequential", "iterations": 5, "smoothing": 0.1}
PARTIAL_OURS = {"method": "lbp", **MILD, **SWEEP}
PARTIAL_EXCEPTIONS = {f"Conv ({visible})/LGM+fill": {"learning_rate": 0.02} for visible in (0.3, 0.7)}

TABLE7 = Table(
    number=7,
    label="exp_partial_input_m",
    title="MNIST with a share of the pixels visible, sequential TRW",
    every={"data": "mnist", **PARTIAL},
    rows=PARTIAL_ROWS,
    columns=PARTIAL_COLUMNS,
    #                                            LGM      sigmoid  relu       +mask  +mask  +fill
    numbers="""     Conv (0.3)                   0.952    0.954    0.956      ?      ?      ?
                    Local (0.3)                  0.956    0.951    0.952      ?      ?      ?
                    Conv (0.7)                   0.978    0.984    0.986      ?      ?      ?
                    Local (0.7)                  0.984    0.983    0.985      ?      ?      ?
                    Local (0.3), no smoothing    ?        ?        ?          -      -      -  """,
    ours=PARTIAL_OURS,
    exceptions=PARTIAL_EXCEPTIONS,
    our_epochs=20,
    seeds=5,
)

TABLE8 = Table(
    number=8,
    label="exp_partial_input_fm",
    title="FashionMNIST with a share of the pixels visible, sequential TRW",
    every={"data": "fashion-mnist", **PARTIAL},
    rows=PARTIAL_ROWS,
    columns=PARTIAL_COLUMNS,
    #                                            LGM      sigmoid  relu       +mask  +mask  +fill
    numbers="""     Conv (0.3)                   0.828    0.822    0.830      ?      ?      ?
                    Local (0.3)                  0.830    0.822    0.832      ?      ?      ?
                    Conv (0.7)                   0.862    0.866    0.878      ?      ?      ?
                    Local (0.7)                  0.882    0.879    0.881      ?      ?      ?
                    Local (0.3), no smoothing    ?        ?        ?          -      -      -  """,
    ours=PARTIAL_OURS,
    exceptions=PARTIAL_EXCEPTIONS,
    our_epochs=20,
    seeds=5,
)

TABLES = (TABLE1, TABLE2, TABLE3, TABLE4, TABLE5, TABLE6, TABLE7, TABLE8)

# What the two columns of ours set, on top of a cell's own settings; then what LGMs and networks set.
COLUMNS: Mapping[str, Changes] = {
    "paper": {"learning_rate": 1e-3, "epochs": 300, "patience": 5, "cosine": False, "start": "paper"},
    "ours": {"learning_rate": 1e-2, "patience": None, "cosine": True, "start": "default"},
}
NETWORK = {"learning_rate": 1e-3}
CD = {"learning_rate": 1e-3, "only": "paper", "start": "small"}
