"""Adam in pieces is Adam."""

import pytest
import torch
from torch import nn
from torch.optim import Adam
from torch.testing import assert_close

from helpers.processes import run_code
from torchlgm.errors import TrainingError
from torchlgm.learn import Settings
from torchlgm.learn.cuda import adam
from torchlgm.learn.cuda.adam import SplitAdam, piece_size
from torchlgm.learn.cuda.capture import WARM_UP, capture
from torchlgm.learn.cuda.streams import SideStream

SHAPES = ((3, 5), (7,), (), (2, 3, 4))
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    """Of 4 numbers, so that parameters of a few numbers are split."""
    monkeypatch.setattr(adam, "LEAST", 4)


def parameters(device="cpu", transposed=False):
    draw = torch.Generator().manual_seed(0)
    made = [torch.randn(shape, generator=draw) for shape in SHAPES]
    if transposed:
        made[0] = made[0].t()
    return [nn.Parameter(x.to(device)) for x in made]


def train(optimizer, params, steps=3, seed=1):
    draw = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        for p in params[:-1]:  # the last has no gradient
            p.grad = torch.empty_like(p).copy_(torch.randn(p.shape, generator=draw))
        optimizer.step()
    return [p.detach().clone() for p in params]


def pieces_of(optimizer, params, monkeypatch):
    """How many tensors the kernel is given."""
    counts = []
    real = torch._fused_adam_
    monkeypatch.setattr(
        torch, "_fused_adam_", lambda *lists, **how: counts.append(len(lists[0])) or real(*lists, **how)
    )
    train(optimizer, params, 1)
    return counts


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    "options", [{}, {"weight_decay": 0.1}, {"maximize": True}, {"betas": (0.5, 0.9), "eps": 1e-3, "lr": 0.1}], ids=str
)
def test_moves_as_adam_does(options, transposed, device):
    mine, theirs = parameters(device, transposed), parameters(device, transposed)
    own, other = SplitAdam(mine, **options), Adam(theirs, fused=True, **options)
    for a, b in zip(train(own, mine), train(other, theirs), strict=True):
        assert torch.equal(a, b)
    for key, state in other.state_dict()["state"].items():
        for name, value in state.items():
            assert torch.equal(own.state_dict()["state"][key][name], value), name


def test_parameters_are_split(monkeypatch):
    params = parameters()
    assert pieces_of(SplitAdam(params), params, monkeypatch) == [4 + 2 + 1]


def test_a_transposed_parameter_stays_whole(monkeypatch):
    params = parameters(transposed=True)
    assert pieces_of(SplitAdam(params), params, monkeypatch) == [1 + 2 + 1]


def test_each_dtype_has_its_own_kernel(monkeypatch):
    params = parameters()
    params[1] = nn.Parameter(params[1].detach().float())
    assert pieces_of(SplitAdam(params), params, monkeypatch) == [4 + 1, 2]


def test_many_pieces_take_several_launches(monkeypatch):
    params = [nn.Parameter(torch.ones(4 * 36 + 1)), nn.Parameter(torch.ones(2))]
    assert pieces_of(SplitAdam(params), params, monkeypatch) == [36, 1]


@pytest.mark.gpu
def test_moves_in_a_captured_graph_as_adam_does():
    """Where launches run side by side, and steps are counted before there are gradients."""
    device = torch.device("cuda")
    mine, theirs = ([nn.Parameter(torch.ones(n, device=device)) for n in (500, 3)] for _ in range(2))
    rate = torch.tensor(0.1, device=device, dtype=torch.float32)
    own, other = SplitAdam(mine, rate, capturable=True), Adam(theirs, rate, capturable=True, fused=True)

    def move(optimizer, params):
        optimizer.zero_grad()
        optimizer.counting = SideStream(device)
        sum((p**3).sum() for p in params).backward()
        optimizer.step()

    graph = capture(lambda: move(own, mine), torch.Generator(device))
    for _ in range(3):
        graph.replay()
    for _ in range(1 + WARM_UP + 3):
        move(other, theirs)
    for a, b in zip(mine, theirs, strict=True):
        assert torch.equal(a, b)
        assert torch.equal(own.state[a]["step"], other.state[b]["step"])


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(("first", "second"), [(Adam, SplitAdam), (SplitAdam, Adam)])
def test_goes_on_from_the_state_of_the_other(first, second, fused):
    def made(kind, params):
        return Adam(params, 0.1, fused=fused) if kind is Adam else SplitAdam(params, 0.1)

    begun, uninterrupted = parameters(), parameters()
    one = made(first, begun)
    train(one, begun)
    two = made(second, begun)
    two.load_state_dict(one.state_dict())
    alone = made(second, uninterrupted)
    train(alone, uninterrupted)
    for a, b in zip(train(two, begun, seed=2), train(alone, uninterrupted, seed=2), strict=True):
        assert_close(a, b)


@pytest.mark.parametrize("name", ["amsgrad", "decoupled_weight_decay"])
def test_a_state_of_another_kind_is_refused(name):
    params = parameters()
    other = Adam(params, fused=True, **{name: True})
    with pytest.raises(TrainingError, match=f"an Adam with {name}=True; go on with torch.optim.Adam"):
        SplitAdam(params).load_state_dict(other.state_dict())


def test_a_closure_gives_the_loss():
    params = parameters()
    optimizer = SplitAdam(params, 0.1)

    def closure():
        optimizer.zero_grad()
        loss = torch.stack([(p**2).sum() for p in params]).sum()
        loss.backward()
        return loss

    first = optimizer.step(closure)
    assert optimizer.step(closure) < first


def test_nothing_to_move():
    params = parameters()
    SplitAdam(params).step()
    for p, before in zip(params, parameters(), strict=True):
        assert torch.equal(p, before)


@pytest.mark.parametrize(
    ("sizes", "size"),
    [
        ([1], 2048),
        ([36 * 2048], 2048),
        ([36 * 2048 + 1], 2048),  # in two launches
        ([25_350, 60_000, 40_000, 900, 9], 2048),
        ([4 * 36 * 2048], 2048),
        ([4 * 36 * 2048 + 1], 4096),
        ([4 * 36 * 63_488], 63_488),
        ([4 * 36 * 65_536], 65_536),
        ([1] * 37, 65_536),
    ],
)
def test_piece_size(sizes, size, monkeypatch):
    monkeypatch.setattr(adam, "LEAST", 2048)
    assert piece_size(sizes) == size


@pytest.mark.gpu
def test_the_trainer_takes_it_on_a_gpu():
    device = torch.device("cuda")
    assert type(Settings().make_optimizer(parameters(device), device)) is SplitAdam


def test_the_compiler_of_pytorch_stays_away():
    """Its import takes longer than many a training."""
    code = """
import sys, torch
from torchlgm.learn.cuda.adam import SplitAdam
x = torch.zeros(3, requires_grad=True)
optimizer = SplitAdam([x])
x.sum().backward()
optimizer.step()
optimizer.zero_grad()
optimizer.load_state_dict(optimizer.state_dict())
print("torch._dynamo" in sys.modules)
"""
    done = run_code(code)
    assert done.stdout.split() == ["False"], done.stderr
