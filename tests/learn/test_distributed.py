"""Training over processes is training: the same losses as one process with the same batches."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from helpers.parallel_training import CLASSIFIERS, WAYS, classify, train, train_on
from helpers.processes import environment, python, run_code
from helpers.shared import shared_folder
from helpers.tiny_training import figures, weights
from torchlgm.errors import TrainingError
from torchlgm.learn.distributed import Group

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1")


class Outcome(NamedTuple):
    """What two processes wrote, and how they ended."""

    folder: Path
    code: int
    output: str

    def answer(self, rank: int) -> dict[str, Any]:
        return json.loads((self.folder / f"rank-{rank}.json").read_text())


@pytest.fixture(scope="session")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder = shared_folder(tmp_path_factory, "two-processes", train_in_two_processes)
    return Outcome(folder, *json.loads((folder / "outcome.json").read_text()))


def train_in_two_processes(folder: Path) -> None:
    with subprocess.Popen(
        [*TORCHRUN, "--nproc_per_node=2", "-m", "helpers.parallel_training", str(folder)],
        env=environment(GLOO_SOCKET_IFNAME="lo" if sys.platform == "linux" else "lo0"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        limit = threading.Timer(60, process.terminate)  # torchrun ends its processes, which ends the loop below
        limit.start()
        try:
            before = []
            for line in process.stdout:
                before.append(line)
                if line == "ready\n":
                    process.send_signal(signal.SIGINT)
                    break
            rest, _ = process.communicate(timeout=45)
        finally:
            limit.cancel()
            process.terminate()
    (folder / "outcome.json").write_text(json.dumps([process.returncode, "".join(before) + rest]))


def test_same_losses_as_one_process(outcome: Outcome, tmp_path: Path):
    assert (outcome.folder / "rank-0.json").exists(), outcome.output
    alone, result = train(tmp_path)
    for rank in (0, 1):
        answer = outcome.answer(rank)
        torch.testing.assert_close(torch.tensor(answer["weights"]), weights(alone), rtol=1e-10, atol=1e-10)
        for of_two, of_one in zip(answer["history"], figures(result), strict=True):
            assert of_two == pytest.approx(of_one, rel=1e-10)


@pytest.mark.parametrize("way", WAYS)
def test_same_weights_and_end_as_one_process(outcome: Outcome, way: str):
    alone, result = train_on(way)
    assert 1 < len(result.history) < 6, "stops early"
    found = outcome.answer(1)["ways"][way]
    torch.testing.assert_close(torch.tensor(found["weights"]), weights(alone), rtol=1e-9, atol=1e-9)
    for of_two, of_one in zip(found["history"], figures(result), strict=True):
        assert of_two == pytest.approx(of_one, rel=1e-9)


def test_processes_that_read_different_batches_are_told_so(outcome: Outcome):
    assert "the processes read different batches from the stream" in outcome.answer(0)["complaint"]
    assert "torchlgm.data.Shards" in outcome.answer(1)["complaint"]


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers_are_those_of_one_process(outcome: Outcome, name: str):
    alone = classify(**CLASSIFIERS[name])
    for rank in (0, 1):
        found = outcome.answer(rank)["classifiers"][name]
        assert len(found["losses"]) == len(alone["losses"])
        assert found["losses"] == pytest.approx(alone["losses"], rel=1e-5)
        torch.testing.assert_close(torch.tensor(found["weights"]), torch.tensor(alone["weights"]), rtol=0, atol=1e-6)


def test_classifiers_without_a_seed_are_the_same_in_all_processes(outcome: Outcome):
    assert outcome.answer(0)["without a seed"] == outcome.answer(1)["without a seed"]


def test_processes_with_different_data_models_or_settings_are_told_so(outcome: Outcome):
    for rank in (0, 1):
        of_classifier, of_fit, parameters, *others = outcome.answer(rank)["complaints"]
        assert "the 2 processes have different rows" in of_classifier
        assert "the 2 processes have different bars" in of_fit
        assert "the 2 processes have different parameters" in parameters
        assert len(others) == 4
        for other in others:
            assert "the 2 processes have different models, settings or kinds of data" in other


def test_all_processes_have_the_same_weights_and_figures(outcome: Outcome):
    assert outcome.answer(0) == outcome.answer(1)


def test_ctrl_c_in_one_process_stops_all_and_resumes_exactly(outcome: Outcome):
    assert outcome.answer(0)["resumed"]


def test_only_the_leader_writes(outcome: Outcome):
    for run in ("uninterrupted", "stopped"):
        assert len(list((outcome.folder / run).iterdir())) == 2, "one state and one log"
    rows = (outcome.folder / "uninterrupted" / "log.csv").read_text().splitlines()
    assert len(rows) == 1 + 4


def test_ctrl_c_of_torchrun_saves_and_one_process_goes_on(outcome: Outcome, tmp_path: Path):
    assert outcome.code != 0
    assert "stopped in epoch" in outcome.output, outcome.output
    folder = outcome.folder / "endless"
    (head,) = folder.glob("state-*/training.json")
    progress = json.loads(head.read_text())["progress"]
    assert progress["epoch"] >= 1
    resumed, _ = train(folder, resume=True, epochs=progress["epoch"] + 1)
    alone, _ = train(tmp_path, epochs=progress["epoch"] + 1)
    torch.testing.assert_close(weights(resumed), weights(alone), rtol=1e-9, atol=1e-9)


def test_group_of_one():
    group = Group()
    t = torch.ones(2)
    group.average([t], weight=3)
    group.copy_from_leader([t])
    assert t.tolist() == [1, 1]
    assert group.from_leader([0.5, 2.0]) == [0.5, 2.0]
    assert (group.any(True), group.any(False), group.leads, group.active) == (True, False, True, False)
    assert group.share(torch.arange(4)).tolist() == [0, 1, 2, 3]
    group.close()


@pytest.mark.slow
def test_one_two_and_four_processes_have_the_same_weights_and_end(tmp_path: Path):
    _compare_with_alone("cpu", (1, 2, 4), 1e-6, tmp_path)


@pytest.mark.gpu
def test_nccl_gives_the_weights_of_one_process(tmp_path: Path):
    """Which captures its steps, and nccl does not."""
    _compare_with_alone("cuda", (1,), 1e-5, tmp_path)


def _compare_with_alone(device: str, processes: Sequence[int], tolerance: float, folder: Path) -> None:
    one, other, module = folder / "one.pt", folder / "other.pt", ("-m", "helpers.parallel_devices")
    runs = [(*module, device, one)]
    for count in processes:
        runs.append((*TORCHRUN[1:], f"--nproc-per-node={count}", *module, device, other))
        runs.append((*module, "compare", one, other, tolerance))
    for run in runs:
        done = python(*run, timeout=120, GLOO_SOCKET_IFNAME="lo" if sys.platform == "linux" else "lo0")
        assert done.returncode == 0, done.stdout + done.stderr


ALONE = """
    import os
    os.environ.update(RANK="0", WORLD_SIZE="1")
    from helpers.tiny_training import train
    train()
"""


def test_processes_that_do_not_meet():
    said = run_code(ALONE).stderr
    assert "TrainingError: RANK=0 and WORLD_SIZE=1 are set" in said
    assert "start this by torchrun, or unset them" in said


def test_more_processes_than_devices(monkeypatch: pytest.MonkeyPatch):
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(TrainingError, match="process 2 of this machine needs a CUDA device of its own"):
        Group("cuda")
