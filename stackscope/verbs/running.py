"""Verbs that run the engine, or play what it did: `live`, `run`, `replay`, `doctor`."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated

import typer

from stackscope.homes import expanded
from stackscope.options import OPTIONS
from stackscope.verbs.base import Json, app, refuse_given, reporting, run_parameters


def live(config: Path | None = None, **given: object) -> None:
    """Serve a workload, and watch on the screen where the time goes.

    Without options: the bundled models and the code workload, until you quit. Options are set as for `run`. Without a
    terminal it does what `run` does.
    """
    with reporting():
        from stackscope.commands.live import live as show_live

        raise typer.Exit(show_live(given, config=config))


def run(config: Path | None = None, **given: object) -> None:
    """Serve a workload, and say where the time went.

    Without options: the bundled models and the code workload. Every option can also be set as STACKSCOPE_NAME in the
    environment, or in a settings file (--config, or config.toml in the user's settings folder).
    """
    with reporting():
        from stackscope.config import resolve

        screen = {option.name for option in OPTIONS if option.targets[0].startswith("screen.")}
        refuse_given(
            given, screen, why="would do nothing: `run` has no screen", remedy="Leave it out, or use `stackscope live`."
        )
        if given.get("recording") is False:
            refuse_given(
                given, {"record_text"}, why="would do nothing: --no-record records nothing", remedy="Leave one out."
            )
        options = resolve(given, config=config)
        from stackscope.commands.run import run as run_workload

        raise typer.Exit(run_workload(options))


live.__signature__ = inspect.Signature(run_parameters())  # type: ignore[attr-defined]
app.command()(live)
run.__signature__ = inspect.Signature(run_parameters())  # type: ignore[attr-defined]
app.command()(run)


def replay(recording: Path, config: Path | None = None, **given: object) -> None:
    """Play a recording on the live screen; without a terminal, print its summary."""
    with reporting():
        from stackscope.config import resolve

        options = resolve(given, config=config)
        from stackscope.commands.replay import replay as play

        raise typer.Exit(play(recording, options))


def replay_parameters() -> list[inspect.Parameter]:
    """The options of `replay`: those of a run that are about what is shown of it."""
    recording = inspect.Parameter(
        "recording",
        inspect.Parameter.KEYWORD_ONLY,
        default=typer.Argument(
            ..., help="A recording, as `run` and `live` make them.", metavar="FILE", parser=expanded
        ),
        annotation=Path,
    )
    shown = {option.name for option in OPTIONS if option.targets[0].partition(".")[0] in ("limits", "screen")}
    return [recording, *(parameter for parameter in run_parameters() if parameter.name in shown | {"config"})]


replay.__signature__ = inspect.Signature(replay_parameters())  # type: ignore[attr-defined]
app.command()(replay)


@app.command()
def doctor(
    model: Annotated[
        str | None, typer.Option("--model", help="Model to reckon with (the bundled one).", metavar="FILE|NAME")
    ] = None,
    json: Json = False,
) -> None:
    """Say what this machine and this build can do, and how to get the rest."""
    with reporting():
        from stackscope.commands.doctor import doctor as examine

        raise typer.Exit(examine(model=model, json=json))
