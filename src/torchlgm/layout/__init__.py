"""WHERE edges are: every connection is a layout with `gather` (nodes to edges) and `scatter`, its exact adjoint."""

from torchlgm.layout.base import LEFT as LEFT
from torchlgm.layout.base import RIGHT as RIGHT
from torchlgm.layout.base import Layout as Layout
from torchlgm.layout.base import edge_list as edge_list
from torchlgm.layout.dense import CliqueLayout as CliqueLayout
from torchlgm.layout.dense import DenseLayout as DenseLayout
from torchlgm.layout.lateral import TurnedLayout as TurnedLayout
from torchlgm.layout.lateral import colour as colour
from torchlgm.layout.lateral import colour_masks as colour_masks
from torchlgm.layout.rho import appearance as appearance
from torchlgm.layout.rho import child_probabilities as child_probabilities
from torchlgm.layout.sparse import SparseLayout as SparseLayout
from torchlgm.layout.window import NeighbourLayout as NeighbourLayout
from torchlgm.layout.window import WindowLayout as WindowLayout
