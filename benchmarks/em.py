"""Tables learnt where one variable is never observed, by EM here and in pgmpy: mean log-evidence of a row, and time.

    python benchmarks/em.py FOLDER asia lung --rows 1000 --out benchmarks/results/networks-em.json     # needs pgmpy

FOLDER has the networks as `NAME.bif.gz`. Rows are drawn from the network; both begin with random tables, each of their
own. Times are of the processor, on one core.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import machine

from torchlgm.networks import Network, from_pgmpy, read_bif


def random_tables(network: Network, seed: int) -> Network:
    rng, factors = np.random.default_rng(seed), []
    for (scope, energies), child in zip(network.factors, network.children, strict=True):
        axis = scope.index(child)
        parents = [k for a, k in enumerate(energies.shape) if a != axis]
        probs = rng.dirichlet(np.ones(energies.shape[axis]), parents)
        factors.append((scope, -np.log(np.moveaxis(probs, -1, axis))))
    return network.with_factors(factors)


def theirs(network: Network, columns: dict[str, list[str]], hidden: str, iterations: int, seed: int) -> Network:
    import pandas
    from pgmpy.estimators import ExpectationMaximization
    from pgmpy.models import DiscreteBayesianNetwork

    names = list(network.variables)
    families = zip(network.factors, network.children, strict=True)
    edges = [(names[v], names[child]) for (scope, _), child in families for v in scope if v != child]
    model = DiscreteBayesianNetwork(edges, latents={hidden})
    estimator = ExpectationMaximization(model, pandas.DataFrame(columns))
    states = {hidden: len(network.variables[hidden])}
    model.add_cpds(*estimator.get_parameters(latent_card=states, max_iter=iterations, seed=seed, show_progress=False))
    return from_pgmpy(model)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("name")
    parser.add_argument("hidden")
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    network = read_bif(options.folder / f"{options.name}.bif.gz")
    codes = network.sample(options.rows, seed=3)
    codes[:, list(network.variables).index(options.hidden)] = -1
    columns = {name: states for name, states in network.states(codes).items() if name != options.hidden}
    record: dict[str, Any] = {key: getattr(options, key) for key in ("name", "hidden", "rows", "iterations")}
    record |= {"ours": [], "ours_s": [], "pgmpy": [], "pgmpy_s": []}
    for seed in range(options.starts):
        start = random_tables(network, seed)
        begin = time.process_time()
        fitted = start.fit(codes, iterations=options.iterations, tolerance=0)
        record["ours_s"].append(time.process_time() - begin)
        record["ours"].append(fitted.log_evidence[-1])
    for seed in range(options.starts):
        begin = time.process_time()
        other = theirs(network, columns, options.hidden, options.iterations, seed)
        record["pgmpy_s"].append(time.process_time() - begin)
        record["pgmpy"].append(float(other.log_evidence(columns).mean()))
        print(json.dumps(record), flush=True)
        if options.out is not None:
            known = json.loads(options.out.read_text())["records"] if options.out.exists() else []
            kept = [other for other in known if other["name"] != options.name]
            content = {"machine": machine("torch", "pgmpy"), "records": [*kept, record]}
            options.out.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
