"""Stochastic gradients for all members of a stack: in compiled C where there is some, else in PyTorch."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.optim import Adam

from torchlgm.ops import star
from torchlgm.ops.star import Draws, EncodedRows, Moments
from torchlgm.sklearn.stack import Stack


class Descent:
    """Trains a stack on rows; member m with so much of a `penalty` on its squared energies.

    `work` is how much there is for a step, of members in other processes too: it decides what computes.
    """

    def __init__(self, stack: Stack, rows: EncodedRows, penalty: np.ndarray, work: int, threads: int) -> None:
        self.stack, self.rows, self.penalty, self.threads = stack, rows, penalty, threads
        self.done = 0
        self.code = star.native_code(stack.flat, work)
        if self.code is None:
            stack.flat.requires_grad_(True)
            self.optimizer = Adam([stack.flat], betas=star.BETAS, eps=star.EPSILON, fused=True)
        else:
            self.moments = Moments(stack.flat, torch.zeros_like(stack.flat), torch.zeros_like(stack.flat))

    def advance(self, draws: Draws, rates: np.ndarray) -> np.ndarray:
        """A step for each learning rate; the losses `(steps, M)`."""
        if self.code is None:
            losses = np.stack([self._step(Draws(*(x[i : i + 1] for x in draws)), r) for i, r in enumerate(rates)])
        else:
            losses = star.train(
                self.code,
                self.stack.shape,
                self.rows,
                self.moments,
                draws,
                rates,
                self.penalty,
                self.done,
                self.threads,
            )
        self.done += len(rates)
        return losses

    @torch.no_grad()
    def log_probs(self, draws: Draws) -> Tensor:
        """log of the class beliefs of each member about rows of one step, `(M, batch, classes)`."""
        if self.code is None:
            return self.stack.log_probs(self.stack.slots.dense(self.rows, draws)[0]).transpose(1, 2)
        shape, flat = self.stack.shape, self.stack.flat
        return torch.from_numpy(star.log_probs(self.code, shape, self.rows, flat, draws, self.threads))

    def _step(self, draws: Draws, rate: float) -> np.ndarray:
        stack, index, device = self.stack, draws.rows[0], self.stack.flat.device
        label, weight = (torch.as_tensor(x[index], device=device) for x in (self.rows.label, self.rows.weight))
        log_probs = stack.log_probs(stack.slots.dense(self.rows, draws)[0])
        loss = -(log_probs.gather(1, label.long().unsqueeze(1)).squeeze(1) * weight).mean(1)
        self.optimizer.zero_grad()
        loss.sum().backward()
        gradient = stack.flat.grad
        assert gradient is not None
        penalty = torch.as_tensor(self.penalty, dtype=torch.float32, device=device)[:, None]
        inputs, hidden, out, *_ = stack.shape.sizes
        for part in (slice(0, inputs), slice(inputs + hidden, inputs + hidden + out)):
            gradient[:, part].addcmul_(penalty, stack.flat.detach()[:, part])
        for group in self.optimizer.param_groups:
            group["lr"] = float(rate)
        self.optimizer.step()
        return loss.detach().cpu().numpy()
