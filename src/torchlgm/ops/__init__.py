"""HOW one update is computed: compact label arithmetic and message kernels. Knows tensors, no graph."""

from torchlgm.ops.buckets import Buckets as Buckets
from torchlgm.ops.buckets import RowStatus as RowStatus
from torchlgm.ops.compact import one_hot as one_hot
from torchlgm.ops.compact import probs as probs
