"""LGMClassifier: scikit-learn's contract on the outside, a layered graphical model inside."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from torchlgm.inference import Method
from torchlgm.learn.distributed import processes
from torchlgm.sklearn import io
from torchlgm.sklearn.classifier_training import ClassifierTraining
from torchlgm.sklearn.joint import JointAnswers
from torchlgm.sklearn.parameters import check_parameters
from torchlgm.spec import Graph


class LGMClassifier(ClassifierMixin, ClassifierTraining, JointAnswers):
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
        row. `"policy"` trains twice: half of the rows with entries hidden then show what `acquire` asks for first.
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

    def predict(self, X: Any) -> np.ndarray:
        """Predict the most probable class of each row.

        Parameters
        ----------
        X : DataFrame or array_like
            Rows `(N, columns)`, with or without missing entries.

        Returns
        -------
        ndarray
            Classes `(N,)`, of `classes_`.
        """
        best = self.predict_log_proba(X).argmax(1)
        return self.classes_[best]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Predict the probability of each class.

        Parameters
        ----------
        X : DataFrame or array_like
            Rows `(N, columns)`, with or without missing entries.

        Returns
        -------
        ndarray
            `(N, classes)`, in the order of `classes_`.
        """
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Predict the logarithms of the class probabilities.

        Parameters
        ----------
        X : DataFrame or array_like
            Rows `(N, columns)`, with or without missing entries.

        Returns
        -------
        ndarray
            `(N, classes)`, in the order of `classes_`.
        """
        raws = self._asked(X)
        return self._answers().log_probs(self._plan.scale(raws)).numpy()

    def save(self, path: str | Path) -> Path:
        """Save the fitted classifier as a folder, without pickle; an older one is replaced.

        Parameters
        ----------
        path : str or Path
            The folder.

        Returns
        -------
        Path
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
