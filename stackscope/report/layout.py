"""Lines of text for people, laid out to a width: nothing breaks inside a word, a number, or between it and its unit."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from rich.text import Text

from stackscope.characters import harmless

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LABEL_WIDTH: Final = 14
SEPARATOR: Final = " · "
MOST_WIDTH: Final = 100
"""Longer lines are hard to follow, however wide the window is."""

EIGHTHS: Final = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")

_BREAKS: Final = re.compile(r"(?<!\d) +")
"""Spaces at which a line may end: not those between a number and what it counts."""

SUBSTITUTES: Final[dict[str, str]] = {
    "█": "#", "▉": "#", "▊": "=", "▋": "=", "▌": "=", "▍": "-", "▎": "-", "▏": "-",
    "·": "|", "µ": "u", "×": "x", "→": "->", "≤": "<=", "–": "-", "…": "...", "÷": "/",
}  # fmt: skip
"""What stands for characters of ours that a terminal lacks."""


def visible(text: str) -> str:
    """The text, as long as it was, without what would move, colour or turn others: a recording may be anybody's."""
    return harmless(text, keep="\n")


def row(label: str, phrases: Sequence[str | Text], width: int, *, style: str = "") -> Text:
    """Phrases behind a label, as many to a line as fit; what follows stands under the first."""
    return hang(Text(f"{label:{LABEL_WIDTH}}", style="bold"), phrases, width, style=style)


def hang(prefix: Text, phrases: Sequence[str | Text], width: int, *, style: str = "") -> Text:
    """Phrases behind anything, each in one piece where it fits a line; further lines are indented by the prefix."""
    indent = prefix.cell_len
    # Built from scratch: a text that has a style of its own would lend it to all that is appended.
    text = Text().append_text(prefix)
    column = indent
    for index, phrase in enumerate(phrases):
        piece = Text(phrase, style=style) if isinstance(phrase, str) else phrase
        if index > 0 and column + len(SEPARATOR) + piece.cell_len <= width:
            text.append(SEPARATOR, style=style)
            column += len(SEPARATOR)
        elif index > 0:
            text.append("\n" + " " * indent)
            column = indent
        column = _append_words(text, piece, width, column=column, indent=indent)
    return text


def _append_words(text: Text, phrase: Text, width: int, *, column: int, indent: int) -> int:
    """Add a phrase, broken between words where it is longer than the line; the column where it ends."""
    for index, word in enumerate([phrase] if column + phrase.cell_len <= width else words_of(phrase)):
        if index > 0 and column + 1 + word.cell_len > width:
            text.append("\n" + " " * indent)
            column = indent
        elif index > 0:
            text.append(" ")
            column += 1
        text.append_text(word)
        column += word.cell_len
    return column


def words_of(phrase: Text) -> Iterator[Text]:
    """The pieces between which a line may end."""
    start = 0
    for found in _BREAKS.finditer(phrase.plain):
        yield phrase[start : found.start()]
        start = found.end()
    yield phrase[start:]


def columns(header: Sequence[str], rows: Sequence[Sequence[str]], *, first_width: int = 0) -> list[str]:
    """Header and rows as lines: the first column to the left and at least so wide, the others to the right."""
    lines = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    widths[0] = max(widths[0], first_width)
    return ["  ".join([f"{cells[0]:<{widths[0]}}", *map(str.rjust, cells[1:], widths[1:])]) for cells in lines]


def aligned(figures: Sequence[str]) -> list[str]:
    """Figures of one column, padded so that numbers end under numbers and units begin under units.

    A unit may carry a mark; a figure of several parts (`2 min 05 s`) stays as it is.
    """
    units_of = {figure: figure.split(" ")[1] for figure in figures if figure.count(" ") == 1}
    width = max(map(len, units_of.values()), default=-1)
    return [
        figure + " " * (width - len(units_of[figure]))
        if figure in units_of
        else figure + " " * (width + 1 if " " not in figure else 0)
        for figure in figures
    ]


def bar(share: float, width: int) -> str:
    """A bar of eighths of a cell; anything above zero shows at least one eighth."""
    eighths = max(1, round(max(0.0, min(1.0, share)) * width * 8)) if share > 0 else 0
    return "█" * (eighths // 8) + EIGHTHS[eighths % 8]


def encodable(text: str, encoding: str) -> str:
    """The text with substitutes for those of our characters that an encoding lacks."""
    for character, substitute in SUBSTITUTES.items():
        if character in text:
            try:
                character.encode(encoding)
            except UnicodeEncodeError:
                text = text.replace(character, substitute)
    return text
