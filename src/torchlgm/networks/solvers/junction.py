"""Junction trees: what variables are eliminated from, in greedy order, are cliques, which are joined to a tree."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

from torchlgm.errors import TooLargeError

ORDERS = 4000  # variables eliminated in search of a good order
RULES = "size", "fill", "weighted"


class Clique(NamedTuple):
    scope: tuple[int, ...]  # ascending; an axis each
    parent: int | None
    separator: tuple[int, ...]  # what it shares with its parent
    factors: tuple[int, ...]  # whose product is its table


@dataclass(frozen=True)
class JunctionTree:
    """Cliques, children before parents, and for each variable the smallest clique that has it."""

    labels: tuple[int, ...]
    cliques: tuple[Clique, ...]
    homes: tuple[int, ...]

    def home(self, scope: Sequence[int]) -> int:
        """The smallest clique that has all of these variables."""
        if len(scope) == 1:
            return self.homes[scope[0]]
        having = set.intersection(*[self._having[v] for v in scope]) if scope else range(len(self.cliques))
        return min(having, key=lambda n: (_size(self.labels, self.cliques[n].scope), n))

    @cached_property
    def _having(self) -> list[set[int]]:
        """The cliques that have each variable."""
        having: list[set[int]] = [set() for _ in self.labels]
        for n, clique in enumerate(self.cliques):
            for v in clique.scope:
                having[v].add(n)
        return having

    @property
    def entries(self) -> int:
        """The numbers in all cliques, for each row of evidence."""
        return sum(_size(self.labels, clique.scope) for clique in self.cliques)

    @property
    def largest(self) -> int:
        """The numbers in the largest clique."""
        return max(_size(self.labels, clique.scope) for clique in self.cliques)


@lru_cache(64)
def junction_tree(labels: tuple[int, ...], scopes: tuple[tuple[int, ...], ...], limit: int) -> JunctionTree:
    """The tree for factors over `scopes`, or a TooLargeError if it has more than `limit` entries; nothing is allocated
    before that is known. Of several greedy orders, which differ in rule and in how ties are broken, it takes the best.
    """
    best: JunctionTree | None = None
    for seed in range(max(2 * len(RULES), min(40, ORDERS // len(labels)))):
        cap = 4 * limit if best is None else 2 * best.entries
        buckets = _eliminated(labels, scopes, cap, random.Random(seed), RULES[seed % len(RULES)])
        tree = None if buckets is None else _tree(labels, scopes, buckets)
        if tree is not None and (best is None or tree.entries < best.entries):
            best = tree
    if best is None or best.entries > limit:
        raise TooLargeError(
            f"exact inference needs more than {limit:,} numbers for each row; use lbp(), or a larger exact(limit=...)"
        )
    return best


def _eliminated(
    labels: Sequence[int], scopes: Sequence[Sequence[int]], cap: int, rng: random.Random, rule: str
) -> dict[int, frozenset[int]] | None:
    """Variables, in greedy order, with the clique that each is eliminated from; None if these exceed `cap`.

    Next comes the variable with the smallest clique ("size"), or with the fewest edges that its clique lacks
    ("fill"), each times the bits of its ends ("weighted").
    """
    around: dict[int, set[int]] = {v: {v} for v in range(len(labels))}
    for scope in scopes:
        for v in scope:
            around[v].update(scope)
    bits = [math.log2(k) if rule == "weighted" else 1.0 for k in labels]

    def cost(v: int) -> tuple[float, int]:
        near = around[v]
        size = _size(labels, near)
        if rule == "size":
            return size, size
        return sum(bits[a] * sum(bits[b] for b in near - around[a]) for a in near), size

    costs = {v: cost(v) for v in around}
    queue = [(c, rng.random(), v) for v, c in costs.items()]
    heapq.heapify(queue)
    buckets: dict[int, frozenset[int]] = {}
    entries = 0
    while queue:
        c, _, v = heapq.heappop(queue)
        if v not in around or c != costs[v]:
            continue
        near = around.pop(v)
        entries += _size(labels, near)
        if entries > cap:
            return None
        buckets[v] = frozenset(near)
        changed = near - {v}
        for u in near - {v}:
            around[u] |= near
            around[u].discard(v)
            if rule != "size":
                changed = changed | around[u]
        for u in changed:
            if (new := cost(u)) != costs[u]:
                costs[u] = new
                heapq.heappush(queue, (new, rng.random(), u))
    return buckets


def _size(labels: Sequence[int], scope: Iterable[int]) -> int:
    return math.prod(labels[v] for v in scope)


def _tree(
    labels: tuple[int, ...], scopes: Sequence[Sequence[int]], buckets: Mapping[int, frozenset[int]]
) -> JunctionTree:
    """A clique for each bucket, named by its variable, that no other one contains."""
    position = {v: i for i, v in enumerate(buckets)}
    above = {v: min(bucket - {v}, key=position.__getitem__, default=None) for v, bucket in buckets.items()}
    within = {v: v for v in buckets}

    def clique_of(v: int) -> int:
        while within[v] != v:
            v = within[v]
        return v

    for v in buckets:
        while (up := above[v]) is not None and buckets[clique_of(up)] <= buckets[v]:
            up = clique_of(up)
            within[up], above[v] = v, above[up]
    parents = {v: None if (up := above[v]) is None else clique_of(up) for v in buckets if within[v] == v}
    own: dict[int, list[int]] = {v: [] for v in parents}
    for number, scope in enumerate(scopes):
        own[clique_of(min(scope, key=position.__getitem__, default=next(iter(buckets))))].append(number)
    order = _children_first(parents)
    rank = {v: n for n, v in enumerate(order)}
    cliques = []
    for v in order:
        up = parents[v]
        shared = () if up is None else tuple(sorted(buckets[v] & buckets[up]))
        cliques.append(Clique(tuple(sorted(buckets[v])), None if up is None else rank[up], shared, tuple(own[v])))
    homes: dict[int, int] = {}
    for n in sorted(range(len(cliques)), key=lambda n: _size(labels, cliques[n].scope)):
        for v in cliques[n].scope:
            homes.setdefault(v, n)
    return JunctionTree(labels, tuple(cliques), tuple(homes[v] for v in range(len(labels))))


def _children_first(above: dict[int, int | None]) -> list[int]:
    children: dict[int | None, list[int]] = {}
    for i, up in above.items():
        children.setdefault(up, []).append(i)
    order, stack = [], list(children.get(None, ()))
    while stack:
        i = stack.pop()
        order.append(i)
        stack += children.get(i, [])
    return order[::-1]
