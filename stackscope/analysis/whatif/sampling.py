"""From recent steps to a small sample that stands for them, and the sums that go with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from stackscope.analysis.diagnosis.stalls import running
from stackscope.analysis.timing.shapes import Shape
from stackscope.analysis.whatif.working_point import Chunk, Decoding, Round

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stackscope.records import StepRecord

MOST_DECODING: Final = 6
"""Rounds that stand for the steps without prompts."""
MOST_MIXED: Final = 4
"""Rounds that stand for the steps with prompts. Together they are timed for some sixty configurations every few
seconds, which has to stay within 150 ms."""


class Sample(msgspec.Struct):
    """What steps amount to."""

    n_forwards: int
    figures: dict[str, Any]
    """Fields of a `WorkingPoint`."""


class _Prompt(msgspec.Struct):
    """What is seen of one request's prefill."""

    found: int
    computed: int = 0


def sample(steps: Sequence[StepRecord], block_tokens: int) -> Sample:
    """A stratified sample of steps under one configuration, the same for the same steps, and their sums.

    Steps are put in the order of what they cost by, and cut into parts of equal size; the middle one of each stands for
    it. Where requests begin or end outside the steps, what is seen of their prompts is taken for all of them.
    Steps that stalled, or were delayed to probe a cause, count for the prompts that they computed and nothing else.
    `block_tokens`: of the prefix cache.
    """
    prompts = _prompts(steps)
    steps = running([step for step in steps if step.delay is None])
    plain: list[StepRecord] = []
    mixed: list[StepRecord] = []
    for step in steps:
        if step.work:
            (mixed if any(w.phase == "prefill" for w in step.work) else plain).append(step)
    rounds = _drawn(plain, MOST_DECODING, _plain_cost, prompts) + _drawn(mixed, MOST_MIXED, _mixed_cost, prompts)
    return Sample(len(plain) + len(mixed), {"rounds": tuple(rounds), **_sums(steps, block_tokens)})


def _prompts(steps: Sequence[StepRecord]) -> dict[int, _Prompt]:
    prompts: dict[int, _Prompt] = {}
    for step in steps:
        for work in step.work:
            if work.phase == "prefill":
                known = prompts.get(work.request)
                if known is None:
                    known = prompts[work.request] = _Prompt(work.cached)
                known.computed += work.new
    return prompts


def _drawn(
    steps: list[StepRecord],
    most: int,
    cost: Callable[[StepRecord], tuple[int, int, int]],
    prompts: dict[int, _Prompt],
) -> list[Round]:
    steps = sorted(steps, key=cost)
    n = min(most, len(steps))
    rounds = []
    for i in range(n):
        part = steps[i * len(steps) // n : (i + 1) * len(steps) // n]
        rounds.append(_round(part[len(part) // 2], part, prompts))
    return rounds


def _plain_cost(step: StepRecord) -> tuple[int, int, int]:
    return (len(step.work), step.rows, sum([w.cached for w in step.work]))


def _mixed_cost(step: StepRecord) -> tuple[int, int, int]:
    return (_prompt_rows(step), len(step.work), sum([w.cached for w in step.work]))


def _prompt_rows(step: StepRecord) -> int:
    return sum([w.new for w in step.work if w.phase == "prefill"])


def _round(middle: StepRecord, part: list[StepRecord], prompts: dict[int, _Prompt]) -> Round:
    """`middle`, standing for `part`."""
    chunks = []
    for work in middle.work:
        if work.phase == "prefill" and work.new > 0:  # Damaged recordings have prompts without rows.
            prompt = prompts[work.request]
            chunks.append(Chunk(work.cached, work.new, max(prompt.computed, work.new), prompt.found, work.slot))
    rows = _prompt_rows(middle)
    decoding = [Decoding(w.cached, w.drafted, w.slot) for w in middle.work if w.phase != "prefill"]
    return Round(
        Shape.of(middle),
        tuple(decoding),
        tuple(chunks),
        sum([w.outputs for w in middle.work if w.phase == "prefill"]),
        float(len(part)),
        sum([_prompt_rows(step) for step in part]) / rows if rows > 0 else float(len(part)),
    )


def _sums(steps: Sequence[StepRecord], block_tokens: int) -> dict[str, Any]:
    busy = idle = busy_slots = queue = tokens = decode_tokens = pairs = computed = found = 0
    verified = whole = resident = drafted = 0
    gap_ns = 0
    last_n, last_ns = -1, 0
    for step in steps:
        duration = step.duration_ns
        if step.n == last_n + 1:
            idle += max(step.start_ns - last_ns, 0)
        last_n, last_ns = step.n, step.start_ns + duration
        busy += duration
        busy_slots += step.slots_busy * duration
        queue += step.queue * duration
        cache = step.cache
        found += cache.hit_tokens
        resident = max(resident, cache.resident_blocks)
        for work in step.work:
            tokens += work.emitted
            if work.phase == "prefill":
                computed += work.new
                continue
            pairs += 1
            decode_tokens += work.emitted
            gap_ns += duration
            drafted += work.drafted
            if work.drafted > 0:
                verified += 1
                whole += work.accepted >= work.drafted
    wall = busy + idle
    return {
        "tokens_per_round": decode_tokens / pairs if pairs > 0 else None,
        "drafted_per_round": drafted / pairs if pairs > 0 else None,
        "full_share": whole / verified if verified > 0 else 0.0,
        "n_steps": len(steps),
        "wall_ns": wall,
        "idle_share": idle / wall if wall > 0 else 0.0,
        "tokens_per_s": tokens / wall * 1e9 if wall > 0 else None,
        "slots_busy": busy_slots / busy if busy > 0 and any(step.slots > 0 for step in steps) else None,
        "queue": queue / busy if busy > 0 else None,
        "computed_per_token": computed / tokens if tokens > 0 else None,
        "demanded_per_token": (computed + found) / tokens if tokens > 0 else None,
        "gap_ns": gap_ns / pairs if pairs > 0 else None,
        "most_resident": resident * block_tokens,
    }
