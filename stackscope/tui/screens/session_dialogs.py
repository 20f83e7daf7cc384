"""What the screen of recordings shows over itself: how two of them compare."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from stackscope.tui.comparison import comparison
from stackscope.tui.screens.help import Reading

if TYPE_CHECKING:
    from collections.abc import Sequence

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
