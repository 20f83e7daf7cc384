"""The screen of recordings: their headline numbers, and what can be done with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.message import Message
from textual.worker import get_current_worker

from stackscope import units
from stackscope.session.paths import known_folders
from stackscope.tui import bars
from stackscope.tui.bindings import bindings
from stackscope.tui.library import Digest, Entry, Library
from stackscope.tui.lines import Line, Span, fitted, printable, spelled, spread
from stackscope.tui.screens.running import FrameScreen
from stackscope.tui.session_lines import Marks, detail_lines, heading, row_line
from stackscope.tui.widgets.painted import Bar, Painted, TooSmall
from stackscope.tui.widgets.row_list import RowList

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from textual.app import ComposeResult
    from textual.binding import BindingType

    from stackscope.session.paths import Folder
    from stackscope.tui.feed import Frame


class SessionList(RowList):
    """A line for each recording."""

    def __init__(self, screen: SessionsScreen) -> None:
        super().__init__(id="list")
        self._screen = screen

    def line_at(self, row: int) -> Line:
        entries = self._screen.entries
        if not 0 <= row < len(entries):
            return ()
        entry = entries[row]
        known = self._screen.library.known(entry)
        line = row_line(entry, known, self._screen.marks_of(row), self.room, self.look)
        return spelled(line, self.look)


class SessionsScreen(FrameScreen):
    """The newest at the top. Files are read by a thread of their own, as long as the screen is looked at."""

    DEFAULT_CSS: ClassVar[str] = """
    SessionsScreen #list { height: 1fr; }
    SessionsScreen #about { height: 5; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("sessions")]

    here = "screen_sessions"

    class Opened(Message):
        """A recording is to be played."""

        def __init__(self, path: Path) -> None:
            super().__init__()
            self.path = path

    class Learned(Message):
        """More is known of the recordings."""

    def __init__(self, folders: Sequence[Folder] | None = None) -> None:
        """`folders`: where recordings are looked for. `None`: wherever they may be."""
        super().__init__()
        self.library = Library(known_folders() if folders is None else folders)
        self.entries: tuple[Entry, ...] = ()
        self._picked: tuple[Path, ...] = ()
        self._is_looking = True
        self._has_chosen = False
        """Somebody has moved the selection: until then it is the newest."""

    def compose(self) -> ComposeResult:
        yield Bar(id="header")
        yield Bar(id="caption")
        yield Bar(id="heading")
        yield SessionList(self)
        yield Painted(id="about")
        yield Bar(id="footer")
        small = TooSmall(id="small")
        small.display = False
        yield small

    @property
    def _list(self) -> SessionList:
        return self.query_one(SessionList)

    # Looking

    def on_mount(self) -> None:
        self._list.focus()

    def on_screen_resume(self) -> None:
        self._look()
        super().on_screen_resume()

    def on_screen_suspend(self) -> None:
        self.workers.cancel_node(self)

    def _look(self) -> None:
        self._is_looking = True
        self.run_worker(self._read, thread=True, exclusive=True, group="library", exit_on_error=True)

    def _read(self) -> None:
        """What the thread does."""
        worker = get_current_worker()
        self.library.look()
        self._is_looking = False
        self.post_message(self.Learned())
        self.library.fill(lambda: not worker.is_cancelled, lambda: self.post_message(self.Learned()))

    def on_sessions_screen_learned(self) -> None:
        """Draw what is known by now; the recording that somebody chose stays selected."""
        selected = self.selected
        self.entries = self.library.entries
        paths = [entry.path for entry in self.entries]
        here = self._list.here if self._has_chosen else 0
        if self._has_chosen and selected is not None and selected.path in paths:
            here = paths.index(selected.path)
        self._picked = tuple(path for path in self._picked if path in paths)
        self._list.set_rows(len(paths), here)
        self._wish()
        self._draw()

    def on_row_list_selected(self) -> None:
        self._has_chosen = True
        self._wish()
        self._draw()

    def _wish(self) -> None:
        """Have what is in sight read first."""
        places = [self._list.here, *self._list.in_sight]
        self.library.wish([self.entries[place] for place in places if place < len(self.entries)])

    # Drawing

    @property
    def selected(self) -> Entry | None:
        """The selected recording. `None`: there is none."""
        return self.entries[self._list.here] if self.entries else None

    def marks_of(self, row: int) -> Marks:
        """How a row stands out."""
        entry = self.entries[row]
        return Marks(row == self._list.here, entry.path in self._picked, self._is_written(entry))

    def _is_written(self, entry: Entry) -> bool:
        recording = self.owner.control.recording
        return recording is not None and recording.resolve() == entry.path.resolve()

    def show(self, frame: Frame) -> None:
        """Draw what has changed of what runs."""
        if not self.size.width or self.has_no_room():
            return
        look, width = self.owner.look, self.size.width
        line = bars.header(frame.snapshot, frame.status, width, look, is_paused=self.owner.is_paused)
        self.query_one("#header", Bar).show(line)
        shown = self.footer_keys(frame, "sessions", "everywhere")
        self.query_one("#footer", Bar).show(bars.footer(shown, width, look, own_share=frame.own_share))
        self._draw()

    def on_resize(self) -> None:
        self.call_after_refresh(self.show_again)

    def on_scrolled_resized(self) -> None:
        self.show_again()  # What stands around the list is laid out for its width.

    def _draw(self) -> None:
        look, width = self.owner.look, self.size.width
        self.query_one("#caption", Bar).show(spelled(spread(self._caption(), (), width, look.ellipsis), look))
        self.query_one("#heading", Bar).show(heading(self._list.room, look) if self.entries else ())
        about = self.query_one("#about", Painted)
        entry = self.selected
        lines: tuple[Line, ...] = ()
        if entry is not None:
            marks = self.marks_of(self._list.here)
            lines = detail_lines(entry, self.library.known(entry), marks, max(about.size.width, 1), look)
        room = max(about.size.width, 1)
        about.paint(*(spelled(fitted(line, room, look.ellipsis), look) for line in lines[: max(about.size.height, 0)]))

    def _caption(self) -> Line:
        if not self.entries:
            folder = printable(str(self.library.folders[0].path)) if self.library.folders else ""
            text = "Looking for recordings." if self._is_looking else f"There are no recordings in {folder} yet."
            return (Span(f" {text}", "label"),)
        size = units.data_size(sum(entry.bytes for entry in self.entries))
        line: Line = (
            Span(" Sessions", "title"),
            Span(f"  {units.counted(len(self.entries), 'recording')}, {size}", "label"),
        )
        if self._picked:
            n = (
                "one more to compare"
                if len(self._picked) == 1
                else f"{self.owner.keys.shown('sessions_compare')} compares"
            )
            line = (*line, Span(f"   {units.counted(len(self._picked), 'recording')} picked, {n}", "accent"))
        return line

    # Doing

    def action_open(self) -> None:
        """Play the selected recording."""
        entry = self.selected
        if entry is None:
            return
        known = self.library.known(entry)
        if known.damage is not None:
            self.owner.tell(known.damage, is_warning=True)
        elif self._is_written(entry):
            self.owner.tell("This recording is being written: end it first.", is_warning=True)
        else:
            self.post_message(self.Opened(entry.path))

    def action_pick(self) -> None:
        """Pick the selected recording for a comparison, or leave it out again. Of three, the oldest pick goes."""
        entry = self.selected
        if entry is None:
            return
        if entry.path in self._picked:
            self._picked = tuple(path for path in self._picked if path != entry.path)
        else:
            self._picked = (*self._picked[-1:], entry.path)
        self._list.refresh()
        self._list.action_move(1)

    def action_compare(self) -> None:
        """Compare the two that are picked; with one picked, that and the selected one."""
        from stackscope.tui.screens.session_dialogs import ComparisonScreen

        paths = list(self._picked)
        if len(paths) == 1 and self.selected is not None and self.selected.path not in paths:
            paths.append(self.selected.path)
        if len(paths) != 2:
            self.owner.tell(f"Pick two recordings to compare, with {self.owner.keys.shown('sessions_pick')}.")
            return
        found: list[tuple[Entry, Digest]] = []
        for path in paths:
            entry = next(entry for entry in self.entries if entry.path == path)
            found.append((entry, self.library.known(entry)))
        if any(known.result is None and known.damage is None for _, known in found):
            self.library.wish([entry for entry, _ in found])
            self.owner.tell("They are still being read: try again in a moment.")
            return
        self.app.push_screen(ComparisonScreen(found[0], found[1]))

    def action_delete(self) -> None:
        """Ask whether the selected recording is to go for good."""
        from stackscope.tui.screens.dialogs import Question

        entry = self.selected
        if entry is None:
            return
        if self._is_written(entry):
            self.owner.tell("This recording is being written: end it first.", is_warning=True)
        elif entry.is_shipped:
            self.owner.tell("This recording comes with Stackscope and stays.", is_warning=True)
        else:
            question = Question(
                "Delete this recording?",
                printable(str(entry.path)),
                f"Its {units.data_size(entry.bytes)} cannot be brought back.",
                yes="delete it",
                no="keep it",
            )
            self.app.push_screen(question, lambda is_sure: self._delete(entry) if is_sure else None)

    def _delete(self, entry: Entry) -> None:
        if self._is_written(entry):  # begun while the question stood
            self.owner.tell("This recording is being written: end it first.", is_warning=True)
            return
        try:
            entry.path.unlink(missing_ok=True)
        except OSError as error:
            reason = error.strerror or str(error)
            self.owner.tell(f"{printable(entry.path.name)} cannot be deleted: {reason}.", is_warning=True)
            return
        self.library.forget(entry)
        self.on_sessions_screen_learned()
        self.owner.tell(f"{printable(entry.path.name)} is deleted.")

    def action_refresh(self) -> None:
        """Look again what recordings there are."""
        self._look()
        self._draw()
