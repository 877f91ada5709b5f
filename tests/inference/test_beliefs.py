"""Beliefs: a mapping that says what was observed, what is believed, and what was not asked for."""

from collections.abc import Mapping

import pytest
import torch
from torch.testing import assert_close

import torchlgm as lgm
from helpers.problems import BY_NAME, CASES, DOUBLE, TREES, Case, by_case

SKIP = Case(BY_NAME["skip"], "missing")
METHODS = {
    "lbp": lgm.lbp(4),
    "trw": lgm.trw(4),
    "mean-field": lgm.mean_field(4),
    "tolerance": lgm.lbp(50, tolerance=1e-8),
    "exact": lgm.exact(),
}
EVERY_METHOD = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


@pytest.mark.pairs
@EVERY_METHOD
@pytest.mark.parametrize(**by_case(CASES))
def test_shapes_and_sums(case, method):
    beliefs = lgm.infer(case.model, case.evidence, method)
    batch = len(case.truth)
    assert isinstance(beliefs, Mapping)
    assert list(beliefs) == list(case.problem.graph.layer_names)
    for layer in case.problem.graph.layers:
        belief = beliefs[layer.name]
        assert belief.probs.shape == (batch, *layer.sizes, layer.labels)
        assert belief.labels.shape == belief.entropy.shape == (batch, *layer.sizes)
        assert_close(belief.probs.sum(-1), torch.ones(batch, *layer.sizes))
    assert beliefs.log_z.shape == beliefs.iterations.shape == beliefs.converged.shape == (batch,)


@EVERY_METHOD
@pytest.mark.parametrize("name", ["skip", "chain", "conv"])
def test_observed_nodes_are_believed_as_observed(name, method):
    problem = BY_NAME[name]
    for kind in ("hard", "soft", "missing"):
        case = Case(problem, kind)
        beliefs = lgm.infer(case.model, case.evidence, method)
        probs = beliefs[problem.observed].probs.flatten(1, -2)
        for sample, spelled in enumerate(case.spelled):
            for (layer, i), seen in spelled.seen.items():
                assert layer == problem.observed
                assert_close(probs[sample, i], torch.tensor(seen))


def test_beliefs_are_a_mapping():
    beliefs = lgm.infer(SKIP.model, SKIP.evidence)
    assert len(beliefs) == 3
    assert "c" in beliefs
    assert "unknown" not in beliefs
    assert dict(beliefs)["c"] is beliefs["c"]
    assert beliefs.get("unknown") is None
    assert repr(beliefs) == "Beliefs(v, h, c; batch 3)"


def test_unknown_names():
    beliefs = lgm.infer(SKIP.model, SKIP.evidence)
    with pytest.raises(KeyError, match="no layer 'classes'; the graph has v, h, c"):
        _ = beliefs["classes"]
    with pytest.raises(KeyError, match="no connection 'v-d'; the graph has v-h, h-c, v-c"):
        beliefs.edges("v-d")
    with pytest.raises(lgm.errors.InferenceError, match="want= names unknown layer 'classes'; the graph has v, h, c"):
        lgm.infer(SKIP.model, SKIP.evidence, want=["classes"])


@pytest.mark.parametrize("method", [lgm.lbp(4), lgm.mean_field(4), lgm.trw(9, tolerance=1e-3)])
def test_what_was_not_asked_for_is_refused(method):
    beliefs = lgm.infer(SKIP.model, SKIP.evidence, method, want=["c"])
    every = lgm.infer(SKIP.model, SKIP.evidence, method)
    assert list(beliefs) == ["c"]
    assert len(beliefs) == 1
    assert_close(beliefs["c"].probs, every["c"].probs)
    with pytest.raises(lgm.errors.InferenceError, match="the belief of 'h' was not asked for: add it to want="):
        _ = beliefs["h"]
    with pytest.raises(lgm.errors.InferenceError, match="log Z needs the beliefs of all layers: leave want= out"):
        _ = beliefs.log_z
    with pytest.raises(lgm.errors.InferenceError, match="an edge belief needs the beliefs of all layers"):
        beliefs.edges("h-c")


def test_want_as_a_string_and_observed_layers_for_free():
    soft = Case(BY_NAME["skip"], "soft")
    beliefs = lgm.infer(soft.model, soft.evidence, want="c")
    assert list(beliefs) == ["v", "c"]
    assert_close(beliefs["v"].probs[..., 1], soft.evidence["v"])
    assert beliefs.converged is None
    assert beliefs.residual is None
    assert beliefs.messages == {}
    assert beliefs.iterations.tolist() == [5, 5, 5]


def test_best_needs_max_product_and_everything():
    with pytest.raises(lgm.errors.InferenceError, match=r"map\(\) needs max-product or exact inference"):
        lgm.infer(SKIP.model, SKIP.evidence, lgm.lbp()).map()
    with pytest.raises(lgm.errors.InferenceError, match=r"map\(\) needs the beliefs of all layers"):
        lgm.infer(SKIP.model, SKIP.evidence, lgm.lbp(product="max"), want=["c"]).map()


def test_entropy_labels_and_log_probs():
    beliefs = lgm.infer(SKIP.model, SKIP.evidence, lgm.exact())
    probs = beliefs["c"].probs
    assert_close(beliefs["c"].entropy, -(probs * probs.log()).sum(-1))
    assert_close(beliefs["c"].log_probs, probs.log())
    assert torch.equal(beliefs["c"].labels, probs.argmax(-1))
    hard = Case(BY_NAME["skip"], "hard")
    seen = lgm.infer(hard.model, hard.evidence)["v"]
    assert torch.equal(seen.labels, hard.evidence["v"])
    assert_close(seen.entropy, torch.zeros(3, 2))
    assert seen.log_probs.isfinite().all()


def margins(joint, edge):
    return {edge.left: joint.sum(1), edge.right: joint.sum(0)}


@pytest.mark.pairs
@EVERY_METHOD
@pytest.mark.parametrize(
    **by_case([c for c in CASES if c.problem.name in ("chain", "conv", "local", "twin", "clique")] + DOUBLE)
)
def test_edge_beliefs_are_distributions(case, method):
    """Of observed and of partly observed connections as well; with the beliefs of both ends as margins where exact."""
    beliefs = lgm.infer(case.model, case.evidence, method)
    joints = {c.name: beliefs.edges(c.name) for c in case.problem.graph.connections}
    for sample, spelled in enumerate(case.spelled):
        for edge in spelled.edges:
            joint = joints[edge.connection][(sample, *edge.at)]
            assert joint.shape == (len(edge.table), len(edge.table[0]))
            assert_close(joint.sum(), torch.ones(()))
            consistent = method == lgm.exact() or edge.left in spelled.seen or edge.right in spelled.seen
            for (layer, i), margin in margins(joint, edge).items() if consistent else ():
                assert_close(margin, beliefs[layer].probs[sample].flatten(0, -2)[i])


@pytest.mark.parametrize("method", [lgm.lbp(500, "sweep", tolerance=1e-12), lgm.trw(500, "sweep", tolerance=1e-12)])
@pytest.mark.parametrize("name", ["chain", "conv", "clique"])
def test_edge_beliefs_have_the_right_margins_at_a_fixed_point(name, method):
    case = Case(BY_NAME[name], "missing")
    beliefs = lgm.infer(case.model, case.evidence, method)
    assert beliefs.converged.all()
    for sample, spelled in enumerate(case.spelled):
        for edge in spelled.edges:
            for (layer, i), margin in margins(beliefs.edges(edge.connection)[(sample, *edge.at)], edge).items():
                assert_close(margin, beliefs[layer].probs[sample].flatten(0, -2)[i], rtol=0, atol=1e-9)


@pytest.mark.parametrize(**by_case(TREES))
def test_edge_beliefs_on_trees(case):
    beliefs = lgm.infer(case.model, case.evidence, lgm.lbp(5, "sweep"))
    for sample, (spelled, truth) in enumerate(zip(case.spelled, case.truth, strict=True)):
        for edge, table in zip(spelled.edges, truth.edges, strict=True):
            assert_close(beliefs.edges(edge.connection)[(sample, *edge.at)], torch.tensor(table))


def test_mean_field_edges_are_products():
    case = Case(BY_NAME["chain"], "soft")
    beliefs = lgm.infer(case.model, case.evidence, lgm.mean_field(3))
    product = beliefs["g"].probs[:, :, None, :, None] * beliefs["h"].probs[:, None, :, None, :]
    assert_close(beliefs.edges("g-h"), product)


def test_answers_do_not_depend_on_what_was_asked_first():
    model, evidence = SKIP.model, SKIP.evidence
    first, last = lgm.infer(model, evidence, lgm.lbp(4)), lgm.infer(model, evidence, lgm.lbp(4))
    log_z, edges = first.log_z, first.edges("v-h")
    assert torch.equal(last.edges("v-h"), edges)
    assert torch.equal(last["c"].probs, first["c"].probs)
    assert torch.equal(last.log_z, log_z)


@EVERY_METHOD
@pytest.mark.parametrize("name", ["chain", "tree", "clique"])
def test_order_of_nodes_does_not_matter(name, method):
    """Nodes renamed within their layers, the energies with them: the same beliefs, renamed."""
    case = Case(BY_NAME[name], "missing")
    graph, model = case.problem.graph, case.model
    order = {layer.name: torch.randperm(layer.nodes) for layer in graph.layers}
    place = {name: at.argsort().tolist() for name, at in order.items()}
    connections = [
        lgm.Sparse(c.left, c.right, [(place[c.left][i], place[c.right][j]) for i, j in c.edges], name=c.name)
        if isinstance(c, lgm.Sparse)
        else c
        for c in graph.connections
    ]
    moved = lgm.LGM(lgm.Graph(graph.layers, connections, graph.root), init="zero")
    with torch.no_grad():
        for name_ in graph.layer_names:
            moved.unary[name_].copy_(model.unary[name_][order[name_]])
        for c in graph.connections:
            table = model.table[c.name]
            moved.table[c.name].copy_(table if isinstance(c, lgm.Sparse) else table[order[c.left]][:, order[c.right]])
    evidence = {n: values[:, order[n]] for n, values in case.evidence.items()}
    mine, theirs = lgm.infer(model, case.evidence, method), lgm.infer(moved, evidence, method)
    assert_close(mine.log_z, theirs.log_z)
    for name_ in mine:
        assert_close(mine[name_].probs[:, order[name_]], theirs[name_].probs)


@pytest.mark.parametrize("observed", [False, True])
@pytest.mark.parametrize("method", [lgm.lbp(2), lgm.mean_field(2), lgm.exact()], ids=["lbp", "mean field", "exact"])
def test_edges_over_the_border_have_no_belief(method, observed):
    graph = lgm.Graph((lgm.Layer("x", (1, 3)), lgm.Layer("y", (1, 3))), (lgm.Conv("x", "y", 3, padding=1),))
    beliefs = lgm.infer(lgm.LGM(graph), {"x": torch.rand(2, 1, 3)} if observed else {}, method)
    totals = beliefs.edges("x-y").sum((-2, -1)).reshape(-1, 3, 3)  # kernel, position
    exists = torch.tensor([[0.0, 1, 1], [1, 1, 1], [1, 1, 0]])
    torch.testing.assert_close(totals, exists.expand_as(totals))
