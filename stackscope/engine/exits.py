"""What the exit status of an engine process says about its end."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

from stackscope.errors import EngineDiedError

if TYPE_CHECKING:
    from collections.abc import Sequence

LAST_LINES: Final = 12
"""Log lines that the message about a dead engine shows at most."""

_CRASH: Final = "Fatal Python error:"
"""How the stack begins that Python writes on a fatal signal, after whatever native code had to say about it."""

_REPORT: Final = "Please report this with the lines below."

_SIGNALS: Final[dict[int, tuple[str, str | None]]] = {
    signal.SIGKILL: (
        "was killed by SIGKILL, perhaps because memory ran out",
        "Use a smaller model, context or number of slots; the kernel's log (dmesg) says who killed it.",
    ),
    signal.SIGABRT: ("aborted (SIGABRT): native code found something it cannot go on from", _REPORT),
    signal.SIGSEGV: ("crashed in native code (SIGSEGV)", _REPORT),
    signal.SIGBUS: (
        "crashed in native code (SIGBUS), as happens when a model file is cut short while it is in use",
        "Check the model file and its disk.",
    ),
    signal.SIGILL: (
        "met an instruction that this processor does not have (SIGILL)",
        "Install llama-cpp-python again on this machine, so that it is built for this processor.",
    ),
    signal.SIGTERM: ("was ended by SIGTERM", None),
}
"""What a fatal signal means here, and what helps."""


def died(status: int, log: Sequence[str]) -> EngineDiedError:
    """The error for a process that ended with `status` (as `subprocess` counts) before it had said how.

    `log` is what it wrote, line by line.
    """
    if status < 0:
        what, remedy = _SIGNALS.get(-status, (f"was ended by {_name(-status)}", _REPORT))
    elif status == 0:
        what, remedy = "ended without saying why", _REPORT
    else:
        what, remedy = f"failed inside (status {status})", _REPORT
    lines = last_words(log)
    if remedy == _REPORT and not lines:
        remedy = "Please report this."
    return EngineDiedError(f"The engine process {what}.", remedy=remedy, last_lines=lines)


def last_words(log: Sequence[str]) -> tuple[str, ...]:
    """The lines of a log that tell most about its end: the last, or those around where Python noticed a crash."""
    crashes = [index for index, line in enumerate(log) if line.startswith(_CRASH)]
    if not crashes:
        return tuple(log[-LAST_LINES:])
    return tuple(log[max(0, crashes[-1] - LAST_LINES // 2) : crashes[-1] + LAST_LINES // 2])


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
