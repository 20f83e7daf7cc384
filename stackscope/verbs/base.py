"""What the verbs share: the application, options made from the table of settings, and how a failure is told."""

from __future__ import annotations

import contextlib
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_args, get_origin

import typer

from stackscope.characters import harmless
from stackscope.commands.interrupts import raising, status_of
from stackscope.errors import StackscopeError, UsageError
from stackscope.homes import expanded
from stackscope.options import OPTIONS, field_defaults, field_types

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from stackscope.options import Option

GONE: Final = 1
"""Exit code when whoever read the output has gone, as `head` does."""

PLAIN: Final[dict[str, Any]] = {
    "rich_markup_mode": None,  # rich would double the time that --help takes
    "pretty_exceptions_enable": False,
    "add_completion": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}

METAVARS: Final = {int: "N", float: "X"}

app = typer.Typer(name="stackscope", **PLAIN)

Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="File to write.", metavar="FILE", parser=expanded)]
Replace = Annotated[bool, typer.Option("--replace", help="Write over a file that is already there.")]


@contextlib.contextmanager
def reporting() -> Iterator[None]:
    """Turn the failures a user can meet into one line on stderr and an exit code; anything else is a bug and shows."""
    try:
        with raising(), _reporting_failures():
            yield
            sys.stdout.flush()
    except KeyboardInterrupt as error:
        raise typer.Exit(status_of(error)) from None


@contextlib.contextmanager
def _reporting_failures() -> Iterator[None]:
    try:
        yield
    except StackscopeError as error:
        raise typer.Exit(told(error)) from None
    except BrokenPipeError:
        raise typer.Exit(GONE) from None
    except OSError as error:
        if error.filename is None:
            raise
        # A file that cannot even be looked at: a folder that is closed to us, a name that is too long.
        unusable = StackscopeError(
            f"{error.filename} cannot be used: {error.strerror}.", remedy="Check the path, and who may read it."
        )
        raise typer.Exit(told(unusable)) from None


def told(error: StackscopeError) -> int:
    """Say what went wrong; the exit code."""
    print("stackscope:", harmless(str(error), keep="\n"), file=sys.stderr)
    return error.exit_code


def refuse_given(given: Mapping[str, object], names: Collection[str], *, why: str, remedy: str) -> None:
    """Refuse options that would do nothing: whoever gives one believes that it does something. Raises `UsageError`.

    `given` are the options of the command line by `Option.name`; `why` follows their flags.
    """
    flags = [
        option.flags.split("/")[1 if given[option.name] is False and "/" in option.flags else 0]
        for option in OPTIONS
        if option.name in names and given.get(option.name) is not None
    ]
    if flags:
        raise UsageError(f"{' and '.join(flags)} {why}.", remedy=remedy)


def run_parameters() -> list[inspect.Parameter]:
    """The options of `run`, generated from the table of settings. None is given unless the user gives it."""
    settings_file = inspect.Parameter(
        "config",
        inspect.Parameter.KEYWORD_ONLY,
        default=typer.Option(None, "--config", help="Settings file.", metavar="FILE.toml", parser=expanded),
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


def named(name: str, option: Any, kind: Any = str | None) -> inspect.Parameter:
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
