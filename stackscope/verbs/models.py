"""The verbs of `models`."""

from __future__ import annotations

from typing import Annotated

import typer

from stackscope.verbs.base import PLAIN, Json, Output, Replace, app, reporting

models_app = typer.Typer(name="models", **PLAIN)
app.add_typer(models_app)


@models_app.callback(invoke_without_command=True)
def models(context: typer.Context) -> None:
    """Models: what there is, what is in one, and making variants."""
    if context.invoked_subcommand is None:
        list_models()


@models_app.command("list")
def list_models(json: Json = False) -> None:
    """List the bundled and the cached models."""
    with reporting():
        from stackscope.commands import models as bodies

        bodies.list_models(json=json)


@models_app.command("show")
def show_model(
    model: Annotated[str, typer.Argument(help="A .gguf file, or a name from the list.", metavar="FILE|NAME")],
    json: Json = False,
) -> None:
    """Show what a model is: architecture, geometry, and where its bytes are."""
    with reporting():
        from stackscope.commands import models as bodies

        bodies.show(model, json=json)


@models_app.command("quantise")
def quantise_model(
    source: Annotated[str, typer.Argument(help="An F16, BF16 or F32 model.", metavar="FILE|NAME")],
    type_name: Annotated[str, typer.Argument(help="The type to write, e.g. Q4_K_M or Q8_0.", metavar="TYPE")],
    output: Output = None,
    requantise: Annotated[bool, typer.Option("--requantise", help="Take a source that is quantised already.")] = False,
    replace: Replace = False,
    json: Json = False,
) -> None:
    """Write a quantised variant, by llama.cpp's own quantiser."""
    with reporting():
        from stackscope.commands import models as bodies

        bodies.quantise(source, type_name, output=output, requantise=requantise, replace=replace, json=json)


@models_app.command("inflate")
def inflate_model(
    source: Annotated[str, typer.Argument(help="The model to widen.", metavar="FILE|NAME")],
    megabytes: Annotated[float, typer.Argument(help="Size of the copy, in MB (10⁶ bytes).")],
    output: Output = None,
    replace: Replace = False,
    json: Json = False,
) -> None:
    """Write a copy that answers the same but costs as much as a model of the given size."""
    with reporting():
        from stackscope.commands import models as bodies

        bodies.inflate(source, megabytes, output=output, replace=replace, json=json)


@models_app.command("get")
def get_model(
    name: Annotated[str, typer.Argument(help="A file on Hugging Face.", metavar="OWNER/REPO/FILE")],
    sha256: Annotated[str | None, typer.Option("--sha256", help="Refuse a file with another checksum.")] = None,
    revision: Annotated[str | None, typer.Option("--revision", help="Branch, tag or commit.")] = None,
    json: Json = False,
) -> None:
    """Download a model from Hugging Face; an interrupted download goes on where it stopped."""
    with reporting():
        from stackscope.commands import models as bodies

        bodies.get(name, sha256=sha256, revision=revision, json=json)
