"""An interrupted and resumed training equals an uninterrupted one, bit for bit."""

import csv
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim import SGD, Adagrad, Adam, AdamW, NAdam, RMSprop, lr_scheduler

from helpers.processes import environment, python
from helpers.tiny_training import METHOD, OBJECTIVE, Watcher, bars, figures, posterior, settings, train, weights
from torchlgm import LGM, Graph, Init, Layer, Posterior, Sparse, lbp, zoo
from torchlgm.errors import CheckpointError
from torchlgm.learn import Likelihood, Samples, fit
from torchlgm.learn.state import HEAD, TENSORS, VERSION

pytestmark = pytest.mark.usefixtures("single_precision")


class _PressesCtrlC(Watcher):
    def __init__(self, epoch: int, done: int) -> None:
        super().__init__(lambda e, d: (e, d) == (epoch, done) and os.kill(os.getpid(), signal.SIGINT))


def _state(folder: Path) -> Path:
    (state,) = folder.glob("state-*")
    return state


def _head(folder: Path) -> dict[str, Any]:
    return json.loads((_state(folder) / HEAD).read_text())


def _rows(folder: Path) -> list[int]:
    with (folder / "log.csv").open() as handle:
        return [int(row["epoch"]) for row in csv.DictReader(handle)]


@pytest.mark.parametrize("moment", [(1, 10), (1, 45), (2, 30), (3, 45), (4, 40), (4, 45)], ids=str)
def test_interrupted_anywhere(tmp_path: Path, moment: tuple[int, int]):
    epoch, done = moment
    with pytest.raises(KeyboardInterrupt, match=r"stopped in epoch \d: the state is saved in .*resume=True continues"):
        train(tmp_path, visible=(0.3, 0.9), reporters=[_PressesCtrlC(epoch, done)])
    progress = _head(tmp_path)["progress"]
    assert (progress["epoch"], progress["at"]) == ((epoch - 1, done) if done < 45 else (epoch, 0))
    resumed, result = train(tmp_path, resume=True, visible=(0.3, 0.9))
    whole, expected = train(visible=(0.3, 0.9))
    assert torch.equal(weights(resumed), weights(whole))
    assert figures(result) == figures(expected)
    assert _rows(tmp_path) == [1, 2, 3, 4]


OPTIMISERS = {
    "adam": None,
    "amsgrad": lambda p: Adam(p, lr=0.02, amsgrad=True),
    "adamw": lambda p: AdamW(p, lr=0.02, foreach=True),
    "sgd": lambda p: SGD(p, lr=0.5),
    "momentum": lambda p: SGD(p, lr=0.2, momentum=0.9, nesterov=True),
    "tensor": lambda p: SGD(p, lr=torch.tensor(0.2), momentum=0.9),
    "rmsprop": lambda p: RMSprop(p, lr=0.01, centered=True, momentum=0.5),
    "adagrad": lambda p: Adagrad(p, lr=0.1),
    "nadam": lambda p: NAdam(p, lr=0.02),
    "groups": lambda p: Adam([{"params": [q], "lr": 0.01 * (i + 1)} for i, q in enumerate(p)]),
}
SCHEDULERS = {
    "step": lambda o: lr_scheduler.StepLR(o, 2, 0.1),
    "milestones": lambda o: lr_scheduler.MultiStepLR(o, [2, 4], 0.1),
    "one-after-another": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.ConstantLR(o, 0.5, 2), lr_scheduler.MultiStepLR(o, [1, 2], 0.1)], [2]
    ),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, 4),
    "lambda": lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 0.5**epoch),
    "plateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, factor=0.1, patience=0, threshold=0.5),
    "one-cycle": lambda o: lr_scheduler.OneCycleLR(o, 0.05, total_steps=5),
}


def _stop_and_go(folder: Path, epoch: int = 3, **changes: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(folder, reporters=[_PressesCtrlC(epoch, 20)], **changes)
    resumed, result = train(folder, resume=True, **changes)
    whole, expected = train(**changes)
    assert torch.equal(weights(resumed), weights(whole))
    assert figures(result) == figures(expected)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_any_optimizer(tmp_path: Path, name: str):
    _stop_and_go(tmp_path, optimizer=OPTIMISERS[name])


@pytest.mark.each
@pytest.mark.parametrize("optimizer", ["momentum", "tensor"])
@pytest.mark.parametrize("epoch", [1, 3])
@pytest.mark.parametrize("name", SCHEDULERS)
def test_any_scheduler(tmp_path: Path, name: str, epoch: int, optimizer: str):
    _stop_and_go(tmp_path, epoch, scheduler=SCHEDULERS[name], optimizer=OPTIMISERS[optimizer])


def test_with_clipping(tmp_path: Path):
    _stop_and_go(tmp_path, clip=0.05)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_in_a_process(tmp_path: Path, number: int, code: int):
    command = [sys.executable, "-m", "helpers.killed_training", "interrupted", str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            process.send_signal(number)
            said, _ = process.communicate(timeout=20)
        finally:
            process.kill()
    assert process.returncode == code
    assert "stopped in epoch 2: the state is saved in" in said
    progress = _head(tmp_path / "run")["progress"]
    assert (progress["epoch"], progress["at"]) == (1, 20)
    resumed, _ = train(tmp_path / "run", resume=True)
    assert torch.equal(weights(resumed), weights(train()[0]))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_again_and_again(tmp_path: Path):
    done = python("-m", "helpers.killed_training", "killed", tmp_path / "run", timeout=80)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["kills"] >= 5
    assert (told["exit"], told["same"]) == (0, True)
    assert {p.name for p in (tmp_path / "run").iterdir()} == {"log.csv", _state(tmp_path / "run").name}, "litter"
    assert _rows(tmp_path / "run") == list(range(1, 31))


def test_second_ctrl_c_stops_at_once(tmp_path: Path):
    def act(epoch: int, done: int) -> None:
        if (epoch, done) == (2, 10):
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as stop:
        train(tmp_path, reporters=[Watcher(act)])
    assert str(stop.value) == ""
    assert _head(tmp_path)["progress"]["epoch"] == 1, "the state of the last epoch is left"
    assert torch.equal(weights(train(tmp_path, resume=True)[0]), weights(train()[0]))


def test_ctrl_c_is_ours_only_while_training(tmp_path: Path):
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt, match="without a folder, nothing is saved"):
        train(reporters=[_PressesCtrlC(1, 10)])
    assert signal.getsignal(signal.SIGINT) is before


def test_interrupted_with_broken_weights_is_not_saved(tmp_path: Path):
    def act(epoch: int, done: int) -> None:
        if (epoch, done) == (2, 10):
            with torch.no_grad():
                trained.model.unary["classes"].fill_(torch.nan)
            os.kill(os.getpid(), signal.SIGINT)

    trained = posterior()
    data = bars(), bars(20, seed=1)
    with pytest.raises(RuntimeError, match="loss became nan"):
        fit(trained, *data, OBJECTIVE, settings(), tmp_path, reporters=[Watcher(act)])
    assert _head(tmp_path)["progress"]["at"] == 0
    assert torch.equal(weights(train(tmp_path, resume=True)[0]), weights(train()[0]))


def test_training_in_a_thread(tmp_path: Path):
    done = []
    thread = threading.Thread(target=lambda: done.append(train(tmp_path)))
    thread.start()
    thread.join()
    assert torch.equal(weights(done[0][0]), weights(train()[0]))


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"batch_size": 9}, "batch_size"),
        ({"learning_rate": 0.1}, "learning_rate"),
        ({"seed": 5}, "seed"),
        ({"visible": 0.5}, "visible"),
        ({"clip": 1.0}, "clip"),
        ({"optimizer": lambda p: SGD(p, lr=0.1)}, "optimizer"),
        ({"scheduler": lambda o: lr_scheduler.StepLR(o, 2)}, "scheduler"),
        ({"objective": Likelihood(0.1)}, "objective"),
        ({"method": lbp(3)}, "predictor"),
    ],
)
def test_other_settings_are_refused(tmp_path: Path, changes: dict[str, Any], what: str):
    train(tmp_path, epochs=1)
    before = _head(tmp_path)
    with pytest.raises(CheckpointError, match=rf"other settings \({what}\); resume with the same, or train into"):
        train(tmp_path, resume=True, **changes)
    assert _head(tmp_path) == before


def test_other_data_and_models_are_refused(tmp_path: Path):
    train(tmp_path, epochs=1)
    valid = bars(20, seed=1)
    for trained, data, what in (
        (posterior(), (bars(seed=7), valid), r"on other data \(train_data\)"),
        (posterior(), (bars(), bars(20, seed=7)), r"on other data \(valid_data\)"),
        (posterior(classes=3), (bars(), valid), r"with other settings \(graphs, model\)"),
        (posterior().double(), (bars(), valid), r"with other settings \(model\)"),
    ):
        with pytest.raises(CheckpointError, match=what):
            fit(trained, *data, OBJECTIVE, settings(), tmp_path, resume=True)


@pytest.mark.parametrize(
    ("first", "then", "what"),
    [
        ({"optimizer": lambda p: SGD(p, lr=0.1, momentum=0.9)}, {"optimizer": lambda p: SGD(p, lr=0.01)}, "optimizer"),
        (
            {"scheduler": lambda o: lr_scheduler.StepLR(o, 2)},
            {"scheduler": lambda o: lr_scheduler.StepLR(o, 1)},
            "scheduler",
        ),
    ],
)
def test_what_optimizers_and_schedulers_were_made_with_counts(tmp_path: Path, first, then, what: str):
    train(tmp_path, epochs=1, **first)
    train(tmp_path, epochs=1, resume=True, **first)
    with pytest.raises(CheckpointError, match=rf"with other settings \({what}\)"):
        train(tmp_path, resume=True, **then)


def test_another_graph_or_scale_of_the_same_shape_is_refused(tmp_path: Path):
    def go_on(second: int, scale: str):
        edges = [(0, 0), (1, second), (2, 1)]
        graph = Graph((Layer("inputs", 3), Layer("classes", 2)), (Sparse("inputs", "classes", edges),))
        samples = Samples(bars().inputs.flatten(1)[:, :3], bars().targets.unsqueeze(1).repeat(1, 2))
        sparse = LGM(graph, Init(0.5, scale=scale), generator=torch.Generator().manual_seed(0))
        fit(
            Posterior(sparse, METHOD),
            samples,
            samples,
            OBJECTIVE,
            settings(epochs=1),
            tmp_path,
            resume=True,
            reporters=[],
        )

    go_on(0, "energy")
    go_on(0, "energy")
    with pytest.raises(CheckpointError, match=r"with other settings \(graphs\)"):
        go_on(1, "energy")
    with pytest.raises(CheckpointError, match=r"with other settings \(scales\)"):
        go_on(0, "rho")


def test_another_meaning_of_balanced_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What is stored would be other energies."""

    def go_on():
        balanced = LGM(zoo.dense((1, 3, 3), (6,), 2), generator=torch.Generator().manual_seed(0))
        fit(
            Posterior(balanced, METHOD),
            bars(),
            bars(20, seed=1),
            OBJECTIVE,
            settings(epochs=1),
            tmp_path,
            resume=True,
            reporters=[],
        )

    go_on()
    go_on()
    monkeypatch.setattr("torchlgm.model.init.INPUT", 7.0)
    with pytest.raises(CheckpointError, match=r"with other settings \(scales\)"):
        go_on()


def test_more_epochs_may_be_added(tmp_path: Path):
    train(tmp_path, epochs=2)
    resumed, result = train(tmp_path, resume=True, epochs=4)
    whole, expected = train(epochs=4)
    assert torch.equal(weights(resumed), weights(whole))
    assert figures(result) == figures(expected)


def test_finished_training_is_only_loaded(tmp_path: Path):
    trained, result = train(tmp_path)
    again, same = train(tmp_path, resume=True)
    assert torch.equal(weights(again), weights(trained))
    assert same == result


def test_nothing_to_resume_starts_anew(tmp_path: Path):
    assert torch.equal(weights(train(tmp_path / "new", resume=True)[0]), weights(train()[0]))


def test_without_resume_the_old_training_is_replaced(tmp_path: Path):
    train(tmp_path, seed=1)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, seed=2, reporters=[_PressesCtrlC(1, 10)])
    assert _head(tmp_path)["fingerprint"]["seed"] == 2
    assert _rows(tmp_path) == []


def test_log_is_whole_even_if_killed_before_its_last_row(tmp_path: Path):
    train(tmp_path, epochs=3)
    lines = (tmp_path / "log.csv").read_text().splitlines()
    (tmp_path / "log.csv").write_text("\n".join(lines[:3]))
    train(tmp_path, resume=True, epochs=4)
    assert _rows(tmp_path) == [1, 2, 3, 4]


def test_what_else_is_in_the_folder_is_left_alone(tmp_path: Path):
    (tmp_path / "state-of-the-art").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    train(tmp_path)
    names = {p.name for p in tmp_path.iterdir()}
    assert {"state-of-the-art", "notes.txt", "log.csv"} < names
    assert len(names) == 4


def _break_json(state: Path) -> None:
    (state / HEAD).write_text("{")


def _foreign(state: Path) -> None:
    (state / HEAD).write_text('{"format": "other"}')


def _newer(state: Path) -> None:
    (state / HEAD).write_text(json.dumps(json.loads((state / HEAD).read_text()) | {"version": VERSION + 1}))


def _truncate(state: Path) -> None:
    (state / TENSORS).write_bytes((state / TENSORS).read_bytes()[:-10])


def _without(key: str) -> Any:
    def act(state: Path) -> None:
        head = json.loads((state / HEAD).read_text())
        del head[key]
        (state / HEAD).write_text(json.dumps(head))

    return act


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_break_json, "cannot be read: .*; delete .* to start over"),
        (_foreign, "not the state of a training that this torchlgm can read; delete .* to start over"),
        (_newer, "not the state of a training that this torchlgm can read"),
        (_truncate, "not the file that was saved"),
        (lambda state: (state / TENSORS).unlink(), "is missing"),
        (lambda state: (state / HEAD).unlink(), "is missing"),
        *[
            (_without(key), "is damaged: .*; delete .* to start over")
            for key in ("fingerprint", "progress", "groups", "optimizer", "sha256")
        ],
    ],
)
def test_damaged_state(tmp_path: Path, damage: Any, message: str):
    train(tmp_path, epochs=1)
    damage(_state(tmp_path))
    with pytest.raises(CheckpointError, match=message):
        train(tmp_path, resume=True)


def test_state_that_json_cannot_hold_is_refused_at_once(tmp_path: Path):
    class Odd(lr_scheduler.StepLR):
        def state_dict(self):
            return {"odd": object()}

    with pytest.raises(CheckpointError, match="must be JSON-able"):
        train(tmp_path, scheduler=lambda o: Odd(o, 1))
    assert list(tmp_path.iterdir()) == []
