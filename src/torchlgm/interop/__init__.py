"""Fitting in: models out to other runtimes, models in from other libraries, and models inside of theirs.

`torchlgm.interop.lightning` and `torchlgm.interop.hub` need their extras and are imported by name.
"""

from torchlgm.interop.exporters import Exported as Exported
from torchlgm.interop.exporters import Scaling as Scaling
from torchlgm.interop.exporters import export as export
from torchlgm.interop.head import Head as Head
from torchlgm.interop.networks import Network as Network
from torchlgm.interop.networks import Posteriors as Posteriors
from torchlgm.interop.networks import from_pgmpy as from_pgmpy
from torchlgm.interop.networks import from_pyagrum as from_pyagrum
from torchlgm.interop.networks import network_of as network_of
from torchlgm.interop.networks import read_bif as read_bif
from torchlgm.interop.networks import read_uai as read_uai
from torchlgm.interop.networks import read_uai_evidence as read_uai_evidence
from torchlgm.interop.networks import write_uai as write_uai
from torchlgm.interop.rbm import from_bernoulli_rbm as from_bernoulli_rbm
