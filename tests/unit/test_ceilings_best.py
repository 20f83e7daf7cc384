"""Ceilings over calibrations: the best that was reached counts on where it can be believed, and curves stay whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from typer.testing import CliRunner

from benchmarks.ceilings import repeated
from stackscope.cli import app
from stackscope.commands import calibrate as verb
from stackscope.hardware import ceilings as cache
from stackscope.hardware.best import with_best
from stackscope.hardware.credible import why_incredible
from stackscope.records.ceilings import Ceiling
from tests.unit.ceilings_builders import ceilings, conditions

if TYPE_CHECKING:
    from pathlib import Path

    from stackscope.records.ceilings import Ceilings

FIRST, SECOND, LATER = "2026-10-01T12:00:00+00:00", "2026-10-01T13:00:00+00:00", "2027-01-20T12:00:00+00:00"


def made(bandwidth: float, compute: float, measured: str = FIRST, spread: float | None = 0.02, **more: Any) -> Ceilings:
    """A calibration that reached so many GB/s and GFLOP/s."""
    return ceilings(
        bandwidth=Ceiling(value=1e9 * bandwidth, kind="memory", spread=spread),
        compute=Ceiling(value=1e9 * compute, kind="forward", rows=512, spread=spread),
        measured=measured, **more,
    )  # fmt: skip


def values(found: Ceilings) -> tuple[float, float]:
    assert found.bandwidth is not None
    assert found.compute is not None
    return found.bandwidth.value / 1e9, found.compute.value / 1e9


def test_each_ceiling_is_the_best_of_both_and_says_when_it_was_reached() -> None:
    # One state reads faster, the other computes faster.
    before, new = made(42, 60), made(32, 68, SECOND)
    found = with_best(new, before)
    assert values(found) == (42, 68)
    assert found.bandwidth is not None
    assert found.compute is not None
    assert (found.bandwidth.measured, found.compute.measured) == (FIRST, None)
    # All that is held against each other is of the new one.
    assert found == msgspec.structs.replace(new, bandwidth=found.bandwidth)
    assert why_incredible(found) is None


def test_what_was_reached_keeps_its_time_over_further_calibrations() -> None:
    second = with_best(made(32, 68, SECOND), made(42, 60))
    third = with_best(made(33, 60, "2026-10-01T14:00:00+00:00"), second)
    assert values(third) == (42, 68)
    assert third.bandwidth is not None
    assert third.compute is not None
    assert (third.bandwidth.measured, third.compute.measured) == (FIRST, SECOND)


@pytest.mark.parametrize(
    ("before", "new"),
    [
        (made(60, 60), made(32, 32, SECOND)),  # Further apart than states are: another machine by now.
        (made(42, 68, spread=0.2), made(32, 60, SECOND)),
        (made(42, 68, spread=None), made(32, 60, SECOND)),
        (made(42, 68), made(32, 60, LATER)),
        (made(42, 68, LATER), made(32, 60, SECOND)),  # Of the future, where somebody set a clock.
        (made(42, 68, is_quiet=False, foreign_share=0.5), made(32, 60, SECOND)),
        (made(42, 68), made(32, 60, SECOND, is_quiet=False, foreign_share=0.5)),
        (made(42, 68, conditions=conditions(threads=1)), made(32, 60, SECOND)),
        (made(32, 60), made(42, 68, SECOND)),
    ],
)
def test_what_cannot_be_believed_does_not_count_on(before: Ceilings, new: Ceilings) -> None:
    assert with_best(new, before) == new


def test_nothing_is_put_in_the_place_of_what_is_not_known() -> None:
    new = msgspec.structs.replace(made(32, 60, SECOND), compute=None, bandwidth=None)
    assert with_best(new, made(42, 68)) == new
    assert with_best(made(32, 60), None) == made(32, 60)


def test_calibrations_in_two_states_agree_once_both_were_seen() -> None:
    """Two states a quarter apart, in any order: from the first time that both were seen, the ceilings stay."""
    fast, slow = (42.0, 60.0), (32.0, 68.0)
    kept: Ceilings | None = None
    found = []
    for hour, state in enumerate((slow, fast, slow, slow, fast, slow)):
        kept = with_best(made(*state, f"2026-10-01T{hour:02d}:00:00+00:00"), kept)
        bandwidth, compute = values(kept)
        found.append({"bandwidth": bandwidth, "compute": compute})
    assert [each.deviation for each in repeated(found[1:])] == [0, 0]
    alone = repeated([{"bandwidth": b, "compute": c} for b, c in (slow, fast, slow)])
    assert all(each.deviation > 0.10 for each in alone)


def test_the_command_keeps_and_shows_what_was_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STACKSCOPE_CACHE", str(tmp_path))
    runs = [made(42, 60), made(32, 68, SECOND)]
    monkeypatch.setattr(verb, "measure", lambda *_, **__: runs.pop(0))
    first = CliRunner().invoke(app, ["calibrate"])
    assert "reached" not in first.stdout
    second = CliRunner().invoke(app, ["calibrate"])
    assert second.exit_code == 0
    said = " ".join(second.stdout.split())
    assert "at most 42.0 GB/s reading memory, spread 2.00 %, reached 2026-10-01 12:00 compute" in said
    kept = cache.load(conditions()).ceilings
    assert kept is not None
    assert values(kept) == (42, 68)
