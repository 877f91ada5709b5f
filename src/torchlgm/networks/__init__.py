"""Discrete networks of named variables, read from files and other libraries, with posteriors of every variable.

A `Network` comes from tables (`bayesian`), `files` or other libraries (`convert`). What it can be asked is in
`posteriors`, `labellings` (the most probable ones), `learning`, `gain` and `sampling`; `solvers` find the answers.
"""

from torchlgm.networks.bayesian import bayesian_network as bayesian_network
from torchlgm.networks.convert import from_pgmpy as from_pgmpy
from torchlgm.networks.convert import from_pyagrum as from_pyagrum
from torchlgm.networks.files.bif import read_bif as read_bif
from torchlgm.networks.files.bif import write_bif as write_bif
from torchlgm.networks.files.net import read_net as read_net
from torchlgm.networks.files.uai import read_uai as read_uai
from torchlgm.networks.files.uai import read_uai_evidence as read_uai_evidence
from torchlgm.networks.files.uai import write_uai as write_uai
from torchlgm.networks.files.xmlbif import read_xmlbif as read_xmlbif
from torchlgm.networks.gain import acquire as acquire
from torchlgm.networks.labellings import Labellings as Labellings
from torchlgm.networks.learning import Fit as Fit
from torchlgm.networks.network import Network as Network
from torchlgm.networks.network import network_of as network_of
from torchlgm.networks.posteriors import Posteriors as Posteriors
