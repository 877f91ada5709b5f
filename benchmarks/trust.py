"""Approximate posteriors of networks: how many are wrong, and how many of these `doubtful` names.

    python benchmarks/trust.py FOLDER alarm --rows 200 --out benchmarks/results/networks-trust.json
    python benchmarks/trust.py FOLDER barley --rows 12 --observed 0.15 --entries 2 --out ...

FOLDER has the networks as `NAME.bif.gz`; `grid` is one of 12 x 12 binary variables, another one for each row, with
energies from N(0, `--strength`^2) in its tables. Rows are drawn from the network, and a share of their entries is
observed. They are answered by loopy propagation, whose second opinion is exact; with `--entries` by propagation between
clusters of so many numbers for a row, or enough for each factor to be a cluster, with opinions of other clusters. Wrong
is what is further than 0.05 from the exact posterior.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import machine

import torchlgm as lgm
from torchlgm.networks import Network, Posteriors, network_of, read_bif
from torchlgm.networks.posteriors import WRONG
from torchlgm.networks.solvers import clusters, elimination

LOOPY = lgm.lbp(50, "sweep", damping=0.1, tolerance=1e-3)


def grid(size: int, strength: float, rng: np.random.Generator) -> Network:
    nodes = np.arange(size * size).reshape(size, size)
    down, right = (nodes[:-1], nodes[1:]), (nodes[:, :-1], nodes[:, 1:])
    pairs = np.concatenate([np.stack(ends, -1).reshape(-1, 2) for ends in (down, right)])
    scopes = [*map(tuple, pairs.tolist()), *[(v,) for v in range(size * size)]]
    return network_of([2] * size**2, [(scope, strength * rng.standard_normal([2] * len(scope))) for scope in scopes])


def asked(options: argparse.Namespace) -> list[tuple[Network, np.ndarray]]:
    """Networks, each with the labels that its rows observe."""
    rng = np.random.default_rng(0)
    if options.name == "grid":
        none = np.full((1, 144), -1)
        return [(grid(12, options.strength, rng), none) for _ in range(options.rows)]
    network = read_bif(options.folder / f"{options.name}.bif.gz")
    codes = network.sample(options.rows, seed=1)
    codes[rng.random(codes.shape) > options.observed] = -1
    return [(network, codes)]


def approximate(network: Network, codes: np.ndarray, entries: int | None) -> Posteriors:
    if entries is None:
        return network.posteriors(codes, method=LOOPY)
    before = elimination.ROW_ENTRIES, clusters.ENTRIES
    elimination.ROW_ENTRIES, clusters.ENTRIES = 2, entries
    try:
        return network.posteriors(codes)
    finally:
        elimination.ROW_ENTRIES, clusters.ENTRIES = before


def compared(network: Network, codes: np.ndarray, entries: int | None) -> dict[str, np.ndarray]:
    """By row and variable: whether it is asked about, wrong and doubtful, and whether its row is not trusted."""
    truth, ours = network.posteriors(codes), approximate(network, codes, entries)
    errors = torch.stack([(ours[name] - truth[name]).abs().amax(1) for name in truth], 1)
    doubtful = torch.stack([ours.doubtful[name] for name in truth], 1)
    free = torch.from_numpy(codes < 0)
    flags = {"free": free, "wrong": free & (errors > WRONG), "doubtful": free & doubtful, "distrusted": ~ours.trusted}
    return {name: flag.numpy() for name, flag in flags.items()} | {"errors": errors.numpy()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("name")
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--observed", type=float, default=0.3)
    parser.add_argument("--strength", type=float, default=1.0, help="of the tables of a grid")
    parser.add_argument("--entries", type=int, default=None, help="of clusters, for each row")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    networks = asked(options)
    parts = [compared(network, codes, options.entries) for network, codes in networks]
    found = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    of_all = {name: int(found[name].sum()) for name in ("free", "wrong", "doubtful")}
    tables = 2 * sum(energies.size for _, energies in networks[0][0].factors)
    record: dict[str, Any] = {"network": options.name, "rows": options.rows, "observed": options.observed}
    record |= {"strength": options.strength} if options.name == "grid" else {}
    record |= {"entries": None if options.entries is None else max(options.entries, tables)} | of_all
    record |= {"wrong_and_doubtful": int((found["wrong"] & found["doubtful"]).sum())}
    record |= {"worst": float(found["errors"][found["free"]].max())}
    record |= {"rows_wrong": float(found["wrong"].any(1).mean()), "rows_not_trusted": float(found["distrusted"].mean())}
    print(json.dumps(record), flush=True)
    if options.out is not None:
        known = json.loads(options.out.read_text())["records"] if options.out.exists() else []
        keys = "network", "observed", "entries", "strength"
        kept = [other for other in known if any(other.get(key) != record.get(key) for key in keys)]
        options.out.write_text(json.dumps({"machine": machine("torch"), "records": [*kept, record]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
