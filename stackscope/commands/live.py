"""`stackscope live`: serve a workload and show, live, where the time goes."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from typing import TYPE_CHECKING

from stackscope import units
from stackscope.characters import harmless
from stackscope.commands.wrong_keys import tell_wrong_keys
from stackscope.config import resolve
from stackscope.launch import with_models
from stackscope.model.files import shown
from stackscope.tui.terminal import why_no_screen

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from stackscope.config import RunOptions
    from stackscope.tui.feed import Tally
    from stackscope.tui.runner import Runner


def live(given: Mapping[str, object], *, config: Path | None = None) -> int:
    """Show the live screen, or without a terminal do what `run` does; the exit status. Raises `StackscopeError`."""
    missing = why_no_screen(os.environ, sys.stdin, sys.stdout)
    if missing is None:
        options = resolve(given, config=config, default_requests=None)
        if not options.output.json:
            return _on_screen(options)
    options = resolve(given, config=config)
    if missing is not None:
        print(f"stackscope: no live screen, because {harmless(missing)}; this is `stackscope run`.", file=sys.stderr)
    tell_wrong_keys(options)
    from stackscope.commands.run import run

    return run(options)


def _on_screen(options: RunOptions) -> int:
    engine = with_models(options.engine)
    # Nothing that the engine needs is imported before the screen is there.
    from stackscope.commands.screen import SIGNALLED, make_app, play, show, show_all
    from stackscope.tui.runner import Runner

    runner = Runner(options, engine)
    app = make_app(runner, options)
    runner.predict = app.feed.predict
    status = show(app)
    if status != SIGNALLED + signal.SIGHUP and app.has_terminal_answered:
        _take_leave(app.feed.tally, runner)
    if runner.outcome is not None:
        raise runner.outcome
    return status if app.wanted is None else show_all(play(app.wanted, options), options)


def _take_leave(tally: Tally, runner: Runner) -> None:
    """Say what the session came to, and where it is."""
    if tally.began_ns is not None and tally.ended_ns is not None:
        wall_ns = tally.ended_ns - tally.began_ns
        rate = units.token_rate(tally.n_tokens * 1e9 / wall_ns) if wall_ns else units.UNKNOWN
        requests = f"{units.counted(runner.n_served, 'request')} served"
        began = "Ran" if runner.n_sessions == 1 else f"The last of {runner.n_sessions} sessions ran"
        print(f"{began} for {units.duration(wall_ns)}: {units.counted(tally.n_tokens, 'token')}, {rate}, {requests}.")
    if tally.score is not None:
        print(tally.score)
    for failure in runner.failures.told():
        print(harmless(failure))
    for path in runner.recordings:
        print(f"Recorded to {shown(path)}")
    if runner.recordings:
        print(f"Play it again: stackscope replay {shlex.quote(shown(runner.recordings[-1]))}")
