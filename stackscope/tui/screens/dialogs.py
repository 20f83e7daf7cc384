"""What the live screen asks and tells in the middle of things: a mark's name, an engine's last words, a question."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, ClassVar, Final

from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input, Static

from stackscope.tui.lines import printable
from stackscope.tui.screens.modal import Modal

if TYPE_CHECKING:
    from pathlib import Path

    from textual.app import ComposeResult

    from stackscope.errors import StackscopeError

LONGEST_MARK: Final = 60
MOST_LAST_LINES: Final = 12

SHARE_WIDTH: Final = 0.8
MOST_WIDTH: Final = 96
SHARE_HEIGHT: Final = 0.9
"""Of the terminal that a dialog takes at most, as the style sheet below says."""
FRAME_WIDTH: Final = 6
FRAME_HEIGHT: Final = 10
"""Of it: border and padding; beside an engine's last words also the title, their heading, blank lines, and one row to
spare."""
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
            yield Input(placeholder="its name", max_length=LONGEST_MARK)
            yield Static("enter  put it     esc  leave", classes="keys", markup=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Put the mark."""
        name = printable(event.value).strip()
        self.dismiss(name or None)

    def action_leave(self) -> None:
        """Put no mark."""
        self.dismiss(None)


def _height(text: str, width: int) -> int:
    """Rows that a text takes at most: words are broken where they are longer than that."""
    return len(textwrap.wrap(text, max(1, width), break_on_hyphens=False)) or 1


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
        with Vertical():
            yield Static(title, classes="title", markup=False)
            yield Static(failure.message, markup=False)
            if failure.remedy is not None:
                yield Static(failure.remedy, markup=False)
            kept = None if self._recording is None else f"The recording up to here is whole: {self._recording}"
            if words := self._words([failure.message, failure.remedy, KEYS, kept]):
                yield Static("\n".join(["\nIts log ends with:", *words]), markup=False)
            if kept is not None:
                yield Static(f"\n{kept}", markup=False)
            yield Static(KEYS, classes="keys", markup=False)

    def _words(self, others: list[str | None]) -> list[str]:
        """As many of its last lines as leave room for what else is said, and for the keys."""
        width = min(round(SHARE_WIDTH * self.app.size.width), MOST_WIDTH) - FRAME_WIDTH
        room = int(SHARE_HEIGHT * self.app.size.height) - FRAME_HEIGHT
        room -= sum(_height(text, width) for text in others if text is not None) + (others[-1] is not None)
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
        with Vertical():
            yield Static(self._title, classes="title", markup=False)
            for text in self._details:
                yield Static(text, markup=False)
            yield Static(self._keys, classes="keys", markup=False)

    def action_answer(self, is_sure: bool) -> None:
        """Close with the answer."""
        self.dismiss(is_sure)
