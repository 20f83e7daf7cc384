"""Whether kept ceilings can be what was measured: a file that was edited, cut or mixed up decodes all the same."""

from __future__ import annotations

import math
from datetime import datetime
from typing import TYPE_CHECKING, Final, get_args

from stackscope.records.ceilings import CURVE_ROWS
from stackscope.toggles import KvType

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stackscope.records.ceilings import Ceilings, Conditions, ForwardTime, Handoff, Measured, ReadRate, TypeRate

MOST_BYTES_PER_S: Final = 1e15
"""Sixteen times what eight GPUs of 8 TB/s read together."""
MOST_FLOPS_PER_S: Final = 1e18
"""Fourteen times the dense rate of eight such GPUs in their shortest type."""
LONGEST_NS: Final = 1e13
"""Nearly three hours, for one forward."""
MOST_SPREAD: Final = 1e3
MOST_ROWS: Final = 1 << 24
"""Of a forward, and tokens of a context."""


def why_incredible(found: Ceilings) -> str | None:
    """What in ceilings cannot have been measured, as part of a sentence. `None`: all of it can."""
    return next(_doubts(found), None)


def _doubts(found: Ceilings) -> Iterator[str]:
    yield from _of_occasion(found)
    yield from _of_conditions(found.conditions)
    for read in found.reads:
        yield from _of_read(read)
    for kind in found.types:
        yield from _of_type(kind)
    others = [(f"forwards with {other.kind.described}", other.contexts) for other in found.other_caches]
    for what, times in (
        ("forwards", found.forwards), ("forwards in a context", found.contexts),
        ("draft forwards", found.draft_forwards), *others,
    ):  # fmt: skip
        yield from _of_forwards(what, times)
    yield from _of_curve(found)
    yield from _of_rate("cached keys and values", found.kv_read_bytes_per_s, MOST_BYTES_PER_S, "B/s")
    for what, taken in (
        ("a cached token", found.context_ns_per_token), ("making contexts", found.rebuild_ns),
        ("loading the target", found.load_ns),
    ):  # fmt: skip
        yield from _of_rate(what, taken, LONGEST_NS, "ns")
    if found.fixed_ns is not None and not 0 < found.fixed_ns <= LONGEST_NS:
        yield f"the fixed cost is {found.fixed_ns:g} ns"
    if found.handoff is not None:
        yield from _of_handoff(found.handoff)
    for what, ceiling, most, unit in (
        ("bandwidth", found.bandwidth, MOST_BYTES_PER_S, "B/s"), ("compute", found.compute, MOST_FLOPS_PER_S, "FLOP/s"),
    ):  # fmt: skip
        if ceiling is not None:
            if not 0 < ceiling.value <= most:
                yield f"{what} is {ceiling.value:g} {unit}"
            if not _is_spread(ceiling.spread):
                yield f"the spread of {what} is {ceiling.spread:g}"
            if ceiling.measured is not None and not _is_time(ceiling.measured):
                yield f"{what} does not say when it was measured"


def _of_occasion(found: Ceilings) -> Iterator[str]:
    if not _is_time(found.measured):
        yield "it does not say when it was measured"
    if found.duration_ns < 0:
        yield f"measuring took {found.duration_ns} ns"
    if found.cache_bytes is not None and found.cache_bytes <= 0:
        yield f"the processor's cache holds {found.cache_bytes} B"
    if found.foreign_share is not None and not 0 <= found.foreign_share < math.inf:
        yield f"others took {found.foreign_share:g} of a CPU"


def _of_conditions(given: Conditions) -> Iterator[str]:
    if given.threads < 1:
        yield f"{given.threads} threads measured it"
    if given.model_bytes < 1:
        yield f"the model's file has {given.model_bytes} B"
    if {given.kv_type_k, given.kv_type_v} - set(get_args(KvType)):
        yield "there is no such type of KV cache"


def _of_read(read: ReadRate) -> Iterator[str]:
    what = f"reading {'memory' if read.place == 'memory' else 'the cache'}"
    yield from _of_rate(what, read.bytes_per_s, MOST_BYTES_PER_S, "B/s")
    if read.set_bytes < 1:
        yield f"{what} went over {read.set_bytes} B"


def _of_type(kind: TypeRate) -> Iterator[str]:
    what = f"{kind.type} matrices"
    yield from _of_rate(f"{what} × 1", kind.vector_bytes_per_s, MOST_BYTES_PER_S, "B/s")
    yield from _of_rate(f"{what} × 1", kind.vector_flops_per_s, MOST_FLOPS_PER_S, "FLOP/s")
    yield from _of_rate(f"{what} × {kind.matrix_rows}", kind.matrix_flops_per_s, MOST_FLOPS_PER_S, "FLOP/s")
    if not (kind.matrix_rows > 1 if kind.matrix_flops_per_s is not None else kind.matrix_rows >= 0):
        yield f"{what} were multiplied by {kind.matrix_rows} rows"


def _of_forwards(what: str, times: Sequence[ForwardTime]) -> Iterator[str]:
    shapes = [(time.rows, time.sequences, time.outputs, time.cached, time.others) for time in times]
    if len(set(shapes)) < len(shapes):
        yield f"{what} of the same shape are there twice"
    for time in times:
        is_shape = (
            1 <= time.rows <= MOST_ROWS
            and 1 <= time.sequences <= time.rows
            and time.rows % time.sequences == 0
            and 0 <= time.outputs <= time.rows
            and 0 <= time.cached <= MOST_ROWS
            and 0 <= time.others <= MOST_ROWS
        )
        if not is_shape:
            yield f"{what} have an impossible shape: {time.rows} rows over {time.sequences} sequences"
        yield from _of_rate(f"{what} of {time.rows}", time.ns, LONGEST_NS, "ns")


def _of_curve(found: Ceilings) -> Iterator[str]:
    """Every row count of the curve was timed, or has its reason."""
    timed = {time.rows for time in found.forwards}
    excused = {
        rows
        for rows in CURVE_ROWS
        for what in found.unknown
        if what == f"forward of {rows}" or what.startswith(f"forward of {rows},")
    }
    missing = [rows for rows in CURVE_ROWS if rows not in timed | excused]
    if missing:
        yield f"the forwards of {', '.join(map(str, missing))} rows are missing, without a reason"


def _of_handoff(moved: Handoff) -> Iterator[str]:
    yield from _of_rate("saving a state", moved.save_bytes_per_s, MOST_BYTES_PER_S, "B/s")
    yield from _of_rate("loading a state", moved.load_bytes_per_s, MOST_BYTES_PER_S, "B/s")
    if moved.tokens < 1 or moved.state_bytes < 1:
        yield f"a state of {moved.tokens} tokens has {moved.state_bytes} B"


def _of_rate(what: str, found: Measured | None, most: float, unit: str) -> Iterator[str]:
    """Doubts about a quantity that has to be positive, and no larger than `most`."""
    if found is None:
        return
    if not 0 < found.value <= most:
        yield f"{what} {'takes' if unit == 'ns' else 'comes at'} {found.value:g} {unit}"
    if not _is_spread(found.spread):
        yield f"the spread of {what} is {found.spread:g}"
    if found.n < 1:
        yield f"{what} was measured {found.n} times"


def _is_time(text: str) -> bool:
    """Whether it is a time of some zone, which can be compared with others."""
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _is_spread(spread: float | None) -> bool:
    return spread is None or 0 <= spread <= MOST_SPREAD
