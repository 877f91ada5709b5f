"""Steps of a plan run by kernels: all their messages as one differentiable operation."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from torchlgm.inference.lowering import Lowered, Operand, Role, Traits, inner_evidence, lower
from torchlgm.inference.methods import Method
from torchlgm.inference.plan import Plan
from torchlgm.inference.rules import Message
from torchlgm.inference.values import Values
from torchlgm.mrf import MRF, EvidenceTerm, LazyEvidence
from torchlgm.ops.backend import Backend
from torchlgm.ops.fused import run
from torchlgm.ops.launch import Launch
from torchlgm.ops.linear import linear_kernels
from torchlgm.ops.program import LinkSpec

Terms = Mapping[str, EvidenceTerm]


def run_messages(
    mrf: MRF, method: Method, backend: Backend, plan: Plan, first: int, last: int, values: Values, single_pass: bool
) -> tuple[Lowered, dict[int, Message]]:
    """The messages that steps `first .. last-1` make and that are needed by the beliefs they make, or later.

    In a `single_pass` these are all steps of the run, so that evidence can be made among its messages.
    """
    launch = backend.launcher()
    terms = _evidence_terms(mrf, plan) if single_pass else {}
    lowered = lower(plan, first, last, _traits(mrf, method, launch, terms))
    if not lowered.program.steps:
        return lowered, {}
    tensors = [_tensor(operand, mrf, terms, values) for operand in lowered.inputs]
    specs = [spec for operand in lowered.inputs if (spec := _spec(operand, mrf, terms, method)) is not None]
    out = run(lowered.program, launch, specs, tensors)
    return lowered, {
        value: Message(None if edges is None else out[edges], out[inflow]) for value, inflow, edges in lowered.outputs
    }


def _traits(mrf: MRF, method: Method, launch: Launch, terms: Terms) -> Traits:
    mode, gradients = method.rule.kernel_mode, torch.is_grad_enabled()
    assert mode is not None
    labels = tuple([(link.table.shape[-2], link.table.shape[-1]) for link in mrf.links])
    sides = tuple([(layer, term.side) for layer, term in terms.items()])
    return Traits(labels, tuple(mrf.evidence), sides, method.damping, mode, gradients, gradients and launch.looks_back)


def _evidence_terms(mrf: MRF, plan: Plan) -> Terms:
    """What the evidence is made of, by layer, where only messages read it and a kernel can make it."""
    if not isinstance(mrf.evidence, LazyEvidence):
        return {}
    terms = {}
    for layer in inner_evidence(plan):
        term = mrf.evidence.single_term(layer) if layer in mrf.evidence else None
        if term is not None and linear_kernels(term.link.layout, term.link.table, term.q) is not None:
            terms[layer] = term
    return terms


def _tensor(operand: Operand, mrf: MRF, terms: Terms, values: Values) -> Tensor:
    role, layer, number = operand
    if role is Role.TABLE or role is Role.EVIDENCE_TABLE:
        link = mrf.links[number] if role is Role.TABLE else terms[layer].link
        return link.layout.spread(link.table)
    if role is Role.UNARY:
        return mrf.unary[layer]
    if role is Role.EVIDENCE:
        return mrf.evidence[layer]
    if role is Role.OBSERVED:
        return terms[layer].q
    if role is Role.BELIEF:
        return values.beliefs[number]
    message = values.messages[number]
    if role is Role.INFLOW:
        return message.inflow
    assert message.edges is not None
    return message.edges


def _spec(operand: Operand, mrf: MRF, terms: Terms, method: Method) -> LinkSpec | None:
    """How messages over a table are made; None of what is no table. In evidence rho cancels."""
    if operand.role is Role.EVIDENCE_TABLE:
        link = terms[operand.layer].link
        return LinkSpec(link.layout, -link.scale)
    if operand.role is not Role.TABLE:
        return None
    link, rule = mrf.links[operand.number], method.rule
    assert rule.kernel_mode is not None
    rho = link.rho if rule.reweighted else None
    return LinkSpec(link.layout, -link.scale, rho, rule.kernel_mode, rule.divide_by_rho)
