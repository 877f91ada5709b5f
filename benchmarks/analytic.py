"""Which mistake would make the analytic gradient fail as in table 3 of the paper?

Trains the Dense model of that table as the paper, with a gradient of beliefs that a mistake has gone into. Predictions
are right. Each training takes some minutes on a core.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path

import torch
from common import machine, save, table
from experiments.paper.cells import find_cell
from experiments.paper.runner import accuracy, make_model, make_predictor, make_settings
from experiments.paper.sources import Sources
from torch import Tensor

import torchlgm as lgm
from torchlgm import LGM, learn
from torchlgm.inference import solve
from torchlgm.layout import LEFT
from torchlgm.learn.moments import Expectations
from torchlgm.learn.objectives import nll

HIDDEN, OUTPUT, SEED = "hidden", "classes", 0


Mistake = Callable[[LGM, Expectations, Expectations], None]  # changes those with the output free, and clamped


def nothing_heard(model: LGM, free: Expectations, clamped: Expectations) -> None:
    del clamped
    link = next(link for link in free.mrf.observed_links if link.right == HIDDEN)
    field = model.unary[HIDDEN] + link.layout.linear(model.energies(link.name), free.nodes[link.left], LEFT)
    free.nodes[HIDDEN] = torch.sigmoid(-field)


def same_beliefs(model: LGM, free: Expectations, clamped: Expectations) -> None:
    del model
    clamped.nodes[HIDDEN] = free.nodes[HIDDEN]


def products(model: LGM, free: Expectations, clamped: Expectations) -> None:
    del model
    free.edges, clamped.edges = {}, {}


def same_beliefs_products(model: LGM, free: Expectations, clamped: Expectations) -> None:
    same_beliefs(model, free, clamped)
    products(model, free, clamped)


MISTAKES: dict[str, Mistake] = {
    "none": lambda *_: None,
    "hidden nodes have heard nothing from the free output": nothing_heard,
    "hidden nodes believe of the clamped output what they do of the free one": same_beliefs,
    "beliefs of an edge are the products of those of its ends": products,
    "the last two": same_beliefs_products,
}


@dataclass(frozen=True)
class Mistaken(learn.MomentMatching):
    mistake: str = "none"

    def loss(self, predictor: lgm.Posterior, x: Tensor, y: Tensor, complete: Tensor | None = None) -> Tensor:
        del complete
        model, method = predictor.model, predictor.method
        seen, y = predictor.encoding(model, x), y.reshape(len(y), 1)
        with torch.no_grad():
            beliefs = solve(model.condition(seen), method)
            free = Expectations.of(beliefs)
            clamped = Expectations.of(solve(model.condition({**seen, OUTPUT: y}), method))
            MISTAKES[self.mistake](model, free, clamped)
            value = nll(beliefs[OUTPUT].log_probs.flatten(1, -2), y)
        surrogate = clamped.energy(model) - free.energy(model)
        return surrogate - surrogate.detach() + value


def trained(case: tuple[str, int], data: Path, epochs: int) -> dict:
    torch.set_num_threads(1)
    mistake, t = case
    cell = find_cell("cjinf/LGM/Dense(5)", "paper")
    e = replace(cell.experiment, iterations=t, epochs=epochs)
    train, valid, test = Sources(str(data), torch.device("cpu")).load(e)
    model = make_model(e, SEED, train)
    predictor = make_predictor(e, model)
    result = learn.fit(predictor, train, valid, Mistaken(mistake), make_settings(e, SEED))
    return {
        "mistake": mistake,
        "T": t,
        "accuracy": round(accuracy(model, e, test), 4),
        "epochs": len(result.history),
        "best epoch": result.best_epoch,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="the folder that holds mnist/")
    parser.add_argument("--epochs", type=int, default=100, help="at most")
    parser.add_argument("--json", type=Path, help="add the result to this file")
    arguments = parser.parse_args()
    with ProcessPoolExecutor(2) as pool:
        train = partial(trained, data=arguments.data, epochs=arguments.epochs)
        rows = list(pool.map(train, product(MISTAKES, (2, 5))))
    print(f"Dense of table 3 as the paper, seed {SEED}, test accuracy. The paper: 0.770 at T=2, 0.874 at T=5.")
    print(table(rows))
    save(arguments.json, "analytic", {"machine": machine("torch"), "rows": rows})


if __name__ == "__main__":
    main()
