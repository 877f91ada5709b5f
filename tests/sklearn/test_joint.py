"""Joint questions in the words of the table."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import NotFittedError

import torchlgm as lgm
from torchlgm import LGMClassifier
from torchlgm.errors import DataError, InferenceError

pytestmark = pytest.mark.usefixtures("single_precision")


@pytest.fixture(scope="module")
def people():
    """The class is the colour; the size follows it, the flag does not."""
    rng = np.random.default_rng(0)
    colour = rng.integers(0, 3, 300)
    table = pd.DataFrame(
        {
            "flag": rng.random(300) < 0.5,
            "colour": pd.Categorical(np.array(["red", "green", "blue"])[colour]),
            "size": colour * 2.0 + rng.normal(0, 0.3, 300),
        },
        index=[f"p{i}" for i in range(300)],
    )
    return table, np.array(["R", "G", "B"])[colour]


@pytest.fixture(scope="module")
def trained(people):
    torch.set_default_dtype(torch.float32)
    return LGMClassifier(fill_weight=0.5, hidden=8, random_state=0).fit(*people)


def hidden(table, *names):
    return table.assign(**{name: None if name == "colour" else np.nan for name in names})


def test_acquire_prefers_what_tells_the_class(trained, people):
    gains = trained.acquire(hidden(people[0].head(5), "flag", "colour", "size"))
    assert list(gains.columns) == ["flag", "colour", "size"]
    assert list(gains.index) == ["p0", "p1", "p2", "p3", "p4"]
    assert (gains["colour"] > 0.6).all()
    assert (gains["flag"] < 0.1).all()
    dear = trained.acquire(hidden(people[0].head(5), "colour", "size"), costs={"flag": 1, "colour": 100, "size": 1})
    assert (dear["size"] > dear["colour"]).all()
    bought = trained.acquire(hidden(people[0].head(5), "flag", "colour", "size"), groups={"both": ["flag", "size"]})
    assert list(bought.columns) == ["both"]


def test_acquisition_asks_in_the_words_of_the_table(trained, people):
    table, y = people
    doctor = lgm.Acquisition(trained, stop=0.01)
    assert doctor.next(hidden(table.head(1), "flag", "colour", "size")) in ("colour", "size")
    assert doctor.next(hidden(table, "flag").iloc[0]) is None
    curve = lgm.Acquisition(trained).run(table, y, questions=1).curve()
    assert curve["accuracy"][1] > 0.95 > curve["accuracy"][0]
    with pytest.raises(InferenceError, match="y has the label 'Z'"):
        lgm.Acquisition(trained).run(table.head(2), ["R", "Z"])


def test_a_column_is_predicted_in_its_own_values(trained, people):
    table, y = people
    colours, probs = trained.predict_column(table, "colour", return_proba=True)
    assert (colours == table["colour"].astype(str)).mean() > 0.9
    np.testing.assert_allclose(probs.sum(1), 1)
    blind = hidden(table, "colour", "size")
    assert (trained.predict_column(blind, "colour", y=y) == table["colour"].astype(str)).mean() > 0.9
    unknown = trained.predict_column(blind, "size", y=[None] * len(y))
    np.testing.assert_allclose(unknown, trained.predict_column(blind, "size"))


def test_samples_fill_the_holes_only(trained, people):
    rows = hidden(people[0].head(4), "colour", "size")
    drawn = trained.sample(rows, n=5)
    assert drawn.values.shape == (20, 3)
    assert drawn.values.index.names == ["row", "draw"]
    assert not drawn.values.isna().any().any()
    assert set(drawn.values["colour"]) <= {"red", "green", "blue"}
    assert (drawn.values["flag"].to_numpy() == np.repeat(rows["flag"].to_numpy(), 5)).all()
    assert drawn.effective.shape == (4,)


def test_columns_of_samples_keep_their_types(trained, people):
    rows = people[0].head(4).copy()
    rows["colour"] = rows["colour"].where([True, False, False, False])
    rows["flag"] = rows["flag"].astype("boolean").where([False, True, True, True])
    drawn = trained.sample(rows, n=3, burn_in=3).values
    assert drawn.dtypes.to_dict() == rows.dtypes.to_dict()
    assert not drawn.isna().any().any()


def test_wrong_cells_are_suspicious(trained, people):
    table = people[0].head(100).copy()
    truth = table.loc["p7", "colour"]
    table.loc["p7", "colour"] = "red" if truth != "red" else "blue"
    cells = trained.suspicious(table, n=3)
    first = cells[cells["column"] == "colour"].iloc[0]
    assert (first["row"], first["expected"]) == ("p7", truth)
    assert first["probability"] < 0.05 < first["expected_probability"]
    assert trained.score_samples(table)[7] < np.median(trained.score_samples(table)) - 1


def test_shares_of_a_row_add_up(trained, people):
    table = people[0].head(3)
    shares = trained.explain(table)
    probs = torch.as_tensor(trained.predict_proba(table))
    torch.testing.assert_close(shares.base + shares.values.sum(1), shares.answer)
    torch.testing.assert_close(shares.answer, probs.log() - (1 - probs).log(), atol=1e-4, rtol=1e-4)


def test_an_explanation_is_of_the_answer_of_all_members(people):
    table, y = people
    fitted = LGMClassifier(hidden=4, epochs=2, random_state=0).fit(table, y)
    assert len(fitted.members_) > 1
    rows = hidden(table.iloc[[3, 8]], "flag")
    shares = fitted.explain(rows, orders=4)
    assert len(shares) == 2
    for one, probs in zip(shares, fitted.predict_proba(rows), strict=True):
        for label, p in zip(fitted.classes_, probs, strict=True):
            assert one.probability(label) == pytest.approx(p, abs=1e-6)
            assert one.base(label) + sum(s.share for s in one.shares(label)) == pytest.approx(one.answer(label))
        assert one.label == fitted.classes_[probs.argmax()]
        assert {s.column for s in one.shares()} == {"colour", "size"}  # what was seen
    assert [one.row for one in shares[0:2]] == ["p3", "p8"]
    with pytest.raises(IndexError, match="row 2; expected -2 to 1"):
        shares[2]
    with pytest.raises(ValueError, match="label='X' is none of the classes"):
        shares[0].shares("X")


def test_an_explanation_as_a_picture_and_as_text(trained, people):
    one = trained.explain(people[0].head(1), orders=2)[0]
    assert one._repr_png_().startswith(b"\x89PNG")
    lines = str(one).splitlines()
    assert lines[0].startswith(f"row p0: class {one.label}, ")
    assert lines[0].endswith("in nats")
    assert [line.split()[0] for line in (lines[1], lines[-1])] == ["nothing", "answer"]
    assert len(one.text(most=1).splitlines()) == 5  # one entry, and two others together
    assert "2 others" in one.text(most=1)


def test_arrays_come_back_as_arrays(people):
    rng = np.random.default_rng(0)
    X, y = rng.random((60, 3)), np.arange(60) % 2
    fitted = LGMClassifier(fill_weight=0.5, hidden=4, epochs=2, random_state=0).fit(X, y)
    X[:, 1] = np.nan
    assert fitted.acquire(X).shape == (60, 3)
    assert fitted.sample(X[:2], 3).values.shape == (2, 3, 3)
    assert fitted.suspicious(X, 2)[0].column in ("x0", "x2")
    assert fitted.log_prob(X[:2]).kind == "exact"


QUESTIONS = {
    "predict_column": lambda model, X: model.predict_column(X, "size"),
    "sample": lambda model, X: model.sample(X, 2, burn_in=2),
    "log_prob": lambda model, X: model.log_prob(X),
    "score_samples": lambda model, X: model.score_samples(X),
    "suspicious": lambda model, X: model.suspicious(X),
    "explain": lambda model, X: model.explain(X, 2),
    "complete": lambda model, X: model.complete(X),
    "uncertainty": lambda model, X: model.uncertainty(X, 2, 1),
}
every_question = pytest.mark.parametrize("ask", QUESTIONS.values(), ids=list(QUESTIONS))


@every_question
def test_questions_to_a_model_that_is_not_fitted(people, ask):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        ask(LGMClassifier(), people[0])


@every_question
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_tables_that_no_question_takes(trained, people, ask):
    table = people[0].head(2)
    with pytest.raises(ValueError, match=r"0 sample\(s\)"):
        ask(trained, table.head(0))
    with pytest.raises(ValueError, match="X has 1 features, but LGMClassifier is expecting 3"):
        ask(trained, np.zeros((2, 1)))
    with pytest.raises(DataError, match="size held numbers in training, but holds names now"):
        ask(trained, table.assign(size=["a", "b"]))
    with pytest.raises(ValueError, match="infinity in size"):
        ask(trained, table.assign(size=np.inf))


@every_question
def test_a_row_of_which_nothing_was_seen(trained, people, ask):
    ask(trained, hidden(people[0].head(2), "flag", "colour", "size").astype({"flag": float}))


@pytest.mark.parametrize("name", list(QUESTIONS))
def test_frames_and_arrays_have_the_same_answers(people, name):
    """In arrays of any library."""
    X, y = np.random.default_rng(0).random((60, 3)), np.arange(60) % 2
    frame = pd.DataFrame(X, columns=["a", "b", "size"])
    ask = QUESTIONS[name] if name != "predict_column" else lambda model, X: model.predict_column(X, 2)
    fitted = LGMClassifier(fill_weight=0.5, hidden=4, epochs=2, random_state=0).fit(frame, y)
    plain = LGMClassifier(fill_weight=0.5, hidden=4, epochs=2, random_state=0).fit(X, y)
    rows = X[:4].copy()
    rows[0, 1] = np.nan
    answers = [
        ask(model, rows)
        for model, rows in (
            (fitted, pd.DataFrame(rows, columns=frame.columns)),
            (plain, rows),
            (plain, torch.from_numpy(rows)),
            (plain, rows.tolist()),
        )
    ]
    first, *others = (numbers_of(answer) for answer in answers)
    assert first.size
    for other in others:
        np.testing.assert_allclose(other, first)


def numbers_of(answer):
    """All numbers of an answer, in their order."""
    if isinstance(answer, pd.DataFrame):
        answer = answer.to_numpy()
    if hasattr(answer, "attribution"):
        answer = answer.values.tolist()
    if isinstance(answer, list | tuple):
        parts = [numbers_of(part) for part in answer]
        return np.concatenate([part for part in parts if part.size] or [np.empty(0)])
    flat = np.asarray(answer, dtype=object).ravel()
    return np.array([float(x) for x in flat if not isinstance(x, str)])


def test_what_stands_in_a_column_does_not_count_in_any_of_its_parts():
    """Month and day of a date, and the indicator of a hole, would tell its value."""
    rng = np.random.default_rng(0)
    days = pd.Series(pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 365, 80), "D"))
    table = pd.DataFrame({"when": days.where(rng.random(80) < 0.8), "size": rng.random(80)})
    fitted = LGMClassifier(fill_weight=0.5, hidden=4, epochs=3, add_indicator=True, random_state=0)
    fitted.fit(table, np.arange(80) % 2)
    assert {"when.month", "when.missing"} <= set(fitted.input_names)
    blind = table.assign(when=pd.NaT)
    _, probs = fitted.predict_column(table, "when", return_proba=True)
    np.testing.assert_array_equal(probs, fitted.predict_column(blind, "when", return_proba=True)[1])


def test_odd_classes_and_numbers(trained, people):
    rows = people[0].head(2)
    with pytest.raises(DataError, match=r"y is shaped \(1,\); expected \(2,\) classes, None where unknown"):
        trained.predict_column(rows, "size", y=["R"])
    with pytest.raises(DataError, match=r"y is shaped \(\); expected"):
        trained.predict_column(rows, "size", y="R")
    with pytest.raises(DataError, match="y has the label 'Z', which is not among the classes"):
        trained.predict_column(rows, "size", y=["R", "Z"])
    for y in ([None, np.nan], pd.array([None, pd.NA], dtype="string")):
        np.testing.assert_allclose(trained.predict_column(rows, "size", y=y), trained.predict_column(rows, "size"))
    with pytest.raises(InferenceError, match="column names no column: 'height'"):
        trained.predict_column(rows, "height")
    with pytest.raises(InferenceError, match=r"n=1\.5; expected a whole number >= 1"):
        trained.sample(rows, 1.5)
    with pytest.raises(InferenceError, match="thin=0; expected a whole number >= 1"):
        trained.sample(rows, 2, thin=0)
    with pytest.raises(InferenceError, match="method='lbp'; expected"):
        trained.log_prob(rows, "lbp")
