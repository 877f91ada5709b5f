"""What no picture can be made of is one clear error."""

import pytest
import torch

import torchlgm as lgm
from torchlgm import viz
from torchlgm.errors import DataError, LGMError

IMAGES = torch.rand(2, 1, 4, 4)
HALVES = torch.full((2, 2), 0.5)
GOOD = {
    "acquisition_curves": ({"a": {"questions": [0, 1], "accuracy": [0.5, 0.6]}},),
    "beliefs_by_iteration": (HALVES, ["a", "b"]),
    "class_evidence": (torch.rand(1, 4, 4), torch.rand(2, 4, 4), ["a", "b"]),
    "confusion_matrix": (torch.ones(2, 2), ["a", "b"]),
    "draw_graph": (lgm.zoo.rbm(2, 2),),
    "energy_tables": (torch.rand(3, 2, 2),),
    "evidence_shares": (["a", "b"], [0.1, 0.2], 0.1, "x"),
    "filled_images": (IMAGES, IMAGES, IMAGES),
    "gain_bars": (["a", "b"], [0.1, 0.2]),
    "hidden_responses": (torch.rand(2, 4, 4),),
    "image_rows": ({"a": IMAGES},),
    "learning_curves": ([{"epoch": 1, "train_loss": 0.1, "valid_loss": 0.1}],),
    "reliability_diagram": ({"a": (HALVES, torch.tensor([0, 1]))},),
    "uncertain_samples": (IMAGES, HALVES, torch.tensor([0, 1]), ["a", "b"]),
    "visible_share": ({"a": [{"visible": 0.5, "accuracy": 0.3}]},),
}
BAD = [None, "abc", [], {}, [None], {"a": None}, {"a": 3}, object(), lgm.LGM(lgm.zoo.rbm(2, 2)), torch.tensor(1j)]
PLACES = [(name, i) for name, args in GOOD.items() for i in range(len(args)) if (name, i) != ("evidence_shares", 3)]


@pytest.mark.parametrize(("name", "place"), PLACES)
def test_arguments_of_another_type(name, place):
    args = GOOD[name]
    assert getattr(viz, name)(*args).axes
    for bad in BAD:
        with pytest.raises(LGMError):
            getattr(viz, name)(*args[:place], bad, *args[place + 1 :])


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("acquisition_curves", {"metric": ["nll"]}, "expected accuracy, nll, cost, against"),
        ("evidence_shares", {"most": "all"}, "at least one entry"),
        ("gain_bars", {"most": None}, "most=None; expected a whole number >= 1"),
        ("reliability_diagram", {"bins": "ten"}, "bins='ten'; expected a whole number >= 1"),
        ("visible_share", {"metric": ["nll"]}, "expected the name of a metric"),
        ("visible_share", {"chance": "0.1"}, "and a number or None"),
        ("hidden_responses", {"titles": 3}, "titles: expected 2 names, got an object of type int"),
    ],
)
def test_options_of_another_type(name, options, message):
    with pytest.raises(DataError, match=message):
        getattr(viz, name)(*GOOD[name], **options)


def test_a_model_is_no_graph_and_a_path_no_figure(tmp_path):
    with pytest.raises(DataError, match=r"such as model\.graph, got an object of type LGM"):
        viz.draw_graph(lgm.LGM(lgm.zoo.rbm(2, 2)))
    with pytest.raises(DataError, match="expected a figure of matplotlib, got an object of type NoneType"):
        viz.save(None, tmp_path / "picture.png")


def test_beliefs_that_no_network_gave():
    variables, tables = {"rain": ["no", "yes"], "wet": ["no", "yes"]}, {"rain": [0.8, 0.2]}
    network = lgm.networks.bayesian_network(variables, {}, {**tables, "wet": [0.5, 0.5]})
    for beliefs in ({"rain": None}, {"rain": 3}):
        with pytest.raises(DataError, match="beliefs about 'rain'"):
            viz.draw_network(network, beliefs)
    with pytest.raises(DataError, match="row='a' of 1; expected a whole number"):
        viz.draw_network(network, network.posteriors({}), "a")
