"""What `fit` takes: samples in memory of any kind, and batches from a loader."""

import signal
import tracemalloc

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

import torchlgm as lgm
from torchlgm import learn
from torchlgm.errors import DataError, TrainingError
from torchlgm.learn import Samples, Settings, trainer
from torchlgm.learn.distributed import Group

pytestmark = pytest.mark.usefixtures("single_precision")

SETTINGS = Settings(epochs=2, batch_size=10)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


X = torch.rand(60, 4, generator=seeded())
Y = (X[:, 0] > 0.5).long()
VALID = (X[40:], Y[40:])


class Rows(Dataset):
    """A map-style dataset of pairs."""

    def __init__(self, x=X[:40], y=Y[:40]):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], int(self.y[i])


class Lines(IterableDataset):
    """As from a file that is read line by line."""

    def __init__(self, count=40):
        self.count = count

    def __iter__(self):
        for i in range(self.count):
            yield X[i % 40], Y[i % 40]


def posterior(seed=0):
    return lgm.Posterior(lgm.LGM(lgm.zoo.dense(inputs=4, hidden=[3], classes=2), generator=seeded(seed)), lgm.lbp(1))


def fitted(train, valid=VALID, settings=SETTINGS, predictor=None, **options):
    predictor = predictor or posterior()
    result = learn.fit(predictor, train, valid, settings=settings, reporters=[], **options)
    return predictor, result


def weights(predictor):
    return torch.cat([p.detach().flatten() for p in predictor.parameters()])


@pytest.fixture(scope="module")
def expected():
    torch.set_default_dtype(torch.float32)
    return weights(fitted(Samples(X[:40], Y[:40]))[0])


IN_MEMORY = {
    "tensors": (X[:40], Y[:40]),
    "list": [X[:40], Y[:40]],
    "arrays": (X[:40].numpy(), Y[:40].numpy()),
    "TensorDataset": TensorDataset(X[:40], Y[:40]),
    "Dataset": Rows(),
    "Subset": Subset(TensorDataset(X, Y), range(40)),
}


@pytest.mark.parametrize("train", IN_MEMORY.values(), ids=IN_MEMORY)
def test_data_in_memory(train, expected):
    """Every form trains the very same model."""
    assert torch.equal(weights(fitted(train)[0]), expected)


def test_validation_data_of_any_form(expected):
    for valid in (TensorDataset(*VALID), Rows(*VALID), DataLoader(Rows(*VALID), 7), Samples(*VALID)):
        predictor, result = fitted((X[:40], Y[:40]), valid)
        assert torch.equal(weights(predictor), expected)
        assert learn.evaluate_loss(predictor, valid) == pytest.approx(
            (result.best["valid_loss"], result.best["valid_accuracy"])
        )


def test_seeds_take_the_same_forms():
    runs = learn.fit_seeds(posterior, TensorDataset(X[:40], Y[:40]), VALID, settings=SETTINGS, seeds=(0, 1))
    again = learn.fit_seeds(posterior, Samples(X[:40], Y[:40]), Samples(*VALID), settings=SETTINGS, seeds=(0, 1))
    for run, other in zip(runs, again, strict=True):
        assert torch.equal(weights(run.predictor), weights(other.predictor))


class TestStreams:
    def ordered(self, epochs=2):
        """The batches of a training in memory, in the order in which it takes them, epoch by epoch."""
        return [SETTINGS.order(epoch, 40) for epoch in range(epochs)]

    def test_the_same_batches_train_the_same_model(self, expected):
        orders = iter(self.ordered())

        class InOrder(IterableDataset):
            def __iter__(self):
                for i in next(orders):
                    yield X[i], Y[i]

        predictor, result = fitted(DataLoader(InOrder(), batch_size=10))
        torch.testing.assert_close(weights(predictor), expected)
        assert len(result.history) == 2

    def test_batches_are_those_of_the_loader(self):
        seen = []

        class Watching(learn.Likelihood):
            def loss(self, predictor, x, y, complete=None):
                seen.append(x.clone())
                return super().loss(predictor, x, y, complete)

        fitted(DataLoader(TensorDataset(X[:40], Y[:40]), batch_size=15), objective=Watching())
        assert [len(x) for x in seen] == [15, 15, 10] * 2
        assert torch.equal(torch.cat(seen[:3]), X[:40])

    def test_an_iterable_dataset_in_batches_of_the_settings(self):
        rows = []

        class Counting(Lines):
            def __iter__(self):
                rows.append(0)
                for pair in super().__iter__():
                    rows[-1] += 1
                    yield pair

        _, result = fitted(Counting(25))
        assert rows == [25, 25]
        assert [row["epoch"] for row in result.history] == [1, 2]

    def test_it_learns(self):
        loader = DataLoader(TensorDataset(X[:40], Y[:40]), batch_size=10, shuffle=True, generator=seeded())
        _, result = fitted(loader, settings=Settings(epochs=60, learning_rate=0.05))
        assert result.best["valid_accuracy"] >= 0.8

    def test_memory_does_not_grow_with_the_samples(self):
        class Wide(IterableDataset):
            def __init__(self, count):
                self.count = count

            def __iter__(self):
                for i in range(self.count):
                    yield np.full(10_000, i % 2, dtype=np.float32), i % 2

        def peak(count):
            graph = lgm.zoo.dense(inputs=10_000, hidden=[2], classes=2)
            predictor = lgm.Posterior(lgm.LGM(graph, generator=seeded()), lgm.lbp(1))
            valid = (np.zeros((2, 10_000), dtype=np.float32), np.array([0, 1]))
            tracemalloc.start()
            fitted(Wide(count), valid, Settings(epochs=1, batch_size=5), predictor)
            most = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            return most

        peak(10)
        assert peak(500) < peak(50) + 2_000_000  # 450 samples more have 18,000,000 bytes

    def test_missing_and_masked_inputs(self):
        x = X[:40].clone()
        x[::3, 1] = torch.nan
        for visible in (None, (0.3, 1.0), "auto"):
            _, result = fitted(DataLoader(TensorDataset(x, Y[:40]), 10), settings=Settings(epochs=1, visible=visible))
            assert result.best_loss < 2

    def test_progress_is_reported(self):
        calls = []

        class Watcher:
            def step(self, epoch, epochs, done, samples):
                calls.append((epoch, done, samples))

            def epoch(self, row):
                calls.append(row["epoch"])

            def close(self): ...

        learn.fit(posterior(), Lines(), VALID, settings=Settings(epochs=2, batch_size=20), reporters=[Watcher()])
        steps = [call for call in calls if isinstance(call, tuple)]
        assert (1, 20, 20) in steps  # how many will come is not known in the first epoch
        assert (2, 20, 40) in steps

    def test_resumed_after_the_last_full_epoch(self, tmp_path):
        loader = DataLoader(TensorDataset(X[:40], Y[:40]), 10)
        two, four = (Settings(epochs=epochs, scheduler=None) for epochs in (2, 4))
        at_once, _ = fitted(loader, settings=four)
        fitted(loader, settings=two, folder=tmp_path / "state")
        resumed, result = fitted(loader, settings=four, folder=tmp_path / "state", resume=True)
        assert len(result.history) == 4
        assert torch.equal(weights(resumed), weights(at_once))  # this loader gives the same batches in every epoch

    def test_interrupted_within_an_epoch(self, tmp_path):
        loader = DataLoader(TensorDataset(X[:40], Y[:40]), 10)
        four = Settings(epochs=4, scheduler=None)

        class Interrupting(Lines):
            epochs = 0

            def __iter__(self):
                self.epochs += 1
                for i, pair in enumerate(super().__iter__()):
                    if self.epochs == 3 and i == 20:
                        signal.raise_signal(signal.SIGINT)
                    yield pair

        with pytest.raises(KeyboardInterrupt, match="the state after epoch 2 is saved"):
            fitted(DataLoader(Interrupting(), 10), settings=four, folder=tmp_path / "state")
        resumed, _ = fitted(loader, settings=four, folder=tmp_path / "state", resume=True)
        assert torch.equal(weights(resumed), weights(fitted(loader, settings=four)[0]))

    def test_an_ensemble_has_the_same_batches_for_all(self):
        loader = DataLoader(TensorDataset(X[:40], Y[:40]), 10)
        with pytest.raises(TrainingError, match="own_batches=False"):
            fitted(loader, predictor=learn.Ensemble([posterior(0), posterior(1)]))
        ensemble = learn.Ensemble([posterior(0), posterior(1)], own_batches=False)
        _, result = fitted(loader, predictor=ensemble)
        alone, _ = fitted(loader, predictor=posterior(1))
        torch.testing.assert_close(weights(ensemble.members()[1]), weights(alone))
        assert len(result.members) == 2

    def test_seeds_one_by_one_but_not_together(self):
        loader = DataLoader(TensorDataset(X[:40], Y[:40]), 10)
        runs = learn.fit_seeds(posterior, loader, VALID, settings=SETTINGS, seeds=(0, 1))
        assert [run.seed for run in runs] == [0, 1]
        with pytest.raises(TrainingError, match="pass the data in memory"):
            learn.fit_seeds(posterior, loader, VALID, settings=SETTINGS, seeds=(0, 1), together=True)


class TestWhatIsNoData:
    def refused(self, train, error=DataError, **options):
        with pytest.raises(error) as refusal:
            fitted(train, **options)
        return str(refusal.value)

    @pytest.mark.parametrize("train", [X, None, 3, (X, Y, Y), iter([(X, Y)]), {"x": X}])
    def test_other_types(self, train):
        message = self.refused(train, TrainingError)
        assert "a pair (inputs, targets) of tensors or arrays" in message

    def test_of_a_dataset_a_part(self):
        assert "pass one of its parts, such as data.train" in self.refused(lgm.data.load("digits"), TrainingError)

    def test_batches_that_are_no_pairs(self):
        assert "expected tensors (inputs, targets), got 1 parts" in self.refused(DataLoader(TensorDataset(X), 10))
        assert "expected tensors (inputs, targets), got Tensor" in self.refused(DataLoader(X, 10))

    def test_a_later_batch_that_does_not_fit(self):
        y = Y[:40].clone()
        y[35] = 7
        assert "label 7 does not fit target nodes with 2 labels" in self.refused(
            DataLoader(TensorDataset(X[:40], y), 10)
        )
        x = X[:40].clone()
        x[35] = 200.0
        assert "expected inputs in [0, 1]" in self.refused(DataLoader(TensorDataset(x, Y[:40]), 10))

    def test_a_loader_without_samples(self):
        assert "train gave no batch in epoch 1" in self.refused(Lines(0), TrainingError)
        assert "has no samples" in self.refused((X, Y), valid=Lines(0))

    def test_a_loader_that_is_read_up(self):
        lines = iter([(X[i], Y[i]) for i in range(40)])

        class Once(IterableDataset):
            def __iter__(self):
                return lines

        assert "train gave no batch in epoch 2; it is read once for every epoch" in self.refused(Once(), TrainingError)

    def test_no_capture(self):
        settings = Settings(epochs=1, capture="always")
        message = self.refused(DataLoader(TensorDataset(X, Y), 10), TrainingError, settings=settings)
        assert "a step cannot be captured: it needs one CUDA device that holds the data" in message


def test_the_device_is_that_of_the_predictor(monkeypatch):
    """Not the CPU, unless asked for."""
    asked = []

    class Asked(Group):
        def __init__(self, device):
            asked.append(str(device))
            super().__init__("cpu")

    monkeypatch.setattr(trainer, "Group", Asked)
    fitted((X, Y))
    fitted((X, Y), device="cpu")
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LazyLinear(2))
    network(X)
    with pytest.raises(RuntimeError):
        fitted((X, Y), predictor=network.to("meta"))
    assert asked == ["cpu", "cpu", "meta"]
    with pytest.raises(TrainingError, match="is on the meta device and has no values"):
        fitted((X, Y), predictor=posterior().to("meta"))
