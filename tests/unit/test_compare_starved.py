"""What is said of sessions whose engine did not have its cores, or whose machine was calibrated while busy."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from stackscope.analysis.comparing.collecting import Collector
from stackscope.analysis.comparing.comparison import compare_digests
from stackscope.analysis.comparing.sampling import TermSample
from stackscope.records import StepRecord
from tests.unit import timing_machines
from tests.unit.compare_sessions import Run
from tests.unit.record_builders import make_header

A = Run()
SLOWER = Run(noise=2, base_ns=6e6)


def digest(run: Run, share: float) -> Any:
    collector = Collector("x")
    for record in run.records():
        cpu_ns = round(2 * share * record.phases.decode) if isinstance(record, StepRecord) else 0
        starved = msgspec.structs.replace(record, cpu_ns=cpu_ns) if isinstance(record, StepRecord) else record
        collector.take([starved])
    return collector.digest()


@pytest.mark.parametrize("shares", [(0.98, 0.66), (0.66, 0.98), (0.3, 0.6)])
def test_an_engine_that_lost_its_cores_is_not_compared_with_one_that_had_them(shares: tuple[float, float]) -> None:
    digests = [digest(A, shares[0]), digest(SLOWER, shares[1])]
    found = compare_digests(digests).versus[0]
    assert found.verdict == "not comparable"
    assert found.sentence == (
        f"A and B are not comparable. The engine's threads really ran {100 * shares[0]:.1f} % of the time in A and"
        f" {100 * shares[1]:.1f} % of the time in B, with as many of them in both: what kept them from running would"
        " be compared as well."
    )
    anyway = compare_digests(digests, anyway=True).versus[0]
    assert anyway.verdict == "slower"
    assert [one.kind for one in anyway.untold if one.is_barrier] == ["cpu share"]


def test_what_other_threads_or_cores_do_to_it_is_part_of_the_effect() -> None:
    """Eight threads on two cores wait for each other's cores: that is what is compared."""
    many = Run(noise=2, config={})
    for change in ({"config": msgspec.structs.replace(_config(many), threads=8)}, {"cores": 1}):
        head = msgspec.structs.replace(many.head(), **change)
        collector = Collector("x")
        collector.take([head])
        for one in list(many.records())[1:]:
            if isinstance(one, StepRecord):
                collector.take([msgspec.structs.replace(one, cpu_ns=round(0.4 * one.phases.decode))])
            else:
                collector.take([one])
        a = digest(Run(header={"cores": 2}), 0.98)
        found = compare_digests([a, collector.digest()]).versus[0]
        assert found.is_comparable
        assert [one.kind for one in found.concerns if not one.is_barrier][-1] == "cpu share"


def _config(run: Run) -> Any:
    return run.head().config


@pytest.mark.parametrize(("shares", "is_told"), [((0.22, 0.26), True), ((0.95, 0.9), False)])
def test_engines_without_their_cores_are_compared_with_a_remark(shares: tuple[float, float], is_told: bool) -> None:
    found = compare_digests([digest(A, shares[0]), digest(SLOWER, shares[1])]).versus[0]
    assert found.verdict == "slower"
    said = [one.text for one in found.concerns if one.kind == "cpu share"]
    assert bool(said) == is_told
    assert all(text.endswith("what kept them from their cores decides this as well.") for text in said)
    assert not said or f"really ran {100 * shares[0]:.1f} % of the time in A and " in said[0]


def test_a_calibration_for_something_else_is_told_from_none() -> None:
    calibrated = timing_machines.Machine().calibrated()
    busy = msgspec.structs.replace(calibrated, is_quiet=False, foreign_share=0.5)
    for others, words in (
        ((), "the machine had not been calibrated (stackscope calibrate before recording)"),
        (
            (calibrated, busy),
            "the machine had been calibrated for other configurations only (stackscope calibrate before",
        ),
        ((busy,), "the machine had been calibrated for other configurations only, and while it was busy (stackscope"),
    ):
        assert words in str(TermSample(make_header(other_ceilings=others)).times())
