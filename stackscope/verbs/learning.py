"""The verb `learn`."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from stackscope.homes import expanded
from stackscope.verbs.base import Replace, app, reporting


@app.command()
def learn(
    lesson: Annotated[int | None, typer.Argument(help="Number of a lesson.", metavar="[N]")] = None,
    model: Annotated[str | None, typer.Option("--model", help="Your own target.", metavar="FILE|NAME")] = None,
    draft: Annotated[str | None, typer.Option("--draft", help="Its draft model.", metavar="FILE|NAME")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A quarter of the time: fewer points, wide intervals.")
    ] = False,
    show: Annotated[bool, typer.Option("--show", help="Show the recorded result; run nothing.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="File for the result, instead of your own.", metavar="FILE", parser=expanded
        ),
    ] = None,
    replace: Replace = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Check a claim of the field on this machine: predict it, measure it, and see what it means here.

    Without a number: the list. A lesson takes up to four minutes, best on a machine that does nothing else.
    """
    with reporting():
        from stackscope.commands.learn import LearnOptions
        from stackscope.commands.learn import learn as teach

        asked = LearnOptions(
            lesson=lesson,
            model=model,
            draft=draft,
            is_quick=quick,
            is_shown=show,
            output=output,
            is_replacing=replace,
            json=json,
        )
        raise typer.Exit(teach(asked))
