"""Synthetic figures for snapshots: windows, a minute of history, latencies. They fit together; nobody measured them."""

from __future__ import annotations

import math
import random
from typing import Any, Final

import msgspec

from stackscope.analysis.distribution import Spread
from stackscope.analysis.live.snapshot import PARTS, History, Latency, Part, Point, Ratio, Window

MODEL: Final = "synthetic-135m Q8_0"
SECOND: Final = 1_000_000_000
NOW_NS: Final = 134 * SECOND
"""When most snapshots are taken; speculation was switched on 34 s before."""
SPECULATION_NS: Final = 100 * SECOND
SLOTS_NS: Final = 82 * SECOND
BIN_NS: Final = 500_000_000
COMPUTE_CEILING: Final = 620e9
BANDWIDTH_CEILING: Final = 17.2e9

SPECULATING: Final = (0.06, 0.38, 0.31, 0.142, 0.038, 0.009, 0.012, 0.0, 0.031, 0.018)
"""Shares of `PARTS` while a draft model drafts."""
PLAIN: Final = (0.08, 0.80, 0.0, 0.0, 0.031, 0.008, 0.013, 0.006, 0.045, 0.017)
"""Shares of `PARTS` without speculation."""


def ratio(value: float, low: float, high: float) -> Ratio:
    """How many times as much, with an interval."""
    return Ratio(value=value, low=low, high=high)


def make_parts(shares: tuple[float, ...], wall_ns: int) -> tuple[Part, ...]:
    """The parts of a window."""
    return tuple(Part(name=name, ns=share * wall_ns, share=share) for name, share in zip(PARTS, shares, strict=True))


def speculating_window(**changes: Any) -> Window:
    """Two seconds of draft-model speculation: 4 sequences, drafts of 5, about 15 ms a step."""
    window = Window(
        wall_ns=2 * SECOND, steps=128, forwards=128, step_ns=15_140_000.0, parts=make_parts(SPECULATING, 2 * SECOND),
        tokens_per_s=728.0, prefill_tokens_per_s=412.0, requests_per_s=4.7,
        tokens_per_forward=2.84, coverage=0.997, acceptance=0.448, by_position=(0.812, 0.634, 0.471, 0.318, 0.221),
        drafted=2_552, wasted_rows=3.16, wasted_share=0.527,
        lookup_tokens=6_080, useful_hit_tokens=4_312, useful_hit_rate=4_312 / 6_080, hit_rate=0.724,
        blocks_read=270, blocks_written=112, blocks_evicted=31,
        bytes_per_s=10.9e9, weight_bytes_per_s=10.4e9, kv_read_bytes_per_s=0.47e9, kv_write_bytes_per_s=0.021e9,
        bytes_per_step=165e6, forward_bytes_per_s=14.1e9, flops_per_s=431e9, forward_flops_per_s=572e9,
        occupancy=0.98, slots_busy=3.92, queue=1.3, batch_rows=27.4, useful_row_share=0.47, cpu_share=0.987,
    )  # fmt: skip
    return msgspec.structs.replace(window, **changes)


def plain_window(**changes: Any) -> Window:
    """Two seconds without speculation: 4 sequences, about 12 ms a step, and no cache to look anything up in."""
    window = Window(
        wall_ns=2 * SECOND, steps=160, forwards=160, step_ns=11_930_000.0, parts=make_parts(PLAIN, 2 * SECOND),
        tokens_per_s=329.0, prefill_tokens_per_s=205.0, requests_per_s=2.1,
        tokens_per_forward=1.0, coverage=0.0, drafted=0, wasted_share=0.0,
        lookup_tokens=3_010, useful_hit_tokens=2_150, useful_hit_rate=0.714, hit_rate=0.714,
        blocks_read=134, blocks_written=60, blocks_evicted=0,
        bytes_per_s=12.3e9, weight_bytes_per_s=12.0e9, kv_read_bytes_per_s=0.27e9, kv_write_bytes_per_s=0.012e9,
        bytes_per_step=147e6, forward_bytes_per_s=14.0e9, flops_per_s=96e9, forward_flops_per_s=112e9,
        occupancy=0.99, slots_busy=3.96, queue=2.0, batch_rows=5.6, useful_row_share=1.0, cpu_share=0.991,
    )  # fmt: skip
    return msgspec.structs.replace(window, **changes)


def make_history(end_ns: int = NOW_NS, n: int = 120, *, has_gap: bool = True) -> History:
    """A minute of bins: plain decoding, slots 2 → 4, then speculation; a second of which nothing is known."""
    dice = random.Random(7)
    points = []
    for index in range(n):
        at_ns = end_ns - (n - 1 - index) * BIN_NS
        if has_gap and abs(at_ns - 112 * SECOND) <= BIN_NS:
            points.append(Point(at_ns=at_ns))
            continue
        is_speculating, is_wide = at_ns > SPECULATION_NS, at_ns > SLOTS_NS
        settles = math.exp(-(at_ns - SPECULATION_NS) / (2 * SECOND)) if is_speculating else 0.0
        rate = (728.0 if is_speculating else 329.0 if is_wide else 176.0) * (1 - 0.6 * settles)
        shares = SPECULATING if is_speculating else PLAIN
        jitter = [max(share + dice.gauss(0, 0.01) * (share > 0), 0.0) for share in shares]
        points.append(
            Point(
                at_ns=at_ns,
                shares=tuple(share / sum(jitter) for share in jitter),
                tokens_per_s=rate * dice.gauss(1, 0.04),
                tokens_per_forward=2.84 + dice.gauss(0, 0.12) if is_speculating else 1.0,
                acceptance=0.448 + dice.gauss(0, 0.03) if is_speculating else None,
                useful_hit_rate=min(0.71 * (1 - math.exp(-index / 12)) + dice.gauss(0, 0.015), 1.0) if index else 0.0,
                bytes_per_s=(10.9e9 if is_speculating else 12.3e9) * dice.gauss(1, 0.02),
                forward_bytes_per_s=14.0e9 * dice.gauss(1, 0.02),
                flops_per_s=(431e9 if is_speculating else 96e9 if is_wide else 52e9) * dice.gauss(1, 0.04),
                step_ns=(15.14e6 if is_speculating else 11.93e6) * dice.gauss(1, 0.03),
                queue=1.3 if is_speculating else 2.0,
                slots_busy=3.9 if is_wide else 2.0,
                cpu_percent=dice.gauss(96, 2),
            )
        )
    changes = ((SLOTS_NS, "slots 2→4"), (SPECULATION_NS, "spec draft"))
    return History(bin_ns=BIN_NS, points=tuple(points), changes=changes)


def make_spread(p50_ms: float, *, n: int = 240, tail: float = 1.6) -> Spread:
    """A distribution around a median in milliseconds."""
    p50 = p50_ms * 1e6
    return Spread(
        n=n, mean=p50 * 1.08, min=p50 * 0.4, p50=p50, p90=p50 * (1 + 0.6 * (tail - 1)), p95=p50 * tail,
        p99=p50 * (tail + 0.6), max=p50 * (tail + 1.4),
    )  # fmt: skip


def make_latency(**changes: Any) -> Latency:
    """Latencies without limits."""
    latency = Latency(
        ttft=make_spread(212.0, n=282), step_gap=make_spread(15.1, n=2_300, tail=1.51), tpot=make_spread(5.3, n=281),
        e2e=make_spread(1_240.0, n=282),
    )  # fmt: skip
    return msgspec.structs.replace(latency, **changes)
