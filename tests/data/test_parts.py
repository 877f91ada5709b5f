"""Data, Dataset and the splits."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torchlgm.data import Data, Dataset, paper_split, random_split
from torchlgm.data.dataset import number_labels
from torchlgm.errors import DataError, DataWarning


def make(targets, classes="abc", shape=(2,)):
    """Data whose inputs tell the place of each sample."""
    count = len(targets)
    places = torch.arange(count).float() / max(count, 1)
    inputs = places.view(-1, *[1] * len(shape)).expand(count, *shape)
    return Data(inputs, torch.tensor(targets, dtype=torch.int64), tuple(classes), "toy")


def test_take_keeps_pairs_and_order():
    data = make([0, 1, 2, 1])
    taken = data.take([3, 0])
    assert taken.targets.tolist() == [1, 0]
    assert taken.inputs[:, 0].tolist() == [0.75, 0.0]
    assert (taken.classes, taken.name, len(taken)) == (data.classes, "toy", 2)
    assert data.take(data.targets == 1).inputs[:, 0].tolist() == [0.25, 0.75]
    with pytest.raises(DataError, match="at least one sample"):
        data.take([])


def test_to_moves_both_tensors():
    moved = make([0, 1]).to("cpu")
    assert moved.inputs.device.type == moved.targets.device.type == "cpu"
    assert moved.targets.tolist() == [0, 1]
    assert (moved.classes, moved.name) == (("a", "b", "c"), "toy")


def test_has_missing():
    data = make([0, 1])
    assert not data.has_missing
    holed = data.inputs.clone()
    holed[1, 0] = math.nan
    assert Data(holed, data.targets, data.classes).has_missing


@pytest.mark.parametrize(
    ("inputs", "targets", "message"),
    [
        (torch.zeros(2, 3, dtype=torch.float64), torch.tensor([0, 1]), "float32 inputs"),
        (torch.zeros(2, 3), torch.tensor([0, 1], dtype=torch.int32), "int64 targets"),
        (torch.zeros(3, 3), torch.tensor([0, 1]), "same N"),
        (torch.zeros(2), torch.tensor([0, 1]), "same N"),
        (torch.zeros(2, 3), torch.tensor([[0], [1]]), "same N"),
        (torch.zeros(0, 3), torch.tensor([], dtype=torch.int64), "at least one sample"),
        (torch.full((2, 3), 1.5), torch.tensor([0, 1]), "got 1.5"),
        (torch.full((2, 3), -0.1), torch.tensor([0, 1]), "got -0.1"),
        (torch.full((2, 3), math.inf), torch.tensor([0, 1]), "got inf"),
        (torch.zeros(2, 3), torch.tensor([0, 2]), r"0\.\.1.*got 0\.\.2"),
        (torch.zeros(2, 3), torch.tensor([-1, 1]), r"got -1\.\.1"),
    ],
)
def test_bad_data_is_refused(inputs, targets, message):
    with pytest.raises(DataError, match=message):
        Data(inputs, targets, ("a", "b"))


def test_training_needs_two_classes():
    make([0, 2]).require_trainable()
    with pytest.raises(DataError, match="all 3 in the training part belong to class 'b'"):
        make([1, 1, 1]).require_trainable()
    with pytest.raises(DataError, match=r"all 3 in the training part \(of 5 in all\) belong to class 'b'"):
        make([1, 1, 1]).require_trainable(5)


def test_dataset_parts_must_agree():
    train = make([0, 1])
    Dataset(train, make([2]))
    with pytest.raises(DataError, match=r"\(2,\).*\(3,\)"):
        Dataset(train, make([0], shape=(3,)))
    with pytest.raises(DataError, match="different classes"):
        Dataset(train, make([0], classes="abd"))


def test_number_labels():
    assert number_labels(["10", "9.0", "9", "-1.5"], "here")[0] == ("-1.5", "9", "10")
    assert number_labels(["10", "9.0", "9", "-1.5"], "here")[1].tolist() == [2, 1, 1, 0]
    assert number_labels(["b", "10", "9"], "here")[0] == ("10", "9", "b")
    assert number_labels(["nan", "1"], "here")[0] == ("1", "nan")


def test_labels_that_all_differ():
    with pytest.warns(DataWarning, match="every sample has a label of its own, such as 100"):
        number_labels([str(100 + i) for i in range(20)], "customers.csv")


def test_measurements_are_no_classes():
    measured = [f"{0.37 * i:g}" for i in range(20)]
    with pytest.raises(DataError, match=r"table\.csv: the labels are 20 .* in 20 samples, such as 0\.37,"):
        number_labels(measured, "table.csv")
    assert len(number_labels(measured * 3, "doses.csv")[0]) == 20
    assert len(number_labels(measured[:10], "few.csv")[0]) == 10
    assert len(number_labels([str(i) for i in range(20)] * 2, "whole.csv")[0]) == 20


@pytest.mark.parametrize("split", [paper_split, lambda data: random_split(data, 0.5, 0)])
def test_what_is_split_is_data(split):
    part = Data(torch.zeros(4, 3), torch.arange(4) % 2, ("a", "b"))
    with pytest.raises(DataError, match=r"expected Data to split, got Dataset; split its part data.train"):
        split(Dataset(part, part))
    with pytest.raises(DataError, match=r"got Tensor; make Data\(inputs, targets, classes\) first"):
        split(part.inputs)


def test_paper_split_is_first_80_percent():
    train, validate = paper_split(make([0, 1] * 5))
    assert (len(train), len(validate)) == (8, 2)
    assert torch.cat([train.inputs, validate.inputs]).equal(make([0, 1] * 5).inputs)


def test_paper_split_refuses_sorted_data():
    with pytest.raises(DataError, match=r"no sample of class c.*random_split"):
        paper_split(make([0] * 4 + [1] * 4 + [2] * 2))


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(0, 4), min_size=2, max_size=60),
    st.floats(0.05, 0.95),
    st.integers(0, 2**31),
    st.booleans(),
)
def test_random_split_is_a_fair_partition(targets, share, seed, stratify):
    data = make(targets, classes="abcde")
    count = math.floor(share * len(targets) + 1e-9)
    if count == 0:
        with pytest.raises(DataError, match="one part would be empty"):
            random_split(data, share, seed, stratify)
        return
    first, second = random_split(data, share, seed, stratify)
    assert len(first) == count
    both = torch.cat([first.inputs, second.inputs])[:, 0]
    assert both.sort().values.equal(data.inputs[:, 0])
    if stratify:
        fair = data.targets.bincount(minlength=5) * (count / len(targets))
        assert ((first.targets.bincount(minlength=5) - fair).abs() < 1 + 1e-6).all()


def test_random_split_depends_on_the_seed_alone():
    data = make([0, 1, 2] * 20)
    first = random_split(data, 0.5, seed=1)[0].inputs
    assert first.equal(random_split(data, 0.5, seed=1)[0].inputs)
    assert not first.equal(random_split(data, 0.5, seed=2)[0].inputs)


def test_round_shares_are_not_lost_to_floats():
    first, _ = random_split(make([0, 1] * 50), 0.29, seed=0)
    assert len(first) == 29


@pytest.mark.parametrize("share", [0.0, 1.0, -0.2, math.nan])
def test_bad_share(share):
    with pytest.raises(DataError, match="expected a number between 0 and 1"):
        random_split(make([0, 1]), share, seed=0)
