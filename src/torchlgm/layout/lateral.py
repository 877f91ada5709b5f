"""Edges between nodes of one layer: colours of nodes such that no edge joins two of one colour.

Schedules, sampling and the like go by colour. So that one side of a link has its lower colours, a link is turned: at
the edges that are `flipped`, left and right are exchanged, and tables are transposed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from torchlgm.layout.base import LEFT, RIGHT, Layout, edge_list
from torchlgm.layout.sparse import SparseLayout


def colour(nodes: Iterable[int], pairs: Iterable[tuple[int, int]]) -> dict[int, int]:
    """The least colour that no neighbour has, breadth first: two colours for every tree and grid."""
    neighbours: dict[int, list[int]] = {v: [] for v in nodes}
    for left, right in pairs:
        neighbours[left].append(right)
        neighbours[right].append(left)
    colours: dict[int, int] = {}
    for root in neighbours:
        queue = deque([root])
        while queue:
            v = queue.popleft()
            if v in colours:
                continue
            taken = {colours.get(n) for n in neighbours[v]}
            colours[v] = next(c for c in range(len(taken) + 1) if c not in taken)
            queue.extend(n for n in neighbours[v] if n not in colours)
    return {v: colours[v] for v in neighbours}


def colour_masks(layouts: Sequence[Layout]) -> Tensor:
    """The nodes of each colour, `(colours, nodes)`, of one layer with these edges."""
    pairs = torch.cat([edge_list(layout)[0] for layout in layouts], 1).T.tolist()
    numbers = torch.tensor(list(colour(range(layouts[0].nodes[LEFT]), pairs).values()))
    return numbers == torch.arange(int(numbers.max()) + 1)[:, None]


class TurnedLayout(SparseLayout):
    """The edges of another layout, the end of the lower colour being the left one."""

    flipped: Tensor  # broadcasts against `(*edge, kl, kr)`: where the ends are exchanged

    def __init__(self, layout: Layout, colours: Tensor) -> None:
        numbers = torch.arange(layout.nodes[LEFT], dtype=torch.float64)[None, :, None]
        ends = [layout.gather(numbers, s).expand(1, *layout.edge_shape, 1)[0, ..., 0].long() for s in (LEFT, RIGHT)]
        left, right = (colours.int().argmax(0)[nodes] for nodes in ends)
        flipped = left > right
        swapped = torch.where(flipped, torch.stack(ends[::-1]), torch.stack(ends))
        super().__init__(*layout.nodes, swapped, layout.mask)
        self.register_buffer("flipped", flipped[..., None, None], persistent=False)

    def turn(self, joint: Tensor) -> Tensor:
        """Something of both ends, `(..., *edge, kl, kr)`, from the other layout's ends to these, or back."""
        return joint if joint.shape[-2:] == (1, 1) else torch.where(self.flipped, joint.transpose(-1, -2), joint)

    def turn_ends(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        """Something of either end, `(..., *edge, k)`."""
        flipped = self.flipped.squeeze(-1)
        return torch.where(flipped, right, left), torch.where(flipped, left, right)
