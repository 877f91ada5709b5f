"""Questions that small models answer, in seconds to minutes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import product
from statistics import fmean

import torch
from torch import Tensor, nn

from experiments.paper.cells import all_cells, make_model, make_objective, make_settings
from experiments.paper.clock import Clock, Watch
from experiments.paper.jobs import Options
from experiments.paper.questions.asking import Case, Row
from experiments.paper.questions.bench import accuracy
from experiments.paper.sources import Sources, first, load
from torchlgm import LGM, Init, Method, data, exact, lbp, learn, mean_field, trw, zoo

SEED = 0
FAR = 0.5  # nats
RIGHT = "1.0000 (1.000)"  # a gradient that is that of the exact likelihood
TREE = "784-100-10, input observed"

Batch = tuple[LGM, Tensor, Tensor]  # a model, inputs and classes


# The analytic gradient


def gradients(options: Options, _: Clock) -> Iterator[Case]:
    """How the gradients of each method, analytic and by backpropagation, lie to that of the exact likelihood."""

    @cache
    def star() -> Batch:
        images = load("mnist", options.data).train
        x, y = data.threshold(images.inputs[:20]), images.targets[:20]
        model = LGM(zoo.dense((1, 28, 28)), "paper", generator=torch.Generator().manual_seed(SEED))
        return model.double(), x.double(), y

    @cache
    def loopy() -> dict[float, Batch]:
        draw = torch.Generator().manual_seed(SEED)
        x, y = torch.rand(20, 8, generator=draw).double(), torch.arange(20) % 4
        return {s: (LGM(zoo.dense(8, (6, 6), 4), Init(s, s), generator=draw).double(), x, y) for s in (0.3, 1.0)}

    methods = [(f"LBP, sequential, T={t}", lbp(t, "sequential")) for t in (1, 2, 3, 5, 20)]
    for name, method in (*methods, ("LBP, sweep, T=1", lbp(1, "sweep"))):
        yield Case({"graph": TREE, "method": name}, partial(_beside_exact, star, method))
    methods = [("LBP", lbp(50)), ("TRW", trw(50)), ("MF", mean_field(50))]
    for size, (name, method) in product((0.3, 1.0), methods):
        what = {"graph": f"8-6-6-4, energies N(0, {size}²)", "method": f"{name}, T=50"}
        yield Case(what, partial(_beside_exact, lambda size=size: loopy()[size], method))


def _beside_exact(batch: Callable[[], Batch], method: Method) -> list[Row]:
    model, x, y = batch()
    inputs = learn.Inputs(missing=False)
    truth = _gradient(learn.Likelihood(exact(), inputs), model, x, y)
    row: Row = {}
    for kind, objective in (
        ("backpropagation", learn.Likelihood(method, inputs)),
        ("analytic", learn.Moments(method, inputs)),
    ):
        g = _gradient(objective, model, x, y)
        row[kind] = f"{float(torch.cosine_similarity(g, truth, 0)):.4f} ({float(g.norm() / truth.norm()):.3f})"
    return [row]


def _gradient(objective: learn.Objective, model: LGM, x: Tensor, y: Tensor) -> Tensor:
    ps = list(model.parameters())
    found = torch.autograd.grad(objective.loss(model, x, y), ps, allow_unused=True)
    return torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for g, p in zip(found, ps, strict=True)])


def gradients_say(rows: Sequence[Row]) -> str:
    tree = [row for row in rows if row["graph"] == TREE and "sequential" in row["method"]]
    since = {kind: _since([row for row in tree if row[kind] == RIGHT]) for kind in ("backpropagation", "analytic")}
    return (
        f"On the tree, backpropagation is right {since['backpropagation']} and the analytic gradient "
        f"{since['analytic']}. {_on_loops([row for row in rows if row['graph'] != TREE])}"
    )


def _since(right: Sequence[Row]) -> str:
    return f"from {right[0]['method'].split(', ')[-1]} on" if right else "at no T"


def _on_loops(rows: Sequence[Row]) -> str:
    least: dict[str, float] = {}
    nearer = []
    for row in rows:
        name = row["method"].split(",")[0]
        backward, analytic = (float(row[kind].split()[0]) for kind in ("backpropagation", "analytic"))
        least[name] = min(least.get(name, 1.0), analytic)
        if analytic > backward:
            nearer.append(f"{name}, {row['graph'].split(', ', 1)[1]} ({analytic:.4f} against {backward:.4f})")
    ranked = sorted(least, key=least.__getitem__, reverse=True)
    found = ", ".join(f"{least[name]:.4f} with {name}" for name in ranked)
    said = f"On the loopy graph, the least cosine of the analytic gradient is {found}."
    return said + (f" It is nearer to the truth than backpropagation with {'; '.join(nearer)}." if nearer else "")


def training(options: Options, clock: Clock) -> Iterator[Case]:
    """Table 3 with either gradient, from the same start, on a part of binary MNIST."""
    sources = Sources(options.data, options.where)
    count, epochs = (200, 1) if options.quick else (12_000, 3)
    cell = next(all_cells(ways=["paper"], pattern="cjinf/LGM/Dense(5)"))

    def make(t: int, gradient: str) -> list[Row]:
        e = replace(cell.experiment, gradient=gradient, iterations=t, epochs=epochs)
        train, valid, test = (first(part, count) for part in sources.load(e))
        model, parts = make_model(e, SEED, train), (train, first(valid, 2000))
        settings, watch = make_settings(e, SEED), Watch(clock)
        learn.fit(model, make_objective(e), *parts, settings, device=options.where, reporters=[watch])
        return [{"test accuracy": accuracy(model, e, test)}]

    for t, gradient in product((2, 3, 5), ("backprop", "analytic")):
        yield Case({"T": t, "gradient": gradient}, partial(make, t, gradient))


def training_says(rows: Sequence[Row]) -> str:
    found = {(row["T"], row["gradient"]): row["test accuracy"] for row in rows}
    costs = {t: found[t, "backprop"] - found[t, "analytic"] for t, _ in found}
    return "The analytic gradient costs " + ", ".join(f"{cost:.4f} at T={t}" for t, cost in costs.items()) + "."


# Soft clamping


def soft_clamping(options: Options, clock: Clock) -> Iterator[Case]:
    """Digits pooled to 4x4 pixels: all 65,536 hard inputs are enumerated, so the expectation is exact."""

    def make(init: str | Init, rate: float, trained: bool) -> list[Row]:
        digits = data.load("digits", options.data)
        parts = [replace(p, inputs=nn.functional.avg_pool2d(p.inputs, 2)) for p in (digits.train, digits.test)]
        model = LGM(zoo.dense((1, 4, 4), (50,)), init, generator=torch.Generator().manual_seed(SEED))
        objective = learn.Likelihood(lbp(1, "sweep"), learn.Inputs(missing=False))
        if trained:
            train, valid = data.random_split(parts[0], 0.85, seed=SEED)
            settings = learn.Settings(epochs=2 if options.quick else 60, learning_rate=rate, visible=None)
            learn.fit(model, objective, train, valid, settings, reporters=[Watch(clock)])
        hard = torch.tensor(list(product((0.0, 1.0), repeat=16))).reshape(-1, 1, 4, 4)
        every = learn.predict_log_probs(model, objective, hard, 8192)[:, 0]
        return [_soft_and_expected(model, objective, parts[1], hard, every)]

    for name, init, rate in (("default", "default", 0.01), ("N(0, 1)", "paper", 0.001), ("weak", Init(0.1), 0.01)):
        for word in ("no", "yes"):
            yield Case({"start": name, "trained": word}, partial(make, init, rate, word == "yes"))


def _soft_and_expected(
    model: LGM, objective: learn.Objective, part: data.Data, hard: Tensor, every: Tensor
) -> dict[str, float]:
    """`every` are the log-probabilities (65536, K) of the hard inputs."""
    q = part.inputs.flatten(1).double().clamp(1e-12, 1 - 1e-12)
    v = hard.flatten(1).double()
    weights = (q.log() @ v.T + (-q).log1p() @ (1 - v).T).exp()  # (N, 65536), sums to 1
    expected = -(weights @ every.double()).gather(1, part.targets[:, None])[:, 0]
    averaged = weights @ every.double().exp()
    log_probs = learn.predict_log_probs(model, objective, part.inputs)[:, 0].double()
    soft = -log_probs.gather(1, part.targets[:, None])[:, 0]
    return {
        "soft NLL": float(soft.mean()),
        "expected NLL": float(expected.mean()),
        "mean absolute gap": float((soft - expected).abs().mean()),
        "share where soft is lower": float((soft < expected).double().mean()),
        "accuracy, soft": float((log_probs.argmax(1) == part.targets).double().mean()),
        "accuracy, averaged": float((averaged.argmax(1) == part.targets).double().mean()),
    }


def soft_clamping_says(rows: Sequence[Row]) -> str:
    done = [row for row in rows if row["trained"] == "yes"]
    below = [row["expected NLL"] - row["soft NLL"] for row in done]
    gain = fmean(row["accuracy, soft"] - row["accuracy, averaged"] for row in done)
    verdict = (
        "far from the expectation: an objective of its own"
        if min(map(abs, below)) > FAR
        else "close to the expectation"
        if max(map(abs, below)) < FAR
        else "close to the expectation for some starts only"
    )
    return (
        f"After training the soft-clamped objective lies {min(below):.2f} to {max(below):.2f} nats below the true "
        f"expectation ({verdict}). Classifying soft inputs is {gain:+.3f} more accurate, in the mean, than averaging "
        "over hard ones, for models that were trained on soft ones."
    )
