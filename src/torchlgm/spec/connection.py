"""The contract of a connection: everything that is particular to one kind of connection is in its class."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, field, is_dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from torchlgm.errors import GraphError
from torchlgm.spec.layer import Layer, check_name, record_from_dict

if TYPE_CHECKING:
    from torchlgm.layout import Layout


class Edge(NamedTuple):
    """Two nodes, counted in row-major order, with the index of their edge in the layout and of its stored table."""

    left: int
    right: int
    at: tuple[int, ...]
    table: tuple[int, ...]


@dataclass(frozen=True)
class Connection(ABC):
    """Abstract: edges between the nodes of two layers or one. A frozen dataclass; its methods are given both layers.

    A kind of connection must give `list_edges` and `make_layout`. `register` makes it readable from JSON. One that
    `may_be_lateral` also joins nodes of a layer with each other: then both layers are the same, each pair of nodes is
    listed once, and no node with itself.
    """

    left: str
    right: str
    name: str = field(default="", kw_only=True)  # by default "left-right"
    may_be_lateral: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", f"{self.left}-{self.right}")
        check_name("connection", self.name)

    @property
    def is_lateral(self) -> bool:
        """Whether it joins nodes of one layer."""
        return self.left == self.right

    @abstractmethod
    def list_edges(self, left: Layer, right: Layer) -> Iterable[Edge]:
        """Every edge, by plain loops: the specification that layouts are tested against."""

    @abstractmethod
    def make_layout(self, left: Layer, right: Layer) -> Layout:
        """The same edges as tensor operations. Import the layout here, since a description needs no PyTorch."""

    def validate(self, left: Layer, right: Layer) -> None:
        """Raise GraphError if the connection does not fit the layers."""
        del left, right

    def count_edges(self, left: Layer, right: Layer) -> int:
        return sum(1 for _ in self.list_edges(left, right))

    def count_tables(self, left: Layer, right: Layer) -> int:
        """How many tables there are to learn: one for each edge, unless edges share them."""
        return self.count_edges(left, right)

    def count_parameters(self, left: Layer, right: Layer) -> int:
        return self.count_tables(left, right) * (left.labels - 1) * (right.labels - 1)

    def covered(self, left: Layer, right: Layer) -> tuple[Collection[int], Collection[int]]:
        """The nodes of either layer that have an edge, each once."""
        edges = list(self.list_edges(left, right))
        return {edge.left for edge in edges}, {edge.right for edge in edges}

    def caption(self, left: Layer, right: Layer) -> str:
        """What a picture of the graph says besides the kind and the number of edges, such as "5x5, stride 2"."""
        del left, right
        return ""

    def to_dict(self) -> dict[str, Any]:
        kind = type(self).__name__.lower()
        if CONNECTIONS.get(kind) is not type(self):
            raise GraphError(
                f"connection '{self.name}': {type(self).__name__} cannot be written to JSON; decorate the class with "
                "torchlgm.spec.register"
            )
        return {"type": kind, **asdict(self)}


CONNECTIONS: dict[str, type[Connection]] = {}  # by their name in JSON

Kind = TypeVar("Kind", bound=type[Connection])


def register(kind: Kind) -> Kind:
    """Class decorator: graphs with this kind of connection can be written to JSON and read again."""
    if not (isinstance(kind, type) and issubclass(kind, Connection) and is_dataclass(kind)):
        raise GraphError(f"register({kind!r}): expected a frozen dataclass derived from torchlgm.spec.Connection")
    name = kind.__name__.lower()
    other = CONNECTIONS.get(name, kind)
    if (other.__module__, other.__qualname__) != (kind.__module__, kind.__qualname__):
        raise GraphError(f"two kinds of connections are named '{name}' in JSON: {other} and {kind}; rename one")
    CONNECTIONS[name] = kind
    return kind


def connection_from_dict(description: Any) -> Connection:
    kind = description.get("type") if isinstance(description, dict) else None
    if not isinstance(kind, str) or kind not in CONNECTIONS:
        raise GraphError(
            f"unknown connection type {kind!r}; known: {', '.join(CONNECTIONS)}; import the module that registers it"
        )
    return record_from_dict(CONNECTIONS[kind], {k: v for k, v in description.items() if k != "type"})
