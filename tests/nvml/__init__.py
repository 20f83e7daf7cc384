"""Readings of GPUs through the real binding, against a driver's library that a scenario describes."""
