"""Verbs for recordings: `score`, `compare`, `report`, `export`."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated, Literal

import typer

from stackscope.errors import UsageError
from stackscope.homes import expanded
from stackscope.options import OPTIONS
from stackscope.verbs.base import Json, Replace, app, named, refuse_given, reporting, run_parameters


@app.command()
def export(
    recording: Annotated[
        Path, typer.Argument(help="A recording, as `run` and `live` make them.", metavar="FILE", parser=expanded)
    ],
    to: Annotated[Literal["csv", "parquet", "json", "perfetto"], typer.Option("--to", help="What to make of it.")],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="File or, of csv and parquet, folder to write.", metavar="PATH", parser=expanded
        ),
    ],
    replace: Replace = False,
) -> None:
    """Write a recording as tables (csv, parquet, json), or as a trace for ui.perfetto.dev."""
    with reporting():
        from stackscope.commands.export import export as write

        raise typer.Exit(write(recording, to, output, replace=replace))


@app.command()
def score(
    recordings: Annotated[
        list[Path], typer.Argument(help="Recordings, or folders of them.", metavar="FILE...", parser=expanded)
    ],
    json: Json = False,
) -> None:
    """Say how well predictions did: what was expected of changes, beside what they did."""
    with reporting():
        from stackscope.commands.score import score as keep_score

        raise typer.Exit(keep_score(recordings, json=json))


def report(
    recordings: list[Path],
    output: Path | None = None,
    replace: bool = False,
    config: Path | None = None,
    **given: object,
) -> None:
    """Write a report of a recording, of several held against the first, or of an experiment: Markdown, or an HTML page.

    Without --output: Markdown, to standard output.
    """
    with reporting():
        from stackscope.config import resolve

        options = resolve(given, config=config)
        from stackscope.commands.report import is_experiment
        from stackscope.commands.report import report as write

        if replace and output is None:
            raise UsageError("--replace would do nothing: no file is written.", remedy="Give one with --output.")
        if any(map(is_experiment, recordings)):
            refuse_given(
                given,
                {"ttft_limit", "tpot_limit"},
                why="would do nothing: an experiment is judged by the limits that it ran with",
                remedy="Leave it out.",
            )
        raise typer.Exit(write(recordings, output, options, replace=replace))


def report_parameters() -> list[inspect.Parameter]:
    """The options of `report`: its own, and what counts as a good request."""
    own = (
        (
            "recordings",
            typer.Argument(
                ...,
                help="Recordings of runs, or the folder of an ablation or a sweep.",
                metavar="FILE...",
                parser=expanded,
            ),
            list[Path],
        ),
        (
            "output",
            typer.Option(None, "--output", "-o", help="File to write.", metavar="OUT.html|OUT.md", parser=expanded),
            Path | None,
        ),
        ("replace", typer.Option(False, "--replace", help="Write over a file that is already there."), bool),
    )
    limits = {option.name for option in OPTIONS if option.targets[0].startswith("limits.")}
    shared = [parameter for parameter in run_parameters() if parameter.name in limits | {"config"}]
    return [*(named(name, option, kind) for name, option, kind in own), *shared]


report.__signature__ = inspect.Signature(report_parameters())  # type: ignore[attr-defined]
app.command()(report)


@app.command()
def compare(
    recordings: Annotated[
        list[Path],
        typer.Argument(
            help="Recordings, as `run` and `live` make them; the first is the standard.",
            metavar="FILE FILE…",
            parser=expanded,
        ),
    ],
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-if", help="Exit with 1 where it holds: 'tpot_p95 > +5%'. May be repeated.", metavar="CONDITION"
        ),
    ] = None,
    warmup: Annotated[float, typer.Option("--warmup", help="Seconds of each session to leave out.", metavar="X")] = 0.0,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Give a verdict on sessions that are not comparable.")
    ] = False,
    json: Json = False,
) -> None:
    """Hold recorded sessions against the first: by how much they differ, how sure that is, and where the time went."""
    with reporting():
        from stackscope.commands.compare import compare as hold

        raise typer.Exit(hold(recordings, fail_if=fail_if or (), warmup_s=warmup, anyway=anyway, json=json))
