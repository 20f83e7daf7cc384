"""`stackscope live`: serve a workload and show, live, where the time goes."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Final

from stackscope import units
from stackscope.commands.interrupts import Interrupts
from stackscope.config import resolve
from stackscope.launch import with_models
from stackscope.tui.terminal import kind_of, look_of, why_no_screen

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from stackscope.config import RunOptions
    from stackscope.tui.app import StackscopeApp
    from stackscope.tui.runner import Runner

SIGNALLED: Final = 128
"""Exit status after a signal, as shells count: this and its number."""
FAULTY: Final = 1
"""Exit status when the screen failed with a traceback."""


def live(given: Mapping[str, object], *, config: Path | None = None) -> int:
    """Show the live screen, or without a terminal do what `run` does; the exit status. Raises `StackscopeError`."""
    missing = why_no_screen(os.environ, sys.stdin, sys.stdout)
    options = resolve(given, config=config, **({"default_requests": None} if missing is None else {}))
    if missing is None and not options.output.json:
        return _on_screen(options)
    if missing is not None:
        print(f"stackscope: there is no live screen, because {missing}: this is `stackscope run`.", file=sys.stderr)
    from stackscope.commands.run import run

    return run(options)


def _on_screen(options: RunOptions) -> int:
    engine = with_models(options.engine)
    # Nothing that the engine needs is imported before the screen is there.
    from stackscope.tui.app import StackscopeApp
    from stackscope.tui.driver import TerminalDriver
    from stackscope.tui.runner import Runner

    runner = Runner(options, engine)
    kind = kind_of("auto", os.environ)
    app = StackscopeApp(
        runner,
        runner,
        kind=kind,
        look=look_of(kind, os.environ, sys.stdout),
        driver_class=TerminalDriver,
    )
    runner.wake = app.feed.wake
    status = show(app)
    if status != SIGNALLED + signal.SIGHUP and app.has_terminal_answered:
        _take_leave(app, runner)
    if app.fault is not None:
        raise app.fault
    if runner.outcome is not None:
        raise runner.outcome
    return status


def show(app: StackscopeApp) -> int:
    """Run an application until its end, signals included; the exit status."""
    with Interrupts(app.end_soon) as interrupts:
        app.run()
        app.end_feed()
    if interrupts.received is not None:
        return SIGNALLED + interrupts.received
    if app.is_interrupted:
        return SIGNALLED + signal.SIGINT
    return FAULTY if app.return_code else 0


def _take_leave(app: StackscopeApp, runner: Runner) -> None:
    """Say what the session came to, and where it is."""
    tally = app.feed.tally
    if tally.began_ns is not None and tally.ended_ns is not None:
        wall_ns = tally.ended_ns - tally.began_ns
        rate = units.token_rate(tally.n_tokens * 1e9 / wall_ns) if wall_ns else units.UNKNOWN
        told = (units.duration(wall_ns), units.counted(tally.n_requests, "request"), rate)
        print(f"Ran for {told[0]}: {told[1]}, {units.counted(tally.n_tokens, 'token')}, {told[2]}.")
    for told_failure in runner.failures.told():
        print(told_failure)
    for path in runner.recordings:
        print(f"Recorded to {path}")
    if runner.recordings:
        print(f"Play it again: stackscope replay {_quoted(runner.recordings[-1])}")


def _quoted(path: Path) -> str:
    import shlex

    return shlex.quote(str(path))
