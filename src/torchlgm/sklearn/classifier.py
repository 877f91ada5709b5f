"""LGMClassifier: scikit-learn's contract on the outside, a layered graphical model inside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self
from weakref import WeakKeyDictionary

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import assert_all_finite, check_consistent_length, check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor
from torch.optim import Adam, Optimizer

from torchlgm._utils.validate import is_int_at_least
from torchlgm.errors import DataError, DataWarning, warn
from torchlgm.inference import Method, lbp
from torchlgm.learn import JointLikelihood, Samples, Settings, fit
from torchlgm.model import LGM
from torchlgm.mrf import Clamp
from torchlgm.posterior import Posterior
from torchlgm.sklearn import io
from torchlgm.sklearn.choices import Choices
from torchlgm.sklearn.columns import Column, LabelledRows, Raw, raw_columns, unmasked, warn_of_odd_names
from torchlgm.sklearn.conformal import CalibrationRows, Coverage, predict_sets, split
from torchlgm.sklearn.encoding import Plan, start_from_rows
from torchlgm.sklearn.graphs import plan_dense, plan_given, plan_windows, with_hidden
from torchlgm.sklearn.imputation import completed, contained
from torchlgm.sklearn.joint import JointAnswers
from torchlgm.sklearn.members import Course, train_members
from torchlgm.sklearn.mixture import Mixture
from torchlgm.sklearn.parameters import check_device, check_parameters, marked_columns
from torchlgm.sklearn.prediction import Answers, KnownAnswers, Uncertainty
from torchlgm.sklearn.training import (
    Part,
    class_weights,
    held_out,
    merged,
    reporter_of,
    require_reach,
    row_weights,
    warn_of_few_steps,
)
from torchlgm.spec import Graph


class LGMClassifier(ClassifierMixin, TransformerMixin, OneToOneFeatureMixin, JointAnswers, BaseEstimator):
    """A classifier that is a probability model of classes and columns: it needs no imputation.

    Missing entries (NaN, None, or masked) are simply not observed, in training and in prediction. Training hides
    entries at random, so that prediction can do without them even if the training data is complete.

    Parameters:

    - `architecture`: `"dense"` for tables; `"conv"` and `"local"` for rows that are images. Of a `torchlgm.Graph` the
      first layers take the columns, as many as they have nodes, and the root is the class.
    - `hidden`: the number of hidden nodes, or a tuple with one number for each hidden layer, `()` for none; `"auto"`
      for 64 to 256, by rows and classes.
    - `bins`: labels of the node of a numeric column, 2 or more; `"auto"` for 12, or 5 in a single model.
    - `scaling`: where the labels of a numeric column stand: `"tree"`, where a small tree splits by class and at
      quantiles between; `"quantile"`; or `"minmax"`, evenly.
    - `categorical_features`: `"from_dtype"`, or which columns hold names: a mask, numbers or names of columns. Text and
      categorical types always do.
    - `image_shape`: `(height, width)` or `(channels, height, width)` of images; None for squares.
    - `method`: inference, such as `torchlgm.lbp(iterations=2)`; None for `torchlgm.lbp(iterations=1)`.
    - `visible`: range of the share of entries that stays visible in training; None hides nothing; `"auto"` trains some
      members on mostly complete rows, the others on rows with holes, and mixes them by the share missing of a row.
    - `fill_weight`: how much the beliefs about hidden entries count in training, beside the class. `complete`,
      `transform` and `uncertainty` are good only with more than 0, which trains a single model. `"auto"`
      for 0 in an ensemble and 0.5 in a single model.
    - `n_members`: models in the ensemble; `"auto"` for 12, or 4 from 5,000 rows on. An ensemble is trained with
      `architecture="dense"`, one hidden layer, and default `method`, `fill_weight` and `warm_start`; else one model.
    - `epochs`: passes over the different rows, since rows that are the same are merged; `"auto"` for 40, and 1,000
      steps at least. Of a single model `"auto"` are 600 steps, but between 20 and 200 passes, or 2,500 steps if most
      rows are repeats.
    - `batch_size`, `learning_rate`: of Adam, whose rate falls to 0 along a half cosine; `"auto"` for 128 to 512 rows
      and 0.1, or 32 and 0.03 for a single model.
    - `early_stopping`: each member of an ensemble holds out another eighth of the rows, and training stops when
      nothing has improved there for `n_iter_no_change` checks of 25; these rows also say how to mix the members. A
      single model holds out `validation_fraction` of the rows, and checks after each epoch. `"auto"` is True for
      ensembles.
    - `calibration_fraction`: the share of the rows that is held out for `predict_set`; None holds out none.
    - `class_weight`: None, `"balanced"` or a weight for each class label.
    - `warm_start`: go on from the weights of the last fit.
    - `random_state`, `verbose`: as everywhere in scikit-learn.
    - `device`: of PyTorch.

    Attributes, once fitted:

    - `classes_`, `n_features_in_`, `feature_names_in_`: as everywhere in scikit-learn.
    - `columns_`: for each column `Numbers` (with `knots`) or `Categories` (with `values`); None if it had no value.
    - `members_`, `mixture_`: the models, each a `torchlgm.LGM`, and how much each counts by the share missing.
    - `model_`: the first member.
    - `n_iter_`, `loss_curve_`: epochs trained, and the training loss of each.
    - `calibration_rows_`: the rows that `predict_set` compares with, their values scaled; None if there are none.
    """

    def __init__(
        self,
        architecture: str | Graph = "dense",
        *,
        hidden: int | tuple[int, ...] | str = "auto",
        bins: int | str = "auto",
        scaling: str = "tree",
        categorical_features: Any = "from_dtype",
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
        verbose: int = 0,
        device: str = "cpu",
    ) -> None:
        self.architecture = architecture
        self.hidden = hidden
        self.bins = bins
        self.scaling = scaling
        self.categorical_features = categorical_features
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
        self.verbose = verbose
        self.device = device

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn from rows with or without holes. A row of weight 2 counts as that row twice."""
        check_parameters(self.get_params(deep=False))
        again = self.warm_start and hasattr(self, "model_")
        raws, y, weights = self._read(X, y, sample_weight, reset=not again)
        classes = np.unique(y)
        if len(classes) < 2:
            raise ValueError(f"LGMClassifier needs at least two classes in y, got 1 class: {classes.tolist()[0]!r}")
        random = check_random_state(self.random_state)
        held_out_rows = None
        if self.calibration_fraction is not None:
            keep, apart = self._calibration_split(weights, random)
            held_out_rows = _rows(raws, apart), y[apart]
            raws, y, weights = _rows(raws, keep), y[keep], weights[keep]
        if not again:
            self._begin(raws, y, weights, classes, random)
        elif not np.array_equal(classes, self.classes_):
            raise ValueError(f"warm_start=True needs the classes of the last fit, {self.classes_}, got {classes}")
        elif self._shape() != self._shape_of_model:
            changed = [name for name, value in self._shape().items() if value != self._shape_of_model[name]]
            raise ValueError(f"warm_start=True goes on with the model of the last fit, but {changed} changed since")
        self._calibrate(held_out_rows)
        samples = self._samples(raws, y, weights)
        choices = self._choices(samples, max(len(y), round(weights.sum())))
        if choices.side_by_side:
            self._train_members(samples, choices.course(_seed(random)))
            return self
        train = valid = samples
        if choices.early_stopping:
            train, valid = held_out(samples, self.validation_fraction, self._split)
        if choices.repeated and self.epochs != "auto" and not self.warm_start:
            different = f"{choices.rows} different rows among {choices.came}"
            warn_of_few_steps(self.epochs, len(train), choices.batch_size, different)
        self._train(train, valid, choices, choices.epochs(len(train)), random)
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """One pass over some rows. The first call fixes the classes and the scale of the columns."""
        check_parameters(self.get_params(deep=False))
        if self.class_weight == "balanced":
            raise ValueError("class_weight='balanced' needs all rows at once; pass a weight for each class")
        first = not hasattr(self, "model_")
        raws, y, weights = self._read(X, y, sample_weight, reset=first)
        if first:
            if classes is None:
                raise ValueError("classes must be passed on the first call to partial_fit")
            self._begin(
                raws, y, weights, np.unique(np.asarray(classes)), check_random_state(self.random_state), single=True
            )
        elif classes is not None and not np.array_equal(np.unique(np.asarray(classes)), self.classes_):
            raise ValueError(f"classes={classes!r} are not those of the first call, {self.classes_}")
        rows = self._samples(raws, y, weights)
        choices = self._choices(rows, single=True)
        if not hasattr(self, "optimizer_"):
            self.optimizer_ = Adam([p for model in self.members_ for p in model.parameters()])
        for group in self.optimizer_.param_groups:
            group["lr"] = choices.learning_rate
        self._train(Part(rows.inputs, rows.targets, "X"), rows, choices, 1, self._random, self.optimizer_)
        return self

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

    def transform(self, X: Any) -> Any:
        """`complete(X)`, so that the model can fill in holes for the next step of a pipeline."""
        return self.complete(X)

    def complete(self, X: Any, return_proba: bool = False) -> Any:
        """`X` with every missing entry filled in: the expected number, or the most probable name.

        With `return_proba`, also a list with probabilities `(N, labels)` for each column, of the knots or values in
        `columns_`; None for a column that had no value in training, whose holes stay. `set_output` is respected.
        """
        raws = self._asked(X)
        believed = self._answers().of_columns(self._plan.scale(raws))
        self._warn_of_untrained_columns()
        probs = [None if column is None else p for column, p in zip(self.columns_, believed, strict=True)]
        filled = contained(completed(raws, self.columns_, probs), X, self)
        return (filled, probs) if return_proba else filled

    def uncertainty(self, X: Any, samples: int = 30, sweeps: int = 20) -> Uncertainty:
        """How unsure the class belief is, and how much of that the missing entries account for.

        The missing entries are drawn `samples` times from the model by `sweeps` of Gibbs sampling. With p_s the class
        belief given draw s, and p their mean, the missing entries account for the share (H(p) - mean H(p_s)) / H(p) of
        the entropy: the mutual information of class and missing entries over the entropy, by the draws. It is 0 for
        complete rows and 1 where they would settle the class.
        """
        if not (is_int_at_least(samples, 2) and is_int_at_least(sweeps)):
            raise ValueError(f"samples={samples}, sweeps={sweeps}; expected whole numbers, at least 2 and 1")
        check_is_fitted(self)
        x, answers = self._plan.scale(self._asked(X)), self._answers()
        self._warn_of_untrained_columns()
        generator = torch.Generator(self.device).manual_seed(_seed(check_random_state(self.random_state)))
        return answers.uncertainty(x, int(samples), int(sweeps), generator)

    def calibrate(self, X: Any, y: Any) -> Self:
        """Take labelled rows that the model was not trained on as those that `predict_set` compares with."""
        check_is_fitted(self)
        raws, y, _ = self._read(X, y, None, reset=False)
        self._calibrate((raws, y))
        return self

    def predict_set(
        self, X: Any, coverage: float = 0.9, *, nested: bool = False, randomized: bool = True
    ) -> np.ndarray:
        """Which classes are in the set of each row, `(N, classes)`: the right one with probability `coverage`.

        This is so for each pattern of holes by itself if rows and calibration rows come from one source, and entries
        are missing independently of the values; it does not depend on how good the model is. Calibration rows are those
        of `calibration_fraction` or `calibrate`. Each is asked again with the holes of the row in question, and only
        those without other holes are used. With `nested` all are used, which takes longer: the row in question is
        asked again with their holes as well, and sets are larger. Where the class is easy, a set is now and then empty,
        by chance, so that it covers no more often than asked; `randomized=False` always has the most probable class,
        and covers more often.
        """
        check_is_fitted(self)
        wanted, random = Coverage(coverage, bool(nested), bool(randomized)), check_random_state(self.random_state)
        x, answers = self._plan.scale(self._asked(X)), self._answers()
        return predict_sets(answers.log_probs, self.calibration_rows_, x, wanted, random).numpy()

    def evidence(self, X: Any) -> dict[str, Clamp]:
        """`X` as evidence about `model_`, for `torchlgm.inference` and `torchlgm.explain`.

        With the architecture `"dense"` the layer `columns5` has the columns with 5 labels, in their order, and so on.
        """
        raws = self._asked(X)
        return self._posteriors[0].evidence(self._plan.scale(raws))

    @property
    def posterior_(self) -> Posterior:
        """The model with its method, for `torchlgm.joint`; it takes `inputs(X)`. Fit with `fill_weight=0.5` first."""
        check_is_fitted(self)
        self._warn_of_untrained_columns()
        return self._answers().posterior

    def inputs(self, X: Any) -> Tensor:
        """Rows as inputs of `posterior_`: `(N, columns)` in [0, 1], NaN = missing or unknown."""
        return self._plan.scale(self._asked(X)).flatten(1)

    def save(self, path: str | Path) -> Path:
        """Write the fitted classifier to the folder `path`, without pickle; an older one is replaced."""
        check_is_fitted(self)
        return io.write(self, path)

    @classmethod
    def load(cls, path: str | Path) -> LGMClassifier:
        """The classifier saved at `path`, on its `device`."""
        return io.read(cls, path)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    @property
    def columns_(self) -> tuple[Column | None, ...]:
        check_is_fitted(self)
        return self._plan.columns

    # reading

    def _read(self, X: Any, y: Any, sample_weight: Any, reset: bool) -> tuple[list[Raw], np.ndarray, np.ndarray]:
        """Columns, labels and weights of the rows that count, checked."""
        if np.ma.is_masked(y):
            raise DataError("y has masked entries, but every row needs a label; leave out the rows without one")
        X, y = self._validated(X, reset, y)
        raws = self._raws(X)
        y = column_or_1d(y, warn=True)
        assert_all_finite(y, input_name="y")
        check_classification_targets(y)
        check_consistent_length(raws[0].values, y)
        weights = row_weights(sample_weight, len(y))
        count = weights > 0
        return _rows(raws, count), y[count], weights[count]

    def _validated(self, X: Any, reset: bool, y: Any = "no_validation") -> Any:
        if hasattr(X, "columns"):
            if len(X) == 0 or len(X.columns) == 0:
                raise ValueError(f"Found array with {len(X)} sample(s) and {len(X.columns)} feature(s); a minimum of 1")
            return validate_data(self, X, y, reset=reset, skip_check_array=True)
        return validate_data(self, unmasked(X), y, reset=reset, dtype=None, ensure_all_finite="allow-nan")

    def _raws(self, X: Any) -> list[Raw]:
        names = [str(name) for name in self.get_feature_names_out()]  # pyright: ignore[reportOptionalIterable]
        return raw_columns(X, names, marked_columns(self.categorical_features, names))

    def _asked(self, X: Any) -> list[Raw]:
        """The columns of rows that are asked about."""
        check_is_fitted(self)
        return self._raws(self._validated(X, reset=False))

    # training

    def _calibration_split(self, weights: np.ndarray, random: np.random.RandomState) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of the rows to train on and to calibrate with; a warm start holds out the same again."""
        if not (self.warm_start and hasattr(self, "_calibration_seed")):
            self._calibration_seed = _seed(random)
        return split(weights, float(self.calibration_fraction or 0), self._calibration_seed)

    def _calibrate(self, rows: tuple[list[Raw], np.ndarray] | None) -> None:
        self.calibration_rows_ = None
        if rows is not None:
            raws, y = rows
            self.calibration_rows_ = CalibrationRows(self._plan.scale(raws), torch.as_tensor(self._numbered(y)))

    def _begin(
        self,
        raws: list[Raw],
        y: np.ndarray,
        weights: np.ndarray,
        classes: np.ndarray,
        random: np.random.RandomState,
        single: bool = False,
    ) -> None:
        """Scales, graph and a model that knows no more than how often each value occurs."""
        warn_of_odd_names(raws)
        self.classes_, self._random = classes, random
        self._plan = self._planned(raws, y, weights, single)
        self._split = _seed(random)  # kept, so that a warm start holds out the same rows again
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

    def _keep(self, members: list[LGM], mixture: Mixture) -> None:
        self.members_, self.mixture_ = members, mixture
        self.model_ = members[0]

    def _shape(self) -> dict[str, str]:
        """The parameters that make the graph."""
        names = ("architecture", "hidden", "bins", "scaling", "image_shape", "categorical_features")
        return {name: repr(getattr(self, name)) for name in names}

    def _choices(self, samples: Samples, came: int = 0, single: bool = False) -> Choices:
        return Choices(self.get_params(deep=False), len(samples), len(self.classes_), came, single)

    def _planned(self, raws: list[Raw], y: np.ndarray, weights: np.ndarray, single: bool) -> Plan:
        rows = LabelledRows(self._numbered(y), weights, len(self.classes_))
        choices = Choices(self.get_params(deep=False), len(y), rows.classes, single=single)
        if isinstance(self.architecture, Graph):
            return plan_given(raws, rows, self.scaling, self.architecture)
        if self.architecture == "dense":
            return plan_dense(raws, rows, choices.bins, self.scaling, choices.hidden)
        return plan_windows(raws, choices.bins, self.architecture, self.image_shape, choices.hidden, rows.classes)

    def _numbered(self, y: np.ndarray) -> np.ndarray:
        """The places `(N,)` of labels in `classes_`."""
        number = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        strange = self.classes_[number] != y
        if strange.any():
            raise ValueError(
                f"y has the label {y[strange].tolist()[0]!r}, which is not among the classes {self.classes_}"
            )
        return number

    def _samples(self, raws: list[Raw], y: np.ndarray, weights: np.ndarray) -> Samples:
        number = self._numbered(y)
        factors = class_weights(self.class_weight, self.classes_, number, weights)
        return merged(self._plan.scale(raws), number, weights * factors[number], len(self.classes_))

    def _train_members(self, samples: Samples, course: Course) -> None:
        """An ensemble that begins with what `model_` knows."""
        reporter = reporter_of(self.verbose)
        trained = train_members(self.model_, self._plan, samples, course, reporter)
        reporter.close()
        self._keep([model.to(self.device) for model in trained.models], trained.mixture)
        self.n_iter_, self.loss_curve_ = len(trained.losses), trained.losses

    def _train(
        self,
        train: Samples,
        valid: Samples,
        choices: Choices,
        epochs: int,
        random: np.random.RandomState,
        optimizer: Optimizer | None = None,
    ) -> None:
        """Every member for itself."""
        settings = Settings(
            epochs=epochs,
            batch_size=min(choices.batch_size, len(train)),
            learning_rate=choices.learning_rate,
            patience=int(self.n_iter_no_change) if choices.early_stopping else None,
            seed=_seed(random),
            visible=choices.visible,
            optimizer=None if optimizer is None else lambda _: optimizer,
            scheduler="cosine" if optimizer is None else None,
            capture="never",  # columns are picked by lists, which a captured step cannot do
        )
        objective = JointLikelihood(choices.fill_weight if len(self.members_) == 1 else 0.0)
        for posterior in self._posteriors:
            require_reach(posterior.condition(torch.zeros_like(train.inputs[:1], device=self.device)), posterior)
            reporters = [reporter_of(self.verbose)]
            result = fit(posterior, train, valid, objective, settings, device=self.device, reporters=reporters)
        self.n_iter_ += len(result.history)
        self.loss_curve_ = [*self.loss_curve_, *[row["train_loss"] for row in result.history]]

    # asking

    def _warn_of_untrained_columns(self) -> None:
        if len(self.members_) > 1 or self.fill_weight == 0:
            warn(
                f"fill_weight={self.fill_weight!r} trains beliefs about the class alone, so those about "
                "missing entries are poor; fit with fill_weight=0.5",
                DataWarning,
            )

    @property
    def _posterior(self) -> Posterior:
        """Of a single model, for what cannot mix members."""
        if len(self.members_) > 1:
            raise DataError(f"an ensemble of {len(self.members_)} members; expected one model: fit with n_members=1")
        return self._posteriors[0]

    @property
    def _posteriors(self) -> list[Posterior]:
        method = lbp(iterations=1) if self.method is None else self.method
        return [self._plan.posterior(model, method) for model in self.members_]

    def _answers(self) -> Answers:
        """Made once for the same energies."""
        options = repr(self.method), str(self.device)
        known = _ANSWERS.get(self)
        if known is None or not known.hold(self.members_, options):
            check_device(self.device)
            answers = Answers.of(self._posteriors, self.mixture_, self._plan, self.device)
            known = _ANSWERS[self] = KnownAnswers.of(self.members_, options, answers)
        return known.answers


_ANSWERS: WeakKeyDictionary[LGMClassifier, KnownAnswers] = WeakKeyDictionary()


def _rows(raws: list[Raw], chosen: np.ndarray) -> list[Raw]:
    """Some rows of all columns, by a mask or their numbers."""
    return [replace(raw, values=raw.values[chosen]) for raw in raws]


def _seed(random: np.random.RandomState) -> int:
    return int(random.randint(2**31 - 1))
