"""Each graph of the zoo is its textbook model."""

from itertools import pairwise, product

import pytest
import torch

from torchlgm import LGM, energy, exact, infer, lbp, log_prob, zoo
from torchlgm.errors import GraphError
from torchlgm.spec import Conv, Dense, Local
from torchlgm.testing import edges

softplus = torch.nn.functional.softplus


def model_of(graph):
    return LGM(graph, init="paper").requires_grad_(False)


def bits(*shape):
    return torch.randint(2, shape)


def every_vector(n):
    return torch.tensor(list(product((0, 1), repeat=n)))


def column(x):
    """The energies of a binary layer `(nodes, 1)` as a vector, of a binary connection `(m, n, 1, 1)` as a matrix."""
    return x.squeeze(-1) if x.dim() == 2 else x[..., 0, 0]


# --- Boltzmann machines


def test_rbm_energy():
    model = model_of(zoo.rbm(4, 3))
    a, b, w = column(model.unary["visible"]), column(model.unary["hidden"]), column(model.table["visible-hidden"])
    v, h = bits(6, 4), bits(6, 3)
    expected = v.double() @ a + h.double() @ b + torch.einsum("bi,ij,bj->b", v.double(), w, h.double())
    torch.testing.assert_close(energy(model.condition(), {"visible": v, "hidden": h}), expected)


def test_rbm_free_energy():
    """F(v) = a.v - sum_j softplus(-b_j - v.W_j), and -F(v) is log Z with v observed."""
    model = model_of(zoo.rbm(4, 3))
    a, b, w = column(model.unary["visible"]), column(model.unary["hidden"]), column(model.table["visible-hidden"])
    v = every_vector(4)
    free_energy = v.double() @ a - softplus(-b - v.double() @ w).sum(1)
    torch.testing.assert_close(infer(model, {"visible": v}, exact()).log_z, -free_energy)
    torch.testing.assert_close(infer(model, None, exact()).log_z, (-free_energy).logsumexp(0, keepdim=True))


def test_classification_rbm():
    """p(y | v) ~ exp(-E_y + sum_j softplus(-b_j - v.W_j - U_jy))."""
    model = model_of(zoo.classification_rbm(4, 3, 5))
    b, w = column(model.unary["hidden"]), column(model.table["visible-hidden"])
    u = torch.nn.functional.pad(model.table["hidden-label"][:, 0, 0, :], (1, 0))
    c = torch.nn.functional.pad(model.unary["label"][0], (1, 0))
    v = torch.rand(6, 4)
    score = -c + softplus(-(b + v @ w)[:, :, None] - u).sum(1)
    got = infer(model, {"visible": v}, exact())["label"].probs[:, 0]
    torch.testing.assert_close(got, score.softmax(-1))


def test_conditional_rbm():
    """p(y | x) ~ exp(-c.y - x.A.y + sum_j softplus(-b_j - x.W_j - y.V_j)), and x's own energy cancels."""
    model = model_of(zoo.conditional_rbm(3, 2, 3))
    b, c = column(model.unary["hidden"]), column(model.unary["outputs"])
    w, direct, v = (column(model.table[n]) for n in ("conditions-hidden", "conditions-outputs", "hidden-outputs"))
    x, every = torch.rand(4, 3), every_vector(3).double()
    hidden = softplus(-(b + x @ w)[:, None] - every @ v.T).sum(-1)  # (B, every y)
    score = -(every @ c) - x @ direct @ every.T + hidden
    for i, y in enumerate(every.long()):
        got = log_prob(model, {"conditions": x}, {"outputs": y.expand(4, 3)}, exact())
        torch.testing.assert_close(got, score.log_softmax(-1)[:, i])


def test_deep_boltzmann_machine_energy():
    graph = zoo.deep_boltzmann_machine(4, (3, 2, 5))
    assert [layer.nodes for layer in graph.layers] == [4, 3, 2, 5]
    model = model_of(graph)
    x = {layer.name: bits(6, layer.nodes) for layer in graph.layers}
    expected = sum(x[name].double() @ column(model.unary[name]) for name in x)
    for a, b in (("visible", "hidden1"), ("hidden1", "hidden2"), ("hidden2", "hidden3")):
        expected = expected + ((x[a].double() @ column(model.table[f"{a}-{b}"])) * x[b]).sum(1)
    torch.testing.assert_close(energy(model.condition(), x), expected)


# --- grids


def neighbours(height, width):
    cells = list(product(range(height), range(width)))
    right = [((r, c), (r, c + 1)) for r, c in cells if c + 1 < width]
    return right + [((r, c), (r + 1, c)) for r, c in cells if r + 1 < height]


@pytest.mark.parametrize(("height", "width"), [(1, 2), (2, 1), (1, 5), (2, 2), (3, 4), (4, 3), (5, 2)])
def test_a_grid_joins_each_cell_with_its_neighbours(height, width):
    graph = zoo.grid(height, width)
    assert graph.nodes == height * width
    cells = list(product(range(height), range(width)))
    got = {frozenset((cells[e.left], cells[e.right])) for c in graph.connections for e in edges(graph, c)}
    assert got == {frozenset(pair) for pair in neighbours(height, width)}
    assert graph.edges == len(got)


def degrees(height, width):
    return torch.tensor(
        [sum(cell in pair for pair in neighbours(height, width)) for cell in product(range(height), range(width))]
    )


@pytest.mark.parametrize(("height", "width"), [(3, 4), (2, 5)])
def test_ising(height, width):
    """-J sum s_i s_j - H sum s_i with spins s = 2x - 1, up to a constant, as energies of x."""
    coupling, outside = 0.7, 0.3
    graph = zoo.grid(height, width)
    model = LGM(graph, init="zero").requires_grad_(False)
    for table in model.table.values():
        table.fill_(-4 * coupling)
    model.unary["cells"].copy_((2 * coupling * degrees(height, width) - 2 * outside)[:, None])
    pairs = neighbours(height, width)
    constant = -coupling * len(pairs) + outside * graph.nodes
    for _ in range(5):
        picture = bits(height, width)
        spins = 2 * picture.double() - 1
        expected = -coupling * sum(spins[i] * spins[j] for i, j in pairs) - outside * spins.sum()
        torch.testing.assert_close(energy(model.condition(), {"cells": picture[None].long()})[0] + constant, expected)


@pytest.mark.parametrize("labels", [2, 3, 4])
def test_potts(labels):
    """J for each pair of neighbours with different labels: label 0 as reference leaves unaries and a constant."""
    height, width, cost = 3, 4, 0.7
    model = LGM(zoo.grid(height, width, labels), init="zero").requires_grad_(False)
    different = 1 - torch.eye(labels)
    for table in model.table.values():
        table.copy_(cost * (different[1:, 1:] - different[1:, :1] - different[:1, 1:]))
    model.unary["cells"].copy_((cost * degrees(height, width))[:, None])
    for _ in range(5):
        picture = torch.randint(labels, (height, width))
        expected = cost * sum(bool(picture[i] != picture[j]) for i, j in neighbours(height, width))
        assert energy(model.condition(), {"cells": picture[None]}).item() == pytest.approx(expected)


def test_a_grid_has_neighbours():
    with pytest.raises(GraphError, match="a grid of 1x1 has no neighbours"):
        zoo.grid(1, 1)
    for height, width in ((0, 5), (3, 0)):
        with pytest.raises(GraphError, match="=0; expected"):
            zoo.grid(height, width)


def test_labels_of_a_conditional_random_field_see_their_inputs_and_neighbours():
    graph = zoo.grid_crf(3, 4, labels=3, input_labels=2)
    across, down = (edges(graph, c) for c in graph.connections[1:])
    assert {(e.left, e.right) for e in across} == {(i, i + 1) for i in range(12) if i % 4 < 3}
    assert {(e.left, e.right) for e in down} == {(i, i + 4) for i in range(8)}
    assert {(e.left, e.right) for e in edges(graph, graph.connections[0])} == {(i, i) for i in range(12)}
    assert graph.parameters == 12 * 1 + 12 * 2 + 2 + 4 + 4
    graph = zoo.linear_crf(5, labels=3, input_labels=4, kernel=3)
    assert {(e.left, e.right) for e in edges(graph, graph.connections[1])} == {(i, i + 1) for i in range(4)}
    assert len(edges(graph, graph.connections[0])) == 5 * 3 - 2
    with pytest.raises(GraphError, match="kernel=2; expected an odd number"):
        zoo.linear_crf(5, 3, 4, kernel=2)


def test_a_semi_restricted_machine_joins_its_visible_nodes():
    """-log p(v) is a quadratic form and a sum of softplus, up to a constant."""
    model = LGM(zoo.semi_restricted_bm(4, 3), "paper").requires_grad_(False)
    v = torch.tensor(list(product((0.0, 1.0), repeat=4)))
    lateral = torch.zeros(4, 4)
    lateral[tuple(torch.triu_indices(4, 4, 1))] = model.energies("visible-visible")[:, 0, 0]
    expected = -(v @ lateral * v).sum(1) - v @ model.unary["visible"][:, 0]
    up = model.unary["hidden"][:, 0] + v @ model.energies("visible-hidden")[..., 0, 0]
    expected = expected + torch.nn.functional.softplus(-up).sum(1)
    torch.testing.assert_close(infer(model, {"visible": v}, exact()).log_z, expected)


# --- the paper's architectures


@pytest.mark.parametrize("depth", range(5))
def test_dense_models_of_any_depth(depth):
    graph = zoo.dense(hidden=(100,) * depth)
    sizes = [784, *[100] * depth, 1]
    assert [layer.nodes for layer in graph.layers] == sizes
    assert [layer.labels for layer in graph.layers] == [2] * (depth + 1) + [10]
    assert all(isinstance(c, Dense) for c in graph.connections)
    assert [(c.left, c.right) for c in graph.connections] == list(pairwise(graph.layer_names))
    assert graph.edges == sum(a * b for a, b in pairwise(sizes))
    assert graph.parameters == sum(sizes[:-1]) + 9 + graph.edges + 8 * sizes[-2]
    assert graph.root == "classes"


def test_dense_models_take_shapes_and_labels():
    graph = zoo.dense((1, 28, 28), (20, 10), classes=3, input_labels=8, hidden_labels=4)
    assert [layer.sizes for layer in graph.layers] == [(1, 28, 28), (20,), (10,), (1,)]
    assert [layer.labels for layer in graph.layers] == [8, 4, 4, 3]


@pytest.mark.parametrize(("kind", "connection"), [("conv", Conv), ("local", Local)])
def test_window_models(kind, connection):
    graph = zoo.windows(kind)
    assert [layer.sizes for layer in graph.layers] == [(1, 28, 28), (6, 13, 13), (16, 5, 5), (100,), (1,)]
    assert [type(c) for c in graph.connections] == [connection, connection, Dense, Dense]
    assert graph.connections[0].padding == ((1, 0), (1, 0))
    first = 6 * (13 * 5 - 1) ** 2  # in each dimension one edge of the first window would lie outside
    second = 6 * 16 * 5**2 * 5**2
    assert [c.count_edges(*graph.ends(c)) for c in graph.connections] == [first, second, 400 * 100, 100]
    tables = (6 * 25, 6 * 16 * 25) if kind == "conv" else (first, second)
    assert graph.parameters == (784 + 1014 + 400 + 100 + 9) + sum(tables) + 40000 + 900
    assert graph.nodes == 784 + 1014 + 400 + 100 + 1


def test_the_requantised_window_model():
    graph = zoo.windows("local", input_labels=4, first_labels=3)
    assert [layer.labels for layer in graph.layers] == [4, 3, 2, 2, 10]


def test_window_models_of_other_sizes():
    graph = zoo.windows("conv", (3, 12, 16), channels=(2, 4), kernels=(4, 3), strides=(2, 1), padding=0, hidden=7)
    assert [layer.sizes for layer in graph.layers] == [(3, 12, 16), (2, 5, 7), (4, 3, 5), (7,), (1,)]
    padded = zoo.windows("local", (1, 8, 6), kernels=(3, 3), strides=(1, 1))
    assert [layer.sizes for layer in padded.layers[:3]] == [(1, 8, 6), (6, 7, 5), (16, 5, 3)]


def test_windows_are_conv_or_local():
    with pytest.raises(GraphError, match="kind='dense'; expected 'conv' or 'local'"):
        zoo.windows("dense")


@pytest.mark.parametrize("inputs", [(1, 3, 28), (1, 12, 6)])
def test_kernels_fit_into_the_input(inputs):
    text = rf"kernels \(5, 5\) do not fit into inputs of {inputs[1]}x{inputs[2]} positions"
    with pytest.raises(GraphError, match=text):
        zoo.windows("local", inputs)


# --- towers


def test_a_tower_of_stages():
    stages = [
        zoo.Stage(4, 3, padding=1),
        zoo.Stage(6, 4, 2, padding=1, kind="local", labels=3),
        zoo.Stage(5, 3, 2, (1, 0)),
    ]
    graph = zoo.tower(stages, (2, 10, 12), hidden=(7, 8), classes=4, input_labels=8, hidden_labels=5)
    sizes = [(2, 10, 12), (4, 10, 12), (6, 5, 6), (5, 2, 3), (7,), (8,), (1,)]
    assert [layer.sizes for layer in graph.layers] == sizes
    assert [layer.labels for layer in graph.layers] == [8, 2, 3, 2, 5, 5, 4]
    assert [type(c) for c in graph.connections] == [Conv, Local, Conv, Dense, Dense, Dense]
    assert [(c.left, c.right) for c in graph.connections] == list(pairwise(graph.layer_names))
    assert graph.root == "classes"
    first = 2 * 4 * (10 * 3 - 2) * (12 * 3 - 2)  # in each dimension two edges would lie outside
    second = 4 * 6 * (5 * 4 - 2) * (6 * 4 - 2)
    third = 6 * 5 * (2 * 3 - 1) * (3 * 3 - 1)
    assert [c.count_edges(*graph.ends(c)) for c in graph.connections] == [first, second, third, 30 * 7, 7 * 8, 8]
    tables = 7 * (2 * 4 * 9) + 2 * second + 2 * (6 * 5 * 9) + 4 * 210 + 16 * 56 + 12 * 8
    assert graph.parameters == (240 * 7 + 480 + 180 * 2 + 30 + 28 + 32 + 3) + tables


@pytest.mark.parametrize("hidden", [(), (5,), (5, 4)])
def test_a_tower_gives_probabilities_and_gradients(hidden):
    model = LGM(zoo.tower([zoo.Stage(3), zoo.Stage(4, 3, 2, (1, 0), "local")], (1, 8, 8), hidden, skips=["maps1"]))
    probs = infer(model, {"inputs": torch.rand(6, 1, 8, 8)}, lbp(1))["classes"].probs
    torch.testing.assert_close(probs.sum(-1), torch.ones(6, 1))
    probs[:, 0, 3].log().sum().backward()
    assert all(table.grad is not None and table.grad.abs().sum() > 0 for table in model.table.values())


def test_a_tower_of_two_stages_is_a_window_model():
    stages = [zoo.Stage(6, 5, 2, (1, 0)), zoo.Stage(16, 5, 2)]
    ours, paper = zoo.tower(stages, hidden=[100]), zoo.windows("conv")
    assert [layer.sizes for layer in ours.layers] == [layer.sizes for layer in paper.layers]
    assert (ours.edges, ours.parameters) == (paper.edges, paper.parameters)


def test_skips_lead_to_the_class_node():
    graph = zoo.tower([zoo.Stage(2), zoo.Stage(3)], (1, 6, 6), (4, 4), skips=["maps2", "hidden1"])
    assert [c.name for c in graph.connections[-3:]] == ["hidden2-classes", "maps2-classes", "hidden1-classes"]


@pytest.mark.parametrize("name", ["inputs", "maps2", "classes", "edges"])
def test_skips_are_layers_below_the_last_one(name):
    with pytest.raises(GraphError, match=f"skips: no layer '{name}' .*; possible: maps1$"):
        zoo.tower([zoo.Stage(2), zoo.Stage(3)], (1, 6, 6), skips=[name])


def test_stages_fit_into_the_layer_below():
    text = r"'maps2': a kernel of 4 with padding 1\+0 does not fit into the 2x9 positions of 'maps1'; use a smaller"
    with pytest.raises(GraphError, match=text):
        zoo.tower([zoo.Stage(2), zoo.Stage(3, 4, padding=(1, 0))], (1, 4, 11))


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"channels": 0}, "channels=0 of a stage; expected a whole number >= 1"),
        ({"channels": 2, "kernel": 2.5}, "kernel=2.5 of a stage"),
        ({"channels": 2, "stride": 0}, "stride=0 of a stage"),
        ({"channels": 2, "labels": 1}, "labels=1 of a stage; expected a whole number >= 2"),
        ({"channels": 2, "padding": (1, 2, 3)}, r"padding=\(1, 2, 3\) of a stage; expected .* or a pair"),
        ({"channels": 2, "padding": -1}, "padding=-1 of a stage"),
        ({"channels": 2, "kind": "dense"}, "kind='dense'; expected 'conv' or 'local'"),
    ],
)
def test_stages_are_checked(fields, text):
    with pytest.raises(GraphError, match=text):
        zoo.Stage(**fields)


def test_towers_have_stages_and_image_inputs():
    with pytest.raises(GraphError, match=r"at least one stage; zoo\.dense has none"):
        zoo.tower([])
    with pytest.raises(GraphError, match=r"inputs=784; expected \(channels, height, width\)"):
        zoo.tower([zoo.Stage(2)], 784)


def test_mistakes_with_towers():
    with pytest.raises(GraphError, match=r"expected a list of zoo\.Stage"):
        zoo.tower([3, 4])
    with pytest.raises(GraphError, match="expected a list of names"):
        zoo.tower([zoo.Stage(2), zoo.Stage(2)], skips="maps1")
    with pytest.raises(GraphError, match="from 0 to 2, one less than the kernel"):
        zoo.Stage(2, kernel=3, padding=3)


@pytest.mark.parametrize("hidden", [5, "50", None])
def test_hidden_layers_are_a_list(hidden):
    makers = (zoo.dense, lambda hidden: zoo.tower([zoo.Stage(2)], hidden=hidden))
    for make in (*makers, lambda hidden: zoo.deep_boltzmann_machine(3, hidden)):
        with pytest.raises(GraphError, match=f"hidden={hidden!r}; expected a list of numbers of nodes"):
            make(hidden=hidden)
