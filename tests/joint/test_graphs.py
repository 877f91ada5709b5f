"""Joint questions to graphs with windows, edges inside layers and skipped layers: against enumeration."""

import math
from itertools import permutations

import pytest
import torch

import torchlgm as lgm
from helpers.problems import BY_NAME, enumerate_all, model_of, spell_out
from torchlgm.joint import (
    CalibrationRows,
    draw_completions,
    leave_one_out,
    log_prob_of_seen,
    predict_column,
    predict_set,
    shapley,
)

NAMES = ("conv", "local", "grid", "skip")
every_graph = pytest.mark.parametrize("name", NAMES)


class Asked:
    """A posterior with exact inference, rows with holes, and the truth about them."""

    def __init__(self, name):
        problem = BY_NAME[name]
        self.model, self.layer = model_of(problem), problem.graph.layers[0]
        self.target = self.model.graph.root
        self.posterior = lgm.Posterior(self.model, lgm.exact())
        x = torch.rand(4, self.layer.nodes, generator=torch.Generator().manual_seed(0)).round()
        x[1, 0] = x[2, 1] = x[3, :] = math.nan
        self.x = x.reshape(4, *self.layer.sizes)

    def truth(self, row, **others):
        return enumerate_all(spell_out(self.model, {self.layer.name: row.unsqueeze(0), **others}, 0)).nodes

    def odds(self, row):
        p = torch.tensor(self.truth(row)[self.target, 0])
        return p.log() - (1 - p).log()


def without(row, column):
    row = row.clone()
    row.view(-1)[column] = math.nan
    return row


@every_graph
def test_a_column_given_all_others_and_the_class(name):
    asked = Asked(name)
    column = asked.layer.nodes - 1
    y = torch.tensor([1, 0, 1, -1])
    for known in (None, y):
        probs = predict_column(asked.posterior, asked.x, column, known)
        for row, label, found in zip(asked.x, y, probs, strict=True):
            others = {} if known is None or label < 0 else {asked.target: label.reshape(1, *_sizes(asked))}
            expected = asked.truth(without(row, column), **others)[asked.layer.name, column]
            assert found.tolist() == pytest.approx(expected, abs=1e-9)


def _sizes(asked):
    return asked.model.graph.layer(asked.target).sizes


@every_graph
def test_entries_left_out(name):
    asked = Asked(name)
    left_out = leave_one_out(asked.posterior, asked.x)
    for i, row in enumerate(asked.x):
        for c, value in enumerate(row.flatten()):
            if value.isnan():
                assert left_out.log_probs[i, c].isnan()
            else:
                p = asked.truth(without(row, c))[asked.layer.name, c]
                assert left_out.log_probs[i, c].item() == pytest.approx(math.log(p[int(value)]), abs=1e-9)
                assert left_out.expected[i, c] == max(range(2), key=p.__getitem__)


@every_graph
def test_what_can_be_seen_has_probabilities_that_sum_to_one(name):
    asked = Asked(name)
    rows = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * asked.layer.nodes)
    value, kind = log_prob_of_seen(asked.posterior, rows.reshape(-1, *asked.layer.sizes))
    assert kind == "exact"
    assert value.exp().sum().item() == pytest.approx(1)


@every_graph
def test_shares_are_those_of_all_orders(name):
    asked = Asked(name)
    shares = shapley(asked.posterior, asked.x, orders="all")
    for row, values, base, answer in zip(asked.x, *shares, strict=True):
        seen = (~row.flatten().isnan()).nonzero()[:, 0].tolist()
        orders = list(permutations(seen))
        expected = torch.zeros(row.numel(), len(base))
        for order in orders:
            shown = torch.full_like(row, math.nan)
            for c in order:
                before = asked.odds(shown)
                shown.view(-1)[c] = row.flatten()[c]
                expected[c] += (asked.odds(shown) - before) / len(orders)
        torch.testing.assert_close(values.reshape(expected.shape), expected, atol=1e-9, rtol=0)
        torch.testing.assert_close(base + values.flatten(0, -2).sum(0), answer, atol=1e-9, rtol=0)
        torch.testing.assert_close(answer, asked.odds(row), atol=1e-9, rtol=0)


@every_graph
def test_draws_have_the_frequencies_of_enumeration(name):
    asked = Asked(name)
    generator = torch.Generator().manual_seed(0)
    draws = draw_completions(asked.posterior, asked.x[1:3], 3000, generator=generator)
    assert (draws.effective > 300).all()
    for i, row in enumerate(asked.x[1:3]):
        nodes = asked.truth(row)
        for c, value in enumerate(row.flatten()):
            ones = draws.labels[i, :, c].double().mean().item()
            assert ones == pytest.approx(nodes[asked.layer.name, c][1] if value.isnan() else value.item(), abs=0.07)


@every_graph
def test_sets_cover(name):
    asked = Asked(name)
    generator = torch.Generator().manual_seed(0)
    nothing = torch.full((1200, *asked.layer.sizes), math.nan)
    drawn = lgm.sample(asked.model, {asked.layer.name: nothing}, sweeps=20, generator=generator)
    x, y = drawn[asked.layer.name].double(), drawn[asked.target].flatten()
    x.flatten(1)[:, 0] = math.nan
    sets = predict_set(asked.posterior, x[600:], CalibrationRows(x[:600], y[:600]), coverage=0.8)
    covered = sets.gather(1, y[600:, None]).double().mean()
    assert covered > 0.75
    assert sets.sum() < sets.numel()
