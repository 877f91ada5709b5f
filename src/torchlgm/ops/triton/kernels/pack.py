"""What stands before the first message and behind the last: inputs in the form of the kernels, gradients added up."""

from __future__ import annotations

import triton
import triton.language as tl

from torchlgm.ops.triton.kernels.loads import begin


@triton.jit
def pack(out, x, batch, padded, step_n, step_k, step_b, step_m, rows, K: tl.constexpr, BLOCK_R: tl.constexpr,
         BLOCK_B: tl.constexpr, EARLY: tl.constexpr):  # fmt: skip
    """`x` with any strides to `(models, rows, padded)`, a row for each node and label, with 0 in the padding."""
    begin(EARLY)
    row = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    lanes = tl.program_id(1) * BLOCK_B + tl.arange(0, BLOCK_B)
    model = tl.program_id(2).to(tl.int64)
    valid = (row < rows)[:, None]
    row = row.to(tl.int64)
    at = (model * step_m + row // K * step_n + row % K * step_k)[:, None] + lanes.to(tl.int64)[None, :] * step_b
    value = tl.load(x + at, mask=valid & (lanes < batch)[None, :], other=0.0)
    inside = valid & (lanes < padded)[None, :]
    tl.store(out + ((model * rows + row)[:, None] * padded + lanes[None, :]), value, mask=inside)


@triton.jit
def add_up(sums, firsts, seconds, parts, more_parts, sizes, BLOCK_P: tl.constexpr, BLOCK: tl.constexpr,
           EARLY: tl.constexpr):  # fmt: skip
    """Several sums at once, each of two tensors `(parts, size)` and over the parts of both, of which the second may
    have none. All arguments are tuples."""
    begin(EARLY)
    start = tl.program_id(0).to(tl.int64) * BLOCK
    at = start + tl.arange(0, BLOCK)
    for i in tl.static_range(len(sums)):
        if tl.program_id(1) == i and start < sizes[i]:
            total = sum_of_parts(firsts[i], parts[i], sizes[i], at, BLOCK_P, BLOCK)
            total += sum_of_parts(seconds[i], more_parts[i], sizes[i], at, BLOCK_P, BLOCK)
            tl.store(sums[i] + at, tl.sum(total, 0), mask=at < sizes[i])


@triton.jit
def sum_of_parts(x, parts, size, at, BLOCK_P: tl.constexpr, BLOCK: tl.constexpr):
    """In BLOCK_P rows that are still to be added up."""
    total = tl.zeros([BLOCK_P, BLOCK], x.dtype.element_ty)
    for start in range(0, parts, BLOCK_P):
        part = start + tl.arange(0, BLOCK_P)
        valid = (part < parts)[:, None] & (at < size)[None, :]
        total += tl.load(x + (part.to(tl.int64)[:, None] * size + at[None, :]), mask=valid, other=0.0)
    return total
