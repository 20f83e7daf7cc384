"""What a stretch of the session amounts to: from sums to the window and the point that are shown.

The definitions are those of `metrics`: the sums of a window go through the same classes that sum up a finished run.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, TypeVar

from stackscope.analysis.live.snapshot import PARTS, Part, Point, Window
from stackscope.analysis.metrics.base import Figures, ratio
from stackscope.analysis.metrics.load import (
    HitRate,
    InputRate,
    Occupancy,
    OutputRate,
    QueueDepth,
    UsefulHitRate,
)
from stackscope.analysis.metrics.speculation import (
    AcceptanceByPosition,
    AcceptanceRate,
    Coverage,
    DraftedTokens,
    TokensPerForward,
    WastedRows,
    WastedRowShare,
)
from stackscope.analysis.metrics.time import CpuShare
from stackscope.analysis.totals import EventTotals, RequestTotals, StepTotals

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stackscope.analysis.live.sums import Sums
    from stackscope.analysis.metrics.base import Metric, Need

T = TypeVar("T")

_NO_REQUESTS: Final = RequestTotals()
_NO_EVENTS: Final = EventTotals()
_TOKENS_PER_FORWARD: Final = TokensPerForward()
_COVERAGE: Final = Coverage()
_ACCEPTANCE: Final = AcceptanceRate()
_BY_POSITION: Final = AcceptanceByPosition()
_DRAFTED: Final = DraftedTokens()
_WASTED_ROWS: Final = WastedRows()
_WASTED_SHARE: Final = WastedRowShare()
_OUTPUT_RATE: Final = OutputRate()
_INPUT_RATE: Final = InputRate()
_HIT_RATE: Final = HitRate()
_USEFUL_HIT_RATE: Final = UsefulHitRate()
_OCCUPANCY: Final = Occupancy()
_QUEUE: Final = QueueDepth()
_CPU_SHARE: Final = CpuShare()


def figures(sums: Sums, verifications: Mapping[tuple[int, int, int], int]) -> Figures:
    """The sums as the metrics of steps take them. Distributions are empty and peaks left out."""
    steps = StepTotals()
    steps.steps = round(sums.steps)
    time, work, cache, load = steps.time, steps.work, steps.cache, steps.load
    time.busy_ns, time.idle_ns = round(sums.busy_ns), round(sums.idle_ns)
    time.cpu_ns, time.thread_ns = round(sums.cpu_ns), round(sums.thread_ns)
    time.forward_total_ns = round(sums.forward_ns)
    work.forwards, work.emitted = round(sums.forwards), round(sums.emitted)
    work.prefill_rows, work.decode_rows = round(sums.prefill_rows), round(sums.decode_rows)
    work.decode_emitted, work.decode_forwards = round(sums.decode_emitted), round(sums.decode_forwards)
    work.verifications = Counter(verifications)
    cache.lookup_tokens, cache.hit_tokens = round(sums.lookup_tokens), round(sums.hit_tokens)
    cache.useful_hit_tokens = round(sums.useful_hit_tokens)
    load.busy_slot_ns, load.slot_ns = round(sums.busy_slot_ns), round(sums.slot_ns)
    load.queue_request_ns = round(sums.queue_request_ns)
    return Figures(steps=steps, requests=_NO_REQUESTS, events=_NO_EVENTS)


def window(
    sums: Sums, verifications: Mapping[tuple[int, int, int], int], unknown: frozenset[Need], *, names_requests: bool
) -> Window:
    """A stretch of the session. `unknown` is what its source cannot know; `names_requests`: it tells of finished ones.

    Everything is unknown where no time passed that anything is known of.
    """
    wall_ns = sums.wall_ns
    if wall_ns <= 0:
        return Window()
    shown = figures(sums, verifications)

    def value(metric: Metric[T]) -> T | None:
        return None if unknown.intersection(metric.needs) else metric.compute(shown)

    has_cache = "prefix_cache" not in unknown
    knows_slots = "slots" not in unknown
    return Window(
        wall_ns=round(wall_ns),
        steps=shown.steps.steps,
        forwards=shown.steps.work.forwards,
        step_ns=ratio(sums.busy_ns, sums.steps),
        parts=() if "phases" in unknown else _parts(sums),
        tokens_per_s=value(_OUTPUT_RATE),
        prefill_tokens_per_s=value(_INPUT_RATE),
        requests_per_s=sums.completed * 1e9 / wall_ns if names_requests else None,
        tokens_per_forward=value(_TOKENS_PER_FORWARD),
        coverage=value(_COVERAGE),
        acceptance=value(_ACCEPTANCE),
        by_position=value(_BY_POSITION) or (),
        drafted=value(_DRAFTED),
        wasted_rows=value(_WASTED_ROWS),
        wasted_share=value(_WASTED_SHARE),
        lookup_tokens=round(sums.lookup_tokens) if has_cache else None,
        useful_hit_tokens=round(sums.useful_hit_tokens) if has_cache else None,
        useful_hit_rate=value(_USEFUL_HIT_RATE),
        hit_rate=value(_HIT_RATE),
        blocks_read=round(sums.blocks_read) if has_cache else None,
        blocks_written=round(sums.blocks_written) if has_cache else None,
        blocks_evicted=round(sums.blocks_evicted) if has_cache else None,
        occupancy=value(_OCCUPANCY),
        slots_busy=ratio(sums.busy_slot_ns, sums.busy_ns) if knows_slots else None,
        queue=value(_QUEUE),
        batch_rows=ratio(sums.prefill_rows + sums.decode_rows, sums.forwards),
        useful_row_share=ratio(sums.decode_emitted, sums.decode_rows),
        cpu_share=value(_CPU_SHARE),
        **_cost(sums, unknown),
    )


def shares(sums: Sums) -> dict[str, float] | None:
    """Share of each of `PARTS` in the wall time. `None`: no time passed."""
    wall_ns = sums.wall_ns
    return {name: ns / wall_ns for name, ns in zip(PARTS, sums.parts, strict=True)} if wall_ns > 0 else None


def _parts(sums: Sums) -> tuple[Part, ...]:
    wall_ns = sums.wall_ns
    return tuple([Part(name, ns, ns / wall_ns) for name, ns in zip(PARTS, sums.parts, strict=True)])


def _cost(sums: Sums, unknown: frozenset[Need]) -> dict[str, float | None]:
    """The rates of bytes and FLOPs of a window. Empty: the geometry of a model that ran is not known."""
    if sums.unpriced > 0:
        return {}
    wall_ns = sums.wall_ns
    moved = sums.target_bytes + sums.draft_bytes
    has_phases = "phases" not in unknown
    return {
        "bytes_per_s": moved * 1e9 / wall_ns,
        "weight_bytes_per_s": sums.weight_bytes * 1e9 / wall_ns,
        "kv_read_bytes_per_s": sums.kv_read_bytes * 1e9 / wall_ns,
        "kv_write_bytes_per_s": sums.kv_written_bytes * 1e9 / wall_ns,
        "bytes_per_step": ratio(moved, sums.steps),
        "forward_bytes_per_s": ratio(sums.target_bytes * 1e9, sums.forward_ns) if has_phases else None,
        "flops_per_s": (sums.target_flops + sums.draft_flops) * 1e9 / wall_ns,
        "forward_flops_per_s": ratio(sums.target_flops * 1e9, sums.forward_ns) if has_phases else None,
    }


def point(at_ns: int, sums: Sums, unknown: frozenset[Need], cpu_percent: float | None = None) -> Point:
    """One bin of the charts, from sums that may hold fractions of steps."""
    wall_ns = sums.wall_ns
    if wall_ns <= 0:
        return Point(at_ns=at_ns, cpu_percent=cpu_percent)
    has_phases, is_priced, knows_slots = "phases" not in unknown, sums.unpriced <= 0, "slots" not in unknown
    return Point(
        at_ns=at_ns,
        shares=tuple([ns / wall_ns for ns in sums.parts]) if has_phases else None,
        tokens_per_s=sums.emitted * 1e9 / wall_ns,
        tokens_per_forward=ratio(sums.decode_emitted, sums.decode_forwards),
        acceptance=None if "acceptance" in unknown else ratio(sums.committed, sums.drafted),
        useful_hit_rate=None if "prefix_cache" in unknown else ratio(sums.useful_hit_tokens, sums.lookup_tokens),
        bytes_per_s=(sums.target_bytes + sums.draft_bytes) * 1e9 / wall_ns if is_priced else None,
        forward_bytes_per_s=ratio(sums.target_bytes * 1e9, sums.forward_ns) if is_priced and has_phases else None,
        flops_per_s=(sums.target_flops + sums.draft_flops) * 1e9 / wall_ns if is_priced else None,
        step_ns=ratio(sums.busy_ns, sums.steps),
        queue=ratio(sums.queue_request_ns, sums.busy_ns) if knows_slots else None,
        slots_busy=ratio(sums.busy_slot_ns, sums.busy_ns) if knows_slots else None,
        cpu_percent=cpu_percent,
    )
