"""Models that come with the package, by name in place of a run: those that the playground shows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torchlgm.cli.classifier import Classifier, Inference
from torchlgm.cli.config import Config
from torchlgm.cli.runs import Run
from torchlgm.data import names
from torchlgm.interop.web import PAGE, import_web, models_of_page


@dataclass(frozen=True)
class Pretrained(Run):
    """A pretrained model, to be asked like that of a run."""

    trained: Classifier

    def classifier(self) -> Classifier:
        return self.trained


def pretrained_names() -> list[str]:
    """Of models of images; a folder of the same name goes first."""
    return [model.name for model in models_of_page() if model.name in names()]


def find_model(run: Path) -> Run:
    """The run in a folder, or the pretrained model of this name."""
    if run.exists() or str(run) not in pretrained_names():
        return Run.load(run)
    name = str(run)
    web = import_web(PAGE / next(model.file for model in models_of_page() if model.name == name))
    method, examples = web.about["method"], web.examples
    inference = Inference(method["name"], method["schedule"], method["iterations"], method["damping"])
    classes, posterior = tuple(web.about["classes"]), web.posterior
    model = Classifier(
        posterior.model, inference, classes, web.about["inputs"][0], posterior.target, posterior.temperature
    )
    brightness = {} if examples is None else {"brightness": float(examples.nanmean())}
    return Pretrained(run, Config(name), brightness, model)
