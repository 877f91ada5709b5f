"""Triton kernels: one message update, the sum of its messages at the target's nodes, and the gradient of both.

Node tensors are `(models, nodes, k, batch)` and edge tensors `(models, edges, k, batch)`, so that samples lie side by
side whatever the layout; the batch is padded, see `fused.padded`, so that its blocks are full and aligned, and what
stands in the padding is finite and its gradient 0. A *narrow* tensor has a batch axis of 1 and is the same for every
sample. The edges of a node
are read from a list, see `EdgeLists`, so one kernel serves every layout and both directions. A program of the forward
kernel makes one label of one target node, a program of the backward kernel one label of one source node, each for a
block of samples; sums run in a fixed order, so results repeat bit for bit. A source's belief is given in up to four
parts: minus its unary, a field of evidence, and two inflows.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _begin(EARLY: tl.constexpr):
    """A kernel that was launched before its predecessor was done waits for it here, and lets its successor start."""
    if EARLY:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def _read(x, row, lanes, there, batch, WIDE: tl.constexpr):
    """Rows of `x` for a block of samples: `(E, B)`, or `(E, 1)` where `x` is narrow."""
    if WIDE:
        value = tl.load(x + (row[:, None] * batch + lanes[None, :]), mask=there[:, None], other=0.0)
    else:
        value = tl.load(x + row, mask=there, other=0.0)[:, None]
    return value


@triton.jit
def _shift(x, model, rows, batch, WIDE: tl.constexpr):
    """`x`, or None, advanced to the rows of one model."""
    if x is None:
        shifted = x
    elif WIDE:
        shifted = x + model * rows * batch
    else:
        shifted = x + model * rows
    return shifted


@triton.jit
def _cavity(
    unary, field, first, second, reverse, node, edge, lanes, there, batch,
    UNARY_WIDE: tl.constexpr, FIELD_WIDE: tl.constexpr, FIRST_WIDE: tl.constexpr, SECOND_WIDE: tl.constexpr,
    REVERSE_WIDE: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_B: tl.constexpr, TYPE: tl.constexpr,
):  # fmt: skip
    """One label of the source belief less the message that came back."""
    c = tl.zeros([BLOCK_E, BLOCK_B], TYPE)
    if unary is not None:
        c -= _read(unary, node, lanes, there, batch, UNARY_WIDE)
    if field is not None:
        c += _read(field, node, lanes, there, batch, FIELD_WIDE)
    if first is not None:
        c += _read(first, node, lanes, there, batch, FIRST_WIDE)
    if second is not None:
        c += _read(second, node, lanes, there, batch, SECOND_WIDE)
    if reverse is not None:
        c -= _read(reverse, edge, lanes, there, batch, REVERSE_WIDE)
    return c


@triton.jit
def _soft_part(x, FAST: tl.constexpr):
    """softplus(x) - max(x, 0)"""
    y = 1.0 + tl.exp(-tl.abs(x))
    if FAST:  # y is in [1, 2], where the hardware's logarithm is good to 2e-7
        log2 = tl.inline_asm_elementwise("lg2.approx.f32 $0, $1;", "=f,f", [y], tl.float32, is_pure=True, pack=1)
        soft = log2 * 0.6931471805599453
    else:
        soft = tl.log(y)
    return soft


@triton.jit
def _sigmoid(x, FAST: tl.constexpr):
    y = 1.0 + tl.exp(-x)
    if FAST:
        p = tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [y], tl.float32, is_pure=True, pack=1)
    else:
        p = 1.0 / y
    return p


@triton.jit
def send(
    edges_out, inflow_out,  # the first may be None
    unary, field, first, second, reverse, table, factor, rho, edge_ids, node_ids, starts, rows,
    batch, sources, targets, edges, table_rows,
    MODE: tl.constexpr, S: tl.constexpr, T: tl.constexpr, STEP_S: tl.constexpr, STEP_T: tl.constexpr,
    UNARY_WIDE: tl.constexpr, FIELD_WIDE: tl.constexpr, FIRST_WIDE: tl.constexpr, SECOND_WIDE: tl.constexpr,
    REVERSE_WIDE: tl.constexpr, LONG: tl.constexpr, UNROLL: tl.constexpr, CHUNKS: tl.constexpr, EARLY: tl.constexpr,
    FAST: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_B: tl.constexpr,
):  # fmt: skip
    _begin(EARLY)
    TYPE: tl.constexpr = inflow_out.dtype.element_ty
    target = tl.program_id(0) // T
    label = tl.program_id(0) % T
    lanes = tl.program_id(1) * BLOCK_B + tl.arange(0, BLOCK_B)
    chunk = tl.program_id(2) % CHUNKS
    model = (tl.program_id(2) // CHUNKS).to(tl.int64)
    models = tl.num_programs(2) // CHUNKS
    unary = _shift(unary, model, sources * S, batch, UNARY_WIDE)
    field = _shift(field, model, sources * S, batch, FIELD_WIDE)
    first = _shift(first, model, sources * S, batch, FIRST_WIDE)
    second = _shift(second, model, sources * S, batch, SECOND_WIDE)
    reverse = _shift(reverse, model, edges * S, batch, REVERSE_WIDE)
    edges_out = _shift(edges_out, model, edges * T, batch, True)
    table += model * table_rows * (S * T) + label * STEP_T
    inflow = tl.zeros([BLOCK_E, BLOCK_B], TYPE)
    start = tl.load(starts + target)
    end = tl.load(starts + target + 1)
    if CHUNKS > 1:
        span = (end - start + CHUNKS - 1) // CHUNKS
        start += chunk * span
        end = tl.minimum(start + span, end)
    while start < end:
        slot = start + tl.arange(0, BLOCK_E)
        there = slot < end
        live = there[:, None]
        edge = tl.load(edge_ids + slot, mask=there, other=0)
        node = tl.load(node_ids + slot, mask=there, other=0)
        row = tl.load(rows + slot, mask=there, other=0)
        scale = tl.load(factor + slot, mask=there, other=0.0)
        weight = tl.full([BLOCK_E], 1.0, TYPE)
        if rho is not None:
            weight = tl.load(rho + slot, mask=there, other=0.0)
        if LONG:
            edge, node = edge.to(tl.int64), node.to(tl.int64)
        if S == 1:
            c = _cavity(unary, field, first, second, reverse, node, edge, lanes, there, batch, UNARY_WIDE,
                        FIELD_WIDE, FIRST_WIDE, SECOND_WIDE, REVERSE_WIDE, BLOCK_E, BLOCK_B, TYPE)  # fmt: skip
            t = (tl.load(table + row * T, mask=there, other=0.0) * scale)[:, None]
            if MODE == "sum":
                m = tl.maximum(t, -c) + tl.minimum(c, 0.0) + (_soft_part(t + c, FAST) - _soft_part(c, FAST))
            elif MODE == "max":
                m = tl.maximum(t + c, 0.0) - tl.maximum(c, 0.0)
            else:
                m = t * c
        else:
            joint_top = tl.zeros([BLOCK_E, BLOCK_B], TYPE)
            joint_sum = joint_top + 1.0
            top = joint_top
            total = joint_sum
            m = joint_top
            for s in tl.range(0, S, loop_unroll_factor=UNROLL):
                c = _cavity(unary, field, first, second, reverse, node * S + s, edge * S + s, lanes, there,
                            batch, UNARY_WIDE, FIELD_WIDE, FIRST_WIDE, SECOND_WIDE, REVERSE_WIDE,
                            BLOCK_E, BLOCK_B, TYPE)  # fmt: skip
                t = (tl.load(table + row * (S * T) + s * STEP_S, mask=there, other=0.0) * scale)[:, None]
                if MODE == "linear":
                    m += t * c
                else:
                    new_joint, new = tl.maximum(joint_top, t + c), tl.maximum(top, c)
                    if MODE == "sum":
                        joint_sum = joint_sum * tl.exp(joint_top - new_joint) + tl.exp(t + c - new_joint)
                        total = total * tl.exp(top - new) + tl.exp(c - new)
                    joint_top, top = new_joint, new
            if MODE != "linear":
                m = joint_top - top
            if MODE == "sum":
                m += tl.log(joint_sum / total)
        if edges_out is not None:
            tl.store(edges_out + ((edge * T + label)[:, None] * batch + lanes[None, :]), m, mask=live)
        inflow += tl.where(live, m * weight[:, None], 0.0)
        start += BLOCK_E
    out = inflow_out + (((chunk * models + model) * targets + target) * T + label) * batch + lanes
    tl.store(out, tl.sum(inflow, 0))


@triton.jit
def _add(out, old, value, row, lanes, there, batch, WIDE: tl.constexpr):
    """Write `value` `(E, B)` to rows of `out`, or add it where `old`; a narrow `out` gets its sum over samples."""
    again = there & (row * 0 + old != 0)
    if WIDE:
        at = out + (row[:, None] * batch + lanes[None, :])
        tl.store(at, value + tl.load(at, mask=again[:, None], other=0.0), mask=there[:, None])
    else:
        at = out + row
        tl.store(at, tl.sum(value, 1) + tl.load(at, mask=again, other=0.0), mask=there)


@triton.jit
def _shift_part(x, model, part, models, rows, batch, WIDE: tl.constexpr):
    """The gradient `x`, or None, of one model; a narrow one has a part for each block of samples."""
    if x is None or WIDE:
        shifted = _shift(x, model, rows, batch, WIDE)
    else:
        shifted = x + (part * models + model) * rows
    return shifted


@triton.jit
def _share(
    unary_grad, field_grad, first_grad, second_grad, unary_old, field_old, first_old, second_old,
    belief_grad, row, part, model, models, rows, lanes, batch,
    UNARY_WIDE: tl.constexpr, FIELD_WIDE: tl.constexpr, FIRST_WIDE: tl.constexpr, SECOND_WIDE: tl.constexpr,
):  # fmt: skip
    """Add the gradient `(1, B)` of one row of a belief to those of its parts."""
    unary_grad = _shift_part(unary_grad, model, part, models, rows, batch, UNARY_WIDE)
    field_grad = _shift_part(field_grad, model, part, models, rows, batch, FIELD_WIDE)
    first_grad = _shift_part(first_grad, model, part, models, rows, batch, FIRST_WIDE)
    second_grad = _shift_part(second_grad, model, part, models, rows, batch, SECOND_WIDE)
    at = row + tl.zeros([1], tl.int64)
    one = at >= 0
    if unary_grad is not None:
        _add(unary_grad, unary_old, -belief_grad, at, lanes, one, batch, UNARY_WIDE)
    if field_grad is not None:
        _add(field_grad, field_old, belief_grad, at, lanes, one, batch, FIELD_WIDE)
    if first_grad is not None:
        _add(first_grad, first_old, belief_grad, at, lanes, one, batch, FIRST_WIDE)
    if second_grad is not None:
        _add(second_grad, second_old, belief_grad, at, lanes, one, batch, SECOND_WIDE)


@triton.jit(do_not_specialize=["unary_old", "field_old", "first_old", "second_old"])
def share(
    unary_grad, field_grad, first_grad, second_grad, unary_old, field_old, first_old, second_old,
    chunk_grads, batch, rows, UNARY_WIDE: tl.constexpr, FIELD_WIDE: tl.constexpr, FIRST_WIDE: tl.constexpr,
    SECOND_WIDE: tl.constexpr, CHUNKS: tl.constexpr, EARLY: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_B: tl.constexpr,
):  # fmt: skip
    """Add up the gradients of beliefs that `send_backward` left in chunks, and share them among the parts."""
    _begin(EARLY)
    row = tl.program_id(0)
    lanes = tl.program_id(1) * BLOCK_B + tl.arange(0, BLOCK_B)
    part = tl.program_id(1).to(tl.int64)
    model = tl.program_id(2).to(tl.int64)
    models = tl.num_programs(2)
    chunk = tl.arange(0, BLOCK_C)
    at = ((chunk * models + model) * rows + row)[:, None] * batch + lanes[None, :]
    grads = tl.load(chunk_grads + at, mask=(chunk < CHUNKS)[:, None], other=0.0)
    _share(unary_grad, field_grad, first_grad, second_grad, unary_old, field_old, first_old, second_old,
           tl.sum(grads, 0)[None, :], row, part, model, models, rows, lanes, batch,
           UNARY_WIDE, FIELD_WIDE, FIRST_WIDE, SECOND_WIDE)  # fmt: skip


@triton.jit(do_not_specialize=["unary_old", "field_old", "first_old", "second_old", "reverse_old", "table_old"])
def send_backward(
    unary_grad, field_grad, first_grad, second_grad, reverse_grad, table_grad,  # any may be None
    unary_old, field_old, first_old, second_old, reverse_old, table_old,  # whether to add to what is there
    chunk_grads,  # where the belief's gradient goes if the edges of a node are taken in chunks
    inflow_grad, edges_grad, message,
    unary, field, first, second, reverse, table, factor, rho, edge_ids, node_ids, starts, rows,
    batch, sources, targets, edges, table_rows,
    MODE: tl.constexpr, S: tl.constexpr, T: tl.constexpr, STEP_S: tl.constexpr, STEP_T: tl.constexpr,
    UNARY_WIDE: tl.constexpr, FIELD_WIDE: tl.constexpr, FIRST_WIDE: tl.constexpr, SECOND_WIDE: tl.constexpr,
    REVERSE_WIDE: tl.constexpr, LONG: tl.constexpr, UNROLL: tl.constexpr, CHUNKS: tl.constexpr, EARLY: tl.constexpr,
    FAST: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_B: tl.constexpr,
):  # fmt: skip
    _begin(EARLY)
    TYPE: tl.constexpr = table.dtype.element_ty
    source = tl.program_id(0) // S
    mine = tl.program_id(0) % S
    lanes = tl.program_id(1) * BLOCK_B + tl.arange(0, BLOCK_B)
    part = tl.program_id(1).to(tl.int64)
    chunk = tl.program_id(2) % CHUNKS
    model = (tl.program_id(2) // CHUNKS).to(tl.int64)
    models = tl.num_programs(2) // CHUNKS
    reverse_grad = _shift_part(reverse_grad, model, part, models, edges * S, batch, REVERSE_WIDE)
    table_grad = _shift_part(table_grad, model, part, models, edges * (S * T), batch, False)
    inflow_grad = _shift(inflow_grad, model, targets * T, batch, True)
    edges_grad = _shift(edges_grad, model, edges * T, batch, True)
    message = _shift(message, model, edges * T, batch, True)
    unary = _shift(unary, model, sources * S, batch, UNARY_WIDE)
    field = _shift(field, model, sources * S, batch, FIELD_WIDE)
    first = _shift(first, model, sources * S, batch, FIRST_WIDE)
    second = _shift(second, model, sources * S, batch, SECOND_WIDE)
    reverse = _shift(reverse, model, edges * S, batch, REVERSE_WIDE)
    table += model * table_rows * (S * T) + mine * STEP_S
    belief_grad = tl.zeros([BLOCK_E, BLOCK_B], TYPE)
    node = source + tl.zeros([BLOCK_E], tl.int32)
    if LONG:
        node = node.to(tl.int64)
    start = tl.load(starts + source)
    end = tl.load(starts + source + 1)
    if CHUNKS > 1:
        span = (end - start + CHUNKS - 1) // CHUNKS
        start += chunk * span
        end = tl.minimum(start + span, end)
    while start < end:
        slot = start + tl.arange(0, BLOCK_E)
        there = slot < end
        live = there[:, None]
        edge = tl.load(edge_ids + slot, mask=there, other=0)
        target = tl.load(node_ids + slot, mask=there, other=0)
        row = tl.load(rows + slot, mask=there, other=0)
        scale = tl.load(factor + slot, mask=there, other=0.0)
        weight = tl.full([BLOCK_E], 1.0, TYPE)
        if rho is not None:
            weight = tl.load(rho + slot, mask=there, other=0.0)
        if LONG:
            edge, target = edge.to(tl.int64), target.to(tl.int64)
        c = _cavity(unary, field, first, second, reverse, node * S + mine, edge * S + mine, lanes, there, batch,
                    UNARY_WIDE, FIELD_WIDE, FIRST_WIDE, SECOND_WIDE, REVERSE_WIDE, BLOCK_E, BLOCK_B, TYPE)  # fmt: skip
        share = c  # of this label among the source's labels
        log_norm = tl.zeros([BLOCK_E, BLOCK_B], TYPE)
        if MODE == "sum":
            if S == 1:
                share = _sigmoid(c, FAST)
            else:
                top = log_norm
                total = log_norm + 1.0
                for s in tl.range(0, S, loop_unroll_factor=UNROLL):
                    other = _cavity(unary, field, first, second, reverse, node * S + s, edge * S + s, lanes, there,
                                    batch, UNARY_WIDE, FIELD_WIDE, FIRST_WIDE, SECOND_WIDE, REVERSE_WIDE,
                                    BLOCK_E, BLOCK_B, TYPE)  # fmt: skip
                    new = tl.maximum(top, other)
                    total = total * tl.exp(top - new) + tl.exp(other - new)
                    top = new
                log_norm = top + tl.log(total)
                share = tl.exp(c - log_norm)
        if MODE == "max":
            top = log_norm
            ties = log_norm
            for s in range(S):
                other = _cavity(unary, field, first, second, reverse, node * S + s, edge * S + s, lanes, there,
                                batch, UNARY_WIDE, FIELD_WIDE, FIRST_WIDE, SECOND_WIDE, REVERSE_WIDE,
                                BLOCK_E, BLOCK_B, TYPE)  # fmt: skip
                ties = tl.where(other > top, 1.0, ties + tl.where(other == top, 1.0, 0.0))
                top = tl.maximum(top, other)
            share = tl.where((c == top) & (top > 0), 1.0 / tl.maximum(ties, 1.0), 0.0)
        cavity_grad = tl.zeros([BLOCK_E, BLOCK_B], TYPE)
        for label in tl.range(0, T, loop_unroll_factor=UNROLL):
            t = (tl.load(table + row * (S * T) + label * STEP_T, mask=there, other=0.0) * scale)[:, None]
            g = tl.zeros([BLOCK_E, BLOCK_B], TYPE)
            if inflow_grad is not None:
                g += weight[:, None] * _read(inflow_grad, target * T + label, lanes, there, batch, True)
            if edges_grad is not None:
                g += _read(edges_grad, edge * T + label, lanes, there, batch, True)
            if MODE == "linear":
                t_grad = c * g
                cavity_grad += t * g
            else:
                if MODE == "max":
                    top = tl.zeros([BLOCK_E, BLOCK_B], TYPE)
                    ties = tl.zeros([BLOCK_E, BLOCK_B], TYPE)
                    for s in range(S):
                        joint = _cavity(unary, field, first, second, reverse, node * S + s, edge * S + s, lanes,
                                        there, batch, UNARY_WIDE, FIELD_WIDE, FIRST_WIDE, SECOND_WIDE,
                                        REVERSE_WIDE, BLOCK_E, BLOCK_B, TYPE)  # fmt: skip
                        entry = table + row * (S * T) + (s - mine) * STEP_S + label * STEP_T
                        joint += (tl.load(entry, mask=there, other=0.0) * scale)[:, None]
                        ties = tl.where(joint > top, 1.0, ties + tl.where(joint == top, 1.0, 0.0))
                        top = tl.maximum(top, joint)
                    joint_share = tl.where((t + c == top) & (top > 0), 1.0 / tl.maximum(ties, 1.0), 0.0)
                elif S == 1:
                    joint_share = _sigmoid(t + c, FAST)
                else:
                    m = _read(message, edge * T + label, lanes, there, batch, True)
                    joint_share = tl.exp(t + c - log_norm - m)
                t_grad = joint_share * g
                cavity_grad += (joint_share - share) * g
            if table_grad is not None:
                _add(table_grad, table_old, tl.where(live, t_grad, 0.0) * scale[:, None],
                     edge * (S * T) + mine * STEP_S + label * STEP_T, lanes, there, batch, False)  # fmt: skip
        cavity_grad = tl.where(live, cavity_grad, 0.0)
        if reverse_grad is not None:
            _add(reverse_grad, reverse_old, -cavity_grad, edge * S + mine, lanes, there, batch, REVERSE_WIDE)
        belief_grad += cavity_grad
        start += BLOCK_E
    summed = tl.sum(belief_grad, 0)[None, :]
    row_of_belief = source * S + mine
    if CHUNKS > 1:
        at = ((chunk * models + model) * (sources * S) + row_of_belief) * batch + lanes[None, :]
        tl.store(chunk_grads + at, summed)
    else:
        _share(unary_grad, field_grad, first_grad, second_grad, unary_old, field_old, first_old, second_old,
               summed, row_of_belief, part, model, models, sources * S, lanes, batch,
               UNARY_WIDE, FIELD_WIDE, FIRST_WIDE, SECOND_WIDE)  # fmt: skip


@triton.jit
def pack(out, x, batch, padded, step_n, step_k, step_b, step_m, rows, K: tl.constexpr, BLOCK_R: tl.constexpr,
         BLOCK_B: tl.constexpr, EARLY: tl.constexpr):  # fmt: skip
    """`x` with any strides to `(models, rows, padded)`, a row for each node and label, with 0 in the padding."""
    _begin(EARLY)
    row = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    lanes = tl.program_id(1) * BLOCK_B + tl.arange(0, BLOCK_B)
    model = tl.program_id(2).to(tl.int64)
    there = (row < rows)[:, None]
    row = row.to(tl.int64)
    at = (model * step_m + row // K * step_n + row % K * step_k)[:, None] + lanes.to(tl.int64)[None, :] * step_b
    value = tl.load(x + at, mask=there & (lanes < batch)[None, :], other=0.0)
    tl.store(out + ((model * rows + row)[:, None] * padded + lanes[None, :]), value, mask=there)
