"""What LGMClassifier answers beside the class, in the words of the table: `torchlgm.joint` on rows of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from torchlgm._utils.optional import import_optional
from torchlgm._utils.validate import is_int_at_least
from torchlgm.errors import DataWarning, warn
from torchlgm.joint import LogProb, acquire, draw_completions, leave_one_out, log_prob_of_seen, shapley
from torchlgm.joint import predict_column as column_probs
from torchlgm.joint.inputs import column_numbers
from torchlgm.sklearn.base import TableModel
from torchlgm.sklearn.explanation import Explanations
from torchlgm.sklearn.frames import as_array, as_frame, filled
from torchlgm.sklearn.parts import MISSING, split_up
from torchlgm.sklearn.prediction import Uncertainty
from torchlgm.sklearn.reading import take_rows, without_values
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
        generator = torch.Generator(self.device).manual_seed(draw_seed(check_random_state(self.random_state)))
        return answers.uncertainty(x, int(samples), int(sweeps), generator)

    def complete(self, X: Any, return_proba: bool = False) -> Any:
        """`X` with every missing entry filled in: the expected number, or the most probable name.

        With `return_proba`, also a list with probabilities `(N, labels)` for each column, of the knots or values in
        `columns_`; None for a column that had no value in training, whose holes stay. A frame for a frame.
        `LGMImputer` fills in better, and needs no classes.
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
        groups = options.pop("groups", None)
        if groups is None and len(self._plan.parts) > len(self.columns_):
            groups = {name: self._nodes_of(j) for j, name in enumerate(self._names)}
        gains = acquire(self, X, groups=groups, **options).cpu().numpy()
        names = self._names if groups is None else list(groups)
        if names == self._names:
            gains[:, [column is None for column in self.columns_]] = 0
        elif not hasattr(groups, "keys"):
            names = list(range(len(names)))
        return _framed(gains, X, names)

    def _nodes_of(self, column: int) -> list[int]:
        """The nodes that become known with a column."""
        return [i for i, part in enumerate(self._plan.parts) if part.column == column and part.what != MISSING]

    def _warn_of_untrained_columns(self) -> None:
        if len(self.members_) > 1 or self.fill_weight == 0:
            warn(
                f"fill_weight={self.fill_weight!r} trains beliefs about the class alone, so those about "
                "missing entries are poor; fit with fill_weight=0.5, or fill in with LGMImputer",
                DataWarning,
            )

    def predict_column(self, X: Any, column: str | int, y: Any = None, return_proba: bool = False) -> Any:
        """A column given all others, and the class where `y` knows it (None = unknown): values `(N,)`.

        The expected number, or the most probable name. With `return_proba` also probabilities `(N, labels)` of the
        knots or values in `columns_`. What stands in the column itself does not count.
        """
        number = None if y is None else self._places_of(y)
        (place,) = column_numbers(self._names, [column], "column")
        raws = self._asked(X)
        raws[place] = without_values(raws[place])
        probs = column_probs(self.posterior_, self._plan.scale(raws).flatten(1), place, number).cpu().numpy()
        learned = self.columns_[place]
        values = np.full(len(probs), np.nan) if learned is None else learned.expected(probs)
        return (values, probs) if return_proba else values

    def sample(self, X: Any, n: int = 20, **options: Any) -> Completions:
        """Each row `n` times, the missing entries drawn from the model; `options` are `chains`, `burn_in` and `thin`.

        Numbers are drawn at the knots of their column.
        """
        raws = self._asked(X)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        generator = torch.Generator(self.device).manual_seed(seed)
        draws = draw_completions(self, X, n, generator=generator, **options)
        columns = []
        again = take_rows(raws, np.repeat(np.arange(len(raws[0].values)), n))
        for j, (raw, column) in enumerate(zip(again, self.columns_, strict=True)):
            labels = draws.labels[:, :, j].flatten().numpy()[raw.missing()]
            columns.append(filled(raw, column, None if column is None else column.at(labels)))
        names = self._names
        if hasattr(X, "iloc"):
            index = import_optional("pandas", "cli").MultiIndex.from_product([X.index, range(n)], names=["row", "draw"])
            table = type(X)(dict(zip(names, columns, strict=True)), index=index)
        else:
            table = np.stack(columns, 1).reshape(-1, n, len(columns))
        return Completions(table, draws.effective.numpy())

    def log_prob(self, X: Any, method: Any = None) -> LogProb:
        """log p of what is seen of each row, with the kind of value: see `torchlgm.joint.log_prob_of_seen`."""
        return log_prob_of_seen(self, X, method)

    def score_samples(self, X: Any) -> np.ndarray:
        """How probable it is that no entry of a row is wrong, as a logarithm `(N,)`: the lower, the stranger the row.

        See `torchlgm.joint.LeftOut.of_rows`.
        """
        return leave_one_out(self, X).of_rows.numpy()

    def suspicious(self, X: Any, n: int = 20) -> Any:
        """The `n` seen entries that are least probable given all others of their row, and what was expected there.

        A frame for a frame, else a list of `Cell`.
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
        """What each seen entry adds to the log-odds of each class, in nats; the shares add up to the answer.

        The answer is that of `predict_proba`, by all members. See `torchlgm.joint.shapley` for `orders`. Each item is
        the explanation of a row, which a notebook shows as a picture.
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

    def _places_of(self, y: Any) -> Sequence[int]:
        numbers = {value: i for i, value in enumerate(self.classes_.tolist())}
        values = y.tolist() if hasattr(y, "tolist") else list(y)
        known = [None if value is None or value != value else value for value in values]
        strange = [value for value in known if value is not None and value not in numbers]
        if strange:
            raise ValueError(f"y has the label {strange[0]!r}, which is not among the classes {self.classes_}")
        return [-1 if value is None else numbers[value] for value in known]


def _framed(values: np.ndarray, X: Any, names: list[Any]) -> Any:
    return type(X)(values, columns=names, index=X.index) if hasattr(X, "iloc") else values
