"""The hub's mixin, offline: to a folder and back, on top of saved models."""

import pytest
import torch
from torch.testing import assert_close

import torchlgm as lgm

pytest.importorskip("huggingface_hub")


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.fixture
def hub_model():
    from torchlgm.interop.hub import HubModel

    return HubModel(lgm.LGM(lgm.zoo.dense(4, [3], 2), init="paper"), {"classes": ["no", "yes"]})


def test_to_a_folder_and_back(hub_model, tmp_path):
    hub_model.save_pretrained(tmp_path / "model")
    again = type(hub_model).from_pretrained(tmp_path / "model")
    assert again.card == {"classes": ["no", "yes"]}
    assert again.model.graph == hub_model.model.graph
    x = {"inputs": torch.tensor([[0.2, torch.nan, 1.0, 0.0]])}
    assert_close(lgm.infer(again.model, x)["classes"].probs, lgm.infer(hub_model.model, x)["classes"].probs)
    for name, parameter in lgm.load(tmp_path / "model").named_parameters():
        assert_close(parameter, dict(hub_model.model.named_parameters())[name])


def test_saving_again_replaces_the_model_and_keeps_an_edited_card(hub_model, tmp_path):
    hub_model.save_pretrained(tmp_path)
    (tmp_path / "README.md").write_text("my own words")
    hub_model.model.unary["classes"].data.fill_(3.0)
    hub_model.save_pretrained(tmp_path)
    assert (tmp_path / "README.md").read_text() == "my own words"
    assert_close(lgm.load(tmp_path).unary["classes"], hub_model.model.unary["classes"])
    files = {path.name for path in tmp_path.iterdir()}
    assert files == {"README.md", "config.json", "graph.json", "model.json", "weights.safetensors"}


def test_the_model_card_says_what_it_is(hub_model, tmp_path):
    hub_model.save_pretrained(tmp_path, model_card_kwargs={"title": "Yes or no", "repo_id": "me/yes-or-no"})
    card = (tmp_path / "README.md").read_text()
    assert "library_name: torchlgm" in card
    assert "# Yes or no" in card
    assert 'HubModel.from_pretrained("me/yes-or-no").model' in card
    assert hub_model.model.graph.summary() in card


def test_a_damaged_folder_is_refused(hub_model, tmp_path):
    hub_model.save_pretrained(tmp_path)
    (tmp_path / "weights.safetensors").write_bytes(b"something else")
    with pytest.raises(lgm.errors.CheckpointError, match=r"weights.safetensors is not the file that was saved"):
        type(hub_model).from_pretrained(tmp_path)


def test_from_a_repository_in_the_cache(hub_model, tmp_path, monkeypatch):
    """What the hub's library hands over is a folder with the files that were asked for."""
    hub_model.save_pretrained(tmp_path)
    asked = {}

    def download(repository, **options):
        asked.update(options, repository=repository)
        return str(tmp_path)

    monkeypatch.setattr("torchlgm.interop.hub.snapshot_download", download)
    monkeypatch.setattr("huggingface_hub.hub_mixin.hf_hub_download", lambda **_: str(tmp_path / "config.json"))
    again = type(hub_model).from_pretrained("me/yes-or-no", revision="v1")
    assert (asked["repository"], asked["revision"]) == ("me/yes-or-no", "v1")
    assert sorted(asked["allow_patterns"]) == ["graph.json", "model.json", "weights.safetensors"]
    assert again.model.graph == hub_model.model.graph
