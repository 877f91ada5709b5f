"""The scikit-learn estimators: a classifier and an imputer for tables and images with missing entries."""

# ruff: noqa: E402
from torchlgm._utils.optional import import_optional

import_optional("sklearn", "sklearn")

from torchlgm.sklearn.classifier import LGMClassifier as LGMClassifier
from torchlgm.sklearn.columns import Categories as Categories
from torchlgm.sklearn.columns import Numbers as Numbers
from torchlgm.sklearn.explanation import Explanation as Explanation
from torchlgm.sklearn.explanation import Explanations as Explanations
from torchlgm.sklearn.explanation import Share as Share
from torchlgm.sklearn.imputer import LGMImputer as LGMImputer
from torchlgm.sklearn.joint import Cell as Cell
from torchlgm.sklearn.joint import Completions as Completions
from torchlgm.sklearn.prediction import Uncertainty as Uncertainty
from torchlgm.sklearn.reading import in_days as in_days
