"""Pictures: each function takes plain tensors or records and returns a matplotlib Figure; `save` writes it."""

from torchlgm.viz.bars import acquisition_curves as acquisition_curves
from torchlgm.viz.bars import evidence_shares as evidence_shares
from torchlgm.viz.bars import gain_bars as gain_bars
from torchlgm.viz.canvas import save as save
from torchlgm.viz.charts import beliefs_by_iteration as beliefs_by_iteration
from torchlgm.viz.charts import confusion_matrix as confusion_matrix
from torchlgm.viz.charts import learning_curves as learning_curves
from torchlgm.viz.charts import visible_share as visible_share
from torchlgm.viz.graphs import draw_graph as draw_graph
from torchlgm.viz.images import class_evidence as class_evidence
from torchlgm.viz.images import filled_images as filled_images
from torchlgm.viz.images import hidden_responses as hidden_responses
from torchlgm.viz.images import image_rows as image_rows
from torchlgm.viz.images import uncertain_samples as uncertain_samples
from torchlgm.viz.networks import draw_network as draw_network
from torchlgm.viz.reliability import reliability_diagram as reliability_diagram
from torchlgm.viz.tables import energy_tables as energy_tables
