"""What a measurement is worth: against enumeration, the closed form against clamping, and courses of questions."""

import math
from itertools import product

import pytest
import torch

import torchlgm as lgm
from helpers.problems import BY_NAME, enumerate_all, model_of, spell_out
from torchlgm import Dense, Graph, Layer
from torchlgm.errors import InferenceError
from torchlgm.joint import acquire, star
from torchlgm.joint.conditionals import Conditionals
from torchlgm.sklearn.encoding import Place, Rows

NAN = math.nan
STAR = BY_NAME["star"]
X = torch.tensor([[1.0, NAN, NAN], [NAN, 0.0, 1.0], [NAN, NAN, NAN], [0.0, 1.0, 1.0], [0.3, NAN, 0.6]])

mixed = Graph(
    (Layer("a", 3), Layer("b", 2, 4), Layer("h", 5), Layer("classes", 1, 3)),
    (Dense("a", "h"), Dense("b", "h"), Dense("h", "classes")),
    root="classes",
)


def mixed_posterior(device="cpu"):
    model = lgm.LGM(mixed, lgm.Init(table=1.0, unary=0.5), generator=torch.Generator().manual_seed(3))
    return lgm.Posterior(model.to(device), lgm.lbp(1), Rows((Place("a", (0, 3, 4), 2), Place("b", (1, 2), 4))))


def mixed_rows():
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(8, 5, generator=generator)
    x[torch.rand(8, 5, generator=generator) < 0.5] = NAN
    x[0], x[1] = NAN, 0.25
    return x


def entropy(p):
    return -sum(float(q) * math.log(q) for q in p if q > 0)


def believed(model, row, target="classes"):
    """Probabilities of the class and of each input, by enumeration."""
    nodes = enumerate_all(spell_out(model, {"inputs": row.unsqueeze(0)}, 0)).nodes
    return nodes[target, 0], {i: nodes["inputs", i] for i in range(3) if ("inputs", i) in nodes}


def worth(model, row, columns, risk=entropy):
    """H(y) - E H(y | columns) by enumeration: the chance of each labelling is a chain of conditional ones."""
    total = 0.0
    mean = torch.zeros(3)
    for labels in product((0.0, 1.0), repeat=len(columns)):
        filled, chance = row.clone(), 1.0
        for column, label in zip(columns, labels, strict=True):
            chance *= float(believed(model, filled)[1][column][int(label)])
            filled[column] = label
        p = torch.tensor(believed(model, filled)[0])
        mean = mean + chance * p
        total += chance * risk(p.tolist())
    return risk(mean.tolist()) - total


def test_gains_are_those_of_enumeration():
    model = model_of(STAR)
    gains = acquire(lgm.Posterior(model, lgm.exact()), X)
    for i, row in enumerate(X):
        for c in range(3):
            expected = worth(model, row, [c]) if row[c].isnan() else 0.0
            assert gains[i, c].item() == pytest.approx(expected, abs=1e-9)
    assert gains.max() > 0.01


def test_groups_are_bought_together():
    model = model_of(STAR)
    gains = acquire(lgm.Posterior(model, lgm.exact()), X, groups={"both": [1, 2], "first": 0})
    for i, row in enumerate(X):
        missing = [c for c in (1, 2) if row[c].isnan()]
        assert gains[i, 0].item() == pytest.approx(worth(model, row, missing) if missing else 0, abs=1e-9)
    torch.testing.assert_close(gains[:, 1], acquire(lgm.Posterior(model, lgm.exact()), X)[:, 0])


def test_a_group_with_many_labellings_is_drawn(monkeypatch):
    drawn = acquire(mixed_posterior(), mixed_rows(), groups=[[0, 1, 2, 3, 4]])  # up to 128 labellings
    monkeypatch.setattr("torchlgm.joint.gain.MOST_LABELLINGS", 128)
    every = acquire(mixed_posterior(), mixed_rows(), groups=[[0, 1, 2, 3, 4]])
    assert drawn[0] != every[0]
    torch.testing.assert_close(drawn, every, atol=0.05, rtol=0)


def test_two_steps_are_those_of_enumeration():
    model = model_of(STAR)
    costs = [1.0, 2.0, 5.0]
    row, expected, expected_rates = X[0], [], []
    for first, second in ((1, 2), (2, 1)):
        alone = total = worth(model, row, [first])
        for label in (0.0, 1.0):
            filled = row.clone()
            filled[first] = label
            chance = believed(model, row)[1][first][int(label)]
            total += float(chance) * worth(model, filled, [second])
        expected.append(max(alone, total / 2))
        expected_rates.append(max(alone / costs[first], total / 7))
    posterior = lgm.Posterior(model, lgm.exact())
    assert acquire(posterior, X[:1], lookahead=2)[0].tolist() == pytest.approx([0.0, *expected], abs=1e-9)
    rates = acquire(posterior, X[:1], lookahead=2, costs=costs)
    assert rates[0].tolist() == pytest.approx([0.0, *expected_rates], abs=1e-9)


def test_a_loss_takes_the_place_of_the_entropy():
    model, loss = model_of(STAR), [[0.0, 1.0, 4.0], [2.0, 0.0, 1.0], [8.0, 3.0, 0.0]]

    def least(p):
        return min(sum(q * row[d] for q, row in zip(p, loss, strict=True)) for d in range(3))

    gains = acquire(lgm.Posterior(model, lgm.exact()), X, loss=loss)
    for i, row in enumerate(X[:3]):
        for c in range(3):
            if row[c].isnan():
                assert gains[i, c].item() == pytest.approx(worth(model, row, [c], least), abs=1e-9)
    assert gains.min() >= 0


def test_costs_divide():
    posterior = lgm.Posterior(model_of(STAR), lgm.exact())
    costs = [1.0, 2.0, 5.0]
    torch.testing.assert_close(acquire(posterior, X, costs=costs), acquire(posterior, X) / torch.tensor(costs))
    named = acquire(posterior, X, costs={"a": 2, "b": 4}, groups={"a": [0], "b": [1, 2]})
    whole = acquire(posterior, X, groups={"a": [0], "b": [1, 2]})
    torch.testing.assert_close(named, whole / torch.tensor([2.0, 4.0]))


def test_a_column_may_be_the_target():
    model = model_of(STAR)
    gains = acquire(lgm.Posterior(model, lgm.exact()), X[2:3], target=0)
    row = X[2]
    after = 0.0
    for label in (0.0, 1.0):
        filled = row.clone()
        filled[1] = label
        after += float(believed(model, row)[1][1][int(label)]) * entropy(believed(model, filled)[1][0])
    assert gains[0, 1].item() == pytest.approx(entropy(believed(model, row)[1][0]) - after, abs=1e-9)
    assert gains[0, 0] == 0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_closed_form_says_what_clamping_says(dtype):
    posterior = mixed_posterior().to(dtype)
    closed = star.conditionals_of(posterior)
    assert isinstance(closed, star.StarConditionals)
    clamped = Conditionals(posterior, closed.nodes, None)
    known = closed.nodes.known(posterior.evidence(mixed_rows().to(dtype)))
    with torch.no_grad():
        torch.testing.assert_close(closed.of_target(known), clamped.of_target(known), atol=1e-6, rtol=0)
        torch.testing.assert_close(closed.of_columns(known), clamped.of_columns(known), atol=1e-6, rtol=0)
        rows, columns = (~known.seen).nonzero(as_tuple=True)
        real = closed.nodes.exists[columns]
        here, there = closed.given(known, rows, columns)[real], clamped.given(known, rows, columns)[real]
        torch.testing.assert_close(here, there, atol=1e-6 if dtype == torch.float64 else 1e-5, rtol=0)
        rows, columns = known.seen.nonzero(as_tuple=True)
        here, there = closed.left_out(known, rows, columns), clamped.left_out(known, rows, columns)
        torch.testing.assert_close(here, there, atol=1e-6, rtol=0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_the_closed_form_on_a_gpu():
    x = mixed_rows()
    here = acquire(mixed_posterior("cuda"), x.cuda())
    torch.testing.assert_close(here.cpu(), acquire(mixed_posterior(), x), atol=1e-6, rtol=0)


def test_gains_are_never_negative_and_0_where_known():
    x = mixed_rows()
    for options in ({}, {"lookahead": 2}, {"loss": 1 - torch.eye(3)}, {"target": [1, 3]}):
        gains = acquire(mixed_posterior(), x, **options)
        assert (gains >= 0).all()
        assert not gains[~x.isnan()].any()


def context_model():
    """An XOR: input 0 alone says nothing of the class, and 1 alone neither; 2 says a little."""
    graph = lgm.zoo.dense(inputs=3, hidden=[4], classes=2)
    model = lgm.LGM(graph, "zero").double()
    with torch.no_grad():
        for h, (a, b) in enumerate(product((0, 1), repeat=2)):
            model.table["inputs-hidden"][0, h] = -6.0 * (2 * a - 1)
            model.table["inputs-hidden"][1, h] = -6.0 * (2 * b - 1)
            model.unary["hidden"][h] = 6.0 * (a + b) - 2.0
            model.table["hidden-classes"][h] = -5.0 * (1 if a != b else -1)
        model.table["inputs-hidden"][2] = 0.0
    return model


def test_lookahead_sees_what_is_worth_something_together_only():
    posterior = lgm.Posterior(context_model(), lgm.exact())
    x = torch.full((1, 3), NAN)
    one, two = acquire(posterior, x)[0], acquire(posterior, x, lookahead=2)[0]
    assert two[0] > 10 * one[0]
    assert two[0] > 10 * two[2]


def test_lookahead_does_not_put_off_what_is_worth_most():
    """After one half of the XOR the other is bought at once, not what says nothing and leaves it for later."""
    posterior = lgm.Posterior(context_model(), lgm.exact())
    x = torch.tensor([[1.0, NAN, NAN]])
    two = acquire(posterior, x, lookahead=2)[0]
    assert two[1] == acquire(posterior, x)[0, 1] > 1.9 * two[2]


def test_a_course_follows_the_best_gain_and_its_budget():
    posterior = mixed_posterior()
    x = mixed_rows().nan_to_num(0.5)
    y = torch.arange(8) % 3
    course = lgm.Acquisition(posterior).run(x, y)
    first = acquire(posterior, torch.full_like(x, NAN)).argmax(1)
    assert (course.asked[0] == first).all()
    assert (course.asked.sort(0).values == torch.arange(5).unsqueeze(1)).all()  # each column once
    torch.testing.assert_close(course.log_probs[-1], posterior(x))
    curve = course.curve()
    assert curve["questions"] == [0, 1, 2, 3, 4, 5] == curve["cost"]
    assert curve["accuracy"][-1] == pytest.approx((posterior(x).argmax(1) == y).double().mean().item())

    costly = lgm.Acquisition(posterior, [1, 2, 3, 4, 5], budget=5).run(x, y)
    assert costly.costs.max() <= 5
    fixed = lgm.Acquisition(posterior, order="static").run(x, y)
    assert (fixed.asked == fixed.asked[:, :1]).all()
    drawn = [lgm.Acquisition(posterior, order="random", seed=seed).run(x, y).asked for seed in (0, 0, 1)]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_a_course_stops_where_nothing_is_worth_it():
    posterior, x, y = mixed_posterior(), mixed_rows().nan_to_num(0.5), torch.zeros(8)
    assert lgm.Acquisition(posterior, stop=100.0).run(x, y).asked.numel() == 0
    course = lgm.Acquisition(posterior, stop=0.02).run(x, y)
    everything = lgm.Acquisition(posterior).run(x, y)
    assert len(course.asked) < len(everything.asked) or (course.asked == -1).any()


def test_what_is_not_there_cannot_be_bought():
    posterior, x = mixed_posterior(), mixed_rows()
    course = lgm.Acquisition(posterior).run(x, torch.zeros(8))
    for i, row in enumerate(x):
        bought = {column for column in course.asked[:, i].tolist() if column >= 0}
        assert bought == set((~row.isnan()).nonzero()[:, 0].tolist())


def test_groups_and_free_columns_in_a_course():
    posterior, x = mixed_posterior(), mixed_rows().nan_to_num(0.5)
    course = lgm.Acquisition(posterior, groups={"left": [0, 1], "right": [2, 3]}).run(x, torch.zeros(8), start=[4])
    assert course.names == ("left", "right")
    assert len(course.asked) == 2
    torch.testing.assert_close(course.log_probs[-1], posterior(x))


def test_next_names_what_to_buy():
    posterior, x = mixed_posterior(), mixed_rows()
    row = torch.full((5,), NAN)
    assert lgm.Acquisition(posterior).next(row) == int(acquire(posterior, row.unsqueeze(0)).argmax())
    assert lgm.Acquisition(posterior, stop=100.0).next(row) is None
    thrifty = lgm.Acquisition(posterior, budget=2)
    assert thrifty.next(row, spent=1) is not None
    assert thrifty.next(row, spent=1.5) is None
    with pytest.raises(InferenceError, match="no entry of the row is missing"):
        lgm.Acquisition(posterior).next(x[1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "age"}, "target names no column: 'age'; expected some of 0, 1, 2"),
        ({"costs": [1.0, 2.0]}, r"costs= is shaped \(2,\); expected one cost for each of 3 options"),
        ({"costs": [1.0, 2.0, -1.0]}, "costs= has -1; expected finite numbers above 0"),
        ({"costs": "abc"}, "costs='abc'; expected a number for each of 3 options"),
        ({"target": []}, "target= is empty"),
        ({"costs": {0: 1.0}}, "costs= must name each of the 3 options once; look at 1"),
        ({"groups": {"blood": []}}, "group 'blood' names no column"),
        ({"groups": [[7]]}, "group 0 names no column: 7"),
        ({"groups": []}, "groups= is empty"),
        ({"lookahead": 3}, "lookahead=3"),
        ({"loss": [[0, 1, NAN], [1, 0, 1], [1, 1, 0]]}, "loss= has nan; expected finite numbers"),
        ({"loss": [[0, 1], [1, 0]]}, r"loss= is shaped \(2, 2\); expected numbers \(3, decisions\)"),
    ],
)
def test_bad_arguments_have_one_clear_error(options, message):
    with pytest.raises(InferenceError, match=message):
        acquire(lgm.Posterior(model_of(STAR), lgm.exact()), X, **options)


def test_bad_rows_have_one_clear_error():
    posterior = lgm.Posterior(model_of(STAR))
    with pytest.raises(InferenceError, match="no entry of X is missing"):
        acquire(posterior, X.nan_to_num(0.5))
    with pytest.raises(InferenceError, match="model is of type LGM; expected a Posterior or a fitted LGMClassifier"):
        acquire(posterior.model, X)
    with pytest.raises(InferenceError, match="X has 5 rows, y has 4"):
        lgm.Acquisition(posterior).run(X, torch.zeros(4))
    with pytest.raises(InferenceError, match="questions=-1"):
        lgm.Acquisition(posterior).run(X, torch.zeros(5), questions=-1)
    with pytest.raises(InferenceError, match="budget='x'; expected a number from 0 on"):
        lgm.Acquisition(posterior, budget="x")
    with pytest.raises(InferenceError, match="stop=-1"):
        lgm.Acquisition(posterior, stop=-1)
