"""The captured step on a GPU: the same losses as the plain one, exact resumption, several at once."""

from pathlib import Path

import pytest
import torch

from helpers.tiny_training import bars, settings
from torchlgm import LGM, Posterior, infer, lbp, mean_field, trw, zoo
from torchlgm.learn import fit
from torchlgm.learn.cuda.capture import capture
from torchlgm.learn.cuda.captured_step import CapturedStep
from torchlgm.learn.distributed import Group
from torchlgm.learn.learner import Learner
from torchlgm.learn.steps import OptimizerStep, PlainStep
from torchlgm.mrf import Clamp

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("single_precision")]
CUDA = torch.device("cuda")
GRAPHS = {
    "dense": zoo.dense((1, 3, 3), (6,), 2),
    "conv": zoo.windows("conv", (1, 3, 3), (3, 2), (2, 2), (1, 1), 0, 6, 2),
    "local": zoo.windows("local", (1, 3, 3), (3, 2), (2, 2), (1, 1), 0, 6, 2),
}
METHODS = {"lbp": lbp(2), "trw": trw(5), "mean field": mean_field(3), "sweep": lbp(1, "sweep")}


def trained(kind: str, method: str, capture: str, folder: Path | None = None, resume: bool = False, **changes):
    model = LGM(GRAPHS[kind], generator=torch.Generator().manual_seed(0))
    posterior = Posterior(model, METHODS[method])
    how = settings(capture=capture, batch_size=10, learning_rate=0.01, **changes)
    result = fit(posterior, bars(65), bars(20, seed=1), None, how, folder, resume, device="cuda", reporters=[])
    return model, [row["train_loss"] for row in result.history]


@pytest.mark.parametrize("visible", [None, (0.3, 1.0)])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", GRAPHS)
def test_captured_and_plain_steps_have_the_same_losses(kind, method, visible):
    _, captured = trained(kind, method, "always", visible=visible, scheduler="cosine")
    _, plain = trained(kind, method, "never", visible=visible, scheduler="cosine")
    assert captured[-1] < captured[0]
    if visible is None:  # hidden entries are drawn in another order
        assert captured == pytest.approx(plain, rel=1e-4)


@pytest.mark.parametrize(("batch", "samples"), [(9, 65), (1, 12), (20, 13)])
@pytest.mark.parametrize("kind", ["dense", "local"])
def test_batches_that_are_not_aligned(kind, batch, samples):
    """Their kernels would have to be compiled while several steps are captured."""
    losses = []
    for capture_it in ("always", "never"):
        model = LGM(GRAPHS[kind], generator=torch.Generator().manual_seed(0))
        posterior = Posterior(model, METHODS["trw"]).for_complete_inputs()
        how = settings(capture=capture_it, batch_size=batch, learning_rate=0.01, epochs=2)
        result = fit(posterior, bars(samples), bars(20, seed=1), None, how, device="cuda", reporters=[])
        losses.append([row["train_loss"] for row in result.history])
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_a_captured_training_resumes(tmp_path):
    uninterrupted, _ = trained("dense", "lbp", "always", epochs=4, visible=(0.3, 1.0))
    trained("dense", "lbp", "always", tmp_path, epochs=2, visible=(0.3, 1.0))
    resumed, _ = trained("dense", "lbp", "always", tmp_path, resume=True, epochs=4, visible=(0.3, 1.0))
    for name, p in uninterrupted.state_dict().items():
        torch.testing.assert_close(resumed.state_dict()[name], p, rtol=1e-4, atol=1e-5)


def test_a_whole_inference_can_be_captured():
    model, x = LGM(GRAPHS["local"]).cuda(), bars(4).inputs.cuda()
    answers = []

    def ask() -> None:
        answers.append(infer(model, {"inputs": Clamp(x.flatten(1)[..., None])}, trw(2)))

    graph = capture(ask, torch.Generator(CUDA))
    graph.replay()
    captured = answers[-1]["classes"].probs
    ask()
    torch.testing.assert_close(captured, answers[-1]["classes"].probs)


def test_steps_replayed_at_the_same_time_do_not_disturb_each_other():
    """Matrix products of graphs that share a cuBLAS workspace would."""
    x, y = torch.rand(200, 784, device=CUDA), torch.randint(10, (200,), device=CUDA)

    def step(seed):
        model = LGM(zoo.dense(784, (100,)), generator=torch.Generator().manual_seed(seed)).to(CUDA)
        optimizer = torch.optim.Adam(
            model.parameters(), lr=torch.tensor(0.01, device=CUDA), fused=True, capturable=True
        )
        update = OptimizerStep(Learner(Posterior(model, mean_field(5))), optimizer, Group(CUDA))
        captured = CapturedStep(PlainStep(update, x, y), 20)
        captured.begin(torch.arange(200))
        return captured

    def replay(steps, streams):
        for at in range(0, 200, 20):
            for one, stream in zip(steps, streams, strict=True):
                with torch.cuda.stream(stream):
                    one(at, [20])
        torch.cuda.synchronize()
        return [[p.detach().clone() for p in one.plain.update.parameters] for one in steps]

    current = torch.cuda.current_stream()
    alone = [replay([step(seed)], [current])[0] for seed in range(6)]
    steps = [step(seed) for seed in range(6)]
    torch.cuda.synchronize()
    together = replay(steps, [torch.cuda.Stream() for _ in steps])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)
