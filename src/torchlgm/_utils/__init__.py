"""Helpers that know nothing of graphical models."""
