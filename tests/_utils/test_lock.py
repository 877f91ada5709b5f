"""Folders that one process has for itself."""

from torchlgm._utils.lock import dir_lock


def test_a_folder_is_held_once(tmp_path):
    with dir_lock(tmp_path) as first, dir_lock(tmp_path) as second:
        assert first
        assert not second
    with dir_lock(tmp_path) as again:
        assert again


def test_a_folder_that_is_gone_is_not_ours(tmp_path):
    with dir_lock(tmp_path / "gone") as ours:
        assert not ours
