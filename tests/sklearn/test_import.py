"""`LGMClassifier` is imported where scikit-learn is installed; elsewhere the error says what to install."""

import numpy as np
import pytest

import torchlgm
from helpers.processes import run_code


def test_without_scikit_learn_the_package_imports_and_the_error_says_what_to_install():
    done = run_code("import sys; sys.modules['sklearn'] = None; import torchlgm; torchlgm.LGM; torchlgm.LGMClassifier")
    assert done.returncode == 1
    said = done.stderr.splitlines()[-1]
    assert said.startswith("torchlgm.errors.MissingExtraError: this needs sklearn")
    assert said.endswith("pip install 'torchlgm[sklearn]'")


def test_other_names_are_still_unknown():
    assert torchlgm.LGMClassifier.__name__ == "LGMClassifier"
    with pytest.raises(AttributeError, match="no attribute 'LGMRegressor'"):
        torchlgm.LGMRegressor  # noqa: B018


def test_the_default_dtype_of_torch_does_not_matter():
    """These tests run in float64; the model is trained in float32 and asked in float64 all the same."""
    X = np.arange(12.0).reshape(6, 2)
    model = torchlgm.LGMClassifier(epochs=2, hidden=2, random_state=0).fit(X, [0, 1] * 3)
    assert {str(p.dtype) for p in model.model_.parameters()} == {"torch.float32"}
    assert model.predict_proba(X).dtype == np.float64
