"""The time model over a sample of a session's steps: where it sees the time of the target's forward go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from stackscope.analysis.comparing.digest import TermTimes
from stackscope.analysis.timing.fit import Fit
from stackscope.analysis.timing.shapes import Shape
from stackscope.analysis.timing.terms import Terms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.analysis.ledgers import Pricing
    from stackscope.records import Ceilings, Header, StepRecord
    from stackscope.toggles import EngineConfig

FORWARD_TERMS: Final = ("weights", "head", "compute", "attention", "resident", "fixed")

_MOST: Final = 1024
"""Steps whose terms are averaged: every so-manyth of all, so that none of the session's times is left out."""

_FITTED: Final = 8192
"""Steps from the beginning that the model is fitted to in full, one after the other."""
_EVERY: Final = 16
"""Of what comes after them, one stretch in so many is: a fit takes a few microseconds per step."""


_BEFORE: Final = "(stackscope calibrate before recording)"
"""A recording has the ceilings of when it began: nothing that is done later helps it."""


class TermSample:
    """Fits the time model to the steps of a session, and keeps a thinned sample of them."""

    def __init__(self, header: Header) -> None:
        self._fit = Fit.of(header)
        self._why = "" if header.ceilings is not None else _why_none(header.other_ceilings)
        self._epochs: set[int] = set()
        self._kept: list[tuple[Shape, int]] = []
        self._stride = 1
        self._n_stretches = self._n_steps = 0

    def add(self, epoch: int, steps: Sequence[StepRecord], config: EngineConfig | None, pricing: Pricing) -> None:
        """Take a stretch of steps of one configuration."""
        if self._why:
            return
        if epoch not in self._epochs:
            self._epochs.add(epoch)
            self._fit.begin(config, pricing)
        if len(self._epochs) > 1:
            self._why = "there was more than one configuration"
            return
        self._n_stretches += 1
        if self._n_steps < _FITTED or self._n_stretches % _EVERY == 0:
            self._fit.add(steps)
        for step in steps[-self._n_steps % self._stride :: self._stride]:
            if step.work and not step.aborted and step.delay is None:
                self._kept.append((Shape.of(step), step.phases.decode))
        self._n_steps += len(steps)
        while len(self._kept) > 2 * _MOST:
            self._kept = self._kept[::2]
            self._stride *= 2

    def times(self) -> TermTimes | str:
        """The mean terms of the sample, or why there are none."""
        if self._why:
            return self._why
        if not self._kept:
            return "no forward ran to its end"
        model = self._fit.model()
        if model is None or not model.is_calibrated:
            return "the machine had been calibrated for another configuration"
        step = max(1, len(self._kept) // _MOST)
        sample = self._kept[::step]
        found = np.array([model.terms(shape) for shape, _ in sample])
        means = dict(zip(Terms._fields, found.mean(axis=0).tolist(), strict=True))
        terms = {name: means[name] for name in FORWARD_TERMS}
        measured = float(np.mean([ns for _, ns in sample]))
        return TermTimes(terms, sum(terms.values()), measured, len(sample))


def _why_none(others: Sequence[Ceilings]) -> str:
    """Why there was no calibration of the session's configuration when it began; `others` are those of the machine."""
    if not others:
        return f"the machine had not been calibrated {_BEFORE}"
    busy = ", and while it was busy" if all(one.is_busy for one in others) else ""
    return f"the machine had been calibrated for other configurations only{busy} {_BEFORE}"
