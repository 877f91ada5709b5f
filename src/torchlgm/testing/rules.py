"""The laws that every rule must keep. The test of a new rule calls `check_rule(rule)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.testing import assert_close

from torchlgm.inference.rules import Message, Rule
from torchlgm.layout import LEFT, RIGHT, DenseLayout, SparseLayout
from torchlgm.mrf import PIN, Link
from torchlgm.ops.compact import full

LABELS = ((2, 2), (2, 3), (3, 2), (4, 3))
BATCH = 3
EDGES = ((0, 0), (0, 1), (1, 1), (2, 0), (2, 1), (3, 1))


class Sending(NamedTuple):
    """One connection with what a rule is given to send over it, out of its left side."""

    link: Link
    belief: Tensor  # (B, left nodes, kl)
    reverse: Tensor | None  # (B, *edge, kl)

    def by(self, rule: Rule, side: int = LEFT) -> Message:
        return rule.send(rule.prepare(self.link), side, self.belief, self.reverse if rule.uses_reverse else None)


def check_rule(rule: Rule, seed: int = 0) -> None:
    """Assert every law for `rule`, with different numbers of labels on both sides, in float64."""
    for left, right in LABELS:
        generator = torch.Generator().manual_seed(seed)
        for law in LAWS:
            try:
                law(rule, _random_sending(left - 1, right - 1, generator))
            except (AssertionError, RuntimeError) as error:
                message = f"{rule} with {left} and {right} labels breaks the law '{law.__name__}': {error}"
                raise AssertionError(message) from error


def one_edge_at_a_time(rule: Rule, sending: Sending) -> None:
    """What arrives at a node is the sum of what each edge alone brings."""
    together = sending.by(rule).inflow
    alone = torch.zeros_like(together)
    for edge in range(len(EDGES)):
        alone = alone + _only(sending, [edge]).by(rule).inflow
    assert_close(together, alone)


def edges_in_any_order(rule: Rule, sending: Sending) -> None:
    order = [3, 0, 5, 1, 4, 2]
    mine, theirs = sending.by(rule), _only(sending, order).by(rule)
    assert_close(mine.inflow, theirs.inflow)
    if mine.edges is not None and theirs.edges is not None:
        assert_close(mine.edges[:, order], theirs.edges)


def nodes_in_any_order(rule: Rule, sending: Sending) -> None:
    left, right = torch.tensor([2, 3, 0, 1]), torch.tensor([1, 0])
    moved = tuple((int(left.argsort()[i]), int(right.argsort()[j])) for i, j in EDGES)
    link = sending.link._replace(layout=SparseLayout(4, 2, moved))
    theirs = sending._replace(link=link, belief=sending.belief[:, left]).by(rule)
    assert_close(sending.by(rule).inflow[:, right], theirs.inflow)


def the_same_on_any_layout(rule: Rule, sending: Sending) -> None:
    dense = sending.link._replace(layout=DenseLayout(3, 2))
    table, rho = dense.table.reshape(3, 2, *dense.table.shape[1:]), dense.rho.reshape(3, 2)
    listed = SparseLayout(3, 2, tuple((i, j) for i in range(3) for j in range(2)))
    belief = sending.belief[:, :3]
    reverse = None if sending.reverse is None else sending.reverse.unflatten(1, (3, 2))
    mine = Sending(dense._replace(table=table, rho=rho), belief, reverse).by(rule)
    theirs = Sending(sending.link._replace(layout=listed), belief, sending.reverse).by(rule)
    assert_close(mine.inflow, theirs.inflow)


def the_same_in_both_directions(rule: Rule, sending: Sending) -> None:
    turned = SparseLayout(2, 4, tuple((j, i) for i, j in EDGES))
    link = sending.link._replace(layout=turned, table=sending.link.table.transpose(-1, -2))
    assert_close(sending.by(rule).inflow, sending._replace(link=link).by(rule, RIGHT).inflow)


def samples_are_independent(rule: Rule, sending: Sending) -> None:
    together = sending.by(rule).inflow
    for b in range(BATCH):
        reverse = None if sending.reverse is None else sending.reverse[b : b + 1]
        alone = Sending(sending.link, sending.belief[b : b + 1], reverse).by(rule).inflow
        assert_close(together[b : b + 1], alone, rtol=1e-13, atol=1e-13)


def a_batch_of_one_broadcasts(rule: Rule, sending: Sending) -> None:
    assert sending.reverse is not None
    one, many = sending.belief[:1], sending.belief[:1].expand_as(sending.belief)
    pairs = [((one, None), (many, None)), ((one, sending.reverse), (many, sending.reverse))]
    row = sending.reverse[:1]
    pairs.append(((sending.belief, row), (sending.belief, row.expand_as(sending.reverse))))
    for short, long in pairs:
        mine = Sending(sending.link, *short).by(rule).inflow
        theirs = Sending(sending.link, *long).by(rule).inflow
        assert_close(mine.expand_as(theirs), theirs, rtol=1e-13, atol=1e-13)
    assert Sending(sending.link, one, None).by(rule).inflow.shape[0] == 1


def a_table_of_zeros_says_nothing(rule: Rule, sending: Sending) -> None:
    _says_nothing(sending._replace(link=sending.link._replace(table=torch.zeros_like(sending.link.table))).by(rule))


def a_pinned_node_says_nothing(rule: Rule, sending: Sending) -> None:
    _says_nothing(sending._replace(belief=torch.full_like(sending.belief, -PIN)).by(rule))


def _says_nothing(message: Message) -> None:
    for part in message:
        if part is not None:
            assert_close(part, torch.zeros_like(part), rtol=0, atol=1e-13)


def any_label_may_be_the_implicit_one(rule: Rule, sending: Sending) -> None:
    """With the source's first and last label exchanged, only what is left of the table's new first row moves to the
    target, so a constant added to all entries of a table, or for all labels of the source, makes no difference."""
    k = sending.belief.shape[-1]
    exchange = [k, *range(1, k), 0]
    table = full(sending.link.table.transpose(-1, -2)).transpose(-1, -2)[:, exchange]
    first_row = table[:, :1]

    def exchanged(x: Tensor) -> Tensor:
        x = full(x)[..., exchange]
        return (x - x[..., :1])[..., 1:]

    link = sending.link._replace(table=(table - first_row)[:, 1:])
    reverse = None if sending.reverse is None else exchanged(sending.reverse)
    theirs = Sending(link, exchanged(sending.belief), reverse).by(rule).inflow
    moved = link.layout.scatter(first_row.squeeze(1).unsqueeze(0), RIGHT)
    assert_close(sending.by(rule).inflow, theirs - moved)


def large_energies_stay_finite(rule: Rule, sending: Sending) -> None:
    link = sending.link._replace(table=sending.link.table * 300)
    for sign in (-1, 1):
        message = sending._replace(link=link, belief=sending.belief * 300 * sign).by(rule)
        assert message.inflow.isfinite().all()


def gradients_are_right(rule: Rule, sending: Sending) -> None:
    def inflow(table: Tensor, belief: Tensor, reverse: Tensor) -> Tensor:
        return Sending(sending.link._replace(table=table), belief, reverse).by(rule).inflow

    assert sending.reverse is not None
    inputs = [x.clone().requires_grad_() for x in (sending.link.table, sending.belief[:2], sending.reverse[:2])]
    assert gradcheck(inflow, inputs)


LAWS: tuple[Callable[[Rule, Sending], None], ...] = (
    one_edge_at_a_time,
    edges_in_any_order,
    nodes_in_any_order,
    the_same_on_any_layout,
    the_same_in_both_directions,
    samples_are_independent,
    a_batch_of_one_broadcasts,
    a_table_of_zeros_says_nothing,
    a_pinned_node_says_nothing,
    any_label_may_be_the_implicit_one,
    large_energies_stay_finite,
    gradients_are_right,
)


def _random_sending(kl: int, kr: int, generator: torch.Generator) -> Sending:
    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    rho = torch.rand(len(EDGES), generator=generator, dtype=torch.float64) / 2 + 0.5
    link = Link("left-right", "left", "right", SparseLayout(4, 2, EDGES), normal(len(EDGES), kl, kr), rho)
    return Sending(link, normal(BATCH, 4, kl), normal(BATCH, len(EDGES), kl))


def _only(sending: Sending, edges: list[int]) -> Sending:
    """The same with these edges alone, in this order."""
    link = sending.link
    layout = SparseLayout(4, 2, tuple(EDGES[e] for e in edges))
    reverse = None if sending.reverse is None else sending.reverse[:, edges]
    return sending._replace(
        link=link._replace(layout=layout, table=link.table[edges], rho=link.rho[edges]), reverse=reverse
    )
