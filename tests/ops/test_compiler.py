"""Compiled code that can be trusted: kept in private, whole or not at all, and the same in threads and processes."""

import os
import platform
import shutil
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

import torchlgm as lgm
from helpers.processes import ROOT, python, run_code
from torchlgm.errors import InferenceError
from torchlgm.ops.backend import backend
from torchlgm.ops.native import compiler, launcher

COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]
NO_OPENMP = "cannot find -lomp"  # which clang has in a package of its own
ARM, QEMU = shutil.which("aarch64-linux-gnu-gcc"), shutil.which("qemu-aarch64-static")
pytestmark = pytest.mark.skipif(not COMPILERS, reason="needs gcc or clang")
STRICT = ("-Wall", "-Wextra", "-Werror")
ONE = "int one(void) { return 1; }\n"


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A small file of C, and a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "one.c"
    file.write_text(ONE)
    return file


def test_what_a_file_includes_is_part_of_its_address(source):
    header = source.with_suffix(".h")
    header.write_text("#define ONE 1\n")
    source.write_text('#include "one.h"\nint one(void) { return ONE; }\n')
    assert compiler.load(source).one() == 1
    name = compiler._name(source, (), "any")
    header.write_text("#define ONE 2\n")
    assert compiler.load(source).one() == 2
    assert compiler._name(source, (), "any") != name
    assert len(_kept()) == 2


def test_every_header_goes_with_a_source_that_includes_it():
    headers = {path.read_bytes() for path in compiler.FOLDER.glob("*.h")}
    sources = [compiler._source(compiler.FOLDER / file) for file, _ in compiler.VARIANTS]
    assert headers
    assert all(any(header in source for source in sources) for header in headers)


def _kept():
    return list(compiler.cache_folder().iterdir())


def test_the_cache_is_private(source):
    before = os.umask(0)
    try:
        assert compiler.load(source).one() == 1
    finally:
        os.umask(before)
    (kept,) = _kept()
    assert stat.S_IMODE(kept.parent.stat().st_mode) == stat.S_IMODE(kept.stat().st_mode) == 0o700


@pytest.mark.parametrize("damage", ["truncated", "foreign", "writable", "link", "empty"])
def test_what_is_not_ours_is_never_loaded(source, damage, monkeypatch, tmp_path):
    compiler.load(source)
    (kept,) = _kept()
    content = kept.read_bytes()
    if damage == "truncated":
        kept.write_bytes(content[:-100])
    elif damage == "foreign":
        kept.write_bytes(b"\x7fELF" + content[4:-1] + b"x")
    elif damage == "writable":
        kept.chmod(0o722)
    elif damage == "link":
        kept.rename(tmp_path / "elsewhere")
        kept.symlink_to(tmp_path / "elsewhere")
    else:
        kept.write_bytes(b"")
    loaded, load = [], compiler.ctypes.CDLL
    monkeypatch.setattr(compiler.ctypes, "CDLL", lambda path: (loaded.append(path), load(path))[1])
    assert compiler.load(source).one() == 1
    assert loaded
    assert str(kept) not in loaded
    compiler.load(source)
    assert loaded[-1] == str(kept), "it was written anew"


def test_a_folder_of_another_user_is_not_used(source, monkeypatch, caplog):
    monkeypatch.setattr(compiler.os, "getuid", lambda: 12345)
    assert compiler.load(source).one() == 1
    assert compiler.cache_folder() is None
    assert "belongs to another user" in caplog.text


def test_a_link_in_place_of_the_folder_is_not_used(source, caplog, tmp_path):
    folder, elsewhere = compiler.cache_folder(), tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    folder.rmdir()
    folder.symlink_to(elsewhere)
    assert compiler.load(source).one() == 1
    assert "is a link" in caplog.text
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o755, "it is left as it was"
    assert not list(elsewhere.iterdir())


def _compiler_that(does, tmp_path, monkeypatch):
    """One that does something with the file `$to` in place of compiling."""
    path = tmp_path / "cc"
    path.write_text(f'#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done; to="$2"\n{does}\n')
    path.chmod(0o700)
    monkeypatch.setenv("CC", str(path))


def test_what_a_compiler_made_is_not_kept_before_it_is_loaded(source, tmp_path, monkeypatch):
    _compiler_that('echo nonsense > "$to"', tmp_path, monkeypatch)
    with pytest.raises(compiler.NoLibrary, match="cannot be loaded"):
        compiler.load(source)
    assert not _kept()


def test_a_library_of_other_functions_is_refused(source, tmp_path, monkeypatch):
    _compiler_that(f'{COMPILERS[0]} -shared -fPIC -o "$to" {source}', tmp_path, monkeypatch)
    monkeypatch.setattr(compiler, "WITH_PACKAGE", tmp_path / "none")
    with pytest.raises(InferenceError, match="lacks its function job_size"):
        launcher.compiled(launcher.SOURCE, job_size=launcher._Job)


def test_libraries_of_the_package_need_no_compiler(source, monkeypatch, tmp_path):
    monkeypatch.setattr(compiler, "FOLDER", tmp_path)
    monkeypatch.setattr(compiler, "VARIANTS", ((source.name, ()),))
    monkeypatch.setattr(compiler, "WITH_PACKAGE", tmp_path / "compiled")
    names = compiler.compile_for_package(tmp_path / "compiled")
    assert len(names) == len(compiler.LEVELS[compiler.platform.machine()])
    monkeypatch.setattr(compiler, "find_compiler", None)
    assert compiler.load(source).one() == 1
    assert not _kept()
    source.write_text(ONE.replace("1", "2"))  # what was compiled is of another source now
    with pytest.raises(TypeError):
        compiler.load(source)


@pytest.mark.parametrize("name", COMPILERS)
@pytest.mark.parametrize(("file", "define"), compiler.VARIANTS)
def test_no_compiler_has_anything_to_say(name, file, define):
    command = [
        name,
        *compiler.FLAGS,
        *STRICT,
        *define,
        "-O0",
        *compiler.EXTRAS[0],
        "-fsyntax-only",
        compiler.FOLDER / file,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPILERS)
@pytest.mark.parametrize(("file", "define"), compiler.VARIANTS)
def test_nor_when_it_optimizes(name, file, define, monkeypatch, tmp_path):
    monkeypatch.setattr(compiler, "FLAGS", (*compiler.FLAGS, *STRICT))
    for extra in compiler.EXTRAS[:2]:
        try:
            compiler.compile_file(name, compiler.FOLDER / file, define, tmp_path / "made.so", [extra])
            break
        except compiler.NoLibrary as error:
            if NO_OPENMP not in str(error) or extra == compiler.EXTRAS[1]:
                raise


def _model(seed):
    graph = lgm.zoo.dense((1, 3, 3), (20 + seed,), 3)
    return lgm.LGM(graph, lgm.Init(0.5), generator=torch.Generator().manual_seed(seed))


def _answer(model):
    x = torch.rand(40, 1, 3, 3, generator=torch.Generator().manual_seed(1))
    with torch.no_grad(), backend("native"):
        return lgm.infer(model, {"inputs": x}, lgm.trw(3))["classes"].probs


def test_eight_threads_with_models_of_their_own():
    models = [_model(seed) for seed in range(8)]
    expected = [_answer(model) for model in models]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            for found, wanted in zip(pool.map(_answer, models), expected, strict=True):
                assert torch.equal(found, wanted)


IN_PROCESSES = """
    import os, signal, torch
    import torchlgm as lgm
    from torch.utils.data import DataLoader, Dataset
    from torchlgm.ops.backend import backend

    torch.set_num_threads(2)
    model = lgm.LGM(lgm.zoo.dense((1, 8, 8), (60,), 5))
    x = torch.rand(2000, 1, 8, 8)

    def ask():
        with torch.no_grad(), backend("native"):
            return lgm.infer(model, {"inputs": x}, lgm.trw(3))["classes"].probs

    class Answers(Dataset):
        def __len__(self):
            return 2

        def __getitem__(self, i):
            return ask()

    expected = ask()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        os._exit(0 if torch.equal(ask(), expected) else 1)
    assert os.waitpid(child, 0)[1] == 0, "in a process that was forked"
    for found in DataLoader(Answers(), batch_size=None, num_workers=2, timeout=60):
        assert torch.equal(found, expected), "in the worker of a loader"
"""


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_after_a_fork_and_in_workers_of_a_loader():
    done = run_code(IN_PROCESSES)
    assert done.returncode == 0, done.stderr


RUNTIMES = {"gcc": "libasan.so", "clang": f"libclang_rt.asan-{platform.machine()}.so"}
COMPUTING = ("ops/test_native.py", "ops/test_softplus.py", "sklearn/test_descent.py", "networks/test_solvers.py")


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPILERS)
def test_sanitizers_find_nothing(name, tmp_path):
    runtime, cpp = (_path_of(name, file) for file in (RUNTIMES[name], "libstdc++.so"))
    if not runtime.is_absolute():
        pytest.skip(f"{name} is here without its sanitizers")
    options = {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "halt_on_error=1", "XDG_CACHE_HOME": str(tmp_path)}
    tests = [ROOT / "tests" / file for file in COMPUTING]
    arguments = ("-m", "pytest", "-n", "0", "-p", "helpers.sanitized", *tests, "-k", "not Choice")
    done = python(*arguments, timeout=900, LD_PRELOAD=f"{runtime} {cpp}", CC=name, **options)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    made = {path.name.split("-")[0] for path in tmp_path.rglob("*.so")}
    assert made == {Path(file).stem for file, _ in compiler.VARIANTS}


def _path_of(name, file):
    done = subprocess.run([name, f"-print-file-name={file}"], capture_output=True, text=True, check=True)
    return Path(done.stdout.strip())


@pytest.mark.slow
@pytest.mark.skipif(not (ARM and QEMU), reason="needs a compiler for ARM, and qemu")
@pytest.mark.parametrize(("file", "define"), compiler.VARIANTS)
def test_the_same_numbers_on_arm(file, define, tmp_path):
    rtol, atol = (1e-9, 1e-11) if file == "buckets.c" or define == compiler.DOUBLE else (1e-4, 3e-5)
    here, there = (_numbers(file, define, *on, tmp_path) for on in ((COMPILERS[0],), (ARM, QEMU)))
    assert len(here) == len(there) > 100
    assert np.isfinite(here).all()
    assert here.std() > 0.1
    np.testing.assert_allclose(there, here, rtol, atol)


def _numbers(file, define, name, *emulator_and_folder):
    """What the driver of a file of C prints, compiled by a compiler and run, maybe by an emulator."""
    *emulator, folder = emulator_and_folder
    made, flags = folder / f"driver-{len(emulator)}", (name, *compiler.FLAGS, *define)
    driver = f"-I{compiler.FOLDER}", "-static", ROOT / "tests" / "ops" / "portable" / file, "-lm"
    for command in (
        (*flags, *STRICT, "-fopenmp", "-fPIC", "-shared", "-o", folder / "made.so", compiler.FOLDER / file),
        (*flags, "-o", made, *driver),
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), file
    done = subprocess.run([*emulator, made], capture_output=True, text=True, check=True)
    return np.array(done.stdout.split(), float)
