"""The dialog of all toggles: every value of each, what it costs, and why some are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding
from textual.containers import Vertical

from stackscope.tui.lines import Span, fitted
from stackscope.tui.screens.modal import Modal
from stackscope.tui.toggle_menu import Cursor, Menu, menu
from stackscope.tui.toggles import TOGGLES, choices
from stackscope.tui.widgets.painted import Bar, Painted

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import ComposeResult
    from textual.events import Click

    from stackscope.analysis.live.snapshot import Snapshot
    from stackscope.tui.bindings import Keymap
    from stackscope.tui.toggling import Said, Toggling

LOOK_S = 0.25
"""How often the menu looks whether something has changed."""


class ToggleMenu(Modal[None]):
    """Arrows move, enter chooses, escape closes. It stays open, so that one can see what came of a choice."""

    DEFAULT_CSS: ClassVar[str] = """
    ToggleMenu { align: center middle; }
    ToggleMenu > Vertical {
        width: 94%; max-width: 108; height: 96%; max-height: 24;
        border: round $border; border-title-color: $foreground; background: $surface; padding: 0 1;
    }
    ToggleMenu MenuBody { height: 1fr; }
    """
    BINDINGS: ClassVar = [
        Binding("escape,q,o", "close", "close"),
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup,home", "move(-99)", show=False),
        Binding("pagedown,end", "move(99)", show=False),
        Binding("right,tab", "enter", show=False),
        Binding("left,shift+tab", "leave", show=False),
        Binding("enter,space", "choose", "choose"),
    ]

    def __init__(
        self,
        toggling: Toggling,
        snapshot: Callable[[], Snapshot],
        keymap: Keymap,
        say: Callable[[Said | None], None],
        *,
        toggle_id: str | None = None,
    ) -> None:
        """`snapshot` gives the newest; `say` shows what a choice has to say. `toggle_id`: which is selected first."""
        super().__init__()
        self._toggling = toggling
        self._snapshot = snapshot
        self._keymap = keymap
        self._say = say
        ids = [toggle.id for toggle in TOGGLES]
        self.cursor = Cursor(ids.index(toggle_id) if toggle_id is not None else 0)

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = "Toggles"
            yield MenuBody()
            yield Bar()

    def on_mount(self) -> None:
        self.set_interval(LOOK_S, self.show)
        self.call_after_refresh(self.show)

    def show(self) -> None:
        """Draw the menu as things stand."""
        body, bar = self.query_one(MenuBody), self.query_one(Bar)
        width, height = body.size
        if width < 1 or height < 1:
            return
        look = body.look
        body.menu = menu(self._toggling.situation, self._snapshot(), self.cursor, (width, height), self._keymap, look)
        body.paint(*(fitted(line, width, look.ellipsis) for line in body.menu.lines))
        arrows = ("Up/Down", "Right", "Left") if look.is_ascii else ("↑↓", "→", "←")
        hint = (arrows[2], "back") if self.cursor.value is not None else (arrows[1], "values")
        pairs = ((arrows[0], "move"), hint, ("enter", "choose"), ("esc", "close"))
        bar.show(tuple(part for key, what in pairs for part in (Span(key, "key"), Span(f" {what}   ", "label"))))

    def action_close(self) -> None:
        self.dismiss(None)

    def action_move(self, by: int) -> None:
        if self.cursor.value is None:
            toggle = max(0, min(self.cursor.toggle + by, len(TOGGLES) - 1))
            self.cursor = Cursor(toggle)
        else:
            n = len(choices(TOGGLES[self.cursor.toggle], self._toggling.situation))
            self.cursor = Cursor(self.cursor.toggle, max(0, min(self.cursor.value + by, n - 1)))
        self.show()

    def action_enter(self) -> None:
        """Go to the values, beginning with the current one."""
        offered = choices(TOGGLES[self.cursor.toggle], self._toggling.situation)
        if self.cursor.value is None and offered:
            current = next((index for index, choice in enumerate(offered) if choice.is_current), 0)
            self.cursor = Cursor(self.cursor.toggle, current)
            self.show()

    def action_leave(self) -> None:
        self.cursor = Cursor(self.cursor.toggle)
        self.show()

    def action_choose(self) -> None:
        """Choose the value that is selected; where none is, go to the values."""
        if self.cursor.value is None:
            self.action_enter()
            return
        toggle = TOGGLES[self.cursor.toggle]
        offered = choices(toggle, self._toggling.situation)
        if self.cursor.value < len(offered):
            self._say(self._toggling.choose(toggle.id, offered[self.cursor.value].label))
        self.show()

    def pointed(self, x: int, y: int) -> None:
        """Select what is at a place of the menu; a value that is selected already is chosen."""
        found: Menu | None = self.query_one(MenuBody).menu
        if found is None:
            return
        if x < found.left and y in found.toggles:
            self.cursor = Cursor(found.toggles[y])
        elif x >= found.left and y in found.values:
            here = Cursor(self.cursor.toggle, found.values[y])
            if here == self.cursor:
                self.action_choose()
            self.cursor = here
        self.show()


class MenuBody(Painted):
    """The menu's lines."""

    menu: Menu | None = None
    """As it was drawn last."""

    def on_click(self, event: Click) -> None:
        screen = self.screen
        if isinstance(screen, ToggleMenu):
            screen.pointed(event.x, event.y)

    def on_resize(self) -> None:
        screen = self.screen
        if isinstance(screen, ToggleMenu):
            screen.show()
