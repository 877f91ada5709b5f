"""Named tiny problems with exact answers. Every law of inference is tested on these.

`spell_out` writes a conditioned model down as Python numbers, node by node and edge by edge, and `enumerate_all` adds
up every labelling of that. Both know the edges that connections list and the parameters only, and share no code with
layouts and inference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from torchlgm import LGM, MRF, Conv, Dense, Graph, Init, Layer, Local, Sparse
from torchlgm.spec import Connection
from torchlgm.testing import oracle

Node = tuple[str, int]
Table = list[list[float]]

KINDS = ("none", "hard", "soft", "missing")


class Problem(NamedTuple):
    name: str
    graph: Graph
    observe: str = ""  # the layer that evidence is about; the first one if empty

    @property
    def observed(self) -> str:
        return self.observe or self.graph.layers[0].name


def _graph(layers: str, *connections: Connection, root: str = "") -> Graph:
    """Layers as in "a:2 b:3/4 c:1x2x2": name, shape, and labels after the slash."""
    parsed = []
    for text in layers.split():
        name, _, rest = text.partition(":")
        shape, _, labels = rest.partition("/")
        parsed.append(Layer(name, tuple(map(int, shape.split("x"))), int(labels or 2)))
    return Graph(tuple(parsed), connections, root)


# No name order is the declared order, so that nothing can lean on it.
PROBLEMS = (
    Problem("path", _graph("z:1 w:1/3 y:1/4 x:1", Dense("z", "w"), Dense("w", "y"), Dense("y", "x"))),
    Problem(
        "tree",
        _graph(
            "leaf:4 bough:2/3 a_root:1",
            Sparse("leaf", "bough", ((0, 0), (1, 1), (2, 0), (3, 1))),
            Dense("bough", "a_root"),
        ),
    ),
    Problem("local-tree", _graph("v:1x4/3 h:1x2 c:1x1", Local("v", "h", 2, 2), Local("h", "c", 2))),
    Problem("conv-tree", _graph("v:1x4 h:1x2/3 c:1x1/3", Conv("v", "h", 2, 2), Conv("h", "c", 2))),
    Problem(
        "fan",
        _graph(
            "top:1/3 mid:2 bottom:4", Dense("top", "mid"), Sparse("mid", "bottom", ((0, 0), (0, 3), (1, 1), (1, 2)))
        ),
    ),
    Problem("star", _graph("inputs:3 hidden:3 classes:1/3", Dense("inputs", "hidden"), Dense("hidden", "classes"))),
    Problem("rbm", _graph("visible:3 hidden:2/3", Dense("visible", "hidden"))),
    Problem("chain", _graph("v:2/3 g:2 h:2/3 c:1", Dense("v", "g"), Dense("g", "h"), Dense("h", "c"))),
    Problem("skip", _graph("v:2 h:2 c:1/3", Dense("v", "h"), Dense("h", "c"), Dense("v", "c"))),
    Problem(
        "loop",
        _graph("d:2 c:1/3 b:2 a:1", Dense("d", "c"), Dense("b", "c"), Dense("b", "a"), Dense("a", "d"), root="c"),
    ),
    Problem(
        "clique",
        _graph(
            "v:2 g:1/3 h:2 c:1",
            *[Dense(a, b) for a, b in (("v", "g"), ("v", "h"), ("c", "v"), ("g", "h"), ("c", "g"), ("h", "c"))],
        ),
        observe="h",
    ),
    Problem("twin", _graph("v:2 h:2/3", Dense("v", "h"), Sparse("v", "h", ((0, 1), (1, 1)), name="again"))),
    Problem("conv", _graph("v:1x3 h:2x2 c:1/3", Conv("v", "h", 2, 2, ((1, 0),)), Dense("h", "c"))),
    Problem("tagger", _graph("words:1x3 tags:1x3/3", Conv("words", "tags", 1), Conv("tags", "tags", 3))),
    Problem("ring", _graph("r:4/3", Sparse("r", "r", ((1, 0), (1, 2), (3, 2), (0, 3))))),
    Problem("semi", _graph("v:3 h:2/3", Dense("v", "v"), Dense("v", "h"))),
    Problem(
        "grid",
        _graph(
            "x:1x2x2 c:1/3", Local("x", "x", (1, 3), name="across"), Conv("x", "x", 3, name="around"), Dense("x", "c")
        ),
    ),
    Problem("local", _graph("v:1x2x2 h:1x2x2 c:1", Local("v", "h", 2, 1, ((1, 0), (0, 1))), Dense("h", "c"))),
)
BY_NAME = {problem.name: problem for problem in PROBLEMS}


def model_of(problem: Problem, seed: int = 0, scale: float = 1.0) -> LGM:
    """A model with normal energies of standard deviation `scale`."""
    generator = torch.Generator().manual_seed(1000 + seed)
    return LGM(problem.graph, Init(table=scale, unary=scale), generator=generator)


def evidence_for(problem: Problem, kind: str, batch: int = 3) -> dict[str, Tensor]:
    """Evidence of a kind about the observed layer; "missing" mixes seen and unseen entries, differently per sample,
    and "double" does so about a neighbour of that layer as well."""
    graph, observed = problem.graph, problem.observed
    if kind == "double":
        near = next({c.left, c.right} - {observed} for c in graph.connections if observed in (c.left, c.right))
        return {name: _evidence(graph.layer(name), "missing", batch) for name in (observed, *near)}
    return {} if kind == "none" else {observed: _evidence(graph.layer(observed), kind, batch)}


def _evidence(layer: Layer, kind: str, batch: int) -> Tensor:
    generator = torch.Generator().manual_seed(7)
    shape = (batch, *layer.sizes)
    labels = torch.randint(layer.labels, shape, generator=generator)
    weights = torch.rand(*shape, layer.labels, generator=generator, dtype=torch.float64)
    vectors = weights / weights.sum(-1, keepdim=True)
    soft = vectors[..., 1] if layer.labels == 2 else vectors
    if kind == "missing":
        hidden = torch.arange(labels.numel()).reshape(shape) % 2 == 0
        hidden[0], hidden[-1] = False, True
        soft[hidden] = torch.nan
    return labels if kind == "hard" else soft


class Edge(NamedTuple):
    """An edge, where its layout has it, and the energies of both ends' labels."""

    connection: str
    at: tuple[int, ...]
    left: Node
    right: Node
    table: Table
    rho: float


class Spelled(NamedTuple):
    """One sample. `seen` are the label probabilities of the observed nodes."""

    layers: tuple[str, ...]
    unary: dict[Node, list[float]]
    edges: list[Edge]
    seen: dict[Node, list[float]]

    @property
    def free(self) -> list[Node]:
        return [node for node in self.unary if node not in self.seen]

    def is_forest(self) -> bool:
        """Whether the edges between free nodes close no loop."""
        tree = {node: node for node in self.free}

        def top(node: Node) -> Node:
            return node if tree[node] == node else top(tree[node])

        for edge in self.edges:
            if edge.left in tree and edge.right in tree:
                a, b = top(edge.left), top(edge.right)
                if a == b:
                    return False
                tree[a] = b
        return True


def _with_zero(table: Tensor) -> Table:
    """A compact table `(kl, kr)` with the row and the column of label 0."""
    return [[0.0] * (table.shape[1] + 1), *([0.0, *row] for row in table.tolist())]


def spell_out(model: LGM, evidence: Mapping[str, Tensor], sample: int = 0) -> Spelled:
    graph = model.graph
    unary = {(name, i): [0.0, *e] for name, rows in model.unary.items() for i, e in enumerate(rows.tolist())}
    order = {layer.name: at for at, layer in enumerate(graph.layers)}
    unary = dict(sorted(unary.items(), key=lambda item: (order[item[0][0]], item[0][1])))
    edges = []
    for c in graph.connections:
        shape = model.layouts[c.name].edge_shape
        rho = model.rho(c.name).expand(shape)
        for edge in oracle.edges(graph, c):
            ends, table = ((c.left, edge.left), (c.right, edge.right)), _with_zero(model.table[c.name][edge.table])
            edges.append(Edge(c.name, edge.at, *ends, table, float(rho[edge.at])))
    seen: dict[Node, list[float]] = {}
    for name, values in evidence.items():
        for i, value in enumerate(_rows(graph.layer(name), values[sample])):
            if not math.isnan(value[0]):
                seen[(name, i)] = value
    return Spelled(graph.layer_names, unary, edges, seen)


def _rows(layer: Layer, values: Tensor) -> list[list[float]]:
    """Evidence about a layer `(*shape)` or `(*shape, K)` as label probabilities of each node."""
    if not values.is_floating_point():
        return [[float(x == label) for x in range(layer.labels)] for label in values.flatten().tolist()]
    if values.dim() > len(layer.sizes):
        return values.flatten(0, -2).tolist()
    return [[1 - q, q] for q in values.flatten().tolist()]


class Truth(NamedTuple):
    """The exact answer about one sample. `best` labels the free nodes."""

    log_z: float
    nodes: dict[Node, list[float]]
    edges: list[Table]
    best: dict[Node, int]
    energy: float


def energy_of(spelled: Spelled, labels: Mapping[Node, int]) -> float:
    """Of a labelling of the free nodes; expected over the observed ones."""

    def spread(node: Node) -> list[tuple[int, float]]:
        return list(enumerate(spelled.seen[node])) if node in spelled.seen else [(labels[node], 1.0)]

    total = sum(p * e[x] for node, e in spelled.unary.items() for x, p in spread(node))
    for edge in spelled.edges:
        total += sum(p * q * edge.table[x][y] for x, p in spread(edge.left) for y, q in spread(edge.right))
    return total


def enumerate_all(spelled: Spelled) -> Truth:
    """By adding up every labelling."""
    free = spelled.free
    nodes = {node: list(spelled.seen.get(node, [0.0] * len(e))) for node, e in spelled.unary.items()}
    edges = [[[0.0] * len(edge.table[0]) for _ in edge.table] for edge in spelled.edges]
    every = []
    for choice in product(*[range(len(spelled.unary[node])) for node in free]):
        labels = dict(zip(free, choice, strict=True))
        every.append((energy_of(spelled, labels), labels))
    least = min(every, key=lambda item: item[0])
    z = sum(math.exp(least[0] - e) for e, _ in every)
    for e, labels in every:
        p = math.exp(least[0] - e) / z
        for node, x in labels.items():
            nodes[node][x] += p
        for table, edge in zip(edges, spelled.edges, strict=True):
            if edge.left in labels and edge.right in labels:
                table[labels[edge.left]][labels[edge.right]] += p
    for table, edge in zip(edges, spelled.edges, strict=True):
        if edge.left in spelled.seen or edge.right in spelled.seen:
            table[:] = [[p * q for q in nodes[edge.right]] for p in nodes[edge.left]]
    return Truth(math.log(z) - least[0], nodes, edges, least[1], least[0])


class Case(NamedTuple):
    """A problem with evidence of one kind, the model of seed 0."""

    problem: Problem
    kind: str

    def __str__(self) -> str:
        return f"{self.problem.name}-{self.kind}"

    @property
    def model(self) -> LGM:
        return model_of(self.problem)

    @property
    def evidence(self) -> dict[str, Tensor]:
        return evidence_for(self.problem, self.kind)

    @property
    def spelled(self) -> list[Spelled]:
        return _spelled(self)

    @property
    def truth(self) -> list[Truth]:
        return _truth(self)


@cache
def _spelled(case: Case) -> list[Spelled]:
    samples = range(next((len(v) for v in case.evidence.values()), 1))
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    result = [spell_out(case.model, case.evidence, b) for b in samples]
    torch.set_default_dtype(before)
    return result


@cache
def _truth(case: Case) -> list[Truth]:
    return [enumerate_all(spelled) for spelled in case.spelled]


CASES = [Case(problem, kind) for problem in PROBLEMS for kind in KINDS]
TREES = [case for case in CASES if all(s.is_forest() for s in case.spelled)]
LOOPY = [case for case in CASES if case not in TREES]
DOUBLE = [Case(BY_NAME[name], "double") for name in ("chain", "skip", "clique", "conv", "tree")]


def probs_of(truths: list[Truth], layer: str) -> Tensor:
    """`(B, nodes, K)`."""
    return torch.tensor([[p for node, p in truth.nodes.items() if node[0] == layer] for truth in truths])


class Conditioned(nn.Module):
    """`condition` as the forward pass, so that `functional_call` can exchange the parameters."""

    def __init__(self, model: LGM) -> None:
        super().__init__()
        self.model = model

    def forward(self, evidence: Mapping[str, Tensor]) -> MRF:
        return self.model.condition(evidence)


def as_function(model: LGM, evidence: Mapping[str, Tensor]) -> tuple[Callable[..., MRF], list[Tensor]]:
    """The MRF as a function of all parameters, and the parameters: what `gradcheck` takes."""
    wrapped = Conditioned(model)
    parameters = dict(wrapped.named_parameters())

    def mrf(*values: Tensor) -> MRF:
        return torch.func.functional_call(wrapped, dict(zip(parameters, values, strict=True)), (evidence,))

    return mrf, [p.detach().clone().requires_grad_() for p in parameters.values()]


def by_case(cases: list[Case]) -> dict[str, Any]:
    """Arguments of `parametrize`."""
    return {"argnames": "case", "argvalues": cases, "ids": list(map(str, cases))}
