"""Saved models come back the same, and nothing else comes back at all."""

import errno
import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError

from helpers.problems import BY_NAME, model_of
from torchlgm import LGM, zoo
from torchlgm.errors import CheckpointError
from torchlgm.model import io as checkpoint
from torchlgm.model.io import CARD, GRAPH, WEIGHTS, load, load_with_card, save, sha256


def _same(a: LGM, b: LGM) -> bool:
    mine, theirs = a.state_dict(), b.state_dict()
    return mine.keys() == theirs.keys() and all(torch.equal(mine[k], theirs[k]) for k in mine)


def _model(seed: int = 0) -> LGM:
    return model_of(BY_NAME["star"], seed)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return save(_model(), tmp_path / "model")


def _rewrite_head(folder: Path, **changes: object) -> None:
    head = json.loads((folder / CARD).read_text())
    (folder / CARD).write_text(json.dumps(head | changes))


def _rehash(folder: Path) -> None:
    """What a forger would do."""
    _rewrite_head(folder, sha256={name: sha256((folder / name).read_bytes()) for name in (GRAPH, WEIGHTS)})


@pytest.mark.parametrize("scale", ["energy", "rho", "balanced"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["star", "conv", "local", "twin", "semi", "grid"])
def test_round_trip(tmp_path: Path, name: str, scale: str, dtype: torch.dtype):
    torch.set_default_dtype(dtype)
    model = LGM(BY_NAME[name].graph, "paper", scale)
    save(model, tmp_path / "model", {"accuracy": 0.9})
    torch.set_default_dtype(torch.float32)
    back, card = load_with_card(tmp_path / "model")
    assert _same(model, back)
    assert (back.graph, back.scale, card) == (model.graph, scale, {"accuracy": 0.9})
    for c in model.graph.connections:
        assert torch.equal(back.energies(c.name), model.energies(c.name))
        assert torch.equal(back.rho(c.name), model.rho(c.name))


def test_energies_outlive_the_scales_they_were_stored_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    model = LGM(BY_NAME["star"].graph, scale="balanced")
    save(model, tmp_path / "model")
    monkeypatch.setattr("torchlgm.model.init.INPUT", 7.0)
    back = load(tmp_path / "model")
    assert not torch.equal(back.table["inputs-hidden"], model.table["inputs-hidden"])
    for c in model.graph.connections:
        torch.testing.assert_close(back.energies(c.name), model.energies(c.name))


def test_default_dtype_is_left_alone(saved: Path):
    torch.set_default_dtype(torch.float32)
    assert load(saved).unary["classes"].dtype == torch.float64
    assert torch.get_default_dtype() == torch.float32


def test_replaces_an_older_model_and_leaves_nothing_else(saved: Path):
    save(_model(seed=1), saved)
    assert _same(load(saved), _model(seed=1))
    assert [p.name for p in saved.parent.iterdir()] == [saved.name]
    assert {p.name for p in saved.iterdir()} == {GRAPH, WEIGHTS, CARD}


def test_whoever_may_read_one_file_may_read_all(saved: Path):
    assert len({path.stat().st_mode for path in saved.iterdir()}) == 1


def test_makes_missing_folders(tmp_path: Path):
    assert _same(load(save(_model(), tmp_path / "a" / "b")), _model())


@pytest.mark.parametrize("size", [0, 7, 100, -1])
@pytest.mark.parametrize("name", [GRAPH, WEIGHTS])
def test_truncated(saved: Path, name: str, size: int):
    content = (saved / name).read_bytes()
    (saved / name).write_bytes(content[:size])
    with pytest.raises(CheckpointError, match=f"{name} is not the file that was saved"):
        load(saved)


@pytest.mark.parametrize("at", [0, 20, -1])
@pytest.mark.parametrize("name", [GRAPH, WEIGHTS])
def test_flipped_byte(saved: Path, name: str, at: int):
    content = bytearray((saved / name).read_bytes())
    content[at] ^= 1
    (saved / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=f"{name} is not the file that was saved"):
        load(saved)


@pytest.mark.parametrize("name", [GRAPH, WEIGHTS, CARD])
def test_missing_file(saved: Path, name: str):
    (saved / name).unlink()
    with pytest.raises(CheckpointError, match=f"{name} is missing"):
        load(saved)


def test_no_such_folder(tmp_path: Path):
    with pytest.raises(CheckpointError, match="no such folder"):
        load(tmp_path / "nothing")


def test_path_is_a_file(tmp_path: Path):
    file = tmp_path / "file"
    file.write_text("text")
    with pytest.raises(CheckpointError, match="is a file"):
        load(file)
    with pytest.raises(CheckpointError, match="is a file"):
        save(_model(), file)
    assert file.read_text() == "text"


def test_foreign_folder(tmp_path: Path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(CheckpointError, match="nothing saved by torchlgm"):
        load(tmp_path)


def test_folder_of_a_training_that_holds_a_model(tmp_path: Path):
    save(_model(), tmp_path / "model")
    with pytest.raises(CheckpointError, match=r"not the folder of a model, but holds one; load .*model$"):
        load(tmp_path)


def test_only_layered_models_are_saved(tmp_path: Path):
    wrong: Any = torch.nn.Linear(1, 1)
    with pytest.raises(CheckpointError, match="a model of type Linear cannot be saved; expected an LGM"):
        save(wrong, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_never_replaces_what_is_not_a_model(tmp_path: Path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(CheckpointError, match=r"holds other files \(notes.txt\)"):
        save(_model(), tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("text", ["{}", "[]", "3", '{"format": "other"}'])
def test_foreign_json(saved: Path, text: str):
    (saved / CARD).write_text(text)
    with pytest.raises(CheckpointError, match="does not describe a torchlgm model"):
        load(saved)


@pytest.mark.parametrize("text", ["", "{", "\x00", "[" * 100_000])
def test_broken_json(saved: Path, text: str):
    (saved / CARD).write_text(text)
    with pytest.raises(CheckpointError, match="cannot be read"):
        load(saved)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "model version 2; this torchlgm reads 1"),
        ({"scale": "phi"}, "is damaged"),
        ({"sha256": None}, "is damaged"),
        ({"card": []}, "is damaged"),
        ({"balanced": 3}, "is damaged"),
    ],
)
def test_other_head(saved: Path, change: dict[str, object], message: str):
    _rewrite_head(saved, **change)
    with pytest.raises(CheckpointError, match=message):
        load(saved)


def test_weights_of_another_graph(saved: Path, tmp_path: Path):
    other = save(LGM(zoo.rbm(3, 2)), tmp_path / "other")
    shutil.copy(other / WEIGHTS, saved / WEIGHTS)
    with pytest.raises(CheckpointError, match="not the file that was saved"):
        load(saved)
    _rehash(saved)
    with pytest.raises(CheckpointError, match="do not fit the model"):
        load(saved)


def test_weights_of_mixed_kinds(saved: Path):
    weights = _model().state_dict()
    weights["unary.classes"] = weights["unary.classes"].float()
    checkpoint.write_tensors(weights, saved / WEIGHTS)
    _rehash(saved)
    with pytest.raises(CheckpointError, match="of one kind"):
        load(saved)


@pytest.mark.parametrize("text", ["{}", "\xff", '{"format": "torchlgm.graph", "version": 1}'])
def test_foreign_graph(saved: Path, text: str):
    (saved / GRAPH).write_bytes(text.encode("latin-1"))
    _rehash(saved)
    with pytest.raises(CheckpointError, match=f"{GRAPH} does not describe a graph"):
        load(saved)


class _Bomb:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return Path.write_text, (self.target, "boom")


def test_a_pickle_is_not_run(saved: Path, tmp_path: Path):
    bomb = pickle.dumps(_Bomb(tmp_path / "crater"))
    (saved / WEIGHTS).write_bytes(bomb)
    _rehash(saved)
    with pytest.raises(CheckpointError, match="not a readable safetensors file"):
        load(saved)
    assert not (tmp_path / "crater").exists()
    pickle.loads(bomb)
    assert (tmp_path / "crater").exists(), "the bomb was a dud"


def test_card_must_be_jsonable(tmp_path: Path):
    with pytest.raises(CheckpointError, match="must be JSON-able"):
        save(_model(), tmp_path / "model", {"bad": object()})
    assert list(tmp_path.iterdir()) == []


def _fail(*args: object, **kwargs: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    "where",
    [
        "model.io.write_tensors",
        "model.io.as_json",
        "_utils.atomic.os.fsync",
        "_utils.atomic.Path.rename",
    ],
)
def test_full_disk_keeps_the_old_model(saved: Path, monkeypatch: pytest.MonkeyPatch, where: str):
    with monkeypatch.context() as patch:
        patch.setattr(f"torchlgm.{where}", _fail)
        with pytest.raises(CheckpointError, match=r"cannot write to .*No space left"):
            save(_model(seed=1), saved)
    assert [p.name for p in saved.parent.iterdir()] == [saved.name]
    assert _same(load(saved), _model())


def test_weights_that_cannot_be_written(saved: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object) -> None:
        raise SafetensorError("No space left on device (os error 28)")

    with monkeypatch.context() as patch:
        patch.setattr("safetensors.torch.save_file", full)
        with pytest.raises(CheckpointError, match=r"cannot write to .*No space left"):
            save(_model(seed=1), saved)
    assert [p.name for p in saved.parent.iterdir()] == [saved.name]
    assert _same(load(saved), _model())


def test_second_rename_fails(saved: Path, monkeypatch: pytest.MonkeyPatch):
    rename = Path.rename

    def fail_on_new(path: Path, target: Path) -> Path:
        return _fail() if path.name.endswith(".new") else rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", fail_on_new)
        with pytest.raises(CheckpointError, match="cannot write"):
            save(_model(seed=1), saved)
    assert [p.name for p in saved.parent.iterdir()] == [saved.name]
    assert _same(load(saved), _model())


class _Crash(BaseException):
    """Like kill -9: nothing that catches it tidies up."""


def _crash_at(call: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Die before the given one of the calls that change the disk at the end of a save."""
    calls = 0

    def counted(function):
        def wrapped(*args, **kwargs):
            nonlocal calls
            calls += 1
            if calls >= call:
                raise _Crash
            return function(*args, **kwargs)

        return wrapped

    monkeypatch.setattr(Path, "rename", counted(Path.rename))
    monkeypatch.setattr(shutil, "rmtree", counted(shutil.rmtree))
    monkeypatch.setattr(os, "fsync", counted(os.fsync))


@pytest.mark.parametrize("call", range(1, 10))
def test_crash_at_any_moment(saved: Path, monkeypatch: pytest.MonkeyPatch, call: int):
    with monkeypatch.context() as patch:
        _crash_at(call, patch)
        with pytest.raises(_Crash):
            save(_model(seed=1), saved)
    assert any(_same(load(saved), _model(seed)) for seed in (0, 1)), "neither the old nor the new model"
    save(_model(seed=2), saved)
    assert _same(load(saved), _model(seed=2))
    assert [p.name for p in saved.parent.iterdir()] == [saved.name], "litter of the crash"


def test_unwritable_place(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot write to"):
        save(_model(), tmp_path / "file" / "model")
