"""Any column from the others, entries left out, draws, log p and Shapley values: against enumeration."""

import math
from itertools import permutations

import numpy as np
import pytest
import torch

import torchlgm as lgm
from helpers.problems import BY_NAME, enumerate_all, model_of, spell_out
from torchlgm.errors import DataError, EvidenceError, InferenceError
from torchlgm.joint import (
    CalibrationRows,
    draw_completions,
    leave_one_out,
    log_prob_of_seen,
    predict_column,
    predict_set,
    shapley,
)
from torchlgm.learn import Ensemble

NAN = math.nan
STAR = BY_NAME["star"]
X = torch.tensor([[1.0, NAN, 0.0], [0.0, 1.0, 1.0], [NAN, NAN, NAN], [0.3, 1.0, NAN]])


@pytest.fixture
def model():
    return model_of(STAR)


def truth(model, row, **others):
    return enumerate_all(spell_out(model, {"inputs": row.unsqueeze(0), **others}, 0))


def without(row, column):
    row = row.clone()
    row[column] = NAN
    return row


@pytest.mark.parametrize("known", [False, True])
def test_a_column_given_all_others(model, known):
    posterior = lgm.Posterior(model, lgm.exact())
    y = torch.tensor([2, 0, 1, 2])
    probs = predict_column(posterior, X, 0, y if known else None)
    for i, row in enumerate(X):
        others = {"classes": y[i].reshape(1, 1)} if known else {}
        expected = truth(model, without(row, 0), **others).nodes["inputs", 0]
        assert probs[i].tolist() == pytest.approx(expected, abs=1e-9)


def test_a_class_of_minus_one_is_not_known(model):
    posterior = lgm.Posterior(model, lgm.exact())
    torch.testing.assert_close(predict_column(posterior, X, 1, [-1] * 4), predict_column(posterior, X, 1))


@pytest.mark.parametrize("method", [lgm.exact(), lgm.lbp(1), lgm.mean_field(3)])
def test_each_entry_left_out_is_asked_again_with_it_hidden(model, method):
    posterior = lgm.Posterior(model, method)
    left_out = leave_one_out(posterior, X)
    for i, row in enumerate(X):
        for c in range(3):
            if row[c].isnan():
                assert left_out.log_probs[i, c].isnan()
                continue
            p = posterior.infer(without(row, c).unsqueeze(0))["inputs"].probs[0, c].detach()
            assert left_out.log_probs[i, c].item() == pytest.approx(math.log((1 - row[c]) * p[0] + row[c] * p[1]))
            assert left_out.expected[i, c] == p.argmax()
            assert left_out.expected_log_probs[i, c].item() == pytest.approx(math.log(p.max()))
    assert left_out.of_rows[2] == 0


def test_a_row_is_right_by_bayes_rule(model):
    """As likely without a wrong entry as with any one, which then has any label alike."""
    posterior = lgm.Posterior(model, lgm.exact())
    rows = torch.tensor([[1.0, NAN, 0.0], [0.0, 1.0, 1.0], [NAN, NAN, NAN], [NAN, 1.0, NAN]])

    def probability(row):
        return log_prob_of_seen(posterior, row.unsqueeze(0)).value.exp().item()

    for row, log_right in zip(rows, leave_one_out(posterior, rows).of_rows, strict=True):
        wrong = [probability(without(row, c)) / 2 for c in range(3) if not row[c].isnan()]
        right = probability(row)
        assert log_right.exp().item() == pytest.approx(right / (right + sum(wrong)), abs=1e-9)


def test_the_least_probable_entries_come_first(model):
    left_out = leave_one_out(lgm.Posterior(model, lgm.exact()), X)
    cells = left_out.most_suspicious(100)
    assert sorted(cells) == [(i, c) for i in range(4) for c in range(3) if not X[i, c].isnan()]
    worst = [left_out.log_probs[cell].item() for cell in cells]
    assert worst == sorted(worst)
    assert left_out.most_suspicious(2) == cells[:2]


def test_log_prob_sums_to_one_over_what_can_be_seen(model):
    rows = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 3)
    value, kind = log_prob_of_seen(lgm.Posterior(model, lgm.lbp(1)), rows)
    assert kind == "exact"
    assert value.exp().sum().item() == pytest.approx(1)
    part = log_prob_of_seen(lgm.Posterior(model), torch.tensor([[1.0, NAN, NAN]])).value
    assert part.exp().item() == pytest.approx(truth(model, torch.full((3,), NAN)).nodes["inputs", 0][1])


def test_log_prob_is_estimated_only_where_inference_converges():
    loop = lgm.LGM(lgm.zoo.dense(inputs=40, hidden=[40], classes=3), lgm.Init(table=0.2)).double()
    value, kind = log_prob_of_seen(lgm.Posterior(loop), torch.full((2, 40), 1.0))
    assert kind == "estimate"
    assert value.max() < 0
    unfinished = lgm.lbp(1)
    wild = lgm.LGM(lgm.zoo.dense(inputs=40, hidden=[40], classes=3), lgm.Init(table=3.0)).double()
    assert log_prob_of_seen(lgm.Posterior(wild), torch.full((1, 40), 1.0), unfinished).value.isnan().all()


def test_draws_have_the_frequencies_of_enumeration(model):
    generator = torch.Generator().manual_seed(0)
    draws = draw_completions(lgm.Posterior(model), X[:3], 4000, generator=generator)
    assert draws.labels.shape == (3, 4000, 3)
    assert (draws.labels[1] == X[1]).all()
    assert draws.effective[1] == 4000
    for i, row in enumerate(X[:3]):
        nodes = truth(model, row).nodes
        share = draws.target[i, :, 0].bincount(minlength=3) / 4000
        assert share.tolist() == pytest.approx(nodes["classes", 0], abs=0.05)
        for c in range(3):
            if row[c].isnan():
                ones = draws.labels[i, :, c].double().mean().item()
                error = 5 * math.sqrt(0.25 / draws.effective[i].item())
                assert ones == pytest.approx(nodes["inputs", c][1], abs=error)


def test_chains_that_stick_count_as_few_draws():
    model = lgm.LGM(lgm.zoo.dense(inputs=6, hidden=[8], classes=2), "zero").double()
    with torch.no_grad():
        model.table["inputs-hidden"].fill_(-0.9)  # all nodes on, or all off
        model.unary["hidden"].fill_(2.7)
        model.unary["inputs"].fill_(3.6)
    generator = torch.Generator().manual_seed(0)
    stuck = draw_completions(lgm.Posterior(model), torch.full((1, 6), NAN), 400, thin=1, generator=generator)
    free = lgm.Posterior(lgm.LGM(model.graph, "zero").double())
    mixing = draw_completions(free, torch.full((1, 6), NAN), 400, thin=1, generator=generator)
    assert stuck.effective[0] < 100 < mixing.effective[0]


def test_shapley_values_are_those_of_all_orders_by_enumeration(model):
    posterior = lgm.Posterior(model, lgm.exact())

    def odds(row):
        p = torch.tensor(truth(model, row).nodes["classes", 0])
        return p.log() - (1 - p).log()

    shares = shapley(posterior, X, orders="all")
    for i, row in enumerate(X):
        seen = [c for c in range(3) if not row[c].isnan()]
        orders = list(permutations(seen))
        expected = torch.zeros(3, 3)
        for order in orders:
            shown = torch.full((3,), NAN)
            for c in order:
                before = odds(shown)
                shown[c] = row[c]
                expected[c] += (odds(shown) - before) / len(orders)
        torch.testing.assert_close(shares.values[i], expected)
        torch.testing.assert_close(shares.answer[i], odds(row))


@pytest.mark.parametrize("method", [lgm.exact(), lgm.lbp(1), lgm.mean_field(3)])
def test_shares_add_up_to_the_answer_however_few_orders(model, method):
    posterior = lgm.Posterior(model, method)
    few, every = shapley(posterior, X, orders=3), shapley(posterior, X, orders="all")
    torch.testing.assert_close(few.base + few.values.sum(1), few.answer)
    torch.testing.assert_close(few.answer, every.answer)
    many = shapley(posterior, X, orders=1000)
    torch.testing.assert_close(many.values, every.values, atol=0.02, rtol=0)


def test_shares_are_of_the_answer_that_is_given(model):
    """By a temperature, an ensemble, or a network."""
    posterior, x = lgm.Posterior(model, lgm.lbp(1)), X[:2]
    posterior.temperature = 2.0
    ensemble = Ensemble([lgm.Posterior(model_of(STAR), lgm.lbp(1)) for _ in range(2)])
    weight = torch.randn(3, 3)
    for predictor in (posterior, ensemble, lambda x: x.double().nan_to_num(0.5) @ weight.double()):
        log_probs = torch.log_softmax(predictor(x), -1)
        shares = shapley(predictor, x, orders=4)
        torch.testing.assert_close(shares.answer, log_probs - torch.log1p(-log_probs.exp()), atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(shares.base + shares.values.sum(1), shares.answer)


def test_shares_are_shaped_like_the_inputs():
    posterior = lgm.Posterior(lgm.LGM(lgm.zoo.dense(inputs=(1, 2, 3), hidden=[2], classes=4)), lgm.lbp(1))
    x = torch.rand(2, 1, 2, 3)
    x[0, 0, 1] = NAN
    shares = shapley(posterior, x, orders=2)
    assert shares.values.shape == (2, 1, 2, 3, 4)
    assert (shares.values[0, 0, 1] == 0).all()


def test_bad_arguments_have_one_clear_error(model):
    posterior = lgm.Posterior(model)
    two = lgm.Posterior(lgm.LGM(lgm.Graph((lgm.Layer("x", 3), lgm.Layer("y", 2)), (lgm.Dense("x", "y"),))))
    with pytest.raises(InferenceError, match="the target has 2 nodes; expected one"):
        shapley(two, torch.zeros(1, 3))
    with pytest.raises(InferenceError, match="column names no column: 5; expected some of 0, 1, 2"):
        predict_column(posterior, X, 5)
    with pytest.raises(InferenceError, match=r"column=\[0, 1\]; expected one column"):
        predict_column(posterior, X, [0, 1])
    with pytest.raises(InferenceError, match=r"expected \(4,\) labels 0 to 2, -1 where not known"):
        predict_column(posterior, X, 0, [3] * 4)
    with pytest.raises(InferenceError, match="orders='some'"):
        shapley(posterior, X, orders="some")
    with pytest.raises(InferenceError, match="n=0"):
        leave_one_out(posterior, X).most_suspicious(0)
    wide = lgm.Posterior(lgm.LGM(lgm.zoo.dense(inputs=9, hidden=[2], classes=2)))
    with pytest.raises(InferenceError, match="for rows of up to 7 seen entries, got 9"):
        shapley(wide, torch.zeros(1, 9), orders="all")


def test_labels_that_are_none(model):
    posterior = lgm.Posterior(model)
    for y in ([0.5] * 4, [[0]] * 4, [0] * 3):
        with pytest.raises(InferenceError, match=r"expected \(4,\) labels 0 to 2"):
            predict_column(posterior, X, 0, y)
    with pytest.raises(DataError, match="y of type list are no numbers"):
        predict_column(posterior, X, 0, ["a"] * 4)
    two = lgm.Posterior(lgm.LGM(lgm.Graph((lgm.Layer("x", 3), lgm.Layer("y", 2)), (lgm.Dense("x", "y"),))))
    with pytest.raises(InferenceError, match="the target has 2 nodes; y takes labels of one"):
        predict_column(two, X, 0, [0] * 4)


ROWS = CalibrationRows(torch.rand(20, 3), torch.arange(20) % 3)
ANSWERS = {
    "shapley": lambda predictor, x: shapley(predictor, x, orders=2).answer,
    "predict_set": lambda predictor, x: predict_set(predictor, x, ROWS),
    "predict_column": lambda predictor, x: predict_column(predictor, x, 0),
    "leave_one_out": lambda predictor, x: leave_one_out(predictor, x).log_probs,
    "draw_completions": lambda predictor, x: draw_completions(predictor, x, 2, burn_in=1).labels,
    "log_prob_of_seen": lambda predictor, x: log_prob_of_seen(predictor, x).value,
}


@pytest.mark.parametrize("ask", ANSWERS.values(), ids=list(ANSWERS))
def test_inputs_of_any_kind(model, ask):
    posterior = lgm.Posterior(model, lgm.lbp(1))
    expected = ask(posterior, torch.ones(2, 3))
    assert len(ask(posterior, torch.empty(0, 3))) == 0
    if ask is not ANSWERS["draw_completions"]:  # what it draws
        for x in (np.ones((2, 3)), [[1.0] * 3] * 2, torch.ones(2, 3).long()):
            torch.testing.assert_close(ask(posterior, x), expected)
    for odd in (None, model, "posterior"):
        with pytest.raises(InferenceError, match=f"of type {type(odd).__name__}; expected a"):
            ask(odd, torch.ones(2, 3))
    with pytest.raises(EvidenceError, match=r"\(5,\) do not fit"):
        ask(posterior, torch.ones(2, 5))
    with pytest.raises(EvidenceError, match=r"must be in \[0, 1\]"):
        ask(posterior, torch.full((2, 3), 7.0))
    with pytest.raises((EvidenceError, DataError), match=r"numeric array|no numbers"):
        ask(posterior, "text")
