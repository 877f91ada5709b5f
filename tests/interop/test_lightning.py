"""A plain lightning.Trainer trains a model, with missing inputs, and goes on where it was stopped."""

import pytest
import torch
from torch.testing import assert_close
from torch.utils.data import DataLoader, TensorDataset

import torchlgm as lgm
from torchlgm import data, learn

lightning = pytest.importorskip("lightning.pytorch")
pytestmark = [
    pytest.mark.usefixtures("single_precision"),
    pytest.mark.filterwarnings("ignore"),  # advice about workers, loggers and devices
]


@pytest.fixture(scope="module")
def digits():
    """Loaders of a part of the digits to train on, and the test part."""
    both = data.load("digits")
    train = TensorDataset(both.train.inputs[:500].float(), both.train.targets[:500])
    test = TensorDataset(both.test.inputs.float(), both.test.targets)
    order = torch.Generator()
    return DataLoader(train, 25, shuffle=True, generator=order), DataLoader(test, 200), both.train.inputs, order


def module(digits, **settings):
    from torchlgm.interop.lightning import LightningLGM

    digits[3].manual_seed(0)
    torch.manual_seed(0)
    model = lgm.LGM(lgm.zoo.dense((1, 8, 8), [30]), lgm.Init(0.1, scale="balanced"))
    learn.start_from_data(model, "inputs", digits[2])
    settings = learn.Settings(learning_rate=0.02, **settings)
    return LightningLGM(lgm.Posterior(model, lgm.lbp(1)), learn.JointLikelihood(), settings)


def trainer(folder, epochs, **options):
    return lightning.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        default_root_dir=folder,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
        **options,
    )


def test_it_learns_with_entries_hidden_and_answers_about_holes(digits, tmp_path):
    ours = module(digits, visible=(0.3, 1.0), clip=5.0)
    plain = trainer(tmp_path, 10, enable_checkpointing=False)
    plain.fit(ours, digits[0], digits[1])
    assert set(plain.callback_metrics) == {"train_loss", "valid_loss", "valid_accuracy"}
    assert plain.callback_metrics["valid_accuracy"] > 0.6  # with a third of the entries hidden, on average
    (row,) = plain.test(ours, digits[1], verbose=False)
    assert row["test_accuracy"] > 0.75
    x, y = digits[1].dataset.tensors
    x = x.clone()
    x[:, :, 5:] = torch.nan
    probs = torch.cat(plain.predict(ours, DataLoader(x, 200)))
    assert probs.shape == (len(x), 10)
    assert (probs.argmax(-1) == y).float().mean() > 0.6
    assert_close(probs[:5], ours.predictor(x[:5]).exp().detach())


def test_stopped_and_resumed_is_the_same_as_at_once(digits, tmp_path):
    """The mask of a batch depends on the seed and on its place alone."""
    loader = DataLoader(digits[0].dataset, 100)
    at_once, first, resumed = (module(digits, visible=0.5, scheduler=None) for _ in range(3))
    trainer(tmp_path, 2, enable_checkpointing=False).fit(at_once, loader)
    stopped = trainer(tmp_path, 1, enable_checkpointing=False)
    stopped.fit(first, loader)
    stopped.save_checkpoint(tmp_path / "one.ckpt")
    trainer(tmp_path, 2, enable_checkpointing=False).fit(resumed, loader, ckpt_path=tmp_path / "one.ckpt")
    assert_close(resumed.predictor.model.table["hidden-classes"], at_once.predictor.model.table["hidden-classes"])


def test_the_rate_falls_over_the_epochs_of_the_trainer(digits, tmp_path):
    ours = module(digits)
    rates = []

    class Watch(lightning.Callback):
        def on_train_epoch_start(self, trainer, module):
            rates.append(float(trainer.optimizers[0].param_groups[0]["lr"]))

    plain = trainer(tmp_path, 2, limit_train_batches=1, enable_checkpointing=False, callbacks=[Watch()])
    plain.fit(ours, digits[0])
    assert rates == pytest.approx([0.02, 0.01])


def test_a_scheduler_that_watches_the_loss(digits, tmp_path):
    ours = module(digits, scheduler=lambda optimizer: torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer))
    plain = trainer(tmp_path, 1, limit_train_batches=1, limit_val_batches=1, enable_checkpointing=False)
    plain.fit(ours, digits[0], digits[1])
    assert plain.lr_scheduler_configs[0].monitor == "valid_loss"


def test_a_network_of_the_baselines_trains_the_same_way(digits, tmp_path):
    from torchlgm.interop.lightning import LightningLGM

    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    ours = LightningLGM(network, settings=learn.Settings(scheduler=None))
    plain = trainer(tmp_path, 3, enable_checkpointing=False)
    plain.fit(ours, digits[0], digits[1])
    assert plain.callback_metrics["valid_accuracy"] > 0.7


@pytest.mark.parametrize("kind", [torch.float32, torch.uint8])
def test_images_of_0_to_255_are_refused(digits, tmp_path, kind):
    x, y = digits[0].dataset.tensors
    bright = DataLoader(TensorDataset((255 * x).to(kind), y), 25)
    ours, plain = module(digits), trainer(tmp_path, 1, enable_checkpointing=False)
    with pytest.raises(lgm.errors.DataError, match=r"the first batch: .* got 0 to 255; .* as x / 255"):
        plain.fit(ours, bright)
    with pytest.raises(lgm.errors.EvidenceError, match="got 0 to 255"):
        plain.predict(ours, bright)
    with pytest.raises(lgm.LGMError, match="got 0 to 255"):
        plain.test(ours, bright)


def test_accuracy_is_of_the_known_targets(digits, tmp_path):
    x, y = digits[1].dataset.tensors
    x, y = x[:100], y[:100].clone()
    ours, plain = module(digits), trainer(tmp_path, 1, enable_checkpointing=False)
    plain.fit(ours, digits[0])
    y[:50] = -1
    y[60:80] = -1
    (row,) = plain.test(ours, DataLoader(TensorDataset(x, y), 25), verbose=False)
    expected = learn.evaluate_loss(ours.predictor, learn.Samples(x, y))
    assert (row["test_loss"], row["test_accuracy"]) == pytest.approx(expected)
    shares = torch.nn.functional.one_hot(y.clamp(min=0), 10).float().masked_fill((y < 0)[:, None], torch.nan)
    (row,) = plain.test(ours, DataLoader(TensorDataset(x, shares), 25), verbose=False)
    assert (row["test_loss"], row["test_accuracy"]) == pytest.approx(expected)


def test_lbfgs_gets_its_closure(digits, tmp_path):
    ours = module(digits, optimizer=lambda p: torch.optim.LBFGS(p, lr=0.1, max_iter=2), scheduler=None)
    plain = trainer(tmp_path, 1, limit_train_batches=2, enable_checkpointing=False)
    plain.fit(ours, digits[0])
    assert plain.callback_metrics["train_loss"].isfinite()


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (torch.full((50,), 10), "label 10 does not fit target nodes with 10 labels"),
        (torch.rand(50), r"targets shaped .* taken for probabilities"),
    ],
)
def test_targets_that_do_not_fit(digits, tmp_path, targets, message):
    wrong = DataLoader(TensorDataset(digits[0].dataset.tensors[0][:50], targets), 25)
    with pytest.raises(lgm.errors.DataError, match=message):
        trainer(tmp_path, 1, enable_checkpointing=False).fit(module(digits), wrong)


def test_batches_that_are_no_pairs(digits, tmp_path):
    wrong = DataLoader([{"x": x, "y": y} for x, y in list(digits[0].dataset)[:25]], 25)
    with pytest.raises(lgm.errors.TrainingError, match="a batch of type dict; expected tensors"):
        trainer(tmp_path, 1, enable_checkpointing=False).fit(module(digits), wrong)


def test_members_of_an_ensemble_have_no_batches_of_their_own(digits, tmp_path):
    from torchlgm.interop.lightning import LightningLGM

    def ensemble(**options):
        posteriors = [lgm.Posterior(lgm.LGM(lgm.zoo.dense((1, 8, 8), [5])), lgm.lbp(1)) for _ in range(2)]
        return LightningLGM(learn.Ensemble(posteriors, **options))

    plain = trainer(tmp_path, 1, enable_checkpointing=False)
    assert torch.cat(plain.predict(ensemble(), digits[1])).shape[1:] == (10,)
    with pytest.raises(lgm.errors.TrainingError, match="own_batches=False"):
        plain.fit(ensemble(), digits[0])
    plain = trainer(tmp_path, 1, limit_train_batches=2, enable_checkpointing=False)
    plain.fit(ensemble(own_batches=False), digits[0])
    assert plain.callback_metrics["train_loss"].isfinite()
