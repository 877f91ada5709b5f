"""Layers: sets of nodes with the same labels."""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Iterable
from dataclasses import MISSING, dataclass, fields
from typing import Any, TypeVar

from torchlgm._utils.validate import is_int_at_least
from torchlgm.errors import GraphError, TooLargeError

Record = TypeVar("Record")
MOST = 2**31  # labels of all nodes of a layer
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")


def check_name(kind: str, name: object) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise GraphError(f"{kind} name {name!r}: expected letters, digits, '_' and '-', such as 'hidden_1'")
    if keyword.iskeyword(name):  # torch.export writes the names of parameters into Python code
        raise GraphError(f"{kind} name {name!r} is a keyword of Python; choose another, such as '{name}_1'")


def as_tuples(value: Any) -> Any:
    """Lists, arrays and numbers from JSON or numpy become the ints and tuples that a frozen record can hash."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Iterable) and not isinstance(value, str):
        return tuple(as_tuples(item) for item in value)
    return value


def record_from_dict(kind: type[Record], description: Any) -> Record:
    """A layer or a connection from its fields, as JSON gives them back."""
    known = {field.name: field.default is field.default_factory is MISSING for field in fields(kind)}  # pyright: ignore[reportArgumentType]
    what = kind.__name__
    if not isinstance(description, dict):
        raise GraphError(f"a description of {what} is {description!r}; expected its fields")
    for name in description:
        if name not in known:
            raise GraphError(f"{what} has no field {name!r}; it has {', '.join(known)}")
    for name, needed in known.items():
        if needed and name not in description:
            raise GraphError(f"a description of {what} lacks {name!r}")
    return kind(**description)


@dataclass(frozen=True)
class Layer:
    """A set of discrete nodes with the same labels `0 .. labels-1`.

    Parameters
    ----------
    name : str
        What the layer is called.
    shape : int or tuple of int
        The number of nodes, or `(channels, *positions)` for window connections.
    labels : int
        The number of labels, 2 or more.

    Examples
    --------
    >>> Layer("pixels", (1, 28, 28)).nodes
    784
    """

    name: str
    shape: int | tuple[int, ...]
    labels: int = 2

    def __post_init__(self) -> None:
        check_name("layer", self.name)
        shape = as_tuples(self.shape)
        object.__setattr__(self, "shape", shape if isinstance(shape, tuple) else (shape,))
        object.__setattr__(self, "labels", as_tuples(self.labels))
        if not self.sizes or not all(is_int_at_least(n, 1) for n in self.sizes):
            raise GraphError(f"layer '{self.name}': shape {self.shape} must hold positive whole numbers")
        if not is_int_at_least(self.labels, 2):
            raise GraphError(f"layer '{self.name}': {self.labels!r} labels; a node needs a whole number >= 2")
        if self.nodes * self.labels > MOST:
            raise TooLargeError(
                f"layer '{self.name}': {self.nodes:,} nodes with {self.labels:,} labels; at most {MOST:,} labels of "
                "all nodes together are possible"
            )

    @property
    def sizes(self) -> tuple[int, ...]:
        """`shape` as the tuple it always is."""
        return self.shape  # pyright: ignore[reportReturnType]

    @property
    def nodes(self) -> int:
        return math.prod(self.sizes)
