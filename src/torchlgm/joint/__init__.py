"""Questions beside the class: what to measure next, any column, which entries look wrong, and why."""

from torchlgm.joint import explain as explain
from torchlgm.joint.columns import LeftOut as LeftOut
from torchlgm.joint.columns import leave_one_out as leave_one_out
from torchlgm.joint.columns import predict_column as predict_column
from torchlgm.joint.conditionals import Conditionals as Conditionals
from torchlgm.joint.draws import Draws as Draws
from torchlgm.joint.draws import draw_completions as draw_completions
from torchlgm.joint.gain import acquire as acquire
from torchlgm.joint.likelihood import LogProb as LogProb
from torchlgm.joint.likelihood import log_prob_of_seen as log_prob_of_seen
from torchlgm.joint.mixed import MixedStars as MixedStars
from torchlgm.joint.policy import Acquisition as Acquisition
from torchlgm.joint.policy import AcquisitionRun as AcquisitionRun
from torchlgm.joint.policy import asked_for as asked_for
from torchlgm.joint.sets import CalibrationRows as CalibrationRows
from torchlgm.joint.sets import Coverage as Coverage
from torchlgm.joint.sets import predict_set as predict_set
from torchlgm.joint.sets import predict_sets as predict_sets
from torchlgm.joint.shapley import Attribution as Attribution
from torchlgm.joint.shapley import shapley as shapley
from torchlgm.joint.star import conditionals_of as conditionals_of
