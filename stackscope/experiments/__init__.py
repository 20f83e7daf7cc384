"""Experiments: what runs the engine, or parts of it, in order to learn something."""
