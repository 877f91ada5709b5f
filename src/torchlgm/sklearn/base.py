"""An estimator that has learned a joint model of the columns of tables: what it reads, and says of columns."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from torchlgm.inference import Method, lbp
from torchlgm.model import LGM
from torchlgm.mrf import Clamp
from torchlgm.posterior import Posterior
from torchlgm.sklearn.columns import Column
from torchlgm.sklearn.encoding import Plan
from torchlgm.sklearn.frames import aligned, completed, require_different_names
from torchlgm.sklearn.mixture import Mixture
from torchlgm.sklearn.parameters import check_device, marked_columns
from torchlgm.sklearn.prediction import Answers, CachedAnswers
from torchlgm.sklearn.reading import Raw, raw_columns, unmasked


class TableModel(BaseEstimator):
    """Members over the columns of a table, once `_plan`, `members_` and `mixture_` are set by training."""

    categorical_features: Any
    method: Method | None
    device: str
    n_features_in_: int
    members_: list[LGM]
    mixture_: Mixture
    _plan: Plan
    _labels_of_class: Tensor | None = None  # how often each label of a column occurs in a class, (C, nodes, K)

    @property
    def columns_(self) -> tuple[Column | None, ...]:
        check_is_fitted(self)
        return self._plan.of_table

    def evidence(self, X: Any) -> dict[str, Clamp]:
        """`X` as evidence about `model_`, for `torchlgm.inference` and `torchlgm.explain`.

        With the architecture `"dense"` the layer `columns5` has the columns with 5 labels, in their order, and so on.
        """
        raws = self._asked(X)
        return self._posteriors[0].evidence(self._plan.scale(raws))

    @property
    def posterior_(self) -> Posterior:
        """The model with its method, for `torchlgm.joint`; it takes `inputs(X)`."""
        check_is_fitted(self)
        self._warn_of_untrained_columns()
        return self._answers().posterior

    def inputs(self, X: Any) -> Tensor:
        """Rows as inputs of `posterior_`: `(N, nodes)` in [0, 1], NaN = missing or unknown."""
        return self._plan.scale(self._asked(X)).flatten(1)

    @property
    def input_names(self) -> list[str]:
        """The names of the inputs of `posterior_`: the columns, then parts of them such as `when.month`."""
        check_is_fitted(self)
        names = self._names
        return [part.name(names) for part in self._plan.parts]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    # reading

    def _validated(self, X: Any, reset: bool, y: Any = "no_validation") -> Any:
        if issparse(X):
            raise TypeError(
                f"X is a sparse matrix of shape {X.shape}; expected a dense table, since each entry is a node that is "
                "observed or missing. Pass X.toarray() if it fits into memory; of one-hot columns pass the categories "
                "that they encode."
            )
        if hasattr(X, "columns"):
            if len(X) == 0 or len(X.columns) == 0:
                raise ValueError(
                    f"Found array with {len(X)} sample(s) and {len(X.columns)} feature(s), while a minimum of 1 "
                    "of each is required"
                )
            require_different_names(X)
            if not reset:
                X = aligned(X, getattr(self, "feature_names_in_", None))
            return validate_data(self, X, y, reset=reset, skip_check_array=True)
        return validate_data(self, unmasked(X), y, reset=reset, dtype=None, ensure_all_finite="allow-nan")

    def _raws(self, X: Any) -> list[Raw]:
        return raw_columns(X, self._names, marked_columns(self.categorical_features, self._names))

    @property
    def _names(self) -> list[str]:
        """The columns of the table."""
        names = getattr(self, "feature_names_in_", None)
        return [f"x{j}" for j in range(self.n_features_in_)] if names is None else [str(name) for name in names]

    def _asked(self, X: Any) -> list[Raw]:
        """The columns of rows that are asked about."""
        check_is_fitted(self)
        return self._raws(self._validated(X, reset=False))

    # asking

    def _filled(self, raws: list[Raw]) -> tuple[list[np.ndarray], list[np.ndarray | None]]:
        """The columns with their holes filled in, and the probabilities of their labels."""
        believed = self._answers().of_columns(self._plan.scale(raws))
        probs = [None if column is None else p for column, p in zip(self.columns_, believed, strict=False)]
        return completed(raws, self.columns_, probs), probs

    def _warn_of_untrained_columns(self) -> None:
        """Warn if beliefs about columns were not trained."""

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
            answers = Answers.of(self._posteriors, self.mixture_, self._plan, self.device, self._labels_of_class)
            known = _ANSWERS[self] = CachedAnswers.of(self.members_, options, answers)
        return known.answers


_ANSWERS: WeakKeyDictionary[TableModel, CachedAnswers] = WeakKeyDictionary()
