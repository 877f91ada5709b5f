"""Folders that one process at a time may write to."""

import subprocess
import sys
import threading

from torchlgm._utils.lock import dir_lock

LOCKS = "import sys, pathlib; from torchlgm._utils.lock import dir_lock\n"
TRIES = LOCKS + "with dir_lock(pathlib.Path(sys.argv[1])) as ours: print(ours)"


def by_another_process(folder):
    """Whether another process gets the lock now."""
    done = subprocess.run([sys.executable, "-c", TRIES, str(folder)], capture_output=True, text=True, check=True)
    return done.stdout.strip() == "True"


def test_a_folder_is_locked_once(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    with dir_lock(folder) as first, dir_lock(folder) as second:
        assert first
        assert not second
        assert not by_another_process(folder)
    with dir_lock(folder) as again:
        assert again
    assert by_another_process(folder)
    assert not any(folder.iterdir())  # the lock is beside it


def test_a_folder_that_is_gone_is_not_locked(tmp_path):
    with dir_lock(tmp_path / "gone") as ours:
        assert not ours


def test_a_lock_goes_with_its_folder(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    with dir_lock(folder) as ours:
        assert ours
        folder.rmdir()
    assert not any(tmp_path.iterdir())


def test_waiting_for_a_folder(tmp_path):
    folder, order = tmp_path / "run", []
    folder.mkdir()

    def wait():
        with dir_lock(folder, wait=True) as ours:
            order.append(("waited", ours))

    with dir_lock(folder):
        thread = threading.Thread(target=wait)
        thread.start()
        thread.join(0.2)
        order.append("first")
    thread.join(10)
    assert order == ["first", ("waited", True)]
