"""Steps that stalled: a process that was stopped, a machine that was suspended, a disk that did not answer.

Whatever slows a machine by so much slows more than one step. So a step counts as stalled if it took many times what a
step of its kind takes at the pace of the others; by the time model where there is one, else by rows. Its whole time is
unexplained, and nothing that it measured enters any figure.
"""

from __future__ import annotations

from statistics import median_low
from typing import TYPE_CHECKING, Final, TypeVar

from stackscope import units
from stackscope.analysis.diagnosis.evidence import Stall
from stackscope.analysis.diagnosis.predicted import sampled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from stackscope.analysis.diagnosis.predicted import Sample
    from stackscope.records import StepRecord

T = TypeVar("T")

LEAST_NS: Final = 1_000_000_000
"""What is shorter is no stall: a window of seconds bears it."""
TIMES: Final = 20.0
"""Times as long as at the pace of the other steps. Prompts whose cost the model has not learned yet stay below it."""
MOST_OTHERS: Final = 16
"""Steps of either kind that the pace is taken from."""


def is_suspect(step: StepRecord, end_ns: int) -> bool:
    """A step that ended then is long enough for a stall, and ran a forward to its end."""
    return end_ns - step.start_ns >= LEAST_NS and bool(step.work) and not step.aborted


def find(
    suspects: Sequence[Sample], others: Sequence[Sample], predict: Callable[[Sample], float] | None
) -> dict[int, Stall]:
    """Those of the steps of `LEAST_NS` or more that stalled, by number.

    `others` are shorter steps of the same seconds. `predict` gives the nanoseconds of a step on a calm machine. `None`:
    there is no model.
    """
    known = [*_some(suspects), *_some(others)]
    predicted = None if predict is None else {one.n: max(1.0, predict(one)) for one in (*suspects, *known)}
    found = {}
    for one in suspects:
        rest = [other for other in known if other.n != one.n]
        usual = _by_rows(one, rest) if predicted is None else _by_model(one, rest, predicted)
        if usual is not None and one.duration_ns >= TIMES * usual:
            found[one.n] = Stall(one.n, one.duration_ns, usual)
    return found


def running(steps: Sequence[StepRecord]) -> list[StepRecord]:
    """Steps but for those that stalled, by their rows."""
    suspects = [sampled(step) for step in steps if step.duration_ns >= LEAST_NS and is_suspect(step, step.end_ns)]
    if not suspects:
        return list(steps)
    others = [sampled(step) for step in _some(steps) if step.work and step.duration_ns < LEAST_NS]
    found = find(suspects, others, None)
    return [step for step in steps if step.n not in found]


def _some(every: Sequence[T]) -> Sequence[T]:
    return every[:: -(-len(every) // MOST_OTHERS)] if every else ()


def _by_model(one: Sample, rest: Sequence[Sample], predicted: Mapping[int, float]) -> float:
    """What it would have taken at the pace of the rest: of two middle ones, the faster. Without a rest, when calm."""
    paces = [other.duration_ns / predicted[other.n] for other in rest]
    return predicted[one.n] * max(1.0, median_low(paces) if paces else 1.0)


def _by_rows(one: Sample, rest: Sequence[Sample]) -> float | None:
    """The most that such a step may take by the others, if all of a step's time were for its rows. `None`: no rest."""
    if not rest:
        return None
    rows = median_low([other.shape.rows for other in rest])
    return median_low([other.duration_ns for other in rest]) * max(1.0, one.shape.rows / max(1, rows))


def sentence(stalls: Sequence[Stall], n: int | None = None) -> str | None:
    """What stalls were, in words. `n`: how many, where not all are given. `None`: there were none."""
    if not stalls:
        return None
    longest = max(stalls, key=lambda stall: stall.duration_ns)
    took, usual = units.duration(longest.duration_ns), units.duration(longest.usual_ns)
    n = len(stalls) if n is None else n
    what = f"a step stalled: it took {took}" if n == 1 else (
        f"{units.counted(n, 'step')} stalled, one for {took}"
    )  # fmt: skip
    return (
        f"{what} where {usual} is usual, as when the process is stopped, the machine suspended or a disk slow; "
        "its time is unexplained"
    )
