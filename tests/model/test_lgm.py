"""The module that owns the energies: shapes, scales, initial energies, copies and saved states."""

import copy
import io
import pickle

import pytest
import torch

from torchlgm import LGM, Init, energy, zoo
from torchlgm.errors import GraphError
from torchlgm.model.init import INNER, INPUT
from torchlgm.spec import Conv, Dense, Graph, Layer, Local, Sparse
from torchlgm.testing import edges
from torchlgm.testing import energy as oracle

GRAPH = Graph(
    (Layer("x", (2, 5, 4)), Layer("h", (3, 4, 3), 3), Layer("g", 4), Layer("y", 1, 5)),
    (
        Conv("x", "h", (3, 2), padding=((1, 0), (0, 0))),
        Dense("h", "g"),
        Dense("g", "y"),
        Sparse("x", "y", ((0, 0), (7, 0), (39, 0)), name="shortcut"),
    ),
)


def local_twin(graph):
    """The same graph with tables of their own at each position."""
    twin = [
        Local(c.left, c.right, c.kernel, c.stride, c.padding, c.dilation, name=c.name) if isinstance(c, Conv) else c
        for c in graph.connections
    ]
    return Graph(graph.layers, tuple(twin), graph.root)


def test_every_energy_has_its_place():
    model = LGM(GRAPH)
    assert {name: tuple(u.shape) for name, u in model.unary.items()} == {
        "x": (40, 1),
        "h": (36, 2),
        "g": (4, 1),
        "y": (1, 4),
    }
    assert {name: tuple(t.shape) for name, t in model.table.items()} == {
        "x-h": (2, 3, 3, 2, 1, 2),
        "h-g": (36, 4, 2, 1),
        "g-y": (4, 1, 1, 4),
        "shortcut": (3, 1, 4),
    }
    local = LGM(local_twin(GRAPH)).table["x-h"]
    assert tuple(local.shape) == (2, 3, 3, 2, 4, 3, 1, 2)


def test_parameters_are_those_that_the_graph_counts():
    assert sum(p.numel() for p in LGM(GRAPH).parameters()) == GRAPH.parameters
    assert all(p.requires_grad for p in LGM(GRAPH).parameters())


def test_a_free_model_is_one_sample_with_all_its_layers():
    mrf = LGM(GRAPH, init="paper").condition()
    assert mrf.batch == 1
    assert tuple(mrf.unary) == GRAPH.layer_names
    assert [link.name for link in mrf.links] == [c.name for c in GRAPH.connections]
    assert mrf.constant.item() == 0
    assert mrf.observed_links == ()
    assert mrf.shapes == {layer.name: layer.sizes for layer in GRAPH.layers}


def test_connections_of_an_observed_layer_are_kept_aside():
    mrf = LGM(GRAPH).condition({"x": torch.rand(2, 2, 5, 4)})
    assert [link.name for link in mrf.links] == ["h-g", "g-y"]
    assert [link.name for link in mrf.observed_links] == ["x-h", "shortcut"]
    assert set(mrf.evidence) == {"h", "y"}


# --- scale


@pytest.mark.parametrize("graph", [GRAPH, local_twin(GRAPH)], ids=["conv", "local"])
def test_scale_rho_stores_energies_divided_by_rho(graph):
    model = LGM(graph, init="paper", scale="rho").requires_grad_(False)
    twin = local_twin(graph)
    tables = {}
    for c in twin.connections:
        phi, rho = model.layouts[c.name].expand(model.table[c.name]), model.rho(c.name)
        shape = model.layouts[c.name].edge_shape
        tables[c.name] = phi.expand(*shape, *phi.shape[-2:]) * rho.expand(shape)[..., None, None]
        for edge in edges(twin, c):
            assert 0 < rho.expand(shape)[edge.table] <= 1
    labels = {layer.name: torch.randint(layer.labels, (1, layer.nodes)) for layer in graph.layers}
    expected = oracle(twin, model.unary, tables, {name: x[0].tolist() for name, x in labels.items()})
    assert energy(model.condition(), labels).item() == pytest.approx(expected)
    seen = {"x": labels["x"].unflatten(1, (2, 5, 4)), "y": labels["y"]}
    assert energy(model.condition(seen), labels).item() == pytest.approx(expected)


def test_scale_rho_gives_trw_tables_of_the_size_of_phi():
    """What TRW divides by rho again is phi itself, so two models with the same phi agree up to the scale."""
    model = LGM(GRAPH, init="paper", scale="rho")
    for name in model.table:
        table = model.energies(name) / model.rho(name)[..., None, None]
        phi = model.layouts[name].expand(model.table[name])
        torch.testing.assert_close(table, phi.expand_as(table))


def test_scale_energy_stores_energies():
    model = LGM(GRAPH, scale="energy")
    assert all(model.energies(name) is model.table[name] for name in model.table)


def test_unknown_scale():
    with pytest.raises(GraphError, match="scale='beta'; expected 'balanced', 'energy' or 'rho'"):
        LGM(GRAPH, scale="beta")


# --- initial energies


WIDE = Graph((Layer("x", 400), Layer("h", 50, 3), Layer("y", 20, 4)), (Dense("x", "h"), Dense("h", "y")))


def stds(model):
    return {name: p.std().item() for name, p in (*model.unary.items(), *model.table.items())}


@pytest.mark.parametrize(
    ("init", "expected"),
    [
        ("paper", {"x": 1, "h": 1, "y": 1, "x-h": 1, "h-y": 1}),
        ("default", {"x": 0, "h": 0, "y": 0, "x-h": 1, "h-y": 1}),
        ("zero", dict.fromkeys(("x", "h", "y", "x-h", "h-y"), 0)),
        (Init(table=2.0, unary=0.1), {"x": 0.1, "h": 0.1, "y": 0.1, "x-h": 2, "h-y": 2}),
    ],
)
def test_initial_energies_have_the_named_spread(init, expected):
    model = LGM(WIDE, init=init)
    got = stds(model)
    assert got.keys() == expected.keys()
    for name, std in expected.items():
        count = model.get_parameter(f"{'table' if '-' in name else 'unary'}.{name}").numel()
        assert abs(got[name] - std) <= 4 * std / (2 * count) ** 0.5
    means = [p.mean().abs().item() for p in model.table.values()]
    assert max(means) <= 4 * max(expected[n] for n in model.table) / 1000**0.5


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ({"init": "paper"}, Init(table=1.0, unary=1.0)),
        ({"init": "default"}, Init(table=1.0, scale="balanced")),
        ({"init": "zero"}, Init(table=0.0)),
        ({}, Init(table=1.0, scale="balanced")),
    ],
)
def test_named_initial_energies_stand_for_numbers(name, meaning):
    named = LGM(WIDE, generator=torch.Generator().manual_seed(1), **name)
    explicit = LGM(WIDE, init=meaning, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(named.state_dict(), explicit.state_dict(), rtol=0, atol=0)


def test_balanced_scales_count_the_edges_of_the_layer_nearer_to_the_root():
    graph = Graph(
        (Layer("x", (3, 8)), Layer("h", (4, 6)), Layer("g", 5), Layer("y", 1, 7)),
        (Local("x", "h", 3), Dense("h", "g"), Dense("g", "y")),
    )
    model = LGM(graph)
    edges_of_a_node = {"x-h": 3 * 3, "h-g": 24, "g-y": 5}
    for name, factor in {"x-h": INPUT, "h-g": INNER, "g-y": INNER}.items():
        expected = model.table[name] * factor / edges_of_a_node[name] ** 0.5
        torch.testing.assert_close(model.energies(name), expected)


def test_inputs_with_many_edges_are_scaled_by_their_number():
    graph = Graph((Layer("x", 100), Layer("h", 3), Layer("y", 1)), (Dense("x", "h"), Dense("h", "y")))
    model = LGM(graph)
    torch.testing.assert_close(model.energies("x-h"), model.table["x-h"] * INPUT / 20)  # INPUT / 10 if they were few
    torch.testing.assert_close(model.energies("h-y"), model.table["h-y"] * INNER / 3**0.5)


def test_an_input_right_at_the_root_is_not_amplified():
    model = LGM(Graph((Layer("x", 16), Layer("y", 1)), (Dense("x", "y"),)))
    torch.testing.assert_close(model.energies("x-y"), model.table["x-y"] * INNER / 4)


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), "1", None])
def test_what_is_no_standard_deviation(value):
    for name in ("table", "unary"):
        with pytest.raises(GraphError, match=rf"^{name}=.*; expected a standard deviation, a number >= 0$"):
            Init(**({"table": 1.0} | {name: value}))


def test_unknown_init():
    with pytest.raises(
        GraphError, match=r"init='xavier'; known: default, paper, zero, or an Init\(table, unary, scale\)"
    ):
        LGM(GRAPH, init="xavier")


def test_a_seeded_generator_repeats_itself():
    def make(seed):
        return LGM(GRAPH, init="paper", generator=torch.Generator().manual_seed(seed)).state_dict()

    torch.testing.assert_close(make(5), make(5), rtol=0, atol=0)
    assert not torch.equal(make(5)["table.x-h"], make(6)["table.x-h"])


def test_a_generator_leaves_the_global_one_alone():
    before = torch.get_rng_state()
    LGM(GRAPH, init="paper", generator=torch.Generator().manual_seed(5))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("name", ["values", "type", "training", "_parameters", "_keys"])
def test_names_that_modules_use_are_refused(name):
    with pytest.raises(GraphError, match=f"'{name}' is a name that PyTorch modules use themselves; choose another"):
        LGM(Graph((Layer(name, 2), Layer("y", 1)), (Dense(name, "y"),)))
    with pytest.raises(GraphError, match=f"'{name}' is a name that PyTorch modules use"):
        LGM(Graph((Layer("x", 2), Layer("y", 1)), (Dense("x", "y", name=name),)))


# --- copies and saved states


def answer(model, x):
    """The energy of the highest labels given x."""
    labels = {layer.name: torch.full((len(x), layer.nodes), layer.labels - 1) for layer in model.graph.layers}
    return energy(model.condition({"x": x}), labels)


@pytest.fixture
def x():
    return torch.rand(3, 2, 5, 4)


@pytest.mark.parametrize("scale", ["energy", "rho", "balanced"])
def test_a_saved_state_holds_the_energies_and_nothing_else(x, scale):
    model, other = LGM(GRAPH, init="paper", scale=scale), LGM(GRAPH, init="zero", scale=scale)
    state = model.state_dict()
    assert set(state) == {f"unary.{n}" for n in GRAPH.layer_names} | {f"table.{c.name}" for c in GRAPH.connections}
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    torch.testing.assert_close(answer(other, x), answer(model, x), rtol=0, atol=0)


def test_copies_are_equal_and_independent(x):
    model = LGM(GRAPH, init="paper", scale="rho")
    before = answer(model, x)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert twin.graph == model.graph
        torch.testing.assert_close(answer(twin, x), before, rtol=0, atol=0)
        with torch.no_grad():
            twin.table["h-g"].add_(1.0)
        torch.testing.assert_close(answer(model, x), before, rtol=0, atol=0)
        assert not torch.allclose(answer(twin, x), before)


@pytest.mark.parametrize("scale", ["energy", "rho", "balanced"])
def test_single_precision(x, scale):
    model = LGM(GRAPH, scale=scale)
    before = answer(model, x)
    model.to(torch.float32)
    mrf = model.condition({"x": x})
    assert {link.table.dtype for link in mrf.links} == {link.rho.dtype for link in mrf.links} == {torch.float32}
    after = answer(model, x)
    assert after.dtype == torch.float32
    torch.testing.assert_close(after.double(), before, rtol=1e-4, atol=1e-5)


def test_every_energy_gets_a_gradient(x):
    model = LGM(GRAPH, init="paper")
    answer(model, x).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_the_printed_model_tells_its_graph():
    text = repr(LGM(zoo.rbm(3, 2), scale="rho"))
    assert "Graph with 5 nodes, 6 edges, 11 parameters, root 'hidden'" in text
    assert "scale='rho'" in text


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


CONVERSIONS = {
    "double": LGM.double,
    "to, by way of half": lambda model: model.half().to(torch.float64),
    "inside a module": lambda model: torch.nn.Sequential(model).double()[0],
}


class TestFactoryArguments:
    def test_dtype(self):
        model = LGM(GRAPH, dtype=torch.float64)
        assert {p.dtype for p in model.parameters()} == {torch.float64}
        assert {b.dtype for b in model.buffers() if b.is_floating_point()} == {torch.float64}
        assert {p.dtype for p in LGM(GRAPH).parameters()} == {torch.get_default_dtype()}

    def test_rho_is_not_rounded_on_its_way_to_float64(self):
        model, default = LGM(GRAPH, dtype=torch.float64), torch.get_default_dtype()
        torch.set_default_dtype(torch.float32)
        try:
            other = LGM(GRAPH, dtype=torch.float64)
        finally:
            torch.set_default_dtype(default)
        for name in ("x-h", "h-g", "g-y", "shortcut"):
            assert torch.equal(model.rho(name), other.rho(name))

    @pytest.mark.parametrize("convert", CONVERSIONS.values(), ids=CONVERSIONS)
    def test_rho_follows_the_dtype_exactly(self, convert):
        exact = LGM(GRAPH, dtype=torch.float64)
        model = convert(LGM(GRAPH, dtype=torch.float32))
        for c in GRAPH.connections:
            assert model.rho(c.name).dtype == torch.float64
            assert torch.equal(model.rho(c.name), exact.rho(c.name))
            assert torch.equal(model.float().rho(c.name), exact.rho(c.name).float())
            model.double()

    def test_device(self):
        model = LGM(GRAPH, device="meta")
        assert {t.device.type for t in (*model.parameters(), *model.buffers())} == {"meta"}
        with torch.device("meta"):
            assert {t.device.type for t in (*LGM(GRAPH).parameters(), *LGM(GRAPH).buffers())} == {"meta"}

    @pytest.mark.parametrize("dtype", [torch.int64, torch.complex64])
    def test_dtypes_without_gradients_or_order_are_refused(self, dtype):
        with pytest.raises(GraphError, match="expected a floating-point dtype"):
            LGM(GRAPH, dtype=dtype)


class TestResetParameters:
    def test_as_when_it_was_made(self):
        model = LGM(GRAPH, "paper", generator=seeded())
        with torch.no_grad():
            for p in model.parameters():
                p.fill_(7.0)
        model.reset_parameters(seeded())
        assert same(model, LGM(GRAPH, "paper", generator=seeded()))

    def test_without_a_generator_by_the_default_one(self):
        model, other = LGM(GRAPH), LGM(GRAPH)
        assert not same(model, other)
        for m in (model, other):
            torch.manual_seed(3)
            m.reset_parameters()
        assert same(model, other)

    def test_the_generator_may_be_of_another_device(self):
        model = LGM(GRAPH, generator=seeded(), device="meta")
        model.reset_parameters(seeded())
        assert {p.device.type for p in model.parameters()} == {"meta"}


def test_evidence_is_a_mapping_that_is_computed_once_and_never_without_gradients_that_are_asked_for():
    graph = Graph([Layer("x", 2), Layer("h", 3)], [Dense("x", "h")])
    model = LGM(graph, Init(1.0, 1.0))
    x = torch.rand(4, 2)
    evidence = model.condition({"x": x}).evidence
    assert dict.fromkeys(evidence) == {"h": None}
    assert ("h" in evidence, "x" in evidence, len(evidence)) == (True, False, 1)
    with torch.no_grad():
        assert not evidence["h"].requires_grad
    assert evidence["h"] is evidence["h"]
    torch.testing.assert_close(evidence["h"], -(x @ model.energies("x-h").flatten(1)).unsqueeze(-1))
    (grad,) = torch.autograd.grad(evidence["h"].sum(), model.table["x-h"])
    assert grad.abs().sum() > 0
    with pytest.raises(KeyError):
        evidence["x"]
