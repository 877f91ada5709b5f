"""WHAT is believed: rules, schedules, plans and the methods made of them."""

from torchlgm.inference.beliefs import Beliefs as Beliefs
from torchlgm.inference.methods import BELIEF_SCHEDULES as BELIEF_SCHEDULES
from torchlgm.inference.methods import METHODS as METHODS
from torchlgm.inference.methods import SCHEDULES as SCHEDULES
from torchlgm.inference.methods import Exact as Exact
from torchlgm.inference.methods import Method as Method
from torchlgm.inference.methods import exact as exact
from torchlgm.inference.methods import lbp as lbp
from torchlgm.inference.methods import mean_field as mean_field
from torchlgm.inference.methods import trw as trw
from torchlgm.inference.query import Bracket as Bracket
from torchlgm.inference.query import bracket as bracket
from torchlgm.inference.query import infer as infer
from torchlgm.inference.query import log_prob as log_prob
from torchlgm.inference.query import sample as sample
from torchlgm.inference.query import solve as solve
from torchlgm.inference.sampling import gibbs as gibbs
from torchlgm.inference.star import Star as Star
from torchlgm.inference.star import star_layers as star_layers
