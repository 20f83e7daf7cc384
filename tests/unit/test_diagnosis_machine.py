"""What is said of a processor that is slower, and of threads that did not run: windows with one known reading."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from stackscope.analysis.diagnosis.evidence import Evidence, Machine, Times
from stackscope.analysis.diagnosis.judge import judge
from stackscope.analysis.timing.terms import Terms
from stackscope.toggles import EngineConfig
from tests.diagnosis_machine import MS, S

if TYPE_CHECKING:
    from stackscope.records import Finding


def window(*, weights: float, excess: float) -> Evidence:
    """A hundred forwards of so many milliseconds that read weights, and of some that the model does not predict."""
    return Evidence(
        at_ns=10 * S, steps=100, forwards=100, times=Times(forward=100 * MS * (weights + excess)),
        terms=Terms(weights=100 * MS * weights), is_reference_calm=True,
    )  # fmt: skip


def said_of(evidence: Evidence, cause: str) -> Finding:
    return next(one for one in judge(evidence).findings if one.cause == cause)


SLOWER = Machine(compute=0.8, compute_felt=1.25, read=0.9, foreign_cores=0.0, cpu_share=1.0)


def test_a_slower_processor_takes_no_more_than_its_probe_accounts_for_and_is_not_said_to_be_throttled() -> None:
    found = said_of(msgspec.structs.replace(window(weights=8.0, excess=4.0), machine=SLOWER), "throttle")
    # 8 s at 0.8 of the speed take 2 s more, whatever else there is: of 12 s, a sixth.
    assert found.share == pytest.approx(2.0 / 12.0)
    assert found.claim.startswith("computing more slowly takes ")
    assert not any("throttled" in line for line in (found.claim, *found.evidence))
    assert "a lower clock or a neighbour on the same host: which of them cannot be told here" in found.evidence
    assert "memory is read at 90.0 % of it" in found.evidence


@pytest.mark.parametrize(
    ("machine", "why"),
    [
        (
            msgspec.structs.replace(SLOWER, compute_felt=1.0),
            "forwards take 1.00× of what they do while computing is not slower, which is less than it",
        ),
        (
            msgspec.structs.replace(SLOWER, read=0.25),
            "reading memory has slowed down more than computing: to 25 %, not 80.0 %",
        ),
    ],
)
def test_a_slower_probe_that_forwards_do_not_follow_explains_nothing(machine: Machine, why: str) -> None:
    evidence = msgspec.structs.replace(window(weights=8.0, excess=2.0), machine=machine)
    found = said_of(evidence, "throttle")
    assert (found.claim, found.against) == ("", why)
    assert judge(evidence).unexplained > 0.1


@pytest.mark.parametrize(
    "machine",
    [
        # Pressure is a mean of ten seconds: in the first of them it says nothing of who wanted a core.
        Machine(cpu_share=0.6, cpu_pressure=0.02),
        Machine(cpu_share=0.6, cpu_pressure=0.02, foreign_cores=0.02),
    ],
)
def test_threads_are_not_said_to_be_stopped_before_others_and_their_own_level_are_known(machine: Machine) -> None:
    evidence = msgspec.structs.replace(window(weights=6.0, excess=4.0), machine=machine)
    assert said_of(evidence, "throttle").claim == ""
    known = msgspec.structs.replace(machine, cpu_share_calm=0.98, foreign_cores=0.02)
    assert said_of(msgspec.structs.replace(evidence, machine=known), "throttle").claim.startswith("standing still")


def test_threads_that_run_as_much_as_ever_wait_for_no_core() -> None:
    machine = Machine(cpu_share=0.92, cpu_share_calm=0.92, foreign_cores=0.03)
    evidence = msgspec.structs.replace(window(weights=8.0, excess=2.0), machine=machine)
    found = said_of(evidence, "CPU starvation")
    assert (found.claim, found.share) == ("", None)
    assert found.against == "the threads ran for 92.0 % of the time, and for 92.0 % when nothing disturbs them"
    assert judge(evidence).unexplained > 0.1
    # Two threads that lack a tenth of that held each other up for two tenths of the time.
    held = msgspec.structs.replace(machine, cpu_share=0.9 * 0.92)
    two = msgspec.structs.replace(evidence, machine=held, config=EngineConfig(threads=2))
    assert said_of(two, "CPU starvation").share == pytest.approx(0.2)
