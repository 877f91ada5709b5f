"""LGMClassifier: scikit-learn's contract on the outside, a layered graphical model inside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self
from zlib import crc32

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils import assert_all_finite, check_consistent_length, check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted
from torch.optim import Adam

from torchlgm.errors import DataError
from torchlgm.inference import Method
from torchlgm.learn import JointLikelihood, Samples, Settings, fit
from torchlgm.learn.distributed import Group, processes, require_same
from torchlgm.learn.fingerprint import as_text
from torchlgm.model import LGM
from torchlgm.sklearn import io
from torchlgm.sklearn.asking import courses
from torchlgm.sklearn.choices import POLICY, Choices
from torchlgm.sklearn.columns import LabelledRows
from torchlgm.sklearn.encoding import labels_of_class, start_from_rows
from torchlgm.sklearn.graphs import plan_graph, with_hidden
from torchlgm.sklearn.joint import JointAnswers
from torchlgm.sklearn.members import Course, train_members
from torchlgm.sklearn.mixture import Mixture
from torchlgm.sklearn.oddities import warn_of_oddities
from torchlgm.sklearn.parameters import check_parameters
from torchlgm.sklearn.reading import Raw, require_labels, take_rows
from torchlgm.sklearn.sets import CoveringSets
from torchlgm.sklearn.training import (
    Part,
    class_weights,
    draw_seed,
    held_out,
    merged,
    places_among,
    reporter_of,
    require_converged,
    require_reach,
    row_weights,
    warn_of_few_steps,
)
from torchlgm.spec import Graph


class LGMClassifier(ClassifierMixin, CoveringSets, JointAnswers):
    """A classifier that is a probability model of classes and columns: it needs no imputation.

    Missing entries (NaN, None, or masked) are simply not observed, in training and in prediction. Training hides
    entries at random, so that prediction can do without them even if the training data is complete.

    Parameters
    ----------
    architecture : {"dense", "conv", "local"} or Graph
        `"dense"` for tables; `"conv"` and `"local"` for rows that are images. Of a `torchlgm.Graph` the first layers
        take the columns, as many as they have nodes, and the root is the class.
    hidden : int, tuple of int or "auto"
        The number of hidden nodes, or a tuple with one number for each hidden layer, `()` for none. `"auto"` is 64 to
        256, depending on rows and classes.
    bins : int or "auto"
        Labels of a numeric column, 2 or more. `"auto"` is 12, or 5 for a single model.
    scaling : {"tree", "quantile", "minmax"}
        Where the labels of a numeric column stand: `"tree"`, where a small tree splits by class and at quantiles
        between; `"quantile"`; or `"minmax"`, evenly.
    categorical_features : array_like or "from_dtype"
        Columns to treat as categories: a mask, numbers or names. Those of text and of categorical types always are;
        with `"from_dtype"`, only those.
    max_categories : int or None
        The most labels of a column of categories. If there are more categories, the rare ones share the last label,
        together with those not seen in training. None for a label each.
    add_indicator : bool
        Whether the fact that an entry is missing counts as evidence, in columns with missing entries in training: a
        sick person may not have been measured. Leave it off if entries may be missing for other reasons in prediction
        than in training.
    image_shape : tuple of int, optional
        `(height, width)` or `(channels, height, width)` of images; None for squares.
    method : Method, optional
        Inference, such as `torchlgm.lbp(iterations=2)`; None for `torchlgm.lbp(iterations=1)`.
    visible : tuple of float, "auto", "policy" or None
        The range of the share of entries that stays visible in training; None hides nothing. `"auto"` trains some
        members on mostly complete rows and others on rows with entries hidden, and mixes them by the missing share of a
        row. `"policy"` trains twice: half of the rows with entries hidden then show what `acquire` asked for first.
    fill_weight : float or "auto"
        How much the beliefs about hidden entries count in training, beside the class. `complete` and `uncertainty` are
        good only with more than 0, which trains a single model. `"auto"` is 0 for an ensemble and 0.5 for a single
        model.
    n_members : int or "auto"
        Models in the ensemble. `"auto"` is 12, or 4 from 5,000 rows on. An ensemble is trained with
        `architecture="dense"`, one hidden layer, and default `method`, `fill_weight` and `warm_start`; otherwise a
        single model.
    epochs : int or "auto"
        Passes over the distinct rows; identical ones are merged. `"auto"` is 40, and at least 1,000 steps; for a single
        model 600 steps within 20 to 200 passes, or 2,500 steps if most rows are repeats.
    batch_size : int or "auto"
        Rows per step. `"auto"` is 64 to 512, or 32 for a single model.
    learning_rate : float or "auto"
        Learning rate of Adam, which falls to 0 along a half cosine. `"auto"` is 0.1, or 0.03 for a single model.
    early_stopping : bool or "auto"
        Each member of an ensemble holds out a different eighth of the rows, and training stops when nothing has
        improved there for `n_iter_no_change` checks of 25; these rows also determine how to mix the members. A single
        model holds out `validation_fraction` of the rows, and checks after each epoch. `"auto"` is True for ensembles.
    validation_fraction : float
        The share of the rows that a single model holds out for early stopping.
    n_iter_no_change : int
        Checks (of an ensemble) or epochs (of a single model) without improvement before training stops early.
    calibration_fraction : float, optional
        The share of the rows that is held out for `predict_set`; None holds out none.
    class_weight : mapping, "balanced" or None
        A weight for each class, or `"balanced"` for weights that make all classes count the same.
    warm_start : bool
        Whether to continue from the weights of the last fit.
    random_state : int, RandomState or None
        Seed of the first weights, of what is hidden and of the order of rows.
    n_jobs : int, optional
        Threads that train an ensemble, -1 for one on each core; None for as many as PyTorch uses. Results are the same.
    verbose : int
        Above 0, a progress bar.
    device : str or torch.device
        Where to train and predict, such as `"cuda"`.

    Attributes
    ----------
    classes_
        The classes, sorted.
    n_features_in_
        How many columns there are.
    feature_names_in_
        Their names, if they were given as text.
    columns_
        For each column `Numbers` (with `knots`) or `Categories` (with `values` and `infrequent`); None if it had no
        value.
    members_
        The models, each a `torchlgm.LGM`.
    mixture_
        How much each member counts, by the share of a row that is missing.
    model_
        The first member.
    n_iter_
        Epochs trained.
    loss_curve_
        The training loss of each epoch.
    calibration_rows_
        The rows that `predict_set` compares with, their values scaled; None if there are none.
    """

    def __init__(
        self,
        architecture: str | Graph = "dense",
        *,
        hidden: int | tuple[int, ...] | str = "auto",
        bins: int | str = "auto",
        scaling: str = "tree",
        categorical_features: Any = "from_dtype",
        max_categories: int | None = 30,
        add_indicator: bool = False,
        image_shape: tuple[int, ...] | None = None,
        method: Method | None = None,
        visible: tuple[float, float] | str | None = "auto",
        fill_weight: float | str = "auto",
        n_members: int | str = "auto",
        epochs: int | str = "auto",
        batch_size: int | str = "auto",
        learning_rate: float | str = "auto",
        early_stopping: bool | str = "auto",
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        calibration_fraction: float | None = None,
        class_weight: Mapping[Any, float] | str | None = None,
        warm_start: bool = False,
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        device: str = "cpu",
    ) -> None:
        self.architecture = architecture
        self.hidden = hidden
        self.bins = bins
        self.scaling = scaling
        self.categorical_features = categorical_features
        self.max_categories = max_categories
        self.add_indicator = add_indicator
        self.image_shape = image_shape
        self.method = method
        self.visible = visible
        self.fill_weight = fill_weight
        self.n_members = n_members
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.calibration_fraction = calibration_fraction
        self.class_weight = class_weight
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.device = device

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn from rows with or without missing entries.

        The processes of `torchrun` learn together from the same rows, and all end with the same model.

        Parameters
        ----------
        X : DataFrame or array_like
            Rows `(N, columns)`; NaN, None or masked = missing.
        y : array_like
            Classes `(N,)`.
        sample_weight : array_like, optional
            `(N,)`; a row of weight 2 counts as that row twice.

        Returns
        -------
        LGMClassifier
            Itself.
        """
        check_parameters(self.get_params(deep=False))
        with processes(self.device) as group:
            self._require_same_parameters(group)
            self._fit(X, y, sample_weight, group)
        return self

    def _fit(self, X: Any, y: Any, sample_weight: Any, group: Group) -> None:
        again = self.warm_start and hasattr(self, "model_")
        raws, y, weights = self._read(X, y, sample_weight, reset=not again)
        classes = np.unique(y)
        if len(classes) < 2:
            raise ValueError(f"LGMClassifier needs at least two classes in y, got 1 class: {classes.tolist()[0]!r}")
        random = _random_state(self.random_state, group)
        held_out_rows = None
        if self.calibration_fraction is not None:
            keep, apart = self._calibration_split(weights, random)
            held_out_rows = take_rows(raws, apart), y[apart]
            raws, y, weights = take_rows(raws, keep), y[keep], weights[keep]
        samples = None
        if not again:
            samples = self._begin(raws, y, weights, classes, random)
        elif not np.array_equal(classes, self.classes_):
            raise ValueError(f"warm_start=True needs the classes of the last fit, {self.classes_}, got {classes}")
        elif self._shape() != self._shape_of_model:
            changed = [name for name, value in self._shape().items() if value != self._shape_of_model[name]]
            raise ValueError(f"warm_start=True goes on with the model of the last fit, but {changed} changed since")
        self._calibrate(held_out_rows)
        samples = self._samples(raws, y, weights) if samples is None else samples
        choices = self._choices(samples, max(len(y), round(weights.sum())))
        if choices.side_by_side:
            self._train_members(samples, choices, draw_seed(random), group)
            return
        train = valid = samples
        if choices.early_stopping:
            train, valid = held_out(samples, self.validation_fraction, self._split)
        if choices.repeated and self.epochs != "auto" and not self.warm_start:
            different = f"{choices.rows} different rows among {choices.came}"
            warn_of_few_steps(choices.epochs(len(train)), len(train), choices.batch_size, different)
        rows = len(train)
        self._train(train, valid, choices, choices.settings(choices.epochs(rows), rows, draw_seed(random)))

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Make one pass over some rows. The first call fixes the classes and the scale of the columns.

        Parameters
        ----------
        X, y, sample_weight
            As for `fit`.
        classes : array_like, optional
            All classes; required in the first call.

        Returns
        -------
        LGMClassifier
            Itself.
        """
        check_parameters(self.get_params(deep=False))
        with processes(self.device) as group:
            self._require_same_parameters(group)
            self._partial_fit(X, y, classes, sample_weight, group)
        return self

    def _partial_fit(self, X: Any, y: Any, classes: Any, sample_weight: Any, group: Group) -> None:
        if self.class_weight == "balanced":
            raise ValueError("class_weight='balanced' needs all rows at once; pass a weight for each class")
        first = not hasattr(self, "model_")
        raws, y, weights = self._read(X, y, sample_weight, reset=first)
        if first:
            if classes is None:
                raise ValueError("classes must be passed on the first call to partial_fit")
            random = _random_state(self.random_state, group)
            self._begin(raws, y, weights, np.unique(np.asarray(classes)), random, single=True)
        elif classes is not None and not np.array_equal(np.unique(np.asarray(classes)), self.classes_):
            raise ValueError(f"classes={classes!r} are not those of the first call, {self.classes_}")
        rows = self._samples(raws, y, weights)
        choices = self._choices(rows, single=True)
        if not hasattr(self, "optimizer_"):
            self.optimizer_ = Adam([p for model in self.members_ for p in model.parameters()])
        for parameters in self.optimizer_.param_groups:
            parameters["lr"] = choices.learning_rate
        settings = choices.settings(1, len(rows), draw_seed(self._random))
        settings = replace(settings, optimizer=lambda _: self.optimizer_, scheduler=None)
        self._train(Part(rows.inputs, rows.targets, "X"), rows, choices, settings)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable classes `(N,)`."""
        best = self.predict_log_proba(X).argmax(1)
        return self.classes_[best]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities `(N, classes)`."""
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of the class probabilities, `(N, classes)`."""
        raws = self._asked(X)
        return self._answers().log_probs(self._plan.scale(raws)).numpy()

    def save(self, path: str | Path) -> Path:
        """Save the fitted classifier as a folder, without pickle; an older one is replaced.

        Parameters
        ----------
        path : str or Path
            The folder.
        """
        check_is_fitted(self)
        return io.write(self, path)

    @classmethod
    def load(cls, path: str | Path) -> LGMClassifier:
        """Load a classifier saved by `save`, on its `device`.

        Parameters
        ----------
        path : str or Path
            The folder.

        Returns
        -------
        LGMClassifier
            Fitted.
        """
        return io.read(cls, path)

    # reading

    def _read(self, X: Any, y: Any, sample_weight: Any, reset: bool) -> tuple[list[Raw], np.ndarray, np.ndarray]:
        """Columns, labels and weights of the rows that count, checked."""
        if np.ma.is_masked(y):
            raise DataError("y has masked entries, but every row needs a label; leave out the rows without one")
        require_labels(y)
        X, y = self._validated(X, reset, y)
        raws = self._raws(X)
        y = column_or_1d(y, warn=True)
        assert_all_finite(y, input_name="y")
        _check_classes(y)
        check_consistent_length(raws[0].values, y)
        weights = row_weights(sample_weight, len(y))
        count = weights > 0
        return take_rows(raws, count), y[count], weights[count]

    # training

    def _require_same_parameters(self, group: Group) -> None:
        """In all processes, but for those that change no answer, and for the seed: they take the first one's."""
        given = {k: v for k, v in self.get_params(deep=False).items() if k not in ("random_state", "n_jobs", "verbose")}
        if group.active:
            require_same(group, crc32(as_text(given).encode()), "parameters")

    def _begin(
        self,
        raws: list[Raw],
        y: np.ndarray,
        weights: np.ndarray,
        classes: np.ndarray,
        random: np.random.RandomState,
        single: bool = False,
    ) -> Samples:
        """Scales, graph and a model that knows no more than how often each value occurs; the rows on these scales."""
        warn_of_oddities(raws)
        self.classes_, self._random = classes, random
        rows = LabelledRows(places_among(self.classes_, y), weights, len(classes))
        choices = Choices(self.get_params(deep=False), len(y), len(classes), single=single)
        self._plan = plan_graph(raws, rows, choices)
        self._split = draw_seed(random)  # kept, so that a warm start holds out the same rows again
        samples = self._samples(raws, y, weights)
        if self.architecture == "dense":
            self._plan = with_hidden(self._plan, self._choices(samples, single=single).hidden)
        generator = torch.Generator().manual_seed(self._split)
        model = LGM(self._plan.graph, self._plan.start, generator=generator, dtype=torch.float32)
        start_from_rows(model, self._plan, samples)
        self._keep([model.to(self.device)], Mixture.even(1, 1))
        self._shape_of_model = self._shape()
        self.n_iter_, self.loss_curve_, self.calibration_rows_ = 0, [], None
        self.__dict__.pop("optimizer_", None)
        return samples

    def _keep(self, members: list[LGM], mixture: Mixture) -> None:
        self.members_, self.mixture_, self._labels_of_class = members, mixture, None
        self.model_ = members[0]

    def _shape(self) -> dict[str, str]:
        """The parameters that make the graph."""
        names = ("architecture", "hidden", "bins", "scaling", "image_shape")
        names += ("categorical_features", "max_categories", "add_indicator")
        return {name: repr(getattr(self, name)) for name in names}

    def _choices(self, samples: Samples, came: int = 0, single: bool = False) -> Choices:
        return Choices(self.get_params(deep=False), len(samples), len(self.classes_), came, single)

    def _samples(self, raws: list[Raw], y: np.ndarray, weights: np.ndarray) -> Samples:
        number = places_among(self.classes_, y)
        factors = class_weights(self.class_weight, self.classes_, number, weights)
        return merged(self._plan.scale(raws), number, weights * factors[number], len(self.classes_))

    def _train_members(self, samples: Samples, choices: Choices, seed: int, group: Group) -> None:
        """An ensemble that begins with what `model_` knows; if so wanted, another one on what the first asks for."""
        start, course = self.model_, choices.course(seed)
        self._train_ensemble(start, samples, course, group)
        if self.visible == POLICY:
            some = self._answers().together.every(course.members)
            asked = courses(some, samples.inputs.flatten(1), seed)
            self._train_ensemble(start, samples, choices.course(seed, asked), group)

    def _train_ensemble(self, start: LGM, samples: Samples, course: Course, group: Group) -> None:
        reporter = reporter_of(self.verbose if group.leads else 0)
        trained = train_members(start, self._plan, samples, course, reporter, group)
        reporter.close()
        require_converged(trained.models, trained.losses)
        self._keep([model.to(self.device) for model in trained.models], trained.mixture)
        self._labels_of_class = labels_of_class(self._plan, samples)
        self.n_iter_, self.loss_curve_ = len(trained.losses), trained.losses

    def _train(self, train: Samples, valid: Samples, choices: Choices, settings: Settings) -> None:
        """Every member for itself."""
        objective = JointLikelihood(choices.fill_weight if len(self.members_) == 1 else 0.0)
        losses: list[float] = []
        for posterior in self._posteriors:
            require_reach(posterior.condition(torch.zeros_like(train.inputs[:1], device=self.device)), posterior)
            reporters = [reporter_of(self.verbose)]
            result = fit(posterior, train, valid, objective, settings, device=self.device, reporters=reporters)
            losses = [row["train_loss"] for row in result.history]
        self.n_iter_ += len(losses)
        self.loss_curve_ = [*self.loss_curve_, *losses]


def _random_state(seed: int | np.random.RandomState | None, group: Group) -> np.random.RandomState:
    """The same in all processes."""
    random = check_random_state(seed)
    if group.active:
        random.set_state(group.decided(random.get_state))
    return random


def _check_classes(y: np.ndarray) -> None:
    try:
        check_classification_targets(y)
    except ValueError as error:
        raise ValueError(
            f"{error} There is no regression here: divide y into ranges, such as by pandas.qcut(y, 5, labels=False), "
            "or fit a regressor such as sklearn.ensemble.HistGradientBoostingRegressor, on X from LGMImputer if it "
            "takes no missing entries."
        ) from error
