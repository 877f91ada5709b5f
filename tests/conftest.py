"""Strict and repeatable: float64, one thread, fixed seeds."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import hypothesis
import torch

from helpers.covering import pytest_collection_modifyitems
from helpers.fixtures import _repeatable, images, single_precision, without

torch.set_num_threads(1)
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=25)
hypothesis.settings.load_profile("repeatable")
