"""What the namer says of recordings whose causes it does not know, beside what simpler namers say."""

from __future__ import annotations

import math
from collections import Counter
from statistics import fmean, variance
from typing import TYPE_CHECKING, Final, NamedTuple

from scipy import stats

from benchmarks.validate.figures import HEALTHY, Named
from benchmarks.validate.scenarios import NATURAL
from stackscope.analysis.diagnosis.follower import namings
from stackscope.records import StepRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.validate.reading import Recording, Stretch
    from benchmarks.validate.scenarios import Scenario
    from stackscope.records import AnyRecord, Cause

LOOK_NS: Final = 500_000_000
"""How often the live screen asks."""
PIECE_NS: Final = 400_000_000
"""Of a block, for how its speed strays."""
LEAST_PIECES: Final = 4
LEAST_SHARE: Final = 0.10
"""Of the time, that a fault has to take before it has to be named: the lead that a name needs."""
JUDGED_NS: Final = 2_500_000_000
"""The last part of a recording, whose names count."""


class Verdict(NamedTuple):
    """What was named in the end, and how much time it was said to take."""

    name: Cause | None
    share: float | None


def named(records: Sequence[AnyRecord], ends_ns: int | None = None) -> Verdict:
    """The name that stood longest in the last seconds before an instant, which is all that is looked at. `None`: before
    the end."""
    if ends_ns is None:
        ends_ns = max((record.end_ns for record in records if isinstance(record, StepRecord)), default=0)
    late = [one for one in namings(records, LOOK_NS) if ends_ns - JUDGED_NS <= one.at_ns <= ends_ns]
    if not late:
        return Verdict(None, None)
    name = Counter(one.name for one in late).most_common(1)[0][0]
    return Verdict(name, next(one.share for one in reversed(late) if one.name == name))


def verdict(scenario: Scenario, recording: Recording) -> Verdict:
    """What was named at the end of the block that the scenario is about."""
    if len(recording.stretches) != len(scenario.blocks):
        return named(recording.records)
    return named(recording.records, recording.stretches[scenario.fault_block].ends_ns)


def judged(scenario: Scenario, name: Cause | None) -> Named:
    """A name beside the truth. Names that are natural for any engine count as healthy where they are not the truth."""
    truth = HEALTHY if scenario.cause is None else scenario.cause
    if name is not None and (name == scenario.cause or name in scenario.also_right):
        return Named(truth, truth)
    return Named(truth, HEALTHY if name is None or name in NATURAL else name)


def slow_down(scenario: Scenario, recording: Recording) -> float | None:
    """Speed without ÷ speed with the fault. `None`: there is no control, or nothing ran in it."""
    controls, affected = _apart(scenario, recording)
    speeds = [control.tokens_per_s for control in controls]
    known = [speed for speed in speeds if speed]
    if affected is None or not affected.tokens_per_s or not known or len(known) < len(speeds):
        return None
    return math.exp(fmean(map(math.log, known))) / affected.tokens_per_s


def _apart(scenario: Scenario, recording: Recording) -> tuple[list[Stretch], Stretch | None]:
    """The blocks without the fault, and the one with it."""
    blocks = recording.stretches
    if not scenario.has_control or len(blocks) < 2:
        return [], None
    number = range(len(scenario.blocks))[scenario.fault_block]
    if number >= len(blocks):
        return [], None
    return [one for one in blocks if one.number != number], blocks[number]


def did_too_little(scenario: Scenario, recording: Recording) -> bool:
    """Whether the control shows that the fault took less than a tenth of the time, which no name needs: the whole
    interval of 95 % of what it slowed decoding down by lies below. Without a control nothing shows it."""
    controls, affected = _apart(scenario, recording)
    if affected is None or scenario.cause is None:
        return False
    without, under = [one for block in controls for one in _log_speeds(block)], _log_speeds(affected)
    if min(len(without), len(under)) < LEAST_PIECES:
        return False
    error = math.sqrt(sum(variance(some) / len(some) for some in (without, under)))
    reach = float(stats.t.ppf(0.975, min(len(without), len(under)) - 1)) * error
    return fmean(without) - fmean(under) + reach < -math.log(1.0 - LEAST_SHARE)


def _log_speeds(stretch: Stretch) -> list[float]:
    """Logarithms of tokens per time of steps without prompts, in pieces of a block: prompts fall into few of them."""
    found: list[float] = []
    spent_ns = tokens = 0
    for step in stretch.steps:
        if any(work.phase == "prefill" for work in step.work):
            continue
        spent_ns, tokens = spent_ns + step.duration_ns, tokens + step.emitted
        if spent_ns >= PIECE_NS:
            if tokens > 0:
                found.append(math.log(tokens / spent_ns))
            spent_ns = tokens = 0
    return found


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
