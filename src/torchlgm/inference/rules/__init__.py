"""WHAT one message is: a rule, and what log Z and edge beliefs are for it. One file for each rule."""

from torchlgm.inference.rules.base import LogZ as LogZ
from torchlgm.inference.rules.base import Message as Message
from torchlgm.inference.rules.base import Outcome as Outcome
from torchlgm.inference.rules.base import Prepared as Prepared
from torchlgm.inference.rules.base import Rule as Rule
from torchlgm.inference.rules.base import cavities as cavities
from torchlgm.inference.rules.base import damped as damped
from torchlgm.inference.rules.belief_propagation import BeliefPropagation as BeliefPropagation
from torchlgm.inference.rules.mean_field import MeanField as MeanField
