"""Iterating until each sample has converged, and gradients through the fixed point that is reached."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from torchlgm.errors import InferenceError
from torchlgm.inference.engine import Engine
from torchlgm.inference.methods import Method
from torchlgm.inference.plan import Plan, build
from torchlgm.inference.rules import Message, Outcome
from torchlgm.inference.schedule import Hop, Wiring, checked_events
from torchlgm.mrf import MRF


def until_converged(engine: Engine, wiring: Wiring, want: tuple[str, ...], start: Mapping[Hop, Message]) -> Outcome:
    """The messages that each sample has when it has converged, and the beliefs they make."""
    method = engine.method

    def once(given: tuple[Hop, ...]) -> Plan:
        return _one_iteration(wiring, method, given)

    implicit = method.gradient == "implicit" and torch.is_grad_enabled()
    with torch.set_grad_enabled(torch.is_grad_enabled() and not implicit):
        messages, iterations, residual = _iterate(engine, once, start)
    if implicit:
        _require_convergence(residual, method)
        messages = _attached(engine, once(tuple(messages)), messages)
    last = _last_beliefs(wiring, method, want, tuple(messages))
    values = engine.execute(last, list(messages.values()))
    return Outcome({name: values.beliefs[v] for name, v in last.beliefs.items()}, messages, iterations, residual)


@lru_cache(maxsize=256)
def _one_iteration(wiring: Wiring, method: Method, given: tuple[Hop, ...]) -> Plan:
    events = checked_events(method.schedule(wiring), wiring)
    iteration = events.later if given else events.first
    return build(wiring, [iteration], (), True, method.rule.uses_reverse, method.damping > 0, given)


@lru_cache(maxsize=256)
def _last_beliefs(wiring: Wiring, method: Method, want: tuple[str, ...], given: tuple[Hop, ...]) -> Plan:
    return build(wiring, [], want, uses_reverse=method.rule.uses_reverse, given=given)


def _iterate(
    engine: Engine, once: Callable[[tuple[Hop, ...]], Plan], start: Mapping[Hop, Message]
) -> tuple[dict[Hop, Message], Tensor, Tensor]:
    """Messages, iterations and residual; a sample that has converged leaves the batch with the messages it has then."""
    mrf, method = engine.mrf, engine.method
    assert method.tolerance is not None
    state = _expanded(start, mrf.batch)
    plan = once(tuple(state))
    active = torch.arange(mrf.batch, device=mrf.like.device)
    finished: list[tuple[Tensor, dict[Hop, Message]]] = []
    iterations = torch.zeros_like(active)
    residual = mrf.like.new_zeros(mrf.batch)
    for t in range(1, method.iterations + 1):
        values = engine.execute(plan, list(state.values()))
        new = _expanded({hop: values.messages[v] for hop, v in plan.messages.items()}, len(active))
        change = residual_of(new, state, engine.mrf, method)
        if start and bool((change <= method.tolerance).any()):
            change = torch.maximum(change, edge_residual_of(new, state, engine.mrf, method))
        iterations[active], residual[active] = t, change
        done = change <= method.tolerance
        state = new
        if t == method.iterations or bool(done.all()):
            finished.append((active, state))
            break
        plan = plan if plan.inputs == tuple(state) else once(tuple(state))
        if bool(done.any()):
            left, gone = (~done).nonzero().squeeze(1), done.nonzero().squeeze(1)
            finished.append((active[gone], _take(state, gone)))
            active, state, engine = active[left], _take(state, left), engine.on(engine.mrf.take(left))
    order = torch.cat([index for index, _ in finished]).argsort()
    messages = {hop: _merged([part[hop] for _, part in finished], order) for hop in state}
    return messages, iterations, residual


def _require_convergence(residual: Tensor, method: Method) -> None:
    assert method.tolerance is not None
    late = int((residual > method.tolerance).sum())
    if late:
        raise InferenceError(
            f"gradient='implicit' needs a fixed point, but {late} of {len(residual)} samples have not converged within "
            f"{method.iterations} iterations; allow more, add damping, or use gradient='unroll'"
        )


def _attached(engine: Engine, plan: Plan, messages: Mapping[Hop, Message]) -> dict[Hop, Message]:
    """The messages of a fixed point as functions of the energies, by the implicit function theorem."""
    keeps_edges = {hop: m.edges is not None for hop, m in messages.items()}

    def flat(state: Mapping[Hop, Message]) -> list[Tensor]:
        return [x for m in state.values() for x in m if x is not None]

    def iterate(tensors: Sequence[Tensor]) -> list[Tensor]:
        rest = iter(tensors)
        given = [Message(next(rest) if kept else None, next(rest)) for kept in keeps_edges.values()]
        values = engine.execute(plan, given)
        return flat(_expanded({hop: values.messages[v] for hop, v in plan.messages.items()}, engine.mrf.batch))

    fixed = [x.detach() for x in flat(messages)]
    rest = iter(_FixedPoint.apply(iterate, engine.method, fixed, *iterate(fixed)))  # pyright: ignore[reportArgumentType]
    return {hop: Message(next(rest) if kept else None, next(rest)) for hop, kept in keeps_edges.items()}


class _FixedPoint(Function):
    """The identity on one more iteration `f(z)` of the fixed point z; its backward solves `v = g + J' v`, J = df/dz."""

    @staticmethod
    def forward(ctx: Any, iterate: Any, method: Method, fixed: list[Tensor], *new: Tensor) -> tuple[Tensor, ...]:
        ctx.iterate, ctx.method, ctx.fixed = iterate, method, fixed
        return tuple(x.view_as(x) for x in new)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        with torch.enable_grad():
            z = [x.detach().requires_grad_() for x in ctx.fixed]
            new = ctx.iterate(z)
        v = list(grads)
        for _ in range(ctx.method.iterations):
            moved = torch.autograd.grad(new, z, v, retain_graph=True, allow_unused=True)
            after = [g if m is None else g + m for g, m in zip(grads, moved, strict=True)]
            size = max(float(g.abs().max()) for g in grads)
            change = max(float((a - b).abs().max()) for a, b in zip(after, v, strict=True))
            v = after
            if change <= ctx.method.tolerance * max(size, torch.finfo(v[0].dtype).tiny):
                return None, None, None, *v
        raise InferenceError(
            f"the implicit gradient has not converged within {ctx.method.iterations} iterations; "
            "allow more, add damping, or use gradient='unroll'"
        )


def residual_of(new: Mapping[Hop, Message], old: Mapping[Hop, Message], mrf: MRF, method: Method) -> Tensor:
    """The largest change of an inflow of free nodes, relative to 1 + its size, per sample `(B,)`; what damping holds
    back counts.

    Infinite where a message is the first of its kind: it may not know the evidence yet.
    """
    worst = mrf.like.new_zeros(mrf.batch)
    for hop, message in new.items():
        if hop not in old:
            return torch.full_like(worst, torch.inf)
        worst = torch.maximum(worst, _change(message.inflow, old[hop].inflow, _free(hop, mrf)))
    return worst / (1 - method.damping)


def edge_residual_of(new: Mapping[Hop, Message], old: Mapping[Hop, Message], mrf: MRF, method: Method) -> Tensor:
    """The same of single messages. After a warm start, which was made for other evidence, their changes may cancel out
    in an inflow."""
    worst = mrf.like.new_zeros(mrf.batch)
    for hop, message in new.items():
        before = old[hop].edges if hop in old else None
        if message.edges is None or before is None:
            continue
        link, free = mrf.links[hop.link], _free(hop, mrf)
        rho = link.rho.unsqueeze(-1) if method.rule.reweighted else 1
        free = None if free is None else link.layout.gather(free, 1 - hop.side)
        worst = torch.maximum(worst, _change(message.edges * rho, before * rho, free))
    return worst / (1 - method.damping)


def _free(hop: Hop, mrf: MRF) -> Tensor | None:
    """1 for nodes of the target that are free, None if all are."""
    clamp = mrf.clamps.get(hop.target)
    return None if clamp is None or clamp.free is None else clamp.free.unsqueeze(-1)


def _change(new: Tensor, old: Tensor, free: Tensor | None) -> Tensor:
    new, old = new.detach(), old.detach()
    change = (new - old).abs() / (1 + new.abs())
    return (change if free is None else change * free).flatten(1).amax(1)


def _map(f: Callable[[Tensor], Tensor], message: Message) -> Message:
    return Message(None if message.edges is None else f(message.edges), f(message.inflow))


def _expanded(messages: Mapping[Hop, Message], batch: int) -> dict[Hop, Message]:
    return {hop: _map(lambda x: x.expand(batch, *x.shape[1:]), m) for hop, m in messages.items()}


def _take(messages: Mapping[Hop, Message], index: Tensor) -> dict[Hop, Message]:
    return {hop: _map(lambda x: x.index_select(0, index), m) for hop, m in messages.items()}


def _merged(parts: list[Message], order: Tensor) -> Message:
    edges = None if parts[0].edges is None else torch.cat([p.edges for p in parts])[order]  # type: ignore[misc]
    return Message(edges, torch.cat([p.inflow for p in parts])[order])
