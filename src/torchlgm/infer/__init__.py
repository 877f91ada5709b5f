"""WHAT is believed: rules, schedules, plans and the methods made of them."""

from torchlgm.infer.beliefs import Beliefs as Beliefs
from torchlgm.infer.methods import Exact as Exact
from torchlgm.infer.methods import Method as Method
from torchlgm.infer.methods import exact as exact
from torchlgm.infer.methods import lbp as lbp
from torchlgm.infer.methods import mean_field as mean_field
from torchlgm.infer.methods import trw as trw
from torchlgm.infer.query import Bracket as Bracket
from torchlgm.infer.query import bracket as bracket
from torchlgm.infer.query import infer as infer
from torchlgm.infer.query import log_prob as log_prob
from torchlgm.infer.query import sample as sample
from torchlgm.infer.query import solve as solve
from torchlgm.infer.sampling import gibbs as gibbs
