"""WHAT is learned: the energy tables of a graph, and how evidence turns them into an MRF."""

from torchlgm.model.evidence import Observed as Observed
from torchlgm.model.evidence import encode as encode
from torchlgm.model.init import Init as Init
from torchlgm.model.lgm import LGM as LGM
