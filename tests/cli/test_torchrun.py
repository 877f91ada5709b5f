"""`torchrun -m torchlgm train`: the same model from any number of processes, and none hangs when one of them dies."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from helpers.processes import ROOT, environment
from helpers.runs import write_halves, write_table

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1")
PLAIN = ("--no-compare", "--no-pictures", "--hidden", "6")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]


def command(processes, folder, *options, data="halves.npz"):
    return [*TORCHRUN, f"--nproc-per-node={processes}", "-m", "torchlgm", "train", str(folder / data), *options]


def start(*arguments, **more):
    env = environment(GLOO_SOCKET_IFNAME="lo")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command(*arguments, **more), env=env, cwd=ROOT, **pipes)


def workers(process):
    """The processes that torchrun has started."""
    path = f"/proc/{process.pid}/task/{process.pid}/children"
    with open(path) as file:
        return [int(child) for child in file.read().split()]


def test_any_number_of_processes_gives_the_same_model(tmp_path):
    write_halves(tmp_path / "halves.npz", y=np.random.default_rng(0).integers(0, 2, 80))  # nothing to learn
    weights, epochs = [], []
    for processes in (1, 2, 4):
        run = tmp_path / f"run-{processes}"
        with start(processes, tmp_path, "--out", str(run), "--epochs", "40", "--patience", "3", *PLAIN) as process:
            said, _ = process.communicate(timeout=240)
        assert process.returncode == 0, said
        assert said.count("Everything is in") == 1
        tensors = load_file(run / "model" / "weights.safetensors")
        weights.append(torch.cat([tensors[name].flatten() for name in sorted(tensors)]))
        epochs.append(json.loads((run / "metrics.json").read_text())["seeds"]["lgm"][0]["epochs"])
    assert epochs[0] < 40, "stops early"
    assert len(set(epochs)) == 1
    for other in weights[1:]:
        torch.testing.assert_close(other, weights[0], rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "options", [("--epochs", "300"), ("--fill", "0.5", "--epochs", "10")], ids=["members", "single"]
)
def test_any_number_of_processes_gives_the_same_classifier_of_tables(tmp_path, options):
    write_table(tmp_path / "a.csv")
    weights, losses = [], []
    for processes in (1, 2, 4):
        run = tmp_path / f"run-{processes}"
        given = ("--out", str(run), *options, *PLAIN)
        with start(processes, tmp_path, *given, data="a.csv") as process:
            said, _ = process.communicate(timeout=240)
        assert process.returncode == 0, said
        assert said.count("Everything is in") == 1
        for name in ("model", "scored"):
            files = sorted((run / name).rglob("*.safetensors"))
            assert files
            tensors = [load_file(file) for file in files]
            weights.append(torch.cat([one[key].flatten() for one in tensors for key in sorted(one)]))
        losses.append((run / "log.csv").read_text().count("\n"))
    assert len(set(losses)) == 1, "stops at the same time"
    for i, other in enumerate(weights):
        torch.testing.assert_close(other, weights[i % 2], rtol=0, atol=1e-6)


def test_a_killed_process_ends_the_others_and_the_same_command_goes_on(tmp_path):
    write_halves(tmp_path / "halves.npz")
    run = tmp_path / "run"
    options = ("--out", str(run), "--epochs", "4000", "--patience", "4000", *PLAIN)
    with start(2, tmp_path, *options) as process:
        while process.poll() is None and not list(run.glob("training/lgm/*/state-00000[3-9]")):
            time.sleep(0.1)
        os.kill(workers(process)[-1], signal.SIGKILL)
        began = time.monotonic()
        said, _ = process.communicate(timeout=60)
    assert time.monotonic() - began < 60
    assert process.returncode != 0
    assert "another process of this training has ended" in said or "SIGKILL" in said or "Signal 9" in said, said
    (head,) = run.glob("training/lgm/*/state-*/training.json")
    before = json.loads(head.read_text())["progress"]["epoch"]
    assert before >= 1
    with start(1, tmp_path, *options) as process:
        while process.poll() is None:
            states = list(run.glob("training/lgm/*/state-*/training.json"))
            if states and _epoch(states[-1]) > before + 2:
                break
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=60)
    assert "already exists" not in said


def test_a_table_begins_again_when_the_first_process_was_killed(tmp_path):
    write_table(tmp_path / "a.csv")
    run = tmp_path / "run"
    with start(2, tmp_path, "--out", str(run), "--epochs", "3000", *PLAIN, data="a.csv") as process:
        while process.poll() is None and not (run / "config.json").exists():
            time.sleep(0.1)
        time.sleep(1)
        os.kill(workers(process)[0], signal.SIGKILL)
        said, _ = process.communicate(timeout=60)
    assert process.returncode != 0
    assert (run / "config.json").exists()
    with start(1, tmp_path, "--out", str(run), "--epochs", "2", *PLAIN, data="a.csv") as process:
        said, _ = process.communicate(timeout=60)
    assert "already exists" in said, "another training"
    with start(1, tmp_path, "--out", str(run), "--epochs", "3000", *PLAIN, data="a.csv") as process:
        said, _ = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert (run / "metrics.json").exists()


def _epoch(head):
    try:
        return json.loads(head.read_text())["progress"]["epoch"]
    except FileNotFoundError:  # replaced by a newer one
        return 0
