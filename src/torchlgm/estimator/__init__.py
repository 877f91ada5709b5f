"""The scikit-learn door: a classifier for tables and images with holes."""

# ruff: noqa: E402
from torchlgm.extras import require

require("sklearn", "sklearn")

from torchlgm.estimator.answers import Uncertainty as Uncertainty
from torchlgm.estimator.classifier import LGMClassifier as LGMClassifier
from torchlgm.estimator.columns import Categories as Categories
from torchlgm.estimator.columns import Numbers as Numbers
