"""Standard output: colour where a terminal wants it, only characters that it has, and a sentence when writing fails."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

from rich.console import Console

from stackscope.errors import StackscopeError
from stackscope.report.layout import MOST_WIDTH, encodable

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.text import Text


def show(make: Callable[[int], Text]) -> None:
    """Print what is made for the width of the terminal; elsewhere for 80 columns. Raises as `write`."""
    terminal = Console()
    # Rendered aside: rich's own writing has no answer to a full disk.
    text = io.StringIO()
    rendered = Console(file=text, force_terminal=terminal.is_terminal, highlight=False)
    rendered.print(make(min(terminal.width, MOST_WIDTH)), soft_wrap=True)
    write(encodable(text.getvalue(), sys.stdout.encoding))


def write(text: str) -> None:
    """Write to standard output and see it out. Raises `StackscopeError` when it cannot be, `BrokenPipeError` when its
    reader has gone."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        # What is left in the stream would fail once more when the interpreter ends.
        sys.stdout = io.StringIO()
        raise StackscopeError(
            f"The result cannot be written to standard output: {error.strerror or error}.",
            remedy="Free some space, or send it elsewhere.",
        ) from error
