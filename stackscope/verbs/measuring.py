"""Verbs that measure this machine or reckon with it: `calibrate`, `ablate`, `sweep`, `explain`."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from stackscope.commands import experiment_options
from stackscope.commands.explain_options import TOLD, Asked, flag
from stackscope.homes import expanded
from stackscope.options import OPTIONS
from stackscope.verbs.base import app, named, reporting, run_parameters

if TYPE_CHECKING:
    from stackscope.commands.experiment_options import Own

CALIBRATED: Final = frozenset(
    {
        "model", "draft", "context", "kv_type", "kv_type_k", "kv_type_v", "flash_attention", "unified_kv", "swa_full",
        "threads", "gpu_layers", "main_gpu", "split_mode", "tensor_split", "config",
    }
)  # fmt: skip
"""Options of a run that `calibrate` takes too."""


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
        "if_missing": typer.Option(
            False, "--if-missing", help="Measure only what was not measured here yet, or while the machine was busy."
        ),
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
        named(
            name,
            typer.Option(
                one.default,
                one.flag,
                help=one.help,
                metavar=one.metavar,
                show_default=False,
                parser=expanded if one.kind == Path | None else None,
            ),
            one.kind,
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

    The axes are those of a file (profiles/sweeps has some) and of --over together, each value with each other; an axis
    of --over replaces the file's of that name. How many configurations and runs that makes is said before they begin.
    What was interrupted, or killed, goes on with --folder.
    """
    with reporting():
        from stackscope.commands.sweep import SweepOptions
        from stackscope.commands.sweep import sweep as measure

        own = {name: given.pop(name) for name in experiment_options.SWEEP}
        raise typer.Exit(measure(given, SweepOptions(file=file, **own), config=config))  # type: ignore[arg-type]


sweep.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [
        named(
            "file", typer.Argument(None, help="A sweep in TOML.", metavar="[FILE.toml]", parser=expanded), Path | None
        ),
        *experiment_parameters(experiment_options.SWEEP),
    ]
)
app.command()(sweep)


def explain(json: bool = False, **given: str | None) -> None:
    """Say what the cost model expects of a model on a machine, without running anything.

    For example: stackscope explain --params 8B --bits 16 --bandwidth 1TB/s --flops 100TFLOP/s --batch 1
    """
    with reporting():
        from stackscope.commands.explain import explain_case

        raise typer.Exit(explain_case(Asked(**given), json=json))


explain.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [named(name, typer.Option(None, flag(name), help=told, metavar=takes)) for name, (takes, told) in TOLD.items()]
    + [named("json", typer.Option(False, "--json", help="Print JSON for machines."), bool)]
)
app.command()(explain)
