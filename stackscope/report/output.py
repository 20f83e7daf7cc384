"""Standard output: colour where a terminal wants it, and only characters that it has."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console

from stackscope.characters import harmless_json
from stackscope.report.layout import MOST_WIDTH, encodable, visible

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.text import Text


def show(make: Callable[[int], Text]) -> None:
    """Print what is made for the width of the terminal; elsewhere for 80 columns. Raises as `write`."""
    terminal = Console()
    # Rendered aside: rich's own writing has no answer to a full disk.
    text = io.StringIO()
    rendered = Console(file=text, force_terminal=terminal.is_terminal, highlight=False)
    made = make(min(terminal.width, MOST_WIDTH))
    made.plain = visible(made.plain)
    rendered.print(made, soft_wrap=True)
    write(encodable(text.getvalue(), sys.stdout.encoding))


def write(text: str) -> None:
    """Write to standard output and see it out. Raises what that stream raises."""
    sys.stdout.write(text)
    sys.stdout.flush()


def write_json(document: object) -> None:
    """Write a document for machines, in one line. Raises as `write`."""
    write(harmless_json(msgspec.json.encode(document).decode()) + "\n")
