"""Triton kernels: one message update, the sum of its messages at the target's nodes, and the gradient of both.

What they compute is in docs/kernels.md.

Node tensors are `(models, nodes, k, batch)` and edge tensors `(models, edges, k, batch)`, so that samples lie side by
side whatever the layout. The batch is padded, see `launcher.padded`, so that its rows are aligned and, unless it is
RAGGED, its blocks full. What stands in the padding is finite and its gradient 0; beyond it lanes read 0. A *narrow*
tensor has a batch axis of 1 and is the same for every sample. The edges of a node are read from a list, see
`Incidence`, or computed where that is regular, so one kernel serves every layout and both directions. A program of the
forward kernel makes one label of one target node, a program of the backward kernel one label of one source node, each
for a block of samples. Where few nodes have many edges, these are taken in chunks by several programs, and the last of
them to finish adds up the sums of all. Sums run in a fixed order, so results repeat bit for bit. A source's belief
is given in up to four parts: minus its unary, a field of evidence, two inflows.
"""

from torchlgm.ops.triton.kernels.gradient import send_backward as send_backward
from torchlgm.ops.triton.kernels.message import send as send
from torchlgm.ops.triton.kernels.nll import score as score
from torchlgm.ops.triton.kernels.pack import add_up as add_up
from torchlgm.ops.triton.kernels.pack import pack as pack
