"""Sets of classes that cover the right one as often as asked, whatever is missing: `torchlgm.joint.predict_sets`."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from torchlgm.joint import CalibrationRows, Coverage, predict_sets
from torchlgm.sklearn.base import TableModel
from torchlgm.sklearn.reading import Raw
from torchlgm.sklearn.training import calibration_split, draw_seed, places_among


class CoveringSets(TableModel):
    """What a classifier needs for `predict_set`: rows that it was not trained on."""

    add_indicator: bool
    calibration_fraction: float | None
    calibration_rows_: CalibrationRows | None
    classes_: np.ndarray
    random_state: Any
    warm_start: bool

    def _read(self, X: Any, y: Any, sample_weight: Any, reset: bool) -> tuple[list[Raw], np.ndarray, np.ndarray]:
        """Columns, labels and weights of the rows that count, checked."""
        raise NotImplementedError

    def calibrate(self, X: Any, y: Any) -> Self:
        """Set the calibration rows of `predict_set`: labelled rows that the model was not trained on.

        Parameters
        ----------
        X : DataFrame or array_like
            `(N, columns)`, with or without missing entries.
        y : array_like
            Their classes `(N,)`, among those of the training.

        Returns
        -------
        LGMClassifier
            Itself.
        """
        check_is_fitted(self)
        raws, y, _ = self._read(X, y, None, reset=False)
        self._calibrate((raws, y))
        return self

    def predict_set(
        self, X: Any, coverage: float = 0.9, *, nested: bool = False, allow_empty: bool = True
    ) -> np.ndarray:
        """Which classes are in the set of each row: the right one with probability `coverage`.

        This is so for each pattern of holes by itself if rows and calibration rows come from one source, and entries
        are missing independently of the values; it does not depend on how good the model is. Calibration rows are those
        of `calibration_fraction` or `calibrate`. Each is evaluated with the entries missing that the row in question
        lacks.

        Parameters
        ----------
        X : DataFrame or array_like
            Rows `(N, columns)`, with or without missing entries.
        coverage : float
            How often the set must contain the right class, between 0 and 1. A model that is right more often than that
            leaves the sets of its least sure rows empty.
        nested : bool
            Whether to use calibration rows that lack other entries as well. The row in question is then evaluated with
            these missing, too, which takes longer and gives larger sets.
        allow_empty : bool
            False puts the most probable class into every set, which then covers more often than asked.

        Returns
        -------
        ndarray
            `(N, classes)`, True where a class of `classes_` is in the set.
        """
        check_is_fitted(self)
        if self.add_indicator:
            raise ValueError(
                "predict_set holds if entries are missing independently of the values, but add_indicator=True learns "
                "from the contrary; fit with add_indicator=False"
            )
        x, wanted = self._plan.scale(self._asked(X)), Coverage(coverage, bool(nested), bool(allow_empty))
        return predict_sets(self._answers().log_probs, self.calibration_rows_, x, wanted).numpy()

    def _calibration_split(self, weights: np.ndarray, random: np.random.RandomState) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of the rows to train on and to calibrate with; a warm start holds out the same again."""
        if not (self.warm_start and hasattr(self, "_calibration_seed")):
            self._calibration_seed = draw_seed(random)
        return calibration_split(weights, float(self.calibration_fraction or 0), self._calibration_seed)

    def _calibrate(self, rows: tuple[list[Raw], np.ndarray] | None) -> None:
        self.calibration_rows_ = None
        if rows is not None:
            raws, y = rows
            self.calibration_rows_ = CalibrationRows(
                self._plan.scale(raws), torch.as_tensor(places_among(self.classes_, y))
            )
