"""How LGMClassifier learns: from labelled rows to a model, or an ensemble, that is trained on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from zlib import crc32

import numpy as np
import torch
from sklearn.utils import assert_all_finite, check_consistent_length, check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from torch.optim import Adam

from torchlgm.errors import DataError
from torchlgm.learn import JointLikelihood, Samples, Settings, fit
from torchlgm.learn.distributed import Group, require_same
from torchlgm.learn.fingerprint import as_text
from torchlgm.model import LGM
from torchlgm.sklearn.asking import courses
from torchlgm.sklearn.choices import POLICY, Choices
from torchlgm.sklearn.columns import LabelledRows
from torchlgm.sklearn.encoding import labels_of_class, start_from_rows
from torchlgm.sklearn.graphs import plan_graph, with_hidden
from torchlgm.sklearn.members import Course, train_members
from torchlgm.sklearn.mixture import Mixture
from torchlgm.sklearn.oddities import warn_of_oddities
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


class ClassifierTraining(CoveringSets):
    """What `fit` and `partial_fit` of a classifier do, once its parameters are checked."""

    architecture: str | Graph
    class_weight: Mapping[Any, float] | str | None
    epochs: int | str
    validation_fraction: float
    visible: tuple[float, float] | str | None
    verbose: int
    model_: LGM
    n_iter_: int
    loss_curve_: list[float]

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
