"""A driver that does not answer, beside the whole application: keys are answered, and steps recorded, all the same."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stackscope.errors import SessionFileError
from stackscope.records import HardwareSample, StepRecord
from stackscope.session.reader import SessionReader, read_session
from tests.integration.cli_support import until
from tests.integration.live_support import live
from tests.nvml.scenarios import driver, h100

if TYPE_CHECKING:
    import pytest

    from stackscope.records import AnyRecord
    from tests.nvml.machine import Machine

SLEEP_MS: Final = 600_000
"""Longer than the test may take: whatever comes about in it comes about while the first call has not returned."""
N_STEPS: Final = 200
N_KEYS: Final = 5


def recorded(path: Path) -> list[AnyRecord]:
    try:
        return list(SessionReader(path))
    except SessionFileError:
        return []  # It is not there yet, or its header is being written.


def n_steps(path: Path) -> int:
    return sum(isinstance(record, StepRecord) for record in recorded(path))


def test_a_driver_that_does_not_answer_delays_neither_a_key_nor_a_step(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case 58, and worse: not one call takes half a second, it takes ten minutes."""
    scenario = {**driver(1), **h100(), "all.sleep_ms": SLEEP_MS}
    for name, value in machine.environment(scenario).items():
        monkeypatch.setenv(name, value)
    path = tmp_path / "a.jsonl.zst"
    with live("fake:step_us=2000", "--record", path) as running:
        until(lambda: running.is_over or re.search(r"rec \d:\d\d", running.terminal) is not None)
        assert not running.is_over, running.terminal
        library = str(machine.driver.library)
        until(lambda: library in Path(f"/proc/{running.pid}/maps").read_text())
        for _ in range(N_KEYS):
            before, n_shown = n_steps(path), len(running.terminal)
            running.press("?")
            until(lambda: "Help" in running.terminal[n_shown:])  # noqa: B023 - called before the next round
            n_shown = len(running.terminal)
            running.press("?")
            until(lambda: "Step anatomy" in running.terminal[n_shown:])  # noqa: B023
            until(lambda: n_steps(path) >= before + N_STEPS)  # noqa: B023
        running.press("q")
        assert running.wait() == 0
    session = read_session(path)
    assert session.footer is not None
    assert [step.n for step in session.steps] == list(range(len(session.steps)))
    assert len(session.steps) >= N_KEYS * N_STEPS
    samples = [record for record in recorded(path) if isinstance(record, HardwareSample)]
    assert samples
    for sample in samples:
        assert not sample.gpus
        assert "have not answered yet" in sample.unknown["gpus"]
