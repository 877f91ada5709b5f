"""An estimator that has learned a joint model of the columns of tables: what it reads, and says of columns."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from torchlgm.errors import DataWarning, warn
from torchlgm.inference import Method, lbp
from torchlgm.model import LGM
from torchlgm.mrf import Clamp
from torchlgm.posterior import Posterior
from torchlgm.sklearn.columns import Column, Raw, raw_columns, unmasked
from torchlgm.sklearn.encoding import Plan
from torchlgm.sklearn.imputation import completed, contained
from torchlgm.sklearn.mixture import Mixture
from torchlgm.sklearn.parameters import check_device, marked_columns
from torchlgm.sklearn.prediction import Answers, CachedAnswers


class TableModel(TransformerMixin, OneToOneFeatureMixin, BaseEstimator):
    """Members over the columns of a table, once `_plan`, `members_` and `mixture_` are set by training."""

    categorical_features: Any
    method: Method | None
    fill_weight: float | str
    device: str
    members_: list[LGM]
    mixture_: Mixture
    _plan: Plan

    @property
    def columns_(self) -> tuple[Column | None, ...]:
        check_is_fitted(self)
        return self._plan.columns

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

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    # reading

    def _validated(self, X: Any, reset: bool, y: Any = "no_validation") -> Any:
        if hasattr(X, "columns"):
            if len(X) == 0 or len(X.columns) == 0:
                raise ValueError(f"Found array with {len(X)} sample(s) and {len(X.columns)} feature(s); a minimum of 1")
            return validate_data(self, X, y, reset=reset, skip_check_array=True)
        return validate_data(self, unmasked(X), y, reset=reset, dtype=None, ensure_all_finite="allow-nan")

    def _raws(self, X: Any) -> list[Raw]:
        return raw_columns(X, self._names, marked_columns(self.categorical_features, self._names))

    @property
    def _names(self) -> list[str]:
        return [str(name) for name in self.get_feature_names_out()]  # pyright: ignore[reportOptionalIterable]

    def _asked(self, X: Any) -> list[Raw]:
        """The columns of rows that are asked about."""
        check_is_fitted(self)
        return self._raws(self._validated(X, reset=False))

    # asking

    def _warn_of_untrained_columns(self) -> None:
        if len(self.members_) > 1 or self.fill_weight == 0:
            warn(
                f"fill_weight={self.fill_weight!r} trains beliefs about the class alone, so those about "
                "missing entries are poor; fit with fill_weight=0.5",
                DataWarning,
            )

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
            known = _ANSWERS[self] = CachedAnswers.of(self.members_, options, answers)
        return known.answers


_ANSWERS: WeakKeyDictionary[TableModel, CachedAnswers] = WeakKeyDictionary()
