"""Strict and repeatable: float64, one thread, fixed seeds."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import hypothesis
import pytest
import torch

torch.set_num_threads(1)
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=25)
hypothesis.settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def _repeatable():
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def single_precision(_repeatable):
    """float32, as a user would have it; modules about data and training ask for it by pytestmark."""
    torch.set_default_dtype(torch.float32)
