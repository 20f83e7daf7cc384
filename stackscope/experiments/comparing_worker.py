"""The process that compares recordings for a screen: their paths are its arguments, the answer goes to its output."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from stackscope.engine.wire import failure_of
from stackscope.engine.worker import die_with, leave_ending_to_parent
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parent", type=int, help="process to die with, one of whose threads waits for the answer")
    parser.add_argument("paths", nargs="+")
    args = parser.parse_args()
    leave_ending_to_parent()
    if args.parent is not None:
        die_with(args.parent)
    with suppress(OSError):
        os.nice(19)  # An engine may run beside it, and be measured.
    sys.stdout.buffer.write(msgspec.msgpack.encode(answer(args.paths)))


if __name__ == "__main__":
    main()
