"""`stackscope report`: recordings as Markdown for a pull request, or as one HTML page."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from stackscope.errors import UsageError
from stackscope.report import output
from stackscope.report.export.output import refuse_own_sources, whole_file
from stackscope.report.page.gather import gather
from stackscope.report.page.html import page
from stackscope.report.page.markdown import markdown
from stackscope.report.page.tables import MOST_SESSIONS
from stackscope.session.reader import SessionReader

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from stackscope.config import RunOptions

HTML: Final = (".html", ".htm")
MARKDOWN: Final = (".md", ".markdown")


def report(recordings: Sequence[Path], path: Path | None, options: RunOptions, *, replace: bool) -> int:
    """Write a report of recordings, Markdown to standard output without a path; the exit status.

    Raises `StackscopeError`.
    """
    suffix = MARKDOWN[0] if path is None else path.suffix.lower()
    if suffix not in HTML + MARKDOWN:
        raise UsageError(
            f"{path} tells by its name neither HTML nor Markdown.", remedy="Give a name that ends in .html or .md."
        )
    if len(recordings) > MOST_SESSIONS:
        raise UsageError(f"More than {MOST_SESSIONS} recordings do not fit beside each other.", remedy="Give fewer.")
    readers = [SessionReader(recording) for recording in recordings]
    if path is None:
        output.write(markdown([gather(reader, options.limits.service) for reader in readers]))
        return 0
    refuse_own_sources(path, recordings)
    with whole_file(path, replace=replace) as unfinished:
        sessions = [gather(reader, options.limits.service) for reader in readers]
        text = page(sessions) if suffix in HTML else markdown(sessions)
        unfinished.write_text(text, encoding="utf-8", errors="replace", newline="\n")
    print(f"stackscope: wrote {path}.", file=sys.stderr)
    return 0
