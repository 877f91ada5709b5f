"""Running a method on an MRF: a fixed number of iterations, or each sample until it has converged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

import torch
from torch import Tensor

from torchlgm._utils.tracing import is_traced
from torchlgm.errors import InferenceError
from torchlgm.inference.engine import Engine, wiring_of
from torchlgm.inference.fixed_point import edge_residual_of, residual_of, until_converged
from torchlgm.inference.methods import Method
from torchlgm.inference.plan import Plan, build
from torchlgm.inference.rules import Message, Outcome
from torchlgm.inference.schedule import Hop, Wiring, checked_events
from torchlgm.mrf import MRF

LONG = 256  # iterations from which on a run is made in parts, so that plans do not grow with it


def run(
    mrf: MRF,
    method: Method,
    want: Iterable[str] | None = None,
    start: Mapping[Hop, Message] | None = None,
    include_unary: bool = True,
) -> Outcome:
    """Beliefs of the layers in `want`; None asks for everything. `start` are the messages of an earlier outcome.

    Without `include_unary`, the belief leaves out the layer's unary, which the caller subtracts.
    """
    engine = Engine(mrf, method, include_unary)
    wiring = wiring_of(mrf)
    keep = want is None
    want = wiring.layers if want is None else tuple(name for name in wiring.layers if name in set(want))
    assert include_unary or (len(want) == 1 and not keep)
    start = first_messages(mrf, method) if start is None else _checked(start, wiring, mrf, method)
    if method.tolerance is not None:
        return until_converged(engine, wiring, want, start)
    given, iterations = start, method.iterations
    if iterations > LONG and not (method.gradient == "checkpoint" and torch.is_grad_enabled()):
        engine = engine.on(mrf._replace(evidence=dict(mrf.evidence)))  # made once, not again in each part
        while iterations > LONG:
            plan = _plan(wiring, method, (), True, tuple(given), LONG)
            values = engine.execute(plan, list(given.values()))
            given = {hop: values.messages[v] for hop, v in plan.messages.items()}
            iterations -= LONG
    plan = _plan(wiring, method, want, keep, tuple(given), iterations)
    values = engine.execute(plan, list(given.values()))
    messages = {hop: values.messages[v] for hop, v in plan.messages.items()}
    residual = None
    if keep:
        before = {hop: values.messages[v] for hop, v in plan.before.items()}
        residual = residual_of(messages, before, mrf, method)
        if start:
            residual = torch.maximum(residual, edge_residual_of(messages, before, mrf, method))
    return Outcome({name: values.beliefs[v] for name, v in plan.beliefs.items()}, messages, method.iterations, residual)


def first_messages(mrf: MRF, method: Method) -> dict[Hop, Message]:
    """The messages of the links that do not start at 0; pinned nodes, whose messages are 0 at all times, send none."""
    rule, messages = method.rule, {}
    for number, link in enumerate(mrf.links):
        for side, (source, target) in enumerate(((link.left, link.right), (link.right, link.left))):
            if link.start is None:
                continue
            edges, clamp = link.start[1 - side].unsqueeze(0), mrf.clamps.get(source)
            if clamp is not None and clamp.free is not None:
                edges = edges * link.layout.gather(clamp.free.unsqueeze(-1).to(edges.dtype), side)
            weighted, rho = edges, link.rho.unsqueeze(-1)
            if rule.reweighted and rule.divide_by_rho:
                edges = edges / rho
            elif rule.reweighted:
                weighted = edges * rho
            inflow = link.layout.scatter(weighted, 1 - side)
            messages[Hop(number, side, source, target)] = Message(edges if rule.uses_reverse else None, inflow)
    return messages


def _plan(
    wiring: Wiring, method: Method, want: tuple[str, ...], keep: bool, given: tuple[Hop, ...], iterations: int
) -> Plan:
    make = plan_of.__wrapped__ if torch.compiler.is_compiling() else plan_of
    return make(wiring, method, want, keep, given, iterations)


@lru_cache(maxsize=256)
def plan_of(
    wiring: Wiring,
    method: Method,
    want: tuple[str, ...],
    keep: bool,
    given: tuple[Hop, ...],
    iterations: int | None = None,
) -> Plan:
    """The plan of so many `iterations`, by default those of the method."""
    iterations = method.iterations if iterations is None else iterations
    events = checked_events(method.schedule(wiring), wiring)
    first = events.later if given else events.first
    parts = [first, *[events.later] * (iterations - 1)]
    return build(wiring, parts, want, keep, method.rule.uses_reverse, method.damping > 0, given)


def _checked(start: Mapping[Hop, Message], wiring: Wiring, mrf: MRF, method: Method) -> Mapping[Hop, Message]:
    if (wiring.hops and not start) or not set(start) <= set(wiring.hops):
        raise InferenceError(
            "start= must be the messages of an answer about the same observed layers, asked for without want="
        )
    for hop, message in start.items():
        samples, *shape = message.inflow.shape
        if tuple(shape) != mrf.unary[hop.target].shape[1:] or message.inflow.dtype != mrf.like.dtype:
            raise InferenceError(
                f"start= has messages to layer '{hop.target}' of another model: {_kind(message.inflow)}, expected "
                f"{_kind(mrf.unary[hop.target])}"
            )
        if samples not in (1, mrf.batch):
            raise InferenceError(f"start= has messages of {samples} samples, but the evidence is about {mrf.batch}")
        for part in message:
            if part is not None and not is_traced(part) and not bool(part.isfinite().all()):
                raise InferenceError(f"start= has messages to layer '{hop.target}' that are NaN or infinite")
    if method.rule.uses_reverse and any(message.edges is None for message in start.values()):
        raise InferenceError(
            f"start= has messages of mean field, which are too little for {method}; start from its own"
        )
    return start


def _kind(x: Tensor) -> str:
    nodes, k = x.shape[1:]
    return f"{nodes} nodes with {k + 1} labels in {x.dtype}"
