"""What the message about a dead engine says."""

from __future__ import annotations

import signal

import pytest

from stackscope.engine.exits import died, last_words

ASSERT = "ggml.c:123: GGML_ASSERT(ne0 == 1) failed"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (-signal.SIGKILL, "killed by SIGKILL, perhaps because memory ran out"),
        (-signal.SIGABRT, r"aborted \(SIGABRT\)"),
        (-signal.SIGSEGV, r"crashed in native code \(SIGSEGV\)"),
        (-signal.SIGBUS, "model file is cut short"),
        (-signal.SIGILL, "instruction that this processor does not have"),
        (-signal.SIGTERM, "ended by SIGTERM"),
        (-signal.SIGXCPU, "ended by SIGXCPU"),
        (-64, "ended by SIGRTMAX"),
        (-200, "ended by signal 200"),
        (0, "ended without saying why"),
        (70, r"failed inside \(status 70\)"),
    ],
)
def test_each_end_has_a_sentence(status: int, expected: str) -> None:
    error = died(status, ["loading", ASSERT])
    with pytest.raises(type(error), match=expected):
        raise error
    assert error.exit_code == 7
    assert str(error).endswith(f"Its last lines were:\n    loading\n    {ASSERT}")


def test_a_silent_death_promises_no_lines() -> None:
    error = died(-signal.SIGABRT, [])
    assert error.remedy == "Please report this."
    assert "lines" not in str(error)


def test_the_last_lines_are_shown() -> None:
    assert last_words([str(n) for n in range(20)]) == tuple(str(n) for n in range(8, 20))


def test_what_native_code_said_stands_before_pythons_stack_and_is_shown() -> None:
    stack = ["Fatal Python error: Aborted", "Current thread 0x01:", *(f"  File {n}" for n in range(30))]
    words = last_words([*(str(n) for n in range(20)), ASSERT, *stack])
    assert words == ("15", "16", "17", "18", "19", ASSERT, *stack[:6])
