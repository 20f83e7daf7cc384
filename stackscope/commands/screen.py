"""What `live` and `replay` share: the application as the settings want it, run with signals, and how it ended."""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import TYPE_CHECKING, Final

from stackscope.commands.interrupts import Interrupts
from stackscope.engine.openmp import usable_cores
from stackscope.tui.app import StackscopeApp
from stackscope.tui.bindings import keymap
from stackscope.tui.driver import TerminalDriver
from stackscope.tui.governor import Governor
from stackscope.tui.terminal import clamp_size, kind_of, kinds_of, look_of

if TYPE_CHECKING:
    from pathlib import Path

    from stackscope.config import RunOptions
    from stackscope.records import ModelSummary
    from stackscope.tui.control import Playback
    from stackscope.tui.feed import View
    from stackscope.tui.player import Player
    from stackscope.tui.runner import Runner

SIGNALLED: Final = 128
"""Exit status after a signal, as shells count: this and its number."""
PART_NS: Final = 15_000_000
"""CPU time that predictions may take for one frame: a key is not to wait for more of them."""
FAULTY: Final = 1
"""Exit status when the screen failed with a traceback."""


def make_app(source: Runner | Player, options: RunOptions, *, playback: Playback | None = None) -> StackscopeApp:
    """The application around a source, on this terminal."""
    screen = options.screen
    clamp_size(os.environ)
    kind = kind_of(screen.theme, os.environ)

    variants: dict[str, ModelSummary] = {}
    # A recording may be of another machine.
    cores = usable_cores() if playback is None else playback.cores

    def make_view() -> View:
        from stackscope.analysis.explainer import Explainer
        from stackscope.analysis.live.view import LiveView
        from stackscope.analysis.played import Played
        from stackscope.engine.allowances import Allowances

        made = Explainer if playback is None else Played
        explainer = made(rules=Allowances(cores), variants=variants, part_ns=PART_NS)
        return LiveView(limits=options.limits.service, explainer=explainer)

    app = StackscopeApp(
        source,
        source,
        playback=playback,
        kind=kind,
        kinds=kinds_of(os.environ),
        look=look_of(kind, os.environ, sys.stdout, is_ascii=screen.ascii),
        keys=keymap(options.keys),
        make_view=make_view,
        governor=Governor(least_s=1 / screen.refresh_hz),
        cores=cores,
        models=variants,
        driver_class=TerminalDriver,
    )
    source.wake = app.feed.wake
    return app


def play(path: Path, options: RunOptions) -> StackscopeApp:
    """The application around a recording. Raises `SessionFileError`."""
    from stackscope.tui.player import Player

    player = Player(path)
    return make_app(player, options, playback=player)


def show_all(app: StackscopeApp, options: RunOptions) -> int:
    """Show an application, and then each recording that is opened on it; the exit status of the last."""
    status = show(app)
    while app.wanted is not None:
        app = play(app.wanted, options)
        status = show(app)
    return status


def show(app: StackscopeApp) -> int:
    """Run the application to its end, signals included; the exit status. Raises what ended it that should not have."""
    gc.freeze()  # What has been imported stays: looking through it again and again would cost as much as drawing.
    with Interrupts(app.end_soon) as interrupts:
        app.run()
        app.end_feed()
    if app.fault is not None:
        raise app.fault
    if interrupts.received is not None:
        return SIGNALLED + interrupts.received
    if app.is_interrupted:
        return SIGNALLED + signal.SIGINT
    return FAULTY if app.return_code else 0
