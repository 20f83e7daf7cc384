"""What this terminal can do: whether there is one at all, its colours, its characters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from rich.console import Console

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping
    from typing import TextIO

    from stackscope.tui.look import Look
    from stackscope.tui.theme import Kind

Wish: TypeAlias = Literal["auto", "dark", "light", "ansi", "mono"]
"""A theme, or the one that fits the terminal."""

MOST_COLUMNS: Final = 1_000
MOST_ROWS: Final = 500
"""What a terminal is believed to have at most: more is nobody's window, and takes minutes and gigabytes to lay out."""

MANY: Final = 1 << 24
_COLOURS: Final = {"standard": 16, "256": 256, "truecolor": MANY, "windows": 16}
_LIGHT_BACKGROUNDS: Final = ("7", "15")
"""As `COLORFGBG` numbers them."""


def clamp_size(environ: MutableMapping[str, str]) -> None:
    """Have `COLUMNS` and `LINES` claim no more than can be drawn: the first picture is laid out by them."""
    for name, most in (("COLUMNS", MOST_COLUMNS), ("LINES", MOST_ROWS)):
        text = environ.get(name, "").strip().lstrip("0")
        if text.isdecimal() and (len(text) > len(str(most)) or int(text) > most):
            environ[name] = str(most)


def why_no_screen(environ: Mapping[str, str], stdin: TextIO, stdout: TextIO) -> str | None:
    """Why no screen can be shown, as the end of a sentence. `None`: one can."""
    if not stdout.isatty():
        return "standard output is no terminal"
    if not stdin.isatty():
        return "standard input is no terminal"
    if environ.get("TERM", "") in ("dumb", "unknown", ""):
        return f"the terminal cannot move its cursor (TERM is {environ.get('TERM') or 'not set'})"
    if environ.get("CI", "").lower() in ("1", "true", "yes"):
        return "this is a CI job (CI is set)"
    return None


def number_of_colours(environ: Mapping[str, str]) -> int:
    """Colours that the terminal has; 0 where `NO_COLOR` asks for none."""
    if environ.get("NO_COLOR"):
        return 0
    system = Console(force_terminal=True, _environ=environ).color_system
    return 0 if system is None else _COLOURS.get(system, 16)


def kind_of(wish: Wish, environ: Mapping[str, str]) -> Kind:
    """The theme for this terminal."""
    n_colours = number_of_colours(environ)
    if n_colours == 0:
        return "mono"
    if wish != "auto":
        return wish
    if n_colours <= 16:
        return "ansi"
    background = environ.get("COLORFGBG", "").rpartition(";")[2]
    return "light" if background in _LIGHT_BACKGROUNDS else "dark"


def kinds_of(environ: Mapping[str, str]) -> tuple[Kind, ...]:
    """The themes for which this terminal has the colours."""
    n_colours = number_of_colours(environ)
    if n_colours == 0:
        return ("mono",)
    return ("ansi", "mono") if n_colours <= 16 else ("dark", "light", "ansi", "mono")


def look_of(kind: Kind, environ: Mapping[str, str], stdout: TextIO, *, is_ascii: bool | None = None) -> Look:
    """The characters for this terminal. `is_ascii` is the user's wish; `None`: what its encoding has."""
    from stackscope.tui.look import chosen

    if is_ascii is None:
        is_ascii = not _is_utf(stdout.encoding or "") or _is_plain_locale(environ)
    return chosen(is_ascii=is_ascii, n_colours=0 if kind == "mono" else number_of_colours(environ))


def _is_utf(encoding: str) -> bool:
    return encoding.lower().replace("-", "").startswith("utf")


def _is_plain_locale(environ: Mapping[str, str]) -> bool:
    """The user's locale is C by name: Python writes UTF-8 all the same, to a terminal that may not know it."""
    locale = next((value for name in ("LC_ALL", "LC_CTYPE", "LANG") if (value := environ.get(name))), "")
    return locale in ("C", "POSIX")
