import numpy as np
import pytest
import torch
from PIL import Image

from helpers.processes import run_code
from torchlgm import viz, zoo
from torchlgm.errors import DataError, MissingExtraError
from torchlgm.viz import canvas


@pytest.fixture
def figure():
    return viz.draw_graph(zoo.rbm(3, 2))


def test_save_writes_a_whole_picture(figure, tmp_path):
    path = tmp_path / "graph.PNG"
    path.write_text("old")
    viz.save(figure, str(path))
    with Image.open(path) as picture:
        assert picture.format == "PNG"
        picture.load()
        width, height = picture.size
        opacity = picture.getchannel("A").getextrema()
        ink = min(colour for _, colour in picture.getcolors(2**16) if colour[3] == 255)
    assert width > height > 100
    assert opacity == (0, 255)
    assert 100 < min(ink[:3]) < 140, "text is neither black nor white"
    assert {text.get_color() for text in figure.axes[0].texts} == {"black"}, "the figure stays as it was"
    assert [entry.name for entry in tmp_path.iterdir()] == ["graph.PNG"]
    other = tmp_path / "other"
    other.touch()
    assert path.stat().st_mode == other.stat().st_mode


@pytest.mark.parametrize(("kind", "start"), [("pdf", b"%PDF-"), ("svg", b"<?xml")])
def test_save_as_vectors(figure, tmp_path, kind, start):
    viz.save(figure, tmp_path / f"graph.{kind}")
    assert (tmp_path / f"graph.{kind}").read_bytes().startswith(start)


def test_save_where_nothing_can_be_written(figure, tmp_path):
    (tmp_path / "file").write_text("kept")
    (tmp_path / "taken.png").mkdir()
    for path in (tmp_path / "none" / "a.png", tmp_path / "file" / "a.png", tmp_path / "taken.png"):
        with pytest.raises(DataError, match=r"\.png: cannot be written \("):
            viz.save(figure, path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "taken.png"]
    assert (tmp_path / "file").read_text() == "kept"
    assert not list((tmp_path / "taken.png").iterdir())


def test_save_interrupted_leaves_the_old_picture(figure, tmp_path, monkeypatch):
    path = tmp_path / "graph.png"
    path.write_text("old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(canvas.os, "replace", fail)
    with pytest.raises(DataError, match="No space left"):
        viz.save(figure, path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["graph.png"]
    assert path.read_text() == "old"


@pytest.mark.parametrize("name", ["graph", "graph.txt"])
def test_save_as_what_is_no_picture(figure, tmp_path, name):
    with pytest.raises(DataError, match=r"ends in \.png, \.pdf, \.svg"):
        viz.save(figure, tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_without_matplotlib(without):
    without("matplotlib")
    for draw in (lambda: viz.draw_graph(zoo.rbm(3, 2)), lambda: viz.hidden_responses(torch.ones(1, 1, 1))):
        with pytest.raises(MissingExtraError, match=r"needs matplotlib.*pip install 'torchlgm\[cli\]'"):
            draw()


def test_matplotlib_is_loaded_late_and_pyplot_never(tmp_path):
    script = """
import sys
from torchlgm import viz, zoo
assert not any(name.startswith("matplotlib") for name in sys.modules)
viz.save(viz.draw_graph(zoo.rbm(3, 2)), sys.argv[1])
viz.save(viz.learning_curves([{"train_loss": 1.0}]), sys.argv[1])
assert "matplotlib.pyplot" not in sys.modules
"""
    done = run_code(script, tmp_path / "a.png")
    assert done.returncode == 0, done.stderr


def test_numbers_of_any_array():
    values = np.ma.array([[0.1, 0.7]], mask=[[False, True]])
    assert torch.equal(canvas.numbers("x", values, "(N, K)", missing=True).isnan(), torch.tensor([[False, True]]))
    backwards = np.array([[0.1, 0.7]], dtype=">f8")[:, ::-1]
    assert canvas.numbers("x", backwards, "(N, K)").tolist() == [[0.7, 0.1]]
