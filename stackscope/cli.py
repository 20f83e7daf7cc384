"""The command line: verbs only. Each one imports what it needs when it runs, so that `--help` is instant."""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_args, get_origin

import typer

from stackscope import __version__, cli_learn
from stackscope.commands import experiment_options
from stackscope.commands.explain_options import TOLD, Asked, flag
from stackscope.commands.streams import StandardOutput, open_standard_streams
from stackscope.errors import StackscopeError
from stackscope.options import OPTIONS, field_defaults, field_types

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stackscope.commands.experiment_options import Own
    from stackscope.options import Option

INTERRUPTED: Final = 130
"""Exit code after Ctrl-C: 128 + SIGINT, as shells count."""

GONE: Final = 1
"""Exit code when whoever read the output has gone, as `head` does."""

PLAIN: Final[dict[str, Any]] = {
    "rich_markup_mode": None,  # rich would double the time that --help takes
    "pretty_exceptions_enable": False,
    "add_completion": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}

METAVARS: Final = {int: "N", float: "X"}

CALIBRATED: Final = frozenset(
    {
        "model", "draft", "context", "kv_type", "kv_type_k", "kv_type_v", "flash_attention", "unified_kv", "swa_full",
        "threads", "gpu_layers", "main_gpu", "split_mode", "tensor_split", "config",
    }
)  # fmt: skip
"""Options of a run that `calibrate` takes too."""

app = typer.Typer(name="stackscope", **PLAIN)
models_app = typer.Typer(name="models", **PLAIN)
app.add_typer(models_app)

Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="File to write.", metavar="FILE")]
Replace = Annotated[bool, typer.Option("--replace", help="Write over a file that is already there.")]


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
        sys.exit(_told(error))
    except BrokenPipeError:
        sys.exit(GONE)


@contextlib.contextmanager
def reporting() -> Iterator[None]:
    """Turn the failures a user can meet into one line on stderr and an exit code; anything else is a bug and shows."""
    try:
        yield
        sys.stdout.flush()
    except StackscopeError as error:
        raise typer.Exit(_told(error)) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        raise typer.Exit(GONE) from None
    except OSError as error:
        if error.filename is None:
            raise
        # A file that cannot even be looked at: a folder that is closed to us, a name that is too long.
        unusable = StackscopeError(
            f"{error.filename} cannot be used: {error.strerror}.", remedy="Check the path, and who may read it."
        )
        raise typer.Exit(_told(unusable)) from None


def _told(error: StackscopeError) -> int:
    """Say what went wrong; the exit code."""
    print(f"stackscope: {error}", file=sys.stderr)
    return error.exit_code


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
        live()


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

        options = resolve(given, config=config)
        from stackscope.commands.run import run as run_workload

        raise typer.Exit(run_workload(options))


def run_parameters() -> list[inspect.Parameter]:
    """The options of `run`, generated from the table of settings. None is given unless the user gives it."""
    settings_file = inspect.Parameter(
        "config",
        inspect.Parameter.KEYWORD_ONLY,
        default=typer.Option(None, "--config", help="Settings file.", metavar="FILE.toml"),
        annotation=Path | None,
    )
    return [*(_parameter(option) for option in OPTIONS), settings_file]


def _parameter(option: Option) -> inspect.Parameter:
    key = option.targets[0]
    default = field_defaults()[key]
    note = "" if default in (None, "", ()) else f" [default: {_spelled(option, default)}]"
    kind = str if option.metavar is not None else _parsed_as(field_types()[key])
    return inspect.Parameter(
        option.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=typer.Option(
            None,
            option.flags,
            help=option.help + note,
            metavar=option.metavar or METAVARS.get(_base(field_types()[key])),
            show_default=False,
        ),
        annotation=kind | None,
    )


def _named(name: str, option: Any, kind: Any = str | None) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=kind)


def _spelled(option: Option, default: object) -> str:
    """A default as one would type it."""
    if isinstance(default, bool):
        return option.flags.split("/")[0 if default else 1]
    return str(default)


def _base(kind: Any) -> Any:
    """A field's type without its None."""
    parts = [part for part in get_args(kind) if part is not type(None)]
    return kind if get_origin(kind) in (Literal, tuple) or not parts else parts[0]


def _parsed_as(kind: Any) -> Any:
    """What typer parses: switches and choices. All else is a text to it, so that `config` alone judges numbers."""
    base = _base(kind)
    return base if base is bool or get_origin(base) is Literal else str


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
        default=typer.Argument(..., help="A recording, as `run` and `live` make them.", metavar="FILE"),
        annotation=Path,
    )
    shown = {option.name for option in OPTIONS if option.targets[0].partition(".")[0] in ("limits", "screen")}
    return [recording, *(parameter for parameter in run_parameters() if parameter.name in shown | {"config"})]


replay.__signature__ = inspect.Signature(replay_parameters())  # type: ignore[attr-defined]
app.command()(replay)


def calibrate(
    full: bool = False,
    show: bool = False,
    variants: bool = False,
    if_missing: bool = False,
    json: bool = False,
    config: Path | None = None,
    **given: object,
) -> None:
    """Measure what this machine does at most with a model: bandwidth, FLOP/s, and what forwards cost by their rows.

    Takes 20 s, best on a machine that does nothing else. The result is kept, and shown by sessions with the same model,
    threads and types.
    """
    with reporting():
        from stackscope.config import resolve

        engine = resolve(given, config=config).engine
        from stackscope.commands.calibrate import calibrate as measure

        status = measure(
            engine, is_full=full, only_show=show, with_variants=variants, only_if_missing=if_missing, json=json
        )
        raise typer.Exit(status)


def calibrate_parameters() -> list[inspect.Parameter]:
    """The options of `calibrate`: those of a run that change what a forward costs, and its own."""
    own = {
        "full": typer.Option(False, "--full", help="Measure for minutes: more row counts, deeper contexts."),
        "show": typer.Option(False, "--show", help="Show what was measured before, and its age."),
        "variants": typer.Option(
            False, "--variants", help="Measure the model's other files too: weights in more or fewer bits."
        ),
        "if_missing": typer.Option(False, "--if-missing", help="Measure only what was never measured here."),
        "json": typer.Option(False, "--json", help="Print JSON for machines."),
    }
    switches = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=bool)
        for name, option in own.items()
    ]
    shared = [parameter for parameter in run_parameters() if parameter.name in CALIBRATED]
    return [*shared, *switches]


calibrate.__signature__ = inspect.Signature(calibrate_parameters())  # type: ignore[attr-defined]
app.command()(calibrate)


def ablate(config: Path | None = None, **given: object) -> None:
    """Measure what each optimisation buys alone, what all buy together, and how they get along.

    Every setting is switched on and off under the same traffic, in blocks in which each combination runs once. Without
    options: weights, prefix cache and speculation on the bundled target, inflated to 200 MB; some minutes. What was
    interrupted, or killed, goes on with --folder.
    """
    with reporting():
        from stackscope.commands.ablate import AblateOptions
        from stackscope.commands.ablate import ablate as measure

        asked = AblateOptions(**{name: given.pop(name) for name in experiment_options.ABLATE})  # type: ignore[arg-type]
        raise typer.Exit(measure(given, asked, config=config))


def experiment_parameters(own: dict[str, Own]) -> list[inspect.Parameter]:
    """The options of an experiment: its own, and those of a run that are about engine, traffic and limits."""
    mine = [
        _named(
            name, typer.Option(one.default, one.flag, help=one.help, metavar=one.metavar, show_default=False), one.kind
        )
        for name, one in own.items()
    ]
    left_out = experiment_options.NOT_OF_RUNS | own.keys()
    shown = {o.name for o in OPTIONS if not o.targets[0].startswith("screen.")} - left_out
    theirs = [parameter for parameter in run_parameters() if parameter.name in shown | {"config"}]
    for parameter in theirs:
        parameter.default.help = experiment_options.HELP.get(parameter.name, parameter.default.help)
    return [*mine, *theirs]


ablate.__signature__ = inspect.Signature(experiment_parameters(experiment_options.ABLATE))  # type: ignore[attr-defined]
app.command()(ablate)


def sweep(file: Path | None = None, config: Path | None = None, **given: object) -> None:
    """Run many configurations under the same traffic, or search them with few runs, and say which is best and why.

    The axes come from a file (profiles/sweeps has some) or from --over. What was interrupted, or killed, goes on with
    --folder.
    """
    with reporting():
        from stackscope.commands.sweep import SweepOptions
        from stackscope.commands.sweep import sweep as measure

        own = {name: given.pop(name) for name in experiment_options.SWEEP}
        raise typer.Exit(measure(given, SweepOptions(file=file, **own), config=config))  # type: ignore[arg-type]


sweep.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [
        _named("file", typer.Argument(None, help="A sweep in TOML.", metavar="[FILE.toml]"), Path | None),
        *experiment_parameters(experiment_options.SWEEP),
    ]
)
app.command()(sweep)


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


def explain(json: bool = False, **given: str | None) -> None:
    """Say what the cost model expects of a model on a machine, without running anything.

    For example: stackscope explain --params 8B --bits 16 --bandwidth 1TB/s --flops 100TFLOP/s --batch 1
    """
    with reporting():
        from stackscope.commands.explain import explain_case

        raise typer.Exit(explain_case(Asked(**given), json=json))


explain.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [_named(name, typer.Option(None, flag(name), help=told, metavar=takes)) for name, (takes, told) in TOLD.items()]
    + [_named("json", typer.Option(False, "--json", help="Print JSON for machines."), bool)]
)
app.command()(explain)


@app.command()
def export(
    recording: Annotated[Path, typer.Argument(help="A recording, as `run` and `live` make them.", metavar="FILE")],
    to: Annotated[Literal["csv", "parquet", "json", "perfetto"], typer.Option("--to", help="What to make of it.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="File or, of csv and parquet, folder to write.")],
    replace: Replace = False,
) -> None:
    """Write a recording as tables (csv, parquet, json), or as a trace for ui.perfetto.dev."""
    with reporting():
        from stackscope.commands.export import export as write

        raise typer.Exit(write(recording, to, output, replace=replace))


@app.command()
def score(
    recordings: Annotated[list[Path], typer.Argument(help="Recordings, or folders of them.", metavar="FILE...")],
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
    """Write a report of one recording, or of several side by side: Markdown, or one HTML page with charts.

    Without --output: Markdown, to standard output.
    """
    with reporting():
        from stackscope.config import resolve

        options = resolve(given, config=config)
        from stackscope.commands.report import report as write

        raise typer.Exit(write(recordings, output, options, replace=replace))


def report_parameters() -> list[inspect.Parameter]:
    """The options of `report`: its own, and what counts as a good request."""
    own = (
        ("recordings", typer.Argument(..., help="Recordings of runs.", metavar="FILE..."), list[Path]),
        ("output", typer.Option(None, "--output", "-o", help="File to write.", metavar="OUT.html|OUT.md"), Path | None),
        ("replace", typer.Option(False, "--replace", help="Write over a file that is already there."), bool),
    )
    limits = {option.name for option in OPTIONS if option.targets[0].startswith("limits.")}
    shared = [parameter for parameter in run_parameters() if parameter.name in limits | {"config"}]
    return [*(_named(name, option, kind) for name, option, kind in own), *shared]


report.__signature__ = inspect.Signature(report_parameters())  # type: ignore[attr-defined]
app.command()(report)


@app.command()
def compare(
    recordings: Annotated[
        list[Path],
        typer.Argument(
            help="Recordings, as `run` and `live` make them; the first is the standard.", metavar="FILE FILE…"
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


cli_learn.register(app, reporting)
