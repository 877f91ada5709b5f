"""The vectorised energy, the scalar that every other test trusts, against loops over edges."""

import pytest
import torch

from torchlgm import LGM, Observed, energy, sample, testing
from torchlgm.spec import Conv, Dense, Graph, Layer, Local, Sparse

IMAGE, MAPS = Layer("image", (2, 4, 5)), Layer("maps", (3, 2, 4), 3)
SCATTERED = ((0, 3), (5, 0), (1, 2), (2, 1), (3, 0), (4, 3))
GRAPHS = {
    "dense": Graph((Layer("x", (2, 3)), Layer("h", 4, 3), Layer("y", 1, 4)), (Dense("x", "h"), Dense("h", "y"))),
    "sparse": Graph((Layer("x", 6, 4), Layer("h", (2, 2), 3)), (Sparse("x", "h", SCATTERED),)),
    "conv": Graph((IMAGE, MAPS), (Conv("image", "maps", (3, 2), (2, 1), ((1, 0), (0, 0))),)),
    "local": Graph((IMAGE, MAPS), (Local("image", "maps", (3, 2), (2, 1), ((1, 0), (0, 0))),)),
    "1d, dilated": Graph((Layer("x", (1, 7), 3), Layer("h", (2, 5))), (Conv("x", "h", 3, 1, 1, 2),)),
    "3d": Graph((Layer("x", (1, 3, 4, 2)), Layer("h", (2, 2, 2, 2))), (Local("x", "h", (2, 3, 1)),)),
    "skip": Graph(
        (Layer("x", 3), Layer("h", 2, 3), Layer("g", 4), Layer("y", 1, 3)),
        (Dense("x", "h"), Dense("h", "g"), Dense("g", "y"), Dense("y", "x"), Dense("x", "g", name="skip")),
    ),
    "parallel": Graph((Layer("x", 3), Layer("h", 2)), (Dense("x", "h"), Dense("h", "x"), Dense("x", "h", name="more"))),
    "alone": Graph((Layer("x", (2, 3), 3),), ()),
}
BATCH = 4


def random_labels(graph):
    return {layer.name: torch.randint(layer.labels, (BATCH, layer.nodes)) for layer in graph.layers}


def oracle(model, labels):
    rows = [{name: x[i].tolist() for name, x in labels.items()} for i in range(BATCH)]
    return torch.tensor([testing.energy(model.graph, model.unary, model.table, row) for row in rows])


def shaped(graph, labels):
    return {name: x.unflatten(1, graph.layer(name).sizes) for name, x in labels.items()}


@pytest.fixture(params=GRAPHS.values(), ids=GRAPHS)
def model(request):
    return LGM(request.param, init="paper").requires_grad_(False)


def test_energy_is_the_sum_over_nodes_and_edges(model):
    labels = random_labels(model.graph)
    torch.testing.assert_close(energy(model.condition(), labels), oracle(model, labels))


def test_labels_may_have_the_shape_of_their_layer(model):
    labels = random_labels(model.graph)
    torch.testing.assert_close(energy(model.condition(), shaped(model.graph, labels)), oracle(model, labels))


def test_an_observed_layer_keeps_its_share_of_the_energy(model):
    labels = random_labels(model.graph)
    for name in model.graph.layer_names:
        mrf = model.condition({name: shaped(model.graph, labels)[name]})
        assert name not in mrf.unary
        torch.testing.assert_close(energy(mrf, labels), oracle(model, labels))


def test_the_constant_is_the_energy_where_everything_is_observed(model):
    labels = random_labels(model.graph)
    mrf = model.condition(shaped(model.graph, labels))
    assert not mrf.unary
    assert not mrf.links
    torch.testing.assert_close(mrf.constant, oracle(model, labels))
    torch.testing.assert_close(energy(mrf, {}), mrf.constant)


def test_observed_nodes_keep_their_share_of_the_energy(model):
    """Other nodes in each sample; inside the MRF an observed node is held at label 0."""
    labels = random_labels(model.graph)
    seen = {name: torch.rand(x.shape) < 0.5 for name, x in labels.items()}
    masks = shaped(model.graph, seen)
    mrf = model.condition({n: Observed(x, masks[n]) for n, x in shaped(model.graph, labels).items()})
    free = {name: x.masked_fill(seen[name], 0) for name, x in labels.items()}
    torch.testing.assert_close(energy(mrf, free), oracle(model, labels))


def test_an_observed_node_cannot_take_another_label(model):
    labels = random_labels(model.graph)
    name = model.graph.layer_names[0]
    seen = torch.zeros(labels[name].shape, dtype=torch.bool)
    seen[:, 0] = True
    mrf = model.condition({name: Observed(*(shaped(model.graph, {name: x})[name] for x in (labels[name], seen)))})
    moved = {**labels, name: labels[name].index_fill(1, torch.tensor([0]), 1)}
    assert (energy(mrf, moved) > 1e20).all()


def test_taking_samples_takes_their_energies(model):
    labels = random_labels(model.graph)
    first = model.graph.layer_names[0]
    mrf = model.condition({first: shaped(model.graph, labels)[first]})
    index = torch.tensor([2, 0, 2])
    got = energy(mrf.take(index), {name: x[index] for name, x in labels.items()})
    torch.testing.assert_close(got, oracle(model, labels)[index])


def test_one_sample_can_be_taken_again_and_again():
    model = LGM(GRAPHS["skip"], init="paper").requires_grad_(False)
    mrf = model.condition({"x": torch.rand(1, 3)}).take(torch.zeros(3, dtype=torch.long))
    assert mrf.batch == len(mrf.clamps["x"].q) == len(mrf.field("h")) == 3


def test_samples_fit_the_energy():
    model = LGM(GRAPHS["conv"], init="paper").requires_grad_(False)
    drawn = sample(model, sweeps=2, generator=torch.Generator().manual_seed(0))
    flat = {name: x[0].flatten().tolist() for name, x in drawn.items()}
    expected = testing.energy(model.graph, model.unary, model.table, flat)
    assert energy(model.condition(), drawn).item() == pytest.approx(expected)


def test_energy_is_linear_in_the_tables_that_it_meets():
    """Its gradient counts how often each stored table entry was used."""
    model = LGM(GRAPHS["conv"], init="paper")
    ones = {layer.name: torch.ones(1, layer.nodes, dtype=torch.long) for layer in model.graph.layers}
    energy(model.condition(), ones).sum().backward()
    connection = model.graph.connections[0]
    counts = torch.zeros_like(model.table[connection.name])
    for edge in testing.edges(model.graph, connection):
        counts[(*edge.table, 0, 0)] += 1
    torch.testing.assert_close(model.table[connection.name].grad, counts)


def test_the_oracle_by_hand():
    graph = Graph((Layer("x", 2), Layer("y", 1, 3)), (Dense("x", "y"),))
    unary = {"x": torch.tensor([[1.0], [2.0]]), "y": torch.tensor([[10.0, 20.0]])}
    table = {"x-y": torch.tensor([[[[100.0, 200.0]]], [[[1000.0, 2000.0]]]])}
    assert testing.energy(graph, unary, table, {"x": (0, 1), "y": (2,)}) == 2 + 20 + 2000
    assert testing.energy(graph, unary, table, {"x": (1, 1), "y": (1,)}) == 1 + 2 + 10 + 100 + 1000
    assert testing.energy(graph, unary, table, {"x": (1, 1), "y": (0,)}) == 3
    assert len(list(testing.labellings(graph))) == 12
