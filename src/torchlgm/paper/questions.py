"""What the paper leaves open, answered by small experiments: for each one JSON file, and a table of the report."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchlgm import LGM, Init, Method, data, exact, lbp, learn, mean_field, metrics, trw, zoo
from torchlgm.paper.cells import Experiment, all_cells, make_model, make_objective, valid_batch
from torchlgm.paper.clock import Clock, Watch
from torchlgm.paper.run import Options, fit_experiment, machine
from torchlgm.paper.sources import Sources, first
from torchlgm.whole import write_whole

Row = dict[str, Any]
SEED = 0


@dataclass(frozen=True)
class Question:
    """`ask` gives the rows of the answer; `heavy` ones train models of full size and want a GPU."""

    name: str
    title: str
    how: str
    ask: Callable[[Options], Iterator[Row]]
    heavy: bool = False


def answer(out: Path, options: Options, tell: Callable[[str], None], pattern: str = "*") -> None:
    """Ask all questions that are not answered yet and have `pattern` in their names."""
    for question in QUESTIONS:
        path = answer_file(out, question)
        if path.exists() or not fnmatch(question.name, f"*{pattern}*"):
            continue
        if question.heavy and options.where.type == "cpu" and pattern == "*" and not options.quick:
            tell(f"{question.name}: takes long without a GPU; ask for it with --cells {question.name}")
            continue
        tell(f"{question.name}: {question.title}")
        rows = []
        for row in question.ask(options):
            rows.append({key: _rounded(value) for key, value in row.items()})
            tell("  " + ", ".join(f"{key} {value}" for key, value in rows[-1].items()))
        content = {"question": question.title, "rows": rows, "machine": machine(options.where)}
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, (json.dumps(content, indent=1) + "\n").encode())


def answer_file(out: Path, question: Question) -> Path:
    return out / "questions" / f"{question.name}.json"


def section(out: Path) -> str:
    """The answers that are there, for the page of results."""
    parts = []
    for question in QUESTIONS:
        path = answer_file(out, question)
        if path.exists():
            rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
            keys = list(dict.fromkeys(key for row in rows for key in row))
            lines = ["| " + " | ".join(keys) + " |", "|---" * len(keys) + "|"]
            lines += ["| " + " | ".join(str(row.get(key, "")) for key in keys) + " |" for row in rows]
            parts.append("\n".join([f"### {question.title}", "", question.how, "", *lines]))
    return "\n\n".join(["## Questions", *parts]) if parts else ""


def _rounded(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value


# The analytic gradient


def gradients(options: Options) -> Iterator[Row]:
    """How the gradients of each method, analytic and by backpropagation, lie to that of the exact likelihood."""
    images = data.load("mnist", options.data).train
    x, y = data.threshold(images.inputs[:20]), images.targets[:20]
    star = LGM(zoo.dense((1, 28, 28)), "paper", generator=torch.Generator().manual_seed(SEED)).double()
    graph = "784-100-10, input observed"
    for t in (1, 2, 3, 5, 20):
        yield from _beside_exact(graph, star, x.double(), y, f"LBP, sequential, T={t}", lbp(t, "sequential"))
    yield from _beside_exact(graph, star, x.double(), y, "LBP, sweep, T=1", lbp(1, "sweep"))
    draw = torch.Generator().manual_seed(SEED)
    small, labels = torch.rand(20, 8, generator=draw).double(), torch.arange(20) % 4
    for size in (0.3, 1.0):
        deep = LGM(zoo.dense(8, (6, 6), 4), Init(size, size), generator=draw).double()
        for name, method in (("LBP", lbp(50)), ("TRW", trw(50)), ("MF", mean_field(50))):
            yield from _beside_exact(f"8-6-6-4, energies N(0, {size}²)", deep, small, labels, f"{name}, T=50", method)


def _beside_exact(graph: str, model: LGM, x: Tensor, y: Tensor, name: str, method: Method) -> Iterator[Row]:
    def gradient(objective: learn.Objective) -> Tensor:
        loss = objective.loss(model, x, y)
        found = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
        return torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for g, p in zip(found, ps, strict=True)])

    ps = list(model.parameters())
    inputs = learn.Inputs(missing=False)
    truth = gradient(learn.Likelihood(exact(), inputs))
    row: Row = {"graph": graph, "method": name}
    for kind, objective in (
        ("backpropagation", learn.Likelihood(method, inputs)),
        ("analytic", learn.Moments(method, inputs)),
    ):
        g = gradient(objective)
        row[kind] = f"{float(torch.cosine_similarity(g, truth, 0)):.4f} ({float(g.norm() / truth.norm()):.3f})"
    yield row


def training(options: Options) -> Iterator[Row]:
    """Table 3 with either gradient, from the same start, on a part of binary MNIST."""
    sources = Sources(options.data, options.where)
    count, epochs = (200, 1) if options.quick else (12_000, 3)
    cell = next(all_cells(ways=["paper"], pattern="cjinf/LGM/Dense(5)"))
    for t, gradient in product((2, 3, 5), ("backprop", "analytic")):
        e = replace(cell.experiment, gradient=gradient, iterations=t, epochs=epochs)
        train, valid, test = (first(part, count) for part in sources.load(e))
        model, parts = make_model(e, SEED, train), (train, first(valid, 2000), test)
        fit_experiment(e, SEED, model, make_objective(e), parts, None, Watch(Clock(None)))
        yield {"T": t, "gradient": gradient, "test accuracy": _accuracy(model, e, test)}


def _accuracy(model: nn.Module, e: Experiment, part: data.Data) -> float:
    probs = learn.predict_log_probs(model, make_objective(e), part.inputs, valid_batch(e))[:, 0].exp()
    return metrics.accuracy(probs, part.targets)


# Soft clamping


def soft_clamping(options: Options) -> Iterator[Row]:
    """Digits pooled to 4x4 pixels: all 65,536 hard inputs are enumerated, so the expectation is exact."""
    digits = data.load("digits", options.data)
    parts = [replace(p, inputs=nn.functional.avg_pool2d(p.inputs, 2)) for p in (digits.train, digits.test)]
    train, valid = data.random_split(parts[0], 0.85, seed=SEED)
    hard = torch.tensor(list(product((0.0, 1.0), repeat=16))).reshape(-1, 1, 4, 4)
    for name, init, rate in (("default", "default", 0.01), ("N(0, 1)", "paper", 0.001), ("weak", Init(0.1), 0.01)):
        model = LGM(zoo.dense((1, 4, 4), (50,)), init, generator=torch.Generator().manual_seed(SEED))
        objective = learn.Likelihood(lbp(1, "sweep"), learn.Inputs(missing=False))
        every = learn.predict_log_probs(model, objective, hard, 8192)[:, 0]
        yield {"start": name, "trained": "no", **_soft_and_expected(model, objective, parts[1], hard, every)}
        settings = learn.Settings(epochs=2 if options.quick else 60, learning_rate=rate, visible=None)
        learn.fit(model, objective, train, valid, settings, reporters=[])
        every = learn.predict_log_probs(model, objective, hard, 8192)[:, 0]
        yield {"start": name, "trained": "yes", **_soft_and_expected(model, objective, parts[1], hard, every)}


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
        "mean gap": float((soft - expected).abs().mean()),
        "soft is lower in": float((soft < expected).double().mean()),
        "accuracy, soft": float((log_probs.argmax(1) == part.targets).double().mean()),
        "accuracy, averaged": float((averaged.argmax(1) == part.targets).double().mean()),
    }


# What full-size models do


def _trained(e: Experiment, sources: Sources, options: Options) -> tuple[nn.Module, learn.Objective]:
    cap = 1 if options.quick else options.epochs or e.epochs
    e = replace(e, epochs=min(cap, e.epochs))
    parts = sources.take(e, options.quick)
    model, objective = make_model(e, SEED, parts[0]), make_objective(e)
    fit_experiment(e, SEED, model, objective, parts, None, Watch(Clock(None)))
    return model, objective


def _local(**changes: Any) -> Experiment:
    cell = next(all_cells(ways=["ours"], pattern="mpcompare/SeqLBP/Local"))
    return replace(cell.experiment, **changes)


def iterations(options: Options) -> Iterator[Row]:
    sources = Sources(options.data, options.where)
    for schedule, trained in (("sequential", 5), ("parallel", 5), ("sweep", 1), ("sweep", 3)):
        e = _local(schedule=schedule, iterations=trained)
        model, _ = _trained(e, sources, options)
        test = sources.take(e, options.quick)[2]
        tested = {f"T={t}": _accuracy(model, replace(e, iterations=t), test) for t in (1, 2, 3, 4, 5, 6, 8, 12, 20)}
        yield {"schedule": schedule, "trained with T": trained, **tested}


def choices(options: Options) -> Iterator[Row]:
    sources = Sources(options.data, options.where)
    wanted: list[tuple[str, dict[str, Any]]] = [("as it is", {})]
    wanted += [(f"damping {d}", {"damping": d}) for d in (0.25, 0.5)]
    wanted += [("start weak", {"start": "weak"}), ("start N(0, 1)", {"start": "paper", "learning_rate": 1e-3})]
    wanted += [(f"learning rate {r}", {"learning_rate": r}) for r in (0.003, 0.03)]
    for (schedule, t), (name, changes) in product((("sequential", 5), ("sweep", 1)), wanted):
        e = _local(schedule=schedule, iterations=t, **changes)
        model, _ = _trained(e, sources, options)
        test = sources.take(e, options.quick)[2]
        yield {"schedule": f"{schedule}, T={t}", "change": name, "accuracy": _accuracy(model, e, test)}


def calibration(options: Options) -> Iterator[Row]:
    sources = Sources(options.data, options.where)
    shares = [0.1 * k for k in range(1, 11)]
    for name, table in (("MNIST", "exp_partial_input_m"), ("FashionMNIST", "exp_partial_input_fm")):
        for column in ("LGM", "NN(relu)", "NN(relu)+mask"):
            cell = next(all_cells(ways=["ours"], pattern=f"{table}/Local (0.3)/{column}"))
            e = replace(cell.experiment, visible=(0.1, 1.0), smoothing=0.0)
            model, objective = _trained(e, sources, options)
            test = sources.take(e, options.quick)[2].to("cpu")

            def predict(x: Tensor, m: nn.Module = model, o: learn.Objective = objective) -> Tensor:
                return learn.predict_log_probs(m, o, x, 1000)[:, 0].exp().cpu()

            for row in metrics.by_visible_share(predict, test, shares, torch.Generator().manual_seed(SEED)):
                yield {"data": name, "model": column, **row}


QUESTIONS = (
    Question(
        "gradient",
        "Where is the analytic gradient right?",
        "Cosine of the angle to the gradient of the exact likelihood, and in brackets the ratio of the norms; 20 "
        "samples, one model. With one hidden layer and the input observed the graph is a tree.",
        gradients,
    ),
    Question(
        "training",
        "What does training with the analytic gradient give?",
        "The Dense cells of table 3 as the paper trains them, but for 3 epochs on 12,000 images, one seed.",
        training,
    ),
    Question(
        "soft-clamping",
        "How far is the soft-clamped objective from the true expectation?",
        "Digits of 4x4 pixels, 50 hidden nodes, LBP (exact here), test data, one seed. The expectation is over all "
        "65,536 hard inputs.",
        soft_clamping,
    ),
    Question(
        "iterations",
        "Is it best to test with the iterations of the training?",
        "Local LBP on MNIST in our way, one seed; accuracy on the test data with other T than in training.",
        iterations,
        heavy=True,
    ),
    Question(
        "choices",
        "What do damping, start and learning rate do?",
        "Local LBP on MNIST in our way, one seed, test accuracy.",
        choices,
        heavy=True,
    ),
    Question(
        "calibration",
        "How well calibrated are LGMs and networks as pixels disappear?",
        "Local models, trained with 10 to 100 % of the pixels visible, no label smoothing, one seed; test data.",
        calibration,
        heavy=True,
    ),
)
