"""Experiments with torchlgm that are no part of it; `pool` runs their trainings, and those of `benchmarks`."""
