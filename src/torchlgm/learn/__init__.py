"""HOW tables move: objectives, training and saved models."""

from torchlgm.learn.checkpoint import load as load
from torchlgm.learn.checkpoint import load_with_card as load_with_card
from torchlgm.learn.checkpoint import save as save
from torchlgm.learn.objectives import Inputs as Inputs
from torchlgm.learn.objectives import Likelihood as Likelihood
from torchlgm.learn.objectives import Moments as Moments
from torchlgm.learn.objectives import NetworkLikelihood as NetworkLikelihood
from torchlgm.learn.objectives import Objective as Objective
from torchlgm.learn.trainer import Result as Result
from torchlgm.learn.trainer import Settings as Settings
from torchlgm.learn.trainer import fit as fit
from torchlgm.learn.trainer import predict_log_probs as predict_log_probs
