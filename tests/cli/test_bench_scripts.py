"""The scripts in benchmarks/: every entry runs, counts are right, and the page is written from results."""

import json
import sys
from pathlib import Path

import pytest
import torch

import torchlgm as lgm

SCRIPTS = Path(__file__).parents[2] / "benchmarks"
pytestmark = pytest.mark.usefixtures("single_precision")


@pytest.fixture(autouse=True)
def _scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))


def run_script(monkeypatch, name, *arguments):
    module = __import__(name)
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    module.main()


def test_results_become_a_page(tmp_path, monkeypatch, capsys):
    file, page = tmp_path / "results.json", tmp_path / "docs" / "page.md"
    entries = ("sweep", "floor", "memory", "ensemble", "growth", "serving")
    monkeypatch.setattr("subjects.KINDS", ("dense",))
    for entry in ("sweep", "floor", "serving"):
        monkeypatch.setattr(f"entries.{entry}.KINDS", ("dense",))
    monkeypatch.setattr("entries.ensemble.CASES", (("dense", lgm.lbp(1)),))
    run_script(monkeypatch, "gpu", "--device", "cpu", "--quick", "--json", file, "--only", *entries)
    assert "needs a GPU: it reads PyTorch's allocator" in capsys.readouterr().out
    found = json.loads(file.read_text())
    assert [name for name in entries if "rows" in found[name]] == ["sweep", "floor", "ensemble", "growth", "serving"]
    assert found["floor"]["rows"][0]["worst gradient error"] < 1e-3
    tried = tmp_path / "tried.md"
    tried.write_text("## What was tried\n\nThis and that.\n")
    run_script(monkeypatch, "page", "--gpu", file, "--later", tmp_path / "none", "--out", page, "--tried", tried)
    text = page.read_text()
    assert "| 3 models in one step, Dense, batch 4, one sweep " in text
    assert "| train step, Dense, batch 2, one sweep " in text
    assert text.endswith("This and that.\n")
    for picture in ("roofline", "growth"):
        assert (page.parent / "images" / f"benchmarks-{picture}.png").stat().st_size > 1000


def test_a_wrong_answer_is_not_timed(monkeypatch):
    from entries import Setting, train

    monkeypatch.setattr("entries.train.KINDS", ("dense",))
    monkeypatch.setattr("subjects.reference", lambda work, x, y: (1.0, __import__("subjects").gradient(work, x, y)[1]))
    (row,) = train.run(Setting(torch.device("cpu"), quick=True))["rows"]
    assert "differ from float64" in row["incorrect"]
    assert "lgm ms" not in row


def test_messages_are_counted():
    """784 - 3 - 1 with 10 classes, TRW, T = 1: worked out by hand."""
    from entries.floor import existing, messages, widths
    from subjects import images, lgm_predictor

    from torchlgm.inference.engine import wiring_of
    from torchlgm.inference.plan import build
    from torchlgm.inference.schedule import Hop

    work = lgm_predictor(lgm.zoo.dense((1, 28, 28), (3,)), lgm.lbp(1))
    x, _ = images(2, torch.device("cpu"))
    mrf = work.condition(x)
    wiring = wiring_of(mrf)
    plan = build(wiring, [lgm.lbp(1).schedule(wiring).first], ("classes",))
    assert existing(mrf.links[0]) == 3
    batch, k = 5, 9
    sends = [step for step in plan.steps if hasattr(step, "hop")]
    assert [step.hop for step in sends] == [Hop(0, 0, "hidden", "classes")]
    assert set(widths(mrf, dict(enumerate(plan.steps)), batch).values()) == {batch}
    need = messages(mrf, plan, batch)
    assert need.edge_samples == 3 * batch
    assert need.special == 2 * 3 * 2 * (k + 1) * batch
    belief, table, inflow = 3 * (1 + batch), 3 * k, k * batch
    assert need.bytes == 4 * ((belief + table + inflow) + (belief + table + inflow) + (belief + table))


def test_masked_edges_do_not_count():
    from entries.floor import existing
    from subjects import images, lgm_predictor

    work = lgm_predictor("local")
    x, _ = images(2, torch.device("cpu"))
    links = work.condition(x).links
    assert [existing(link) for link in links] == [16 * 5 * 5 * 6 * 25, 400 * 100, 100]


def test_names_of_kernels_are_short():
    from entries.profiled import short

    assert short("send_backward") == "send_backward"
    name = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, x>(int, float)"
    assert short(name).startswith("vectorized_elementwise_kernel")
    assert "<" not in short(name)


def test_larger_models_are_searched_for(monkeypatch, images, tmp_path, capsys):
    file = tmp_path / "larger.json"
    chosen = ("--only", "mf3", "lbp2", "--data-set", "mnist", "--device", "cpu", "--tiny", "--data", images)
    run_script(monkeypatch, "larger", *chosen, "--out", file)
    found = json.loads(file.read_text())
    assert [run["name"] for run in found["runs"]] == ["mf3", "lbp2"]
    assert {row["how"] for row in found["together"]} == {"product", "mean"}
    assert not found["failed"]
    assert "test_accuracy" in capsys.readouterr().out


def test_the_page_of_larger_models_has_the_figures_of_its_results():
    root = Path(__file__).parents[2]
    page = (root / "docs" / "larger.md").read_text()
    runs = json.loads((root / "benchmarks" / "results" / "larger-h200.json").read_text())["runs"]
    for run in runs:
        row = next(line for line in page.splitlines() if line.startswith(f"| {run['name']} |") and _of(run, line))
        assert f"| {run['test_accuracy']:.4f} | {run['train_accuracy']:.4f} |" in row


def _of(run, line):
    return f"| {run['valid_loss']:.4f} | {run['valid_accuracy']:.4f} |" in line


@pytest.mark.parametrize(("joint", "calls", "crossings"), [(False, 260, 52), (True, 400, 66)])
def test_a_training_step_makes_few_calls(joint, calls, crossings):
    """So that what a small model costs is arithmetic."""
    from calls import count_calls, training_step

    step = training_step(joint)
    with lgm.backend("native"):
        step()
        counted = count_calls(step)
    assert 100 < counted.total <= calls, counted.functions.most_common(20)
    assert 10 < counted.crossed <= crossings, counted.crossings
    assert counted.functions["ops: send"] == counted.functions["ops: send_backward"] > 0


def test_costs_are_counted_and_compared():
    import cost

    counts = {(row["model"], row["method"]): row for row in cost.counted()}
    local = counts["local", "one sweep"]
    assert local["messages"] == 1
    assert local["special functions"] == pytest.approx(8, rel=0.01)  # binary nodes, forward and backward
    assert local["edges"] == local["edges of seen pixels"] + local["edges between free nodes"]
    alone = {"processes": 1, "averaging": [], "steps": []}
    four = {"processes": 4, "averaging": [], "steps": []}
    for kind, _ in cost.TRAINED:
        alone["steps"] += [
            {"model": kind, "batch": b, "cpu ms": 1 + b / 64, "wall ms": 9.0, "sent": 0} for b in cost.BATCHES
        ]
        four["averaging"].append({"model": kind, "floats": 1000, "cpu ms": 0.5})
        four["steps"].append({"model": kind, "batch": cost.GLOBAL_BATCH, "cpu ms": 3.0, "wall ms": 9.0, "sent": 24_000})
    rows = cost.compared([alone, four])
    assert [row["expected, ms"] for row in rows] == pytest.approx([5.0, 2.5] * len(cost.TRAINED))
    assert rows[1]["expected kB"] == rows[1]["sent kB"] == 24
    many = {row["model"]: row for row in cost.projected()}
    assert many["local"]["64 GPUs at most, s"] > many["local"]["64 GPUs if captured, s"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_costs_are_measured():
    import cost

    found = [cost.in_processes(n, rounds=1) for n in (1, 2)]
    for row in cost.compared(found):
        assert row["sent kB"] == pytest.approx(row["expected kB"], rel=0.3, abs=50)
        assert row["measured, ms"] > 0
