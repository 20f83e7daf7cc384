"""The thread that reads GPUs: whoever looks never waits, and what is shown is never older than it says."""

from __future__ import annotations

import threading

import pytest

from stackscope.hardware.gpu_probe import REST_WITHOUT, BackgroundGpus, GpuReading
from stackscope.records import GpuSample

PATIENCE_S = 30
"""For what happens at once unless it never does."""
SECOND = 1_000_000_000


class Clock:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


class Probe:
    """A probe that answers when a test lets it."""

    def __init__(self, *answers: GpuReading | Exception) -> None:
        self._answers = list(answers)
        self.is_asked = threading.Semaphore(0)
        self.may_answer = threading.Semaphore(0)
        self.is_closed = threading.Event()

    def read(self) -> GpuReading:
        self.is_asked.release()
        assert self.may_answer.acquire(timeout=PATIENCE_S)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.is_closed.set()


def reading(at_ns: int, **changes: object) -> GpuReading:
    gpu = GpuSample(uuid="GPU-1", name="A GPU", index=0, power_w=100.0, is_used=True)
    return GpuReading(**{"gpus": (gpu,), "taken_ns": at_ns, "took_ns": SECOND, **changes})  # type: ignore[arg-type]


def started(clock: Clock, probe: Probe) -> BackgroundGpus:
    gpus = BackgroundGpus(probe, period_ns=0, clock=clock)
    gpus.start()
    assert probe.is_asked.acquire(timeout=PATIENCE_S)
    return gpus


def answered(probe: Probe) -> None:
    """Let the probe answer; when it is asked again, the answer has been noted."""
    probe.may_answer.release()
    assert probe.is_asked.acquire(timeout=PATIENCE_S)


def finished(gpus: BackgroundGpus, probe: Probe) -> None:
    gpus.close()
    probe.may_answer.release()
    assert probe.is_closed.wait(PATIENCE_S)


def test_nobody_waits_for_the_driver() -> None:
    """Case 58: whoever reads has an answer at once."""
    clock = Clock()
    probe = Probe(reading(0), reading(0))
    gpus = started(clock, probe)
    first = gpus.read()
    assert first.gpus is None
    assert first.problem == "The GPUs have not answered yet."
    answered(probe)
    found = gpus.read().gpus
    assert found is not None
    assert found[0].power_w == 100.0
    finished(gpus, probe)


def test_a_reading_says_how_old_it_is() -> None:
    clock = Clock()
    probe = Probe(reading(0), reading(0))
    gpus = started(clock, probe)
    answered(probe)
    clock.now_ns = 3 * SECOND
    found = gpus.read().gpus
    assert found is not None
    assert (found[0].age_ns, found[0].power_w) == (3 * SECOND, 100.0)
    finished(gpus, probe)


def test_a_driver_that_falls_silent_is_not_taken_at_its_last_word() -> None:
    clock = Clock()
    probe = Probe(reading(0), reading(0))
    gpus = started(clock, probe)
    answered(probe)
    clock.now_ns = 10 * SECOND
    assert gpus.read().gpus[0].power_w == 100.0  # type: ignore[index]
    clock.now_ns = 11 * SECOND
    [silent] = gpus.read().gpus or ()
    assert silent.power_w is None
    assert silent.why("power_w") == "the driver has not answered for 11 s"
    assert (silent.uuid, silent.name, silent.index, silent.is_used) == ("GPU-1", "A GPU", 0, True)
    finished(gpus, probe)


def test_no_gpus_and_no_driver_are_passed_on() -> None:
    clock = Clock()
    none = GpuReading(gpus=(), problem="There is no driver.", remedy="Install one.", taken_ns=0)
    probe = Probe(none, none)
    gpus = started(clock, probe)
    answered(probe)
    found = gpus.read()
    assert (found.gpus, found.reason) == ((), "There is no driver. Install one.")
    finished(gpus, probe)


def test_a_bug_in_the_thread_comes_out_where_it_is_seen() -> None:
    clock = Clock()
    probe = Probe(ZeroDivisionError("a bug"))
    gpus = started(clock, probe)
    probe.may_answer.release()
    assert probe.is_closed.wait(PATIENCE_S)
    with pytest.raises(ZeroDivisionError, match="a bug"):
        gpus.read()


def test_lateness_is_measured_and_a_slow_driver_is_left_to_rest() -> None:
    """A round of 1 s is followed by 4 s of rest, however short the period is."""
    clock = Clock()
    waits: list[float] = []

    class Watched(BackgroundGpus):
        def _rest(self, seconds: float) -> bool:
            waits.append(seconds)
            clock.now_ns += round(seconds * 1e9) + 7
            return len(waits) > 3

    class Slow:
        def read(self) -> GpuReading:
            clock.now_ns += SECOND
            return reading(clock.now_ns)

        def close(self) -> None:
            return None

    gpus = Watched(Slow(), period_ns=200_000_000, clock=clock)
    gpus._run()
    assert waits == [0, 4, 4, 4]
    assert gpus.read().late_ns == 7


def test_a_machine_without_gpus_is_asked_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    probe = Probe(reading(0), reading(0, gpus=()), reading(0, gpus=None, problem="No driver."), ValueError("enough"))
    gpus = BackgroundGpus(probe, period_ns=SECOND, clock=Clock())
    rests: list[float] = []
    monkeypatch.setattr(gpus, "_rest", rests.append)
    gpus.start()
    probe.may_answer.release(4)
    assert probe.is_closed.wait(PATIENCE_S)
    assert rests == [0.0, 1.0, 1.0 + REST_WITHOUT, 1.0 + 2 * REST_WITHOUT]
