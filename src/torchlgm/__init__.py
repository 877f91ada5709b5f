"""Layered graphical models on PyTorch: the whole public API on one screen."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from torchlgm import data as data
from torchlgm import learn as learn
from torchlgm import zoo as zoo
from torchlgm.errors import CheckpointError as CheckpointError
from torchlgm.errors import DataError as DataError
from torchlgm.errors import DataWarning as DataWarning
from torchlgm.errors import DivergedError as DivergedError
from torchlgm.errors import EvidenceError as EvidenceError
from torchlgm.errors import GraphError as GraphError
from torchlgm.errors import GraphWarning as GraphWarning
from torchlgm.errors import InferenceError as InferenceError
from torchlgm.errors import LGMError as LGMError
from torchlgm.errors import MissingExtraError as MissingExtraError
from torchlgm.errors import TooLargeError as TooLargeError
from torchlgm.errors import TrainingError as TrainingError
from torchlgm.inference import Beliefs as Beliefs
from torchlgm.inference import Bracket as Bracket
from torchlgm.inference import Exact as Exact
from torchlgm.inference import Method as Method
from torchlgm.inference import bracket as bracket
from torchlgm.inference import exact as exact
from torchlgm.inference import gibbs as gibbs
from torchlgm.inference import infer as infer
from torchlgm.inference import lbp as lbp
from torchlgm.inference import log_prob as log_prob
from torchlgm.inference import mean_field as mean_field
from torchlgm.inference import sample as sample
from torchlgm.inference import solve as solve
from torchlgm.inference import trw as trw
from torchlgm.learn import fit as fit
from torchlgm.model import LGM as LGM
from torchlgm.model import Init as Init
from torchlgm.model import Observed as Observed
from torchlgm.model import load as load
from torchlgm.model import load_with_card as load_with_card
from torchlgm.model import save as save
from torchlgm.mrf import MRF as MRF
from torchlgm.mrf import energy as energy
from torchlgm.ops.backend import backend as backend
from torchlgm.spec import Conv as Conv
from torchlgm.spec import Dense as Dense
from torchlgm.spec import Graph as Graph
from torchlgm.spec import Layer as Layer
from torchlgm.spec import Local as Local
from torchlgm.spec import Sparse as Sparse

__version__ = "0.1.0"

if TYPE_CHECKING:
    from torchlgm import baselines as baselines
    from torchlgm import explain as explain
    from torchlgm import interop as interop
    from torchlgm import metrics as metrics
    from torchlgm import viz as viz
    from torchlgm.sklearn import LGMClassifier as LGMClassifier

_WHEN_ASKED_FOR = ("baselines", "explain", "interop", "metrics", "viz", "LGMClassifier")  # they need more libraries


def __getattr__(name: str) -> object:
    if name == "LGMClassifier":
        return import_module("torchlgm.sklearn").LGMClassifier
    if name in _WHEN_ASKED_FOR:
        return import_module(f"torchlgm.{name}")
    raise AttributeError(f"module 'torchlgm' has no attribute '{name}'")


def __dir__() -> list[str]:
    lacking = {"LGMClassifier"} if find_spec("sklearn") is None else set()
    return sorted({*globals(), *_WHEN_ASKED_FOR} - lacking)
