"""Figures are drawn on stand-in data."""

import pytest
import torch
from experiments.paper import figures
from experiments.paper.cells import find_cell
from experiments.paper.figures import CELLS
from experiments.paper.model_cards import save_model
from experiments.paper.report.page import report
from experiments.paper.store import Store

from torchlgm import LGM, zoo


def pages(store):
    """All pages below each other."""
    return "\n".join(report(store).values())


RUN = {"accuracy": 0.1, "epochs": 20, "best_epoch": 20, "cap": 20, "seconds": 1.0, "machine": "none"}

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.usefixtures("single_precision")


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


@pytest.fixture
def draw(store, images):
    """Draws all figures: which are there, and what was logged."""

    def drawn():
        logged = []
        failed = figures.draw(store, str(images), logged.append)
        paths = {path.name: path for path in (store.folder / "figures").iterdir()}
        assert failed == len(figures.DRAWINGS) - len(paths)
        return paths, logged

    return drawn


def test_figures_that_need_a_model_say_how_to_train_it(draw, tmp_path):
    paths, logged = draw()
    assert {"graph-local.png", "requantised.png", "soft-clamping.png"} <= paths.keys()
    (line,) = [line for line in logged if line.startswith("silhouettes:")]
    for name in ("LGM", "LGM+fill"):
        assert f"experiments.paper train exp_partial_input_fm --cells 'Local (0.3)/{name}' --column ours" in line
    assert sum(line.endswith(f"--out {tmp_path}") for line in logged) == 4
    assert "ambiguous.png" not in paths


def test_the_command_fails_where_a_figure_could_not_be_drawn(paper, tmp_path):
    code, _, err = paper("figures")
    assert code == 1
    assert "5 figures could not be drawn" in err
    assert (tmp_path / "results" / "figures" / "soft-clamping.png").exists()


def test_a_damaged_model_ends_no_other_figure(draw, store):
    cell = find_cell(CELLS["ambiguous"][0])
    save_model(LGM(zoo.windows("local")), cell, RUN, store)
    folder = store.model_folder(cell)
    (folder / "weights.safetensors").write_bytes(b"damaged")
    paths, logged = draw()
    assert "soft-clamping.png" in paths
    (line,) = [line for line in logged if line.startswith("ambiguous:")]
    assert f"delete {folder} and train it again: python -m experiments.paper train exp_partial_input_m" in line
    command = "python -m experiments.paper train exp_partial_input_m --cells 'Local (0.7)/LGM+fill'"
    assert f"needs the model of a training: {command}" in line


def test_beliefs_fill_what_was_not_seen(draw, store):
    for name in CELLS["silhouettes"] + CELLS["ambiguous"]:
        store.add(find_cell(name), 0, RUN)
        save_model(LGM(zoo.windows("local")), find_cell(name), RUN, store)
    paths, _ = draw()
    assert paths["silhouettes.png"].stat().st_size > 10_000
    assert paths["ambiguous.png"].read_bytes().startswith(b"\x89PNG")
    text = pages(store)
    assert "(../images/paper/silhouettes.png)" in text
    assert "LGM+fill (Local, LBP, sweep, T=1) has a test accuracy of 0.1000." in text
    assert "calibration.png" not in text
    model, cell = figures._models("ambiguous", store)[0]
    x = torch.full((2, 1, 28, 28), 0.25)
    x[:, :, 14:] = torch.nan
    filled, probs = figures._believed(model, cell, x)
    assert torch.equal(filled[:, :, :14], x[:, :, :14])
    assert filled.isfinite().all()
    torch.testing.assert_close(probs.sum(1), torch.ones(2))
