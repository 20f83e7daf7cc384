"""Reading a file of settings in TOML, with a sentence for every way in which it can be none."""

from __future__ import annotations

import os
import re
import stat
import tomllib
from typing import TYPE_CHECKING, Any, Final

from stackscope import units
from stackscope.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

MOST_BYTES: Final = 1 << 20
"""A longer file of settings is none."""
_GIVE_SETTINGS: Final = "Give the path of a file of settings in TOML."


def read_toml(path: Path, *, called: str = "") -> dict[str, Any]:
    """What a file holds. Raises `UsageError`, which names it; `called` stands before its path where it is not there."""
    try:
        return tomllib.loads(_text_of(path))
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UsageError(
            f"{path} is not a text file in UTF-8, from line {line} on.",
            remedy="Save it as UTF-8, if it is a file of settings.",
        ) from None
    except tomllib.TOMLDecodeError as error:
        where = re.search(r" \(at (line \d+), column \d+\)$", str(error))
        raise UsageError(
            f"{path} is not valid TOML: {error}.",
            remedy=f"Correct {'its end' if where is None else where[1]}: a section is [name], a setting name = value, "
            "with quotes around a text.",
        ) from None
    except ValueError:  # Python reads no numbers of thousands of digits.
        raise UsageError(f"{path} holds a number with too many digits.", remedy="Write fewer.") from None
    except RecursionError:
        raise UsageError(f"{path} is nested too deeply for settings.", remedy=_GIVE_SETTINGS) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"{called}{path} cannot be read: {reason}.", remedy="Check the path.") from None


def _text_of(path: Path) -> str:
    """A file's text, whatever kind of file it is; but none that goes on and on. Raises `UsageError`, `OSError`."""
    with open(path, "rb", opener=_without_waiting) as file:
        raw = file.read(MOST_BYTES + 1)
        if not raw and stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
            raise UsageError(f"{path} is a pipe to which nobody writes.", remedy="Give the path of a file.")
    if len(raw) > MOST_BYTES:
        raise UsageError(
            f"{path} is longer than {units.data_size(MOST_BYTES)}, too long for settings.", remedy=_GIVE_SETTINGS
        )
    return raw.decode("utf-8-sig")  # Editors on Windows begin a file with a byte order mark.


def _without_waiting(path: str, flags: int) -> int:
    """Open a file for a reader that waits for what is written, but not for somebody to begin with it."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    return descriptor
