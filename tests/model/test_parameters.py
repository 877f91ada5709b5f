"""Energies that nothing can be inferred from are refused with the name of the parameter, and looked at once."""

import copy

import pytest
import torch
from torch import nn

import torchlgm as lgm
from torchlgm.errors import CheckpointError, EvidenceError, InferenceError
from torchlgm.model import parameters
from torchlgm.model.io import CARD, WEIGHTS, decode, sha256, write_tensors
from torchlgm.mrf import Clamp

METHODS = [lgm.lbp(), lgm.trw(), lgm.mean_field(), lgm.lbp(50, tolerance=1e-3), lgm.exact()]
X = torch.tensor([[0.0, 1.0, torch.nan, 0.5]])


def _model(**options):
    return lgm.LGM(lgm.zoo.dense(inputs=4, hidden=[3], classes=3), **options)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf, 1e29], ids=str)
@pytest.mark.parametrize("name", ["unary.inputs", "unary.classes", "table.hidden-classes"])
def test_every_question_names_the_parameter(name, bad):
    model = _model()
    lgm.infer(model, {"inputs": X})
    with torch.no_grad():
        kind, _, key = name.partition(".")
        getattr(model, kind)[key].view(-1)[0] = bad
    posterior = lgm.Posterior(model)
    questions = [lambda method=method: lgm.infer(model, {"inputs": X}, method) for method in METHODS]
    questions += [lambda: posterior(X), lambda: posterior.complete(X), lambda: lgm.sample(model, sweeps=1)]
    for backend in ("auto", "eager"):
        for ask in questions:
            with lgm.backend(backend), pytest.raises(InferenceError, match=f"in parameter '{name}'; expected finite"):
                ask()


def test_impossible_labels_are_energies_of_some_size():
    model = _model(init="zero")
    for energy in (100.0, 1e4, 1e20):
        with torch.no_grad():
            model.unary["classes"][0, 0] = energy
        for method in METHODS:
            probs = lgm.infer(model, {"inputs": X}, method)["classes"].probs
            assert probs[0, 0].tolist() == pytest.approx([0.5, 0.0, 0.5])


def test_a_version_is_looked_at_once(monkeypatch):
    model, seen = _model(), []
    check = parameters.what_is_wrong
    monkeypatch.setattr(parameters, "what_is_wrong", lambda x: seen.append(x) or check(x))
    parameters.require_finite(model)
    count = len(seen)
    assert count == len(list(model.parameters()))
    for _ in range(3):
        lgm.infer(model, {"inputs": X})
    assert len(seen) == count
    with torch.no_grad():
        model.unary["classes"].add_(1)
    lgm.infer(model, {"inputs": X})
    assert len(seen) == 2 * count
    model.table["hidden-classes"] = nn.Parameter(torch.full((3, 1, 1, 2), torch.nan))
    with pytest.raises(InferenceError, match=r"'table\.hidden-classes'"):
        lgm.infer(model)
    with pytest.raises(InferenceError, match=r"'table\.hidden-classes'"):
        lgm.infer(copy.deepcopy(model))


def test_made_in_inference_mode():
    with torch.inference_mode():
        model = _model()
        lgm.infer(model, {"inputs": X})
        model.unary["classes"].fill_(torch.nan)
        with pytest.raises(InferenceError, match=r"'unary\.classes'"):
            lgm.infer(model, {"inputs": X})


def test_parameters_of_another_shape():
    model = _model()
    model.unary["hidden"] = nn.Parameter(torch.zeros(4, 1))
    with pytest.raises(InferenceError, match=r"'unary.hidden' is shaped \(4, 1\); its graph .* \(3, 1\)"):
        lgm.infer(model, {"inputs": X})
    with pytest.raises(InferenceError, match=r"'unary\.hidden'"):
        lgm.Posterior(model).log_probs(X)


def _remove(parameters, name):
    del parameters[name]


def _replace(change):
    def replaced(parameters, name):
        parameters[name] = change(parameters[name].detach())

    return replaced


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_remove, "no parameter '{}' any more; load it again"),
        (_replace(lambda p: None), "parameter '{}' is None; load"),
        (_replace(lambda p: nn.Parameter(p * 1j)), "'{}' is of type torch.complex128; expected real"),
        (_replace(lambda p: nn.Parameter(p.long(), requires_grad=False)), "'{}' is of type torch.int64; expected real"),
        (_replace(lambda p: nn.Parameter(p.to_sparse())), "'{}' is sparse; expected a plain tensor"),
    ],
    ids=["removed", "None", "complex", "integers", "sparse"],
)
@pytest.mark.parametrize("name", ["unary.hidden", "table.inputs-hidden"])
def test_no_tensor_of_floats_any_more(tmp_path, name, change, message):
    model = _model()
    lgm.infer(model, {"inputs": X})
    kind, _, key = name.partition(".")
    change(getattr(model, kind), key)
    for ask in (lambda: lgm.infer(model, {"inputs": X}), lambda: lgm.Posterior(model)(X)):
        with pytest.raises(InferenceError, match=message.format(name)):
            ask()
    with pytest.raises(CheckpointError, match="not saved: .*" + message.format(name)):
        lgm.save(model, tmp_path / "model")


def test_on_the_meta_device():
    with pytest.raises(InferenceError, match="meta device"):
        lgm.infer(_model(device="meta"))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_saving_and_loading(tmp_path, bad):
    model = _model()
    saved = lgm.save(model, tmp_path / "model")
    with torch.no_grad():
        model.unary["hidden"][1] = bad
    with pytest.raises(CheckpointError, match=r"not saved: 1 of 3 .*'unary.hidden'"):
        lgm.save(model, tmp_path / "model")
    tensors = decode((saved / WEIGHTS).read_bytes(), saved / WEIGHTS)
    tensors["unary.hidden"][1] = bad
    before = sha256((saved / WEIGHTS).read_bytes())
    write_tensors(tensors, saved / WEIGHTS)
    head = (saved / CARD).read_text()
    (saved / CARD).write_text(head.replace(before, sha256((saved / WEIGHTS).read_bytes())))
    with pytest.raises(CheckpointError, match=r"1 of 3 .*'unary.hidden'"):
        lgm.load(saved)


@pytest.mark.parametrize(
    ("q", "free", "message"),
    [
        (torch.full((1, 4, 1), 1.5), None, r"in \[0, 1\], got 1.5 to 1.5"),
        (torch.full((1, 4, 1), -0.5), None, r"got -0.5"),
        (torch.full((1, 4, 1), torch.nan), None, "got nan"),
        (torch.zeros(1, 3, 1), None, r"q shaped \(batch, 4, 1\), got \(1, 3, 1\)"),
        ([0.0], None, "got list"),
        (torch.zeros(1, 4, 1), torch.zeros(1, 3, dtype=torch.bool), r"free shaped \(1, 4\)"),
        (torch.zeros(1, 4, 1), torch.zeros(1, 4), "booleans free"),
    ],
)
def test_raw_clamps_are_checked(q, free, message):
    with pytest.raises(EvidenceError, match=message):
        lgm.infer(_model(), {"inputs": Clamp(q, free)})


def test_probabilities_of_a_raw_clamp_sum_to_at_most_one():
    with pytest.raises(EvidenceError, match="sums"):
        lgm.infer(_model(), {"classes": Clamp(torch.full((1, 1, 2), 0.8))})


@pytest.mark.parametrize("options", [{"fused": True}, {"foreach": True}, {}], ids=str)
def test_steps_of_any_optimizer_are_noticed(options):
    """Fused ones change parameters without counting a version."""
    model = _model()
    optimizer = torch.optim.Adam(model.parameters(), **options)
    lgm.infer(model, {"inputs": X})
    for p in model.parameters():
        p.grad = torch.full_like(p, torch.nan)
    optimizer.step()
    with pytest.raises(InferenceError, match="are NaN in parameter"):
        lgm.infer(model, {"inputs": X})
