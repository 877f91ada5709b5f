"""Whether what is observed can move the answer at all."""

from __future__ import annotations

from torch import Tensor

from torchlgm.errors import warn
from torchlgm.inference import Method
from torchlgm.inference.engine import wiring_of
from torchlgm.inference.plan import MakeBelief
from torchlgm.inference.run import LONG, plan_of
from torchlgm.learn.learner import Learner, evaluation
from torchlgm.mrf import MRF
from torchlgm.posterior import Posterior

ADVICE = (
    "use at least as many iterations as there are connections between the two, or schedule='sweep' with layers "
    "declared in order, from the inputs to the target"
)


def reaches(mrf: MRF, method: Method, target: str) -> bool:
    """Whether the belief about `target` depends on evidence after the iterations of `method`."""
    plan = plan_of(wiring_of(mrf), method, (target,), keep=False, given=(), iterations=min(method.iterations, LONG))
    beliefs = (step for step in plan.steps if isinstance(step, MakeBelief))
    return any(step.evidence and step.layer in mrf.evidence for step in beliefs)


def warn_unless_reached(learner: Learner, x: Tensor) -> None:
    """Warn the caller of `fit` of a training that learns nothing. It is no error: the paper has such trainings."""
    posterior = learner.predictor if learner.ensemble is None else learner.ensemble.members()[0]
    if not isinstance(posterior, Posterior) or not isinstance(posterior.method, Method):
        return
    with evaluation(learner.predictor):
        mrf = posterior.condition(x)
    if not reaches(mrf, posterior.method, posterior.target):
        names = " and ".join(f"'{name}'" for name in posterior.encoding.layers)
        warn(
            f"inputs of layer {names} do not reach '{posterior.target}' by {posterior.method!r}, so nothing is learned "
            f"from them; {ADVICE}",
        )
