"""HOW to infer, as frozen records. Names of schedules are resolved to functions here; nothing below sees a string."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from math import inf
from numbers import Real
from typing import TypedDict, Unpack

from torchlgm._utils.validate import check_choice, check_int
from torchlgm.errors import InferenceError
from torchlgm.inference import schedule as orders
from torchlgm.inference.rules import BeliefPropagation, MeanField, Rule
from torchlgm.inference.schedule import Schedule

SCHEDULES: Mapping[str, Schedule] = {
    "parallel": orders.parallel,
    "sequential": orders.sequential,
    "sweep": orders.sweep,
}
BELIEF_SCHEDULES: Mapping[str, Schedule] = {
    "parallel": orders.parallel,
    "sequential": orders.belief_sequential,
    "sweep": orders.belief_sweep,
}
GRADIENTS = ("unroll", "checkpoint", "implicit")


@dataclass(frozen=True)
class Method:
    """Approximate inference: an update rule, the order of messages, and when to stop.

    Parameters
    ----------
    rule : Rule
        What a message is, such as belief propagation or mean field.
    schedule : Schedule
        The order in which messages are sent.
    iterations : int
        The number of iterations. With a tolerance, the largest number.
    damping : float
        The share of the old message that is kept, from 0 to below 1.
    tolerance : float, optional
        Each sample stops as soon as no inflow would change by more than `tolerance * (1 + its size)` without damping.
        None for a fixed number of iterations.
    gradient : {"unroll", "checkpoint", "implicit"}
        `"checkpoint"` recomputes instead of storing, so that memory grows with log T instead of T; it saves little with
        a tolerance, since T is not known beforehand. `"implicit"` differentiates the fixed point itself with the memory
        of one iteration; it needs a tolerance, and every sample to converge.
    """

    rule: Rule
    schedule: Schedule
    iterations: int
    damping: float = 0.0
    tolerance: float | None = None
    gradient: str = "unroll"

    def __post_init__(self) -> None:
        if not isinstance(self.rule, Rule):
            raise InferenceError(
                f"rule={self.rule!r}; expected an instance of Rule, such as MeanField(); lbp(), trw() and mean_field() "
                "bring their own"
            )
        if not callable(self.schedule):
            raise InferenceError(
                f"schedule={self.schedule!r}; expected a function of the wiring; only lbp(), trw() and mean_field() "
                "take names"
            )
        object.__setattr__(self, "iterations", check_int("iterations", self.iterations, error=InferenceError))
        if not (isinstance(self.damping, Real) and 0 <= self.damping < 1):
            raise InferenceError(f"damping={self.damping!r}; expected 0 <= damping < 1")
        if self.tolerance is not None and not (isinstance(self.tolerance, Real) and 0 < self.tolerance < inf):
            raise InferenceError(f"tolerance={self.tolerance!r}; expected a positive number or None")
        if self.gradient not in GRADIENTS:
            raise InferenceError(f"gradient={self.gradient!r}; known: {', '.join(GRADIENTS)}")
        if self.gradient == "implicit" and self.tolerance is None:
            raise InferenceError("gradient='implicit' differentiates a fixed point: set a tolerance, such as 1e-6")

    def __repr__(self) -> str:
        """As one would write it: `trw(5, 'sequential', damping=0.3)`."""
        orders_by_name = [*SCHEDULES.items(), *BELIEF_SCHEDULES.items()]
        function_name = getattr(self.schedule, "__name__", type(self.schedule).__name__)
        if self.rule.name:
            schedule = next((repr(name) for name, order in orders_by_name if order is self.schedule), function_name)
            words = [repr(self.iterations), schedule]
            words += [f"{name}={value!r}" for name, value in self.rule.options.items()]
        else:
            words = [repr(self.rule), function_name, repr(self.iterations)]
        options = (field for field in fields(self) if field.name in Options.__annotations__)
        words += [f"{o.name}={value!r}" for o in options if (value := getattr(self, o.name)) != o.default]
        return f"{self.rule.name or 'Method'}({', '.join(words)})"


@dataclass(frozen=True)
class Exact:
    """Exact inference by eliminating node after node, or by enumerating all labellings.

    The work is done when an answer is first read.

    Parameters
    ----------
    by : {"elimination", "enumeration"}
        How to compute.
    limit : int
        The most numbers that a factor, or the list of labellings, may have; beyond it, a `TooLargeError` is raised.
    """

    by: str = "elimination"
    limit: int = 2**24

    def __post_init__(self) -> None:
        check_choice("by", self.by, ("elimination", "enumeration"), error=InferenceError)
        object.__setattr__(self, "limit", check_int("limit", self.limit, error=InferenceError))


def _schedule(schedule: str | Schedule, schedules: Mapping[str, Schedule]) -> Schedule:
    if callable(schedule):
        return schedule
    if not isinstance(schedule, str) or schedule not in schedules:
        raise InferenceError(f"schedule={schedule!r}; known: {', '.join(schedules)}, or a function of the wiring")
    return schedules[schedule]


def _maximise(product: str) -> bool:
    if not isinstance(product, str) or product not in ("sum", "max"):
        raise InferenceError(f"product={product!r}; expected 'sum' (marginals) or 'max' (MAP)")
    return product == "max"


class Options(TypedDict, total=False):
    """What every approximate method takes, see `Method`."""

    damping: float
    tolerance: float | None
    gradient: str


def lbp(
    iterations: int = 5,
    schedule: str | Schedule = "sweep",
    product: str = "sum",
    **options: Unpack[Options],
) -> Method:
    """Loopy belief propagation: exact on trees, an estimate elsewhere.

    Parameters
    ----------
    iterations : int
        The number of iterations, or the largest number if a tolerance is given.
    schedule : {"sweep", "sequential", "parallel"} or Schedule
        The order in which messages are sent.
    product : {"sum", "max"}
        `"max"` looks for the most probable labelling instead of marginals.
    **options
        `damping`, `tolerance` and `gradient`, as in `Method`.

    Returns
    -------
    Method
        For `infer`, `solve` or a `Posterior`.

    Examples
    --------
    >>> lbp(iterations=100, schedule="sweep", damping=0.3, tolerance=1e-5)
    lbp(100, 'sweep', damping=0.3, tolerance=1e-05)
    >>> lbp(schedule="swep")
    Traceback (most recent call last):
    torchlgm.errors.InferenceError: schedule='swep'; known: parallel, sequential, sweep, or a function of the wiring
    """
    rule = BeliefPropagation(reweighted=False, maximise=_maximise(product))
    return Method(rule, _schedule(schedule, SCHEDULES), iterations, **options)


def trw(
    iterations: int = 5,
    schedule: str | Schedule = "sweep",
    product: str = "sum",
    divide_by_rho: bool = True,
    **options: Unpack[Options],
) -> Method:
    """Tree-reweighted belief propagation: its log Z is an upper bound once it has converged.

    Parameters
    ----------
    iterations : int
        The number of iterations, or the largest number if a tolerance is given.
    schedule : {"sweep", "sequential", "parallel"} or Schedule
        The order in which messages are sent.
    product : {"sum", "max"}
        `"max"` looks for the most probable labelling instead of marginals.
    divide_by_rho : bool
        With False, messages take E instead of E / rho: energies between free nodes count rho times, what observed nodes
        send is unchanged, and log Z is not known. This gives the paper's numbers. Answers then depend on which label is
        label 0, since energies are relative to it; with True they do not. The paper's released program also multiplies
        what observed nodes send by rho: that is `trw()` on `LGM(graph, scale="rho")`.
    **options
        `damping`, `tolerance` and `gradient`, as in `Method`.

    Returns
    -------
    Method
        For `infer`, `solve` or a `Posterior`.

    Examples
    --------
    >>> trw(5, "sequential", divide_by_rho=False)
    trw(5, 'sequential', divide_by_rho=False)
    """
    rule = BeliefPropagation(reweighted=True, maximise=_maximise(product), divide_by_rho=divide_by_rho)
    return Method(rule, _schedule(schedule, SCHEDULES), iterations, **options)


def mean_field(iterations: int = 5, schedule: str | Schedule = "sequential", **options: Unpack[Options]) -> Method:
    """Mean field: its log Z is a lower bound after any number of iterations.

    Parameters
    ----------
    iterations : int
        The number of iterations, or the largest number if a tolerance is given.
    schedule : {"sequential", "sweep", "parallel"} or Schedule
        The order in which beliefs are updated.
    **options
        `damping`, `tolerance` and `gradient`, as in `Method`.

    Returns
    -------
    Method
        For `infer`, `solve` or a `Posterior`.
    """
    return Method(MeanField(), _schedule(schedule, BELIEF_SCHEDULES), iterations, **options)


METHODS: Mapping[str, Callable[..., Method]] = {method.__name__: method for method in (lbp, trw, mean_field)}


def exact(by: str = "elimination", limit: int = Exact.limit) -> Exact:
    """Exact inference where the graph allows it: trees, stars, chains of small layers, small graphs.

    Parameters
    ----------
    by : {"elimination", "enumeration"}
        How to compute.
    limit : int
        The most numbers that a factor, or the list of labellings, may have.

    Returns
    -------
    Exact
        For `infer`, `solve` or a `Posterior`.
    """
    return Exact(by, limit)


def require_method(method: object) -> None:
    if not isinstance(method, Method | Exact):
        raise InferenceError(f"method={method!r}; expected lbp(), trw(), mean_field() or exact()")
