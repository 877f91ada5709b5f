"""WHAT is learned: the energy tables of a graph, and how evidence turns them into an MRF."""

from torchlgm.model.encoding import Encoding as Encoding
from torchlgm.model.encoding import InputEncoding as InputEncoding
from torchlgm.model.evidence import Observed as Observed
from torchlgm.model.evidence import encode as encode
from torchlgm.model.init import Init as Init
from torchlgm.model.io import CARD as CARD
from torchlgm.model.io import GRAPH as GRAPH
from torchlgm.model.io import WEIGHTS as WEIGHTS
from torchlgm.model.io import load as load
from torchlgm.model.io import load_members as load_members
from torchlgm.model.io import load_with_card as load_with_card
from torchlgm.model.io import save as save
from torchlgm.model.lgm import LGM as LGM
from torchlgm.model.parameters import require_finite_all as require_finite_all
from torchlgm.model.parameters import wrong_energies as wrong_energies
