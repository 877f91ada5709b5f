"""The paper's architectures, deeper ones, and classical models that are layered graphical models, as graphs."""

from torchlgm.spec.zoo.classical import classification_rbm as classification_rbm
from torchlgm.spec.zoo.classical import conditional_rbm as conditional_rbm
from torchlgm.spec.zoo.classical import deep_boltzmann_machine as deep_boltzmann_machine
from torchlgm.spec.zoo.classical import grid as grid
from torchlgm.spec.zoo.classical import grid_crf as grid_crf
from torchlgm.spec.zoo.classical import linear_crf as linear_crf
from torchlgm.spec.zoo.classical import rbm as rbm
from torchlgm.spec.zoo.classical import semi_restricted_bm as semi_restricted_bm
from torchlgm.spec.zoo.paper import Windows as Windows
from torchlgm.spec.zoo.paper import dense as dense
from torchlgm.spec.zoo.paper import windows as windows
from torchlgm.spec.zoo.paper import windows_for as windows_for
from torchlgm.spec.zoo.towers import Stage as Stage
from torchlgm.spec.zoo.towers import tower as tower
