"""What LGMClassifier answers beside the class, in the words of the table: `torchlgm.joint` on rows of it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from torchlgm._utils.optional import import_optional
from torchlgm._utils.validate import is_int_at_least
from torchlgm.errors import DataError, DataWarning, warn
from torchlgm.inference import Exact, Method
from torchlgm.joint import Conditionals, LogProb, acquire, draw_completions, leave_one_out, log_prob_of_seen, shapley
from torchlgm.joint import predict_column as column_probs
from torchlgm.joint.inputs import column_numbers
from torchlgm.sklearn.base import TableModel
from torchlgm.sklearn.explanation import Explanations
from torchlgm.sklearn.frames import as_array, as_frame, filled
from torchlgm.sklearn.parts import MISSING, split_up
from torchlgm.sklearn.prediction import Uncertainty
from torchlgm.sklearn.reading import is_missing, take_rows
from torchlgm.sklearn.training import draw_seed


class Completions(NamedTuple):
    """Completions drawn from the model, and how many independent draws they amount to, for each row `(N,)`."""

    values: Any  # (N, n, columns), or a frame with an index of rows and draws
    effective: np.ndarray


class Cell(NamedTuple):
    """A seen entry, how probable it is given all others of its row, and what is most probable there."""

    row: Any
    column: str
    value: Any
    probability: float
    expected: Any
    expected_probability: float


class JointAnswers(TableModel):
    """Questions to a classifier that has learned what its columns say of each other, with `fill_weight` above 0."""

    classes_: np.ndarray
    fill_weight: float | str
    random_state: Any

    def uncertainty(self, X: Any, samples: int = 30, sweeps: int = 20) -> Uncertainty:
        """Compute how uncertain the class is, and how much of that the missing entries account for.

        The missing entries are drawn `samples` times from the model by `sweeps` of Gibbs sampling. With p_s the class
        belief given draw s, and p their mean, the missing entries account for the share (H(p) - mean H(p_s)) / H(p) of
        the entropy: the mutual information of class and missing entries over the entropy, by the draws. It is 0 for
        complete rows and 1 where they would settle the class.

        Parameters
        ----------
        X : DataFrame or array_like
            Rows `(N, columns)`, with or without missing entries.
        samples : int
            How many times the missing entries are drawn, at least 2.
        sweeps : int
            Sweeps of Gibbs sampling before each draw.

        Returns
        -------
        Uncertainty
            With `entropy`, `from_missing` and `remaining`, `(N,)` each, in nats.
        """
        if not (is_int_at_least(samples, 2) and is_int_at_least(sweeps)):
            raise ValueError(f"samples={samples}, sweeps={sweeps}; expected whole numbers, at least 2 and 1")
        check_is_fitted(self)
        x, answers = self._plan.scale(self._asked(X)), self._answers()
        self._warn_of_untrained_columns()
        generator = torch.Generator(self.device).manual_seed(draw_seed(check_random_state(self.random_state)))
        return answers.uncertainty(x, int(samples), int(sweeps), generator)

    def complete(self, X: Any, return_proba: bool = False) -> Any:
        """`X` with every missing entry filled in: the expected number, or the most probable name.

        `LGMImputer` fills in better, and needs no classes.

        Parameters
        ----------
        X : DataFrame or array_like
            Rows `(N, columns)`, with or without missing entries.
        return_proba : bool
            Whether to return the probabilities as well.

        Returns
        -------
        table : DataFrame or ndarray
            A frame for a frame. A column that had no values in training keeps its missing entries.
        probs : list
            For each column `(N, labels)`, of the knots or values in `columns_`, or None if it had no value in training;
            only with `return_proba`.
        """
        raws = self._asked(X)
        columns, probs = self._filled(raws)
        self._warn_of_untrained_columns()
        table = as_frame(columns, raws, X) if hasattr(X, "columns") else as_array(columns)
        return (table, probs) if return_proba else table

    def acquire(self, X: Any, **options: Any) -> Any:
        """What each missing entry is expected to tell about the class, in nats: a frame for a frame, else an array.

        `options` are those of `torchlgm.acquire`: `costs`, `groups`, `target`, `lookahead`, `loss`. Columns that had no
        value in training are worth nothing.
        """
        groups, columns = options.pop("groups", None), self.columns_
        if groups is None and len(self._plan.parts) > len(columns):
            groups = {name: self._nodes_of(j) for j, name in enumerate(self._names)}
        gains = acquire(self, X, groups=groups, **options).cpu().numpy()
        names = self._names if groups is None else list(groups)
        if names == self._names:
            gains[:, [column is None for column in columns]] = 0
        elif not hasattr(groups, "keys"):
            names = list(range(len(names)))
        return _framed(gains, X, names)

    def conditionals(self, target: tuple[int, ...] | None = None) -> Conditionals:
        """The conditional beliefs of the model about the class, or about columns as a target, and about missing
        entries."""
        check_is_fitted(self)
        if target is not None or self._labels_of_class is None:
            self._warn_of_untrained_columns()
        of_class = self._answers().of_class
        return of_class if target is None else of_class.about(target)

    def _nodes_of(self, column: int) -> list[int]:
        """The nodes that become known with a column."""
        return [i for i, part in enumerate(self._plan.parts) if part.column == column and part.what != MISSING]

    def _warn_of_untrained_columns(self) -> None:
        if len(self.members_) > 1 or self.fill_weight == 0:
            warn(
                f"fill_weight={self.fill_weight!r} trains beliefs about the class alone, so those about "
                "missing entries are poor; fit with fill_weight=0.5 (on the command line: --fill 0.5), or fill in with "
                "LGMImputer",
                DataWarning,
            )

    def predict_column(self, X: Any, column: str | int, y: Any = None, return_proba: bool = False) -> Any:
        """Predict a column given all others, and the class where it is known; values in the column itself are ignored.

        Parameters
        ----------
        X : DataFrame or array_like
            Rows `(N, columns)`, with or without missing entries.
        column : str or int
            Its name or number.
        y : array_like, optional
            Classes `(N,)`, None or NaN where unknown; None asks without them.
        return_proba : bool
            Whether to return the probabilities as well.

        Returns
        -------
        values : ndarray
            `(N,)`: the expected number, or the most probable name; NaN for a column that had no value in training.
        probs : ndarray
            `(N, labels)` of the knots or values in `columns_`; only with `return_proba`.
        """
        check_is_fitted(self)
        (place,) = column_numbers(self._names, [column], "column")
        x = self.inputs(X)
        number = None if y is None else self._places_of(y, len(x))
        x[:, [part.column == place for part in self._plan.parts]] = torch.nan
        probs = column_probs(self.posterior_, x, place, number).cpu().numpy()
        learned = self.columns_[place]
        values = np.full(len(probs), np.nan) if learned is None else learned.expected(probs)
        return (values, probs) if return_proba else values

    def sample(self, X: Any, n: int = 20, *, chains: int = 4, burn_in: int = 50, thin: int = 5) -> Completions:
        """Rows with their missing entries drawn from the model, by block Gibbs sampling.

        Parameters
        ----------
        X : DataFrame or array_like
            Rows `(N, columns)`, with or without missing entries.
        n : int
            How many completions to draw for each row.
        chains, burn_in, thin : int
            Each row has this many chains, which start from different points, make `burn_in` sweeps, and are then read
            every `thin` sweeps.

        Returns
        -------
        Completions
            With `values`, numbers being at the knots of their column and columns of a frame having the types they came
            with, and `effective`: how many independent draws those of a row amount to.
        """
        raws = self._asked(X)
        generator = torch.Generator(self.device).manual_seed(draw_seed(check_random_state(self.random_state)))
        draws = draw_completions(self, X, n, chains=chains, burn_in=burn_in, thin=thin, generator=generator)
        columns = []
        again = take_rows(raws, np.repeat(np.arange(len(raws[0].values)), n))
        for j, (raw, column) in enumerate(zip(again, self.columns_, strict=True)):
            labels = draws.labels[:, :, j].flatten().numpy()[raw.missing()]
            columns.append(filled(raw, column, None if column is None else column.at(labels)))
        if hasattr(X, "iloc"):
            table = as_frame(columns, again, X.iloc[np.repeat(np.arange(len(X)), n)])
            index = import_optional("pandas", "cli").MultiIndex
            table.index = index.from_product([X.index, range(n)], names=["row", "draw"])
        else:
            table = np.stack(columns, 1).reshape(-1, n, len(columns))
        return Completions(table, draws.effective.numpy())

    def log_prob(self, X: Any, method: Method | Exact | None = None) -> LogProb:
        """Log-probability of the observed entries of each row, with the class and missing entries summed out.

        Parameters
        ----------
        X : DataFrame or array_like
            Rows `(N, columns)`, with or without missing entries.
        method : Method or Exact, optional
            See `torchlgm.joint.log_prob_of_seen`.

        Returns
        -------
        LogProb
            With the `value` `(N,)`, NaN where inference did not converge, and its `kind`.
        """
        return log_prob_of_seen(self, X, method)

    def score_samples(self, X: Any) -> np.ndarray:
        """How probable it is that no entry of a row is wrong, as a logarithm: the lower, the stranger the row.

        Parameters
        ----------
        X : DataFrame or array_like
            Rows `(N, columns)`, with or without missing entries.

        Returns
        -------
        ndarray
            `(N,)`, 0 where nothing is observed; `torchlgm.joint.LeftOut.of_rows` defines them.
        """
        return leave_one_out(self, X).of_rows.numpy()

    def suspicious(self, X: Any, n: int = 20) -> Any:
        """Find the observed entries that are least probable given all others of their row, and what was expected
        instead.

        Parameters
        ----------
        X : DataFrame or array_like
            Rows `(N, columns)`, with or without missing entries.
        n : int
            The most entries to list.

        Returns
        -------
        DataFrame or list of Cell
            A frame for a frame; the least probable entry comes first.
        """
        raws = self._asked(X)
        left_out = leave_one_out(self, X).first(len(raws))
        names = self._names
        rows = list(X.index) if hasattr(X, "iloc") else range(len(raws[0].values))
        cells = []
        for i, j in left_out.most_suspicious(n):
            column = self.columns_[j]
            label = np.array([int(left_out.expected[i, j])])
            expected = None if column is None else column.at(label)[0]
            p, best = left_out.log_probs[i, j].exp().item(), left_out.expected_log_probs[i, j].exp().item()
            cells.append(Cell(rows[i], names[j], raws[j].came[i], p, expected, best))
        return type(X)(cells, columns=list(Cell._fields)) if hasattr(X, "iloc") else cells

    def explain(self, X: Any, orders: int | str = 32) -> Explanations:
        """Explain what each observed entry adds to the log-odds of each class, in nats; the shares add up to the
        answer.

        The answer is that of `predict_proba`, from all members.

        Parameters
        ----------
        X : DataFrame or array_like
            Rows `(N, columns)`, with or without missing entries.
        orders : int or "all"
            See `torchlgm.joint.shapley`.

        Returns
        -------
        Explanations
            Each item is the explanation of a row, which a notebook shows as a picture.
        """
        raws = self._asked(X)
        x = self._plan.scale(raws)
        ask = self._answers().log_probs
        flat = shapley(lambda rows: ask(rows.reshape(-1, *x.shape[1:])), x.flatten(1), orders)
        missing = x.flatten(1).isnan().tolist()
        names, nodes = self.input_names, split_up(raws, self._plan.parts)
        entries = [
            {name: raw.came[i] for name, raw, hole in zip(names, nodes, holes, strict=True) if not hole}
            for i, holes in enumerate(missing)
        ]
        rows = list(X.index) if hasattr(X, "iloc") else list(range(len(entries)))
        return Explanations(flat, rows, names, entries, self.classes_.tolist())

    def _places_of(self, y: Any, rows: int) -> list[int]:
        """The places of classes among `classes_`, -1 where unknown."""
        numbers = {value: i for i, value in enumerate(self.classes_.tolist())}
        values = np.asarray(y, dtype=object)
        if values.shape != (rows,):
            raise DataError(f"y is shaped {values.shape}; expected ({rows},) classes, None where unknown")
        known = [None if is_missing(value) else value for value in values.tolist()]
        strange = [value for value in known if value is not None and value not in numbers]
        if strange:
            raise DataError(f"y has the label {strange[0]!r}, which is not among the classes {self.classes_}")
        return [-1 if value is None else numbers[value] for value in known]


def _framed(values: np.ndarray, X: Any, names: list[Any]) -> Any:
    return type(X)(values, columns=names, index=X.index) if hasattr(X, "iloc") else values
