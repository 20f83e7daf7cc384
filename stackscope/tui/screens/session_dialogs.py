"""What the screen of recordings shows over itself: how two of them compare."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol, cast

from textual.message import Message
from textual.worker import get_current_worker

from stackscope.errors import StackscopeError
from stackscope.tui.comparison import comparison
from stackscope.tui.screens.help import Reading

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from stackscope.analysis.comparing.comparison import Comparison
    from stackscope.tui.app import StackscopeApp
    from stackscope.tui.library import Digest, Entry
    from stackscope.tui.lines import Line


class Compare(Protocol):
    """Compares recordings for as long as that is wanted; `None` once it is not. May raise `StackscopeError`."""

    def __call__(self, paths: Sequence[Path], is_wanted: Callable[[], bool], /) -> Comparison | None: ...


class ComparisonScreen(Reading):
    """Two recordings side by side. They are compared beside the screen, and no longer than somebody looks at it."""

    DEFAULT_CSS: ClassVar[str] = """
    ComparisonScreen > Vertical { width: 96%; max-width: 116; height: 96%; }
    """
    title_text = "Two recordings"

    class Found(Message):
        """They were compared, or could not be."""

        def __init__(self, found: Comparison | str) -> None:
            super().__init__()
            self.found = found

    def __init__(
        self, one: tuple[Entry, Digest], other: tuple[Entry, Digest], *, compare: Compare | None = None
    ) -> None:
        """`compare` `None` is in a process of its own."""
        super().__init__()
        self._pair = (one, other)
        self._compare = compare
        self._found: Comparison | str | None = None

    def on_mount(self) -> None:
        damage = next((known.damage for _, known in self._pair if known.damage is not None), None)
        if damage is None:
            self.run_worker(self._work, thread=True, exclusive=True, group="comparison")
        else:
            self._found = "What cannot be read is not compared."
        super().on_mount()

    def _work(self) -> None:
        """What the thread does."""
        from stackscope.experiments.comparing_apart import compare_apart

        worker = get_current_worker()
        paths = [entry.path for entry, _ in self._pair]
        try:
            found: Comparison | str | None = (self._compare or compare_apart)(paths, lambda: not worker.is_cancelled)
        except StackscopeError as error:
            found = str(error)
        if found is not None:
            self.post_message(self.Found(found))

    def on_comparison_screen_found(self, event: Found) -> None:
        """Show it."""
        self._found = event.found
        self.draw()

    def lines(self, room: int) -> Sequence[Line]:
        return comparison(*self._pair, self._found, room, cast("StackscopeApp", self.app).look)
