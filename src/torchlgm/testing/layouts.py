"""The laws that every layout must keep, checked on random numbers."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd import gradcheck

from torchlgm.layout import LEFT, RIGHT, DenseLayout, Layout, edge_list

_BATCH = 2
_SIDES = {LEFT: "left", RIGHT: "right"}


def check_layout(layout: Layout, left_labels: int, right_labels: int, generator: torch.Generator) -> None:
    """Raise an AssertionError that names the first law of a `Layout` that is broken; works in float64."""
    case = _Case(layout, (left_labels - 1, right_labels - 1), generator)
    _check_adjoint(case)
    _check_counts(layout)
    _check_expand(case)
    for side in (LEFT, RIGHT):
        _check_linear(case, side)
        _check_against_dense(case, side)
    _check_gradients(case)


class _Case:
    """A layout with random node values, edge values and a stored table."""

    def __init__(self, layout: Layout, labels: tuple[int, int], generator: torch.Generator) -> None:
        self.layout = layout
        self.labels = labels
        self.generator = generator
        self.table = self.draw(*layout.table_shape, *labels)

    def draw(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator, dtype=torch.float64)

    def nodes(self, side: int) -> Tensor:
        return self.draw(_BATCH, self.layout.nodes[side], self.labels[side])

    def edges(self, side: int) -> Tensor:
        """0 where there is no edge."""
        return self.draw(_BATCH, *self.layout.edge_shape, self.labels[side]) * _mask(self.layout).unsqueeze(-1)

    def full_table(self) -> Tensor:
        return self.layout.expand(self.table).expand(*self.layout.edge_shape, *self.labels)


def _mask(layout: Layout) -> Tensor:
    if layout.mask is None:
        return torch.ones(layout.edge_shape, dtype=torch.float64)
    return layout.mask.to(torch.float64).expand(layout.edge_shape)


def _equal(got: Tensor, expected: Tensor, law: str) -> None:
    if got.shape != expected.shape:
        raise AssertionError(f"{law}: shape {tuple(got.shape)}, expected {tuple(expected.shape)}")
    if not torch.allclose(got, expected, rtol=1e-10, atol=1e-10):
        raise AssertionError(f"{law}: off by up to {(got - expected).abs().max().item():.3g}")


def _holds(truth: bool, law: str) -> None:
    if not truth:
        raise AssertionError(law)


def _check_counts(layout: Layout) -> None:
    _holds(not list(layout.parameters()), "a layout holds no parameters")
    mask = _mask(layout)
    _holds(bool(((mask == 0) | (mask == 1)).all()), "the mask holds only 0 and 1")
    ends, _ = edge_list(layout)
    for side, name in _SIDES.items():
        inside = (ends[side] >= 0) & (ends[side] < layout.nodes[side])
        _holds(bool(inside.all()), f"every edge ends at one of the {layout.nodes[side]} nodes on the {name}")
        counted = torch.bincount(ends[side], minlength=layout.nodes[side]).to(torch.float64)
        _equal(layout.degree(side), counted, f"degree of the {name} nodes counts their edges")
    _holds(ends.unique(dim=1).shape[1] == ends.shape[1], "no two edges join the same nodes")
    total = layout.total(torch.ones(1, *layout.edge_shape, dtype=torch.float64))
    _equal(total, mask.sum().reshape(1), "total counts the edges that exist")


def _check_adjoint(case: _Case) -> None:
    for side, name in _SIDES.items():
        x, e = case.nodes(side), case.edges(side)
        back = case.layout.scatter(e, side)
        _holds(back.shape == x.shape, f"scatter to the {name} makes {tuple(x.shape)}, got {tuple(back.shape)}")
        on_edges = (case.layout.gather(x, side) * e).sum()
        _equal((x * back).sum(), on_edges, f"scatter is the adjoint of gather on the {name}")


def _check_expand(case: _Case) -> None:
    layout, full = case.layout, case.full_table()
    absent = full[_mask(layout) == 0]
    _holds(bool((absent == 0).all()), "expand gives edges that do not exist a table of 0")
    _, exist = edge_list(layout)
    _holds(bool(torch.isin(full.flatten(0, -3)[exist], case.table).all()), "expand only repeats stored energies")
    spread = layout.spread(case.table).expand_as(full)
    _holds(torch.equal(spread.flatten(0, -3)[exist], full.flatten(0, -3)[exist]), "expand is spread where edges exist")
    again = layout.expand(layout.expand(case.table)).expand_as(full)
    _equal(again, full, "expanding an expanded table changes nothing")


def _check_linear(case: _Case, side: int) -> None:
    layout, q = case.layout, case.nodes(side)
    table = case.full_table() if side == LEFT else case.full_table().transpose(-1, -2)
    edges = (layout.gather(q, side).unsqueeze(-1) * table).sum(-2)
    expected = layout.scatter(edges.expand(_BATCH, *layout.edge_shape, -1), 1 - side)
    for form, given in (("a stored", case.table), ("an expanded", layout.expand(case.table))):
        law = f"linear from the {_SIDES[side]} with {form} table is gather, multiply, scatter"
        _equal(layout.linear(given, q, side), expected, law)


def _check_against_dense(case: _Case, side: int) -> None:
    """The same with a dense layout that has a table of 0 where there is no edge."""
    layout, name = case.layout, _SIDES[side]
    dense = DenseLayout(*layout.nodes)
    (left, right), exist = edge_list(layout)

    x, e = case.nodes(side), case.edges(side)
    values = layout.gather(x, side).expand(_BATCH, *layout.edge_shape, -1).flatten(1, -2)[:, exist]
    everywhere = dense.gather(x, side).expand(_BATCH, *layout.nodes, -1)
    _equal(values, everywhere[:, left, right], f"gather from the {name} is that of a dense layout")

    spread = x.new_zeros(_BATCH, *layout.nodes, case.labels[side])
    spread[:, left, right] = e.flatten(1, -2)[:, exist]
    _equal(layout.scatter(e, side), dense.scatter(spread, side), f"scatter to the {name} is that of a dense layout")

    table = x.new_zeros(*layout.nodes, *case.labels)
    table[left, right] = case.full_table().flatten(0, -3)[exist]
    expected = dense.linear(table, x, side)
    _equal(layout.linear(case.table, x, side), expected, f"linear from the {name} is that of a dense layout")


def _check_gradients(case: _Case) -> None:
    layout = case.layout
    _gradcheck(layout.expand, (case.table,), "expand")
    for side, name in _SIDES.items():
        _gradcheck(lambda x, side=side: layout.gather(x, side), (case.nodes(side),), f"gather from the {name}")
        _gradcheck(lambda e, side=side: layout.scatter(e, side), (case.edges(side),), f"scatter to the {name}")
        for form, table in (("stored", case.table), ("expanded", layout.expand(case.table))):
            _gradcheck(
                lambda t, q, side=side: layout.linear(t, q, side),
                (table, case.nodes(side)),
                f"linear from the {name} with {form} table",
            )


def _gradcheck(function: Callable[..., Tensor], inputs: tuple[Tensor, ...], what: str) -> None:
    inputs = tuple(x.detach().clone().requires_grad_() for x in inputs)
    _holds(gradcheck(function, inputs, raise_exception=False, fast_mode=True), f"the gradient of {what} is right")
