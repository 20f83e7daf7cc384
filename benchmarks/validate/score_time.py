"""Times of steps, predicted from what was seen before, beside what they took."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.validate.reading import Knowledge
from stackscope.analysis.timing.fit import Fit
from stackscope.analysis.timing.shapes import Shape
from stackscope.records import StepRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarks.validate.measuring import Asked
    from benchmarks.validate.reading import Recording, Stretch
    from stackscope.analysis.timing.model import TimeModel
    from stackscope.analysis.whatif.baselines import Roofline

MOST_STEPS: Final = 400
"""Of a block that are predicted: evenly spread, so that a fast engine does not take minutes to score."""


class Predicted(NamedTuple):
    """One step."""

    ns: float
    measured_ns: float
    is_covered: bool
    """The interval of the prediction held what was measured."""

    @property
    def error(self) -> float:
        """Absolute percentage error, as a share."""
        return abs(self.ns / self.measured_ns - 1.0)

    @property
    def log_error(self) -> float:
        return abs(math.log(self.ns / self.measured_ns))


class Foretold(NamedTuple):
    """The steps of a block, predicted."""

    stretch: Stretch
    steps: list[Predicted]


def _taken_ns(step: StepRecord) -> int:
    """How long a step took, without the guessing beside the real work, which is no part of any prediction."""
    return step.duration_ns - step.phases.shadow


def predict(model: TimeModel, steps: Sequence[StepRecord]) -> list[Predicted]:
    """Some of the steps, as the model has them."""
    every = max(1, len(steps) // MOST_STEPS)
    found = []
    for step in steps[::every]:
        if not step.work:
            continue
        shape = Shape.of(step)
        interval = model.interval(shape, n=100)
        taken_ns = _taken_ns(step)
        found.append(Predicted(interval.value, taken_ns, interval.holds(taken_ns)))
    return found


def learned(recording: Recording, stretches: Iterable[Stretch], fit: Fit | None = None) -> Fit:
    """A fit that has seen these stretches and nothing else."""
    found = Fit(recording.header.ceilings, recording.header.other_ceilings) if fit is None else fit
    for stretch in stretches:
        found.begin(stretch.config, stretch.pricing)
        found.add([*stretch.warm_up, *stretch.steps])
    return found


def foretold(fit: Fit, stretch: Stretch) -> list[Predicted]:
    """The steps of a stretch, by a fit that has not seen them. Nothing where it says nothing."""
    fit.begin(stretch.config, stretch.pricing)
    model = fit.model()
    return [] if model is None else predict(model, stretch.steps)


def foretold_blocks(recording: Recording, *parts: Asked) -> list[Foretold]:
    """Some blocks of a session by what others of its blocks taught. Nothing of a session that is not whole."""
    found = []
    for learned_from, blocks in parts:
        if max((*learned_from, *blocks)) >= len(recording.stretches):
            return []
        fit = learned(recording, [recording.stretches[number] for number in learned_from])
        stretches = [recording.stretches[number] for number in blocks]
        found += [Foretold(stretch, foretold(fit, stretch)) for stretch in stretches]
    return found


def across(recordings: Sequence[Recording], held_out: Recording) -> list[Predicted]:
    """The last block of a session by what other sessions on the same machine taught, its own first block unseen."""
    fit: Fit | None = None
    for recording in recordings:
        fit = learned(recording, recording.stretches, fit)
    return [] if fit is None else foretold(fit, held_out.stretches[-1])


def after_changes(recording: Recording, names: frozenset[str]) -> list[Predicted]:
    """The steps after the first change of only these settings, by what was known before it."""
    knowledge = Knowledge(recording.header)
    seen = iter(recording.records)
    for stretch in recording.stretches:
        if not stretch.changes or not stretch.changes.keys() <= names:
            continue
        for record in seen:
            if isinstance(record, StepRecord) and record.start_ns >= stretch.begins_ns:
                break
            knowledge.write(record)
        model = knowledge.fit.model()
        if model is None or stretch.config is None:
            return []
        # Whatever the fit knows of that configuration by now is for `under` to use; no step of it was seen.
        derived = model.under(stretch.config, stretch.pricing)
        return [] if isinstance(derived, str) else predict(derived, stretch.steps)
    return []


def by_roofline(steps: Sequence[StepRecord], roof: Roofline) -> list[Predicted]:
    """A roofline's times of the same steps."""
    every = max(1, len(steps) // MOST_STEPS)
    return [Predicted(roof.terms(Shape.of(s)).total, _taken_ns(s), False) for s in steps[::every] if s.work]
