"""The likelihood objective against gradcheck, enumeration and the definitions of its options."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck
from torch.func import functional_call

from helpers.problems import BY_NAME, model_of
from torchlgm import LGM, InputEncoding, Posterior, exact, infer, lbp, mean_field, trw, zoo
from torchlgm.data import smooth_labels
from torchlgm.errors import TrainingError
from torchlgm.learn import JointLikelihood, Likelihood, Objective
from torchlgm.learn.objectives import nll
from torchlgm.learn.prediction import loss_and_accuracy

STAR = BY_NAME["star"]
SOFT = torch.tensor([[0.2, 0.9, 0.4], [1.0, 0.0, 0.6], [0.5, 0.1, 0.7], [0.3, 0.3, 0.8]], dtype=torch.float64)
LIKELIHOOD = Likelihood()
LABELS = torch.tensor([0, 2, 1, 2])
MISSING = SOFT.masked_fill(torch.tensor([[0, 1, 0], [0, 0, 0], [1, 1, 1], [1, 0, 0]]).bool(), math.nan)


class _Loss(nn.Module):
    """A loss as a module, to be a function of the model's parameters."""

    def __init__(self, predictor: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.predictor, self.objective = predictor, objective

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.objective.loss(self.predictor, x, y)


def _gradcheck(predictor: nn.Module, x: Tensor, y: Tensor, objective: Objective = LIKELIHOOD) -> bool:
    loss = _Loss(predictor, objective)
    names = [name for name, _ in loss.named_parameters()]

    def of(*values: Tensor) -> Tensor:
        return functional_call(loss, dict(zip(names, values, strict=True)), (x, y))

    return gradcheck(of, [p.detach().clone().requires_grad_() for p in loss.parameters()])


@pytest.mark.parametrize("method", [lbp(3), trw(2, "sweep"), mean_field(2, "parallel"), exact()], ids=str)
@pytest.mark.parametrize(
    ("x", "labels"),
    [(SOFT, 2), (SOFT.round(), 2), (MISSING, 2), (SOFT, 4), (MISSING, 4)],
    ids=["soft", "hard", "missing", "quantised", "quantised-missing"],
)
def test_gradient(x: Tensor, labels: int, method):
    graph = zoo.dense(3, (2,), classes=3, input_labels=labels)
    model = LGM(graph, "paper")
    assert _gradcheck(Posterior(model, method), x, LABELS)


@pytest.mark.parametrize(("name", "layer", "target"), [("conv", "v", "c"), ("local", "v", "h"), ("skip", "v", "h")])
def test_gradient_of_other_graphs_and_targets(name: str, layer: str, target: str):
    model = model_of(BY_NAME[name])
    shape, wanted = model.graph.layer(layer), model.graph.layer(target)
    x = torch.rand(2, *shape.sizes)
    y = torch.randint(wanted.labels, (2, wanted.nodes))
    assert _gradcheck(Posterior(model, lbp(2), layer, target), x, y, Likelihood(smoothing=0.1))


def test_is_the_likelihood_by_enumeration():
    model = model_of(STAR)
    beliefs = infer(model, {"inputs": MISSING}, exact("enumeration"))["classes"].probs[:, 0]
    expected = -beliefs[torch.arange(4), LABELS].log().mean()
    torch.testing.assert_close(LIKELIHOOD.loss(Posterior(model, exact()), MISSING, LABELS), expected)


def test_nothing_missing_is_faster_but_the_same():
    posterior = Posterior(model_of(STAR), lbp(4, "sweep"))
    slow, fast = (LIKELIHOOD.loss(one, SOFT, LABELS) for one in (posterior, posterior.for_complete_inputs()))
    torch.testing.assert_close(slow, fast)


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0])
def test_smoothing_is_smooth_labels(epsilon: float):
    model = model_of(STAR)
    soft = smooth_labels(LABELS, 3, epsilon)[:, None]
    posterior = Posterior(model, lbp(3))
    smoothed = Likelihood(smoothing=epsilon).loss(posterior, SOFT, LABELS)
    torch.testing.assert_close(smoothed, LIKELIHOOD.loss(posterior, SOFT, soft))


def test_smoothing_of_soft_targets_mixes_in_all_labels():
    log_probs = torch.randn(4, 1, 3).log_softmax(-1)
    soft = smooth_labels(LABELS, 3, 0.2)[:, None]
    twice = 0.7 * soft + 0.3 / 3
    torch.testing.assert_close(nll(log_probs, soft, 0.3), nll(log_probs, twice))


def _many() -> Posterior:
    graph = zoo.conditional_rbm(conditions=3, hidden=2, outputs=4)
    return Posterior(LGM(graph, "paper"), exact())


def test_many_output_nodes():
    posterior = _many()
    y = torch.randint(2, (4, 4))
    probs = infer(posterior.model, {"conditions": SOFT}, exact("enumeration"))["outputs"].probs
    expected = -probs.gather(-1, y[..., None]).log().sum() / 4
    torch.testing.assert_close(LIKELIHOOD.loss(posterior, SOFT, y), expected)
    assert _gradcheck(posterior, SOFT, y)


def test_missing_targets_do_not_count():
    posterior = _many()
    y = torch.tensor([[1, 0, -1, 1], [-1, -1, -1, -1], [0, 0, 0, 0], [-1, 1, 1, -1]])
    log_probs = posterior(SOFT)
    expected = sum(-log_probs[b, n, y[b, n]] for b in range(4) for n in range(4) if y[b, n] >= 0) / 4
    torch.testing.assert_close(LIKELIHOOD.loss(posterior, SOFT, y), expected)
    soft = torch.nn.functional.one_hot(y.clamp(min=0), 2).double()
    soft[y < 0] = math.nan
    torch.testing.assert_close(LIKELIHOOD.loss(posterior, SOFT, soft), expected)
    assert _gradcheck(posterior, SOFT, soft)


def test_all_targets_missing_is_no_loss():
    posterior = _many()
    loss = LIKELIHOOD.loss(posterior, SOFT, torch.full((4, 4), -1))
    loss.backward()
    assert loss == 0
    assert all(p.grad is None or bool((p.grad == 0).all()) for p in posterior.parameters())


def test_single_precision_inputs_of_a_double_model():
    posterior = Posterior(model_of(STAR), lbp(3))
    assert LIKELIHOOD.loss(posterior, SOFT.float(), LABELS).dtype == torch.float64


def test_the_likelihood_of_networks():
    network, x = nn.Linear(3, 3), SOFT
    expected = nn.functional.cross_entropy(network(x), LABELS, label_smoothing=0.1)
    torch.testing.assert_close(Likelihood(smoothing=0.1).loss(network, x, LABELS), expected)


@pytest.mark.parametrize("smoothing", [-0.1, 1.5, math.nan])
def test_wrong_smoothing(smoothing: float):
    with pytest.raises(TrainingError, match="expected a number in"):
        Likelihood(smoothing)


def test_integer_inputs_are_told_nothing(monkeypatch):
    """None of them can be missing, so that no message goes to their layer."""
    from torchlgm import posterior

    seen = []
    real = posterior.run
    monkeypatch.setattr(posterior, "run", lambda mrf, *given, **how: seen.append(mrf) or real(mrf, *given, **how))
    model = LGM(zoo.dense(4, (3,), 2, 5))
    labels = torch.tensor([[0, 4, 2, 1], [3, 3, 0, 4]])
    y = torch.tensor([0, 1])
    losses = [
        LIKELIHOOD.loss(Posterior(model, lbp(1), InputEncoding("inputs", missing=missing)), x, y)
        for x, missing in ((labels, True), (labels, False), ((labels + 0.5) / 5, True))
    ]
    assert ["inputs" in mrf.unary for mrf in seen] == [False, False, True]
    torch.testing.assert_close(losses[0], losses[1], rtol=0, atol=0)
    torch.testing.assert_close(losses[0], losses[2])


@pytest.mark.parametrize("objective", [Likelihood(), Likelihood(smoothing=0.2), JointLikelihood()], ids=str)
def test_a_weight_of_targets_is_that_sample_so_often(objective):
    posterior = Posterior(LGM(zoo.dense(4, (3,), 3), "paper"), lbp(1))
    complete, y = torch.rand(3, 4), torch.tensor([0, 1, 2])
    x = complete.clone()
    x[:, 0] = torch.nan
    weighted = torch.nn.functional.one_hot(y, 3).unsqueeze(1) * torch.tensor([2.0, 1.0, 0.0]).view(3, 1, 1)
    often = [0, 0, 1]
    torch.testing.assert_close(
        objective.loss(posterior, x, weighted, complete), objective.loss(posterior, x[often], y[often], complete[often])
    )


def test_accuracy_counts_samples_by_their_weight():
    log_probs = torch.tensor([[[0.9, 0.1]], [[0.9, 0.1]], [[0.9, 0.1]], [[0.9, 0.1]]]).log()
    targets = torch.tensor([[[3.0, 0.0]], [[0.0, 1.0]], [[0.0, 0.0]], [[torch.nan, torch.nan]]])
    assert loss_and_accuracy(log_probs, targets)[1] == 0.75
