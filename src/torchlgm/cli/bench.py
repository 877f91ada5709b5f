"""How fast models are on this machine, in a minute: what needs nothing but the package, and perhaps a GPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from statistics import median

import torch
from torch import nn

from torchlgm import __version__
from torchlgm.cli.classifier import Inference
from torchlgm.cli.config import Config, Kind
from torchlgm.cli.models import make_graph, make_network
from torchlgm.cli.train import choose_device
from torchlgm.data import Data
from torchlgm.learn import CapturedPredictor, Ensemble
from torchlgm.learn.cuda.captured_step import CapturedStep
from torchlgm.learn.distributed import Group
from torchlgm.learn.ensemble import log_probs_of
from torchlgm.learn.learner import Learner
from torchlgm.learn.steps import OptimizerStep, PlainStep, Step
from torchlgm.model import LGM
from torchlgm.posterior import Posterior

SIDE, CLASSES = 28, 10
PAPER_BATCH, LARGE_BATCH, SERVED_BATCH = 20, 256, 4096
MEMBERS = 10
STEPS = 10  # at once
NETWORK = "network"
NEEDS_GPU = "needs a GPU"


@dataclass(frozen=True)
class Row:
    """One line of the table. `ours` and `theirs` are in `unit`, or missing for want of what it `needs`."""

    work: str
    model: str
    rival: str
    ours: float | None = None
    theirs: float | None = None
    unit: str = "ms"
    needs: str | None = None

    @property
    def ratio(self) -> float | None:
        return self.ours / self.theirs if self.ours and self.theirs else None


@dataclass(frozen=True)
class _Bench:
    device: torch.device
    batch: int
    inference: Inference
    budget: float

    @property
    def cuda(self) -> bool:
        return self.device.type == "cuda"

    def data(self, count: int) -> Data:
        inputs = torch.rand(count, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
        return Data(inputs, torch.arange(len(inputs)) % CLASSES, tuple("0123456789"))

    def lgm(self, kind: str, seed: int = 0) -> nn.Module:
        graph = make_graph(Config(model=kind).for_images(), (1, SIDE, SIDE), CLASSES)
        model = LGM(graph, generator=torch.Generator().manual_seed(seed))
        return Posterior(model.to(self.device), self.inference.method).for_complete_inputs()

    def network(self, kind: str) -> nn.Module:
        model = make_network(Config(model=kind).for_images(), (1, SIDE, SIDE), CLASSES, seed=0)
        return model.to(self.device)

    def ensemble(self, kind: str) -> nn.Module:
        members = [self.lgm(kind, seed) for seed in range(MEMBERS)]
        return Ensemble(members, own_batches=False)

    def predicting(self, subject: nn.Module) -> float:
        """Milliseconds of a prediction launched from Python."""
        x = self.data(self.batch).inputs.to(self.device)

        def predict() -> None:
            with torch.no_grad():
                log_probs_of(subject, x)

        return self._median(predict)

    def training(self, subject: nn.Module, batch: int, captured: bool = False) -> float:
        """Milliseconds of a training step, captured or launched from Python."""
        step = self._step(subject, batch, captured)
        counts = [batch] * (STEPS if self.cuda else 1)
        return self._median(lambda: step(0, counts)) / len(counts)

    def serving(self, subject: nn.Module, batch: int) -> float:
        """Milliseconds from inputs on the host to answers on the host."""
        serve, x = CapturedPredictor(subject, batch), self.data(batch).inputs
        return self._median(lambda: serve(x).cpu())

    def peak(self, subject: nn.Module, batch: int) -> float:
        """GB at most that a captured step takes beyond the model."""
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        self._step(subject, batch, captured=True)(0, [batch])
        torch.cuda.synchronize()
        return (torch.cuda.max_memory_allocated() - before) / 1e9

    def filled(
        self,
        row: Row,
        measure: Callable[[nn.Module], float],
        ours: Callable[[str], nn.Module],
        theirs: Callable[[str], nn.Module],
    ) -> Row:
        """`row` with figures of both sides, or, without a GPU, with what it needs."""
        if not self.cuda:
            return replace(row, needs=NEEDS_GPU)
        return replace(row, ours=measure(ours(row.model)), theirs=measure(theirs(row.model)))

    def _step(self, subject: nn.Module, batch: int, captured: bool) -> Step:
        data = self.data(STEPS * batch)
        rate = torch.tensor(1e-3, device=self.device) if self.cuda else 1e-3
        optimizer = torch.optim.Adam(subject.parameters(), lr=rate, fused=True, capturable=self.cuda)
        update = OptimizerStep(Learner(subject), optimizer, Group(self.device))
        plain = PlainStep(update, data.inputs.to(self.device), data.targets.to(self.device))
        step = CapturedStep(plain, batch) if captured else plain
        step.begin(torch.arange(len(data.inputs)))
        return step

    def _median(self, work: Callable[[], object]) -> float:
        """Milliseconds, the median of as many calls as fit into the budget, at least three, after one to warm up."""
        times: list[float] = []
        began = time.perf_counter()
        while len(times) < 4 or time.perf_counter() - began < self.budget:
            start = time.perf_counter()
            work()
            if self.cuda:
                torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
        return 1000 * median(times[1:])


def bench(
    device: str = "auto",
    batch_size: int = PAPER_BATCH,
    method: str = "trw",
    schedule: str = "sequential",
    budget: float = 1.0,
) -> tuple[dict[str, str], list[Row]]:
    """The machine and the table, for images of 28x28 pixels, all of them visible. `budget` are seconds for a figure."""
    graphs = [make_graph(Config(model=kind).for_images(), (1, SIDE, SIDE), CLASSES) for kind in Kind]
    layers = max(len(graph.connections) for graph in graphs)
    iterations = Config(method=method, schedule=schedule).iterations_for(layers)
    bench = _Bench(choose_device(device), batch_size, Inference(method, schedule, iterations), budget)
    return _machine(bench), [*_launched(bench), *_captured(bench)]


def _machine(bench: _Bench) -> dict[str, str]:
    name = torch.cuda.get_device_name(bench.device) if bench.cuda else f"{torch.get_num_threads()} threads of the CPU"
    versions = {"torchlgm": __version__, "torch": torch.__version__}
    return {"on": name, **versions, "method": str(bench.inference)}


def _launched(bench: _Bench) -> Iterator[Row]:
    """What is launched from Python."""
    for kind in Kind:
        ours, theirs = (bench.predicting(subject) for subject in (bench.lgm(kind), bench.network(kind)))
        yield Row(f"predict, batch {bench.batch}", kind, NETWORK, ours, theirs)
    for kind in Kind:
        ours, theirs = (bench.training(subject, bench.batch) for subject in (bench.lgm(kind), bench.network(kind)))
        yield Row(f"train, batch {bench.batch}", kind, NETWORK, ours, theirs)


def _captured(bench: _Bench) -> Iterator[Row]:
    """What is captured as a CUDA graph."""
    for kind in Kind:
        row = Row(f"train, captured, batch {bench.batch}", kind, NETWORK)
        yield bench.filled(row, lambda s: bench.training(s, bench.batch, captured=True), bench.lgm, bench.network)
    for kind in (Kind.DENSE, Kind.LOCAL):
        row = Row(f"{MEMBERS} models in one, batch {bench.batch}", kind, "one model")
        yield bench.filled(row, lambda s: bench.training(s, bench.batch, captured=True), bench.ensemble, bench.lgm)
    row = Row(f"peak memory, batch {LARGE_BATCH}", Kind.LOCAL, NETWORK, unit="GB")
    yield bench.filled(row, lambda s: bench.peak(s, LARGE_BATCH), bench.lgm, bench.network)
    for batch in (1, SERVED_BATCH):
        for kind in Kind:
            row = Row(f"predict, captured, batch {batch}", kind, NETWORK)
            yield bench.filled(row, lambda s, batch=batch: bench.serving(s, batch), bench.lgm, bench.network)
