"""Workers of Dask give the answers that the classifier gives alone."""

import numpy as np
import pandas as pd
import pytest

from torchlgm import LGMClassifier

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("single_precision")]
ROWS, PARTS = 1_000_000, 20


def test_two_workers(tmp_path):
    distributed, frames = pytest.importorskip("dask.distributed"), pytest.importorskip("dask.dataframe")
    draw = np.random.default_rng(0)
    X = pd.DataFrame(draw.normal(size=(ROWS, 6)).astype("float32"), columns=list("abcdef"))
    y = (X["a"] + X["b"] > 0).to_numpy()
    X = X.mask(draw.random(X.shape) < 0.2)
    classifier = LGMClassifier(hidden=8, epochs=3, n_members=2, random_state=0).fit(X.iloc[:2000], y[:2000])

    def answers(part):
        return pd.DataFrame(classifier.predict_proba(part), index=part.index, columns=["no", "yes"])

    alone = pd.concat([answers(X.iloc[i : i + ROWS // PARTS]) for i in range(0, ROWS, ROWS // PARTS)])
    where = {"dashboard_address": None, "local_directory": str(tmp_path)}
    with distributed.LocalCluster(2, threads_per_worker=1, **where) as cluster, distributed.Client(cluster):
        table = frames.from_pandas(X, npartitions=PARTS)
        found = table.map_partitions(answers, meta={"no": "f8", "yes": "f8"}).compute()
    pd.testing.assert_frame_equal(found, alone, atol=1e-12)
