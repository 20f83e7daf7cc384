"""`stackscope score`: how well the predictions in recordings did, beside what was measured afterwards."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from stackscope.analysis.scorecard import Score, merged, score_session
from stackscope.commands.sources import recordings_in
from stackscope.report import output
from stackscope.report.score import SessionScore, shown
from stackscope.session.reader import SessionReader

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def score(paths: Sequence[Path], *, json: bool = False) -> int:
    """Print the score of every recording and of all; the exit status. Raises `SessionFileError`.

    One that is named twice counts once.
    """
    sessions = [_scored(path) for path in {one.resolve(): one for one in recordings_in(paths)}.values()]
    total = merged(one.score for one in sessions)
    if json:
        output.write_json(document(sessions, total))
    else:
        output.show(partial(shown, sessions, total))
    return 0


def _scored(path: Path) -> SessionScore:
    reader = SessionReader(path)
    found = score_session(reader)
    return SessionScore(path.name.removesuffix(".zst").removesuffix(".jsonl"), found, reader.truncated, reader.left_out)


def document(sessions: Sequence[SessionScore], total: Score) -> dict[str, object]:
    """The same for machines, with every change; unknown is null."""
    return {
        "sessions": [
            {"session": one.name, "truncated": one.truncated, "left_out": one.left_out, **_of(one.score)}
            for one in sessions
        ],
        "total": _of(total, with_changes=False),
    }


def _of(found: Score, *, with_changes: bool = True) -> dict[str, object]:
    figures: dict[str, object] = {
        "changes": len(found.outcomes),
        "scored": found.n,
        "signs": found.n_signs,
        "signs_right": found.signs_right,
        "median_error": found.median_error,
        "intervals_held": found.covered,
        "coverage": found.coverage,
        "not_scored": found.left_out,
        "why_none": found.why_none,
    }
    if with_changes:
        figures["outcomes"] = [
            {
                "at_ns": one.at_ns,
                "changes": {name: list(values) for name, values in one.changes.items()},
                "predicted": _estimate(one.predicted),
                "measured": _estimate(one.measured),
                "error": one.error,
                "why_not": one.why,
            }
            for one in found.outcomes
        ]
    return figures


def _estimate(found: object) -> object:
    return None if found is None else msgspec.structs.asdict(found)  # type: ignore[arg-type]
