"""The process that compares recordings for a screen: their paths are its arguments, the answer goes to its output."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from stackscope.engine.wire import failure_of
from stackscope.engine.worker import leave_ending_to_parent
from stackscope.errors import StackscopeError
from stackscope.experiments.apart import Refused
from stackscope.experiments.comparing import compare
from stackscope.experiments.comparing_apart import Answer, Compared

if TYPE_CHECKING:
    from collections.abc import Sequence


def answer(paths: Sequence[str]) -> Answer:
    """The comparison, or why there is none."""
    try:
        return Compared(comparison=compare(paths))
    except StackscopeError as error:
        return Refused(failure=failure_of(error))


def main() -> None:
    leave_ending_to_parent()
    with suppress(OSError):
        os.nice(19)  # An engine may run beside it, and be measured.
    sys.stdout.buffer.write(msgspec.msgpack.encode(answer(sys.argv[1:])))


if __name__ == "__main__":
    main()
