"""`stackscope export`: a recording as tables or as a trace, for other programs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from stackscope import units
from stackscope.characters import harmless
from stackscope.model.files import shown
from stackscope.report.export.export import export as write
from stackscope.report.export.output import refuse_own_sources
from stackscope.session.reader import SessionReader

if TYPE_CHECKING:
    from pathlib import Path

    from stackscope.report.export.export import Form


def export(recording: Path, form: Form, path: Path, *, replace: bool) -> int:
    """Export a recording; the exit status. Raises `StackscopeError`."""
    refuse_own_sources(path, [recording])
    done = write(SessionReader(recording), form, path, replace=replace)
    for missing in (done.truncated, done.left_out):
        if missing is not None:
            print(f"stackscope: {shown(recording)}: {harmless(missing)}", file=sys.stderr)
    told = ", ".join(f"{units.count(n)} {name}" for name, n in done.counts.items() if n > 0 and name != "session")
    print(f"stackscope: wrote {shown(path)}: {told or 'nothing but the session itself'}.", file=sys.stderr)
    return 0
