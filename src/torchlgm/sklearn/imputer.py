"""LGMImputer: fills in the missing entries of a table, and says how sure it is."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import check_random_state
from torch import Tensor

from torchlgm._utils.sklearn_private import in_container, wants_frame
from torchlgm._utils.validate import is_int_at_least
from torchlgm.errors import InferenceError
from torchlgm.inference import Method
from torchlgm.model import require_finite_all
from torchlgm.sklearn.base import TableModel
from torchlgm.sklearn.columns import LabelledRows
from torchlgm.sklearn.completion import Completion
from torchlgm.sklearn.filling import FillCourse, train_to_fill
from torchlgm.sklearn.frames import as_array, as_typed, completed, filled
from torchlgm.sklearn.graphs import learn_columns, plan_dense
from torchlgm.sklearn.mixture import Mixture
from torchlgm.sklearn.oddities import warn_of_oddities
from torchlgm.sklearn.parameters import check_device, check_parameters
from torchlgm.sklearn.parts import parts_of, split_up
from torchlgm.sklearn.prediction import precision
from torchlgm.sklearn.reading import Raw
from torchlgm.sklearn.training import draw_seed, reporter_of, require_converged

HIDDEN, BINS, MEMBERS = 64, 12, 4
MOST_LABELS = 2000  # of all columns and members; wider tables get fewer members
STEPS, PASSES = 1500, 20  # the longer of the two
BATCH_SIZES = (128, 256)
LEARNING_RATE = 0.05


class LGMImputer(OneToOneFeatureMixin, TransformerMixin, TableModel):
    """Fills in missing entries with the expected number, the most probable category, or random draws.

    A layered graphical model of the columns is trained by hiding entries and predicting them from the rest, so it
    learns from incomplete rows and needs no class. Columns may hold numbers, booleans, categories, dates and times.

    Parameters
    ----------
    hidden : int or "auto"
        The number of hidden nodes. `"auto"` is 64.
    bins : int or "auto"
        Labels of a numeric column, at quantiles, 2 or more. `"auto"` is 12.
    categorical_features : array_like or "from_dtype"
        Columns to treat as categories: a mask, numbers or names. Those of text and of categorical types always are;
        with `"from_dtype"`, only those.
    max_categories : int or None
        The most labels of a column of categories. If there are more categories, the rare ones share the last label and
        are never filled in. None for a label each.
    n_members : int or "auto"
        Models whose beliefs are averaged. `"auto"` is 4, or fewer for wide tables.
    epochs : int or "auto"
        Passes over the rows. `"auto"` is 20, and at least 1,500 steps.
    batch_size : int or "auto"
        Rows per step. `"auto"` is 128 to 256.
    learning_rate : float or "auto"
        Learning rate of Adam, which falls to 0 along a half cosine. `"auto"` is 0.05.
    early_stopping : bool or "auto"
        Each model holds out a different tenth of the rows, and training stops when nothing has improved there for 5
        checks of 40. `"auto"` is True.
    random_state : int, RandomState or None
        Seed of the first weights, of what is hidden, of the order of rows, and of `sample`.
    verbose : int
        Above 0, a progress bar.
    device : str or torch.device
        Where to train and fill in, such as `"cuda"`.

    Attributes
    ----------
    n_features_in_
        How many columns there are.
    feature_names_in_
        Their names, if they were given as text.
    columns_
        For each column `Numbers` (with `knots`) or `Categories` (with `values` and `infrequent`); None if it had no
        value, and its holes stay.
    members_
        The models, each a `torchlgm.LGM`.
    loss_curve_
        The training loss between two checks.

    Examples
    --------
    >>> import numpy as np
    >>> from torchlgm import LGMImputer
    >>> x = np.linspace(0, 1, 200)
    >>> X = np.column_stack([x, 2 * x])
    >>> X[50, 1] = np.nan
    >>> filled = LGMImputer(random_state=0).fit_transform(X)
    >>> bool(abs(filled[50, 1] - 0.5) < 0.1)
    True
    """

    method: Method | None = None

    def __init__(
        self,
        *,
        hidden: int | str = "auto",
        bins: int | str = "auto",
        categorical_features: Any = "from_dtype",
        max_categories: int | None = 30,
        n_members: int | str = "auto",
        epochs: int | str = "auto",
        batch_size: int | str = "auto",
        learning_rate: float | str = "auto",
        early_stopping: bool | str = "auto",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
        device: str = "cpu",
    ) -> None:
        self.hidden = hidden
        self.bins = bins
        self.categorical_features = categorical_features
        self.max_categories = max_categories
        self.n_members = n_members
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.early_stopping = early_stopping
        self.random_state = random_state
        self.verbose = verbose
        self.device = device

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn how columns depend on each other, from rows with or without missing entries.

        Parameters
        ----------
        X : DataFrame or array_like
            Rows `(N, columns)`; NaN, None or masked = missing.
        y : object
            Ignored.

        Returns
        -------
        LGMImputer
            Itself.
        """
        check_parameters(self.get_params(deep=False))
        if isinstance(self.hidden, tuple | list):
            raise ValueError(f"hidden={self.hidden!r}; expected 'auto' or a number: there is one hidden layer")
        raws = self._raws(self._validated(X, reset=True))
        warn_of_oddities(raws)
        random = check_random_state(self.random_state)
        rows = len(raws[0].values)
        weights = np.ones(rows)
        parts = parts_of(raws, add_indicator=False)
        alike = LabelledRows(np.zeros(rows, int), weights, 1)
        bins = int(self._or("bins", BINS))
        columns = learn_columns(split_up(raws, parts), alike, bins, "quantile", self.max_categories)
        self._plan = plan_dense(parts, columns, (int(self._or("hidden", HIDDEN)),), None)
        x = self._scaled(raws)
        reporter = reporter_of(self.verbose)
        course = self._course(rows, draw_seed(random))
        trained = train_to_fill(self._plan, x, torch.ones(rows, device=x.device), course, reporter)
        reporter.close()
        require_converged(trained.models, trained.losses)
        self.members_ = [model.to(self.device) for model in trained.models]
        self.mixture_ = Mixture.even(1, len(self.members_))
        self.loss_curve_ = trained.losses
        return self

    def transform(self, X: Any, return_proba: bool = False) -> Any:
        """Fill in every missing entry; observed entries stay as they are. `set_output` is respected.

        Parameters
        ----------
        X : DataFrame or array_like
            Rows `(N, columns)`; NaN, None or masked = missing.
        return_proba : bool
            Whether to return the probabilities as well.

        Returns
        -------
        filled : ndarray or DataFrame
            The rows; a column that had no value in training keeps its missing entries.
        probs : list of ndarray
            For each column `(N, labels)`, of the knots or values in `columns_`, or None if it had no value in training;
            only with `return_proba`.
        """
        raws = self._asked(X)
        x, completion = self._scaled(raws).to(precision(self.device)), self._completion()
        with torch.no_grad():
            probs = [
                None if column is None else completion.probs(x, j).cpu().numpy()
                for j, column in enumerate(self.columns_)
            ]
        table = self._contained(completed(raws, self.columns_, probs), raws, X)
        return (table, probs) if return_proba else table

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> Any:
        """Learn from rows and fill in their missing entries.

        Parameters
        ----------
        X : DataFrame or array_like
            Rows `(N, columns)`, with or without missing entries.
        y
            Ignored.
        **fit_params
            As for `fit`.

        Returns
        -------
        DataFrame or ndarray
            What `transform(X)` returns.
        """
        return self.fit(X, y, **fit_params).transform(X)

    def sample(self, X: Any, n: int = 5) -> list[Any]:
        """Draw the missing entries at random, several times, for multiple imputation.

        The entries of a row are drawn one after the other, each given those before it, so that they fit together.
        Numbers are drawn at the knots of their column.

        Parameters
        ----------
        X : DataFrame or array_like
            Rows `(N, columns)`; NaN, None or masked = missing.
        n : int
            How many tables to draw.

        Returns
        -------
        list
            Tables as `transform` gives them.
        """
        if not is_int_at_least(n):
            raise ValueError(f"n={n!r}; expected a whole number >= 1")
        raws = self._asked(X)
        x, completion = self._scaled(raws).cpu().to(torch.float64), self._completion("cpu")
        seed = draw_seed(check_random_state(self.random_state))
        nodes = [j for j, column in enumerate(self.columns_) if column is not None]
        tables = []
        for k in range(int(n)):
            with torch.no_grad():
                drawn = completion.drawn(x, nodes, np.random.default_rng([seed, k]))
            columns = [
                filled(raw, column, None if column is None else column.at(_labels(drawn[:, j], column.labels, raw)))
                for j, (raw, column) in enumerate(zip(raws, self.columns_, strict=True))
            ]
            tables.append(self._contained(columns, raws, X))
        return tables

    # inside

    def _scaled(self, raws: list[Raw]) -> Tensor:
        return self._plan.scale(raws).flatten(1).to(self.device)

    def _completion(self, device: str | None = None) -> Completion:
        device = self.device if device is None else device
        check_device(device)
        require_finite_all(self.members_, "these members cannot answer", InferenceError)
        return Completion([model.to(device) for model in self.members_], self._plan, precision(device))

    def _contained(self, columns: list[np.ndarray], raws: list[Raw], X: Any) -> Any:
        if wants_frame(self):
            return in_container(as_typed(columns, raws, X), X, self)
        return as_array(columns)

    def _course(self, rows: int, seed: int) -> FillCourse:
        labels = sum(place.labels * len(place.columns) for place in self._plan.places)
        usual = int(np.clip(2 ** int(math.log2(max(2, rows // 16))), *BATCH_SIZES))
        batch = int(self._or("batch_size", usual))
        per_pass = max(1, rows // batch)
        epochs = self._or("epochs", None)
        return FillCourse(
            members=int(self._or("n_members", np.clip(MOST_LABELS // labels, 1, MEMBERS))),
            steps=max(STEPS, PASSES * per_pass) if epochs is None else epochs * per_pass,
            batch_size=batch,
            learning_rate=float(self._or("learning_rate", LEARNING_RATE)),
            early_stopping=bool(self._or("early_stopping", True)),
            seed=seed,
        )

    def _or(self, name: str, usual: Any) -> Any:
        given = getattr(self, name)
        return usual if isinstance(given, str) and given == "auto" else given


def _labels(x: Tensor, labels: int, raw: Raw) -> np.ndarray:
    """The numbers of the labels that were drawn in the holes of a column."""
    return (x[torch.as_tensor(raw.missing())] * (labels - 1)).round().long().numpy()
