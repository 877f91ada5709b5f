"""The closed form for one hidden layer gives the answers of a sweep of belief propagation."""

import pytest
import torch

import torchlgm as lgm
from torchlgm.inference.star import Star, star_layers
from torchlgm.model import encode

INPUTS = (lgm.Layer("a", 3), lgm.Layer("b", 2, 4))
HIDDEN, CLASS = lgm.Layer("h", 7), lgm.Layer("y", 1, 3)
EDGES = (lgm.Dense("a", "h"), lgm.Dense("b", "h"), lgm.Dense("h", "y"))
GRAPH = lgm.Graph((*INPUTS, HIDDEN, CLASS), EDGES)


def evidence(seed, share=0.4):
    generator = torch.Generator().manual_seed(seed)

    def holes(x, rows):
        return x.masked_fill(rows, torch.nan)

    def gone(*shape):
        return torch.rand(shape, generator=generator) < share

    binary = torch.rand(5, 3, generator=generator)
    labels = torch.softmax(torch.randn(5, 2, 4, generator=generator), -1)
    return {"a": holes(binary, gone(5, 3)), "b": holes(labels, gone(5, 2)[..., None])}


@pytest.mark.parametrize("given", [("a", "b"), ("a",), ()])
def test_it_is_one_sweep_of_belief_propagation(given):
    models = [lgm.LGM(GRAPH, "paper", generator=torch.Generator().manual_seed(i)) for i in range(3)]
    star = Star.of(models, star_layers(GRAPH, lgm.lbp(1), "y"))
    seen = {name: value for name, value in evidence(0).items() if name in given}
    found = star.log_probs(encode(GRAPH, seen, torch.float64, torch.device("cpu")))
    expected = torch.stack([lgm.infer(m, seen, lgm.lbp(1))["y"].log_probs[:, 0] for m in models])
    torch.testing.assert_close(found.expand_as(expected), expected, rtol=0, atol=1e-12)


def test_complete_rows_are_exact():
    model = lgm.LGM(GRAPH, "paper", generator=torch.Generator().manual_seed(0))
    star, seen = Star.of([model], star_layers(GRAPH, lgm.lbp(1), "y")), evidence(0, share=0)
    found = star.log_probs(encode(GRAPH, seen, torch.float64, torch.device("cpu")))[0]
    torch.testing.assert_close(found, lgm.infer(model, seen, lgm.exact())["y"].log_probs[:, 0])


@pytest.mark.parametrize(
    ("graph", "method"),
    [
        (GRAPH, lgm.lbp(2)),
        (GRAPH, lgm.trw(1)),
        (GRAPH, lgm.exact()),
        (GRAPH, lgm.lbp(1, "parallel")),
        (lgm.Graph((*INPUTS, HIDDEN, CLASS), (*EDGES, lgm.Dense("a", "y"))), lgm.lbp(1)),
        (lgm.Graph((*INPUTS, lgm.Layer("h", 7, 3), CLASS), EDGES), lgm.lbp(1)),
        (lgm.Graph((HIDDEN, *INPUTS, CLASS), EDGES, root="y"), lgm.lbp(1)),
    ],
)
def test_other_graphs_and_methods_have_none(graph, method):
    assert star_layers(graph, method, "y") is None
