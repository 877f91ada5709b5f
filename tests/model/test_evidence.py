"""Evidence: every way to give it means the same, soft evidence is the expected energy, missing entries are free."""

from itertools import product

import numpy as np
import pytest
import torch

from torchlgm import LGM, Observed, energy, exact, infer, mean_field, testing, zoo
from torchlgm.errors import EvidenceError
from torchlgm.spec import Dense, Graph, Layer, Local

GRAPH = Graph(
    (Layer("x", (1, 4)), Layer("z", (1, 2), 3), Layer("h", 2), Layer("y", 1, 3)),
    (Local("x", "z", 3, 1), Dense("z", "h"), Dense("h", "y"), Dense("x", "h")),
)
NAN = float("nan")


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(3)
    return LGM(GRAPH, init="paper").double().requires_grad_(False)


@pytest.fixture(scope="module")
def joint(model):
    """Every labelling of the whole graph with its energy: labels `(S, nodes)` for each layer, and `(S,)`."""
    rows = list(testing.labellings(GRAPH))
    energies = [testing.energy(GRAPH, model.unary, model.table, row) for row in rows]
    labels = {name: torch.tensor([row[name] for row in rows]) for name in GRAPH.layer_names}
    return labels, torch.tensor(energies, dtype=torch.float64)


def same(a, b):
    """Two MRFs that cannot be told apart."""
    assert a.unary.keys() == b.unary.keys()
    assert a.evidence.keys() == b.evidence.keys()
    torch.testing.assert_close(a.constant, b.constant)
    for name in a.unary:
        torch.testing.assert_close(a.field(name), b.field(name))
    for name, clamp in a.clamps.items():
        torch.testing.assert_close(clamp.q, b.clamps[name].q)


def labels(layer, batch=3):
    return torch.randint(GRAPH.layer(layer).labels, (batch, *GRAPH.layer(layer).sizes))


def one_hot(x, k):
    return torch.nn.functional.one_hot(x, k).double()


# --- every way to say the same


@pytest.mark.parametrize("as_type", [torch.bool, torch.uint8, torch.int32, torch.uint16, torch.float32, torch.float64])
def test_labels_of_binary_nodes_in_any_type(model, as_type):
    x = labels("x")
    same(model.condition({"x": x.to(as_type)}), model.condition({"x": x}))


@pytest.mark.parametrize("as_type", [torch.int8, torch.int32, torch.uint16, torch.float32, torch.float64])
def test_labels_of_other_nodes_in_any_type(model, as_type):
    z = labels("z")
    same(model.condition({"z": z.to(as_type)}), model.condition({"z": z}))


@pytest.mark.parametrize("layer", ["x", "z"])
def test_soft_evidence_at_0_or_1_is_hard_evidence(model, layer):
    x = labels(layer)
    hard = model.condition({layer: x})
    vectors = one_hot(x, GRAPH.layer(layer).labels)
    same(model.condition({layer: vectors}), hard)
    same(model.condition({layer: vectors.long()}), hard)
    if layer == "x":
        same(model.condition({layer: x.double()}), hard)


def test_a_mean_is_the_probability_of_label_1(model):
    q = torch.rand(3, 1, 4)
    same(model.condition({"x": q}), model.condition({"x": torch.stack([1 - q, q], -1)}))


@pytest.mark.parametrize("layer", ["x", "z"])
def test_an_all_observed_mask_is_no_mask(model, layer):
    x = labels(layer)
    plain = model.condition({layer: x})
    for values in (x, one_hot(x, GRAPH.layer(layer).labels)):
        masked = model.condition({layer: Observed(values, torch.ones(x.shape, dtype=torch.bool))})
        same(masked, plain)
        assert masked.clamps[layer].free is None
    same(model.condition({layer: Observed(x)}), plain)


def test_an_all_missing_layer_is_a_free_layer(model, joint):
    mrf = model.condition({"x": torch.full((2, 1, 4), NAN)})
    every, energies = joint
    torch.testing.assert_close(energy(mrf.take(torch.tensor([0])), every), energies)


@pytest.mark.parametrize("garbage", [NAN, 1e9, float("inf"), -float("inf"), -5.0, 0.3])
@pytest.mark.parametrize("layer", ["x", "z"])
def test_what_stands_under_a_missing_entry_never_matters(model, layer, garbage):
    x = labels(layer).double()
    seen = torch.rand(x.shape) < 0.5
    expected = model.condition({layer: Observed(labels(layer).where(~seen, x.long()), seen)})
    same(model.condition({layer: Observed(x.masked_fill(~seen, garbage), seen)}), expected)
    vectors = one_hot(x.long(), GRAPH.layer(layer).labels).masked_fill(~seen.unsqueeze(-1), garbage)
    same(model.condition({layer: Observed(vectors, seen)}), expected)
    if garbage == -5.0:
        same(model.condition({layer: Observed(x.masked_fill(~seen, garbage).long(), seen)}), expected)
    same(model.condition({layer: x.masked_fill(~seen, NAN)}), expected)


def test_garbage_does_not_leak_into_gradients(model):
    x = torch.tensor([[[0.3, NAN, 1.0, 0.0]]], requires_grad=True)
    model.condition({"x": x}).field("h").sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert (x.grad != 0).flatten().tolist() == [True, False, True, True]


def test_function_transforms_see_the_same_evidence(model):
    q = torch.rand(1, 1, 4)
    slope = torch.func.jacrev(lambda q: model.condition({"x": q}).field("h"))(q)
    torch.testing.assert_close(slope.reshape(2, 4), -model.table["x-h"][:, :, 0, 0].T)


def test_a_vector_with_one_nan_is_missing(model):
    z = one_hot(labels("z"), 3)
    z[1, 0, 1, 2] = NAN
    free = model.condition({"z": z}).clamps["z"].free
    assert free is not None
    assert free.nonzero().tolist() == [[1, 1]]


@pytest.mark.parametrize("layer", ["x", "z"])
def test_numpy_arrays_and_lists(model, layer):
    x = labels(layer)
    expected = model.condition({layer: x})
    array = x.numpy()
    read_only = array.copy()
    read_only.flags.writeable = False
    reversed_twice = np.ascontiguousarray(array[..., ::-1])[..., ::-1]
    for given in (array, read_only, reversed_twice, array.astype(">i4"), array.astype(np.uint16), array.tolist()):
        same(model.condition({layer: given}), expected)
    seen = np.ones(array.shape, dtype=bool)
    same(model.condition({layer: Observed(array, seen)}), expected)


def test_single_precision_evidence_on_a_double_model_and_the_other_way_round(model):
    q = torch.rand(3, 1, 4, dtype=torch.float32)
    mrf = model.condition({"x": q})
    assert mrf.clamps["x"].q.dtype == mrf.constant.dtype == torch.float64
    same(mrf, model.condition({"x": q.double()}))
    single = LGM(GRAPH).float()
    assert single.condition({"x": q.double()}).constant.dtype == torch.float32


# --- what evidence means


def evidence_cases():
    """Hard and soft values and missing entries, in binary and other layers, other ones in each sample."""
    x = torch.tensor([[[0.0, 1.0, 0.3, NAN]], [[NAN, NAN, 1.0, 0.9]]])
    z = torch.tensor([[[0, 1]], [[2, 2]]])
    soft = one_hot(z, 3)
    soft[0, 0, 0] = torch.tensor([0.2, 0.5, 0.3])
    soft[1, 0, 1] = NAN
    some = torch.tensor([[[True, True]], [[False, True]]])
    y = torch.tensor([[[0.1, 0.2, 0.7]], [[0.0, 1.0, 0.0]]])
    return {
        "means, all seen": {"x": torch.rand(2, 1, 4)},
        "means, some missing": {"x": x},
        "labels under a mask": {"z": Observed(z, some)},
        "vectors, one missing": {"z": soft},
        "two layers that touch": {"x": x, "z": soft},
        "two layers that touch, one in full": {"x": torch.rand(2, 1, 4), "z": soft},
        "output as well": {"x": x, "y": y},
        "everything": {"x": x, "z": Observed(z, some), "h": torch.tensor([[0.5, NAN], [1.0, 0.0]]), "y": y},
    }


@pytest.fixture(params=evidence_cases().values(), ids=evidence_cases())
def evidence(request):
    return request.param


def test_soft_evidence_is_the_expected_energy(model, joint, evidence):
    """E_V[E(V, rest)] over independent labels V of the observed nodes, for every labelling of the rest."""
    mrf = model.condition(evidence)
    every, energies = joint
    for sample in range(2):
        weight, zero = torch.ones(len(energies), dtype=torch.float64), {}
        for name in GRAPH.layer_names:
            zero[name] = every[name].clone()
            clamp = mrf.clamps.get(name)
            if clamp is None:
                continue
            p = torch.cat([1 - clamp.q[sample].sum(-1, keepdim=True), clamp.q[sample]], -1)
            observed = ~clamp.free[sample] if clamp.free is not None else torch.ones(len(p), dtype=torch.bool)
            for node in observed.nonzero().flatten().tolist():
                weight = weight * p[node, every[name][:, node]]
                zero[name][:, node] = 0
        groups, rows = torch.unique(torch.cat(list(zero.values()), 1), dim=0, return_inverse=True)
        expected = torch.zeros(len(groups), dtype=torch.float64).index_add(0, rows, weight * energies)
        sizes = [GRAPH.layer(name).nodes for name in GRAPH.layer_names]
        free = dict(zip(GRAPH.layer_names, groups.split(sizes, 1), strict=True))
        torch.testing.assert_close(energy(mrf.take(torch.tensor([sample])), free), expected)


@pytest.mark.parametrize("seen", ["nothing", "x", "x z", "h", "x z h y", "some", "other ones"])
def test_log_z_is_the_sum_over_what_agrees_with_the_evidence(model, joint, seen):
    every, energies = joint
    given = {"nothing": {}, "some": {"x": 0.5, "z": 0.5}, "other ones": dict.fromkeys(GRAPH.layer_names, 0.4)}
    parts = given.get(seen, dict.fromkeys(seen.split(), 1.0))
    truth = {name: labels(name) for name in parts}
    masks = {name: torch.rand(truth[name].shape) < share for name, share in parts.items()}
    log_z = infer(model, {n: Observed(truth[n], masks[n]) for n in parts}, exact(by="enumeration")).log_z
    for i in range(3 if parts else 1):
        agrees = torch.ones(len(energies), dtype=torch.bool)
        for name in parts:
            agrees &= ((every[name] == truth[name][i].flatten()) | ~masks[name][i].flatten()).all(1)
        torch.testing.assert_close(log_z[i], (-energies[agrees]).logsumexp(0))


def test_quantised_inputs():
    graph = Graph((Layer("x", (2, 2), 8), Layer("y", 1, 3)), (Dense("x", "y"),))
    model = LGM(graph, init="paper").requires_grad_(False)
    x = torch.randint(8, (5, 2, 2))
    field = model.condition({"x": x}).field("y")
    for sample, (r, c) in product(range(5), product(range(2), range(2))):
        label = int(x[sample, r, c])
        if label:
            field[sample, 0] += model.table["x-y"][2 * r + c, 0, label - 1]
    torch.testing.assert_close(field, -model.unary["y"].expand(5, 1, 2))


# --- what is refused


ERRORS = [
    ("unknown layer 'w'; the graph has x, z, h, y", {"w": torch.zeros(2, 1, 4)}),
    ("must map layer names to values, got Tensor", torch.zeros(2, 1, 4)),
    (
        r"means of binary nodes of layer 'x' must lie in \[0, 1\], got values from -0.5 to 1",
        {"x": [[[0.2, -0.5, 1.0, 0]]]},
    ),
    (
        r"means of binary nodes of layer 'x' must lie in \[0, 1\], got values from 0 to inf",
        {"x": [[[0, 1, 1, np.inf]]]},
    ),
    (r"labels of layer 'x' must lie in \[0, 1\], got values from 0 to 2", {"x": [[[0, 1, 1, 2]]]}),
    (r"labels of layer 'y' must lie in \[0, 2\], got values from 3 to 3", {"y": [[3]]}),
    (r"labels of layer 'y' must lie in \[0, 2\], got values from -1 to -1", {"y": [[-1]]}),
    (r"layer 'y' with 3 labels must be whole labels 0 to 2, or probabilities shaped \(batch, 1, 3\)", {"y": [[0.5]]}),
    (r"probabilities of layer 'y' must lie in \[0, 1\], got values from -0.5 to 1.5", {"y": [[[1.5, -0.5, 0]]]}),
    ("probabilities for layer 'y' must sum to 1 over 3 labels, got 0.75", {"y": [[[0.5, 0.25, 0]]]}),
    ("probabilities for layer 'x' must sum to 1 over 2 labels, got 2", {"x": torch.ones(1, 1, 4, 2)}),
    (
        r"layer 'x' must be shaped \(batch, 1, 4\), or with probabilities of its 2 labels .* got \(2, 4\)",
        {"x": np.ones((2, 4))},
    ),
    (r"layer 'x' must be shaped \(batch, 1, 4\).* got \(2, 4, 1\)", {"x": torch.zeros(2, 4, 1)}),
    (r"layer 'x' must be shaped \(batch, 1, 4\).* got \(2, 1, 4, 3\)", {"x": torch.zeros(2, 1, 4, 3)}),
    (r"layer 'y' must be shaped \(batch, 1\).* got \(2,\)", {"y": torch.zeros(2)}),
    (r"layer 'y' must be shaped \(batch, 1\).* got \(\)", {"y": 1}),
    ("layer 'x' is empty: a batch of 0 samples", {"x": torch.zeros(0, 1, 4)}),
    ("one batch size for all layers, got {'x': 2, 'h': 3}", {"x": torch.zeros(2, 1, 4), "h": torch.zeros(3, 2)}),
    ("evidence for layer 'x' is not a numeric array", {"x": "inputs"}),
    ("evidence for layer 'x' is not a numeric array", {"x": None}),
    ("evidence for layer 'x' is not a numeric array", {"x": np.array([["a"]])}),
    ("evidence for layer 'x' is not a numeric array", {"x": [[0, 1], [0]]}),
    ("evidence for layer 'x' is complex", {"x": torch.zeros(2, 1, 4, dtype=torch.complex64)}),
    (
        r"mask for layer 'h' must be boolean \(True = seen\), got torch.int64",
        {"h": Observed([[1, 0]], [[1, 1]])},
    ),
    (r"mask for layer 'h' must be shaped \(1, 2\), got \(1, 1\)", {"h": Observed([[1, 0]], [[True]])}),
    (r"mask for layer 'h' must be shaped \(1, 2\), got \(2, 2\)", {"h": Observed([[1, 0]], torch.ones(2, 2) > 0)}),
    (
        r"mask for layer 'y' must be shaped \(1, 1\), got \(1, 1, 3\)",
        {"y": Observed([[[1, 0, 0]]], torch.ones(1, 1, 3) > 0)},
    ),
    ("the mask for layer 'h' is not a numeric array", {"h": Observed([[1, 0]], "all")}),
    ("the mask for layer 'h' marks entries as seen whose value is NaN", {"h": Observed([[NAN, 0]], [[True, True]])}),
]


@pytest.mark.parametrize(("message", "given"), ERRORS)
def test_evidence_that_does_not_fit_says_why(model, message, given):
    with pytest.raises(EvidenceError, match=message):
        model.condition(given)


def test_a_seen_entry_is_checked_though_others_are_missing(model):
    with pytest.raises(EvidenceError, match=r"got values from 0 to 1\.5"):
        model.condition(
            {"x": Observed(torch.tensor([[[1.5, 9.0, 0.0, 0.0]]]), torch.tensor([[[True, False, True, True]]]))}
        )
    with pytest.raises(EvidenceError, match=r"must sum to 1 over 3 labels, got 0\.9"):
        model.condition({"z": torch.tensor([[[[0.9, 0.0, 0.0], [NAN, 0.0, 0.0]]]])})


def test_what_is_masked_is_missing():
    model = LGM(zoo.rbm(visible=2, hidden=1))
    for values in ([[1.0, 0.0]], [[1, 0]]):
        masked = np.ma.masked_array(values, mask=[[False, True]])
        (clamp,) = model.condition({"visible": masked}).clamps.values()
        assert clamp.free is not None
        assert clamp.free.tolist() == [[False, True]]


def test_half_precision_with_a_layer_partly_observed():
    model = LGM(zoo.rbm(visible=3, hidden=2), generator=torch.Generator().manual_seed(0)).float()
    seen = {"visible": torch.tensor([[1.0, 0.0, torch.nan]])}
    expected = infer(model, seen, mean_field(3)).log_z
    found = infer(model.half(), seen, mean_field(3)).log_z
    torch.testing.assert_close(found.float(), expected, rtol=0.02, atol=0.02)
