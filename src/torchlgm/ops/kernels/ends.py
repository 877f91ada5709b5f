"""What stands before the first message and behind the last: inputs in the form of the kernels, the cost of labels."""

from __future__ import annotations

import triton
import triton.language as tl

from torchlgm.ops.kernels.reading import begin


@triton.jit
def pack(out, x, batch, padded, step_n, step_k, step_b, step_m, rows, K: tl.constexpr, BLOCK_R: tl.constexpr,
         BLOCK_B: tl.constexpr, EARLY: tl.constexpr):  # fmt: skip
    """`x` with any strides to `(models, rows, padded)`, a row for each node and label, with 0 in the padding."""
    begin(EARLY)
    row = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    lanes = tl.program_id(1) * BLOCK_B + tl.arange(0, BLOCK_B)
    model = tl.program_id(2).to(tl.int64)
    there = (row < rows)[:, None]
    row = row.to(tl.int64)
    at = (model * step_m + row // K * step_n + row % K * step_k)[:, None] + lanes.to(tl.int64)[None, :] * step_b
    value = tl.load(x + at, mask=there & (lanes < batch)[None, :], other=0.0)
    inside = there & (lanes < padded)[None, :]
    tl.store(out + ((model * rows + row)[:, None] * padded + lanes[None, :]), value, mask=inside)


@triton.jit
def score(costs, grad, belief, labels, batch, nodes, step_m, step_b, step_n, step_k, K: tl.constexpr,
          BLOCK_K: tl.constexpr, BLOCK_B: tl.constexpr, EARLY: tl.constexpr):  # fmt: skip
    """The part of a block of samples in the mean negative log-likelihood of their labels, and its gradient.

    `belief` are log-odds with any strides; labels and gradient are in one piece.
    """
    begin(EARLY)
    sample = tl.program_id(0) * BLOCK_B + tl.arange(0, BLOCK_B)
    model = tl.program_id(1).to(tl.int64)
    here = sample < batch
    number = tl.arange(0, BLOCK_K)
    there = here[:, None] & (number < K)[None, :]
    sample = sample.to(tl.int64)
    cost = tl.zeros([BLOCK_B], grad.dtype.element_ty)
    share = 1.0 / tl.full([], batch, grad.dtype.element_ty)
    for node in range(nodes):
        at = (model * step_m + sample * step_b + node * step_n)[:, None] + (number * step_k)[None, :]
        x = tl.load(belief + at, mask=there, other=-float("inf"))
        row = (model * batch + sample) * nodes + node
        label = tl.load(labels + row, mask=here, other=-1)
        known = here & (label >= 0)
        top = tl.maximum(tl.max(x, 1), 0.0)
        norm = top + tl.log(tl.exp(-top) + tl.sum(tl.exp(x - top[:, None]), 1))
        is_label = (number + 1)[None, :] == label[:, None]
        right = tl.sum(tl.where(is_label, x, 0.0), 1)
        cost += tl.where(known, tl.where(label > K, float("nan"), norm - right), 0.0)
        slope = tl.exp(x - norm[:, None]) - tl.where(is_label, 1.0, 0.0)
        tl.store(grad + (row[:, None] * K + number[None, :]), tl.where(known[:, None], slope * share, 0.0), mask=there)
    tl.store(costs + (model * tl.num_programs(0) + tl.program_id(0)), tl.sum(cost, 0) * share)
