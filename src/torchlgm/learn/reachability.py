"""Whether what is observed can move the answer at all."""

from __future__ import annotations

from torch import Tensor, nn

from torchlgm.errors import warn
from torchlgm.inference import Method
from torchlgm.inference.engine import wiring_of
from torchlgm.inference.plan import MakeBelief
from torchlgm.inference.run import plan_of
from torchlgm.learn.ensemble import Ensemble, Together
from torchlgm.learn.objectives import Objective
from torchlgm.learn.samples import source_of
from torchlgm.model import LGM
from torchlgm.mrf import MRF

ADVICE = (
    "use at least as many iterations as there are connections between the two, or schedule='sweep' with layers "
    "declared in order, from the inputs to the target"
)


def reaches(mrf: MRF, method: Method, target: str) -> bool:
    """Whether the belief about `target` depends on evidence after the iterations of `method`."""
    plan = plan_of(wiring_of(mrf), method, (target,), keep=False, given=())
    beliefs = (step for step in plan.steps if isinstance(step, MakeBelief))
    return any(step.evidence and step.layer in mrf.evidence for step in beliefs)


def warn_unless_reached(model: nn.Module, objective: Objective, x: Tensor) -> None:
    """Warn the caller of `fit` of a training that learns nothing. It is no error: the paper has such trainings."""
    if isinstance(model, Ensemble) and isinstance(objective, Together):
        model, objective = model.members()[0], objective.objective
    source = source_of(objective)
    method, target = (getattr(objective, name, None) for name in ("method", "target"))
    if not isinstance(model, LGM) or source is None or not isinstance(method, Method) or not isinstance(target, str):
        return
    if not reaches(model.condition(source(model, x)), method, target):
        warn(
            f"inputs of layer '{source.layer}' do not reach '{target}' by {method!r}, so nothing is learned from them; "
            f"{ADVICE}",
        )
