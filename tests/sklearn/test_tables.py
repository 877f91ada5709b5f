"""Tables of any kind, with holes: what becomes of columns, and what is answered about them."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

import torchlgm as lgm
from torchlgm import LGMClassifier, explain
from torchlgm.errors import DataError, DataWarning, GraphError
from torchlgm.sklearn import Categories, Numbers
from torchlgm.sklearn.columns import LabelledRows, learn_column
from torchlgm.sklearn.encoding import Place, Rows
from torchlgm.sklearn.reading import Raw

pytestmark = pytest.mark.usefixtures("single_precision")
QUICK = {"epochs": 30, "hidden": 4, "batch_size": 64, "learning_rate": 0.1, "fill_weight": 0.5, "random_state": 0}


@pytest.fixture(scope="module")
def people():
    """A mixed table in which the class follows from the colour, and the size from the colour too."""
    rng = np.random.default_rng(0)
    colour = rng.integers(0, 3, 200)
    table = pd.DataFrame(
        {
            "colour": pd.Categorical(np.array(["red", "green", "blue"])[colour]),
            "size": colour * 2.0 + rng.normal(0, 0.3, 200),
            "count": rng.integers(0, 5, 200),
            "flag": rng.random(200) < 0.5,
            "word": rng.choice(["x", "y"], 200),
        }
    )
    return table, np.array(["R", "G", "B"])[colour]


@pytest.fixture(scope="module")
def trained(people):
    torch.set_default_dtype(torch.float32)
    return LGMClassifier(**QUICK).fit(*people)


def test_a_mixed_table_becomes_one_graph_with_several_input_layers(trained):
    colour, size, count, flag, word = trained.columns_
    assert colour == Categories(("blue", "green", "red"), 3)
    assert isinstance(size, Numbers)
    assert len(size.knots) == 5
    assert count == Numbers((0.0, 1.0, 2.0, 3.0, 4.0))
    assert flag == Numbers((0.0, 1.0), "boolean")
    assert word == Categories(("x", "y"), 2)
    layers = trained.model_.graph.layers
    assert [(layer.nodes, layer.labels) for layer in layers] == [(2, 2), (1, 3), (2, 5), (4, 2), (1, 3)]


def test_it_classifies_with_and_without_the_telling_column(trained, people):
    table, y = people
    assert trained.score(table, y) > 0.97
    assert trained.score(table.assign(colour=None), y) > 0.9  # the size tells it
    blind = trained.predict_proba(table.assign(colour=None, size=np.nan))
    assert blind.max() < 0.75  # nothing else tells it


def test_nothing_known_gives_what_was_learned_of_the_classes(trained, people):
    nothing = pd.DataFrame(np.nan, index=[0, 1], columns=people[0].columns)
    probs = trained.predict_proba(nothing)
    np.testing.assert_allclose(probs[0], probs[1])
    np.testing.assert_allclose(probs[0], 1 / 3, atol=0.25)


def test_what_pandas_calls_missing_is_missing(trained, people):
    table = people[0].head(6)
    holes = table.astype({"count": "Int64", "word": "string"})
    holes.loc[0, ["count", "word"]] = pd.NA
    plain = table.astype({"count": float, "word": object})
    plain.loc[0, "count"], plain.loc[0, "word"] = np.nan, None
    np.testing.assert_array_equal(trained.predict_proba(holes), trained.predict_proba(plain))


def test_unknown_categories_count_as_missing(trained, people):
    table = people[0].head(3)
    with pytest.warns(UserWarning, match="colour: no value is among the categories of training, 'blue'.*got 'pink'"):
        strange = trained.predict_proba(table.assign(colour="pink"))
    np.testing.assert_array_equal(strange, trained.predict_proba(table.assign(colour=None)))


def test_complete_fills_holes_and_leaves_the_rest(trained, people):
    table = people[0].copy()
    hidden = table.assign(colour=table.colour.astype(object).where(np.arange(200) % 2 == 0, None))
    hidden.loc[::5, "size"] = np.nan
    filled, probs = trained.complete(hidden, return_proba=True)
    assert filled.shape == table.shape
    seen = hidden.notna().to_numpy()
    filled = filled.to_numpy(dtype=object)
    assert (filled[seen] == table.to_numpy(dtype=object)[seen]).all()
    told = ~seen[:, 0] & seen[:, 1]  # the size tells the colour
    assert (filled[told, 0] == np.asarray(table.colour, dtype=object)[told]).mean() > 0.9
    lost = seen[:, 0] & ~seen[:, 1]
    error = np.abs(filled[lost, 1].astype(float) - table["size"].to_numpy()[lost])
    assert error.mean() < 0.5 < np.abs(table["size"] - table["size"].mean()).mean()
    assert [p.shape for p in probs] == [(200, 3), (200, 5), (200, 5), (200, 2), (200, 2)]
    np.testing.assert_allclose([p.sum(1) for p in probs], 1)


def test_complete_keeps_unknown_categories(trained, people):
    table = people[0][:3].astype({"colour": object})
    table.loc[0, "colour"], table.loc[1, "colour"] = "violet", None
    colours = trained.complete(table).colour
    assert colours[0] == "violet"
    assert colours[1] in ("red", "green", "blue")


@pytest.mark.parametrize(("then", "now"), [(str, int), (int, str)])
def test_categories_of_another_type_are_refused(then, now):
    X = np.array([[10.0, 0.5], [20.0, 1.5]] * 20)
    y = np.array([0, 1] * 20)

    def table(kind):
        return pd.DataFrame({"code": X[:, 0].astype(int).astype(kind), "size": X[:, 1]})

    model = LGMClassifier(**QUICK, categorical_features=["code"], warm_start=True).fit(table(then), y)
    for ask in (model.predict, model.complete):
        with pytest.raises(DataError, match=r"code held .* in training, such as .*10.* now, such as .*10"):
            ask(table(now))
    model.predict(table(then).assign(code=None))  # a column without a value has no type
    assert (model.complete(table(then))["code"] == table(then)["code"]).all()
    if then is int:  # a hole makes floats of integers, which are the same numbers
        np.testing.assert_array_equal(model.predict(table(float)), model.predict(table(int)))


@pytest.mark.parametrize("kind", [float, int, object])
def test_masked_entries_are_missing(kind):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 5, (100, 3)).astype(kind)
    y = (X[:, 0] > X[:, 1]).astype(int)
    mask = rng.random(X.shape) < 0.3
    holes = np.where(mask, None, X.astype(object)) if kind is not float else np.where(mask, np.nan, X)
    masked = np.ma.MaskedArray(X, mask)
    model, same = (LGMClassifier(**QUICK).fit(table, y) for table in (masked, holes))
    np.testing.assert_array_equal(model.predict_proba(masked), same.predict_proba(holes))
    filled = model.complete(masked)
    np.testing.assert_array_equal(filled, same.complete(holes))
    assert (filled[~mask] == X[~mask]).all()
    with pytest.raises(DataError, match="every row needs a label"):
        LGMClassifier(**QUICK).fit(X, np.ma.MaskedArray(y, mask[:, 0]))


@pytest.mark.parametrize("scaling", ["quantile", "minmax"])
def test_constant_columns_are_filled_with_their_constant(scaling):
    X = np.column_stack([np.full(20, 7.1), np.arange(20.0)])
    y = np.array([0, 1] * 10)
    graph = lgm.Graph([lgm.Layer("x", 2, 4), lgm.Layer("classes", 1)], [lgm.Dense("x", "classes")])
    for architecture in ("dense", graph):
        model = LGMClassifier(architecture, scaling=scaling, **QUICK).fit(X, y)
        filled, probs = model.complete([[np.nan, 3.0], [9.0, np.nan]], return_proba=True)
        assert filled[0].tolist() == [7.1, 3.0]
        assert filled[1, 0] == 9.0
        np.testing.assert_allclose(probs[0].sum(1), 1)
        np.testing.assert_array_equal(model.predict_proba([[9.0, 3.0]]), model.predict_proba([[7.1, 3.0]]))


def exclusive_or(rows):
    X = np.random.default_rng(0).integers(0, 2, (rows, 3))
    return X, X[:, 0] ^ X[:, 1]


def test_two_columns_that_tell_the_class_only_together_are_learned():
    X = np.random.default_rng(0).random((1000, 2))
    y = (X[:, 0] > 0.5) ^ (X[:, 1] > 0.5)
    model = LGMClassifier(random_state=0).fit(X[:700], y[:700])
    assert model.score(X[700:], y[700:]) > 0.85


@pytest.mark.slow
def test_repeated_rows_are_learned():
    X, y = exclusive_or(1000)
    model = LGMClassifier(fill_weight=0.5, random_state=0).fit(X, y)
    assert model.n_iter_ == 2500  # a pass over the 8 different rows is one step
    assert model.score(X, y) == 1


def test_repeated_rows_get_more_passes(monkeypatch):
    monkeypatch.setattr("torchlgm.sklearn.training.STEPS_IF_REPEATED", 300)
    X, y = exclusive_or(1000)
    assert LGMClassifier(hidden=2, fill_weight=0.5, random_state=0).fit(X, y).n_iter_ == 300
    truth = np.unique(X, axis=0)
    short = LGMClassifier(hidden=2, fill_weight=0.5, random_state=0)
    assert short.fit(truth, truth[:, 0] ^ truth[:, 1]).n_iter_ == 200  # no row is repeated


def test_few_steps_over_repeated_rows_are_warned_of():
    X, y = exclusive_or(1000)
    model = LGMClassifier(hidden=2, epochs=2, fill_weight=0.5, random_state=0)
    with pytest.warns(ConvergenceWarning, match="only 2 steps.* 8 different rows among 1000.*about 2500"):
        model.fit(X, y)
    with pytest.warns(ConvergenceWarning, match="8 different rows among 24"):
        model.fit(np.unique(X, axis=0), [0, 1] * 4, sample_weight=np.full(8, 3))
    model.set_params(warm_start=True).fit(X, y)  # goes on later


def test_what_is_filled_in_is_a_frame_for_a_frame(trained, people):
    table = people[0].head(4)
    frame = trained.complete(table.assign(size=np.nan))
    assert frame.columns.tolist() == table.columns.tolist()
    assert frame["size"].notna().all()


def test_columns_are_found_by_their_names(trained, people):
    table = people[0].head(6)
    np.testing.assert_array_equal(trained.predict_proba(table[table.columns[::-1]]), trained.predict_proba(table))
    with pytest.warns(DataWarning, match="the table lacks 'size', which the training had, so it is missing in all"):
        lacking = trained.predict_proba(table.drop(columns="size"))
    np.testing.assert_array_equal(lacking, trained.predict_proba(table.assign(size=np.nan)))
    with pytest.warns(DataWarning, match="the table has 'age', 'x', which the training did not have, so it is left"):
        trained.predict(table.assign(age=3, x=2))
    with pytest.raises(ValueError, match="feature names should match"):
        trained.predict(pd.DataFrame({"age": [1, 2]}))
    with pytest.raises(DataError, match="several columns named 'flag'"):
        trained.predict(pd.concat([table, table[["flag"]]], axis=1))


def test_a_filled_frame_keeps_the_types_of_its_columns(people):
    table = people[0].set_index(people[0].index // 2)  # labels of rows may repeat
    model = LGMClassifier(**QUICK).fit(table, people[1])
    holes = table.copy()
    holes.iloc[::3, 0], holes.iloc[::3, 1], holes.iloc[::3, 4] = np.nan, np.nan, None
    for filled in (model.complete(holes), model.complete(holes, return_proba=True)[0]):
        assert filled.dtypes.map(str).tolist() == ["category", "float64", "int64", "bool", str(table.word.dtype)]
        assert filled.notna().all(axis=None)
        assert filled.index.equals(table.index)
    reds = table[table.colour == "red"].astype({"colour": pd.CategoricalDtype(["red"])})
    reds.iloc[0, 0] = np.nan
    blue = model.complete(reds.assign(size=4.0))  # blue was no category of this frame
    assert blue.colour.dtype.categories.tolist() == ["red", "blue"]
    assert blue.colour.iloc[0] == "blue"
    assert model.complete(table.assign(colour=None)).colour.notna().all()


def test_columns_without_values_stay_empty(people):
    table = np.column_stack([people[0]["size"], np.full(200, np.nan)])
    model = LGMClassifier(**QUICK).fit(table, people[1])
    assert model.columns_[1] is None
    given = table.copy()
    given[:, 1] = 3.0
    np.testing.assert_array_equal(model.predict_proba(given), model.predict_proba(table))
    filled, probs = model.complete(table, return_proba=True)
    assert np.isnan(filled[:, 1]).all()
    assert probs[1] is None


def test_uncertainty_is_split_into_missing_and_remaining(trained, people):
    table = people[0].head(40)
    whole = trained.uncertainty(table)
    assert (whole.from_missing == 0).all()
    probs = trained.predict_proba(table)
    np.testing.assert_allclose(whole.entropy, -(probs * np.log(probs)).sum(1), atol=1e-9)
    blind = trained.uncertainty(table.assign(colour=None, size=np.nan))
    assert (blind.from_missing > 0.25 * blind.entropy).all()  # they would settle the class
    assert blind.from_missing.mean() > 0.5 * blind.entropy.mean()
    useless = trained.uncertainty(table.assign(count=np.nan, word=None))
    assert (useless.from_missing < 0.1).all()
    assert (blind.remaining >= 0).all()
    np.testing.assert_array_equal(blind.from_missing, trained.uncertainty(table.assign(colour=None, size=np.nan))[1])
    with pytest.raises(ValueError, match="samples=1"):
        trained.uncertainty(table, samples=1)


@pytest.mark.filterwarnings("ignore:epochs=")  # few passes over repeated rows are meant
def test_mutual_information_is_that_of_enumeration():
    """One missing column, a graph where inference is exact: the draws must find the exact share."""
    rng = np.random.default_rng(1)
    X = rng.integers(0, 3, (300, 2))
    y = (X[:, 0] + X[:, 1] + rng.integers(0, 2, 300) > 2).astype(int)
    model = LGMClassifier(**{**QUICK, "hidden": ()}).fit(X, y)
    row = np.array([[1.0, np.nan]])
    (found,) = model.uncertainty(row, samples=4000).from_missing
    _, probs = model.complete(row, return_proba=True)
    weight = probs[1][0]  # exact: the graph is a star around the class
    each = model.predict_proba(np.array([[1.0, k] for k in range(3)]))
    entropy = [-(p * np.log(p)).sum() for p in (*each, weight @ each)]
    np.testing.assert_allclose(weight @ each, model.predict_proba(row)[0], atol=1e-6)
    np.testing.assert_allclose(found, entropy[3] - weight @ entropy[:3], atol=0.02)


def test_hiding_in_training_helps_with_holes_in_prediction():
    rng = np.random.default_rng(2)
    y = rng.integers(0, 2, 400)
    X = y[:, None] + rng.normal(0, 1, (400, 6))
    holes = np.where(rng.random(X.shape) < 0.6, np.nan, X)

    def loss(visible):
        model = LGMClassifier(**{**QUICK, "visible": visible}).fit(X[:200], y[:200])
        return -model.predict_log_proba(holes[200:])[np.arange(200), y[200:]].mean()

    assert loss((0.2, 1.0)) < loss(None) - 0.01


def test_evidence_is_what_inference_and_explanations_take(trained, people):
    table = people[0].head(6).assign(count=np.nan)
    evidence = trained.evidence(table)
    assert list(evidence) == ["columns2", "columns3", "columns5"]
    beliefs = lgm.infer(trained.model_, evidence, lgm.lbp(iterations=1))
    np.testing.assert_allclose(beliefs["classes"].probs[:, 0].detach(), trained.predict_proba(table), atol=1e-5)
    colour, size = (
        explain.influence(trained.model_, evidence, layer, "classes", lgm.lbp(iterations=1))
        for layer in ("columns3", "columns5")
    )
    told = trained.classes_.searchsorted(people[1][:6])
    assert (colour[range(6), 0, told] > 0).all()
    assert (size[range(6), 0, told] > 0).all()
    assert (size[:, 1] == 0).all()  # the count is missing


def test_a_given_graph_takes_the_columns_in_order(people):
    table, y = people
    layers = [lgm.Layer("measures", 1, 4), lgm.Layer("names", 1, 3), lgm.Layer("inner", 5), lgm.Layer("kind", 1, 3)]
    edges = [lgm.Dense("measures", "inner"), lgm.Dense("names", "inner"), lgm.Dense("inner", "kind")]
    graph = lgm.Graph(layers, edges)
    model = LGMClassifier(graph, **QUICK).fit(table[["size", "colour"]], y)
    assert [column.labels for column in model.columns_] == [4, 3]
    assert model.score(table[["size", "colour"]], y) > 0.97
    with pytest.raises(GraphError, match="as many nodes as there are columns"):
        LGMClassifier(graph, **QUICK).fit(table[["size", "colour", "flag"]], y)
    with pytest.raises(GraphError, match="one node with 2 labels"):
        LGMClassifier(graph, **QUICK).fit(table[["size", "colour"]], y == "R")
    with pytest.raises(DataError, match="categories do not fit"):
        LGMClassifier(graph, **QUICK).fit(table[["size"]].assign(key=[f"k{i // 2}" for i in range(200)]), y)


@pytest.mark.parametrize("kind", ["conv", "local"])
def test_images(kind):
    rng = np.random.default_rng(3)
    y = rng.integers(0, 2, 120)
    X = np.zeros((120, 8, 8))
    X[y == 0, 2], X[y == 1, :, 2] = 1, 1  # a line across, or down
    X = (X + rng.random(X.shape) / 4).reshape(120, -1)
    model = LGMClassifier(kind, hidden=16, bins=2, epochs=20, batch_size=20, random_state=0).fit(X, y)
    X[:, ::3] = np.nan
    assert model.score(X, y) > 0.9
    assert model.complete(X).shape == X.shape
    with pytest.raises(DataError, match="image_shape"):
        LGMClassifier(kind, **QUICK).fit(X[:, :60], y)
    with pytest.raises(DataError, match="too small"):
        LGMClassifier(kind, image_shape=(1, 4), **QUICK).fit(X[:, :4], y)


def test_a_method_by_which_nothing_reaches_the_class_is_refused(people):
    table, y = people
    with pytest.raises(ValueError, match=r"do not reach the class by method=lbp\(1, 'parallel'\)"):
        LGMClassifier(method=lgm.lbp(1, "parallel"), **QUICK).fit(table, y)
    LGMClassifier(method=lgm.lbp(2, "parallel"), **QUICK).fit(table, y)


@pytest.mark.parametrize("nothing", [None, float("nan"), pd.NA])
@pytest.mark.parametrize("kind", [list, pd.Series, lambda y: np.array(y, dtype=object)])
def test_rows_without_a_class_are_refused(people, nothing, kind):
    """A NaN among names is no class 'nan'."""
    table, _ = people
    with pytest.raises(ValueError, match="NaN or None in 1 of 200 rows"):
        LGMClassifier(**QUICK).fit(table, kind([nothing, *["a", "b"] * 99, "a"]))


def test_bad_tables_are_refused(people):
    table, y = people
    with pytest.raises(ValueError, match="infinity in size"):
        LGMClassifier(**QUICK).fit(table.assign(size=np.inf), y)
    with pytest.raises(TypeError, match=r"size: .* uniformly strings or numbers.* int and str; .*to_numeric"):
        LGMClassifier(**QUICK).fit(table.assign(size=["a", 1] * 100), y)
    with pytest.raises(TypeError, match=r"size: .* holds Decimal; .*astype\(float\)"):
        LGMClassifier(**QUICK).fit(table.assign(size=[Decimal(1)] * 200), y)
    with pytest.raises(DataError, match="several columns named 'size'; expected one of each name"):
        LGMClassifier(**QUICK).fit(table[["size", "size"]], y)
    with pytest.raises(ValueError, match=r"got 1 class: 0$"):
        LGMClassifier(**QUICK).fit(table, np.zeros(200, dtype=int))
    with pytest.raises(ValueError, match="minimum of 1"):
        LGMClassifier(**QUICK).fit(table.head(0), y[:0])
    model = LGMClassifier(**QUICK).fit(table[["size"]], y)
    with pytest.raises(DataError, match="held numbers in training"):
        model.predict(pd.DataFrame({"size": ["large", "small"]}))


@pytest.mark.filterwarnings("ignore:epochs=")  # rows whose names are rare are the same
def test_numbers_held_as_text_are_warned_of(people):
    table, y = people
    text = table.astype({"size": str})
    text.loc[0, "size"] = "unknown"
    model = LGMClassifier(**{**QUICK, "epochs": 1})
    said = r"text that reads as numbers, in 'size' \(except 'unknown'\):.*pandas.to_numeric"
    with pytest.warns(DataWarning, match=said) as caught:
        model.fit(text, y)
    assert caught[0].filename == __file__
    model.set_params(categorical_features=["size"])
    with pytest.warns(DataWarning, match="nearly every row has a category of its own, in 'size'.*Leave"):
        model.fit(text, y)  # the numbers are all different
    LGMClassifier(**QUICK).fit(table.assign(count=table["count"].astype(str)), y)  # a few kinds


def test_numbers_in_other_units_are_warned_of_once(people):
    table, y = people
    model = LGMClassifier(**{**QUICK, "epochs": 1}).fit(table, y)
    other = table.assign(size=table["size"] * 1000)
    for ask in (model.predict, model.uncertainty, lambda X: model.complete(X, return_proba=True)):
        with pytest.warns(DataWarning, match=r"of 600 values lie far outside .* column size .* same units\?") as caught:
            ask(other)
        assert [warning.filename for warning in caught] == [__file__]
    with pytest.warns(DataWarning, match="all of them are -999: if that stands for missing, make it NaN"):
        model.predict(table.assign(size=table["size"].where(table.index > 2, -999)))


def test_knots_of_numeric_columns():
    values = np.array([0.0, 0, 0, 1, 2, 3, 4, 5, 100, np.nan])
    ones = LabelledRows(np.zeros(10, int), np.ones(10), 1)
    few = LabelledRows(np.zeros(3, int), np.ones(3), 1)
    assert learn_column(Raw("a", values), ones, 3, "quantile") == Numbers((0.0, 2.0, 100.0))
    assert learn_column(Raw("a", values), ones, 3, "minmax") == Numbers((0.0, 50.0, 100.0))
    assert learn_column(Raw("a", values), ones, 2, "quantile") == Numbers((0.0, 100.0))
    assert learn_column(Raw("a", values, whole=True), ones, 3, "quantile").labels == 7
    assert learn_column(Raw("a", np.full(3, 7.0)), few, 5, "quantile") == Numbers((7.0,))
    column = Numbers((0.0, 2.0, 100.0))
    np.testing.assert_allclose(
        column.scale(np.array([-9, 0, 1, 2, 51, 999, np.nan])), [0, 0, 0.25, 0.5, 0.75, 1, np.nan]
    )


@pytest.mark.parametrize("factor", [0.3, 0.7, 1.1])
def test_knots_stay_where_they_are_when_all_weights_are_scaled(factor):
    values = Raw("a", np.arange(52.0))
    number = (np.arange(52) > 36).astype(int)
    for scaling, knots in (("quantile", (0.0, 12.0, 25.0, 38.0, 51.0)), ("tree", (0.0, 18.0, 36.0, 37.0, 51.0))):
        plain, scaled = (
            learn_column(values, LabelledRows(number, np.full(52, weight), 2), 5, scaling) for weight in (1.0, factor)
        )
        assert scaled == plain == Numbers(knots)


def test_soft_values_lie_between_the_nearest_knots():
    graph = lgm.Graph([lgm.Layer("x", 2, 4), lgm.Layer("classes", 1)], [lgm.Dense("x", "classes")])
    rows = Rows((Place("x", (1, 0), 4),))
    q, free = rows(lgm.LGM(graph), torch.tensor([[0.5, torch.nan], [1 / 3, 1.0]]))["x"]
    torch.testing.assert_close(q, torch.tensor([[[0, 0, 0], [0.5, 0.5, 0]], [[0, 0, 1.0], [1, 0, 0]]]))
    assert free.tolist() == [[True, False], [False, False]]


def test_the_loss_is_the_weighted_likelihood_of_class_and_hidden_entries():
    generator = torch.Generator().manual_seed(0)
    graph = lgm.Graph([lgm.Layer("x", 2, 3), lgm.Layer("classes", 1)], [lgm.Dense("x", "classes")])
    model = lgm.LGM(graph, "paper", generator=generator)
    whole = torch.tensor([[0.5, 1.0], [0.0, 0.5]])
    x = whole.masked_fill(torch.tensor([[False, True], [False, False]]), torch.nan)
    y = torch.tensor([[[3.0, 0.0]], [[0.0, 1.0]]])
    posterior = lgm.Posterior(model, lgm.lbp(2), Rows((Place("x", (0, 1), 3),)))
    q = torch.tensor([[[0, 1.0, 0], [torch.nan] * 3], [[1.0, 0, 0], [0, 1.0, 0]]])
    exact = lgm.infer(model, {"x": q}, lgm.exact())
    expected = -(3 * exact["classes"].log_probs[0, 0, 0] + exact["classes"].log_probs[1, 0, 1]) / 2
    expected = expected - 0.5 * 3 * exact["x"].log_probs[0, 1, 2]
    torch.testing.assert_close(lgm.learn.JointLikelihood(0.5).loss(posterior, x, y, whole), expected)
