"""The standard streams as a command line needs them: none is missing, and what fails about output is a sentence."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import TYPE_CHECKING

from stackscope.errors import StackscopeError

if TYPE_CHECKING:
    from collections.abc import Iterator


class StandardOutput(io.TextIOWrapper):
    """Standard output that says in a sentence what fails about it; that its reader has gone stays `BrokenPipeError`.

    It fails once: what it still holds then leads nowhere, instead of failing again when the interpreter ends.
    """

    def write(self, text: str) -> int:
        with self._seen_out():
            return super().write(text)

    def flush(self) -> None:
        with self._seen_out():
            super().flush()

    @contextlib.contextmanager
    def _seen_out(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            if isinstance(error, BrokenPipeError):
                raise
            raise StackscopeError(
                f"The result cannot be written to standard output: {error.strerror or error}.",
                remedy="Free some space, or send it elsewhere.",
            ) from error


def open_standard_streams() -> None:
    """Have a standard stream that was closed lead nowhere: else the next pipe or file would take its place.

    What encoding they were asked to have is about them, and not about the pipes of processes that are started.
    """
    os.environ.pop("PYTHONIOENCODING", None)
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, hence this one
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115, PTH123 - for good
