"""`stackscope report`: recordings, an ablation or a sweep as Markdown for a pull request, or as one HTML page."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from stackscope.characters import harmless
from stackscope.commands.sources import recordings_in
from stackscope.errors import UsageError
from stackscope.experiments.state import NAME
from stackscope.model.files import shown
from stackscope.report import output
from stackscope.report.export.output import refuse_own_sources, whole_file
from stackscope.report.page.gather import gather
from stackscope.report.page.html import document_page, page
from stackscope.report.page.markdown import document_markdown, markdown
from stackscope.report.page.tables import MOST_SESSIONS
from stackscope.session.reader import SessionReader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from stackscope.config import RunOptions
    from stackscope.report.page.document import Document

HTML: Final = (".html", ".htm")
MARKDOWN: Final = (".md", ".markdown")


def report(sources: Sequence[Path], path: Path | None, options: RunOptions, *, replace: bool) -> int:
    """Write a report of recordings or of one experiment, Markdown to standard output without a path; the exit status.

    Raises `StackscopeError`.
    """
    suffix = MARKDOWN[0] if path is None else path.suffix.lower()
    if suffix not in HTML + MARKDOWN:
        raise UsageError(
            f"{path} tells by its name neither HTML nor Markdown.", remedy="Give a name that ends in .html or .md."
        )
    folders = [folder for folder in map(_experiment, sources) if folder is not None]
    if folders and len(sources) > 1:
        raise UsageError(f"The experiment in {folders[0]} has a report of its own.", remedy="Give nothing else.")
    recordings = [] if folders else recordings_in(sources)
    make = _of_experiment(folders[0]) if folders else _of_recordings(recordings, options)
    if path is None:
        # What Markdown has no width for is ours: it keeps names from becoming links.
        output.write(harmless(make(False), keep="\n\u200b"))
        return 0
    refuse_own_sources(path, [folder / NAME for folder in folders] or recordings)
    with whole_file(path, replace=replace) as unfinished:
        text = make(suffix in HTML)
        unfinished.write_text(text, encoding="utf-8", errors="replace", newline="\n")
    print(f"stackscope: wrote {shown(path)}.", file=sys.stderr)
    return 0


def is_experiment(source: Path) -> bool:
    """Whether it is an ablation or a sweep, by its folder or by the file in it."""
    return _experiment(source) is not None


def _experiment(source: Path) -> Path | None:
    """The folder of an experiment, which is given by its name or by that of the file in it. `None`: it is none."""
    if source.name == NAME:
        return source.parent
    return source if (source / NAME).exists() else None


def _of_recordings(recordings: Sequence[Path], options: RunOptions) -> Callable[[bool], str]:
    """What makes the report, as a page or not. Raises `StackscopeError`."""
    if len(recordings) > MOST_SESSIONS:
        raise UsageError(f"More than {MOST_SESSIONS} recordings do not fit beside each other.", remedy="Give fewer.")
    readers = [SessionReader(recording) for recording in recordings]

    def made(is_page: bool) -> str:
        sessions = [gather(reader, options.limits.service) for reader in readers]
        comparison = None
        if len(recordings) > 1:
            from stackscope.experiments.comparing import compare

            comparison = compare(recordings)
        return page(sessions, comparison) if is_page else markdown(sessions, comparison)

    return made


def _of_experiment(folder: Path) -> Callable[[bool], str]:
    """The same of an ablation or a sweep."""
    found = _document(folder)
    return lambda is_page: document_page(found) if is_page else document_markdown(found)


def _document(folder: Path) -> Document:
    # Imported late: a report of recordings needs nothing of it.
    from stackscope.commands.experiment_reports import stored_report
    from stackscope.report.ablation import AblationReport
    from stackscope.report.page import ablated, swept

    found = stored_report(folder)
    return ablated.document(found) if isinstance(found, AblationReport) else swept.document(found)
