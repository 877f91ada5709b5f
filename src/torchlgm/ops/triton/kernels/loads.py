"""What a program reads: its list of edges, rows of tensors for a block of samples, the belief of a source."""

from __future__ import annotations

import triton
import triton.language as tl

SIZES = ["sources", "targets", "edges", "table_rows", "chunks", "stride"]  # worth no kernel of their own


@triton.jit
def begin(EARLY: tl.constexpr):
    """A kernel that was launched before its predecessor was done waits for it here, and lets its successor start.

    Before this it may read nothing but lists of edges, which no kernel writes, see `Incidence.rows`.
    """
    if EARLY:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def span_of(starts, owner, chunk, chunks, BLOCK_C: tl.constexpr):
    """Where the edges of a node, or one chunk of them, start and end; and where all of them start."""
    base = tl.load(starts + owner)
    end = tl.load(starts + owner + 1)
    start = base
    if BLOCK_C > 1:
        span = (end - start + chunks - 1) // chunks
        start += chunk * span
        end = tl.minimum(start + span, end)
    return start, end, base


@triton.jit
def next_edges(edge_ids, node_ids, rows, owner, base, stride, start, end, LONG: tl.constexpr, BLOCK_E: tl.constexpr):
    """The next edges of a node, the nodes at their other ends, and the rows of their tables.

    Lists that are None are known without reading them, see `Side`; rows are the edges themselves then.
    """
    slot = start + tl.arange(0, BLOCK_E)
    valid = slot < end
    if node_ids is None:
        node = slot - base
    else:
        node = tl.load(node_ids + slot, mask=valid, other=0)
    if edge_ids is None:
        edge = tl.where(stride == 1, slot, owner + (slot - base) * stride)
    else:
        edge = tl.load(edge_ids + slot, mask=valid, other=0)
    if rows is None:
        row = edge
    else:
        row = tl.load(rows + slot, mask=valid, other=0)
    if LONG:
        edge, node, row = edge.to(tl.int64), node.to(tl.int64), row.to(tl.int64)
    return edge, node, row


@triton.jit
def lanes_inside(lanes, batch, RAGGED: tl.constexpr):
    """Which lanes hold samples, or None if all of them do."""
    if RAGGED:
        inside = lanes < batch
    else:
        inside = None
    return inside


@triton.jit
def mask_of(valid, inside):
    """`(E, B or 1)`: the edges, and the lanes, that exist."""
    if inside is None:
        mask = valid[:, None]
    else:
        mask = valid[:, None] & inside[None, :]
    return mask


@triton.jit
def read(x, row, lanes, inside, valid, batch, WIDE: tl.constexpr):
    """Rows of `x` for a block of samples: `(E, B)`, or `(E, 1)` where `x` is narrow."""
    if WIDE:
        value = tl.load(x + (row[:, None] * batch + lanes[None, :]), mask=mask_of(valid, inside), other=0.0)
    else:
        value = tl.load(x + row, mask=valid, other=0.0)[:, None]
    return value


@triton.jit
def read_grad(x, parts, models, rows, row, lanes, inside, valid, batch, PARTS: tl.constexpr):
    """Rows of a gradient as wide as the block; a narrow one is the sum of its `parts`, at most PARTS, each with `rows`
    of all models."""
    value = read(x, row, lanes, inside, valid, batch, True)
    for part in tl.static_range(1, PARTS):
        x += models.to(tl.int64) * rows
        value += read(x, row, lanes, inside, valid & (row * 0 + part < parts), batch, True)
    return value


@triton.jit
def shift(x, model, rows, batch, WIDE: tl.constexpr):
    """`x`, or None, advanced to the rows of one model."""
    if x is None:
        shifted = x
    elif WIDE:
        shifted = x + model * rows * batch
    else:
        shifted = x + model * rows
    return shifted


@triton.jit
def read_belief(
    unary, field, first, second, row, lanes, inside, valid, batch,
    UNARY_WIDE: tl.constexpr, FIELD_WIDE: tl.constexpr, FIRST_WIDE: tl.constexpr, SECOND_WIDE: tl.constexpr,
    BLOCK_R: tl.constexpr, BLOCK_B: tl.constexpr, TYPE: tl.constexpr,
):  # fmt: skip
    """Rows `(R, B)` of a belief, the sum of its parts."""
    c = tl.zeros([BLOCK_R, BLOCK_B], TYPE)
    if unary is not None:
        c -= read(unary, row, lanes, inside, valid, batch, UNARY_WIDE)
    if field is not None:
        c += read(field, row, lanes, inside, valid, batch, FIELD_WIDE)
    if first is not None:
        c += read(first, row, lanes, inside, valid, batch, FIRST_WIDE)
    if second is not None:
        c += read(second, row, lanes, inside, valid, batch, SECOND_WIDE)
    return c


@triton.jit
def read_cavity(belief, reverse, row, lanes, inside, valid, batch, WIDE: tl.constexpr, BLOCK_E: tl.constexpr):
    """`(E, B)`: the belief `(E or 1, B)` of a source less the messages that came back."""
    c = tl.broadcast_to(belief, [BLOCK_E, belief.shape[1]])
    if reverse is not None:
        c -= read(reverse, row, lanes, inside, valid, batch, WIDE)
    return c
