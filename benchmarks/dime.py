"""DIME, the rival of `acquire`: two networks that learn which feature to look at next.

Written from Gadgil, Covert and Lee, "Estimating conditional mutual information for dynamic feature selection", ICLR
2024. A predictor f gives p(y | seen features); a value network v gives, for each feature not seen, how much of the
entropy of that belief it will remove. Both see the features times a mask, and the mask. After the predictor has been
trained on random masks, both are trained together on the masks of their own policy, which takes a random feature with
probability epsilon and else the one of greatest value: f by its cross-entropy after each feature, v by the squared
difference between its value of the feature that was taken and the drop of the cross-entropy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Settings:
    hidden: int = 128
    dropout: float = 0.3
    learning_rate: float = 1e-3
    batch: int = 128
    warm_up: int = 4000  # steps of the predictor on random masks
    steps: int = 3000  # of both, each a row of questions
    questions: int = 10
    epsilons: tuple[float, ...] = (0.25, 0.05, 0.01)
    patience: int = 8  # checks of the validation loss


class Dime:
    def __init__(self, features: int, classes: int, settings: Settings, seed: int, device: str = "cpu") -> None:
        torch.manual_seed(seed)
        self.settings, self.device = settings, device
        self.random = torch.Generator(device).manual_seed(seed)
        self.predictor = _network(2 * features, classes, settings).to(device)
        self.valid_loss = float("nan")
        self.value = _network(2 * features, features, settings).to(device)

    def fit(self, x: Tensor, y: Tensor, valid_x: Tensor, valid_y: Tensor) -> Dime:
        s = self.settings
        x, y, valid_x, valid_y = (tensor.to(self.device) for tensor in (x, y, valid_x, valid_y))
        optimizer = torch.optim.Adam(self.predictor.parameters(), lr=s.learning_rate)
        best = _Best(self.predictor)
        masks = _random_masks(valid_x, self.random)
        for step in range(s.warm_up):
            rows = torch.randint(len(x), (s.batch,), generator=self.random, device=self.device)
            self.predictor.train()
            loss = F.cross_entropy(self._logits(x[rows], _random_masks(x[rows], self.random)), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 100 == 99:
                self.predictor.eval()
                with torch.no_grad():
                    done = best.update(F.cross_entropy(self._logits(valid_x, masks), valid_y).item(), s.patience)
                if done:
                    break
        best.restore()
        best = _Best(self.predictor, self.value)
        both = torch.optim.Adam([*self.predictor.parameters(), *self.value.parameters()], lr=s.learning_rate)
        for epsilon in s.epsilons:
            best.since = 0
            for step in range(s.steps // len(s.epsilons)):
                rows = torch.randint(len(x), (s.batch,), generator=self.random, device=self.device)
                self._course(x[rows], y[rows], epsilon, both)
                if step % 50 == 49:
                    loss = np.mean([F.nll_loss(p, valid_y).item() for p in self.run(valid_x)[1:]])
                    if best.update(loss, s.patience):
                        break
        best.restore()
        self.valid_loss = best.loss
        return self

    def run(self, x: Tensor, questions: int | None = None) -> list[Tensor]:
        """log p(y) `(N, C)` before the first question and after each, the features taken greedily."""
        self.predictor.eval()
        self.value.eval()
        x = x.to(self.device)
        mask = torch.zeros_like(x)
        with torch.no_grad():
            answers = [self._logits(x, mask).log_softmax(-1)]
            for _ in range(min(questions or self.settings.questions, x.shape[1])):
                taken = self._values(x, mask, answers[-1]).masked_fill(mask > 0, -torch.inf).argmax(1)
                mask = mask.scatter(1, taken.unsqueeze(1), 1.0)
                answers.append(self._logits(x, mask).log_softmax(-1))
        return answers

    def _course(self, x: Tensor, y: Tensor, epsilon: float, optimizer: torch.optim.Optimizer) -> None:
        self.predictor.train()
        self.value.train()
        optimizer.zero_grad()
        mask, count = torch.zeros_like(x), min(self.settings.questions, x.shape[1])
        logits = self._logits(x, mask)
        before = F.cross_entropy(logits, y, reduction="none").detach()
        for _ in range(count):
            values = self._values(x, mask, logits.log_softmax(-1).detach())
            best = values.detach().masked_fill(mask > 0, -torch.inf).argmax(1)
            other = torch.rand(x.shape, generator=self.random, device=x.device).masked_fill(mask > 0, -1).argmax(1)
            explore = torch.rand(len(x), generator=self.random, device=x.device) < epsilon
            taken = torch.where(explore, other, best).unsqueeze(1)
            mask = mask.scatter(1, taken, 1.0)
            logits = self._logits(x, mask)
            losses = F.cross_entropy(logits, y, reduction="none")
            reward = before - losses.detach()
            ((losses.mean() + (values.gather(1, taken)[:, 0] - reward).square().mean()) / count).backward()
            before = losses.detach()
        optimizer.step()

    def _logits(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.predictor(torch.cat([x * mask, mask], 1))

    def _values(self, x: Tensor, mask: Tensor, log_probs: Tensor) -> Tensor:
        """Between 0 and the entropy that is left, as in the paper's appendix."""
        left = torch.special.entr(log_probs.exp()).sum(-1, keepdim=True)
        return torch.sigmoid(self.value(torch.cat([x * mask, mask], 1))) * left


class _Best:
    """The weights at the lowest validation loss."""

    def __init__(self, *networks: nn.Module) -> None:
        self.networks, self.loss, self.since = networks, float("inf"), 0
        self.kept = self._weights()

    def update(self, loss: float, patience: int) -> bool:
        """Whether to stop."""
        if loss < self.loss:
            self.loss, self.since, self.kept = loss, 0, self._weights()
        else:
            self.since += 1
        return self.since >= patience

    def restore(self) -> None:
        for network, weights in zip(self.networks, self.kept, strict=True):
            network.load_state_dict(weights)

    def _weights(self) -> list[dict[str, Tensor]]:
        return [{name: w.clone() for name, w in network.state_dict().items()} for network in self.networks]


def _network(inputs: int, outputs: int, s: Settings) -> nn.Module:
    layers: list[nn.Module] = []
    for width in (inputs, s.hidden):
        layers += [nn.Linear(width, s.hidden), nn.ReLU(), nn.Dropout(s.dropout)]
    return nn.Sequential(*layers, nn.Linear(s.hidden, outputs))


def _random_masks(x: Tensor, generator: torch.Generator) -> Tensor:
    """A number of features that is uniform, and which at random."""
    share = torch.rand(len(x), 1, generator=generator, device=x.device)
    return (torch.rand(x.shape, generator=generator, device=x.device) < share).to(x.dtype)
