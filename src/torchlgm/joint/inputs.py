"""The columns of a table, or pixels of an image, as nodes of a graph: what is known of each, in the order of inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from torchlgm._utils.arrays import as_tensor
from torchlgm.errors import InferenceError
from torchlgm.inference import Beliefs
from torchlgm.model import LGM
from torchlgm.mrf import Clamp
from torchlgm.posterior import Posterior

if TYPE_CHECKING:
    from torchlgm.joint.conditionals import Conditionals


class Known(NamedTuple):
    """What is known about N rows; columns with fewer than K labels are padded.

    `q` `(N, columns, K)` are the probabilities of the labels, 0 at a missing entry; `seen` is `(N, columns)`.
    """

    q: Tensor
    seen: Tensor

    def take(self, rows: Tensor) -> Known:
        return Known(self.q[rows], self.seen[rows])

    def set(self, columns: Tensor, labels: Tensor) -> Known:
        """Each row with one more entry known: `columns` and `labels` `(N,)`."""
        rows = torch.arange(len(columns), device=columns.device)
        q, seen = self.q.clone(), self.seen.clone()
        q[rows, columns] = 0
        q[rows, columns, labels] = 1
        seen[rows, columns] = True
        return Known(q, seen)

    def without(self, columns: Tensor) -> Known:
        """Each row with one entry hidden, `columns` `(N,)`."""
        rows = torch.arange(len(columns), device=columns.device)
        q, seen = self.q.clone(), self.seen.clone()
        q[rows, columns], seen[rows, columns] = 0, False
        return Known(q, seen)


@dataclass(frozen=True, eq=False)
class InputNodes:
    """Which columns are the nodes of each input layer."""

    columns: Mapping[str, Tensor]
    labels: Tensor  # (columns,)

    @classmethod
    def of(cls, posterior: Posterior) -> InputNodes:
        graph, encoding = posterior.model.graph, posterior.encoding
        device = posterior.model.unary[posterior.target].device
        count = sum(graph.layer(name).nodes for name in encoding.layers)
        places = encoding.split(torch.arange(count, device=device).unsqueeze(0))
        labels = torch.zeros(count, dtype=torch.long, device=device)
        for name, columns in places.items():
            labels[columns[0]] = graph.layer(name).labels
        return cls({name: columns[0] for name, columns in places.items()}, labels)

    @property
    def width(self) -> int:
        return int(self.labels.max())

    @property
    def exists(self) -> Tensor:
        """Which labels a column has, `(columns, K)`."""
        return torch.arange(self.width, device=self.labels.device) < self.labels.unsqueeze(1)

    def place(self, column: int) -> tuple[str, int]:
        """Layer and node of a column."""
        for name, columns in self.columns.items():
            at = (columns == column).nonzero()
            if len(at):
                return name, int(at[0, 0])
        raise InferenceError(f"column {column} is none of the {len(self.labels)} inputs")

    def padded(self, of_layers: Mapping[str, Tensor]) -> Tensor:
        """Numbers for the labels of each layer `(N, nodes, K of it)` -> `(N, columns, K)`, 0 for other labels."""
        like = next(iter(of_layers.values()))
        out = like.new_zeros(len(like), len(self.labels), self.width)
        for name, columns in self.columns.items():
            out[:, columns, : of_layers[name].shape[-1]] = of_layers[name]
        return out

    def known(self, evidence: Mapping[str, Clamp]) -> Known:
        q = self.padded({name: evidence[name].probs for name in self.columns})
        seen = torch.ones(q.shape[:2], dtype=torch.bool, device=q.device)
        for name, columns in self.columns.items():
            free = evidence[name].free
            if free is not None:
                seen[:, columns] = ~free
        return Known(q * seen.unsqueeze(-1), seen)

    def evidence(self, known: Known) -> dict[str, Clamp]:
        clamps = {}
        for name, columns in self.columns.items():
            labels = int(self.labels[columns[0]])
            free = ~known.seen[:, columns]
            clamps[name] = Clamp(known.q[:, columns, 1:labels], free if bool(free.any()) else None)
        return clamps

    def probs(self, beliefs: Beliefs) -> Tensor:
        """Beliefs about all columns, `(N, columns, K)`."""
        return self.padded({name: beliefs[name].probs.flatten(1, -2) for name in self.columns})


@runtime_checkable
class Table(Protocol):
    """A fitted estimator that reads tables, such as `LGMClassifier`."""

    @property
    def posterior_(self) -> Posterior: ...

    def inputs(self, X: Any) -> Tensor:
        """Rows as inputs of `posterior_`, in [0, 1], NaN = missing."""
        ...

    @property
    def input_names(self) -> list[str]: ...

    def conditionals(self, target: tuple[int, ...] | None = None) -> Conditionals:
        """What it says of the class, or of columns as a target, and of what missing entries will show."""
        ...


def posterior_of(model: Posterior | Table) -> Posterior:
    if isinstance(model, Posterior):
        return model
    if not hasattr(type(model), "posterior_"):
        raise InferenceError(f"model is of type {type(model).__name__}; expected a Posterior or a fitted LGMClassifier")
    return model.posterior_


def inputs_of(model: Posterior | Table, X: Any) -> Tensor:
    """Rows as inputs of the posterior, checked."""
    posterior = posterior_of(model)
    return posterior.checked(X if isinstance(model, Posterior) else model.inputs(X))[0]


def asked(predictor: Any, x: Any, question: str) -> Tensor:
    """Inputs as floats, for a predictor that answers the target, or an error that says what can be asked.

    `question` is the method that tables have instead.
    """
    if hasattr(predictor, question):
        raise InferenceError(f"a {type(predictor).__name__} reads tables; call its {question}(X) instead")
    if isinstance(predictor, LGM) or not callable(predictor):
        raise InferenceError(
            f"predictor is of type {type(predictor).__name__}; expected a Posterior, or what maps inputs with NaN to "
            "log-probabilities"
        )
    x = as_tensor("inputs", x)
    x = x if x.is_floating_point() else x.to(torch.get_default_dtype())
    return predictor.checked(x)[0] if isinstance(predictor, Posterior) else x


def of_one_node(log_probs: Tensor) -> Tensor:
    """Answers about a target of one node, `(B, K)`, or an error."""
    if log_probs.dim() != 2:
        nodes = log_probs[0, ..., 0].numel() if log_probs.dim() > 2 and len(log_probs) else "several"
        raise InferenceError(f"the target has {nodes} nodes; expected one, whose answers are shaped (B, K)")
    return log_probs


def known_rows(model: Posterior | Table, X: Any) -> Known:
    """What rows say of the inputs of the posterior, checked."""
    posterior = posterior_of(model)
    return InputNodes.of(posterior).known(posterior.encoding(posterior.model, inputs_of(model, X)))


def names_of(model: Posterior | Table) -> list[Any]:
    """The names of the columns; of a posterior their numbers."""
    if isinstance(model, Posterior):
        return list(range(len(InputNodes.of(model).labels)))
    return model.input_names


def column_numbers(names: Sequence[Any], wanted: Any, what: str) -> list[int]:
    """The places of columns given by name or number, one or several."""
    several = wanted if isinstance(wanted, list | tuple) else [wanted]
    numbers = []
    for one in several:
        if one in names:
            numbers.append(names.index(one))
        elif isinstance(one, int) and not isinstance(one, bool) and 0 <= one < len(names):
            numbers.append(one)
        else:
            shown = ", ".join(map(repr, names[:8])) + (", ..." if len(names) > 8 else "")
            raise InferenceError(f"{what} names no column: {one!r}; expected some of {shown}")
    return numbers
