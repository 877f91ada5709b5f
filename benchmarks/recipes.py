"""Recipes for larger models, as data, and how each becomes a model, an objective and settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

import torchlgm as lgm
from torchlgm import LGM, Graph, Method, learn
from torchlgm.inference.schedule import Event, Events, Send, Update, Wiring
from torchlgm.mrf import MRF, pin
from torchlgm.spec.zoo import Stage, tower

SPEED = 1.5e11  # edges times samples that the kernels of belief propagation do in a second, gradients included
CONV_SPEED, CONV_STEP = 5e12, 8e-4  # the same of mean field by convolutions, and the seconds of a step at least


@dataclass(frozen=True)
class Recipe:
    """A model and how it is trained.

    `drop` are the shares of the nodes of "maps1", "maps2" ... and of the hidden layers that are held at label 0 in
    training; `decay` is the weight decay of the tables, `start` the standard deviations of what is stored, at the
    balanced scale, for the connection out of the inputs and for all others.
    """

    name: str
    stages: tuple[Stage, ...]
    hidden: tuple[int, ...] = ()
    method: str = "mean-field"
    drop: tuple[float, ...] = ()
    skips: tuple[str, ...] = ()
    hidden_labels: int = 2
    start: tuple[float, float] = (0.3, 1.0)
    visible: float | tuple[float, float] | None = None
    smoothing: float = 0.0
    decay: float = 0.0
    batch: int = 128
    learning_rate: float = 0.01
    epochs: int = 15

    @property
    def graph(self) -> Graph:
        return tower(self.stages, hidden=self.hidden, hidden_labels=self.hidden_labels, skips=self.skips)

    @property
    def dropped(self) -> dict[str, float]:
        return {name: p for name, p in zip(self.graph.layer_names[1:-1], self.drop, strict=False) if p}

    @property
    def by_kernels(self) -> bool:
        """Whether our kernels make the messages: not for mean field over convolutions, which cuDNN has."""
        return not (self.method.startswith("mean-field") and all(stage.kind == "conv" for stage in self.stages))

    @property
    def seconds(self) -> float:
        """A guess at what the training takes on one H200."""
        graph = self.graph
        work = sum(
            c.count_edges(*graph.ends(c)) * math.prod(layer.labels - 1 for layer in graph.ends(c))
            for c in graph.connections
        )
        epoch = 48_000 * work / (SPEED if self.by_kernels else CONV_SPEED)
        epoch *= 2 * METHODS[self.method].iterations - 1  # every further sweep needs the way back of the one before
        return self.epochs * max(epoch, CONV_STEP * 48_000 / self.batch)


def upward(wiring: Wiring) -> Events:
    """Mean field from the inputs to the class alone: layer by layer, from the beliefs of the layers below."""
    events: list[Event] = []
    for layer in wiring.layers:
        below = tuple(hop.back for hop in wiring.onward(layer, reverse=True))
        events += [Send(below)] if below else []
        events.append(Update(layer))
    return Events(tuple(events), tuple(events))


METHODS: Mapping[str, Method] = {
    "mean-field": lgm.mean_field(1, upward),
    "mean-field-sweep": lgm.mean_field(1, "sweep"),
    "lbp": lgm.lbp(1, "sweep"),
    "lbp-2": lgm.lbp(2, "sweep"),
    "max": lgm.lbp(1, "sweep", product="max"),
    "trw": lgm.trw(1, "sweep"),
}

THREE = (Stage(32, 3, 1, 1), Stage(64, 4, 2, 1), Stage(128, 4, 2, 1))  # 28x28, 14x14, 7x7
FOUR = (Stage(32, 3, 1, 1), Stage(64, 3, 2, (1, 0)), Stage(64, 3, 1, 1), Stage(128, 3, 2, (1, 0)))
WIDE = (Stage(64, 5, 1, 2), Stage(128, 4, 2, 1), Stage(256, 4, 2, 1))
TWO = (Stage(64, 5, 2, (2, 1)), Stage(128, 5, 2, (2, 1)))  # 14x14, 7x7
TWO_SMALL = (Stage(32, 5, 2, (2, 1)), Stage(64, 5, 2, (2, 1)))
THREE_SMALL = (Stage(16, 3, 1, 1), Stage(32, 4, 2, 1), Stage(64, 4, 2, 1))
MIXED = (Stage(32, 5, 2, (2, 1)), Stage(32, 5, 2, (2, 1), "local"))
THREE_LABELS = tuple(replace(stage, labels=3) for stage in THREE)
BROAD = (Stage(32, 5, 1, 2, labels=3), Stage(64, 6, 2, 2, labels=3), Stage(128, 6, 2, 2, labels=3))
BROAD_FIVE = tuple(replace(stage, labels=5) for stage in BROAD)
BROADER = (Stage(32, 7, 1, 3, labels=3), Stage(64, 8, 2, 3, labels=3), Stage(128, 6, 2, 2, labels=3))

DROP = (0.0, 0.1, 0.2, 0.3)
BASE = Recipe("mf3", THREE, (256,), drop=DROP)
BASE_BROAD = Recipe("mf3-broad", BROAD, (256,), epochs=20)
LAST = (0.0, 0.0, 0.0, 0.5)
BASE_LBP = Recipe("lbp2", TWO_SMALL, (128,), "lbp", drop=(0.0, 0.1, 0.2))

RECIPES: tuple[Recipe, ...] = (
    BASE,
    replace(BASE, name="mf3-wide", stages=WIDE, hidden=(512,), drop=(0.0, 0.2, 0.3, 0.4)),
    replace(BASE, name="mf4", stages=FOUR, drop=(0.0, 0.1, 0.1, 0.2, 0.3), start=(0.3, 1.5)),
    replace(BASE, name="mf3-undropped", drop=()),
    replace(BASE, name="mf3-fast", learning_rate=0.03),
    replace(BASE, name="mf3-skips", skips=("maps2", "maps3")),
    replace(BASE, name="mf3-labels", stages=THREE_LABELS),
    replace(BASE, name="mf3-labels-undropped", stages=THREE_LABELS, drop=()),
    replace(BASE, name="mf3-labels-dropped", stages=THREE_LABELS, drop=(0.1, 0.3, 0.4, 0.5), epochs=30),
    replace(BASE, name="mf3-labels-hiding", stages=THREE_LABELS, visible=(0.8, 1.0), epochs=30),
    replace(BASE, name="mf3-direct", hidden=(), drop=(0.0, 0.1, 0.3)),
    replace(BASE, name="mf2", stages=TWO, drop=(0.0, 0.2, 0.3), learning_rate=0.02),
    replace(BASE, name="mf3-smooth", smoothing=0.05),
    replace(BASE, name="mf3-hiding", visible=(0.8, 1.0)),
    replace(BASE, name="mf3-decay", decay=0.03),
    replace(BASE, name="mf3-loud", start=(1.0, 1.0)),
    replace(BASE, name="mf3-sweep", method="mean-field-sweep", drop=()),
    replace(BASE_BROAD, name="mf3-broad-dropped", drop=(0.0, 0.2, 0.3, 0.5), learning_rate=0.02, epochs=40),
    replace(BASE_BROAD, name="mf3-broad-hidden", drop=LAST, epochs=30),
    replace(BASE_BROAD, name="mf3-broad-five-hidden", stages=BROAD_FIVE, drop=LAST),
    replace(BASE_BROAD, name="mf3-broader-hidden", stages=BROADER, drop=LAST),
    replace(BASE_BROAD, name="mf3-broad-more-hidden", hidden=(512,), drop=LAST),
    replace(BASE_BROAD, name="mf3-broad-upper", drop=(0.0, 0.0, 0.2, 0.5)),
    replace(BASE_BROAD, name="mf3-broad-five", stages=BROAD_FIVE, epochs=15),
    replace(BASE_BROAD, name="mf3-broader", stages=BROADER),
    BASE_BROAD,
    replace(BASE_BROAD, name="mf3-broad-wide", stages=tuple(replace(s, channels=2 * s.channels) for s in BROAD)),
    replace(BASE_BROAD, name="mf3-broad-fast", learning_rate=0.03),
    replace(BASE_BROAD, name="mf3-broad-smooth", smoothing=0.05),
    BASE_LBP,
    replace(BASE_LBP, name="lbp3", stages=THREE_SMALL, drop=DROP),
    replace(BASE_LBP, name="lbp2-undropped", drop=()),
    replace(BASE_LBP, name="lbp-local", stages=MIXED),
    replace(BASE_LBP, name="lbp2-labels", hidden_labels=3),
    replace(BASE_LBP, name="lbp2-twice", stages=(Stage(16, 5, 2, (2, 1)), Stage(32, 5, 2, (2, 1))), method="lbp-2"),
)


def tiny(recipe: Recipe) -> Recipe:
    """The same with few channels and nodes."""
    stages = tuple(replace(stage, channels=max(2, stage.channels // 16)) for stage in recipe.stages)
    return replace(recipe, stages=stages, hidden=tuple(max(4, n // 16) for n in recipe.hidden), batch=64)


# --- training


class Noise:
    """Numbers in [0, 1) out of a pool, at another place in each call: random enough, repeatable, and capturable."""

    SIZE, STRIDE = 2**23, 2_654_435_761

    def __init__(self, seed: int, device: torch.device) -> None:
        self.pool = torch.rand(self.SIZE, generator=torch.Generator().manual_seed(seed)).to(device)
        self.place = torch.zeros(1, dtype=torch.long, device=device)

    def __call__(self, *shape: int) -> Tensor:
        self.place.add_(self.STRIDE).remainder_(self.SIZE)
        index = (self.place + torch.arange(math.prod(shape), device=self.pool.device)) % self.SIZE
        return self.pool[index].reshape(shape)


class Dropout(lgm.Posterior):
    """A posterior that in training holds nodes of hidden layers at label 0, which sends nothing.

    In evaluation no node is held, and the energies above such layers count by the share that was free; `settle` writes
    that into the tables, and leaves a model that needs nothing but its method.
    """

    def __init__(self, model: LGM, method: Method, dropped: Mapping[str, float], noise: Noise) -> None:
        super().__init__(model, method)
        self.dropped, self.noise = dropped, noise

    def condition(self, x: Tensor, seen: Tensor | None = None) -> MRF:
        mrf = super().condition(x, seen)
        if self.training:
            return mrf._replace(unary={name: self._held(name, u, mrf.batch) for name, u in mrf.unary.items()})
        links = [link._replace(scale=link.scale * (1 - self.dropped.get(link.left, 0.0))) for link in mrf.links]
        return mrf._replace(links=tuple(links))

    def _held(self, name: str, unary: Tensor, batch: int) -> Tensor:
        if name not in self.dropped:
            return unary
        return pin(unary, self.noise(batch, unary.shape[1]) >= self.dropped[name])

    def settle(self) -> None:
        with torch.no_grad():
            for c in self.model.graph.connections:
                self.model.table[c.name] *= 1 - self.dropped.get(c.left, 0.0)


def optimizer_of(recipe: Recipe, device: torch.device) -> Callable[[Iterable[nn.Parameter]], Optimizer]:
    """Tables decay, unaries do not. The learning rate is a tensor on CUDA, so that a step can be captured."""
    cuda = device.type == "cuda"

    def make(parameters: Iterable[nn.Parameter]) -> Optimizer:
        kinds: tuple[list[nn.Parameter], list[nn.Parameter]] = ([], [])
        for p in parameters:
            kinds[p.dim() > 2].append(p)
        groups = []
        for kind, decay in zip(kinds, (0.0, recipe.decay), strict=True):
            rate = torch.tensor(recipe.learning_rate, device=device) if cuda else recipe.learning_rate
            groups.append({"params": kind, "lr": rate, "weight_decay": decay})
        return AdamW(groups, fused=True, capturable=cuda)

    return make


def settings_of(recipe: Recipe, seed: int, device: torch.device) -> learn.Settings:
    return learn.Settings(
        epochs=recipe.epochs,
        batch_size=recipe.batch,
        learning_rate=recipe.learning_rate,
        patience=None,
        seed=seed,
        visible=recipe.visible,
        optimizer=optimizer_of(recipe, device),
        capture="always" if device.type == "cuda" else "auto",
        valid_batch_size=_valid_batch(recipe),
    )


def _valid_batch(recipe: Recipe) -> int:
    """Kernels count in 32 bits up to here, and messages out of nodes with more than two labels are kept."""
    several = max(recipe.hidden_labels, *[stage.labels for stage in recipe.stages]) > 2
    return 1000 if not recipe.by_kernels else 200 if several else 500


def make_model(recipe: Recipe, seed: int, images: Tensor) -> LGM:
    of_inputs, inner = recipe.start
    model = LGM(recipe.graph, lgm.Init(inner, scale="balanced"), generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        model.table["inputs-maps1"] *= of_inputs / inner
    if recipe.visible is not None:
        learn.start_from_data(model, "inputs", images.cpu())
    return model
