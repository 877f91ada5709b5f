"""Triton kernels: one message update, the sum of its messages at the target's nodes, and the gradient of both.

Node tensors are `(models, nodes, k, batch)` and edge tensors `(models, edges, k, batch)`, so that samples lie side by
side whatever the layout; the batch is padded, see `gpu.padded`, so that its rows are aligned and, unless it is RAGGED,
its blocks full, and what stands in the padding is finite and its gradient 0. A *narrow* tensor has a batch axis of 1
and is the same for every sample. The edges of a node are read from a list, see `EdgeLists`, so one kernel serves every
layout and both directions. A program of the forward kernel makes one label of one target node, a program of the
backward kernel one label of one source node, each for a block of samples. Where few nodes have many edges, these are
taken in chunks by several programs, and the last of them to finish adds up what all have found. Sums run in a fixed
order, so results repeat bit for bit. A source's belief is given in up to four parts: minus its unary, a field of
evidence, two inflows.
"""

from __future__ import annotations

import triton
import triton.language as tl

SIZES = ["sources", "targets", "edges", "table_rows", "chunks"]  # worth no kernel of their own


@triton.jit
def _begin(EARLY: tl.constexpr):
    """A kernel that was launched before its predecessor was done waits for it here, and lets its successor start.

    Before this it may read nothing but lists of edges, which no kernel writes, see `EdgeLists.rows`.
    """
    if EARLY:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def _list(starts, node, chunk, chunks, BLOCK_C: tl.constexpr):
    """Where the edges of a node, or one chunk of them, start and end."""
    start = tl.load(starts + node)
    end = tl.load(starts + node + 1)
    if BLOCK_C > 1:
        span = (end - start + chunks - 1) // chunks
        start += chunk * span
        end = tl.minimum(start + span, end)
    return start, end


@triton.jit
def _edges(edge_ids, node_ids, rows, start, end, LONG: tl.constexpr, BLOCK_E: tl.constexpr):
    """The next edges, the nodes at their other ends, and the rows of their tables."""
    slot = start + tl.arange(0, BLOCK_E)
    there = slot < end
    edge = tl.load(edge_ids + slot, mask=there, other=0)
    node = tl.load(node_ids + slot, mask=there, other=0)
    row = tl.load(rows + slot, mask=there, other=0)
    if LONG:
        edge, node, row = edge.to(tl.int64), node.to(tl.int64), row.to(tl.int64)
    return edge, node, row


@triton.jit
def _inside(lanes, batch, RAGGED: tl.constexpr):
    """Which lanes hold samples, or None if all of them do."""
    if RAGGED:
        inside = lanes < batch
    else:
        inside = None
    return inside


@triton.jit
def _live(there, inside):
    """`(E, B or 1)`: the edges, and the lanes, that there are."""
    if inside is None:
        live = there[:, None]
    else:
        live = there[:, None] & inside[None, :]
    return live


@triton.jit
def _gathered(
    sums, counters, value, row, rows, lanes, inside, batch, chunk, chunks, model, models, BLOCK_C: tl.constexpr
):
    """The sum `(B,)` of `value` over all chunks, and whether it is for this program to use: the last to finish."""
    at = (model * rows + row) * batch + lanes
    step = models.to(tl.int64) * rows * batch
    tl.store(sums + (chunk * step + at), value, mask=inside)
    tl.debug_barrier()  # all of it is there before the counter says so
    counter = counters + ((model * tl.num_programs(1) + tl.program_id(1)) * rows + row)
    last = tl.atomic_add(counter, 1, sem="acq_rel") == chunks - 1
    if last:
        tl.store(counter, 0)  # for the next kernel
        every = tl.arange(0, BLOCK_C)
        found = tl.load(sums + (every[:, None] * step + at[None, :]), mask=_live(every < chunks, inside), other=0.0,
                        cache_modifier=".cg")  # fmt: skip
        value = tl.sum(found, 0)
    return value, last


@triton.jit
def _read(x, row, lanes, inside, there, batch, WIDE: tl.constexpr):
    """Rows of `x` for a block of samples: `(E, B)`, or `(E, 1)` where `x` is narrow."""
    if WIDE:
        value = tl.load(x + (row[:, None] * batch + lanes[None, :]), mask=_live(there, inside), other=0.0)
    else:
        value = tl.load(x + row, mask=there, other=0.0)[:, None]
    return value


@triton.jit
def _read_grad(x, parts, models, rows, row, lanes, inside, there, batch, BLOCK_B: tl.constexpr):
    """Rows of a gradient as wide as the block; a narrow one is the sum of its parts, each with `rows` of all models."""
    value = _read(x, row, lanes, inside, there, batch, True)
    if BLOCK_B == 1:
        for _ in range(1, parts):
            x += models.to(tl.int64) * rows
            value += _read(x, row, lanes, inside, there, batch, True)
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
def _belief(
    unary, field, first, second, row, lanes, inside, there, batch,
    UNARY_WIDE: tl.constexpr, FIELD_WIDE: tl.constexpr, FIRST_WIDE: tl.constexpr, SECOND_WIDE: tl.constexpr,
    BLOCK_R: tl.constexpr, BLOCK_B: tl.constexpr, TYPE: tl.constexpr,
):  # fmt: skip
    """Rows `(R, B)` of a belief, the sum of its parts."""
    c = tl.zeros([BLOCK_R, BLOCK_B], TYPE)
    if unary is not None:
        c -= _read(unary, row, lanes, inside, there, batch, UNARY_WIDE)
    if field is not None:
        c += _read(field, row, lanes, inside, there, batch, FIELD_WIDE)
    if first is not None:
        c += _read(first, row, lanes, inside, there, batch, FIRST_WIDE)
    if second is not None:
        c += _read(second, row, lanes, inside, there, batch, SECOND_WIDE)
    return c


@triton.jit
def _cavity(belief, reverse, row, lanes, inside, there, batch, WIDE: tl.constexpr, BLOCK_E: tl.constexpr):
    """`(E, B)`: the belief `(E or 1, B)` of a source less the messages that came back."""
    c = tl.broadcast_to(belief, [BLOCK_E, belief.shape[1]])
    if reverse is not None:
        c -= _read(reverse, row, lanes, inside, there, batch, WIDE)
    return c


@triton.jit
def _exp(x, FAST: tl.constexpr):
    if FAST:  # what is too small for a normal number is 0, which spares four instructions
        scaled = x * 1.4426950408889634
        y = tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [scaled], tl.float32, is_pure=True, pack=1)
    else:
        y = tl.exp(x)
    return y


@triton.jit
def _soft_difference(x, y, FAST: tl.constexpr):
    """softplus(x) - max(x, 0) less the same of y"""
    u = 1.0 + _exp(-tl.abs(x), FAST)
    v = 1.0 + _exp(-tl.abs(y), FAST)
    if FAST:  # they are in [1, 2], where the hardware's logarithm is good to 2e-7
        log_u = tl.inline_asm_elementwise("lg2.approx.ftz.f32 $0, $1;", "=f,f", [u], tl.float32, is_pure=True, pack=1)
        log_v = tl.inline_asm_elementwise("lg2.approx.ftz.f32 $0, $1;", "=f,f", [v], tl.float32, is_pure=True, pack=1)
        difference = (log_u - log_v) * 0.6931471805599453
    else:
        difference = tl.log(u) - tl.log(v)
    return difference


@triton.jit
def _sigmoid(x, FAST: tl.constexpr):
    y = 1.0 + _exp(-x, FAST)
    if FAST:
        p = tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [y], tl.float32, is_pure=True, pack=1)
    else:
        p = 1.0 / y
    return p


@triton.jit(do_not_specialize=SIZES)
def send(
    edges_out, inflow_out,  # the first may be None
    chunk_sums, counters,  # used where edges are taken in chunks
    unary, field, first, second, reverse, table, factor, rho, edge_ids, node_ids, starts, rows,
    batch, sources, targets, edges, table_rows, chunks,
    MODE: tl.constexpr, S: tl.constexpr, T: tl.constexpr, STEP_S: tl.constexpr, STEP_T: tl.constexpr,
    UNARY_WIDE: tl.constexpr, FIELD_WIDE: tl.constexpr, FIRST_WIDE: tl.constexpr, SECOND_WIDE: tl.constexpr,
    REVERSE_WIDE: tl.constexpr, LONG: tl.constexpr, UNROLL: tl.constexpr, BLOCK_C: tl.constexpr, EARLY: tl.constexpr,
    FAST: tl.constexpr, RAGGED: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_B: tl.constexpr,
):  # fmt: skip
    TYPE: tl.constexpr = inflow_out.dtype.element_ty
    if RAGGED:
        batch = batch // 4 * 4  # which tells the compiler that rows are aligned
    target = tl.program_id(0) // T
    label = tl.program_id(0) % T
    lanes = tl.program_id(1) * BLOCK_B + tl.arange(0, BLOCK_B)
    inside = _inside(lanes, batch, RAGGED)
    chunk = tl.program_id(2) % chunks
    model = (tl.program_id(2) // chunks).to(tl.int64)
    models = tl.num_programs(2) // chunks
    first_slot, end = _list(starts, target, chunk, chunks, BLOCK_C)
    _begin(EARLY)
    unary = _shift(unary, model, sources * S, batch, UNARY_WIDE)
    field = _shift(field, model, sources * S, batch, FIELD_WIDE)
    first = _shift(first, model, sources * S, batch, FIRST_WIDE)
    second = _shift(second, model, sources * S, batch, SECOND_WIDE)
    reverse = _shift(reverse, model, edges * S, batch, REVERSE_WIDE)
    edges_out = _shift(edges_out, model, edges * T, batch, True)
    table += model * table_rows * (S * T) + label * STEP_T
    inflow = tl.zeros([BLOCK_E, BLOCK_B], TYPE)
    for start in tl.range(first_slot, end, BLOCK_E, num_stages=1):
        edge, node, row = _edges(edge_ids, node_ids, rows, start, end, LONG, BLOCK_E)
        slot = start + tl.arange(0, BLOCK_E)
        there = slot < end
        scale = tl.load(factor + slot, mask=there, other=0.0)
        weight = tl.full([BLOCK_E], 1.0, TYPE)
        if rho is not None:
            weight = tl.load(rho + slot, mask=there, other=0.0)
        if S == 1:
            belief = _belief(unary, field, first, second, node, lanes, inside, there, batch, UNARY_WIDE, FIELD_WIDE,
                             FIRST_WIDE, SECOND_WIDE, BLOCK_E, BLOCK_B, TYPE)  # fmt: skip
            c = _cavity(belief, reverse, edge, lanes, inside, there, batch, REVERSE_WIDE, BLOCK_E)
            t = (tl.load(table + row * T, mask=there, other=0.0) * scale)[:, None]
            if MODE == "sum":
                m = tl.maximum(t, -c) + tl.minimum(c, 0.0) + _soft_difference(t + c, c, FAST)
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
                belief = _belief(unary, field, first, second, node * S + s, lanes, inside, there, batch, UNARY_WIDE,
                                 FIELD_WIDE, FIRST_WIDE, SECOND_WIDE, BLOCK_E, BLOCK_B, TYPE)  # fmt: skip
                c = _cavity(belief, reverse, edge * S + s, lanes, inside, there, batch, REVERSE_WIDE, BLOCK_E)
                t = (tl.load(table + row * (S * T) + s * STEP_S, mask=there, other=0.0) * scale)[:, None]
                if MODE == "linear":
                    m += t * c
                else:
                    new_joint, new = tl.maximum(joint_top, t + c), tl.maximum(top, c)
                    if MODE == "sum":
                        joint_sum = joint_sum * _exp(joint_top - new_joint, FAST) + _exp(t + c - new_joint, FAST)
                        total = total * _exp(top - new, FAST) + _exp(c - new, FAST)
                    joint_top, top = new_joint, new
            if MODE != "linear":
                m = joint_top - top
            if MODE == "sum":
                m += tl.log(joint_sum / total)
        if edges_out is not None:
            tl.store(edges_out + ((edge * T + label)[:, None] * batch + lanes[None, :]), m, mask=_live(there, inside))
        inflow += m * weight[:, None]  # 0 where there is no edge
    total = tl.sum(inflow, 0)
    out = inflow_out + (((model * targets + target) * T + label) * batch + lanes)
    if BLOCK_C > 1:
        total, last = _gathered(chunk_sums, counters, total, target * T + label, targets * T, lanes, inside, batch,
                                chunk, chunks, model, models, BLOCK_C)  # fmt: skip
        if last:
            tl.store(out, total, mask=inside)
    else:
        tl.store(out, total, mask=inside)


@triton.jit
def _old(out, is_old, row, lanes, inside, there, batch, WIDE: tl.constexpr):
    """What rows of `out`, which may be None, hold already, or 0."""
    again = there & (row * 0 + is_old != 0)
    if out is None:
        value = 0.0
    elif WIDE:
        value = tl.load(out + (row[:, None] * batch + lanes[None, :]), mask=_live(again, inside), other=0.0)
    else:
        value = tl.load(out + row, mask=again, other=0.0)
    return value


@triton.jit
def _add(out, old, value, factor, row, lanes, inside, there, batch, WIDE: tl.constexpr):
    """Write `value` `(E, B)` plus `old` to rows of `out`; a narrow `out` gets its sum over samples times `factor`."""
    if WIDE:
        tl.store(out + (row[:, None] * batch + lanes[None, :]), value + old, mask=_live(there, inside))
    else:
        tl.store(out + row, tl.sum(value, 1) * factor + old, mask=there)


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
    belief_grad, row, part, model, models, rows, lanes, inside, batch,
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
        old = _old(unary_grad, unary_old, at, lanes, inside, one, batch, UNARY_WIDE)
        _add(unary_grad, old, -belief_grad, 1.0, at, lanes, inside, one, batch, UNARY_WIDE)
    if field_grad is not None:
        old = _old(field_grad, field_old, at, lanes, inside, one, batch, FIELD_WIDE)
        _add(field_grad, old, belief_grad, 1.0, at, lanes, inside, one, batch, FIELD_WIDE)
    if first_grad is not None:
        old = _old(first_grad, first_old, at, lanes, inside, one, batch, FIRST_WIDE)
        _add(first_grad, old, belief_grad, 1.0, at, lanes, inside, one, batch, FIRST_WIDE)
    if second_grad is not None:
        old = _old(second_grad, second_old, at, lanes, inside, one, batch, SECOND_WIDE)
        _add(second_grad, old, belief_grad, 1.0, at, lanes, inside, one, batch, SECOND_WIDE)


@triton.jit(do_not_specialize=["unary_old", "field_old", "first_old", "second_old", "reverse_old", "table_old",
                                 "inflow_parts", "inflow_parts_2", "edges_parts", *SIZES])  # fmt: skip
def send_backward(
    unary_grad, field_grad, first_grad, second_grad, reverse_grad, table_grad,  # any may be None
    unary_old, field_old, first_old, second_old, reverse_old, table_old,  # whether to add to what is there
    chunk_sums, counters,  # used where edges are taken in chunks; None if nobody wants the gradient of the belief
    inflow_grad, inflow_grad_2, edges_grad,  # the first two are added up
    inflow_parts, inflow_parts_2, edges_parts,  # of narrow gradients, which are added up as well
    message,
    unary, field, first, second, reverse, table, factor, rho, edge_ids, node_ids, starts, rows,
    batch, sources, targets, edges, table_rows, chunks,
    MODE: tl.constexpr, S: tl.constexpr, T: tl.constexpr, STEP_S: tl.constexpr, STEP_T: tl.constexpr,
    UNARY_WIDE: tl.constexpr, FIELD_WIDE: tl.constexpr, FIRST_WIDE: tl.constexpr, SECOND_WIDE: tl.constexpr,
    REVERSE_WIDE: tl.constexpr, LONG: tl.constexpr, UNROLL: tl.constexpr, BLOCK_C: tl.constexpr, EARLY: tl.constexpr,
    FAST: tl.constexpr, RAGGED: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_B: tl.constexpr,
):  # fmt: skip
    TYPE: tl.constexpr = table.dtype.element_ty
    if RAGGED:
        batch = batch // 4 * 4  # which tells the compiler that rows are aligned
    source = tl.program_id(0) // S
    mine = tl.program_id(0) % S
    lanes = tl.program_id(1) * BLOCK_B + tl.arange(0, BLOCK_B)
    inside = _inside(lanes, batch, RAGGED)
    part = tl.program_id(1).to(tl.int64)
    chunk = tl.program_id(2) % chunks
    model = (tl.program_id(2) // chunks).to(tl.int64)
    models = tl.num_programs(2) // chunks
    first_slot, end = _list(starts, source, chunk, chunks, BLOCK_C)
    _begin(EARLY)
    reverse_grad = _shift_part(reverse_grad, model, part, models, edges * S, batch, REVERSE_WIDE)
    table_grad = _shift_part(table_grad, model, part, models, edges * (S * T), batch, False)
    inflow_grad = _shift(inflow_grad, model, targets * T, batch, True)
    inflow_grad_2 = _shift(inflow_grad_2, model, targets * T, batch, True)
    edges_grad = _shift(edges_grad, model, edges * T, batch, True)
    message = _shift(message, model, edges * T, batch, True)
    unary = _shift(unary, model, sources * S, batch, UNARY_WIDE)
    field = _shift(field, model, sources * S, batch, FIELD_WIDE)
    first = _shift(first, model, sources * S, batch, FIRST_WIDE)
    second = _shift(second, model, sources * S, batch, SECOND_WIDE)
    reverse = _shift(reverse, model, edges * S, batch, REVERSE_WIDE)
    table += model * table_rows * (S * T) + mine * STEP_S
    belief_grad = tl.zeros([BLOCK_E, BLOCK_B], TYPE)
    first_row = source * S + tl.zeros([1], tl.int32)
    if LONG:
        first_row = first_row.to(tl.int64)
    is_row = first_row >= 0
    belief = _belief(unary, field, first, second, first_row + mine, lanes, inside, is_row, batch, UNARY_WIDE,
                     FIELD_WIDE, FIRST_WIDE, SECOND_WIDE, 1, BLOCK_B, TYPE)  # fmt: skip
    for start in tl.range(first_slot, end, BLOCK_E, num_stages=1):
        edge, target, row = _edges(edge_ids, node_ids, rows, start, end, LONG, BLOCK_E)
        slot = start + tl.arange(0, BLOCK_E)
        there = slot < end
        scale = tl.load(factor + slot, mask=there, other=0.0)
        weight = tl.full([BLOCK_E], 1.0, TYPE)
        if rho is not None:
            weight = tl.load(rho + slot, mask=there, other=0.0)
        # read early
        back_old = _old(reverse_grad, reverse_old, edge * S + mine, lanes, inside, there, batch, REVERSE_WIDE)
        c = _cavity(belief, reverse, edge * S + mine, lanes, inside, there, batch, REVERSE_WIDE, BLOCK_E)
        share = c  # of this label among the source's labels
        log_norm = tl.zeros([BLOCK_E, BLOCK_B], TYPE)
        if MODE == "sum":
            if S == 1:
                share = _sigmoid(c, FAST)
            else:
                top = log_norm
                total = log_norm + 1.0
                for s in tl.range(0, S, loop_unroll_factor=UNROLL):
                    of_label = _belief(unary, field, first, second, first_row + s, lanes, inside, is_row, batch,
                                       UNARY_WIDE, FIELD_WIDE, FIRST_WIDE, SECOND_WIDE, 1, BLOCK_B, TYPE)  # fmt: skip
                    other = _cavity(of_label, reverse, edge * S + s, lanes, inside, there, batch, REVERSE_WIDE, BLOCK_E)
                    new = tl.maximum(top, other)
                    total = total * _exp(top - new, FAST) + _exp(other - new, FAST)
                    top = new
                log_norm = top + tl.log(total)
                share = _exp(c - log_norm, FAST)
        if MODE == "max":
            top = log_norm
            ties = log_norm
            for s in range(S):
                of_label = _belief(unary, field, first, second, first_row + s, lanes, inside, is_row, batch,
                                   UNARY_WIDE, FIELD_WIDE, FIRST_WIDE, SECOND_WIDE, 1, BLOCK_B, TYPE)  # fmt: skip
                other = _cavity(of_label, reverse, edge * S + s, lanes, inside, there, batch, REVERSE_WIDE, BLOCK_E)
                ties = tl.where(other > top, 1.0, ties + tl.where(other == top, 1.0, 0.0))
                top = tl.maximum(top, other)
            share = tl.where((c == top) & (top > 0), 1.0 / tl.maximum(ties, 1.0), 0.0)
        cavity_grad = tl.zeros([BLOCK_E, BLOCK_B], TYPE)
        for label in tl.range(0, T, loop_unroll_factor=UNROLL):
            t = (tl.load(table + row * (S * T) + label * STEP_T, mask=there, other=0.0) * scale)[:, None]
            cell = edge * (S * T) + mine * STEP_S + label * STEP_T
            cell_old = _old(table_grad, table_old, cell, lanes, inside, there, batch, False)
            g = tl.zeros([BLOCK_E, BLOCK_B], TYPE)
            if inflow_grad is not None:
                g += _read_grad(inflow_grad, inflow_parts, models, targets * T, target * T + label, lanes, inside,
                                there, batch, BLOCK_B)  # fmt: skip
                if inflow_grad_2 is not None:
                    g += _read_grad(inflow_grad_2, inflow_parts_2, models, targets * T, target * T + label, lanes,
                                    inside, there, batch, BLOCK_B)  # fmt: skip
                g *= weight[:, None]
            if edges_grad is not None:
                g += _read_grad(edges_grad, edges_parts, models, edges * T, edge * T + label, lanes, inside, there,
                                batch, BLOCK_B)  # fmt: skip
            if MODE == "linear":
                t_grad = c * g
                cavity_grad += t * g
            else:
                if MODE == "max":
                    top = tl.zeros([BLOCK_E, BLOCK_B], TYPE)
                    ties = tl.zeros([BLOCK_E, BLOCK_B], TYPE)
                    for s in range(S):
                        of_label = _belief(unary, field, first, second, first_row + s, lanes, inside, is_row, batch,
                                           UNARY_WIDE, FIELD_WIDE, FIRST_WIDE, SECOND_WIDE, 1, BLOCK_B,
                                           TYPE)  # fmt: skip
                        joint = _cavity(of_label, reverse, edge * S + s, lanes, inside, there, batch, REVERSE_WIDE,
                                        BLOCK_E)  # fmt: skip
                        entry = table + row * (S * T) + (s - mine) * STEP_S + label * STEP_T
                        joint += (tl.load(entry, mask=there, other=0.0) * scale)[:, None]
                        ties = tl.where(joint > top, 1.0, ties + tl.where(joint == top, 1.0, 0.0))
                        top = tl.maximum(top, joint)
                    joint_share = tl.where((t + c == top) & (top > 0), 1.0 / tl.maximum(ties, 1.0), 0.0)
                elif S == 1:
                    joint_share = _sigmoid(t + c, FAST)
                else:
                    m = _read(message, edge * T + label, lanes, inside, there, batch, True)
                    joint_share = _exp(t + c - log_norm - m, FAST)
                t_grad = joint_share * g
                cavity_grad += (joint_share - share) * g
            if table_grad is not None:
                _add(table_grad, cell_old, t_grad, scale, cell, lanes, inside, there, batch, False)
        if reverse_grad is not None:
            _add(reverse_grad, back_old, -cavity_grad, 1.0, edge * S + mine, lanes, inside, there, batch, REVERSE_WIDE)
        belief_grad += cavity_grad
    total = tl.sum(belief_grad, 0)
    mine += source * S
    if BLOCK_C == 1:
        _share(unary_grad, field_grad, first_grad, second_grad, unary_old, field_old, first_old, second_old,
               total[None, :], mine, part, model, models, sources * S, lanes, inside, batch,
               UNARY_WIDE, FIELD_WIDE, FIRST_WIDE, SECOND_WIDE)  # fmt: skip
    elif chunk_sums is not None:
        total, last = _gathered(chunk_sums, counters, total, mine, sources * S, lanes, inside, batch,
                                chunk, chunks, model, models, BLOCK_C)  # fmt: skip
        if last:
            _share(unary_grad, field_grad, first_grad, second_grad, unary_old, field_old, first_old, second_old,
                   total[None, :], mine, part, model, models, sources * S, lanes, inside, batch,
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
    inside = there & (lanes < padded)[None, :]
    tl.store(out + ((model * rows + row)[:, None] * padded + lanes[None, :]), value, mask=inside)


@triton.jit
def score(costs, grad, belief, labels, batch, nodes, step_m, step_b, step_n, step_k, K: tl.constexpr,
          BLOCK_K: tl.constexpr, BLOCK_B: tl.constexpr, EARLY: tl.constexpr):  # fmt: skip
    """The part of a block of samples in the mean negative log-likelihood of their labels, and its gradient.

    `belief` are log-odds with any strides; labels and gradient are in one piece.
    """
    _begin(EARLY)
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
