"""What a model would ask for, row by row, so that it can be trained on rows of which that is seen."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from torchlgm.joint import Conditionals, asked_for

MOST_ROWS, MOST_QUESTIONS = 1000, 32


def courses(conditionals: Conditionals, x: Tensor, seed: int) -> np.ndarray:
    """Which columns are asked for one after another, `(courses, T)`, -1 for none, of rows `(N, columns)`; of many rows,
    some that are drawn."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randperm(len(x), generator=generator)[:MOST_ROWS]
    questions = min(MOST_QUESTIONS, x.shape[1])
    return asked_for(conditionals, x[rows].to(conditionals.nodes.labels.device), questions).numpy()
