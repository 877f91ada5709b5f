"""Greedy pretraining of a chain of layers by contrastive divergence, pair by pair, and the classifier on top of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from torchlgm._utils.arrays import as_tensor
from torchlgm.errors import DivergedError, TrainingError
from torchlgm.learn.contrastive import ContrastiveDivergence, Pair
from torchlgm.learn.cuda.capture import capture
from torchlgm.learn.settings import Settings, settings_or_default
from torchlgm.model import LGM, Encoding, require_finite_all
from torchlgm.mrf import Clamp
from torchlgm.ops.compact import full, probs
from torchlgm.posterior import Predictor
from torchlgm.spec import Graph


def pretrain(
    predictor: Predictor,
    inputs: Tensor,
    settings: Settings | None = None,
    k: int = 1,
    persistent: bool = False,
    generator: torch.Generator | None = None,
    after_step: Callable[[], None] | None = None,
) -> list[dict[str, Any]]:
    """Train the chain of layers from the inputs to the target by contrastive divergence, pair by pair.

    Each pair learns from the probabilities that the pairs below give its lower layer; the connection to the target is
    not trained. Energies should start small, as with `Init(table=0.1)`.

    Parameters
    ----------
    predictor : Predictor
        Such as a `Posterior`.
    inputs : Tensor
        `(N, *shape)`.
    settings : Settings, optional
        Of which `epochs`, `batch_size`, `learning_rate`, `seed`, `clip` and `optimizer` count, for each pair.
    k : int
        Gibbs steps.
    persistent : bool
        Whether chains continue where they ended, instead of starting at each batch of data.
    generator : torch.Generator, optional
        On the device of the model; made from the seed if None.
    after_step : callable, optional
        Called after every step; it may raise to stop.

    Returns
    -------
    list of dict
        A row for each epoch of each pair.
    """
    settings = settings_or_default(settings)
    model, encoding = predictor.model, predictor.encoding
    layers = _chain_of(predictor)
    require_finite_all([model], "this model cannot be trained further", TrainingError)
    inputs = as_tensor("inputs", inputs)
    encoding.check(model.graph, inputs)
    device = model.unary[layers[0]].device
    generator = generator or torch.Generator(device).manual_seed(settings.seed)
    history: list[dict[str, Any]] = []
    for level in range(len(layers) - 2):
        pair = _pair_for(model, layers, level, encoding, inputs, settings.batch_size)
        contrast = ContrastiveDivergence(pair, generator, k, persistent)
        step = _PairStep(contrast, layers[: level + 1], encoding, inputs, settings)
        for epoch in range(settings.epochs):
            began = time.monotonic()
            error = step.epoch(settings.order(epoch, len(inputs)), after_step)
            if not math.isfinite(error):
                raise DivergedError(
                    f"the energies of '{pair.lower}' and '{pair.upper}' became infinite or NaN in epoch {epoch + 1}; "
                    "try a lower learning rate, gradient clipping (clip=1.0) or a smaller initial scale"
                )
            row = {"layers": f"{pair.lower}-{pair.upper}", "epoch": epoch + 1, "error": error / len(inputs)}
            history.append(row | {"seconds": time.monotonic() - began})
    return history


class _PairStep:
    """Steps of one pair of layers: plain, or captured as a CUDA graph that reads its batch from data on the device."""

    def __init__(
        self,
        contrast: ContrastiveDivergence,
        below: Sequence[str],
        encoding: Encoding,
        inputs: Tensor,
        settings: Settings,
    ) -> None:
        self.contrast, self.below, self.encoding, self.inputs, self.settings = (
            contrast,
            below,
            encoding,
            inputs,
            settings,
        )
        self.pair = contrast.pair
        self.device = self.pair.bias.device
        self.optimizer = settings.make_optimizer(self.pair.parameters, self.device)
        self.error = torch.zeros((), device=self.device)  # summed over samples
        self.index = torch.zeros(settings.batch_size, dtype=torch.long, device=self.device)
        self.graph: torch.cuda.CUDAGraph | None = None

    def epoch(self, order: Tensor, after_step: Callable[[], None] | None) -> float:
        """The reconstruction error, summed over samples, of an epoch in this order."""
        if self.graph is None and self._capturable(len(order)):
            self._capture(order)
        self.error.zero_()
        for index in order.to(self.inputs.device).split(self.settings.batch_size):
            if self.graph is not None and len(index) == len(self.index):
                self.index.copy_(index)
                self.graph.replay()
            else:
                self._work(index)
            if after_step is not None:
                after_step()
        return float(self.error)

    def _work(self, index: Tensor) -> None:
        v = features(self.pair.model, self.below, self.encoding, self.inputs[index].to(self.device))
        self.optimizer.zero_grad()
        self.contrast.loss(v).backward()
        if self.settings.clip is not None:
            nn.utils.clip_grad_norm_(self.pair.parameters, self.settings.clip)
        self.optimizer.step()
        self.error += self.pair.reconstruction_error(v) * len(index)

    def _capturable(self, samples: int) -> bool:
        on_gpu = self.inputs.device.type == self.device.type == "cuda"
        adam = all(group.get("capturable") for group in self.optimizer.param_groups)
        return on_gpu and adam and samples >= len(self.index) and not self.contrast.persistent

    def _capture(self, order: Tensor) -> None:
        """Capture runs the step a few times; the state they changed is restored."""
        self.index.copy_(order[: len(self.index)])
        saved = [p.detach().clone() for p in self.pair.parameters]
        random = self.contrast.generator.get_state()
        self.graph = capture(lambda: self._work(self.index), self.contrast.generator)
        with torch.no_grad():
            for p, old in zip(self.pair.parameters, saved, strict=True):
                p.copy_(old)
                for value in self.optimizer.state[p].values():
                    value.zero_()
        self.contrast.generator.set_state(random)


def _pair_for(model: LGM, layers: Sequence[str], level: int, encoding: Encoding, inputs: Tensor, batch: int) -> Pair:
    """Above the first pair the lower layer's unary already belongs to the pair below, so the lower layer gets a bias
    of its own, which starts at the log-odds of the layer's mean probabilities on the first batches."""
    lower, upper = layers[level], layers[level + 1]
    if level == 0:
        return Pair(model, lower, upper)
    some = inputs[: 10 * batch].to(model.unary[lower].device)
    mean = features(model, layers[: level + 1], encoding, some).mean(0)
    rest = 1 - mean.sum(-1, keepdim=True)
    least = 1 / len(some)
    return Pair(model, lower, upper, nn.Parameter(torch.log(rest + least) - torch.log(mean + least)))


def chain(graph: Graph, first: str, last: str) -> list[str]:
    """The layers from `first` to `last`, if the graph is a chain between them."""
    for name in (first, last):
        graph.layer(name)
    neighbours = {
        name: {other for c in graph.connections for other in (c.left, c.right) if name in (c.left, c.right)} - {name}
        for name in graph.layer_names
    }
    layers = [first]
    while layers[-1] != last:
        onward = neighbours[layers[-1]] - set(layers)
        if len(onward) != 1:
            raise TrainingError(
                f"greedy pretraining needs a chain of layers from '{first}' to '{last}'; "
                f"from '{layers[-1]}' the graph goes on to {len(onward)} layers"
            )
        layers += onward
    if set(layers) != set(graph.layer_names):
        raise TrainingError(f"greedy pretraining needs a chain of all layers, from '{first}' to '{last}'")
    return layers


def features(model: LGM, layers: Sequence[str], encoding: Encoding, x: Tensor, seen: Tensor | None = None) -> Tensor:
    """Probabilities `(B, nodes, K-1)` of the last of `layers`, each from those of the one before, without gradient.

    A missing input counts with the probabilities of its unary.
    """
    with torch.no_grad():
        q = _filled(model, layers[0], encoding(model, x, seen)[layers[0]])
        for lower, upper in pairwise(layers):
            q = probs(Pair(model, lower, upper).up(q))
    return q


def _filled(model: LGM, layer: str, clamp: Clamp) -> Tensor:
    if clamp.free is None:
        return clamp.q
    return torch.where(clamp.free.unsqueeze(-1), probs(-model.unary[layer]), clamp.q)


class TopLayer(Predictor):
    """A softmax classifier on the probabilities of the last hidden layer, each layer's from those of the one before.

    Only the last connection and the unary of the target have a gradient: for training after `pretrain`.
    """

    def log_probs(self, x: Tensor, seen: Tensor | None = None) -> Tensor:
        layers = _chain_of(self)
        q = features(self.model, layers[:-1], self.encoding, x, seen)
        return torch.log_softmax(full(Pair(self.model, layers[-2], layers[-1]).up(q)), -1)


def _chain_of(predictor: Predictor) -> list[str]:
    first, *others = predictor.encoding.layers
    if others:
        raise TrainingError(f"greedy pretraining needs one layer that takes the inputs, got '{first}', {others}")
    return chain(predictor.model.graph, first, predictor.target)
