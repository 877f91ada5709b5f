"""Why a row of a table is taken for a class: the share of each entry, as numbers, as text and as a picture."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, NamedTuple

import torch

from torchlgm import viz
from torchlgm.joint import Attribution

_MOST = 12  # entries that a picture shows
_WIDTH = 20  # characters of the longest bar


class Share(NamedTuple):
    """What a seen entry adds to the log-odds of a class, in nats."""

    column: str
    value: Any
    share: float


@dataclass(frozen=True, eq=False)
class Explanation:
    """One row: `base + sum of the shares == answer` for each class, in nats of log-odds.

    In a notebook it is a picture, as text a list.
    """

    row: Any
    entries: dict[str, Any]  # what was seen, by column
    classes: list[Any]
    attribution: Attribution  # of this row alone: (1, columns, classes)
    columns: list[str]

    @property
    def label(self) -> Any:
        """The most probable class."""
        return self.classes[int(self.attribution.answer[0].argmax())]

    def base(self, label: Any = None) -> float:
        """The log-odds of a class, of the most probable one unless it is given, when nothing is seen."""
        return self.attribution.base[0, self._place(label)].item()

    def answer(self, label: Any = None) -> float:
        """The log-odds of a class given all that was seen."""
        return self.attribution.answer[0, self._place(label)].item()

    def probability(self, label: Any = None) -> float:
        return math.exp(-math.log1p(math.exp(-max(-700.0, self.answer(label)))))

    def shares(self, label: Any = None) -> list[Share]:
        """What each seen entry adds to the log-odds of a class, the largest first."""
        values = self.attribution.values[0, :, self._place(label)].tolist()
        found = [
            Share(name, self.entries[name], value)
            for name, value in zip(self.columns, values, strict=True)
            if name in self.entries
        ]
        return sorted(found, key=lambda share: -abs(share.share))

    def figure(self, label: Any = None, most: int = _MOST) -> Any:
        """A matplotlib figure, from what is believed when nothing is seen to the answer."""
        label = self.label if label is None else label
        shares = self.shares(label)
        names = [f"{share.column} = {_written(share.value)}" for share in shares]
        values = [share.share for share in shares]
        title = f"row {self.row}: class {label}, {self.probability(label):.1%}"
        return viz.evidence_shares(names, torch.tensor(values), self.base(label), str(label), title, most)

    def text(self, label: Any = None, most: int = _MOST) -> str:
        """Lines with a bar for each entry."""
        label = self.label if label is None else label
        shares = self.shares(label)
        lines = [("nothing seen", "", self.base(label))]
        shown = shares if len(shares) == most + 1 else shares[:most]
        lines += [(share.column, _written(share.value), share.share) for share in shown]
        if rest := shares[len(shown) :]:
            lines.append((f"{len(rest)} others", "", sum(share.share for share in rest)))
        lines.append(("answer", "", self.answer(label)))
        wide, high = max(len(line[0]) for line in lines), max(len(line[1]) for line in lines)
        longest = max(abs(line[2]) for line in lines) or 1.0
        believed = f"row {self.row}: class {label}, {self.probability(label):.1%}"
        table = [
            f"  {name:{wide}}  {value:>{high}}  {share:+7.2f}  {_bar(share / longest)}".rstrip()
            for name, value, share in lines
        ]
        return "\n".join([f"{believed}; what each entry adds to its log-odds, in nats", *table])

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"Explanation(row={self.row!r}, label={self.label!r}, probability={self.probability():.3f})"

    def _repr_png_(self) -> bytes:
        content = BytesIO()
        self.figure().savefig(content, format="png", dpi=100, bbox_inches="tight")
        return content.getvalue()

    def _place(self, label: Any) -> int:
        if label is None:
            return int(self.attribution.answer[0].argmax())
        if label not in self.classes:
            raise ValueError(f"label={label!r} is none of the classes {self.classes}")
        return self.classes.index(label)


@dataclass(frozen=True, eq=False)
class Explanations(Sequence[Explanation]):
    """Why rows are taken for their classes. Indexed by position it gives an `Explanation`, a picture in a notebook.

    `values` `(N, columns, classes)`, `base` and `answer` `(N, classes)` are tensors of log-odds in nats.
    """

    attribution: Attribution
    rows: list[Any]
    columns: list[str]
    entries: list[dict[str, Any]]
    classes: list[Any]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        if not -len(self) <= place < len(self):
            raise IndexError(f"row {place}; expected -{len(self)} to {len(self) - 1}")
        i = place % len(self)
        own = Attribution(*(part[i : i + 1] for part in self.attribution))
        return Explanation(self.rows[i], self.entries[i], self.classes, own, self.columns)

    def __iter__(self) -> Iterator[Explanation]:
        return (self[i] for i in range(len(self)))

    @property
    def values(self) -> Any:
        return self.attribution.values

    @property
    def base(self) -> Any:
        return self.attribution.base

    @property
    def answer(self) -> Any:
        return self.attribution.answer


def _written(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _bar(share: float) -> str:
    length = max(1, round(abs(share) * _WIDTH)) if share else 0
    return ("+" if share > 0 else "-") * length
