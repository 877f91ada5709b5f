"""100,000 patients of the ALARM network, most entries missing: what is believed, and which test to make next.

    python examples/alarm.py alarm.bif.gz [--rows 100000] [--picture alarm.png]

ALARM (Beinlich et al., 1989) models how patients are monitored in anaesthesia: 37 variables. Its file is in the
Bayesian network repository of bnlearn (https://www.bnlearn.com/bnrepository), and in the package of pgmpy 0.1.26.
"""

import argparse
import time

import numpy as np

from torchlgm import networks, viz

DIAGNOSES = ["HYPOVOLEMIA", "LVFAILURE", "KINKEDTUBE", "PULMEMBOLUS"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--picture", default="alarm.png")
    options = parser.parse_args()
    network = networks.read_bif(options.file)
    names = list(network.variables)

    truth = network.sample(options.rows)
    seen = np.random.default_rng(1).random(truth.shape) < 0.3
    seen[:, [names.index(name) for name in DIAGNOSES]] = False
    patients = np.where(seen, truth, -1)

    begin = time.perf_counter()
    result = network.posteriors(patients, progress=True)
    print(f"{options.rows} patients in {time.perf_counter() - begin:.1f} s: {result}")
    for name in DIAGNOSES:
        label = truth[:, names.index(name)]
        probs = result[name].numpy()
        print(f"{name}: p(truth) {probs[np.arange(len(label)), label].mean():.3f} on average")

    patient = int(result["HYPOVOLEMIA"][:, list(network.variables["HYPOVOLEMIA"]).index("TRUE")].argmax())
    row = patients[patient : patient + 1]
    viz.save(viz.draw_network(network, network.posteriors(row)), options.picture)
    gains = networks.acquire(network, patients[:1000], "HYPOVOLEMIA")
    tests = sorted(gains, key=lambda name: -gains[name].mean())[:5]
    print("tells most about HYPOVOLEMIA:", ", ".join(f"{n} {gains[n].mean():.3f} nats" for n in tests))

    children = zip(network.factors, network.children, strict=True)
    flat = [(scope, np.full_like(e, np.log(e.shape[scope.index(child)]))) for (scope, e), child in children]
    begin = time.perf_counter()
    learnt = network.with_factors(flat).fit(
        np.where(np.random.default_rng(2).random(truth.shape) < 0.8, truth, -1)[:5000]
    )
    print(f"tables from 5,000 rows with 20 % holes in {time.perf_counter() - begin:.1f} s:", end=" ")
    rows = truth[-2000:]
    print(f"{learnt.network.log_evidence(rows).mean():.3f} nats a new row, of the truth", end=" ")
    print(f"{network.log_evidence(rows).mean():.3f}")


if __name__ == "__main__":
    main()
