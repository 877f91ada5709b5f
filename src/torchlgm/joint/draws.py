"""Completions drawn from the model by block Gibbs, and how many independent draws they amount to."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchlgm._utils.validate import check_int
from torchlgm.errors import InferenceError
from torchlgm.inference import sample
from torchlgm.joint.inputs import InputNodes, Table, inputs_of, posterior_of
from torchlgm.mrf import Clamp
from torchlgm.posterior import Posterior


class Draws(NamedTuple):
    """n completions of each of N rows.

    `effective` are the independent draws that they amount to, by the column of each row that mixes worst; n where
    nothing is missing or nothing varies.
    """

    labels: Tensor  # (N, n, columns); at seen entries the most probable label
    target: Tensor  # (N, n, nodes)
    effective: Tensor  # (N,)


def draw_completions(
    model: Posterior | Table,
    X: Any,
    n: int = 20,
    *,
    chains: int = 4,
    burn_in: int = 50,
    thin: int = 5,
    generator: torch.Generator | None = None,
) -> Draws:
    """Draw the missing entries and the target of each row from the model, by block Gibbs sampling.

    Parameters
    ----------
    model : Posterior or LGMClassifier
        A model of tables, of images or of any other graph that has learned about its inputs.
    X : Tensor, DataFrame or array_like
        Rows, or inputs `(N, *shape)`, NaN = missing.
    n : int
        How many completions to draw for each row.
    chains, burn_in, thin : int
        Each row has this many chains, which start from different points, make `burn_in` sweeps, and are then read every
        `thin` sweeps.
    generator : torch.Generator, optional
        PyTorch's default generator if None.

    Returns
    -------
    Draws
        Of `(N, n, columns)` entries, images flattened, and how many independent draws they amount to.
    """
    for name, value in (("n", n), ("chains", chains), ("burn_in", burn_in), ("thin", thin)):
        check_int(name, value, error=InferenceError)
    posterior = posterior_of(model)
    nodes, x = InputNodes.of(posterior), inputs_of(model, X)
    evidence = posterior.encoding(posterior.model, x.repeat_interleave(chains, 0))
    reads = -(-n // chains)
    state, labels, target = None, [], []
    for read in range(reads):
        sweeps = burn_in if read == 0 else thin
        state = sample(posterior.model, evidence, sweeps=sweeps, generator=generator, start=state)
        labels.append(_by_column(nodes, state, evidence).unflatten(0, (len(x), chains)))
        target.append(state[posterior.target].flatten(1).unflatten(0, (len(x), chains)))
    drawn = torch.stack(labels, 2)  # (N, chains, reads, columns)
    effective = _effective(drawn.to(x.dtype), n).cpu()
    ordered = drawn.transpose(1, 2).flatten(1, 2)[:, :n]
    return Draws(ordered.cpu(), torch.stack(target, 1).flatten(1, 2)[:, :n].cpu(), effective)


def _by_column(nodes: InputNodes, state: dict[str, Tensor], evidence: dict[str, Clamp]) -> Tensor:
    rows = len(next(iter(evidence.values())).q)
    out = torch.empty(rows, len(nodes.labels), dtype=torch.long, device=nodes.labels.device)
    for name, columns in nodes.columns.items():
        out[:, columns] = state[name].flatten(1)
    return out


def _effective(x: Tensor, n: int) -> Tensor:
    """Draws `(N, chains, reads, columns)` -> the least effective number over columns, `(N,)`, at most n.

    The estimate of Geyer and of Gelman et al. for several chains: n / (1 + 2 sum of autocorrelations), the sum up to
    the first two neighbours that are negative together.
    """
    chains, reads = x.shape[1:3]
    if reads < 4:
        return torch.full((len(x),), float(min(n, chains)))
    x = x.transpose(2, 3)
    centred = x - x.mean(-1, keepdim=True)
    power = torch.fft.rfft(centred, 2 * reads).abs().square()
    covariance = torch.fft.irfft(power, 2 * reads)[..., :reads].mean(1) / reads  # (N, columns, reads)
    within = covariance[..., :1] * reads / (reads - 1)
    between = x.mean(-1).var(1).unsqueeze(-1) if chains > 1 else torch.zeros_like(within)
    total = within * (reads - 1) / reads + between
    rho = 1 - (within - covariance) / total.clamp(min=1e-12)
    rho[..., 0] = 1
    pairs = rho[..., : reads // 2 * 2].unflatten(-1, (-1, 2)).sum(-1)
    pairs = pairs * (pairs > 0).cumprod(-1)
    effective = chains * reads / (2 * pairs.sum(-1) - 1).clamp(min=1 / reads)
    effective = torch.where(total[..., 0] > 1e-12, effective, float(n))
    return effective.clamp(max=float(n)).amin(1)
