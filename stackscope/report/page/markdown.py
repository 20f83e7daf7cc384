"""The report as Markdown, for a pull request: tables and nothing that a renderer would have to fetch."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from stackscope import __version__
from stackscope.characters import harmless
from stackscope.report.page import versus
from stackscope.report.page.legend import TERMS
from stackscope.report.page.tables import (
    LETTERS,
    WORDS,
    configurations,
    differences,
    every,
    happened,
    headline,
    latencies,
    notes,
    phases,
    ran,
    verdict,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stackscope.analysis.comparing.comparison import Comparison
    from stackscope.report.page.document import Document, Section
    from stackscope.report.page.gather import SessionFigures
    from stackscope.report.page.tables import Table

_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]<>#|~!$@&^])")
"""What Markdown, or GitHub's variety of it, would take for markup or an entity."""
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")
_LINKED: Final = re.compile(r"(?i)\b(?:https?|ftp|mailto|www)(?=[:.])|[@#](?=\w)|\bGH(?=-\d)")
"""What becomes a link by itself, or somebody's notification, also where it is escaped: a character without width, put
behind it, keeps it from that."""


def markdown(sessions: Sequence[SessionFigures], comparison: Comparison | None = None) -> str:
    """The whole report of recordings. `comparison` holds them against the first; `None`: there is none."""
    names = [session.path.name for session in sessions]
    if len(names) > 1:
        names = [f"{LETTERS[place]} {name}" for place, name in enumerate(names)]
    parts = [*_head(" · ".join(names), notes(sessions))]
    for section in versus.sections(comparison):
        parts += _section(section)
    parts += _tables(sessions, is_compared=comparison is not None)
    parts.append(_folded("Every metric with its formula", [_titled(table, 3) for table in every(sessions)]))
    parts.append(_folded("Terms", ["\n".join(f"- **{plain(term)}**: {plain(told)}" for term, told in TERMS)]))
    return _whole(parts)


def document_markdown(document: Document) -> str:
    """The whole report of anything else."""
    parts = [*_head(document.subject, document.notes), *map(plain, document.about)]
    for section in document.sections:
        parts += _section(section)
    return _whole(parts)


def _head(subject: str, warnings: Sequence[str]) -> Iterator[str]:
    yield f"# Stackscope: {plain(subject)}"
    if warnings:
        yield "\n".join(f"> - {plain(note)}" for note in warnings)


def _whole(parts: Sequence[str]) -> str:
    return "\n\n".join([*parts, f"Made by Stackscope {plain(__version__)}."]) + "\n"


def _section(section: Section) -> Iterator[str]:
    """Its words and tables; what a picture would show is in them."""
    if not section.told and not section.tables:
        return
    yield f"## {plain(section.title)}"
    yield from map(plain, section.told)
    for table in section.tables:  # One alone is what the heading says.
        yield _titled(table, 3) if len(section.tables) > 1 else _rows(table)


def _tables(sessions: Sequence[SessionFigures], *, is_compared: bool) -> Iterator[str]:
    yield _titled(headline(sessions), 2)
    different = None if is_compared else differences(sessions)  # A comparison has said it.
    if different is not None:
        yield _titled(different, 2)
    for place, session in enumerate(sessions):
        who = f", {LETTERS[place]}" if len(sessions) > 1 else ""
        for table in (verdict(session), happened(session), configurations(session)):
            if table is not None:
                yield _titled(table, 2, suffix=who)
    yield _titled(latencies(sessions), 2)
    parts = phases(sessions)
    if parts.rows:
        yield _titled(parts, 2)
    yield _titled(ran(sessions), 2)


def _titled(table: Table, level: int, *, suffix: str = "") -> str:
    return f"{'#' * level} {plain(table.title + suffix)}\n\n{_rows(table)}"


def _rows(table: Table) -> str:
    lines = [_line(table.head)]
    sides = [":--" if place == 0 or table.is_text or name in WORDS else "--:" for place, name in enumerate(table.head)]
    lines.append(f"|{'|'.join(sides)}|")
    lines += [_line(row) for row in table.rows]
    if table.note:
        lines += ["", plain(table.note)]
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(plain(cell) or " " for cell in cells) + " |"


def _folded(summary: str, content: Sequence[str]) -> str:
    told = "\n\n".join(content)
    return f"<details>\n<summary>{summary}</summary>\n\n{told}\n\n</details>"


def plain(text: str) -> str:
    """Text that stands for itself: on one line, without anything that would become markup, a link or a mention."""
    apart = _LINKED.sub(lambda found: f"{found[0]}\u200b", harmless(_CONTROL.sub(" ", text)))
    return _SPECIAL.sub(r"\\\1", apart)
