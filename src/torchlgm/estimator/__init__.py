"""The scikit-learn door: a classifier for tables and images with holes."""

try:
    import sklearn as _sklearn  # noqa: F401
except ImportError as error:
    raise ImportError("LGMClassifier needs scikit-learn: pip install 'torchlgm[sklearn]'") from error

from torchlgm.estimator.classifier import LGMClassifier as LGMClassifier
from torchlgm.estimator.classifier import Uncertainty as Uncertainty
from torchlgm.estimator.columns import Categories as Categories
from torchlgm.estimator.columns import Numbers as Numbers
