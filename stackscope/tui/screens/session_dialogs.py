"""What the screen of recordings asks and shows over itself: whether one is to go, and how two compare."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from textual.binding import Binding
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

from stackscope import units
from stackscope.tui.comparison import comparison
from stackscope.tui.lines import printable
from stackscope.tui.screens.help import Reading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.app import ComposeResult

    from stackscope.tui.app import StackscopeApp
    from stackscope.tui.library import Digest, Entry
    from stackscope.tui.lines import Line


class ComparisonScreen(Reading):
    """Two recordings side by side."""

    DEFAULT_CSS: ClassVar[str] = """
    ComparisonScreen > Vertical { width: 96%; max-width: 104; height: 96%; }
    """
    title_text = "Two recordings"

    def __init__(self, one: tuple[Entry, Digest], other: tuple[Entry, Digest]) -> None:
        super().__init__()
        self._pair = (one, other)

    def lines(self, room: int) -> Sequence[Line]:
        return comparison(*self._pair, room, cast("StackscopeApp", self.app).look)


class ConfirmDeletion(ModalScreen[bool]):
    """Only `y` deletes: enter, which opens recordings, does not."""

    DEFAULT_CSS: ClassVar[str] = """
    ConfirmDeletion { align: center middle; }
    ConfirmDeletion > Vertical {
        width: 80%; max-width: 84; height: auto; padding: 1 2; background: $surface; border: round $border;
    }
    ConfirmDeletion Static { width: 100%; height: auto; }
    ConfirmDeletion .title { text-style: bold; margin-bottom: 1; }
    ConfirmDeletion .keys { margin-top: 1; }
    """
    BINDINGS: ClassVar = [
        Binding("y", "answer(True)", show=False),
        Binding("escape,n,q", "answer(False)", show=False),
    ]

    def __init__(self, entry: Entry) -> None:
        super().__init__()
        self._entry = entry

    def compose(self) -> ComposeResult:
        size = units.data_size(self._entry.bytes)
        with Vertical():
            yield Static("Delete this recording?", classes="title", markup=False)
            yield Static(printable(str(self._entry.path)), markup=False)
            yield Static(f"Its {size} cannot be brought back.", markup=False)
            yield Static("y  delete it     esc  keep it", classes="keys", markup=False)

    def action_answer(self, is_sure: bool) -> None:
        self.dismiss(is_sure)
