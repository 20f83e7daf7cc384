"""`stackscope run` under signals: one, a burst, to it alone or to all of its processes, while loading, and ^Z."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from stackscope.analysis.summary import RunSummary
from stackscope.session.reader import SessionReader
from tests.integration.cli_support import SMALL, start, start_with, until
from tests.integration.test_run import ENDLESS, TROUBLED, footer_of, is_recording
from tests.integration.worker_support import is_gone_within, wait_ms

pytestmark = pytest.mark.engine


def test_ctrl_c_ends_a_run_with_the_summary_of_what_ran(tmp_path: Path) -> None:
    path = tmp_path / "cut.jsonl.zst"
    with start(*ENDLESS, "--json", "--record", path) as running:
        until(lambda: is_recording(path))
        running.signal(signal.SIGINT)
        assert running.wait() == 130
        document = json.loads(running.output)
    assert document["interrupted"]
    assert document["ended"] == "interrupted"
    assert document["requests"]["cancelled"] == 3
    recorded = RunSummary()
    for record in SessionReader(path):
        recorded.write(record)
    figures = json.loads(json.dumps(recorded.to_dict()))
    assert {name: document[name] for name in figures} == figures
    assert document["output_tokens"] > 0
    assert footer_of(path).reason == "interrupted"


def test_ctrl_c_inside_a_long_prefill_takes_less_than_a_second(lab_200_mb: Path, tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl.zst"
    traffic = ("--workload", "unique", "--prompt-tokens", "1500", "--max-tokens", "4", "--concurrency", "2")
    options = ("--token-budget", "512", "--record", path, "--json")
    with start("--model", lab_200_mb, *traffic, *options) as running:
        until(path.exists)  # The traffic has begun.
        wait_ms(500)
        asked = running.signal(signal.SIGINT)
        assert running.wait() == 130
        took = time.monotonic() - asked
        document = json.loads(running.output)
    assert document["aborted_steps"] == 1  # It was inside a forward, and that was cut short.
    assert document["requests"] == {"cancelled": 2}
    assert footer_of(path).reason == "interrupted"
    assert took < 1.0


@pytest.mark.parametrize(("number", "how"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "ended by SIGTERM")])
def test_a_signal_while_loading_ends_at_once_and_says_so(number: signal.Signals, how: str) -> None:
    with start_with(f"{TROUBLED}Loading", *SMALL, "--no-record") as running:
        until(lambda: "loading" in running.terminal)
        asked = running.signal(number)
        assert running.is_terminal_sane or not running.is_over
        assert running.wait() == 128 + number
        assert running.terminal.endswith(f"stackscope: {how}: nothing was recorded.\r\n")
        assert time.monotonic() - asked < 1.5
        assert running.output == ""
        assert "Traceback" not in running.terminal


def test_a_second_ctrl_c_does_not_wait_for_the_engine(tmp_path: Path) -> None:
    path = tmp_path / "twice.jsonl.zst"
    with start(*ENDLESS, "--record", path) as running:
        until(lambda: is_recording(path))
        engine = running.engine_pid
        assert engine is not None
        os.kill(engine, signal.SIGSTOP)  # It cannot answer, so that the first one waits.
        running.signal(signal.SIGINT)
        wait_ms(300)
        assert not running.is_over
        asked = running.signal(signal.SIGINT)
        assert running.wait() == 130
        assert time.monotonic() - asked < 1.0
        assert f"stackscope: interrupted: what ran until then is in {path}." in running.terminal.replace("\r\n", "\n")
        assert is_gone_within(engine, 0)
        assert "Traceback" not in running.terminal
    assert footer_of(path).reason == "interrupted"


def test_a_burst_of_signals_is_one_wish(tmp_path: Path) -> None:
    """`timeout` signals its child and then its group, which the child is in."""
    path = tmp_path / "burst.jsonl.zst"
    with start(*ENDLESS, "--json", "--record", path) as running:
        until(lambda: is_recording(path))
        for _ in range(5):
            running.signal(signal.SIGTERM)
            wait_ms(20)
        assert running.wait() == 128 + signal.SIGTERM
        assert json.loads(running.output)["interrupted"]
    assert footer_of(path).reason == "interrupted"


def test_a_signal_to_all_processes_ends_a_run_in_order(tmp_path: Path) -> None:
    """As a service manager sends it: ending is the parent's to decide."""
    path = tmp_path / "all.jsonl.zst"
    with start(*ENDLESS, "--json", "--record", path) as running:
        until(lambda: is_recording(path))
        engine = running.engine_pid
        assert engine is not None
        os.kill(engine, signal.SIGTERM)
        wait_ms(50)
        running.signal(signal.SIGTERM)
        assert running.wait() == 128 + signal.SIGTERM
        document = json.loads(running.output)
    assert document["interrupted"]
    assert document["requests"]["cancelled"] == 3
    assert footer_of(path).reason == "interrupted"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_end_ends_a_run_in_order(number: signal.Signals, tmp_path: Path) -> None:
    path = tmp_path / "ended.jsonl.zst"
    with start(*ENDLESS, "--record", path) as running:
        until(lambda: is_recording(path))
        running.signal(number)
        assert running.wait() == 128 + number
        assert "ran           interrupted after " in running.output
    assert footer_of(path).reason == "interrupted"


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def cpu_of(pid: int) -> int:
    return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))


def test_ctrl_z_stops_the_parent_only_and_the_run_goes_on_when_resumed(tmp_path: Path) -> None:
    path = tmp_path / "stopped.jsonl.zst"
    with start(*SMALL, "--requests", "60", "--max-tokens", "60", "--record", path) as running:
        until(lambda: is_recording(path))
        engine = running.engine_pid
        assert engine is not None
        running.signal(signal.SIGTSTP)
        until(lambda: state_of(running.pid) == "T")
        before = cpu_of(engine)
        until(lambda: not Path(f"/proc/{engine}").exists() or cpu_of(engine) > before, seconds=20)
        assert running.terminal.rfind("\x1b[?25l") <= running.terminal.rfind("\x1b[?25h")  # The cursor is there.
        running.signal(signal.SIGCONT)
        assert running.wait() == 0
        assert "requests      60 reached their limit" in running.output
    assert footer_of(path).requests == 60
