"""What a pane says, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stackscope.tui.lines import plain
from stackscope.tui.look import UNICODE
from stackscope.tui.pane import Context, Size
from stackscope.tui.panes import PANES

if TYPE_CHECKING:
    from stackscope.analysis.live.snapshot import (
        Snapshot,
    )
    from stackscope.tui.look import Look


def shown(
    pane: str, snapshot: Snapshot, width: int = 58, height: int = 12, look: Look = UNICODE, **changes: Any
) -> str:
    """The pane as text, its note first."""
    context = Context(snapshot=snapshot, size=Size(width, height), look=look, **changes)
    content = PANES[pane].content(context)
    return "\n".join(plain(line) for line in (content.note, *content.lines))


def words(pane: str, snapshot: Snapshot, width: int = 58, height: int = 12, **changes: Any) -> str:
    """The same with runs of blanks as one."""
    return " ".join(shown(pane, snapshot, width, height, **changes).split())
