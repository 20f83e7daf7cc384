"""What the namer says of recordings whose causes it does not know, beside what simpler namers say."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.validate.figures import HEALTHY, Named
from benchmarks.validate.scenarios import NATURAL
from stackscope.analysis.diagnosis.follower import namings
from stackscope.records import StepRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.validate.reading import Recording
    from benchmarks.validate.scenarios import Scenario
    from stackscope.records import AnyRecord, Cause

LOOK_NS: Final = 500_000_000
"""How often the live screen asks."""
JUDGED_NS: Final = 2_500_000_000
"""The last part of a recording, whose names count."""


class Verdict(NamedTuple):
    """What was named in the end, and how much time it was said to take."""

    name: Cause | None
    share: float | None


def named(records: Sequence[AnyRecord]) -> Verdict:
    """The name that stood longest in the last seconds of a recording, which is all that is looked at."""
    ends_ns = max((record.end_ns for record in records if isinstance(record, StepRecord)), default=0)
    late = [one for one in namings(records, LOOK_NS) if ends_ns - JUDGED_NS <= one.at_ns <= ends_ns]
    if not late:
        return Verdict(None, None)
    name = Counter(one.name for one in late).most_common(1)[0][0]
    return Verdict(name, next(one.share for one in reversed(late) if one.name == name))


def judged(scenario: Scenario, name: Cause | None) -> Named:
    """A name beside the truth. Names that are natural for any engine count as healthy where they are not the truth."""
    truth = HEALTHY if scenario.cause is None else scenario.cause
    if name is not None and (name == scenario.cause or name in scenario.also_right):
        return Named(truth, truth)
    return Named(truth, HEALTHY if name is None or name in NATURAL else name)


def slow_down(recording: Recording) -> float | None:
    """Speed before ÷ speed with the fault. `None`: there is no block without it."""
    if len(recording.stretches) < 2:
        return None
    before, after = recording.stretches[0].tokens_per_s, recording.stretches[-1].tokens_per_s
    return before / after if before and after else None


def always_memory(_: Recording) -> Cause:
    """The namer that knows one name."""
    return "weight bandwidth"


def largest_phase(recording: Recording) -> Cause:
    """The namer that looks at phase shares alone."""
    steps = recording.stretches[-1].steps if recording.stretches else []
    parts = _parts(steps)
    return max(parts, key=lambda cause: parts[cause])


def _parts(steps: Sequence[StepRecord]) -> dict[Cause, int]:
    parts: Counter[Cause] = Counter({"weight bandwidth": 0})
    for step in steps:
        spent = step.phases
        is_prompt = any(work.phase == "prefill" for work in step.work)
        parts["prefill interference" if is_prompt else "weight bandwidth"] += spent.decode
        parts["draft overhead"] += spent.draft
        parts["sampling"] += spent.sample
        parts["host scheduling"] += spent.admit + spent.build + spent.commit + spent.emit + spent.other
    return dict(parts)
