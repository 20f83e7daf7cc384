"""Bins of half a second: whole steps in windows, levels in charts, and gaps where nothing is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stackscope.analysis.ledgers import UNPRICED
from stackscope.analysis.live.bins import BIN_NS, MINUTE_BINS, MOST_BINS, Bins
from stackscope.analysis.live.snapshot import PARTS
from stackscope.analysis.live.sums import Sums, end_times
from stackscope.records import Phases
from tests.analysis_builders import MS, decode, prefill, step, verify

if TYPE_CHECKING:
    from stackscope.analysis.metrics.base import Need
    from stackscope.records import StepRecord

IDLE = PARTS.index("idle")


def make_bins(*steps: StepRecord, unknown: frozenset[Need] = frozenset()) -> Bins:
    bins = Bins(unknown, on_steps=lambda _sums, _last, _idle_ns: None, on_close=lambda: None)
    if steps:
        bins.add(steps, end_times(steps), UNPRICED)
    return bins


def decoding(n: int, start_ns: int, duration_ns: int, *, emitted: int = 1) -> StepRecord:
    work = verify(0, cached=9, drafted=emitted - 1, accepted=emitted - 1) if emitted > 1 else decode(0, cached=9)
    return step(work, n=n, start_ns=start_ns, phases=Phases(decode=duration_ns), slots_busy=1, slots=2)


def test_a_step_of_several_bins_is_a_level_in_all_of_them() -> None:
    """30 tokens in 3 s: ten a second in each of the six bins, rather than 60 a second in the last."""
    bins = make_bins(decoding(0, 0, 3_000 * MS, emitted=30), decoding(1, 3_000 * MS, BIN_NS + 1))
    points = bins.points(4_000 * MS, is_idle=False)
    assert [point.tokens_per_s for point in points] == pytest.approx([10.0] * 6 + [1e9 / (BIN_NS + 1)])
    assert all(point.step_ns == pytest.approx(3_000 * MS) for point in points[:6])
    assert all(point.shares is not None and sum(point.shares) == pytest.approx(1) for point in points)


def test_a_step_is_spread_by_how_long_it_was_in_each_bin() -> None:
    bins = make_bins(
        decoding(0, 0, 400 * MS),  # 1 token, all in the first bin
        decoding(1, 400 * MS, 400 * MS, emitted=4),  # 1 of 4 tokens in the first bin, 3 in the second
        decoding(2, 800 * MS, 300 * MS),  # 2/3 in the second, 1/3 in the third
    )
    points = bins.points(1_100 * MS, is_idle=False)
    assert [point.tokens_per_s for point in points] == pytest.approx([(1 + 1) * 2, (3 + 2 / 3) * 2])


def test_a_step_that_took_no_time_is_not_lost() -> None:
    """A clock may be coarse."""
    bins = make_bins(decoding(0, 0, 500 * MS), decoding(1, 700 * MS, 0), decoding(2, 1_000 * MS, 1))
    assert [point.tokens_per_s for point in bins.points(1_100 * MS, is_idle=False)] == [2, 2]


def test_idle_time_lies_where_it_passed() -> None:
    bins = make_bins(decoding(0, 0, 250 * MS), decoding(1, 1_750 * MS, 500 * MS))
    shares = [point.shares for point in bins.points(2_250 * MS, is_idle=False)]
    assert [share[IDLE] for share in shares if share is not None] == pytest.approx([0.5, 1.0, 1.0, 0.5])


def test_an_idle_bin_moved_nothing_and_accepted_nothing_known() -> None:
    bins = make_bins(decoding(0, 0, 500 * MS), decoding(1, 1_500 * MS, 1))
    idle = bins.points(1_500 * MS, is_idle=False)[1]
    assert (idle.tokens_per_s, idle.bytes_per_s) == (0, 0)
    assert (idle.tokens_per_forward, idle.acceptance, idle.step_ns, idle.queue) == (None, None, None, None)


def test_time_of_missing_steps_is_a_gap() -> None:
    """Steps that were dropped on the way are no idle time."""
    bins = make_bins(decoding(0, 0, 500 * MS), decoding(7, 2_000 * MS, 500 * MS), decoding(8, 2_500 * MS, 500 * MS))
    points = bins.points(3_000 * MS, is_idle=False)
    assert [point.tokens_per_s for point in points] == [2, None, None, None, 2]
    assert points[1].shares is None
    sums, _ = bins.window(MINUTE_BINS)
    assert (sums.wall_ns, sums.idle_ns, sums.steps) == (1_500 * MS, 0, 3)


def test_a_window_holds_the_steps_that_ended_in_it_whole() -> None:
    bins = make_bins(*[decoding(n, n * 400 * MS, 400 * MS) for n in range(10)])
    sums, _ = bins.window(4)  # The open bin ends at 4.0 s; from 1.5 s on.
    assert sums.steps == 7  # Those that ended at 1.6, 2.0, … 4.0 s.
    assert sums.wall_ns == 7 * 400 * MS


def test_a_window_while_nothing_happens_ends_now() -> None:
    bins = make_bins(decoding(0, 0, 300 * MS))
    sums, _ = bins.window(4, idle_until_ns=1_100 * MS)
    assert (sums.steps, sums.busy_ns, sums.idle_ns) == (1, 300 * MS, 800 * MS)
    sums, _ = bins.window(4, idle_until_ns=60_000 * MS)
    assert (sums.steps, sums.busy_ns, sums.idle_ns) == (0, 0, 2_500 * MS)


def test_bins_leave_the_minute_while_nothing_happens() -> None:
    bins = make_bins(*[decoding(n, n * 500 * MS, 500 * MS) for n in range(20)])
    steps = [bins.window(MINUTE_BINS, idle_until_ns=until * 1_000 * MS)[0].steps for until in (30, 65, 66, 90)]
    assert steps == [20, 11, 9, 0]


def test_looking_while_nothing_happens_changes_nothing() -> None:
    seen, unseen = make_bins(decoding(0, 0, 300 * MS)), make_bins(decoding(0, 0, 300 * MS))
    seen.points(9_000 * MS, is_idle=True)
    seen.window(MINUTE_BINS, idle_until_ns=9_000 * MS)
    late = [decoding(1, 2_000 * MS, 6_000 * MS)]  # It had begun before the look.
    for bins in (seen, unseen):
        bins.add(late, end_times(late), UNPRICED)
    assert seen.points(9_500 * MS, is_idle=False) == unseen.points(9_500 * MS, is_idle=False)
    assert seen.window(MINUTE_BINS) == unseen.window(MINUTE_BINS)


def test_what_has_not_come_is_a_gap_after_a_second() -> None:
    """Records are on their way for a moment; until then the chart just ends."""
    bins = make_bins(decoding(0, 0, 750 * MS))
    assert [point.at_ns for point in bins.points(1_900 * MS, is_idle=False)] == [BIN_NS]
    later = bins.points(3_000 * MS, is_idle=False)
    assert [point.tokens_per_s is None for point in later] == [False, False, True, True]


def test_a_waiting_engine_is_idle_to_the_present() -> None:
    bins = make_bins(decoding(0, 0, 750 * MS))
    points = bins.points(2_000 * MS, is_idle=True)
    assert [point.at_ns for point in points] == [BIN_NS, 2 * BIN_NS, 3 * BIN_NS, 4 * BIN_NS]
    assert [point.shares[IDLE] for point in points if point.shares is not None] == pytest.approx([0, 0.5, 1, 1])


@pytest.mark.parametrize("pause_ns", [200 * 10**9, 10**18])
def test_however_long_it_rests_memory_is_bounded(pause_ns: int) -> None:
    bins = make_bins(decoding(0, 0, MS), decoding(1, pause_ns, MS))
    assert len(bins.closed) == MOST_BINS
    assert len(bins.points(pause_ns + MS, is_idle=False)) == MOST_BINS
    assert len(bins.points(3 * pause_ns, is_idle=True)) == MOST_BINS
    assert len(bins.points(3 * pause_ns, is_idle=False)) == MOST_BINS


def test_bins_follow_each_other_without_holes() -> None:
    bins = make_bins(decoding(0, 0, MS), decoding(1, 999 * 10**9, MS), decoding(2, 1_001 * 10**9, MS))
    ends = [point.at_ns for point in bins.points(1_001 * 10**9, is_idle=False)]
    assert ends == list(range(ends[0], ends[0] + MOST_BINS * BIN_NS, BIN_NS))


def test_the_forward_is_divided_by_rows() -> None:
    """Of 16 rows, 10 are of a prompt, 2 sequences decode, and 4 rows verify beyond their first."""
    works = (prefill(0, new=10), decode(1, cached=9), verify(2, cached=9, drafted=4, accepted=1))
    bins = make_bins(step(*works, phases=Phases(decode=160 * MS, sample=3 * MS, admit=1 * MS, other=5 * MS)))
    sums, _ = bins.window(MINUTE_BINS)
    assert (sums.prefill_ns, sums.decode_ns, sums.verify_ns) == pytest.approx((100 * MS, 20 * MS, 40 * MS))
    assert (sums.sample_ns, sums.schedule_ns, sums.unexplained_ns) == (3 * MS, 1 * MS, 5 * MS)


def test_a_forward_that_was_cut_short_is_not_explained() -> None:
    bins = make_bins(step(phases=Phases(decode=7 * MS, other=1 * MS), aborted=True))
    sums, _ = bins.window(MINUTE_BINS)
    assert (sums.forwards, sums.unexplained_ns, sums.busy_ns) == (0, 8 * MS, 8 * MS)


def test_a_hardware_sample_stands_for_the_time_since_the_one_before() -> None:
    """It comes late: bins that are complete get it too."""
    bins = make_bins(decoding(0, 0, 2_600 * MS))
    bins.sample(1_000 * MS, 0, 50.0)
    bins.sample(2_000 * MS, 1_000 * MS, 90.0)
    assert [point.cpu_percent for point in bins.points(2_600 * MS, is_idle=False)] == [50, 50, 90, 90, 90]
    later = [decoding(1, 2_600 * MS, 500 * MS)]
    bins.add(later, end_times(later), UNPRICED)
    assert bins.points(3_100 * MS, is_idle=False)[-1].cpu_percent is None


def test_a_request_counts_in_the_bin_in_which_it_finished() -> None:
    bins = make_bins(*[decoding(n, n * 400 * MS, 400 * MS) for n in range(10)])
    before, _ = bins.window(MINUTE_BINS)
    bins.complete(700 * MS)
    bins.complete(3_900 * MS)
    assert [bins.window(n)[0].completed for n in (MINUTE_BINS, 4, 0)] == [2, 1, 1]
    assert before.completed == 0


def test_a_request_that_finished_before_any_step_is_not_lost() -> None:
    bins = make_bins()
    bins.complete(0)
    one = [decoding(0, 5, MS)]
    bins.add(one, end_times(one), UNPRICED)
    assert bins.window(0)[0].completed == 1


def test_what_the_source_cannot_know_is_in_no_point() -> None:
    unknown: frozenset[Need] = frozenset({"phases", "acceptance", "prefix_cache", "slots"})
    bins = make_bins(decoding(0, 0, 500 * MS, emitted=3), decoding(1, 500 * MS, MS), unknown=unknown)
    point = bins.points(600 * MS, is_idle=False)[0]
    assert point.tokens_per_s == 6
    for name in ("shares", "acceptance", "useful_hit_rate", "forward_bytes_per_s", "queue", "slots_busy"):
        assert getattr(point, name) is None, name


def test_without_a_model_bytes_are_not_known() -> None:
    bins = make_bins(decoding(0, 0, 500 * MS), decoding(1, 500 * MS, MS))
    point = bins.points(600 * MS, is_idle=False)[0]
    assert (point.bytes_per_s, point.flops_per_s, point.forward_bytes_per_s) == (None, None, None)


def test_verifications_leave_the_minute_with_their_bins() -> None:
    bins = make_bins(decoding(0, 0, 500 * MS, emitted=3))
    for n in range(1, 130):
        later = [decoding(n, n * 500 * MS, 500 * MS, emitted=2)]
        bins.add(later, end_times(later), UNPRICED)
        sums, verifications = bins.window(MINUTE_BINS)
        assert sum(verifications.values()) == sums.decode_forwards == min(n + 1, MINUTE_BINS + 1)
    assert verifications == {(1, 1, 2): MINUTE_BINS + 1}


def test_sums_add_field_by_field() -> None:
    sums = Sums(steps=1, busy_ns=5)
    sums.add(Sums(steps=2, emitted=3).row)
    assert sums == Sums(steps=3, busy_ns=5, emitted=3)
