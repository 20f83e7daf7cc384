"""How often the screen is redrawn: the arithmetic of a budget, with numbers in place of clocks."""

from __future__ import annotations

import pytest

from stackscope.tui.governor import BUDGET, LEAST_S, MOST_S, Governor, Usage

MS = 1_000_000
S = 1_000 * MS


def observed(
    *, frame_ms: float, others: float, every_s: float, n: int = 40, governor: Governor | None = None
) -> Governor:
    """A governor that has seen `n` frames, each costing so much, beside a share of one core for all else."""
    governor = governor or Governor()
    for k in range(n):
        wall, drawing = round(k * every_s * S), round(k * frame_ms * MS)
        governor.observe(Usage(wall=wall, cpu=drawing + round(wall * others), drawing=drawing, n_frames=k))
    return governor


def test_cheap_frames_come_as_often_as_they_may() -> None:
    governor = observed(frame_ms=2, others=0.005, every_s=0.25)
    assert governor.interval_s == LEAST_S
    assert governor.share == pytest.approx(0.013)


def test_dearer_frames_come_more_rarely_and_the_budget_is_kept() -> None:
    """Case 65."""
    governor = observed(frame_ms=8, others=0.01, every_s=0.25)
    assert governor.interval_s == pytest.approx(8e-3 / (BUDGET - 0.01))
    settled = observed(frame_ms=8, others=0.01, every_s=governor.interval_s)
    assert settled.share == pytest.approx(BUDGET)
    assert settled.interval_s == pytest.approx(governor.interval_s)


def test_a_display_stays_live_whatever_it_costs() -> None:
    assert observed(frame_ms=200, others=0.9, every_s=1.0).interval_s == MOST_S


def test_what_others_take_leaves_frames_a_part() -> None:
    governor = observed(frame_ms=3, others=0.04, every_s=0.25)
    assert governor.interval_s == pytest.approx(3e-3 / (BUDGET / 5))


def test_only_the_last_seconds_count() -> None:
    governor = Governor()
    governor.observe(Usage(wall=0, cpu=0, drawing=0, n_frames=0))
    governor.observe(Usage(wall=S, cpu=S, drawing=0, n_frames=1))
    for k in range(80):
        at = S + round(k * 0.25 * S)
        governor.observe(Usage(wall=at, cpu=S + k * 2 * MS, drawing=k * 2 * MS, n_frames=1 + k))
    assert governor.share == pytest.approx(0.008)
    assert governor.interval_s == LEAST_S


def test_what_is_dear_once_in_a_while_is_paid_for_all_the_time() -> None:
    """A frame in sixty costs as much as fifty, as when predictions are made anew: rarer frames pay for it, always."""
    governor, drawing, wall, used = Governor(), 0, 0, []
    for k in range(1, 600):
        wall += round(governor.interval_s * S)
        drawing += (150 if k % 30 == 0 else 4) * MS
        governor.observe(Usage(wall=wall, cpu=drawing + wall // 200, drawing=drawing, n_frames=k))
        used.append((wall, drawing + wall // 200))
    began, spent = used[100]
    assert (used[-1][1] - spent) / (used[-1][0] - began) < 1.1 * BUDGET


def test_nothing_is_told_of_a_moment() -> None:
    governor = Governor()
    assert (governor.share, governor.interval_s) == (None, LEAST_S)
    governor.observe(Usage(wall=0, cpu=0, drawing=0, n_frames=0))
    governor.observe(Usage(wall=S // 2, cpu=S // 2, drawing=0, n_frames=1))
    assert governor.share is None


def test_a_pause_without_frames_divides_by_nothing() -> None:
    governor = Governor()
    for k in range(3):
        governor.observe(Usage(wall=k * S, cpu=0, drawing=0, n_frames=7))
    assert governor.interval_s == LEAST_S


def test_the_user_may_want_fewer_frames() -> None:
    governor = observed(frame_ms=1, others=0.0, every_s=2.0, governor=Governor(least_s=2.0))
    assert governor.interval_s == 2.0
