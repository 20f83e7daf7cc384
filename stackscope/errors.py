"""Every failure a user can cause or meet, as one family: what happened, what to do about it, which exit code.

An exception outside this family reaching the command line is a bug and shows a traceback.
"""

from __future__ import annotations

import re
from typing import ClassVar, Final

from stackscope.characters import harmless

LONGEST_WORD: Final = 300
"""Characters of a word that are told whole: long paths are shorter, and a value of thousands hides its sentence."""


def one_line(text: str) -> str:
    """A text for a message of one line, whatever names and values of others it holds.

    What would move the terminal is replaced, and of words that go on and on both ends are kept.
    """
    return re.sub(rf"\S{{{LONGEST_WORD + 1},}}", lambda word: f"{word[0][:100]}…{word[0][-100:]}", harmless(text))


class StackscopeError(Exception):
    """A failure with a sentence for the user."""

    exit_code: ClassVar[int] = 1
    """What the process exits with when this ends it."""

    def __init__(self, message: str, *, remedy: str | None = None, setting: str | None = None) -> None:
        message = one_line(message)
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        """What the user can do about it, as an imperative sentence. `None`: nothing is known to help."""
        self.setting = setting
        """Field that `message` begins with, for those who know where its value came from. `None`: it is another one."""

    def __str__(self) -> str:
        return self.message if self.remedy is None else f"{self.message} {self.remedy}"


class UsageError(StackscopeError):
    """An option, a setting or a combination of them makes no sense, on any machine and with any model."""

    exit_code = 2


class ModelFileError(StackscopeError):
    """A model file is missing, damaged, or of a kind that cannot generate text here."""

    exit_code = 3


class WorkloadError(StackscopeError):
    """A trace or prompt file cannot be used, or none of the traffic can be served."""

    exit_code = 4


class ToggleRefusedError(StackscopeError):
    """A configuration that this model, build or context cannot run; the previous one stays in force."""

    exit_code = 5


class EngineError(StackscopeError):
    """The inference library refused or failed in a way the engine can report."""

    exit_code = 6


class EngineDiedError(EngineError):
    """The engine process ended without saying goodbye (abort, kill, out of memory)."""

    exit_code = 7

    def __init__(self, message: str, *, remedy: str | None = None, last_lines: tuple[str, ...] = ()) -> None:
        super().__init__(message, remedy=remedy)
        self.last_lines = last_lines
        """What it or the native library wrote last, oldest first."""

    def __str__(self) -> str:
        if not self.last_lines:
            return super().__str__()
        return "\n    ".join([super().__str__(), "Its last lines were:", *self.last_lines])


class SessionFileError(StackscopeError):
    """A recording cannot be written, or cannot be read at all."""

    exit_code = 8


class LibraryError(StackscopeError):
    """The native inference library is missing, of an untested version, or not what its binding describes."""

    exit_code = 9


class DownloadError(StackscopeError):
    """A model could not be fetched."""

    exit_code = 10
