import gzip
import os
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from torchlgm.data import read_idx, write_idx
from torchlgm.errors import DataError

DTYPES = ["uint8", "int8", "int16", "int32", "float32", "float64"]


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(DTYPES).flatmap(
        lambda dtype: npst.arrays(dtype, npst.array_shapes(max_dims=4, min_side=0, max_side=5))
    ),
    st.sampled_from(["", ".gz"]),
)
def test_round_trip(tmp_path_factory, array, suffix):
    path = tmp_path_factory.mktemp("idx") / f"array{suffix}"
    write_idx(path, array)
    back = read_idx(path, ndim=array.ndim)
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


def test_bytes_on_disk_are_the_documented_ones(tmp_path):
    write_idx(tmp_path / "a", np.array([[1, -2, 3]], dtype=np.int16))
    assert (tmp_path / "a").read_bytes() == bytes.fromhex("00000b02 00000001 00000003 0001 fffe 0003")


def test_big_endian_arrays_are_written_alike(tmp_path):
    write_idx(tmp_path / "a", np.array([1, 2], dtype=">i4"))
    assert read_idx(tmp_path / "a").tolist() == [1, 2]


def test_gzip_is_recognised_by_content(tmp_path):
    write_idx(tmp_path / "a.gz", np.arange(4, dtype=np.uint8))
    (tmp_path / "a.gz").rename(tmp_path / "a")
    assert read_idx(tmp_path / "a").tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("array", [np.array(["a"]), np.array([1], dtype=np.int64), np.uint8(3)[()] * np.ones(())])
def test_unwritable_arrays(tmp_path, array):
    with pytest.raises(DataError, match="idx holds arrays of uint8"):
        write_idx(tmp_path / "a", array)


def test_an_array_is_written_whole_or_not_at_all(tmp_path):
    (tmp_path / "a").mkdir()
    with pytest.raises(DataError, match="a: cannot be written"):
        write_idx(tmp_path / "a", np.arange(4, dtype=np.uint8))
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


GOOD = struct.pack(">HBB2I", 0, 0x08, 2, 2, 3) + bytes(6)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not an idx file.*empty file"),
        (b"\0\0\x08", "not an idx file.*00 00 08"),
        (b"\x89PNG" + bytes(20), "not an idx file.*89 50 4e 47"),
        (b"\0\0\x0a\x01" + bytes(20), "not an idx file"),
        (b"\0\0\x08\0" + bytes(20), "not an idx file"),
        (GOOD[:10], "cut short.*header of 12 bytes.*got 10"),
        (GOOD[:-1], "cut short.*expected 6 bytes.*got 5"),
        (GOOD + b"\0", "trailing bytes.*expected 6 bytes.*got 7"),
        (struct.pack(">HBB3I", 0, 0x0E, 3, *[2**32 - 1] * 3) + bytes(8), "cut short"),
        (gzip.compress(GOOD, mtime=0)[:-6], "damaged gzip"),
        (gzip.compress(GOOD, mtime=0)[:12] + b"\xff" * 20, "damaged gzip"),
        (gzip.compress(GOOD[:-1], mtime=0), "cut short"),
    ],
)
def test_damaged_files(tmp_path, content, message):
    path = tmp_path / "damaged-idx"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read_idx(path)
    assert "damaged-idx" in str(caught.value)


def test_wrong_number_of_dimensions(tmp_path):
    (tmp_path / "a").write_bytes(GOOD)
    with pytest.raises(DataError, match=r"expected 3 dimensions, got 2, sizes \(2, 3\)"):
        read_idx(tmp_path / "a", ndim=3)


def test_missing_file(tmp_path):
    with pytest.raises(DataError, match="nowhere: cannot be read"):
        read_idx(tmp_path / "nowhere")


@pytest.mark.mnist
def test_real_mnist():
    folder = os.path.join(os.environ["TORCHLGM_DATA"], "mnist")
    images = read_idx(os.path.join(folder, "train-images-idx3-ubyte.gz"), ndim=3)
    labels = read_idx(os.path.join(folder, "train-labels-idx1-ubyte.gz"), ndim=1)
    assert images.shape == (60000, 28, 28)
    assert images.dtype == np.uint8
    assert labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert np.bincount(labels).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
