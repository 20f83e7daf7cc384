"""Lessons: claims of the field, each staged on this machine, predicted, measured, and judged by what came out."""
