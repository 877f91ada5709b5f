"""Several stars that answer together, and what rows of each class look like: against saying it one by one."""

import math

import pytest
import torch

import torchlgm as lgm
from torchlgm import Dense, Graph, Layer
from torchlgm.joint import MixedStars, asked_for, mixed
from torchlgm.joint.gain import Question
from torchlgm.ops import star
from torchlgm.sklearn.encoding import Place, Rows

CLASSES, HIDDEN = 3, 19
LABELS = torch.tensor([2, 4, 4, 2, 2])


def mixed_stars(loud=1.0):
    """Members that differ, one of which counts the more the less is missing."""
    layers = (Layer("a", 3), Layer("b", 2, 4), Layer("h", HIDDEN), Layer("classes", 1, CLASSES))
    graph = Graph(layers, (Dense("a", "h"), Dense("b", "h"), Dense("h", "classes")), root="classes")
    rows = Rows((Place("a", (0, 3, 4), 2), Place("b", (1, 2), 4)))
    generator = torch.Generator().manual_seed(3)
    posteriors = []
    for _ in range(2):
        model = lgm.LGM(graph, lgm.Init(table=loud, unary=0.5), generator=generator).double()
        posteriors.append(lgm.Posterior(model, lgm.lbp(1), rows))
    shares = torch.rand(CLASSES, 5, 4, generator=generator) * (torch.arange(4) < LABELS.unsqueeze(1))
    return posteriors, MixedStars.of(posteriors, weigh, shares / shares.sum(2, keepdim=True))


def weigh(missing):
    return torch.log_softmax(torch.stack([-2 * missing, missing]), 0)


def rows_with_holes(count=7):
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(count, 5, generator=generator, dtype=torch.float64)
    x[torch.rand(count, 5, generator=generator) < 0.5] = math.nan
    x[0] = math.nan
    return x


def believed(posteriors, x):
    log_probs = torch.stack([posterior(x) for posterior in posteriors])
    return (log_probs + weigh(x.isnan().double().mean(1)).unsqueeze(-1)).logsumexp(0).exp()


def test_the_members_answer_together():
    posteriors, stars = mixed_stars()
    x = rows_with_holes()
    answers = stars.of_target(stars.known(x))[:, 0].exp()
    torch.testing.assert_close(answers.double(), believed(posteriors, x), atol=1e-5, rtol=0)


def test_what_is_missing_follows_from_the_class():
    posteriors, stars = mixed_stars()
    x = rows_with_holes()
    known = stars.known(x)
    probs, chances = stars.of_columns(known), believed(posteriors, x)
    for i, j in x.isnan().nonzero().tolist():
        expected = (chances[i].unsqueeze(1) * stars.labels_of_class[:, j]).sum(0)
        torch.testing.assert_close(probs[i, j].double(), expected.double(), atol=1e-5, rtol=0)
    torch.testing.assert_close(probs[known.seen], known.q[known.seen])


@pytest.mark.parametrize("loud", [1.0, 8.0])
@pytest.mark.parametrize("backend", ["native", "eager"])
def test_one_more_known_column_is_what_knowing_it_says(backend, loud):
    posteriors, stars = mixed_stars(loud)
    x = rows_with_holes()
    rows, columns = x.isnan().nonzero(as_tuple=True)
    with lgm.backend(backend), torch.no_grad():
        given = stars.given(stars.known(x), rows, columns)[:, :, 0].exp()
    for n, (i, j) in enumerate(zip(rows.tolist(), columns.tolist(), strict=True)):
        for k in range(int(LABELS[j])):
            filled = x[i : i + 1].clone()
            filled[0, j] = k / (int(LABELS[j]) - 1)
            torch.testing.assert_close(given[n, k].double(), believed(posteriors, filled)[0], atol=2e-5, rtol=0)


@pytest.mark.parametrize("loud", [1.0, 6.0])
@pytest.mark.parametrize(("labels", "classes", "hidden"), [(33, 2, 16), (2, 7, 40), (17, 20, 5)])
def test_compiled_code_for_any_numbers_of_labels_and_classes(labels, classes, hidden, loud):
    generator = torch.Generator().manual_seed(0)

    def random(*shape):
        return loud * torch.randn(*shape, generator=generator, dtype=torch.float64)

    odds, change = 4 * random(2, 3, hidden), 2 * random(2, 4, labels, hidden)
    out, target = random(2, hidden, classes), random(2, classes)
    rows, columns = torch.tensor([0, 2, 1]), torch.tensor([3, 0, 0])
    weight = torch.tensor([[0.3, 0.5, 1], [0.7, 0.5, 0]])
    changed = odds[:, rows].unsqueeze(2) + change[:, columns]  # (M, n, K, H)
    sums = torch.nn.functional.softplus(changed.unsqueeze(-1) + out[:, None, None]).sum(3) + target[:, None, None]
    expected = (weight[..., None, None] * torch.softmax(sums, -1)).sum(0)
    asked = star.Asked(odds.float(), change.float(), out.float(), target.float(), weight.float(), rows, columns)
    with lgm.backend("native"):
        code = star.native_code(asked.odds, 1)
    assert code is not None
    given = star.given(code, asked, 1)
    torch.testing.assert_close(given.double(), expected, atol=1e-5 * loud, rtol=0)


def test_gains_are_mutual_informations():
    _, stars = mixed_stars()
    x = rows_with_holes()
    known, question = stars.known(x), Question.about_columns(stars)
    with torch.no_grad():
        gains = question.values(known)
    assert (gains >= 0).all()
    assert not gains[~x.isnan()].any()
    row, column = 0, 1
    q, after = stars.outcomes(known)(torch.tensor([row]), torch.tensor([column]))
    q, after = q[0], after[0, :, 0].exp()
    mean = q @ after
    expected = torch.special.entr(mean).sum() - q @ torch.special.entr(after).sum(1)
    assert gains[row, column].item() == pytest.approx(expected.item(), abs=1e-6)
    assert gains[row, column] > 0.001


def test_outcomes_agree_with_the_belief_about_the_class():
    """Their mean is nearer to it than that of what is common in each class; labels that a column lacks stay out."""
    _, stars = mixed_stars(8.0)
    x = rows_with_holes()
    known = stars.known(x)
    rows, columns = x.isnan().nonzero(as_tuple=True)
    with torch.no_grad():
        expected, now = stars.of_columns(known), stars.of_target(known)[:, 0].exp()[rows]
        q, after = stars.outcomes(known)(rows, columns)
    torch.testing.assert_close(q.sum(1), torch.ones_like(q[:, 0]))
    assert not q[~stars.nodes.exists[columns]].any()

    def distance(chances):
        mean = torch.einsum("nk,nkc->nc", chances, after.squeeze(2).exp())
        return (now * (now / mean).log()).sum(1)

    assert (distance(q) <= distance(expected[rows, columns]) + 1e-6).all()
    assert distance(q).mean() < 0.8 * distance(expected[rows, columns]).mean()
    column = int(columns[0])
    lacking = known.take(rows[columns == column])
    torch.testing.assert_close(stars.of_missing(lacking, columns[:1].squeeze()), q[columns == column])


def test_beliefs_that_are_a_mixture_are_taken_apart():
    after = torch.tensor([[[0.9, 0.1], [0.2, 0.8]]])
    chances = mixed.agreeing(torch.tensor([[0.5, 0.5]]), after, torch.tensor([[0.83, 0.17]]))
    torch.testing.assert_close(chances, torch.tensor([[0.9, 0.1]]), atol=0.02, rtol=0)


@pytest.mark.parametrize("backend", ["native", "eager"])
def test_a_belief_that_no_label_allows_changes_nothing(backend):
    after = torch.tensor([[[1.0, 0.0], [1.0, 0.0]]]).expand(3, 2, 2)
    chances = torch.tensor([[0.3, 0.7], [1.0, 0.0], [0.0, 1.0]])
    with lgm.backend(backend):
        found = mixed.agreeing(chances, after, torch.tensor([[0.0, 1.0]]).expand(3, 2))
    torch.testing.assert_close(found, chances)


@pytest.mark.parametrize(("labels", "classes"), [(2, 2), (16, 3), (35, 18)])
def test_compiled_code_agrees_alike(labels, classes):
    generator = torch.Generator().manual_seed(labels)

    def shares(*shape):
        return torch.softmax(5 * torch.randn(*shape, generator=generator), -1)

    chances, after, now = shares(9, labels), shares(9, labels, classes), shares(9, classes)
    given, kept = (chances, after, now), chances.clone()
    with lgm.backend("native"):
        compiled = mixed.agreeing(*given)
    with lgm.backend("eager"):
        torch.testing.assert_close(compiled, mixed.agreeing(*given), atol=1e-5, rtol=1e-4)
    assert torch.equal(chances, kept)


def test_other_columns_may_be_the_target():
    _, stars = mixed_stars()
    x = rows_with_holes()
    about = stars.about((0,))
    gains = Question.about_columns(about).values(about.known(x))
    assert (gains >= 0).all()
    assert gains.max() > 0
    assert not gains[:, 0].any()


def test_every_second_member_alone():
    posteriors, stars = mixed_stars()
    some, x = stars.every(2), rows_with_holes()
    answers = some.of_target(some.known(x))[:, 0].exp()
    torch.testing.assert_close(answers.double(), posteriors[0](x).exp(), atol=1e-5, rtol=0)


def test_columns_are_asked_for_one_after_another():
    _, stars = mixed_stars()
    x = rows_with_holes()
    asked = asked_for(stars, x, 5)
    first = Question.about_columns(stars).values(stars.known(torch.full_like(x, math.nan)))
    for i, row in enumerate(x):
        there = (~row.isnan()).nonzero()[:, 0].tolist()
        assert sorted(asked[i, : len(there)].tolist()) == there
        assert (asked[i, len(there) :] == -1).all()
        if there:
            assert asked[i, 0] == max(there, key=lambda j: first[0, j].item())
