"""The engine of the playground, in node, gives the answers of torchlgm."""

import json
import os
import shutil
import subprocess
from importlib.resources import files
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

import torchlgm as lgm
from helpers.problems import PROBLEMS, evidence_for, model_of
from torchlgm import explain, joint
from torchlgm.baselines import network
from torchlgm.interop import Examples, export_web
from torchlgm.interop.web import describe_method
from torchlgm.sklearn import LGMClassifier
from torchlgm.sklearn.web import export_web as export_classifier

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None and "TORCHLGM_NEEDS_BROWSER" not in os.environ, reason="needs node")
SCHEDULES = ("sweep", "sequential", "parallel")
METHODS = (
    *(make(3, schedule) for make, schedule in product((lgm.lbp, lgm.trw, lgm.mean_field), SCHEDULES)),
    *(make(4, schedule, damping=0.3) for make, schedule in product((lgm.lbp, lgm.mean_field), SCHEDULES)),
    lgm.trw(2, "sequential", divide_by_rho=False),
    lgm.lbp(1),
)
SMALL = 1e-5


def ask(questions, tmp_path):
    file = tmp_path / "questions.json"
    file.write_text(json.dumps(questions))
    command = [NODE, Path(__file__).with_name("answers.mjs"), files("torchlgm") / "interop" / "web" / "page", file]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.fixture
def exactly(monkeypatch):
    """Energies are written in single precision, so that answers can be compared."""
    monkeypatch.setattr("torchlgm.interop.web.export.ROUNDING", 0.0)


def plain(values):
    """Numbers, None for NaN."""
    return [None if np.isnan(x) else x for x in np.asarray(values, dtype=float).flatten().tolist()]


def spelled(model, evidence, sample):
    """Evidence of a sample as the engine takes it."""
    clamps = model.condition(evidence).clamps
    q = {name: clamp.q if clamp.free is None else clamp.q.masked_fill(clamp.free[..., None], torch.nan)
         for name, clamp in clamps.items()}  # fmt: skip
    return {name: plain(x[sample]) for name, x in q.items()}


def close(found, expected, what=None, atol=SMALL):
    np.testing.assert_allclose(np.asarray(found, float), np.asarray(expected, float).flatten(), atol=atol, err_msg=what)


def test_beliefs_of_every_method_connection_and_number_of_labels(exactly, tmp_path):
    questions, expected = [], []
    for number, problem in enumerate(p for p in PROBLEMS if not any(c.is_lateral for c in p.graph.connections)):
        model = model_of(problem).float()
        file = str(tmp_path / f"{problem.name}.safetensors")
        export_web(lgm.Posterior(model, lgm.lbp(1), target=target_of(problem)), file)
        for turn, kind in enumerate(("hard", "soft", "missing", "double")):
            evidence = evidence_for(problem, kind)
            for at, method in enumerate(METHODS):
                if (at + number + turn) % 3:  # each method with each problem, and with each kind of evidence
                    continue
                sample = (number + at) % 3
                asked = {"kind": "infer", "model": file, "evidence": spelled(model, evidence, sample)}
                questions.append(asked | {"method": describe_method(method)})
                with torch.no_grad():
                    beliefs = lgm.infer(model.double(), evidence, method)
                names = {n: beliefs[n].probs[sample if len(beliefs[n].probs) > 1 else 0] for n in beliefs}
                expected.append((f"{problem.name} {kind} {method}", names))
    for found, (what, names) in zip(ask(questions, tmp_path), expected, strict=True):
        for name, probs in names.items():
            close(found[name], probs, f"{what} {name}")


AWKWARD = {
    "one dimension": (lgm.Layer("v", (2, 7), 3), lgm.Layer("h", (2, 3), 4), lgm.Conv("v", "h", 3, 2)),
    "rectangles": (
        lgm.Layer("v", (1, 6, 7)), lgm.Layer("h", (2, 3, 4)), lgm.Conv("v", "h", (2, 3), (2, 2), ((0, 0), (1, 1))),
    ),
    "dilated": (lgm.Layer("v", (1, 7, 7), 6), lgm.Layer("h", (2, 3, 3)), lgm.Local("v", "h", 3, 1, 0, 2)),
    "three dimensions": (
        lgm.Layer("v", (1, 3, 4, 3)), lgm.Layer("h", (2, 2, 2, 2), 3), lgm.Local("v", "h", 2, (1, 2, 1)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("scale", ["energy", "balanced", "rho"])
def test_windows_of_every_form_and_scale(scale, exactly, tmp_path):
    """Also tables that rho tells apart, which the file does not share between positions."""
    questions, expected = [], []
    for name, (visible, hidden, connection) in AWKWARD.items():
        graph = lgm.Graph((visible, hidden, lgm.Layer("c", 1, 7)), (connection, lgm.Dense("h", "c")))
        model = lgm.LGM(graph, lgm.Init(1.0, scale=scale), generator=torch.Generator().manual_seed(5)).float()
        file = str(tmp_path / f"{name}.safetensors")
        export_web(lgm.Posterior(model, lgm.lbp(1)), file)
        labels = torch.randint(visible.labels, (1, *visible.sizes), generator=torch.Generator().manual_seed(6)).double()
        evidence = {"v": labels.masked_fill(torch.arange(visible.nodes).reshape(labels.shape) % 3 == 0, torch.nan)}
        for method in (lgm.lbp(2), lgm.trw(3), lgm.mean_field(2)):
            asked = {"kind": "infer", "model": file, "evidence": spelled(model, evidence, 0)}
            questions.append(asked | {"method": describe_method(method)})
            with torch.no_grad():
                expected.append((f"{name} {method}", lgm.infer(model.double(), evidence, method)))
    for found, (what, beliefs) in zip(ask(questions, tmp_path), expected, strict=True):
        for name in beliefs:
            close(found[name], beliefs[name].probs[0], f"{what} {name}")


def target_of(problem):
    return next(n for n in reversed(problem.graph.layer_names) if n != problem.graph.layers[0].name)


def small(graph, seed=3):
    model = lgm.LGM(graph, lgm.Init(table=1.0, unary=0.5), generator=torch.Generator().manual_seed(seed))
    return model.float()


MIXED = lgm.Graph(
    (lgm.Layer("a", 3), lgm.Layer("b", 2, 4), lgm.Layer("h", 5), lgm.Layer("classes", 1, 3)),
    (lgm.Dense("a", "h"), lgm.Dense("b", "h"), lgm.Dense("h", "classes")),
)
WINDOWS = lgm.zoo.windows("local", (1, 6, 6), (2, 3), (3, 2), (1, 2), hidden=4, classes=3, input_labels=3)


def holes(shape, seed=0, share=0.5):
    draw = torch.Generator().manual_seed(seed)
    x = torch.rand(shape, generator=draw, dtype=torch.float64)
    return x.masked_fill(torch.rand(shape, generator=draw) < share, torch.nan)


def test_beliefs_by_iteration(exactly, tmp_path):
    model, method = small(WINDOWS), lgm.trw(4, damping=0.2)
    posterior = lgm.Posterior(model, method)
    export_web(posterior, tmp_path / "m.safetensors")
    evidence = lgm.Posterior(model.double(), method).evidence(holes((1, 1, 6, 6)))
    question = {"kind": "trace", "model": str(tmp_path / "m.safetensors"), "evidence": spelled(model, evidence, 0)}
    (found,) = ask([question | {"method": describe_method(method), "target": "classes"}], tmp_path)
    expected = explain.trace(model, evidence, method, ["classes"])["classes"]
    assert len(found) == 4
    for one, probs in zip(found, expected, strict=True):
        close(one, probs[0])


@pytest.mark.parametrize(
    ("graph", "source"),
    [(WINDOWS, "inputs"), (MIXED, "b"), (lgm.zoo.classification_rbm(5, 4, 3), "visible")],
    ids=["windows", "mixed", "rbm"],
)
def test_what_moved_an_answer(graph, source, exactly, tmp_path):
    model, file = small(graph), str(tmp_path / "m.safetensors")
    export_web(lgm.Posterior(model), file)
    layer, target = graph.layer(source), graph.root
    labels = torch.randint(layer.labels, (1, *layer.sizes), generator=torch.Generator().manual_seed(1)).double()
    evidence = {source: labels.masked_fill(torch.arange(layer.nodes).reshape(labels.shape) % 3 == 0, torch.nan)}
    questions, expected = [], []
    model.double()
    for method in (
        lgm.lbp(1),
        lgm.lbp(3, damping=0.3),
        lgm.trw(6, "sequential"),
        lgm.mean_field(3),
        lgm.lbp(5, "parallel"),
    ):
        asked = {"model": file, "evidence": spelled(model, evidence, 0), "method": describe_method(method)}
        asked |= {"source": source, "target": target, "label": 1}
        groups = [[i] for i in range(layer.nodes)]
        questions += [asked | {"kind": "influence", "groups": groups}, asked | {"kind": "quick"}]
        for ask_python in (explain.influence, explain.quick_influence):
            expected.append((f"{ask_python.__name__} {method}", ask_python(model, evidence, source, target, method)[0]))
    for found, (what, moved) in zip(ask(questions, tmp_path), expected, strict=True):
        assert np.abs(found).max() > 0.01
        close(found, moved[..., 1].detach(), what)


def test_expected_information_gain(exactly, tmp_path):
    questions, expected = [], []
    for name, graph, method in (
        ("mixed", MIXED, lgm.lbp(1)),
        ("mixed2", MIXED, lgm.mean_field(2)),
        ("windows", WINDOWS, lgm.lbp(2)),
    ):
        model, file = small(graph), str(tmp_path / f"{name}.safetensors")
        export_web(lgm.Posterior(model, method), file)
        model.double()
        inputs = "a" if graph is MIXED else "inputs"
        posterior = lgm.Posterior(model, method, inputs)
        x = holes((1, *graph.layer(inputs).sizes), seed=4, share=0.8)
        nodes = [i for i, value in enumerate(x.flatten().tolist()) if np.isnan(value)]
        with torch.no_grad():
            gain = joint.acquire(posterior, x).flatten()[nodes]
        asked = {"kind": "gains", "model": file, "evidence": spelled(model, posterior.evidence(x), 0)}
        asked |= {"method": describe_method(method), "target": "classes"}
        asked |= {"candidates": [{"layer": inputs, "node": i} for i in nodes]}
        questions += [asked, asked | {"slowly": True}]
        expected += [gain, gain]
    found = ask(questions, tmp_path)
    for one, gain in zip(found, expected, strict=True):
        assert max(one) > 1e-4
        close(one, gain, atol=1e-6)


@pytest.mark.parametrize("labels", [2, 5])
def test_values_are_encoded_and_filled_in_as_in_python(labels, tmp_path):
    """In half precision, and at the temperature of the posterior."""
    graph = lgm.zoo.dense((1, 3, 3), [6], 4, input_labels=labels)
    posterior = lgm.Posterior(small(graph), lgm.lbp(2))
    posterior.temperature = 1.7
    written = export_web(posterior, tmp_path / "m.safetensors")
    assert 0 < written.difference < 0.005
    x = holes((1, 1, 3, 3), seed=2).float()
    asked = {"kind": "values", "model": str(written.path), "values": plain(x), "method": describe_method(lgm.lbp(2))}
    ((filled, probs),) = ask([asked], tmp_path)
    with torch.no_grad():
        close(np.where(x.isnan().flatten(), filled, x.flatten()), posterior.complete(x), atol=0.005)
        close(probs, posterior(x).exp(), atol=0.005)


@pytest.mark.parametrize("kind", ["dense", "conv", "local"])
@pytest.mark.parametrize("mask", [False, True])
def test_the_network_beside_it(kind, mask, tmp_path):
    torch.set_default_dtype(torch.float32)
    beside = network(kind, (1, 12, 12), 3, hidden=5, channels=(2, 3), activation="relu", mask_channel=mask)
    posterior = lgm.Posterior(lgm.LGM(lgm.zoo.dense((1, 12, 12), [3], 3)))
    written = export_web(posterior, tmp_path / "m.safetensors", network=beside)
    x = holes((1, 1, 12, 12)).float()
    (found,) = ask([{"kind": "network", "model": str(written.path), "values": plain(x)}], tmp_path)
    with torch.no_grad():
        close(found, beside(x).softmax(-1), atol=2e-3)


@pytest.mark.parametrize("members", [1, 2])
def test_tables_in_their_own_units(members, tmp_path):
    import pandas

    draw = np.random.default_rng(0)
    y = draw.integers(0, 3, 90)
    table = pandas.DataFrame(
        {"size": y + draw.normal(size=90), "colour": np.where(y == 1, "red", "blue"), "same": 7.0, "empty": np.nan}
    )
    classifier = LGMClassifier(epochs=1, n_members=members, random_state=0).fit(table, y)
    written = export_classifier(classifier, tmp_path / "m.safetensors", rows=table[:4], labels=y[:4])
    rows = [[0.3, "red", 7, None], [None, "blue", None, None], [None, None, None, None], [3.5, "green", 7, 1.5]]
    asked = {"kind": "row", "model": str(written.path), "method": describe_method(lgm.lbp(1))}
    found = ask([asked | {"row": row} for row in rows], tmp_path)
    frame = pandas.DataFrame(rows, columns=list(table)).astype({"size": float, "same": float, "empty": float})
    frame["colour"] = frame["colour"].replace("green", None)
    np.testing.assert_allclose(found, classifier.predict_proba(frame), atol=0.005)


def test_examples_come_back_as_they_were(tmp_path):
    """Grey values as bytes, and numbers of a table, which are no grey values, in full."""
    posterior = lgm.Posterior(small(lgm.zoo.dense(3, [2], 2)))
    for x in (
        torch.tensor([[0.0, 1.0, 51 / 255]]),
        torch.tensor([[13.5, 2.0, 1480.0]]),
        torch.tensor([[0.3, 0.5, torch.nan]]),
    ):
        written = export_web(posterior, tmp_path / "m.safetensors", examples=Examples(x, [1]))
        ((found,),) = ask([{"kind": "examples", "model": str(written.path)}], tmp_path)
        np.testing.assert_allclose([np.nan if v is None else v for v in found], x[0], rtol=1e-6)
        written.path.unlink()


def test_drawn_completions_keep_what_was_seen_and_repeat(exactly, tmp_path):
    model, file = small(MIXED), str(tmp_path / "m.safetensors")
    export_web(lgm.Posterior(model), file)
    evidence = {"b": [None, None, None, 0.0, 0.0, 1.0]}
    asked = {"kind": "draw", "model": file, "evidence": evidence, "method": describe_method(lgm.lbp(1)), "source": "b"}
    first, again, other = ask([asked | {"seed": seed} for seed in (1, 1, 2)], tmp_path)
    assert first == again
    for drawn in (first, other):
        assert drawn[3:] == [0, 0, 1]
        assert sum(drawn[:3]) in (0, 1)
        assert set(drawn) <= {0, 1}
    many = ask([asked | {"seed": seed} for seed in range(3, 403)], tmp_path)
    frequency = np.mean([drawn[:3] for drawn in many], 0)
    with torch.no_grad():
        probs = lgm.infer(model.double(), {"b": torch.tensor([[torch.nan, 3.0]])}, lgm.lbp(1), ["b"])["b"].probs
    np.testing.assert_allclose(frequency, probs[0, 0, 1:], atol=0.1)
