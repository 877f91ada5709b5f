"""What is read from files: how to make a good one, how to damage it, and how to read it and use what was read."""

import gzip
import hashlib
import io
import json
import random
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import torch

import torchlgm as lgm
from helpers.mutations import mutated
from helpers.networks import NET, XML
from helpers.runs import as_image, halves, write_table
from helpers.tiny_training import train
from torchlgm import data
from torchlgm.cli.classifier import Classifier, Inference
from torchlgm.cli.config import Config
from torchlgm.cli.describe import describe_run
from torchlgm.cli.evaluate import CURVE, MEASURES
from torchlgm.cli.predict import predict
from torchlgm.cli.report import print_facts
from torchlgm.cli.runs import Run
from torchlgm.cli.unlabelled import read_samples
from torchlgm.data.tables import read_parts
from torchlgm.interop.web import export_web, import_web
from torchlgm.learn.state import HEAD
from torchlgm.model.io import CARD
from torchlgm.networks import Network, read_bif, read_net, read_uai, read_uai_evidence, read_xmlbif

MEMORY = 2**28  # bytes that reading a small file may take
UAI = "MARKOV\n3\n2 2 3\n2\n2 0 1\n2 1 2\n\n4\n 0.5 1.5 2 0\n\n6\n 1 2 3 4 5 6\n"
BIF = """network "n" { }
variable rain { type discrete [ 2 ] { yes, no }; }
variable wet { type discrete [ 2 ] { yes, no }; property p = 3; }
probability ( rain ) { table 0.2, 0.8; }
probability ( wet | rain ) { (yes) 0.9, 0.1; (no) 0.1, 0.9; }
"""


@dataclass(frozen=True)
class Kind:
    """A kind of file or folder. `read` gives what a good one could hold, or raises an LGMError."""

    make: Callable[[Path], Any]  # into an empty folder
    read: Callable[[Path], Any]  # from that folder


def damage(folder: Path, draw: random.Random) -> None:
    """Change one of the files in a folder; of files with checksums, often so that these are right again."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock")
    file = draw.choice(files)
    file.write_bytes(mutated(file.read_bytes(), draw))
    if draw.random() < 0.7:
        _mend(file)


def _mend(file: Path) -> None:
    """Let a checksum beside a file be that of what is in it."""
    for head in (file.parent / CARD, file.parent / HEAD):
        if head.is_file() and file != head:
            content, new = json.loads(head.read_text()), hashlib.sha256(file.read_bytes()).hexdigest()
            content["sha256"] = new if isinstance(content["sha256"], str) else content["sha256"] | {file.name: new}
            head.write_text(json.dumps(content))


@contextmanager
def little_memory() -> Iterator[None]:
    """Have allocations fail that are much beyond what is there already."""
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _file(name: str, content: str | bytes) -> Callable[[Path], Any]:
    return lambda folder: (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)


def _graph(lateral: bool = True) -> lgm.Graph:
    layers = [lgm.Layer("a", (1, 5, 5)), lgm.Layer("b", (2, 2, 2)), lgm.Layer("c", 3, labels=3), lgm.Layer("d", 2)]
    listed = lgm.Sparse("c", "d", ((0, 0), (2, 1), (1, 0)))
    inside = [lgm.Conv("a", "a", kernel=3), lgm.Dense("c", "c")] if lateral else []
    return lgm.Graph(layers, [lgm.Conv("a", "b", kernel=3, stride=2), lgm.Dense("b", "c"), listed, *inside])


def _ask(model: lgm.LGM) -> None:
    first = model.graph.layers[0]
    if model.graph.edges * max(layer.labels for layer in model.graph.layers) < 10_000:
        beliefs = lgm.infer(model, {first.name: torch.zeros(1, *first.sizes, dtype=torch.long)}, lgm.lbp(2))
        assert all(bool(beliefs[name].probs.isfinite().all()) for name in beliefs)


def _build(folder: Path) -> None:
    graph = lgm.Graph.from_json((folder / "graph.json").read_text("utf-8", "replace"))
    graph.summary()
    if graph.edges < 10_000:
        _ask(lgm.LGM(graph))


def _samples(name: str, shape: tuple[int, ...]) -> Callable[[Path], Any]:
    return lambda folder: read_samples(folder / name, SimpleNamespace(shape=shape))  # pyright: ignore


def _save_png(folder: Path) -> None:
    for name, x in zip(("dark", "light"), halves(2)[0], strict=True):
        (folder / name).mkdir()
        as_image(x, folder / name / "1.png", x > 0.5)
        as_image(x, folder / name / "2.png")


def _save_npz(folder: Path) -> None:
    x, y = halves(20)
    np.savez(folder / "a.npz", x=x, y=y)


def _save_packed(folder: Path) -> None:
    x, y = halves(20)
    np.savez_compressed(folder / "a.npz", x=(x * 255).astype(np.uint8), y=y)


def _save_run(folder: Path) -> None:
    classifier = Classifier(lgm.LGM(lgm.zoo.dense((1, 3, 3), (2,), 3)), Inference(), ("a", "b", "c"))
    classifier.save(folder / "run" / "model")
    row = {"visible": 1.0} | {f"{name}{more}": 0.5 for name in MEASURES for more in ("", "_std")}
    seed = {"seed": 0, "epochs": 2, "seconds": 0.1, "best": {"epoch": 1, "valid_loss": 0.2}, "test": [row]}
    rows = [row | {"visible": share} for share in CURVE]
    metrics = {
        "samples": {"train": 50, "valid": 10, "test": 20},
        "test_checksum": 1234,
        "most_frequent": 0.1,
        "chosen_seed": 0,
        "filling": {"visible": 0.3, "error": 0.2, "mean_error": 0.3},
        "test": {"lgm": rows, "network": rows},
        "seeds": {"lgm": [seed], "network": [seed]},
    }
    (folder / "run" / "config.json").write_text(Config(data="digits", visible=(0.3, 1.0)).to_json())
    (folder / "run" / "metrics.json").write_text(json.dumps(metrics))
    np.save(folder / "a.npy", np.zeros((2, 3, 3)))


def _read_run(folder: Path) -> None:
    with redirect_stdout(io.StringIO()):
        print_facts(describe_run(folder / "run"))
    classifier = Run.load(folder / "run").classifier()
    if classifier.model.graph.edges < 10_000:
        rows = predict(folder / "run", folder / "a.npy")
        assert all(np.isfinite(p) for row in rows for p in row["probs"].values())


def _save_estimator(folder: Path) -> None:
    draw = np.random.default_rng(0)
    X = np.column_stack([draw.normal(size=40), draw.integers(0, 3, 40)])
    lgm.LGMClassifier(hidden=3, epochs=1, n_members=2, random_state=0).fit(X, X[:, 0] > 0).save(folder / "c")


def _read_estimator(folder: Path) -> None:
    classifier = lgm.LGMClassifier.load(folder / "c")
    probs = classifier.predict_proba(np.array([[0.1, np.nan], [5.0, 1.0]]))
    assert np.isfinite(probs).all()


def _save_parquet(folder: Path) -> None:
    draw = np.random.default_rng(0)
    columns = {"x": draw.random(60), "n": draw.integers(0, 9, 60), "is": draw.random(60) < 0.5, "y": np.arange(60) % 3}
    pd.DataFrame(columns).to_parquet(folder / "a.parquet", row_group_size=20)


def _read_parquet(folder: Path) -> None:
    for x, y in data.ParquetRows(folder / "a.parquet", "y", inputs=["x", "n", "is"]):
        assert not bool(((x < 0) | (x > 1)).any())
        assert int(y.min()) >= -1


def _read_tables(folder: Path) -> None:
    data.load_table(folder / "a.parquet")
    for _ in read_parts(folder / "a.parquet", 7, True, ()):
        pass


def _network(name: str, text: str, read: Callable[[Path], Network]) -> Kind:
    def ask(folder: Path) -> None:
        network = read(folder / name)
        answers = network.posteriors({}), network.posteriors(np.array([[0] + [-1] * (len(network.labels) - 1)]))
        for answer in answers:
            possible = answer.log_evidence.isfinite()
            assert bool(possible.any()) or answer is answers[1]
            assert all(bool(answer[name][possible].isfinite().all()) for name in network.variables)

    return Kind(_file(name, text), ask)


def _read_config(folder: Path) -> None:
    file = folder / "config.json"
    Config.from_dict({"data": "digits"} | Config.read_options(file), str(file)).for_images()


def _save_web(folder: Path) -> None:
    export_web(lgm.Posterior(lgm.LGM(_graph(lateral=False)), lgm.lbp(1), "a", "d"), folder / "a.safetensors")


def _read_web(folder: Path) -> None:
    web = import_web(folder / "a.safetensors")
    graph = web.posterior.model.graph
    if graph.edges < 10_000:
        probs = web.posterior(torch.zeros(1, *graph.layer(web.about["inputs"][0]).sizes)).exp()
        assert bool(probs.isfinite().all())


KINDS = {
    "config": Kind(
        lambda folder: (folder / "config.json").write_text(Config(data="digits", visible=(0.3, 1.0)).to_json()),
        _read_config,
    ),
    "web model": Kind(_save_web, _read_web),
    "graph": Kind(lambda folder: (folder / "graph.json").write_text(_graph().to_json()), _build),
    "model": Kind(
        lambda folder: lgm.save(lgm.LGM(_graph()), folder / "m"), lambda folder: _ask(lgm.load(folder / "m"))
    ),
    "npy": Kind(lambda folder: np.save(folder / "a.npy", halves(20)[0]), _samples("a.npy", (1, 6, 6))),
    "npz": Kind(_save_npz, lambda folder: data.load(folder / "a.npz")),
    "packed npz": Kind(_save_packed, _samples("a.npz", (1, 6, 6))),
    "png": Kind(_save_png, lambda folder: data.load(folder)),
    "csv": Kind(lambda folder: write_table(folder / "a.csv"), lambda folder: data.load_table(folder / "a.csv")),
    "idx": Kind(
        lambda folder: data.write_idx(folder / "a", np.zeros((9, 4, 4), np.uint8)),
        lambda folder: data.read_idx(folder / "a"),
    ),
    "packed idx": Kind(
        lambda folder: data.write_idx(folder / "a.gz", np.arange(200, dtype=np.int16).reshape(20, 10)),
        lambda folder: data.read_idx(folder / "a.gz"),
    ),
    "parquet": Kind(_save_parquet, _read_parquet),
    "parquet table": Kind(_save_parquet, _read_tables),
    "uai": _network("a.uai", UAI, read_uai),
    "uai evidence": Kind(
        _file("a.evid", "2\n1 0 1\n2 0 1 2 0\n"), lambda folder: read_uai_evidence(folder / "a.evid", read_uai(UAI))
    ),
    "bif": _network("a.bif", BIF, read_bif),
    "xmlbif": _network("a.xml", XML, read_xmlbif),
    "net": _network("a.net", NET, read_net),
    "packed bif": Kind(_file("a.bif.gz", gzip.compress(BIF.encode())), lambda folder: read_bif(folder / "a.bif.gz")),
    "run": Kind(_save_run, _read_run),
    "training state": Kind(
        lambda folder: train(folder / "t", epochs=1, reporters=[]),
        lambda folder: train(folder / "t", resume=True, epochs=1, reporters=[]),
    ),
    "estimator": Kind(_save_estimator, _read_estimator),
}
