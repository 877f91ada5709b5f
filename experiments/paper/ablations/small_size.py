"""Ablations of small models, which take seconds to minutes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import product
from statistics import fmean

import torch
from torch import Tensor, nn

from experiments.paper import runner
from experiments.paper.ablations.cases import Bench, Case, Row
from experiments.paper.cells import Experiment, find_cell
from experiments.paper.report.templates import listed
from experiments.paper.significance import Lead, Score, lead
from experiments.paper.sources import first, load
from experiments.pool import Watch
from torchlgm import LGM, Init, Method, data, exact, lbp, mean_field, trw, zoo

SEED = 0
FAR = 0.5  # nats
RIGHT = "1.0000 (1.000)"  # a gradient that is that of the exact likelihood
TREE = "784-100-10, input observed"
LAYERS = {"one hidden layer, a tree": (100,), "two hidden layers, loopy": (100, 100)}

Batch = tuple[LGM, Tensor, Tensor]  # a model, inputs and classes


# The analytic gradient


def gradients(bench: Bench) -> Iterator[Case]:
    """How the gradients of each method, analytic and by backpropagation, lie to that of the exact likelihood."""

    @cache
    def star() -> Batch:
        images = load("mnist", bench.options.data).train
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
    truth = runner.gradient(model, exact(), x, y)
    row: Row = {}
    for kind in ("backpropagation", "analytic"):
        g = runner.gradient(model, method, x, y, analytic=kind == "analytic")
        row[kind] = f"{float(torch.cosine_similarity(g, truth, 0)):.4f} ({float(g.norm() / truth.norm()):.3f})"
    return [row]


def gradients_summary(rows: Sequence[Row]) -> str:
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
    cosines = ", ".join(f"{least[name]:.4f} with {name}" for name in ranked)
    text = f"On the graph with loops, the lowest cosine of the analytic gradient is {cosines}."
    return text + (f" It is closer to the truth than backpropagation with {'; '.join(nearer)}." if nearer else "")


def training(bench: Bench) -> Iterator[Case]:
    """Dense models as the paper with either gradient, from the same starts, on a part of binary MNIST."""
    count, epochs = (200, 1) if bench.options.quick else (12_000, 4)
    cell = find_cell("cjinf/LGM/Dense(5)", "paper")

    def make(e: Experiment) -> list[Row]:
        scores = {gradient: trained(replace(e, gradient=gradient)) for gradient in ("backprop", "analytic")}
        row: Row = {gradient: score.mean for gradient, score in scores.items()}
        gap = lead(scores["analytic"], scores["backprop"])
        return [row | {"difference": gap.mean, "error": gap.error}]

    def trained(e: Experiment) -> Score:
        train, valid, test = bench.sources.load(e)
        parts = first(train, count), first(valid, 2000), first(test, 200 if bench.options.quick else len(test))
        models = {seed: runner.make_model(e, seed, train) for seed in bench.seeds}
        for seed, model in models.items():
            runner.fit(e, seed, [model], parts, None, Watch(bench.budget))
        return Score.of(runner.accuracy(model, e, parts[2]) for model in models.values())

    methods = {"LBP, T=2": ("lbp", 2), "LBP, T=5": ("lbp", 5), "TRW, T=5": ("trw", 5), "MF, T=5": ("mf", 5)}
    for (graph, hidden), (name, (method, t)) in product(LAYERS.items(), methods.items()):
        if len(hidden) < t - 1:  # else the output hears nothing of the input
            e = replace(cell.experiment, hidden=hidden, method=method, iterations=t, epochs=epochs)
            yield Case({"graph": graph, "method": name}, partial(make, e), bench.effort(e))


def training_shown(rows: Sequence[Row]) -> list[Row]:
    shown = ({key: row[key] for key in ("graph", "method", "backprop", "analytic")} for row in rows)
    return [row | {"difference": str(_gap(of))} for row, of in zip(shown, rows, strict=True)]


def training_summary(rows: Sequence[Row]) -> str:
    worse = [f"{row['graph']}, {row['method']}" for row in rows if _gap(row).clear < 0]
    return (
        f"The analytic gradient is clearly worse with {listed(worse)}."
        if worse
        else "It is not clearly worse anywhere."
    )


def training_worse(rows: Sequence[Row]) -> list[bool]:
    """Whether it is clearly worse, with methods other than LBP or on the loopy graph."""
    return [_gap(row).clear < 0 for row in rows if "LBP" not in row["method"] or row["graph"] != next(iter(LAYERS))]


def _gap(row: Row) -> Lead:
    return Lead(row["difference"], row["error"])


# Soft clamping


def soft_clamping(bench: Bench) -> Iterator[Case]:
    """Digits pooled to 4x4 pixels: all 65,536 hard inputs are enumerated, so the expectation is exact."""
    epochs = 2 if bench.options.quick else 60
    e = Experiment("digits", schedule="sweep", iterations=1, hidden=(50,), epochs=epochs, patience=5)

    def make(init: str | Init, rate: float, trained: bool) -> list[Row]:
        digits = data.load("digits", bench.options.data)
        parts = [replace(p, inputs=nn.functional.avg_pool2d(p.inputs, 2)) for p in (digits.train, digits.test)]
        model = LGM(zoo.dense((1, 4, 4), e.hidden), init, generator=torch.Generator().manual_seed(SEED))
        if trained:
            train, valid = data.random_split(parts[0], 0.85, seed=SEED)
            settings = replace(e, learning_rate=rate)
            runner.fit(settings, SEED, [model], (train, valid, parts[1]), None, Watch(bench.budget))
        return [_soft_and_expected(model, e, parts[1])]

    for name, init, rate in (("default", "default", 0.01), ("N(0, 1)", "paper", 0.001), ("weak", Init(0.1), 0.01)):
        for word in ("no", "yes"):
            yield Case({"start": name, "trained": word}, partial(make, init, rate, word == "yes"))


def _soft_and_expected(model: nn.Module, e: Experiment, part: data.Data) -> dict[str, float]:
    """The soft-clamped objective beside the mean over all hard inputs of 4x4 pixels."""
    hard = torch.tensor(list(product((0.0, 1.0), repeat=16))).reshape(-1, 1, 4, 4)
    every = runner.log_probs(model, e, hard)  # (65536, K)
    q = part.inputs.flatten(1).double().clamp(1e-12, 1 - 1e-12)
    v = hard.flatten(1).double()
    weights = (q.log() @ v.T + (-q).log1p() @ (1 - v).T).exp()  # (N, 65536), sums to 1
    expected = -(weights @ every.double()).gather(1, part.targets[:, None])[:, 0]
    averaged = weights @ every.double().exp()
    log_probs = runner.log_probs(model, e, part.inputs).double()
    soft = -log_probs.gather(1, part.targets[:, None])[:, 0]
    return {
        "soft NLL": float(soft.mean()),
        "expected NLL": float(expected.mean()),
        "mean absolute gap": float((soft - expected).abs().mean()),
        "share where soft is lower": float((soft < expected).double().mean()),
        "accuracy, soft": float((log_probs.argmax(1) == part.targets).double().mean()),
        "accuracy, averaged": float((averaged.argmax(1) == part.targets).double().mean()),
    }


def soft_clamping_summary(rows: Sequence[Row]) -> str:
    done = [row for row in rows if row["trained"] == "yes"]
    below = [row["expected NLL"] - row["soft NLL"] for row in done]
    gain = fmean(row["accuracy, soft"] - row["accuracy, averaged"] for row in done)
    verdict = (
        "it is far from the expectation and an objective of its own"
        if min(map(abs, below)) > FAR
        else "it is close to the expectation"
        if max(map(abs, below)) < FAR
        else "it is close to the expectation for some starts only"
    )
    return (
        f"After training, the soft-clamped objective is {min(below):.2f} to {max(below):.2f} nats below the true "
        f"expectation: {verdict}. For these models, trained on soft inputs, classifying soft inputs is {gain:.3f} more "
        "accurate on average than averaging over hard ones."
    )
