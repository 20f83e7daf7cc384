"""What the validation says of the machine that it ran on, where no counter of the machine says it."""

from __future__ import annotations

import pytest

from benchmarks.validate import measuring, naming, pace
from stackscope.records import Mark, Probe


def probe(rate: float | None, share: float | None = None) -> Probe:
    return Probe(at_ns=0, compute_per_s=rate, cpu_share=share)


def test_a_session_has_the_median_pace_of_the_probes_that_had_a_core() -> None:
    assert (
        pace.pace(
            [
                Mark(at_ns=0, label="block 0"),
                probe(100.0),
                probe(90.0, 0.95),
                probe(80.0),
                probe(5.0, 0.5),
                probe(4.0, 0.0),
            ]
        )
        == 90.0
    )
    assert pace.pace([probe(None), Mark(at_ns=0, label="block 0")]) is None


def test_sessions_that_the_machine_held_up_are_counted_and_told() -> None:
    row = pace.row({"a": 100.0, "b": 95.0, "c": 60.0})
    assert row.found[:3] == pytest.approx((0.95, 0.6, 1.0))
    assert row.found.n == 3
    assert row.is_met is None
    told = pace.note({"a": 100.0, "b": 95.0, "c": 60.0})
    assert told is not None
    assert told.startswith("the machine ran at less than 90% of its pace in 1 of 3 sessions")


def test_an_even_machine_is_no_news() -> None:
    assert pace.note({"a": 100.0, "b": 95.0}) is None
    assert pace.note({}) is None
    assert pace.row({}).found.value is None


def test_sessions_with_a_staged_hog_or_stop_say_nothing_of_the_machine() -> None:
    alone = {one.name for one in (*measuring.SCENARIOS, *naming.SCENARIOS) if pace.is_left_alone(one)}
    assert "small alone" in alone
    assert not alone & {"compute hog 1", "bandwidth hog 0.5", "stopped 0.5"}
