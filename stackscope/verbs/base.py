"""What the verbs share: the application, options made from the table of settings, and how a failure is told."""

from __future__ import annotations

import contextlib
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_args, get_origin

import typer
from typer.core import TyperGroup

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


class Verbs(TyperGroup):
    """All verbs. What typer says of a wrong option is put in words that help."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take the options before the verb, of which there are few: one of a verb may be meant for it."""
        try:
            return super().parse_args(ctx, args)
        except typer.TyperException as error:
            name = getattr(error, "option_name", "")
            if name not in {"--config", *(flag for option in OPTIONS for flag in option.flags.split("/"))}:
                raise
            with reporting():
                raise UsageError(
                    f"{name} stands before the command, and options belong to the command.",
                    remedy=f"Write it after that: stackscope live {name}.",
                ) from None

    def invoke(self, ctx: Any) -> Any:
        """Run a verb."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")  # What its parser calls any value it refuses.
            raise


app = typer.Typer(name="stackscope", cls=Verbs, **PLAIN)

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
            metavar=option.metavar or METAVARS.get(_base(field_types()[key])) or _choices(field_types()[key]),
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


def _choices(kind: Any) -> str | None:
    """What stands for a value that is one of several. `None`: it is not."""
    base = _base(kind)
    return f"<{'|'.join(get_args(base))}>" if get_origin(base) is Literal else None


def _parsed_as(kind: Any) -> Any:
    """What typer parses: switches. All else is a text to it, so that `config` alone judges it, in a sentence."""
    return bool if _base(kind) is bool else str
