"""The application: it shows frames as they come, and passes on what the user asks for."""

from __future__ import annotations

import asyncio
import os
import signal
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, get_args

from textual.binding import Binding
from textual.message import Message
from textual.worker import get_current_worker

from stackscope.analysis.live.snapshot import Snapshot
from stackscope.tui import theme
from stackscope.tui.bindings import Keymap, bindings
from stackscope.tui.feed import Feed, Frame
from stackscope.tui.look import UNICODE, Look
from stackscope.tui.modes import OTHERS, commands
from stackscope.tui.roomy import RoomyApp
from stackscope.tui.screens.live import LiveScreen
from stackscope.tui.screens.running import FrameScreen
from stackscope.tui.showing import Pause, as_it_ended
from stackscope.tui.source import Status
from stackscope.tui.styles import CSS, line_filters, textual_theme
from stackscope.tui.toggling import Said, Toggling

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from textual.binding import BindingType
    from textual.command import Provider
    from textual.filter import LineFilter
    from textual.screen import Screen

    from stackscope.errors import StackscopeError
    from stackscope.model.variants import Variant
    from stackscope.records import ModelSummary
    from stackscope.tui.bindings import Scope
    from stackscope.tui.control import Control, Playback
    from stackscope.tui.feed import View
    from stackscope.tui.governor import Governor
    from stackscope.tui.pane import Pane
    from stackscope.tui.screens.sessions import SessionsScreen
    from stackscope.tui.source import Source

NOTICE_S: Final = 4.0
"""How long a sentence stays on the screen."""


def new_view() -> View:
    """The present of one session. Imported late: it is needed once there are records."""
    from stackscope.analysis.live.view import LiveView

    return LiveView()


class StackscopeApp(RoomyApp):
    """The screen around a source and its control."""

    TITLE = "stackscope"
    CSS = CSS
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings("everywhere"),
        Binding("ctrl+z", "suspend_process", show=False, priority=True),
    ]
    MODES: ClassVar[dict[str, str | Callable[[], Screen[Any]]]] = {"live": LiveScreen, **OTHERS}
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {commands}
    DEFAULT_MODE = "live"

    class Fed(Message):
        """A frame waits."""

    def __init__(
        self,
        source: Source,
        control: Control,
        *,
        playback: Playback | None = None,
        kind: theme.Kind = "dark",
        kinds: Sequence[theme.Kind] = ("dark", "light", "ansi", "mono"),
        look: Look = UNICODE,
        keys: Keymap | None = None,
        make_view: Callable[[], View] = new_view,
        governor: Governor | None = None,
        cores: int | None = None,
        models: dict[str, ModelSummary] | None = None,
        **options: Any,
    ) -> None:
        """`playback` is the control itself where a recording is played. `cores` are those that the engine may use.
        `models` takes what other files of the same model consist of, by path, once they have been read.

        `options` are Textual's: which driver draws.
        """
        self.kind = kind
        self._kinds: tuple[theme.Kind, ...] = tuple(kinds)
        """Themes that this terminal has the colours for."""
        self.look = look
        super().__init__(**options)
        self.no_color = False  # The kind says so: Textual's stylesheets would add to it.
        for each in get_args(theme.Kind):
            self.register_theme(textual_theme(each))
        self.theme = f"stackscope-{kind}"  # Before anything is styled in the colours of another.
        self.control = control
        self.playback = playback
        self.keys = keys or Keymap()
        self.frame = Frame(snapshot=Snapshot(), status=Status())
        """The newest."""
        self.toggling = Toggling(control, cores=cores)
        self._models = {} if models is None else models
        self.fault: BaseException | None = None
        """What ended the screen that should not have. `None`: nothing."""
        self.is_interrupted = False
        """It was left by Ctrl-C."""
        self.wanted: Path | None = None
        """The recording that is to be played next: it was left for that."""
        self._has_looked = False
        """Somebody has looked for other weights of the same model, or does so now."""
        self._told_status: Status | None = None
        self._told_failure: StackscopeError | None = None
        self._is_end_wanted = False
        self._events: asyncio.AbstractEventLoop | None = None
        self.feed = Feed(
            source, make_view=make_view, announce=self._announce, is_stalled=self._is_stalled, governor=governor
        )
        self.pause = Pause(self.feed)

    # The beginning and the end

    def on_mount(self) -> None:
        self._events = asyncio.get_running_loop()
        self.set_class(self.look.is_ascii, "-ascii")
        self.set_keymap(dict(self.keys.keys))
        for complaint in self.keys.complaints:
            self.tell(complaint, is_warning=True)
        # What the source has to load would only delay the first picture.
        self.call_after_refresh(self.feed.start)
        if self._is_end_wanted:
            self.exit()

    def end_soon(self) -> None:
        """Leave: from any thread at any time, inside a signal's handler too."""
        self._is_end_wanted = True
        self.feed.stop()
        if self._events is not None:
            self._events.call_soon_threadsafe(self.exit)

    def end_feed(self) -> None:
        """Wait until the source is closed, once the screen is gone."""
        self.feed.stop()
        if self.feed.ident is not None:
            self.feed.join()
        self.fault = self.fault or self.feed.fault

    @property
    def is_paused(self) -> bool:
        """The display is held still."""
        return self.pause.is_on

    @property
    def has_terminal_answered(self) -> bool:
        """It has taken the last that was written to it, so that more can be."""
        return bool(getattr(self._driver, "has_written_all", True))

    async def action_quit(self) -> None:
        """Leave. The source is closed while the terminal is given back."""
        self.end_soon()

    def action_help_quit(self) -> None:
        """Ctrl-C leaves, as it does everywhere else."""
        self.is_interrupted = True
        self.end_soon()

    def action_suspend_process(self) -> None:
        """Stop the whole job, as ^Z on a terminal does: whoever started this program stops with it."""
        os.killpg(os.getpgrp(), signal.SIGTSTP)

    # Frames

    def _announce(self) -> None:
        """A frame waits: called by the feed's thread."""
        self.post_message(self.Fed())

    def _is_stalled(self) -> bool:
        return bool(getattr(self._driver, "is_stalled", False))

    def on_stackscope_app_fed(self) -> None:
        """Show the newest frame."""
        if self.feed.fault is not None:
            self.fault = self.feed.fault
            self.exit()
            return
        frame = self.feed.take_frame()
        if frame is not None:
            self.take(frame)

    def take(self, frame: Frame) -> None:
        """Show a frame; while the display is paused, only what its status and the toggles say."""
        frame = as_it_ended(frame)
        self.toggling.see(frame.snapshot)
        self.frame = frame = self.pause.held(frame, self.frame)
        if not self._has_looked:
            self._look_for_variants()
        if frame.status is not self._told_status:
            self._told_status = frame.status
            for notice in frame.status.notices:
                self.tell(notice, is_warning=True)
        self._show_again()
        failure = frame.status.failure
        if failure is not self._told_failure:
            self._told_failure = failure
            if failure is not None:
                self._tell_failure(failure)

    def _show_again(self) -> None:
        """Draw what has changed."""
        for screen in self.screen_stack:
            if isinstance(screen, FrameScreen) and screen.is_composed:
                screen.show(self.frame)

    def _look_for_variants(self) -> None:
        """See by a thread, as it reads files, which other weights of the same model there are."""
        config = self.frame.snapshot.config
        if config is not None and self.control.is_live and self.frame.snapshot.n_steps > 0:
            self._has_looked = True
            self.run_worker(partial(self._read_variants, config.model), thread=True, exclusive=True, group="variants")

    def _read_variants(self, model: str) -> None:
        from stackscope.model.variants import find_variants, summaries

        worker = get_current_worker()
        found = find_variants(model, lambda: not worker.is_cancelled)
        if not worker.is_cancelled:
            self._models.update(summaries(variant.path for variant in found))
            self.call_later(self._take_variants, found)

    def _take_variants(self, found: tuple[Variant, ...]) -> None:
        self.toggling.variants = found
        self.toggling.see_again()

    def _tell_failure(self, failure: StackscopeError) -> None:
        from stackscope.tui.screens.dialogs import EngineEnded

        has_begun = self.frame.snapshot.header is not None
        self.push_screen(
            EngineEnded(failure, has_begun=has_begun, recording=self.frame.status.recorded), self._answer_failure
        )

    def _answer_failure(self, is_restart_wanted: bool | None) -> None:
        if is_restart_wanted:
            self._say(self.control.restart())
            self.toggling.forget()

    # What the user asks for

    def ask_restart(self) -> None:
        """Start the engine anew; one that runs ends with that, so it is asked for."""
        from stackscope.tui.screens.dialogs import Question

        if not self.control.is_live or self.frame.status.is_over:
            self._answer_failure(True)
            return
        question = Question(
            "Restart the engine?", "What runs now ends; its recording is closed and stays.", yes="restart it", no="stay"
        )
        self.push_screen(question, self._answer_failure)

    def tell(self, text: str, *, is_warning: bool = False) -> None:
        """Show a sentence for a while."""
        self.notify(text, severity="warning" if is_warning else "information", timeout=NOTICE_S, markup=False)

    def _say(self, refusal: str | None) -> None:
        if refusal is not None:
            self.tell(refusal, is_warning=True)

    def _has_ended(self) -> bool:
        """Whether nothing can be asked of the engine any more, which is then said at once, with what can be done."""
        has_ended = self.control.is_live and self.frame.status.is_over
        if has_ended:
            self.tell(f"The engine has ended: {self.keys.shown('restart')} starts it again.", is_warning=True)
        return has_ended

    def press_toggle(self, toggle: str, direction: int) -> None:
        """Go to the next value of a toggle, or the one before."""
        if not self._has_ended():
            self._say_of_toggle(self.toggling.press(toggle, 1 if direction > 0 else -1))

    def choose_toggle(self, toggle: str, label: str) -> None:
        """Choose a value of a toggle."""
        if not self._has_ended():
            self._say_of_toggle(self.toggling.choose(toggle, label))

    def open_toggles(self) -> None:
        """Show all toggles with all their values."""
        from stackscope.tui.screens.toggle_menu import ToggleMenu

        self._look_for_variants()
        self.push_screen(ToggleMenu(self.toggling, lambda: self.frame.snapshot, self.keys, self._say_of_toggle))

    def _say_of_toggle(self, said: Said | None) -> None:
        if said is not None:
            self.tell(said.text, is_warning=said.is_refusal)
        if self.is_paused:
            self.pause.look()
            self._show_again()  # The chip shows what was asked for.
        self.feed.wake()

    def ask_mark(self) -> None:
        """Ask for a mark's name, and put it."""
        from stackscope.tui.screens.dialogs import MarkDialog

        if self._has_ended():
            return
        if not self.control.is_live:
            self._say(self.control.mark(""))
            return
        self.push_screen(MarkDialog(), self._put_mark)

    def _put_mark(self, label: str | None) -> None:
        if label is not None:
            self._say(self.control.mark(label))

    def toggle_recording(self) -> None:
        """Start a recording, or end it."""
        if not self._has_ended():
            self._say(self.control.record(is_wanted=not self.control.is_recording_asked))

    def toggle_pause(self) -> None:
        """Hold the display still, or the recording that is played."""
        playback = self.playback
        if playback is not None:
            playback.pause() if playback.is_playing else playback.play()
            return
        self.pause.switch(self)
        self.frame = self.pause.held(self.frame, self.frame)
        self._show_again()

    def want_text(self, *, is_wanted: bool) -> None:
        """Whether the text of requests is looked at by anybody."""
        if self.control.is_live:
            self.control.show_text(is_wanted=is_wanted)

    def text_of(self, request: int) -> str | None:
        """What a request has generated, or its end. `None`: not known."""
        return self.feed.texts.tail(request)

    def explain_pane(self, pane: Pane) -> None:
        """Say what the numbers of a pane mean."""
        from stackscope.tui.screens.help import PaneHelpScreen

        self.push_screen(PaneHelpScreen(pane.title, pane.help))

    def action_help(self) -> None:
        """Show all keys, and what each pane means."""
        from stackscope.tui.panes import PANES
        from stackscope.tui.screens.help import HelpScreen

        scopes: dict[str, tuple[Scope, ...]] = {"live": ("live",), "steps": ("steps",), "sessions": ("sessions",)}
        self.push_screen(HelpScreen(tuple(PANES.values()), first=scopes.get(self.current_mode, ())))

    def on_sessions_screen_opened(self, event: SessionsScreen.Opened) -> None:
        """Play a recording instead of what is shown; an engine that runs ends with that."""
        from stackscope.tui.screens.dialogs import Question

        def leave(is_sure: bool | None = True) -> None:
            if is_sure:
                self.wanted = event.path
                self.feed.stop()
                self.exit()

        if self.control.is_live and not self.frame.status.is_over:
            self.push_screen(Question("Opening a recording ends this run.", yes="open it", no="stay"), leave)
        else:
            leave()

    def action_show(self, mode: str) -> None:
        """Go to another screen."""
        if mode in self.MODES and mode != self.current_mode:
            self.switch_mode(mode)

    def action_next_theme(self) -> None:
        """Go to the next theme that this terminal has the colours for."""
        kinds = self._kinds
        self.use_theme(kinds[(kinds.index(self.kind) + 1) % len(kinds)] if self.kind in kinds else kinds[0])

    def get_line_filters(self) -> Sequence[LineFilter]:
        return line_filters(self.kind, super().get_line_filters())

    def use_theme(self, kind: theme.Kind) -> None:
        """Draw with this theme from now on."""
        self.kind = kind
        self.theme = f"stackscope-{kind}"
        self._show_again()
