"""Sums over edges that several programs have taken in chunks."""

from __future__ import annotations

import triton
import triton.language as tl

from torchlgm.ops.triton.kernels.loads import mask_of


@triton.jit
def gathered(
    sums, counters, value, row, rows, lanes, inside, batch, chunk, chunks, model, models, BLOCK_C: tl.constexpr
):
    """The sum `(B,)` of `value` over all chunks, and whether it is for this program to use: the last to finish."""
    at = (model * rows + row) * batch + lanes
    step = models.to(tl.int64) * rows * batch
    tl.store(sums + (chunk * step + at), value, mask=inside)
    tl.debug_barrier()  # all of it is written before the counter says so
    counter = counters + ((model * tl.num_programs(1) + tl.program_id(1)) * rows + row)
    last = tl.atomic_add(counter, 1, sem="acq_rel") == chunks - 1
    if last:
        tl.store(counter, 0)  # for the next kernel
        every = tl.arange(0, BLOCK_C)
        partial = tl.load(sums + (every[:, None] * step + at[None, :]), mask=mask_of(every < chunks, inside), other=0.0,
                        cache_modifier=".cg")  # fmt: skip
        value = tl.sum(partial, 0)
    return value, last
