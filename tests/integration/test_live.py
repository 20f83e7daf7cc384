"""The live screen on a terminal: how it begins, how it ends, and that the terminal is as it was whatever happens."""

from __future__ import annotations

import os
import re
import signal
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from stackscope.errors import EngineDiedError, ModelFileError, SessionFileError
from stackscope.records import StepRecord
from stackscope.session.reader import SessionReader, read_session
from tests.integration.cli_support import until
from tests.integration.live_support import STRAY, Unread, command, live, replay
from tests.integration.worker_support import is_gone_within, wait_ms

if TYPE_CHECKING:
    from tests.integration.cli_support import Running

SLOW: Final = "fake:step_us=2000"
PROMISED_S: Final = 2.0
"""Quitting takes less than this."""


def until_running(running: Running) -> None:
    """Wait until steps are shown."""
    until(lambda: running.is_over or re.search(r"rec \d:\d\d", running.terminal) is not None)
    assert not running.is_over, running.terminal


def n_steps(path: Path) -> int:
    """Steps that are in a recording so far."""
    try:
        return sum(isinstance(record, StepRecord) for record in SessionReader(path))
    except SessionFileError:
        return 0  # It is not there yet, or its header is being written.


def cpu_s(pid: int) -> float:
    """CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_it_starts_runs_and_is_left(tmp_path: Path) -> None:
    """Case 61: left while it decodes."""
    path = tmp_path / "a.jsonl.zst"
    with live(SLOW, "--record", path) as running:
        until_running(running)
        until(lambda: n_steps(path) > 50)
        pressed = running.press("q")
        until(lambda: running.is_over)
        assert time.monotonic() - pressed < PROMISED_S
        until(lambda: running.is_terminal_sane, seconds=10)
        assert running.wait() == 0
        farewell = running.terminal.rpartition("\x1b[?1049l")[2]
    assert re.search(r"Ran for .* tokens, .* tok/s, .* requests served\.", farewell)
    assert f"stackscope replay {path}" in farewell.replace("\r\n", "")
    session = read_session(path)
    assert session.footer is not None
    assert session.footer.reason == "interrupted"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_a_signal_ends_it_in_order(number: signal.Signals, status: int, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    with live(SLOW, "--record", path) as running:
        until_running(running)
        running.signal(number)
        until(lambda: running.is_over)
        until(lambda: running.is_terminal_sane, seconds=10)
        assert running.wait() == status
    assert read_session(path).footer is not None


def test_ctrl_c_is_an_interruption() -> None:
    with live(SLOW, "--no-record") as running:
        until(lambda: "not recording" in running.terminal)
        running.press("\x03")
        assert running.wait() == 130


@pytest.mark.parametrize("model", ["fake:load_ms=60000", "fake:deaf_us=60000000"])
def test_it_is_left_while_the_engine_does_not_listen(model: str) -> None:
    with live(model, "--no-record") as running:
        until(lambda: "loading fake.gguf" in running.terminal or "not recording" in running.terminal)
        pressed = running.press("q")
        until(lambda: running.is_over)
        assert time.monotonic() - pressed < PROMISED_S
        until(lambda: running.is_terminal_sane, seconds=10)
        assert running.wait() == 0


def test_the_engine_goes_with_it() -> None:
    with live(SLOW, "--no-record") as running:
        until(lambda: "not recording" in running.terminal)
        engine = running.engine_pid
        assert engine is not None
        running.press("q")
        assert running.wait() == 0
        assert is_gone_within(engine, 0.0)


def test_an_engine_that_aborts_leaves_terminal_and_recording_whole(tmp_path: Path) -> None:
    """Case 61: `abort()` in native code."""
    path = tmp_path / "a.jsonl.zst"
    with live("fake:step_us=2000,die=native_abort,die_at=100", "--record", path) as running:
        until(lambda: "GGML_ASSERT(false) failed" in running.terminal)
        running.press("q")
        until(lambda: running.is_over)
        until(lambda: running.is_terminal_sane, seconds=10)
        assert running.wait() == EngineDiedError.exit_code
        farewell = running.terminal.rpartition("\x1b[?1049l")[2]
    assert "stackscope: The engine process aborted" in farewell
    session = read_session(path)
    assert session.footer is not None
    assert session.footer.reason == "engine-died"
    # What the engine had not sent when it died is lost: 50 ms.
    assert [step.n for step in session.steps] == list(range(len(session.steps)))
    assert len(session.steps) > 50


def test_a_model_that_cannot_be_loaded_is_told_twice_on_the_screen_and_after() -> None:
    with live("fake:refuse=true", "--no-record") as running:
        until(lambda: "The engine could not start" in running.terminal)
        running.press("q")
        assert running.wait() == ModelFileError.exit_code
        assert "stackscope: fake.gguf is no model. Give another file." in running.terminal.rpartition("\x1b[?1049l")[2]


def test_nothing_that_anybody_writes_lands_on_the_screen() -> None:
    """Case 27: native code of the engine on file descriptors 1 and 2, while it loads and in every step, and Python in
    this process by all its ways."""
    with live("fake:step_us=2000,noise=2,load_noise=20,load_ms=300#stray", "--no-record") as running:
        until(lambda: "not recording" in running.terminal)
        n_shown = len(running.terminal)
        until(lambda: len(running.terminal) > n_shown + 2_000)
        running.press("q")
        assert running.wait() == 0
        assert STRAY not in running.terminal
        assert not re.search(r"(step \d+|load) line \d", running.terminal)
        assert "\x1b[?1049l" in running.terminal


def test_ctrl_z_gives_the_terminal_back_and_fg_takes_it_again(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    with live(SLOW, "--record", path) as running:
        until_running(running)
        running.press("\x1a")
        until(lambda: state_of(running.pid) == "T")
        until(lambda: running.is_terminal_sane, seconds=10)
        n_shown = len(running.terminal)
        running.signal(signal.SIGCONT)
        until(lambda: "\x1b[?1049h" in running.terminal[n_shown:])
        # All of it, and not only what changes: the other screen is empty when it is taken again.
        panes = ("Verdict", "Acceptance", "Prefix cache")
        until(lambda: all(pane in running.terminal[n_shown:] for pane in panes), seconds=10)
        running.press("q")
        until(lambda: running.is_over)
        until(lambda: running.is_terminal_sane, seconds=10)
        assert running.wait() == 0
    steps = read_session(path).steps
    assert [step.n for step in steps] == list(range(len(steps)))


def test_a_terminal_that_stands_still_holds_up_neither_engine_nor_recording(tmp_path: Path) -> None:
    """Case 62: a terminal that nobody reads for ten seconds."""
    path = tmp_path / "a.jsonl.zst"
    with Unread(*command(SLOW, "--record", path)) as running:
        until(lambda: n_steps(path) >= 5_000)  # Of two milliseconds each.
        assert running.n_bytes < 100_000
        running.read()
        until(lambda: running.terminal.count("Step anatomy") > 1)
        running.press("q")
        until(lambda: running.is_over)
        assert running.terminal.rfind("\x1b[?1049h") < running.terminal.rfind("\x1b[?1049l")
    steps = read_session(path).steps
    gaps = [after.start_ns - before.end_ns for before, after in pairwise(steps)]
    assert [step.n for step in steps] == list(range(len(steps)))
    assert max(gaps) < 500_000_000


def test_a_terminal_that_stands_still_does_not_keep_it_from_ending(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    with Unread(*command(SLOW, "--record", path)) as running:
        until(lambda: n_steps(path) > 500)
        running.signal(signal.SIGTERM)
        until(lambda: running.is_over, seconds=20)
        assert running.status == 143
    assert read_session(path).footer is not None


@pytest.mark.parametrize("seconds", [5, pytest.param(60, marks=pytest.mark.slow)])
def test_an_idle_screen_costs_next_to_nothing(seconds: int) -> None:
    """Case 65: nothing changes, so that next to nothing is drawn; and what it costs is on the screen."""
    with live(SLOW, "--no-record", "--rate", "0.001") as running:
        until(lambda: "not recording" in running.terminal)
        wait_ms(3_000)
        before, began, n_shown = cpu_s(running.pid), time.monotonic(), len(running.terminal)
        wait_ms(1_000 * seconds)
        share = (cpu_s(running.pid) - before) / (time.monotonic() - began)
        written = len(running.terminal) - n_shown
        running.press("q")
        assert running.wait() == 0
        assert re.search(r"own .{0,40}?\d", running.terminal, re.DOTALL)
    assert share < 0.05
    assert written < 10_000 * seconds  # What moves with the time; twice a second a whole picture is five times as much.


def test_a_terminal_that_vanishes_ends_it_with_the_recording_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    with live(SLOW, "--record", path) as running:
        until_running(running)
        os.close(running._slave)
        os.close(running._master)
        until(lambda: running.is_over, seconds=20)
        running._master = os.open(os.devnull, os.O_RDWR)
    assert read_session(path).footer is not None


def test_a_recording_is_played_on_the_same_screen(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    with live(SLOW, "--record", path) as running:
        until_running(running)
        until(lambda: n_steps(path) > 300)
        running.press("q")
        running.wait()
    with replay(path) as running:
        until(lambda: "replay" in running.terminal and "playing" in running.terminal)
        until(lambda: "replay end" in running.terminal)
        running.press("q")
        until(lambda: running.is_over)
        until(lambda: running.is_terminal_sane, seconds=10)
        assert running.wait() == 0


def test_what_is_no_recording_never_opens_the_screen(tmp_path: Path) -> None:
    with replay(tmp_path / "none.jsonl.zst") as running:
        assert running.wait() == 8
        assert "does not exist" in running.terminal
        assert "\x1b[?1049h" not in running.terminal
