"""Which nodes a table has: one for each column, then the cyclic parts of dates, then whether entries are missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from torchlgm.errors import CheckpointError
from torchlgm.sklearn.reading import BOOLEAN, Raw
from torchlgm.sklearn.times import CYCLES

VALUE, MISSING = "value", "missing"


class Part(NamedTuple):
    """What a node says of a column of the table: its value, a part of it, or whether it is missing."""

    column: int
    what: str = VALUE

    def name(self, columns: Sequence[str]) -> str:
        return columns[self.column] if self.what == VALUE else f"{columns[self.column]}.{self.what}"


def parts_of(raws: Sequence[Raw], add_indicator: bool) -> tuple[Part, ...]:
    """The nodes for a table. Parts that never differ are left out, and so are indicators of complete columns."""
    parts = [Part(j) for j in range(len(raws))]
    for j, raw in enumerate(raws):
        days = raw.values[~raw.missing()]
        for what, (kinds, part) in CYCLES.items():
            if raw.kind in kinds and len(np.unique(part(days))) > 1:
                parts.append(Part(j, what))
    if add_indicator:
        parts += [Part(j, MISSING) for j, raw in enumerate(raws) if 0 < raw.missing().sum() < len(raw.values)]
    return tuple(parts)


def require_parts(parts: Sequence[Part], nodes: int) -> None:
    """Raise CheckpointError unless so many nodes can say this of a table: its columns first, then parts of them."""
    columns = [part.column for part in parts if part.what == VALUE]
    strange = [part for part in parts if part.what not in (VALUE, MISSING, *CYCLES) or part.column not in columns]
    if strange or len(parts) != nodes or columns != list(range(len(columns))):
        raise CheckpointError(f"parts {[*map(tuple, strange or parts)]} do not fit {nodes} nodes")


def split_up(raws: Sequence[Raw], parts: Sequence[Part]) -> list[Raw]:
    """What each node says of the rows."""
    names = [raw.name for raw in raws]
    return [_one(raws[part.column], part, part.name(names)) for part in parts]


def _one(raw: Raw, part: Part, name: str) -> Raw:
    if part.what == VALUE:
        return raw
    holes = raw.missing()
    if part.what == MISSING:
        return Raw(name, holes.astype(float), whole=True, kind=BOOLEAN)
    values = np.full(len(holes), None, dtype=object)
    if raw.kind in CYCLES[part.what][0]:
        values[~holes] = CYCLES[part.what][1](raw.values[~holes])
    return Raw(name, values, named=True, chosen=True)
