"""What a layered graphical model looks like: layers, connections and the graph they form. Holds no tensor."""

from torchlgm.spec.graph import Graph as Graph
from torchlgm.spec.graph import count_edges as count_edges
from torchlgm.spec.graph import count_parameters as count_parameters
from torchlgm.spec.graph import uncovered as uncovered
from torchlgm.spec.parts import Connection as Connection
from torchlgm.spec.parts import Conv as Conv
from torchlgm.spec.parts import Dense as Dense
from torchlgm.spec.parts import Layer as Layer
from torchlgm.spec.parts import Local as Local
from torchlgm.spec.parts import Sparse as Sparse
from torchlgm.spec.parts import Window as Window
from torchlgm.spec.parts import windows as windows
