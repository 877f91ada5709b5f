"""Layered graphical models on PyTorch: the whole public API on one screen.

A name is imported when it is first used, so that `torchlgm --help` need not wait for PyTorch.
"""

from importlib import import_module as _import_module
from importlib.util import find_spec as _find_spec
from typing import TYPE_CHECKING as _TYPE_CHECKING

__version__ = "0.2.0"

if _TYPE_CHECKING:
    from torchlgm import baselines as baselines
    from torchlgm import data as data
    from torchlgm import errors as errors
    from torchlgm import interop as interop
    from torchlgm import joint as joint
    from torchlgm import learn as learn
    from torchlgm import metrics as metrics
    from torchlgm import networks as networks
    from torchlgm import viz as viz
    from torchlgm.errors import LGMError as LGMError
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
    from torchlgm.joint import Acquisition as Acquisition
    from torchlgm.joint import acquire as acquire
    from torchlgm.joint import explain as explain
    from torchlgm.learn import fit as fit
    from torchlgm.model import LGM as LGM
    from torchlgm.model import Init as Init
    from torchlgm.model import InputEncoding as InputEncoding
    from torchlgm.model import Observed as Observed
    from torchlgm.model import load as load
    from torchlgm.model import load_with_card as load_with_card
    from torchlgm.model import save as save
    from torchlgm.mrf import MRF as MRF
    from torchlgm.mrf import energy as energy
    from torchlgm.ops.backend import backend as backend
    from torchlgm.posterior import Posterior as Posterior
    from torchlgm.sklearn import LGMClassifier as LGMClassifier
    from torchlgm.sklearn import LGMImputer as LGMImputer
    from torchlgm.spec import Conv as Conv
    from torchlgm.spec import Dense as Dense
    from torchlgm.spec import Graph as Graph
    from torchlgm.spec import Layer as Layer
    from torchlgm.spec import Local as Local
    from torchlgm.spec import Sparse as Sparse
    from torchlgm.spec import zoo as zoo

_NAMES = {
    "torchlgm": "baselines data errors interop joint learn metrics networks viz",
    "torchlgm.errors": "LGMError",
    "torchlgm.inference": "Beliefs Bracket Exact Method bracket exact gibbs infer lbp log_prob mean_field sample solve "
    "trw",
    "torchlgm.joint": "Acquisition acquire explain",
    "torchlgm.learn": "fit",
    "torchlgm.model": "LGM Init InputEncoding Observed load load_with_card save",
    "torchlgm.mrf": "MRF energy",
    "torchlgm.ops.backend": "backend",
    "torchlgm.posterior": "Posterior",
    "torchlgm.sklearn": "LGMClassifier LGMImputer",
    "torchlgm.spec": "Conv Dense Graph Layer Local Sparse zoo",
}  # the imports above, by module
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
# modules beside the names
_PARTS = ("cli", "inference", "layout", "model", "mrf", "ops", "posterior", "sklearn", "spec", "testing")


def __getattr__(name: str) -> object:
    if name == "__all__":
        return __dir__()
    home = _HOMES.get(name)
    if home is None and name not in _PARTS:
        raise AttributeError(f"module 'torchlgm' has no attribute '{name}'")
    if home is None or home == "torchlgm":
        return _import_module(f"torchlgm.{name}")
    value = globals()[name] = getattr(_import_module(home), name)
    return value


def __dir__() -> list[str]:
    lacking = {"LGMClassifier", "LGMImputer"} if _find_spec("sklearn") is None else set()
    return sorted(_HOMES.keys() - lacking)
