"""The beliefs that an inference returns, with the full label axis."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from torchlgm.errors import InferenceError
from torchlgm.inference.rules import LogZ, Message
from torchlgm.inference.schedule import Hop
from torchlgm.layout import LEFT, RIGHT, TurnedLayout
from torchlgm.mrf import MRF, Link, energy_of


class LayerBelief(NamedTuple):
    """What is believed about one layer, `(B, *shape, K)`; at observed nodes it is what was observed."""

    probs: Tensor
    log_probs: Tensor  # finite, also at probability 0

    @property
    def labels(self) -> Tensor:
        """The most probable label of each node: `(B, *shape)`."""
        return self.probs.argmax(-1)

    @property
    def entropy(self) -> Tensor:
        """In nats: `(B, *shape)`."""
        return torch.special.entr(self.probs).sum(-1)


class Labelling(NamedTuple):
    """A labelling `(B, *shape)` of every layer and its energy `(B,)`."""

    labels: dict[str, Tensor]
    energy: Tensor


class InferenceResult(ABC):
    """Abstract: what a method computes about the free nodes of an MRF; `Beliefs` adds the observed ones."""

    iterations: Tensor  # (B,)
    residual: Tensor | None  # (B,)
    converged: Tensor | None  # (B,)
    messages: Mapping[Hop, Message]
    layers: frozenset[str]  # those that were asked for

    @abstractmethod
    def probs(self, layer: str) -> Tensor:
        """`(1 or B, nodes, K)`."""

    @abstractmethod
    def log_probs(self, layer: str) -> Tensor:
        """`(1 or B, nodes, K)`, finite."""

    @abstractmethod
    def edge_probs(self, link: int) -> Tensor:
        """`(1 or B, *edge, KL, KR)`."""

    @abstractmethod
    def log_z(self) -> LogZ: ...

    @abstractmethod
    def map(self) -> dict[str, Tensor]:
        """The MAP labels of the free nodes, `(B, nodes)`."""


class Beliefs(Mapping[str, LayerBelief]):
    """Beliefs by layer name, and everything else that was inferred. Computed when first read."""

    def __init__(self, mrf: MRF, result: InferenceResult) -> None:
        self.mrf = mrf
        self._result = result
        self._cache: dict[str, LayerBelief] = {}
        self._log_z_cache: LogZ | None = None

    def __getitem__(self, layer: str) -> LayerBelief:
        if layer not in self._cache:
            if layer not in self.mrf.shapes:
                raise KeyError(f"no layer '{layer}'; the graph has {', '.join(self.mrf.shapes)}")
            if layer not in set(self):
                raise InferenceError(f"the belief of '{layer}' was not asked for: add it to want=")
            shape = self.mrf.shapes[layer]
            probs, log_probs = self._flat(layer), self._flat_log(layer)
            self._cache[layer] = LayerBelief(probs.unflatten(1, shape), log_probs.unflatten(1, shape))
        return self._cache[layer]

    def __iter__(self) -> Iterator[str]:
        observed = set(self.mrf.shapes) - set(self.mrf.unary)
        return (name for name in self.mrf.shapes if name in self._result.layers or name in observed)

    def __len__(self) -> int:
        return len(list(iter(self)))

    def _flat(self, layer: str) -> Tensor:
        return self._composed(layer, self._result.probs, lambda seen: seen)

    def _flat_log(self, layer: str) -> Tensor:
        return self._composed(layer, self._result.log_probs, finite_log)

    def _composed(self, layer: str, believed: Callable[[str], Tensor], seen: Callable[[Tensor], Tensor]) -> Tensor:
        """What is `believed` about the free nodes of a layer, and what was `seen` of the others: `(B, nodes, K)`."""
        clamp = self.mrf.clamps.get(layer)
        if layer not in self.mrf.unary:
            assert clamp is not None
            return seen(clamp.probs)
        values = believed(layer).expand(self.mrf.batch, -1, -1)
        if clamp is None or clamp.free is None:
            return values
        return torch.where(clamp.free.unsqueeze(-1), values, seen(clamp.probs))

    def edges(self, connection: str) -> Tensor:
        """Joint beliefs of both ends of each edge of a connection.

        Parameters
        ----------
        connection : str
            Its name.

        Returns
        -------
        Tensor
            `(B, *edge, left labels, right labels)`; 0 where a window reaches over the border, since there is no edge.
        """
        for i, link in enumerate(self.mrf.links):
            if link.name == connection:
                joint = _existing(link, self._mixed(link, self._result.edge_probs(i)))
                return link.layout.turn(joint) if isinstance(link.layout, TurnedLayout) else joint
        for link in self.mrf.observed_links:
            if link.name == connection:
                return _existing(link, self._independent(link))
        names = ", ".join(link.name for link in (*self.mrf.links, *self.mrf.observed_links))
        raise KeyError(f"no connection '{connection}'; the graph has {names}")

    def _independent(self, link: Link) -> Tensor:
        left = link.layout.gather(self._flat(link.left), LEFT)
        right = link.layout.gather(self._flat(link.right), RIGHT)
        return left.unsqueeze(-1) * right.unsqueeze(-2)

    def _mixed(self, link: Link, joint: Tensor) -> Tensor:
        """The joint belief where both ends are free, a product where one is observed."""
        free = None
        for side, name in ((LEFT, link.left), (RIGHT, link.right)):
            clamp = self.mrf.clamps.get(name)
            if clamp is not None and clamp.free is not None:
                end = link.layout.gather(clamp.free.unsqueeze(-1).to(joint.dtype), side).unsqueeze(-1) > 0
                free = end if free is None else free & end
        joint = joint.expand(self.mrf.batch, *joint.shape[1:])
        return joint if free is None else torch.where(free, joint, self._independent(link))

    @property
    def _log_z(self) -> LogZ:
        if self._log_z_cache is None:
            self._log_z_cache = self._result.log_z()
        return self._log_z_cache

    @property
    def log_z(self) -> Tensor:
        """log of the sum of exp(-E) over the free nodes: the method's value, `(B,)`."""
        return self._log_z.estimate

    @property
    def log_z_lower(self) -> Tensor | None:
        """A lower bound of log Z, where the method gives one (mean field, exact)."""
        return self._log_z.lower

    @property
    def log_z_upper(self) -> Tensor | None:
        """An upper bound of log Z, where the method gives one (TRW, infinite unless converged; exact)."""
        return self._log_z.upper

    def map(self) -> Labelling:
        """The MAP labelling with its energy, from max-product or exact inference."""
        free = self._result.map()
        return Labelling(with_observed(self.mrf, free), energy_of(self.mrf, free))

    @property
    def iterations(self) -> Tensor:
        """Iterations used, `(B,)`."""
        return self._result.iterations

    @property
    def residual(self) -> Tensor | None:
        """The last relative change of what any layer receives, `(B,)`, not counting damping; infinite after a first
        iteration. None if not everything was asked for, without a tolerance."""
        return self._result.residual

    @property
    def converged(self) -> Tensor | None:
        """Whether the residual is within the tolerance, `(B,)`; None where that is not known.

        Without a tolerance, the square root of the dtype's rounding error is taken for one: 3e-4 in float32.
        """
        return self._result.converged

    @property
    def messages(self) -> Mapping[Hop, Message]:
        """The final messages, for a warm start of the next inference."""
        return self._result.messages

    def __repr__(self) -> str:
        return f"Beliefs({', '.join(self)}; batch {self.mrf.batch})"


def finite_log(probs: Tensor) -> Tensor:
    return probs.clamp(min=torch.finfo(probs.dtype).tiny).log()


def with_observed(mrf: MRF, free: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Labels `(B, nodes)` of the free layers -> `(B, *shape)` of all; observed nodes have their most probable label."""
    labels = {}
    for name, shape in mrf.shapes.items():
        clamp = mrf.clamps.get(name)
        nodes = free.get(name)
        if clamp is not None:
            seen = clamp.probs.argmax(-1)
            nodes = seen if nodes is None or clamp.free is None else torch.where(clamp.free, nodes, seen)
        assert nodes is not None
        labels[name] = nodes.expand(mrf.batch, -1).unflatten(1, shape)
    return labels


def _existing(link: Link, joint: Tensor) -> Tensor:
    mask = link.layout.mask
    return joint if mask is None else joint * mask[..., None, None].to(joint.dtype)
