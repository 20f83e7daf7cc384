"""Prints the panes as the screen lays them out: `python -m tests.tui.preview running 120 40`, from made-up numbers."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rich.console import Console
from rich.style import Style
from rich.text import Text

from stackscope.tui.layout import arranged
from stackscope.tui.lines import Line, Span, fitted, width
from stackscope.tui.look import chosen
from stackscope.tui.pane import Context, Size
from stackscope.tui.panes import PANES
from stackscope.tui.panes.events import latest
from stackscope.tui.theme import BASES, style
from tests.tui.sessions import SESSIONS

if TYPE_CHECKING:
    from stackscope.analysis.live.snapshot import Snapshot
    from stackscope.tui.layout import Region
    from stackscope.tui.look import Look
    from stackscope.tui.theme import Kind

TEXT = (
    "def fibonacci(n: int) -> int:\n    \"\"\"The n-th number, counted from 0.\"\"\"\n    a, b = 0, 1\n"
    "    for _ in range(n):\n        a, b = b, a + b\n    return a\n\n\ndef primes(limit: int) -> list[int]:\n"
    "    sieve = [True] * (limit + 1)\n    for n in range(2, int(limit ** 0.5) + 1):\n        if sieve[n]:\n"
)  # fmt: skip


def framed(name: str, region: Region, snapshot: Snapshot, look: Look) -> list[Line]:
    """A pane in its border."""
    pane = PANES[name]
    inner = Size(region.width - 2, region.height - 2)
    selected = snapshot.requests[0].id if snapshot.requests else None
    context = Context(snapshot=snapshot, size=inner, look=look, selected=selected, text=TEXT if selected else None)
    content = pane.content(context)
    corners = "++++-|" if look.is_ascii else "╭╮╰╯─│"
    room = inner.width - len(pane.title) - 3 - (width(content.note) + 3 if content.note else 0)
    note: Line = (Span(" "), *content.note, Span(f" {corners[4]}", "border")) if content.note else ()
    top: Line = (
        Span(corners[0] + corners[4], "border"), Span(f" {pane.title} ", "title"),
        Span(corners[4] * room, "border"), *note, Span(corners[1], "border"),
    )  # fmt: skip
    side = Span(corners[5], "border")
    lines = list(content.lines) + [()] * (inner.height - len(content.lines))
    body: list[Line] = [(side, *fitted(line, inner.width), side) for line in lines]
    return [top, *body, (Span(corners[2] + corners[4] * inner.width + corners[3], "border"),)]


def screen(snapshot: Snapshot, columns: int, rows: int, look: Look, page: int = 0) -> list[Line]:
    """All lines of a page of the live screen; what is not a pane is left blank."""
    layout = arranged(columns, rows, page=page)
    drawn: dict[tuple[int, int], Line] = {}
    for name, region in layout.regions.items():
        lines: list[Line] = [(Span(name.center(region.width, "."), "unit"),)] * region.height
        if name in PANES:
            lines = framed(name, region, snapshot, look)
        elif name == "event":
            lines = [latest(snapshot, region.width, look)]
        for offset, line in enumerate(lines):
            drawn[region.y + offset, region.x] = line
    return [tuple(span for (y, _), line in sorted(drawn.items()) if y == row for span in line) for row in range(rows)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("session", choices=SESSIONS)
    parser.add_argument("columns", type=int, nargs="?", default=120)
    parser.add_argument("rows", type=int, nargs="?", default=40)
    parser.add_argument("--page", type=int, default=0)
    parser.add_argument("--kind", choices=("dark", "light", "ansi", "mono"), default="dark")
    parser.add_argument("--ascii", action="store_true")
    asked = parser.parse_args()
    kind: Kind = asked.kind
    look = chosen(is_ascii=asked.ascii, n_colours={"mono": 0, "ansi": 16}.get(kind, 1 << 24))
    lines = screen(SESSIONS[asked.session](), asked.columns, asked.rows, look, asked.page)
    console = Console(width=asked.columns, force_terminal=True, color_system="truecolor", highlight=False)
    back = Style(bgcolor=BASES[kind].background) if kind in BASES else Style()
    for line in lines:
        console.print(Text.assemble(*((span.text, back + style(kind, span.style)) for span in line)), soft_wrap=True)


if __name__ == "__main__":
    main()
