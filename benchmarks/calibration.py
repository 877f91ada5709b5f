"""How far off the class probabilities of `torchlgm train` are, before and after calibration, beside its network.

Digits, as the command trains them; what is hidden in test images is what the command hides, and for "10 masks" ten
other draws, whose answers are pooled, since with few answers much of a calibration error is chance: `chance` is what
the one draw would have if the probabilities were right.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from common import machine, save, table
from torch import Tensor, nn

from torchlgm.cli.config import Config
from torchlgm.cli.evaluate import SHARES
from torchlgm.cli.train import Job
from torchlgm.data import Data, hide
from torchlgm.learn import Likelihood, fit_seeds, fit_temperature, mean_std, predict_log_proba
from torchlgm.learn.temperature import asked_at_shares, best_temperature
from torchlgm.metrics import calibration_chance, calibration_error, evaluate
from torchlgm.posterior import Predictor

MASKS = 10
Answer = Callable[[Tensor], Tensor]


def answers_of(predictor: nn.Module, valid: Data) -> dict[str, Answer]:
    """Log-probabilities as trained and calibrated; the network with a temperature of its own, found in the same way."""

    def answer(temperature: float) -> Answer:
        return lambda x: torch.log_softmax(predict_log_proba(predictor, x) / temperature, -1)

    if isinstance(predictor, Predictor):
        temperature = fit_temperature(predictor, valid)
        predictor.temperature = 1.0
    else:
        log_probs, targets = asked_at_shares(predictor, valid)
        temperature = best_temperature(log_probs, targets)
    return {"as trained": answer(1.0), "calibrated": answer(temperature)}


def figures(answer: Answer, test: Data, share: float) -> dict[str, float]:
    same = hide(test.inputs, share, torch.Generator().manual_seed(0))
    draws = [hide(test.inputs, share, torch.Generator().manual_seed(1 + i)) for i in range(MASKS if share < 1 else 1)]
    pooled = torch.cat([answer(x) for x in draws]).exp()
    error = calibration_error(pooled, test.targets.repeat(len(draws)))
    probs = answer(same).exp()
    return evaluate(probs, test.targets) | {"chance": calibration_chance(probs), "10 masks": error}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, help="fewer than the command's, to see that it runs")
    parser.add_argument("--json", type=Path, help="add the result to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    job = Job.prepare(Config(epochs=arguments.epochs, device="cpu").for_images())
    kinds = {
        "LGM": (job.make_posterior, job.objective),
        "network": (job.make_network, Likelihood(job.config.smoothing)),
    }
    rows: list[dict[str, Any]] = []
    for name, (make, objective) in kinds.items():
        seeds = range(arguments.seeds)
        runs = fit_seeds(make, job.train, job.valid, objective, job.settings, seeds, reporters=lambda _: [])
        answers = [answers_of(run.predictor, job.valid) for run in runs]
        for kind in ("as trained", "calibrated"):
            for share in SHARES:
                found = [figures(one[kind], job.dataset.test, share) for one in answers]
                means = {key: mean_std(f[key] for f in found) for key in found[0]}
                spread = {"± error": means["calibration_error"].std}
                rows.append(
                    {"model": name, "": kind, "visible": share, **{k: m.mean for k, m in means.items()}, **spread}
                )
    about = {"machine": machine("torch", "numpy"), "threads": 1, "seeds": arguments.seeds}
    save(arguments.json, "calibration", {**about, "rows": rows})
    print(table(rows))


if __name__ == "__main__":
    main()
