"""The command line: what is common to all of it. The verbs are in `verbs`, and import what they need when they run."""

from __future__ import annotations

import io
import os
import sys
from importlib import import_module
from typing import Annotated

import typer

from stackscope import __version__
from stackscope.commands.streams import StandardOutput, open_standard_streams
from stackscope.errors import StackscopeError
from stackscope.verbs.base import GONE, app, told

__all__ = ["app", "main"]

for kind in ("running", "recordings", "measuring", "learning", "models"):  # As the help has them.
    import_module(f"stackscope.verbs.{kind}")


def main() -> None:
    """Run the command line; ends by SystemExit."""
    open_standard_streams()
    if not os.environ.get("COLUMNS", "80").strip("0"):
        del os.environ["COLUMNS"]  # a terminal that does not know its width; rich would print nothing
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal without µ shows ?, rather than a traceback.
        encoding, is_interactive = sys.stdout.encoding, sys.stdout.line_buffering
        sys.stdout = StandardOutput(
            sys.stdout.detach(), encoding=encoding, errors="replace", line_buffering=is_interactive
        )
    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # here rather than at exit, where it would be too late to say what fails
    except StackscopeError as error:  # of the help, which is not inside `reporting`
        sys.exit(told(error))
    except BrokenPipeError:
        sys.exit(GONE)


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        print(f"stackscope {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def stackscope(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001 - its callback does it
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """See why LLM inference is as fast as it is: every step accounted for, recorded, and explained.

    Without a command: live.
    """
    if context.invoked_subcommand is None:
        from stackscope.verbs.running import live

        live()
