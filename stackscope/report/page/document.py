"""A report in sections, before it is HTML or Markdown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stackscope.report.page.frame import Chart
    from stackscope.report.page.tables import Table


@dataclass(frozen=True, kw_only=True)
class Section:
    """What stands under one heading: first words, then pictures, then tables."""

    name: str
    """For links; unique in the report."""
    title: str
    told: tuple[str, ...] = ()
    """Paragraphs."""
    charts: tuple[Chart, ...] = ()
    """On the page only; the tables say the same in figures."""
    tables: tuple[Table, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Document:
    """A whole report that is not of sessions alone."""

    subject: str
    about: tuple[str, ...]
    """Lines below the subject."""
    notes: tuple[str, ...]
    """What the reader should know before believing a figure."""
    sections: tuple[Section, ...]
