"""Large batches against a floor: what the pruned plan must move and compute, over what the device can do.

The floor is the larger of two times. Bytes: every tensor that a step reads or writes counts once per read or write, as
if caches held nothing between kernels and everything within one. Special functions (exp, log, reciprocal): those of a
message and of its gradient, for each edge that exists and each sample. Messages that are the same for every sample
count once, not once for each sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from common import steady, steady_run
from subjects import KINDS, METHOD, Training, check_training, images, lgm_predictor, network_predictor, usual_adam

import torchlgm as lgm
from entries import Setting, rows
from torchlgm.inference.engine import wiring_of
from torchlgm.inference.plan import MakeBelief, MakeMessage, Plan
from torchlgm.inference.run import plan_of
from torchlgm.mrf import MRF, Link

FLOAT = 4  # bytes
ADAM = 7  # reads and writes of a parameter's size: parameter, gradient and two moments read, three of them written


def run(setting: Setting) -> dict[str, Any]:
    batches = setting.sizes((256, 4096), (4, 8))
    cases = [(kind, batch) for batch in batches for kind in KINDS]
    return {"ceilings": ceilings(setting), "rows": rows(row, cases, setting)}


@cache
def ceilings(setting: Setting) -> dict[str, Any]:
    """What the device can move and compute."""
    return {"copy GB/s": bandwidth(setting), **special_rate(setting)}


def row(kind: str, batch: int, setting: Setting, method: lgm.Method = METHOD) -> dict[str, Any]:
    device, most = setting.device, ceilings(setting)
    data = images(10 * batch if setting.quick else max(10 * batch, 40_000), device)
    work = lgm_predictor(kind, method)
    work.to(device)
    errors = check_training(work, data[0][:batch], data[1][:batch])
    taken = steady_run(Training(lgm_predictor(kind, method), data, batch, device), device, setting.repeats)
    rival = Training(network_predictor(kind), data, batch, device, adam=usual_adam)
    network = steady_run(rival, device, setting.repeats)
    need = count(work, batch)
    bytes_ms = need.bytes / most["copy GB/s"] / 1e6
    special_ms = need.special / most["special G/s"] / 1e6
    floor = max(bytes_ms, special_ms)
    return {
        "model": kind,
        "batch": batch,
        "lgm ms": taken,
        "network ms": network,
        "GB": need.bytes / 1e9,
        "special G": need.special / 1e9,
        "bytes ms": bytes_ms,
        "special ms": special_ms,
        "floor ms": floor,
        "share of the floor's rate": floor / taken,
        "edges x samples": need.edge_samples,
        **errors,
    }


@dataclass
class Count:
    bytes: int = 0
    special: int = 0
    edge_samples: int = 0


def count(work: lgm.Posterior, batch: int) -> Count:
    """What one training step needs: inputs, evidence, messages, their gradients, and Adam."""
    x, _ = images(2, next(work.parameters()).device)
    mrf = work.condition(x)
    plan = plan_of(wiring_of(mrf), work.method, (work.target,), False, ())
    need = messages(mrf, plan, batch)
    pixels = x[0].numel()
    need.bytes += 2 * FLOAT * pixels * batch  # taking the batch
    for link in mrf.observed_links:  # forward, and the gradient of the table
        field = mrf.evidence[link.right].shape[1] * batch
        need.bytes += FLOAT * (2 * pixels * batch + 2 * field + 2 * link.table.numel())
    need.bytes += ADAM * FLOAT * sum(p.numel() for p in work.parameters())
    return need


def messages(mrf: MRF, plan: Plan, batch: int) -> Count:
    """Of all messages of a plan and of their gradients."""
    first = len(plan.inputs)
    steps = dict(enumerate(plan.steps, first))
    sends = {v: step for v, step in steps.items() if isinstance(step, MakeMessage)}
    width = widths(mrf, steps, batch)
    answered = {step.reverse for step in sends.values()}
    begun: set[int | None] = set()  # gradients of edges that something was written to
    need = Count()
    for v, step in reversed(sends.items()):
        link, side = mrf.links[step.hop.link], step.hop.side
        edges, tables = existing(link), link.table.numel()
        s, t = labels(link, side)
        kept = v in answered or s > 1
        back = 0 if step.reverse is None else edges * s * width[step.reverse]
        out = edges * t * width[v]
        inflow = link.layout.nodes[1 - side] * t * width[v]
        belief = belief_size(mrf, steps[step.belief], width, link.layout.nodes[side] * s, batch)
        forward = belief + back + tables + inflow + kept * out
        backward = belief + back + tables + inflow + (s > 1) * out + (v in answered) * out  # read
        backward += belief + tables + back + (step.reverse in begun) * back  # written, or added to
        begun.add(step.reverse)
        need.bytes += FLOAT * (forward + backward)
        need.special += 2 * edges * (s + 1) * (t + 1) * width[v]
        need.edge_samples += edges * width[v]
    return need


def widths(mrf: MRF, steps: dict[int, Any], batch: int) -> dict[int, int]:
    """`batch` for a value that differs between samples, else 1."""
    width: dict[int, int] = {}
    for v, step in steps.items():
        if isinstance(step, MakeBelief):
            own = (step.evidence and step.layer in mrf.evidence) or mrf.unary[step.layer].shape[0] > 1
            width[v] = batch if own else max([1, *(width[m] for m in step.messages)])
        else:
            width[v] = max(width[n] for n in step.needs)
    return width


def belief_size(mrf: MRF, step: MakeBelief, width: dict[int, int], rows: int, batch: int) -> int:
    """Numbers that are read to add up a belief: unary, evidence and inflows."""
    evidence = batch if step.evidence and step.layer in mrf.evidence else 0
    return rows * (1 + evidence + sum(width[m] for m in step.messages))


def existing(link: Link) -> int:
    """How many edges there are."""
    mask = link.layout.mask
    if mask is None:
        return torch.Size(link.layout.edge_shape).numel()
    return int(mask.expand(link.layout.edge_shape).bool().sum())


def labels(link: Link, side: int) -> tuple[int, int]:
    """Of source and target, less one."""
    kl, kr = link.table.shape[-2:]
    return (kl, kr) if side == 0 else (kr, kl)


def bandwidth(setting: Setting) -> float:
    """Bytes read and written by copying a tensor far larger than any cache, GB/s."""
    numbers = 2**29 if setting.cuda else 2**22
    here = torch.zeros(numbers, device=setting.device)
    there = torch.ones_like(here)
    taken = steady(lambda: there.copy_(here), setting.device, min(setting.repeats, 10))
    return 2 * FLOAT * numbers / taken / 1e6


def special_rate(setting: Setting) -> dict[str, Any]:
    """Exponentials a second, in billions, and how they were made."""
    if setting.cuda:
        return {"special G/s": exp_kernel_rate(setting), "special by": "exp2 in registers, over and over, Triton"}
    x = torch.rand(2**18, device=setting.device)
    taken = steady(lambda: torch.exp(x, out=x).neg_(), setting.device, setting.repeats)
    return {"special G/s": x.numel() / taken / 1e6, "special by": "torch.exp on 1 MiB"}


def exp_kernel_rate(setting: Setting, programs: int = 132 * 64, rounds: int = 2048) -> float:
    import exponentials

    block = 1024
    x = torch.rand(programs * block, device=setting.device)

    def call() -> None:
        exponentials.again[(programs,)](x, ROUNDS=rounds, BLOCK=block, num_warps=4)

    taken = steady(call, setting.device, min(setting.repeats, 10))
    return x.numel() * rounds / taken / 1e6
