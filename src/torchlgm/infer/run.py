"""Running a method on an MRF: a fixed number of iterations, or each sample until it has converged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from torchlgm.errors import InferenceError
from torchlgm.infer.methods import Method
from torchlgm.infer.plan import MakeBelief, Plan, build
from torchlgm.infer.rules import Message, Prepared
from torchlgm.infer.schedule import Hop, Wiring
from torchlgm.mrf import MRF

Value = Tensor | Message


class Outcome(NamedTuple):
    """Raw results: beliefs as log-odds `(1 or B, nodes, K-1)`, and the messages where everything was asked for."""

    beliefs: dict[str, Tensor]
    messages: dict[Hop, Message]
    iterations: Tensor  # (B,)
    residual: Tensor | None  # (B,); None where messages were not kept


def wiring_of(mrf: MRF) -> Wiring:
    hops = []
    for i, link in enumerate(mrf.links):
        hops += [Hop(i, 0, link.left, link.right), Hop(i, 1, link.right, link.left)]
    return Wiring(tuple(mrf.unary), tuple(hops))


def run(
    mrf: MRF,
    method: Method,
    want: Iterable[str] | None = None,
    start: Mapping[Hop, Message] | None = None,
) -> Outcome:
    """Beliefs of the layers in `want`; None asks for everything. `start` are the messages of an earlier outcome."""
    engine = _Engine(mrf, method)
    wiring = wiring_of(mrf)
    keep = want is None
    want = wiring.layers if want is None else tuple(name for name in wiring.layers if name in set(want))
    start = {} if start is None else _checked(start, wiring, mrf.batch)
    if method.tolerance is not None:
        return _until_converged(engine, wiring, want, start)
    make_plan = _plan if torch.compiler.is_compiling() else _known_plan
    plan = make_plan(wiring, method, want, keep, tuple(start))
    values = engine.execute(plan, list(start.values()))
    messages = {hop: values[v] for hop, v in plan.messages.items()}
    residual = None
    if keep:
        residual = _residual(messages, {hop: values[v] for hop, v in plan.before.items()}, mrf)
    iterations = torch.full((mrf.batch,), method.iterations, device=mrf.constant.device)
    return Outcome({name: values[v] for name, v in plan.beliefs.items()}, messages, iterations, residual)


def _plan(wiring: Wiring, method: Method, want: tuple[str, ...], keep: bool, given: tuple[Hop, ...]) -> Plan:
    events = method.schedule(wiring)
    first = events.later if given else events.first
    iterations = [first, *[events.later] * (method.iterations - 1)]
    return build(wiring, iterations, want, keep, method.rule.answering, method.damping > 0, given)


_known_plan = lru_cache(maxsize=256)(_plan)


def _checked(start: Mapping[Hop, Message], wiring: Wiring, batch: int) -> Mapping[Hop, Message]:
    if (wiring.hops and not start) or not set(start) <= set(wiring.hops):
        raise InferenceError(
            "start= must be the messages of an answer about the same observed layers, asked for without want="
        )
    sizes = {message.inflow.shape[0] for message in start.values()} - {1, batch}
    if sizes:
        raise InferenceError(f"start= has messages of {sizes.pop()} samples, but the evidence is about {batch}")
    return start


class _Engine:
    """Executes plans on one MRF with one method."""

    def __init__(self, mrf: MRF, method: Method) -> None:
        self.mrf = mrf
        self.method = method
        self.links: list[Prepared] = [method.rule.prepare(link) for link in mrf.links]

    def on(self, mrf: MRF) -> _Engine:
        """The same tables with other samples."""
        other = object.__new__(_Engine)
        other.mrf, other.method, other.links = mrf, self.method, self.links
        return other

    def execute(self, plan: Plan, inputs: list[Message]) -> dict[int, Value]:
        values: dict[int, Value] = dict(enumerate(inputs))
        if self.method.gradient == "checkpoint" and torch.is_grad_enabled():
            return self._checkpointed(plan, 0, len(plan.steps), values)
        return self._range(plan, 0, len(plan.steps), values)

    def _range(self, plan: Plan, first: int, last: int, values: dict[int, Value]) -> dict[int, Value]:
        """Steps `first .. last-1`; drops each value after its last use."""
        values = dict(values)
        done = plan.last_uses()
        for i in range(first, last):
            values[len(plan.inputs) + i] = self._make(plan, i, values)
            for v in done[i]:
                del values[v]
        return values

    def _make(self, plan: Plan, i: int, values: dict[int, Value]) -> Value:
        step = plan.steps[i]
        if isinstance(step, MakeBelief):
            belief = self.mrf.field(step.layer) if step.evidence else -self.mrf.unary[step.layer]
            for v in step.messages:
                belief = belief + values[v].inflow
            return belief
        reverse = None if step.reverse is None else values[step.reverse].edges
        new = self.method.rule.send(self.links[step.hop.link], step.hop.side, values[step.belief], reverse)
        if self.method.damping == 0:
            return new
        return _damped(new, None if step.old is None else values[step.old], self.method.damping)

    def _checkpointed(self, plan: Plan, first: int, last: int, values: dict[int, Value]) -> dict[int, Value]:
        """By halves: the first one is recomputed when its gradient is due, so only O(log steps) states are stored."""
        if last - first <= 2 * max(1, len(self.mrf.unary)):
            return self._range(plan, first, last, values)
        middle = (first + last) // 2
        later = {v for step in plan.steps[middle:] for v in step.needs} | plan.outputs
        keys = sorted(values)
        made = [v for v in range(len(plan.inputs) + first, len(plan.inputs) + middle) if v in later]

        def first_half(*tensors: Tensor | None) -> tuple[Tensor | None, ...]:
            here = self._checkpointed(plan, first, middle, _unflatten(keys, tensors))
            return _flatten([here[v] for v in made])

        flat = checkpoint(
            first_half, *_flatten([values[k] for k in keys]), use_reentrant=False, preserve_rng_state=False
        )
        known = {v: value for v, value in values.items() if v in later}
        return self._checkpointed(plan, middle, last, known | _unflatten(made, flat))


def _flatten(values: list[Value]) -> tuple[Tensor | None, ...]:
    """Two places for each value: a belief has no inflow."""
    return tuple(t for v in values for t in (v if isinstance(v, Message) else (v, None)))


def _unflatten(keys: list[int], flat: tuple[Tensor | None, ...]) -> dict[int, Value]:
    pairs = zip(keys, flat[::2], flat[1::2], strict=True)
    return {k: a if b is None else Message(a, b) for k, a, b in pairs}


def _damped(new: Message, old: Message | None, damping: float) -> Message:
    def mix(a: Tensor, b: Tensor | None) -> Tensor:
        return (1 - damping) * a if b is None else (1 - damping) * a + damping * b

    edges = None if new.edges is None else mix(new.edges, None if old is None else old.edges)
    return Message(edges, mix(new.inflow, None if old is None else old.inflow))


def _residual(new: Mapping[Hop, Message], old: Mapping[Hop, Message], mrf: MRF) -> Tensor:
    """The largest change of an inflow, relative to 1 + its size, per sample `(B,)`.

    Infinite where a message is the first of its kind: it may not know the evidence yet.
    """
    worst = mrf.constant.new_zeros(mrf.batch)
    for hop, message in new.items():
        if hop not in old:
            return torch.full_like(worst, torch.inf)
        size = message.inflow.detach()
        change = (size - old[hop].inflow.detach()).abs() / (1 + size.abs())
        worst = torch.maximum(worst, change.flatten(1).amax(1))
    return worst


def _until_converged(engine: _Engine, wiring: Wiring, want: tuple[str, ...], start: Mapping[Hop, Message]) -> Outcome:
    """Iterate; a sample that has converged leaves the batch with the messages it has then."""
    mrf, method = engine.mrf, engine.method
    events = method.schedule(wiring)
    answering, damped = method.rule.answering, method.damping > 0

    def once(given: tuple[Hop, ...]) -> Plan:
        return build(wiring, [events.later if given else events.first], (), True, answering, damped, given)

    state = _expanded(start, mrf.batch)
    plan = once(tuple(state))
    active = torch.arange(mrf.batch, device=mrf.constant.device)
    finished: list[tuple[Tensor, dict[Hop, Message]]] = []
    iterations = torch.zeros_like(active)
    residual = mrf.constant.new_zeros(mrf.batch)
    for t in range(1, method.iterations + 1):
        values = engine.execute(plan, list(state.values()))
        new = _expanded({hop: values[v] for hop, v in plan.messages.items()}, len(active))
        change = _residual(new, state, engine.mrf)
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
    last = build(wiring, [], want, answering=answering, given=messages)
    values = engine.on(mrf).execute(last, list(messages.values()))
    return Outcome({name: values[v] for name, v in last.beliefs.items()}, messages, iterations, residual)


def _map(f, message: Message) -> Message:
    return Message(None if message.edges is None else f(message.edges), f(message.inflow))


def _expanded(messages: Mapping[Hop, Message], batch: int) -> dict[Hop, Message]:
    return {hop: _map(lambda x: x.expand(batch, *x.shape[1:]), m) for hop, m in messages.items()}


def _take(messages: Mapping[Hop, Message], index: Tensor) -> dict[Hop, Message]:
    return {hop: _map(lambda x: x.index_select(0, index), m) for hop, m in messages.items()}


def _merged(parts: list[Message], order: Tensor) -> Message:
    edges = None if parts[0].edges is None else torch.cat([p.edges for p in parts])[order]  # type: ignore[misc]
    return Message(edges, torch.cat([p.inflow for p in parts])[order])
