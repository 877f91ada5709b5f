"""What the tests of networks share."""

import pytest

import torchlgm as lgm


@pytest.fixture(params=["native", "eager"])
def backend(request):
    with lgm.backend(request.param):
        yield request.param
