"""Message passing on a network as a layered model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torchlgm.inference import Beliefs, Exact, Method, solve
from torchlgm.networks.solvers.base import Answer, Scopes, Soft, joint, rows_that_fit

if TYPE_CHECKING:
    from torchlgm.networks.network import Network


class Loopy:
    """On the layered model, mostly by message passing."""

    def __init__(self, network: Network, method: Method | Exact, device: torch.device) -> None:
        self.network, self.method, self.device = network, method, device
        tables = [tuple(table.shape[-3:]) for table in network.model.table.values()]
        entries = sum(edges * (2 * left * right + 8 * (left + right)) for edges, left, right in tables)
        self.rows = rows_that_fit(device, 8 * max(1, entries))

    def beliefs(self, codes: Tensor, soft: Soft) -> Beliefs:
        network = self.network
        mrf = network.model.to(self.device).condition(network.observed(codes.numpy()))
        unary = dict(mrf.unary)
        for v, likelihood in soft.items():
            place = network.places[v]
            if place is None or place[0] not in unary:
                continue
            energies = -likelihood.to(self.device).log().clamp(min=-network.layered.forbidden)
            extra = torch.zeros_like(unary[place[0]]).repeat(len(codes) // len(unary[place[0]]), 1, 1)
            free = (codes[:, v] < 0).unsqueeze(1).to(self.device)
            extra[:, place[1]] = (energies[:, 1:] - energies[:, :1]) * free
            unary[place[0]] = unary[place[0]] + extra
        return solve(mrf._replace(unary=unary), self.method)

    def solve(self, codes: Tensor, soft: Soft, asked: Scopes) -> Answer:
        network = self.network
        beliefs = self.beliefs(codes, soft)
        marginals = [p.expand(len(codes), -1).cpu() for p in network.marginals(beliefs)]
        log_z = beliefs.log_z.expand(len(codes)).cpu() - network.layered.constant
        for v, likelihood in soft.items():
            log_z = log_z + self._reference(codes[:, v], likelihood)
        log_z = torch.where(log_z < -network.layered.forbidden / 2, -torch.inf, log_z)
        converged = beliefs.converged
        assert converged is not None
        answers = []
        for scope in asked:
            single = len(scope) == 1
            answers.append(marginals[scope[0]] if single else joint(self, codes, soft, scope, marginals[scope[0]]))
        return Answer(answers, log_z, torch.zeros(len(codes), dtype=torch.bool), converged.expand(len(codes)).cpu())

    def _reference(self, codes: Tensor, likelihood: Tensor) -> Tensor:
        """The log-likelihood of the state observed, else of the first, to which fields are relative."""
        logs = likelihood.gather(1, codes.clamp(min=0).unsqueeze(1)).squeeze(1).log()
        return torch.where(codes >= 0, logs, logs.clamp(min=-self.network.layered.forbidden))
