"""Libraries from files of C: those that came with the package, else one compiled once and kept in a private folder.

Uses the standard library alone, since the package is built with it, before PyTorch is there.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import re
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock
from time import monotonic

logger = logging.getLogger(__name__)
FOLDER = Path(__file__).parent
WITH_PACKAGE = FOLDER / "compiled"  # which a wheel has if there was a compiler when it was built
FLAGS = ("-std=gnu11", "-O2", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi")
OPENMP = ("-fopenmp",)
EXTRAS = (("-march=native", *OPENMP), ("-march=native",), OPENMP, ())  # the first that compile are taken
DOUBLE = ("-DDOUBLE",)
VARIANTS = (("native.c", ()), ("native.c", DOUBLE), ("softplus.c", ()), ("star.c", ()), ("buckets.c", ()))
# kinds of processors that libraries are made for when they go with the package, and what /proc/cpuinfo says of them
LEVELS: dict[str, dict[str, tuple[str, ...]]] = {
    "x86_64": {
        "x86-64-v4": ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx2", "fma", "bmi2"),
        "x86-64-v3": ("avx2", "fma", "bmi1", "bmi2", "f16c", "movbe"),
        "x86-64": (),
    },
    "aarch64": {"armv8-a": ()},
}
SUM = hashlib.sha256().digest_size  # bytes at the end of a library that is kept: the checksum of all before
_lock = Lock()


class NoLibrary(Exception):
    """There is none, and none can be made; says why."""


def _new_lock() -> None:
    """In a process that was forked while another thread held the lock."""
    global _lock
    _lock = Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_lock)


def load(file: Path, define: tuple[str, ...] = ()) -> ctypes.CDLL:
    """The library of a file of C, compiled if need be."""
    with _lock:
        for path in _with_package(file, define):
            try:
                return ctypes.CDLL(str(path))
            except OSError as error:  # such as of another C library
                logger.info("%s, which came with the package, cannot be loaded (%s)", path.name, error)
        return _kept_or_made(file, define)


def compile_for_package(folder: Path) -> list[str]:
    """Compile all files for all kinds of this machine's processors into `folder`; raises NoLibrary."""
    compiler = find_compiler()
    jobs = [(FOLDER / name, define, level) for name, define in VARIANTS for level in LEVELS.get(platform.machine(), {})]
    folder.mkdir(parents=True, exist_ok=True)
    for file, define, level in jobs:
        compile_file(compiler, file, define, folder / _name(file, define, level), [(f"-march={level}", *OPENMP)])
    return [_name(*job) for job in jobs]


def find_compiler() -> str:
    """The path of a C compiler; raises NoLibrary where there is none."""
    for name in (os.environ.get("CC"), "cc", "gcc", "clang"):
        if name and (path := shutil.which(name)):
            return path
    raise NoLibrary("no C compiler was found (cc, gcc, clang or $CC)")


def compile_file(
    compiler: str, file: Path, define: tuple[str, ...], to: Path, extras: Sequence[tuple[str, ...]] = EXTRAS
) -> None:
    """Compile a file of C, with the first of the `extras` that the compiler takes; raises NoLibrary."""
    message, start = "", monotonic()
    for extra in extras:
        command = [compiler, *FLAGS, *extra, *define, "-fPIC", "-shared", "-o", str(to), str(file)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NoLibrary(f"{compiler} could not be run ({error})") from error
        if done.returncode == 0:
            logger.info("compiled %s in %.1f s: %s", file.name, monotonic() - start, " ".join(command))
            return
        message = message or done.stderr.strip()
    raise NoLibrary(f"{compiler} could not compile {file.name}: {message[-2000:]}")


def _source(file: Path) -> bytes:
    """What a file of C says, and what the files beside it say that it includes."""
    content = file.read_bytes()
    included = re.findall(rb'^#include "(.+)"', content, re.MULTILINE)
    return b"".join([content, *[_source(file.with_name(name.decode())) for name in included]])


def _name(file: Path, define: tuple[str, ...], level: str) -> str:
    """Of a library that goes with the package: one of another source has another name."""
    key = hashlib.sha256(_source(file) + repr((FLAGS, OPENMP)).encode()).hexdigest()[:12]
    return f"{file.stem}{'-double' if define else ''}-{level}-{key}.so"


def _with_package(file: Path, define: tuple[str, ...]) -> Iterator[Path]:
    """The libraries of the package that this processor runs, the fastest first."""
    if WITH_PACKAGE.is_dir():
        has = set(_processor().split())
        for level, needed in LEVELS.get(platform.machine(), {}).items():
            path = WITH_PACKAGE / _name(file, define, level)
            if has.issuperset(needed) and path.is_file():
                yield path


def _kept_or_made(file: Path, define: tuple[str, ...]) -> ctypes.CDLL:
    compiler = find_compiler()
    known = "\n".join((compiler, *FLAGS, *define, repr(EXTRAS), platform.machine(), _processor()))
    name = f"{file.stem}-{hashlib.sha256(_source(file) + known.encode()).hexdigest()[:20]}.so"
    kept = cache_folder()
    if kept is not None and _is_whole(kept / name):
        try:
            return ctypes.CDLL(str(kept / name))
        except OSError as error:
            logger.info("%s cannot be loaded (%s), so it is compiled again", kept / name, error)
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch) / name
        logger.info("starting %s to compile %s, once for this machine", compiler, file.name)
        compile_file(compiler, file, define, made)
        try:
            library = ctypes.CDLL(str(made))
        except OSError as error:
            raise NoLibrary(f"what {compiler} made of {file.name} cannot be loaded ({error})") from error
        if kept is not None:
            _keep(made.read_bytes(), kept / name)
        return library


def cache_folder() -> Path | None:
    """Where compiled code is kept: a folder that nobody else can write to. None if it cannot be had."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "torchlgm" / "kernels"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if folder.is_symlink():
            logger.warning("%s is a link, so compiled code is not kept there", folder)
            return None
        folder.chmod(0o700)
        if _is_ours(folder):
            return folder
        logger.warning("%s belongs to another user, so compiled code is not kept there", folder)
    except (OSError, RuntimeError):  # nowhere to keep it
        pass
    return None


def _is_ours(path: Path) -> bool:
    """Whether this user owns it and nobody else can write to it."""
    about = path.lstat()
    return not hasattr(os, "getuid") or (about.st_uid == os.getuid() and not about.st_mode & 0o022)


def _keep(content: bytes, path: Path) -> None:
    """Write a library with its checksum behind it, so that there is a whole one or none."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700)
        with open(handle, "wb") as file:
            file.write(content + hashlib.sha256(content).digest())
        os.replace(part, path)
    except OSError as error:
        logger.info("%s cannot be kept (%s)", path, error)
        part.unlink(missing_ok=True)


def _is_whole(path: Path) -> bool:
    """Whether a library is ours and is what was written."""
    try:
        content = path.read_bytes() if _is_ours(path) and not path.is_symlink() else b""
    except OSError:
        return False
    return len(content) > SUM and hashlib.sha256(content[:-SUM]).digest() == content[-SUM:]


def _processor() -> str:
    """What `-march=native` depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
