"""Latency metrics against arithmetic on paper."""

from __future__ import annotations

import pytest

from stackscope.analysis.metrics.base import ServiceLimits
from stackscope.analysis.metrics.latency import (
    EndToEnd,
    Goodput,
    GoodShare,
    PrefillSpeed,
    QueueTime,
    StepGap,
    TimePerOutputToken,
    TimeToFirstToken,
    keeps,
)
from stackscope.analysis.summary import RunSummary
from stackscope.records import Phases
from tests.analysis_builders import MS, decode, request, step

REQUEST = request(
    (90 * MS, 1), (100 * MS, 1), (125 * MS, 3), arrived_ns=20 * MS, admitted_ns=50 * MS, finished_ns=130 * MS
)
"""Arrived at 20 ms, admitted at 50, first token at 90; one token at 100, three at 125; finished at 130."""


def test_intervals_by_their_events() -> None:
    assert QueueTime().values(REQUEST) == (30 * MS,)
    assert TimeToFirstToken().values(REQUEST) == (70 * MS,)
    assert StepGap().values(REQUEST) == (10 * MS, 25 * MS)
    assert TimePerOutputToken().values(REQUEST) == (35 * MS / 4,)  # five tokens, four intervals in 35 ms
    assert EndToEnd().values(REQUEST) == (110 * MS,)


def test_the_time_to_the_first_token_is_no_gap() -> None:
    """Three tokens have two gaps, however long the first took."""
    assert StepGap().values(request((900 * MS, 1), (910 * MS, 1), (921 * MS, 1))) == (10 * MS, 11 * MS)


def test_one_token_has_no_pace() -> None:
    single = request((90 * MS, 1))
    assert TimePerOutputToken().values(single) == ()
    assert StepGap().values(single) == ()


def test_tokens_that_left_together_have_no_pace() -> None:
    assert TimePerOutputToken().values(request((90 * MS, 4))) == ()


def test_a_request_without_tokens_has_no_first_one() -> None:
    silent = request(finished_ns=80 * MS, admitted_ns=None, finish_reason="cancelled")
    assert TimeToFirstToken().values(silent) == ()
    assert QueueTime().values(silent) == ()
    assert PrefillSpeed().values(silent) == ()


def test_prefill_speed_counts_what_was_computed() -> None:
    """97,052 prompt tokens of which 96,593 were cached: 459 in 1,820 ms are 252 tokens/s, not 53,325."""
    long = request((1_820 * MS, 1), prompt_tokens=96_593 + 459, hit_tokens=96_593)
    assert PrefillSpeed().values(long) == pytest.approx((252.2,), abs=0.05)


def test_a_prompt_found_whole_has_no_prefill_speed() -> None:
    assert PrefillSpeed().values(request((5 * MS, 1), prompt_tokens=10, hit_tokens=10)) == ()
    assert PrefillSpeed().values(request((0, 1))) == ()  # no time passed


def test_cancelled_and_failed_requests_enter_no_latency() -> None:
    run = RunSummary()
    run.write(request((10 * MS, 1), (20 * MS, 1), finish_reason="cancelled"))
    run.write(request((10 * MS, 1), (20 * MS, 1), finish_reason="error", error="KV cache full"))
    assert run.result()[TimeToFirstToken] is None
    assert run.result()[EndToEnd] is None
    run.write(request((30 * MS, 1), (40 * MS, 1), finish_reason="eos"))
    spread = run.result()[TimeToFirstToken]
    assert spread is not None
    assert (spread.n, spread.p50) == (1, 30 * MS)


def test_limits() -> None:
    limits = ServiceLimits(ttft_ns=70 * MS, tpot_ns=9 * MS)
    assert keeps(REQUEST, limits)  # TTFT 70 ms, TPOT 8.75 ms
    assert not keeps(REQUEST, ServiceLimits(ttft_ns=70 * MS - 1))
    assert not keeps(REQUEST, ServiceLimits(tpot_ns=8 * MS))
    assert keeps(request((5 * MS, 1)), limits)  # one token: no pace to break
    assert not keeps(request(finished_ns=5 * MS), limits)  # no token at all
    assert keeps(request(finished_ns=5 * MS), ServiceLimits(tpot_ns=1))


def test_goodput_is_good_requests_over_wall_time() -> None:
    """Two of three requests keep a TTFT of 50 ms, in a run of 2 s."""
    run = RunSummary(limits=ServiceLimits(ttft_ns=50 * MS))
    run.write(step(decode(0, cached=1), phases=Phases(decode=2_000 * MS)))
    for first in (40, 50, 60):
        run.write(request((first * MS, 1)))
    run.write(request((10 * MS, 1), finish_reason="cancelled"))
    assert run.result()[Goodput] == 1.0
    assert run.result()[GoodShare] == pytest.approx(2 / 3)


def test_goodput_without_limits_is_unknown() -> None:
    run = RunSummary()
    run.write(step(decode(0, cached=1)))
    run.write(request((10 * MS, 1)))
    assert run.result()[Goodput] is None
    assert run.result()[GoodShare] is None


def test_a_limit_of_zero_is_a_limit() -> None:
    assert ServiceLimits(ttft_ns=0).is_given
    assert not keeps(REQUEST, ServiceLimits(ttft_ns=0))
