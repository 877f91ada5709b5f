"""What a layered graphical model looks like: layers, connections and the graph they form. Holds no tensor."""

from torchlgm.spec import zoo as zoo
from torchlgm.spec.connection import Connection as Connection
from torchlgm.spec.connection import Edge as Edge
from torchlgm.spec.connection import register as register
from torchlgm.spec.dense import Dense as Dense
from torchlgm.spec.graph import Graph as Graph
from torchlgm.spec.graph import uncovered as uncovered
from torchlgm.spec.layer import Layer as Layer
from torchlgm.spec.sparse import Sparse as Sparse
from torchlgm.spec.window import Conv as Conv
from torchlgm.spec.window import Local as Local
from torchlgm.spec.window import Neighbour as Neighbour
from torchlgm.spec.window import Window as Window
