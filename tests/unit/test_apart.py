"""A task in a process of its own: what comes back, whatever becomes of it."""

from __future__ import annotations

import os
import sys
import tempfile
from typing import Final

import msgspec
import pytest

from stackscope.engine.process import child_environment
from stackscope.engine.wire import Failed, error_of
from stackscope.engine.worker import EXIT_BUG
from stackscope.errors import EngineError, UsageError
from stackscope.experiments import apart

WORKER: Final = """
import msgspec
from stackscope.errors import EngineError
from stackscope.experiments.apart import serve

class Task(msgspec.Struct):
    numbers: tuple[int, ...]

class Half(msgspec.Struct, tag="half"):
    of: int
    value: int

def work(task, say):
    print("a library prints")
    for number in task.numbers:
        if number % 2:
            raise EngineError(f"{number} is odd.", remedy="Take another.")
        say(Half(number, number // 2))

serve("Halves.", Task, work)
"""


class Task(msgspec.Struct):
    numbers: tuple[object, ...]


def asked(*numbers: object) -> tuple[list[object], int, str]:
    """What it answered, its exit status, and what it printed besides."""
    with tempfile.TemporaryFile() as said:
        process = apart.start(("-P", "-c", WORKER), child_environment(os.environ, None), said, what="halving")
        apart.give(process, Task(numbers))
        assert process.stdout is not None
        with process.stdout as answers:
            lines = [msgspec.json.decode(line) for line in answers]
        status = process.wait()
        said.seek(0)
        return lines, status, said.read().decode()


def test_answers_come_one_by_one_and_nothing_that_is_printed_is_among_them() -> None:
    halves = [{"type": "half", "of": 4, "value": 2}, {"type": "half", "of": 10, "value": 5}]
    assert asked(4, 10) == (halves, 0, "a library prints\n")


def test_what_prevents_it_is_the_last_answer() -> None:
    (half, last), status, _ = asked(4, 5)
    assert half == {"type": "half", "of": 4, "value": 2}
    refused = msgspec.convert(last, apart.Refused)
    assert isinstance(refused.failure, Failed)
    error = error_of(refused.failure)
    assert (type(error), str(error)) == (EngineError, "5 is odd. Take another.")
    assert status == EngineError.exit_code


def test_a_bug_leaves_its_trace() -> None:
    answers, status, said = asked("four")
    assert (answers, status) == ([], EXIT_BUG)
    assert "Traceback" in said
    assert "ValidationError" in said


def test_a_task_that_cannot_be_written_down_is_refused_before() -> None:
    with tempfile.TemporaryFile() as said:
        process = apart.start(("-c", "input()"), dict(os.environ), said, what="waiting")
        try:
            with pytest.raises(UsageError, match=r"^/models/\S\.gguf is not valid UTF-8"):
                apart.give(process, Task(("/models/\udcff.gguf",)))
        finally:
            process.kill()
            process.communicate()


def test_a_process_that_has_ended_takes_no_task() -> None:
    with tempfile.TemporaryFile() as said:
        process = apart.start(("-c", ""), dict(os.environ), said, what="ended")
        process.wait()
        apart.give(process, Task(tuple(range(100_000))))
        assert process.stdout is not None
        with process.stdout as answers:
            assert answers.read() == b""


def test_a_process_that_cannot_be_started_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with tempfile.TemporaryFile() as said, pytest.raises(EngineError, match=r"The comparing process cannot be started"):
        apart.start((), {}, said, what="comparing")
