"""From the gradients of a message and of its inflow to those of what it was made of, formulas 4 to 6 of
docs/kernels.md."""

from __future__ import annotations

import triton
import triton.language as tl

from torchlgm.ops.triton.kernels.chunks import gathered
from torchlgm.ops.triton.kernels.functions import exp, sigmoid
from torchlgm.ops.triton.kernels.loads import (
    SIZES,
    begin,
    lanes_inside,
    mask_of,
    next_edges,
    read,
    read_belief,
    read_cavity,
    read_grad,
    shift,
    span_of,
)


@triton.jit
def previous(out, is_old, row, lanes, inside, valid, batch, WIDE: tl.constexpr):
    """Values that rows of `out`, which may be None, have already, or 0."""
    again = valid & (row * 0 + is_old != 0)
    if out is None:
        value = 0.0
    elif WIDE:
        value = tl.load(out + (row[:, None] * batch + lanes[None, :]), mask=mask_of(again, inside), other=0.0)
    else:
        value = tl.load(out + row, mask=again, other=0.0)
    return value


@triton.jit
def add(out, old, value, factor, row, lanes, inside, valid, batch, WIDE: tl.constexpr):
    """Write `value` `(E, B)` plus `old` to rows of `out`; a narrow `out` gets its sum over samples times `factor`."""
    if WIDE:
        tl.store(out + (row[:, None] * batch + lanes[None, :]), value + old, mask=mask_of(valid, inside))
    else:
        tl.store(out + row, tl.sum(value, 1) * factor + old, mask=valid)


@triton.jit
def shift_part(x, model, part, models, rows, batch, WIDE: tl.constexpr):
    """The gradient `x`, or None, of one model; a narrow one has a part for each block of samples."""
    if x is None or WIDE:
        shifted = shift(x, model, rows, batch, WIDE)
    else:
        shifted = x + (part * models + model) * rows
    return shifted


@triton.jit
def share_out(
    unary_grad, field_grad, first_grad, second_grad, unary_old, field_old, first_old, second_old,
    belief_grad, row, part, model, models, rows, lanes, inside, batch,
    UNARY_WIDE: tl.constexpr, FIELD_WIDE: tl.constexpr, FIRST_WIDE: tl.constexpr, SECOND_WIDE: tl.constexpr,
):  # fmt: skip
    """Add the gradient `(1, B)` of one row of a belief to those of its parts."""
    unary_grad = shift_part(unary_grad, model, part, models, rows, batch, UNARY_WIDE)
    field_grad = shift_part(field_grad, model, part, models, rows, batch, FIELD_WIDE)
    first_grad = shift_part(first_grad, model, part, models, rows, batch, FIRST_WIDE)
    second_grad = shift_part(second_grad, model, part, models, rows, batch, SECOND_WIDE)
    at = row + tl.zeros([1], tl.int64)
    one = at >= 0
    if unary_grad is not None:
        old = previous(unary_grad, unary_old, at, lanes, inside, one, batch, UNARY_WIDE)
        add(unary_grad, old, -belief_grad, 1.0, at, lanes, inside, one, batch, UNARY_WIDE)
    if field_grad is not None:
        old = previous(field_grad, field_old, at, lanes, inside, one, batch, FIELD_WIDE)
        add(field_grad, old, belief_grad, 1.0, at, lanes, inside, one, batch, FIELD_WIDE)
    if first_grad is not None:
        old = previous(first_grad, first_old, at, lanes, inside, one, batch, FIRST_WIDE)
        add(first_grad, old, belief_grad, 1.0, at, lanes, inside, one, batch, FIRST_WIDE)
    if second_grad is not None:
        old = previous(second_grad, second_old, at, lanes, inside, one, batch, SECOND_WIDE)
        add(second_grad, old, belief_grad, 1.0, at, lanes, inside, one, batch, SECOND_WIDE)


@triton.jit(do_not_specialize=["unary_old", "field_old", "first_old", "second_old", "reverse_old", "table_old",
                                 "inflow_parts", "inflow_parts_2", "edges_parts", *SIZES])  # fmt: skip
def send_backward(
    unary_grad, field_grad, first_grad, second_grad, reverse_grad, table_grad,  # any may be None
    unary_old, field_old, first_old, second_old, reverse_old, table_old,  # whether to add to the present values
    chunk_sums, counters,  # used where edges are taken in chunks; None if nobody wants the gradient of the belief
    inflow_grad, inflow_grad_2, edges_grad,  # the first two are added up
    inflow_parts, inflow_parts_2, edges_parts,  # of narrow gradients, which are added up as well
    message, norms,  # of the labels of a source with several
    unary, field, first, second, reverse, table, factor, rho, edge_ids, node_ids, starts, rows, stride,
    batch, sources, targets, edges, table_rows, chunks,
    MODE: tl.constexpr, S: tl.constexpr, T: tl.constexpr, STEP_S: tl.constexpr, STEP_T: tl.constexpr,
    UNARY_WIDE: tl.constexpr, FIELD_WIDE: tl.constexpr, FIRST_WIDE: tl.constexpr, SECOND_WIDE: tl.constexpr,
    REVERSE_WIDE: tl.constexpr, LONG: tl.constexpr, UNROLL: tl.constexpr, BLOCK_C: tl.constexpr, EARLY: tl.constexpr,
    FAST: tl.constexpr, RAGGED: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_B: tl.constexpr,
    INFLOW_PARTS: tl.constexpr, INFLOW_PARTS_2: tl.constexpr, EDGES_PARTS: tl.constexpr,
):  # fmt: skip
    TYPE: tl.constexpr = table.dtype.element_ty
    if RAGGED or (BLOCK_B >= 4 and BLOCK_B < 16):
        batch = batch // 4 * 4  # which tells the compiler that rows are aligned
    source = tl.program_id(0) // S
    mine = tl.program_id(0) % S
    lanes = tl.program_id(1) * BLOCK_B + tl.arange(0, BLOCK_B)
    inside = lanes_inside(lanes, batch, RAGGED)
    part = tl.program_id(1).to(tl.int64)
    chunk = tl.program_id(2) % chunks
    model = (tl.program_id(2) // chunks).to(tl.int64)
    models = tl.num_programs(2) // chunks
    first_slot, end, base = span_of(starts, source, chunk, chunks, BLOCK_C)
    begin(EARLY)
    reverse_grad = shift_part(reverse_grad, model, part, models, edges * S, batch, REVERSE_WIDE)
    table_grad = shift_part(table_grad, model, part, models, edges * (S * T), batch, False)
    inflow_grad = shift(inflow_grad, model, targets * T, batch, True)
    inflow_grad_2 = shift(inflow_grad_2, model, targets * T, batch, True)
    edges_grad = shift(edges_grad, model, edges * T, batch, True)
    message = shift(message, model, edges * T, batch, True)
    norms = shift(norms, model, edges, batch, True)
    unary = shift(unary, model, sources * S, batch, UNARY_WIDE)
    field = shift(field, model, sources * S, batch, FIELD_WIDE)
    first = shift(first, model, sources * S, batch, FIRST_WIDE)
    second = shift(second, model, sources * S, batch, SECOND_WIDE)
    reverse = shift(reverse, model, edges * S, batch, REVERSE_WIDE)
    table += model * table_rows * (S * T) + mine * STEP_S
    belief_grad = tl.zeros([BLOCK_E, BLOCK_B], TYPE)
    first_row = source * S + tl.zeros([1], tl.int32)
    if LONG:
        first_row = first_row.to(tl.int64)
    is_row = first_row >= 0
    belief = read_belief(unary, field, first, second, first_row + mine, lanes, inside, is_row, batch, UNARY_WIDE,
                         FIELD_WIDE, FIRST_WIDE, SECOND_WIDE, 1, BLOCK_B, TYPE)  # fmt: skip
    for start in tl.range(first_slot, end, BLOCK_E, num_stages=1):
        edge, target, row = next_edges(edge_ids, node_ids, rows, source, base, stride, start, end, LONG, BLOCK_E)
        slot = start + tl.arange(0, BLOCK_E)
        valid = slot < end
        scale = tl.load(factor + slot, mask=valid, other=0.0)
        weight = tl.full([BLOCK_E], 1.0, TYPE)
        if rho is not None:
            weight = tl.load(rho + slot, mask=valid, other=0.0)
        # read early
        back_old = previous(reverse_grad, reverse_old, edge * S + mine, lanes, inside, valid, batch, REVERSE_WIDE)
        c = read_cavity(belief, reverse, edge * S + mine, lanes, inside, valid, batch, REVERSE_WIDE, BLOCK_E)
        share = c  # of this label among the source's labels
        log_norm = tl.zeros([BLOCK_E, BLOCK_B], TYPE)
        if MODE == "sum":
            if S == 1:
                share = sigmoid(c, FAST)
            else:
                log_norm = tl.load(norms + (edge[:, None] * batch + lanes[None, :]), mask=mask_of(valid, inside),
                                   other=float("inf"))  # which makes all shares 0  # fmt: skip
                share = exp(c - log_norm, FAST)
        if MODE == "max":
            top = log_norm
            ties = log_norm
            for s in range(S):
                of_label = read_belief(unary, field, first, second, first_row + s, lanes, inside, is_row, batch,
                                       UNARY_WIDE, FIELD_WIDE, FIRST_WIDE, SECOND_WIDE, 1, BLOCK_B, TYPE)  # fmt: skip
                other = read_cavity(of_label, reverse, edge * S + s, lanes, inside, valid, batch, REVERSE_WIDE, BLOCK_E)
                ties = tl.where(other > top, 1.0, ties + tl.where(other == top, 1.0, 0.0))
                top = tl.maximum(top, other)
            share = tl.where((c == top) & (top > 0), 1.0 / tl.maximum(ties, 1.0), 0.0)
        cavity_grad = tl.zeros([BLOCK_E, BLOCK_B], TYPE)
        for label in tl.range(0, T, loop_unroll_factor=UNROLL):
            t = (tl.load(table + row * (S * T) + label * STEP_T, mask=valid, other=0.0) * scale)[:, None]
            cell = edge * (S * T) + mine * STEP_S + label * STEP_T
            cell_old = previous(table_grad, table_old, cell, lanes, inside, valid, batch, False)
            g = tl.zeros([BLOCK_E, BLOCK_B], TYPE)
            if inflow_grad is not None:
                g += read_grad(inflow_grad, inflow_parts, models, targets * T, target * T + label, lanes, inside,
                               valid, batch, INFLOW_PARTS)  # fmt: skip
                if inflow_grad_2 is not None:
                    g += read_grad(inflow_grad_2, inflow_parts_2, models, targets * T, target * T + label, lanes,
                                   inside, valid, batch, INFLOW_PARTS_2)  # fmt: skip
                g *= weight[:, None]
            if edges_grad is not None:
                g += read_grad(edges_grad, edges_parts, models, edges * T, edge * T + label, lanes, inside, valid,
                               batch, EDGES_PARTS)  # fmt: skip
            if MODE == "linear":
                t_grad = c * g
                cavity_grad += t * g
            else:
                if MODE == "max":
                    top = tl.zeros([BLOCK_E, BLOCK_B], TYPE)
                    ties = tl.zeros([BLOCK_E, BLOCK_B], TYPE)
                    for s in range(S):
                        of_label = read_belief(unary, field, first, second, first_row + s, lanes, inside, is_row, batch,
                                               UNARY_WIDE, FIELD_WIDE, FIRST_WIDE, SECOND_WIDE, 1, BLOCK_B,
                                               TYPE)  # fmt: skip
                        joint = read_cavity(of_label, reverse, edge * S + s, lanes, inside, valid, batch, REVERSE_WIDE,
                                            BLOCK_E)  # fmt: skip
                        entry = table + row * (S * T) + (s - mine) * STEP_S + label * STEP_T
                        joint += (tl.load(entry, mask=valid, other=0.0) * scale)[:, None]
                        ties = tl.where(joint > top, 1.0, ties + tl.where(joint == top, 1.0, 0.0))
                        top = tl.maximum(top, joint)
                    joint_share = tl.where((t + c == top) & (top > 0), 1.0 / tl.maximum(ties, 1.0), 0.0)
                elif S == 1:
                    joint_share = sigmoid(t + c, FAST)
                else:
                    m = read(message, edge * T + label, lanes, inside, valid, batch, True)
                    joint_share = exp(t + c - log_norm - m, FAST)
                t_grad = joint_share * g
                cavity_grad += (joint_share - share) * g
            if table_grad is not None:
                add(table_grad, cell_old, t_grad, scale, cell, lanes, inside, valid, batch, False)
        if reverse_grad is not None:
            add(reverse_grad, back_old, -cavity_grad, 1.0, edge * S + mine, lanes, inside, valid, batch, REVERSE_WIDE)
        belief_grad += cavity_grad
    total = tl.sum(belief_grad, 0)
    mine += source * S
    if BLOCK_C == 1:
        share_out(unary_grad, field_grad, first_grad, second_grad, unary_old, field_old, first_old, second_old,
                  total[None, :], mine, part, model, models, sources * S, lanes, inside, batch,
                  UNARY_WIDE, FIELD_WIDE, FIRST_WIDE, SECOND_WIDE)  # fmt: skip
    elif chunk_sums is not None:
        total, last = gathered(chunk_sums, counters, total, mine, sources * S, lanes, inside, batch,
                               chunk, chunks, model, models, BLOCK_C)  # fmt: skip
        if last:
            share_out(unary_grad, field_grad, first_grad, second_grad, unary_old, field_old, first_old, second_old,
                      total[None, :], mine, part, model, models, sources * S, lanes, inside, batch,
                      UNARY_WIDE, FIELD_WIDE, FIRST_WIDE, SECOND_WIDE)  # fmt: skip
