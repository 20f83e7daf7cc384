"""What the benchmark of calibrations compares, and how."""

from __future__ import annotations

import pytest

from benchmarks.ceilings import Repeated, figures, repeated, show
from tests.unit.ceilings_builders import ceilings


def test_every_ceiling_is_compared() -> None:
    found = figures(ceilings())
    assert found["reading, memory"] == 15e9
    assert found["f16 × 1 row"] == 30e9
    assert found["f16 × 512 rows"] == 62e9
    assert found["forward, 3 rows, 3 outputs"] == 1.5e6
    assert found["forward, 512 rows, 1 output"] == 90e6
    assert found["state loaded"] == 3e9
    assert (found["bandwidth ceiling"], found["compute ceiling"]) == (60e9, 66e9)
    assert "contexts anew" not in figures(ceilings(rebuild_ns=None))


def test_the_deviation_is_the_largest_from_the_median() -> None:
    [found] = repeated([{"a": 10.0, "b": 1.0}, {"a": 11.0}, {"a": 8.0}])
    assert (found.name, found.median, found.n) == ("a", 10.0, 3)
    assert found.deviation == pytest.approx(0.2)


def test_the_worst_stand_first_and_are_judged() -> None:
    shown = show([Repeated("steady", 2e9, 0.1, 3), Repeated("loose", 1e6, 0.101, 3)]).splitlines()
    assert shown[2].split() == ["loose", "1.00", "M", "10.1%", "3", "missed"]
    assert shown[3].split() == ["steady", "2.00", "G", "10.0%", "3", "met"]
