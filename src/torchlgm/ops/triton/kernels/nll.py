"""The cost of labels under beliefs, and its gradients."""

from __future__ import annotations

import triton
import triton.language as tl

from torchlgm.ops.triton.kernels.loads import begin


@triton.jit
def score(costs, inflow_grad, unary_grad, outer, inflow, unary, labels, batch, nodes,
          step_m, step_b, step_n, step_k, back_m, back_b, back_n, back_k,
          K: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_B: tl.constexpr, EARLY: tl.constexpr):  # fmt: skip
    """The part of a block of samples in the mean negative log-likelihood of their labels, or its gradients.

    These are times `outer`, one for each model. Log-odds are `inflow`, with any strides, less `unary`, whose
    gradient has a part for each block. The gradient of the inflow has any strides too.
    """
    begin(EARLY)
    TYPE: tl.constexpr = inflow.dtype.element_ty
    sample = tl.program_id(0) * BLOCK_B + tl.arange(0, BLOCK_B)
    model = tl.program_id(1).to(tl.int64)
    in_batch = sample < batch
    number = tl.arange(0, BLOCK_K)
    exists = number < K
    valid = in_batch[:, None] & exists[None, :]
    sample = sample.to(tl.int64)
    cost = tl.zeros([BLOCK_B], TYPE)
    share = 1.0 / tl.full([], batch, TYPE)
    if outer is not None:
        share *= tl.load(outer + model)
    for number_of_node in range(nodes):
        node = tl.full([], number_of_node, tl.int64)
        at = (model * step_m + sample * step_b + node * step_n)[:, None] + (number * step_k)[None, :]
        unary_at = (model * nodes + node) * K + number
        x = tl.load(inflow + at, mask=valid, other=-float("inf"))
        x -= tl.load(unary + unary_at, mask=exists, other=0.0)[None, :]
        label = tl.load(labels + ((model * batch + sample) * nodes + node), mask=in_batch, other=-1)
        known = in_batch & (label >= 0)
        top = tl.maximum(tl.max(x, 1), 0.0)
        norm = top + tl.log(tl.exp(-top) + tl.sum(tl.exp(x - top[:, None]), 1))
        is_label = (number + 1)[None, :] == label[:, None]
        if costs is not None:
            right = tl.sum(tl.where(is_label, x, 0.0), 1)
            cost += tl.where(known, tl.where(label > K, float("nan"), norm - right), 0.0)
        else:
            slope = (tl.exp(x - norm[:, None]) - tl.where(is_label, 1.0, 0.0)) * share
            slope = tl.where(known[:, None], slope, 0.0)
            if inflow_grad is not None:
                back = (model * back_m + sample * back_b + node * back_n)[:, None] + (number * back_k)[None, :]
                tl.store(inflow_grad + back, slope, mask=valid)
            if unary_grad is not None:
                part = tl.program_id(0).to(tl.int64) * tl.num_programs(1) * nodes * K
                tl.store(unary_grad + (part + unary_at), -tl.sum(slope, 0), mask=exists)
    if costs is not None:
        tl.store(costs + (model * tl.num_programs(0) + tl.program_id(0)), tl.sum(cost, 0) * share)
