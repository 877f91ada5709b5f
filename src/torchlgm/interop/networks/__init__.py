"""Discrete networks of named variables: from files and other libraries, and what is believed about every variable."""

from torchlgm.interop.networks.bif import read_bif as read_bif
from torchlgm.interop.networks.convert import from_pgmpy as from_pgmpy
from torchlgm.interop.networks.convert import from_pyagrum as from_pyagrum
from torchlgm.interop.networks.network import Network as Network
from torchlgm.interop.networks.network import network_of as network_of
from torchlgm.interop.networks.posteriors import Posteriors as Posteriors
from torchlgm.interop.networks.uai import read_uai as read_uai
from torchlgm.interop.networks.uai import read_uai_evidence as read_uai_evidence
from torchlgm.interop.networks.uai import write_uai as write_uai
