import pytest


@pytest.fixture(autouse=True)
def _as_a_user(single_precision):
    """All data tests run in float32."""
