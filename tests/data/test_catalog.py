"""Data sets by name; downloads come from a server on this machine."""

import hashlib
import os
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import numpy as np
import pytest
import torch
from requests import ReadTimeout

from torchlgm.data import catalog, load, names, paper_split, write_idx
from torchlgm.data.files import IDX_FILES
from torchlgm.errors import DataError, MissingExtraError


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format, *args):
        pass


def write_parts(folder, seed=0, suffix=".gz"):
    """Four tiny idx files: 12 training and 4 test images of 3x2 pixels."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    for part, count in (("train", 12), ("t10k", 4)):
        pixels = rng.integers(0, 256, (count, 3, 2), dtype=np.uint8)
        labels = np.arange(count, dtype=np.uint8) % 10
        write_idx(folder / f"{part}-images-idx3-ubyte{suffix}", pixels)
        write_idx(folder / f"{part}-labels-idx1-ubyte{suffix}", labels)
    return folder


def sums_of(folder):
    return tuple(hashlib.sha256((folder / f"{file}.gz").read_bytes()).hexdigest() for file in IDX_FILES)


@pytest.fixture(autouse=True)
def no_outside_world(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(
        catalog,
        "CATALOG",
        {name: replace(source, mirrors=("http://127.0.0.1:9/",)) for name, source in catalog.CATALOG.items()},
    )


@pytest.fixture
def server(tmp_path):
    """Serves tmp_path/"web"; yields (folder, base address)."""
    web = tmp_path / "web"
    web.mkdir()
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=web))
    thread = Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield web, f"http://127.0.0.1:{httpd.server_port}/"
    httpd.shutdown()
    thread.join()
    httpd.server_close()


def serve_mnist(monkeypatch, good, *mirrors):
    source = replace(catalog.CATALOG["mnist"], mirrors=mirrors, sums=sums_of(good))
    monkeypatch.setitem(catalog.CATALOG, "mnist", source)


def test_download_then_read_from_disk(server, tmp_path, monkeypatch, capfd):
    web, base = server
    serve_mnist(monkeypatch, write_parts(web / "good"), base + "good/")
    first = load("mnist", folder=tmp_path / "store")
    assert first.train.inputs.shape == (12, 1, 3, 2)
    assert first.test.targets.tolist() == [0, 1, 2, 3]
    assert first.train.classes == tuple("0123456789")
    stored = sorted(path.name for path in (tmp_path / "store" / "mnist").iterdir())
    assert stored == sorted(f"{file}.gz" for file in IDX_FILES)
    again = load("mnist", folder=tmp_path / "store", download=False)
    assert again.train.inputs.equal(first.train.inputs)
    assert capfd.readouterr() == ("", "")


def test_corrupt_and_absent_mirrors_are_passed_over(server, tmp_path, monkeypatch):
    web, base = server
    good = write_parts(web / "good")
    write_parts(web / "corrupt", seed=1)
    serve_mnist(monkeypatch, good, base + "corrupt/", base + "absent/", base + "good/")
    loaded = load("mnist", folder=tmp_path / "store")
    expected = load(good)
    assert loaded.train.inputs.equal(expected.train.inputs)


def test_only_missing_files_are_downloaded(server, tmp_path, monkeypatch):
    web, base = server
    serve_mnist(monkeypatch, write_parts(web / "good"), base + "good/")
    own = write_parts(tmp_path / "store" / "mnist", seed=5, suffix="")
    (own / IDX_FILES[3]).unlink()
    own_images = (own / IDX_FILES[0]).read_bytes()
    load("mnist", folder=tmp_path / "store")
    assert (own / IDX_FILES[0]).read_bytes() == own_images
    assert sorted(path.name for path in own.iterdir()) == sorted([*IDX_FILES[:3], f"{IDX_FILES[3]}.gz"])


def test_all_mirrors_fail(server, tmp_path, monkeypatch):
    web, base = server
    good = write_parts(tmp_path / "good")
    write_parts(web / "corrupt", seed=1)
    serve_mnist(monkeypatch, good, base + "corrupt/", base + "absent/", "http://127.0.0.1:9/")
    with pytest.raises(DataError) as caught:
        load("mnist", folder=tmp_path / "store")
    message = str(caught.value)
    assert all(f"{file}.gz" in message for file in IDX_FILES)
    assert f"into {tmp_path / 'store' / 'mnist'}, or name the folder that has them by $TORCHLGM_DATA" in message
    assert all(mirror in message for mirror in ("corrupt/", "absent/", "127.0.0.1:9/: no connection"))
    assert not list((tmp_path / "store" / "mnist").iterdir())


def test_a_mirror_that_does_not_answer(server, tmp_path, monkeypatch):
    from pooch import HTTPDownloader

    def wait_too_long(*_, **__):
        raise ReadTimeout("HTTPConnectionPool(host='127.0.0.1'): Read timed out.")

    monkeypatch.setattr(HTTPDownloader, "__call__", wait_too_long)
    serve_mnist(monkeypatch, write_parts(tmp_path / "good"), server[1])
    with pytest.raises(DataError, match=f"{server[1]}: no answer within {catalog._TIMEOUT_SECONDS} s"):
        load("mnist", folder=tmp_path / "store")


def test_no_download(tmp_path):
    with pytest.raises(DataError, match=r"download is off.*train-images-idx3-ubyte\.gz.*kmnist"):
        load("kmnist", folder=tmp_path, download=False)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("missing", ["pooch", "sklearn"])
def test_optional_libraries(missing, without, tmp_path, monkeypatch):
    without(missing)
    monkeypatch.delenv("TORCHLGM_DATA", raising=False)
    put, give = (
        r", or put train-images-idx3-ubyte\.gz, .* into .*mnist, or name .*\$TORCHLGM_DATA$",
        r", or give the folder of the files of mnist",
    )
    names_to_try = {"pooch": [("mnist", tmp_path, put), ("mnist", None, give)], "sklearn": [("digits", None, "$")]}
    for name, folder, instead in names_to_try[missing]:
        with pytest.raises(MissingExtraError, match=rf"needs {missing}.*pip install 'torchlgm\[cli\]'{instead}"):
            load(name, folder=folder)


@pytest.mark.parametrize("place", ["mnist", "."])
@pytest.mark.parametrize("suffix", [".gz", ""])
def test_found_below_or_in_the_folder(place, suffix, tmp_path):
    write_parts(tmp_path / place, suffix=suffix)
    assert len(load("mnist", folder=tmp_path, download=False).train) == 12


def test_environment_and_cache_folder(tmp_path, monkeypatch):
    write_parts(tmp_path / "env" / "mnist", seed=1)
    write_parts(tmp_path / "cache" / "mnist", seed=2)
    monkeypatch.setattr("pooch.os_cache", lambda name: tmp_path / "cache")
    monkeypatch.delenv("TORCHLGM_DATA", raising=False)
    from_cache = load("mnist", download=False).train.inputs
    monkeypatch.setenv("TORCHLGM_DATA", str(tmp_path / "env"))
    from_env = load("mnist", download=False).train.inputs
    assert from_cache.equal(load(tmp_path / "cache" / "mnist").train.inputs)
    assert from_env.equal(load(tmp_path / "env" / "mnist").train.inputs)


def test_files_of_another_data_set_are_not_taken(tmp_path, monkeypatch):
    write_parts(tmp_path)
    monkeypatch.setitem(catalog.CATALOG, "mnist", replace(catalog.CATALOG["mnist"], sums=sums_of(tmp_path)))
    assert load("mnist", folder=tmp_path, download=False).train.name == "mnist"
    with pytest.raises(DataError, match="fashion-mnist: not found"):
        load("fashion-mnist", folder=tmp_path, download=False)


def test_digits():
    digits = load("digits")
    assert digits.train.inputs.shape == (1437, 1, 8, 8)
    assert digits.test.inputs.shape == (360, 1, 8, 8)
    assert digits.train.inputs.max() == 1
    shares = digits.train.targets.bincount() / (digits.train.targets.bincount() + digits.test.targets.bincount())
    assert ((shares - 0.8).abs() < 0.01).all()
    assert load("digits").test.inputs.equal(digits.test.inputs)


def test_catalog_is_complete():
    assert names() == ("digits", "mnist", "fashion-mnist", "kmnist")
    for source in catalog.CATALOG.values():
        assert len(source.classes) == 10
        assert all(len(bytes.fromhex(checksum)) == 32 for checksum in source.sums)
    assert len({checksum for source in catalog.CATALOG.values() for checksum in source.sums}) == 12


def test_unknown_name():
    with pytest.raises(DataError, match=r"'imagenet' is neither a known data set .*kmnist"):
        load("imagenet")


def test_tables_in_memory_are_referred_elsewhere():
    table = pytest.importorskip("pandas").DataFrame({"a": [1, 2], "class": ["x", "y"]})
    with pytest.raises(DataError, match=r"a path, got DataFrame; .*LGMClassifier\(\)\.fit.* learn\.Samples"):
        load(table)


@pytest.mark.mnist
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_real_files_have_the_listed_sums_and_load(name):
    folder = os.path.join(os.environ["TORCHLGM_DATA"], name)
    for file, checksum in zip(IDX_FILES, catalog.CATALOG[name].sums, strict=True):
        with open(os.path.join(folder, f"{file}.gz"), "rb") as opened:
            assert hashlib.sha256(opened.read()).hexdigest() == checksum
    dataset = load(name, download=False)
    assert dataset.train.inputs.shape == (60000, 1, 28, 28)
    assert dataset.test.inputs.shape == (10000, 1, 28, 28)
    assert dataset.train.inputs.max() == 1
    train, validate = paper_split(dataset.train)
    assert (len(train), len(validate)) == (48000, 12000)
    assert torch.equal(validate.targets, dataset.train.targets[48000:])
