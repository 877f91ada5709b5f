"""What is written appears complete or not at all, and leaves nothing else behind."""

import os
import sys
from pathlib import Path

import pytest

from torchlgm._utils.atomic import atomic_dir, atomic_write, recover_dir, remove_parts, replace_dir
from torchlgm.errors import CheckpointError, DataError


def names_in(folder):
    return {path.name for path in folder.iterdir()}


def fail(*_):
    raise OSError(28, "No space left on device")


def test_a_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    atomic_write(path, b"old")
    atomic_write(path, b"new")
    assert path.read_bytes() == b"new"
    monkeypatch.setattr("torchlgm._utils.atomic.os.replace", fail)
    with pytest.raises(DataError, match=r"file: cannot be written \(No space left on device\)"):
        atomic_write(path, b"newer")
    assert path.read_bytes() == b"new"
    assert names_in(tmp_path) == {"file"}


def test_a_file_in_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    atomic_write(Path("file"), b"new")
    assert names_in(tmp_path) == {"file"}


def test_links_are_followed_and_pipes_written_to(tmp_path):
    path, link, pipe = (tmp_path / name for name in ("file", "link", "pipe"))
    path.write_bytes(b"old")
    link.symlink_to(path)
    atomic_write(link, b"new")
    assert link.is_symlink()
    assert path.read_bytes() == b"new"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    atomic_write(pipe, b"through")
    assert os.read(end, 100) == b"through"
    os.close(end)
    assert pipe.is_fifo()


def test_a_linked_folder_is_replaced_again_and_again(tmp_path):
    (tmp_path / "real").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "real")
    for text in ("one", "two", "three"):
        with replace_dir(link) as new:
            (new / "text").write_text(text)
    assert link.is_symlink()
    assert (recover_dir(link) / "text").read_text() == "three"
    assert names_in(tmp_path) == {"link", "real"}


@pytest.mark.parametrize("there", [False, True])
def test_a_new_folder(tmp_path, there):
    path = tmp_path / "above" / "folder"
    if there:
        path.mkdir(parents=True)
    with atomic_dir(path) as part:
        (part / "file").touch()
        assert path.exists() == there
    assert names_in(path) == {"file"}
    assert names_in(path.parent) == {"folder"}


@pytest.mark.parametrize(
    ("error", "told"), [(OSError(28, "Full"), DataError), (ZeroDivisionError(), ZeroDivisionError)]
)
def test_a_new_folder_that_fails(tmp_path, error, told):
    with pytest.raises(told), atomic_dir(tmp_path / "folder") as part:  # noqa: PT012
        (part / "file").touch()
        raise error
    assert names_in(tmp_path) == set()


def test_a_new_folder_takes_no_other_place(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "kept").touch()
    with pytest.raises(DataError, match="folder: cannot be written"), atomic_dir(tmp_path / "folder"):
        pass
    assert names_in(tmp_path) == {"folder"}
    assert names_in(tmp_path / "folder") == {"kept"}


def test_a_folder_takes_the_place_of_an_older_one(tmp_path):
    path = tmp_path / "above" / "folder"
    for name in ("old", "new"):
        with replace_dir(path) as new:
            (new / name).touch()
    assert names_in(path) == {"new"}
    assert names_in(path.parent) == {"folder"}
    assert recover_dir(path) == path


@pytest.mark.parametrize("error", [OSError(28, "Full"), CheckpointError("cannot write to it")])
def test_the_older_folder_outlives_a_failure(tmp_path, error):
    path = tmp_path / "folder"
    path.mkdir()
    (path / "old").touch()
    with pytest.raises(CheckpointError, match="cannot write to"), replace_dir(path) as new:  # noqa: PT012
        (new / "new").touch()
        raise error
    assert names_in(path) == {"old"}
    assert names_in(tmp_path) == {"folder"}


def test_a_file_is_never_replaced_by_a_folder(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="is a file; name a folder"), replace_dir(tmp_path / "file"):
        pass
    assert names_in(tmp_path) == {"file"}


def test_the_older_folder_is_found_after_a_crash_between_the_renames(tmp_path):
    (tmp_path / ".folder.old").mkdir()
    assert recover_dir(tmp_path / "folder") == tmp_path / ".folder.old"
    (tmp_path / "folder").mkdir()
    assert recover_dir(tmp_path / "folder") == tmp_path / "folder"


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_content_is_on_the_disk_before_it_gets_its_name(tmp_path, monkeypatch):
    done = []
    monkeypatch.setattr(
        "os.fsync", lambda handle: done.append(os.path.basename(os.readlink(f"/proc/self/fd/{handle}")))
    )
    for name in ("rename", "replace"):
        move = getattr(os, name)
        monkeypatch.setattr(os, name, lambda a, b, move=move, **_: (done.append("moved"), move(a, b))[1])
    with replace_dir(tmp_path / "folder") as new:
        (new / "file").touch()
    assert done == ["file", ".folder.new", "moved", tmp_path.name]
    done.clear()
    atomic_write(tmp_path / "text", b"1")
    assert done[0].endswith(".part")
    assert done[1:] == ["moved", tmp_path.name]


def test_what_killed_processes_left_is_deleted(tmp_path):
    for name in (".a.1234.part", "b.part", ".c"):
        (tmp_path / name).touch()
    remove_parts(tmp_path)
    assert names_in(tmp_path) == {"b.part", ".c"}
