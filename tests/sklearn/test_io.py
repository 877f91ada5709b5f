"""A classifier that is saved answers the same when it is loaded."""

import json

import numpy as np
import pandas as pd
import pytest

import torchlgm as lgm
from torchlgm import LGMClassifier


def people(rows=60, seed=0):
    draw = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "age": draw.integers(18, 80, rows).astype(float),
            "height": draw.normal(170, 10, rows),
            "town": draw.choice(["Rome", "Oslo", "Bern"], rows),
            "rooms": draw.integers(1, 5, rows),
            "never": np.full(rows, np.nan),
        }
    )
    table.loc[::7, ["age", "town"]] = np.nan
    return table, np.where(table.height > 170, "tall", "small")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"fill_weight": 0.5},
        {"method": lgm.trw(3, "sequential", damping=0.1), "class_weight": {"tall": 2.0, "small": 1.0}},
        {"method": lgm.mean_field(2, "sweep"), "hidden": (5, 4), "visible": None},
        {"categorical_features": ["rooms"], "random_state": np.random.RandomState(0)},
    ],
)
def test_a_loaded_classifier_gives_the_same_answers(tmp_path, options):
    X, y = people()
    model = LGMClassifier(**{"random_state": 0, "epochs": 3, **options}).fit(X, y)
    loaded = LGMClassifier.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    if len(model.members_) == 1:
        pd.testing.assert_frame_equal(pd.DataFrame(loaded.complete(X)), pd.DataFrame(model.complete(X)))
    assert loaded.predict(X).tolist() == model.predict(X).tolist()
    assert loaded.columns_ == model.columns_
    assert loaded.feature_names_in_.tolist() == X.columns.tolist()
    assert (loaded.n_iter_, loaded.loss_curve_) == (model.n_iter_, model.loss_curve_)
    given, kept = (dict(m.get_params(), random_state=None) for m in (model, loaded))
    assert given == kept


def test_an_array_and_numbered_classes(tmp_path):
    draw = np.random.default_rng(0)
    X, y = draw.normal(size=(40, 36)), np.arange(40) % 3
    graph = lgm.Graph(
        (lgm.Layer("inputs", 36, 3), lgm.Layer("h", 5), lgm.Layer("classes", 1, 3)),
        (lgm.Dense("inputs", "h"), lgm.Dense("h", "classes")),
    )
    for architecture in (graph, "conv"):
        model = LGMClassifier(architecture, epochs=2, random_state=0, image_shape=(6, 6), hidden=8).fit(X, y)
        loaded = LGMClassifier.load(model.save(tmp_path / "model"))
        np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
        assert loaded.classes_.dtype.kind == "i"
        assert not hasattr(loaded, "feature_names_in_")


def test_what_cannot_be_saved_or_loaded(tmp_path):
    X, y = people()
    model = LGMClassifier(epochs=1, method=lgm.Method(lgm.lbp().rule, lambda wiring: lgm.lbp().schedule(wiring), 1))
    with pytest.raises(lgm.errors.CheckpointError, match=r"cannot be saved; expected lbp\(\), trw\(\) or mean_field"):
        model.fit(X, y).save(tmp_path / "model")
    lgm.save(lgm.LGM(lgm.zoo.rbm(3, 2)), tmp_path / "rbm")
    with pytest.raises(lgm.errors.CheckpointError, match=r"not an LGMClassifier; load it with torchlgm\.load"):
        LGMClassifier.load(tmp_path / "rbm")
    LGMClassifier(epochs=1).fit(X, y).save(tmp_path / "model")
    card = json.loads((tmp_path / "model" / "model.json").read_text())["card"]
    rest = card["parts"][1:]
    for damage in (
        {"columns": ...},
        {"parts": [[7, "value"], *rest]},
        {"parts": [[0, "month?"], *rest]},
        {"parts": rest},
    ):
        _change_card(tmp_path / "model", card, damage)
        with pytest.raises(lgm.errors.CheckpointError, match="the description of the classifier is damaged"):
            LGMClassifier.load(tmp_path / "model")


def _change_card(folder, card, changes):
    head = json.loads((folder / "model.json").read_text())
    head["card"] = {name: value for name, value in (card | changes).items() if value is not ...}
    (folder / "model.json").write_text(json.dumps(head))
