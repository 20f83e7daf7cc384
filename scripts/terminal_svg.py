"""Textual's export of a screen, drawn anew: on whole pixels, in any monospace font, frames and bars as shapes.

The export sets every character from a font that it names by an address, on rows that are further apart than the font is
tall: offline, frames fall into dashes and bars into stripes. Here a character that is a drawing becomes one, and of
the font only letters are asked.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple
from xml.etree import ElementTree
from xml.sax.saxutils import escape, quoteattr

from rich.cells import cell_len

if TYPE_CHECKING:
    from collections.abc import Iterator

FONTS: Final = "'DejaVu Sans Mono','Liberation Mono',Menlo,Consolas,monospace"
WIDTH: Final = 8
HEIGHT: Final = 16
"""Pixels of a cell; an eighth of a block is a whole number of them."""
FONT_SIZE: Final = 13.3
"""At which a letter of a common monospace font, 0.6 em wide, fills a cell."""
BASELINE: Final = 12
MARGIN: Final = 8
"""Pixels around the screen, in its own colour."""

_SVG: Final = "{http://www.w3.org/2000/svg}"
_THEIR_WIDTH: Final = 20 * 0.61
_THEIR_HEIGHT: Final = 20 * 1.22
"""Cells of the export, which does not tell them: rich sets letters 20 high, 0.61 wide, on rows 1.22 apart."""
_RULE: Final = re.compile(r"\.([\w-]+-r\d+) \{ (.*?) \}")
_FILL: Final = re.compile(r"fill: (#[0-9a-f]{6})")

_DOWN, _RIGHT, _UP, _LEFT = "M4 8V16", "M4 8H8", "M4 8V0", "M4 8H0"
STROKES: Final = {
    "─": "M0 8H8", "│": "M4 0V16", "┌": _DOWN + _RIGHT, "┐": _DOWN + _LEFT, "└": _UP + _RIGHT, "┘": _UP + _LEFT,
    "├": "M4 0V16" + _RIGHT, "┤": "M4 0V16" + _LEFT, "┬": "M0 8H8" + _DOWN, "┴": "M0 8H8" + _UP, "┼": "M0 8H8M4 0V16",
    "╭": "M4 16V12Q4 8 8 8", "╮": "M4 16V12Q4 8 0 8", "╰": "M4 0V4Q4 8 8 8", "╯": "M4 0V4Q4 8 0 8",
    "╱": "M0 16L8 0", "╲": "M0 0L8 16", "┊": "M4 1V3M4 5V7M4 9V11M4 13V15", "╵": _UP, "╷": _DOWN, "╴": _LEFT,
    "╶": _RIGHT,
}  # fmt: skip
"""Lines of a cell, as a path from its upper left corner."""


_SHARP: Final = 'transform="translate(-.5 -.5)"'
"""Moves a line, one pixel thick, from between two pixels onto one."""


class Box(NamedTuple):
    """A rectangle of a cell, in its pixels."""

    x: int
    y: int
    width: int
    height: int


_QUADRANTS: Final = (Box(0, 0, 4, 8), Box(4, 0, 4, 8), Box(0, 8, 4, 8), Box(4, 8, 4, 8))
BLOCKS: Final[dict[str, tuple[Box, ...]]] = {
    **{chr(0x2580 + n): (Box(0, 16 - 2 * n, 8, 2 * n),) for n in range(1, 9)},
    **{chr(0x2590 - n): (Box(0, 0, n, 16),) for n in range(1, 8)},
    "▀": (Box(0, 0, 8, 8),), "▐": (Box(4, 0, 4, 16),), "▔": (Box(0, 0, 8, 2),), "▕": (Box(7, 0, 1, 16),),
    **{
        character: tuple(box for n, box in enumerate(_QUADRANTS) if has_it[n] == "1")
        for character, has_it in {
            "▖": "0010", "▗": "0001", "▘": "1000", "▙": "1011", "▚": "1001", "▛": "1110", "▜": "1101", "▝": "0100",
            "▞": "0110", "▟": "0111",
        }.items()
    },
}  # fmt: skip
"""Filled parts of a cell."""
SHADES: Final = {"░": 0.25, "▒": 0.5, "▓": 0.75}
"""Opacity of a cell that is filled evenly."""
_DRAWINGS: Final = "".join([*STROKES, *BLOCKS, *SHADES])
_PIECE: Final = re.compile(f"[{_DRAWINGS}]+|[^ {_DRAWINGS}]+(?: [^ {_DRAWINGS}]+)*")


class Run(NamedTuple):
    """Characters of one style, from a cell on."""

    row: int
    column: int
    text: str
    style: str
    """In CSS."""


class Background(NamedTuple):
    """Cells of one colour."""

    row: int
    column: int
    width: int
    colour: str


class Screen(NamedTuple):
    """What an export holds."""

    width: int
    height: int
    colour: str
    """Of the first cell, which is that of most."""
    backgrounds: list[Background]
    runs: list[Run]


def redrawn(exported: str) -> str:
    """An SVG of the same screen."""
    return _written(_read(exported))


# Reading


def _read(exported: str) -> Screen:
    root = ElementTree.fromstring(exported)
    sheet = "".join(style.text or "" for style in root.iter(f"{_SVG}style"))
    styles = dict(_RULE.findall(sheet))
    inside = root.find(f"{_SVG}g[@clip-path]")
    frame = root.find(f"{_SVG}rect")
    assert inside is not None
    assert frame is not None
    backgrounds = [
        Background(*_cell(rect, 1.5), round(float(rect.attrib["width"]) / _THEIR_WIDTH), rect.attrib["fill"])
        for rect in inside.findall(f"{_SVG}rect")
    ]
    runs = [
        Run(*_cell(text, 20), "".join(text.itertext()).replace("\u00a0", " "), styles[text.attrib["class"]])
        for text in inside.iter(f"{_SVG}text")
    ]
    clip = root.find(f".//{_SVG}clipPath/{_SVG}rect")
    assert clip is not None
    width = round((float(clip.attrib["width"]) + 1) / _THEIR_WIDTH)
    height = round((float(clip.attrib["height"]) + 1) / _THEIR_HEIGHT)
    corner = next((one.colour for one in backgrounds if (one.row, one.column) == (0, 0)), frame.attrib["fill"])
    return Screen(width, height, corner, backgrounds, runs)


def _cell(element: ElementTree.Element, above: float) -> tuple[int, int]:
    """Row and column of an element that begins so far below its row."""
    y, x = float(element.attrib["y"]), float(element.attrib["x"])
    return round((y - above) / _THEIR_HEIGHT), round(x / _THEIR_WIDTH)


# Writing


def _written(screen: Screen) -> str:
    letters: list[str] = []
    fills: dict[tuple[str, float], list[str]] = defaultdict(list)
    strokes: dict[str, list[str]] = defaultdict(list)
    classes: dict[str, str] = {}
    for run in screen.runs:
        for piece in _pieces(run):
            found = _FILL.search(piece.style)
            assert found is not None, f"a style without a colour: {piece.style}"
            if piece.text[0] in _DRAWINGS:
                _draw(piece, found[1], fills, strokes)
            else:
                letters.append(_lettering(piece, classes.setdefault(piece.style, f"s{len(classes)}")))
    width, height = screen.width * WIDTH + 2 * MARGIN, screen.height * HEIGHT + 2 * MARGIN
    rules = "".join(f".{name}{{{re.sub(r'; *', ';', style).replace(': ', ':')}}}" for style, name in classes.items())
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        f"<style>text{{font:{FONT_SIZE}px {FONTS}}}{rules}</style>",
        f'<rect width="{width}" height="{height}" rx="6" fill="{screen.colour}"/>',
        f'<g transform="translate({MARGIN} {MARGIN})">',
        *(_path(f'fill="{colour}"', parts) for colour, parts in _background_paths(screen).items()),
        *(
            _path(f'fill="{colour}"' + (f' fill-opacity="{opacity}"' if opacity < 1 else ""), parts)
            for (colour, opacity), parts in fills.items()
        ),
        *(_path(f'fill="none" stroke="{colour}" {_SHARP}', parts) for colour, parts in strokes.items()),
        *letters,
        "</g></svg>",
    ]
    return "\n".join(lines) + "\n"


def _background_paths(screen: Screen) -> dict[str, list[str]]:
    """Backgrounds that differ from the screen's, as paths by colour."""
    paths: dict[str, list[str]] = defaultdict(list)
    last: Background | None = None
    for one in (*sorted(screen.backgrounds), Background(-1, 0, 0, "")):
        if last is not None and (one.row, one.column, one.colour) == (last.row, last.column + last.width, last.colour):
            last = last._replace(width=last.width + one.width)
            continue
        if last is not None and last.colour != screen.colour:
            box = Box(0, 0, last.width * WIDTH, HEIGHT)
            paths[last.colour].append(_rectangle(last.row, last.column, box))
        last = one
    return paths


def _path(attributes: str, parts: list[str]) -> str:
    return f'<path {attributes} d="{"".join(parts)}"/>'


def _pieces(run: Run) -> Iterator[Run]:
    """What is drawn, and what is lettering: words that stand apart by more than a blank each at their own place."""
    for found in _PIECE.finditer(run.text):
        yield run._replace(column=run.column + cell_len(run.text[: found.start()]), text=found[0])


def _lettering(run: Run, name: str) -> str:
    x, y, length = run.column * WIDTH, run.row * HEIGHT + BASELINE, cell_len(run.text) * WIDTH
    return f'<text class={quoteattr(name)} x="{x}" y="{y}" textLength="{length}">{escape(run.text)}</text>'


def _draw(run: Run, colour: str, fills: dict[tuple[str, float], list[str]], strokes: dict[str, list[str]]) -> None:
    """Add the characters of a run, all of which are drawings, to the paths of their colour."""
    for same in re.finditer(r"(.)\1*", run.text):
        character, n, column = same[1], len(same[0]), run.column + same.start()
        if character in SHADES:
            box = Box(0, 0, n * WIDTH, HEIGHT)
            fills[colour, SHADES[character]].append(_rectangle(run.row, column, box))
        elif character == "─":
            strokes[colour].append(_moved(f"M0 8H{n * WIDTH}", run.row, column))
        elif character in STROKES:
            strokes[colour] += [_moved(STROKES[character], run.row, column + i) for i in range(n)]
        else:
            for box in BLOCKS[character]:
                # What reaches from edge to edge is one rectangle over all of its cells.
                wide = box._replace(width=n * WIDTH) if box.width == WIDTH else None
                fills[colour, 1.0] += (
                    [_rectangle(run.row, column, wide)]
                    if wide
                    else [_rectangle(run.row, column + i, box) for i in range(n)]
                )


def _rectangle(row: int, column: int, box: Box) -> str:
    return f"M{column * WIDTH + box.x} {row * HEIGHT + box.y}h{box.width}v{box.height}h-{box.width}z"


def _moved(path: str, row: int, column: int) -> str:
    """A path of a cell at its place on the screen."""
    x, y = column * WIDTH, row * HEIGHT

    def shifted(command: re.Match[str]) -> str:
        numbers = [float(number) for number in command[2].split()]
        if command[1] == "H":
            offsets = [x]
        elif command[1] == "V":
            offsets = [y]
        else:
            offsets = [x, y] * (len(numbers) // 2)
        return command[1] + " ".join(f"{n + offset:g}" for n, offset in zip(numbers, offsets, strict=True))

    return re.sub(r"([MHVLQ])([\d. ]+)", shifted, path)
