"""What the live screen asks and tells in the middle of things: a mark's name, an engine's last words, a question."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, cast

from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input, Static

from stackscope.tui.layout import LEAST_HEIGHT, LEAST_WIDTH
from stackscope.tui.lines import cells, printable
from stackscope.tui.screens.modal import Modal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from textual.app import ComposeResult
    from textual.geometry import Size

    from stackscope.errors import StackscopeError
    from stackscope.tui.app import StackscopeApp

LONGEST_MARK: Final = 60
MOST_LAST_LINES: Final = 12

SHARE_WIDTH: Final = 0.8
MOST_WIDTH: Final = 96
SHARE_HEIGHT: Final = 0.9
"""Of the terminal that a dialog takes at most, as the style sheet below says."""
FRAME_WIDTH: Final = 6
FRAME_HEIGHT: Final = 8
"""Of it: border and padding; of its height also the title, the keys, and blank lines between."""
WORDS_HEIGHT: Final = 3
"""The heading of an engine's last words, the blank line before it, and one row to spare."""
KEYS: Final = "r  start it again     q  quit     esc  look at what was"

_CSS: Final = """
{name} {{ align: center middle; }}
{name} > Vertical {{
    width: 80%; max-width: 96; height: auto; max-height: 90%; padding: 1 2; background: $surface;
    border: round $border;
}}
{name} Static {{ width: 100%; height: auto; }}
{name} .title {{ text-style: bold; margin-bottom: 1; }}
{name} .keys {{ margin-top: 1; }}
{name} Input {{ width: 100%; height: 1; border: none; padding: 0; }}
"""


class MarkDialog(Modal[str | None]):
    """Asks for the name of a mark. An empty name is as good as none."""

    CSS = _CSS.format(name="MarkDialog")
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", show=False)]

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static("Mark this moment", classes="title", markup=False)
            yield Input(placeholder="its name", max_length=LONGEST_MARK, select_on_focus=False)
            yield Static("enter  put it     esc  leave", classes="keys", markup=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Put the mark."""
        name = printable(event.value).strip()
        self.dismiss(name or None)

    def action_leave(self) -> None:
        """Put no mark."""
        self.dismiss(None)


def _room(size: Size) -> tuple[int, int]:
    """(columns, rows) that a dialog has for what it says between its title and its keys, where it is seen at all."""
    width = min(round(SHARE_WIDTH * max(size.width, LEAST_WIDTH)), MOST_WIDTH) - FRAME_WIDTH
    return width, int(SHARE_HEIGHT * max(size.height, LEAST_HEIGHT)) - FRAME_HEIGHT


def _height(text: str, width: int) -> int:
    """Rows that a text takes: words that are longer than one begin on one of their own, and are broken."""
    rows, used = 1, len(text) - len(text.lstrip())
    for word in text.split():
        size = cells(word)
        if used and used + 1 + size > width:
            rows, used = rows + 1, 0
        rows, used = rows + (size - 1) // width, (used + 1 if used else 0) + (size - 1) % width + 1
    return rows


def _fitting(texts: Sequence[str], width: int, height: int, ellipsis: str) -> list[str]:
    """The texts, the longest of them cut in the middle where they would take more rows than there are.

    A path begins and ends with what tells it from others; and the keys must have their row, whatever is said.
    """
    found = list(texts)
    while (over := sum(_height(text, width) for text in found) - height) > 0:
        place = max(range(len(found)), key=lambda n: _height(found[n], width))
        n_rows = _height(found[place], width)
        if n_rows == 1:
            break
        half = (max(n_rows - over, 1) * width - 1) * len(found[place]) // (2 * cells(found[place]))
        while half > 1 and _height(found[place][:half] + ellipsis + found[place][-half:], width) >= n_rows:
            half -= 1
        found[place] = found[place][:half] + ellipsis + found[place][-half:]
    return found


class EngineEnded(Modal[bool]):
    """Says why the engine ended, with its last words; the answer is whether to start it again."""

    CSS = _CSS.format(name="EngineEnded")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "restart", show=False),
        Binding("q,ctrl+q,ctrl+c", "quit_all", show=False),
        Binding("escape", "look", show=False),
    ]

    def __init__(self, failure: StackscopeError, *, has_begun: bool, recording: Path | None = None) -> None:
        """`recording` is what was recorded until then."""
        super().__init__()
        self._failure = failure
        self._has_begun = has_begun
        self._recording = recording

    def compose(self) -> ComposeResult:
        failure = self._failure
        title = "The engine has ended" if self._has_begun else "The engine could not start"
        width, height = _room(self.app.size)
        height -= _height(KEYS, width) - 1
        said = [failure.message] if failure.remedy is None else [failure.message, failure.remedy]
        kept = [] if self._recording is None else [f"The recording up to here is whole: {self._recording}"]
        fitting = _fitting([*said, *kept], width, height - len(kept), cast("StackscopeApp", self.app).look.ellipsis)
        height -= sum(_height(text, width) for text in fitting) + len(kept)
        with Vertical():
            yield Static(title, classes="title", markup=False)
            for text in fitting[: len(said)]:
                yield Static(text, markup=False)
            if words := self._words(width, height - WORDS_HEIGHT):
                yield Static("\n".join(["\nIts log ends with:", *words]), markup=False)
            for text in fitting[len(said) :]:
                yield Static(f"\n{text}", markup=False)
            yield Static(KEYS, classes="keys", markup=False)

    def _words(self, width: int, room: int) -> list[str]:
        """As many of its last lines as have room."""
        lines: list[str] = []
        for line in reversed(getattr(self._failure, "last_lines", ())[-MOST_LAST_LINES:]):
            room -= _height(told := f"  {printable(line)}", width)
            if room < 0:
                break
            lines.insert(0, told)
        return lines

    async def on_resize(self) -> None:
        """Say as much as now has room."""
        await self.recompose()

    def action_restart(self) -> None:
        """Start the engine again."""
        self.dismiss(True)

    def action_look(self) -> None:
        """Leave the dialog, and the engine ended."""
        self.dismiss(False)

    async def action_quit_all(self) -> None:
        """Leave the program."""
        await self.app.action_quit()


class Question(Modal[bool]):
    """Asks whether something is meant. Enter and escape are not yes: they come too easily."""

    CSS = _CSS.format(name="Question")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", show=False),
        Binding("escape,n,q", "answer(False)", show=False),
    ]

    def __init__(self, title: str, *details: str, yes: str, no: str) -> None:
        """`yes` and `no` say what each answer does."""
        super().__init__()
        self._title = title
        self._details = details
        self._keys = f"y  {yes}     esc  {no}"

    def compose(self) -> ComposeResult:
        ellipsis = cast("StackscopeApp", self.app).look.ellipsis
        with Vertical():
            yield Static(self._title, classes="title", markup=False)
            for text in _fitting(self._details, *_room(self.app.size), ellipsis):
                yield Static(text, markup=False)
            yield Static(self._keys, classes="keys", markup=False)

    async def on_resize(self) -> None:
        """Say as much as now has room."""
        await self.recompose()

    def action_answer(self, is_sure: bool) -> None:
        """Close with the answer."""
        self.dismiss(is_sure)
