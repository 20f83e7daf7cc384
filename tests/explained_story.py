"""The recorded story, and what the explainer made of it while it went by."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stackscope.analysis.explainer import Explainer
from stackscope.analysis.live.view import LiveView
from stackscope.engine.allowances import Allowances
from stackscope.pipeline import time_ns
from stackscope.records import Header
from stackscope.session.reader import SessionReader

if TYPE_CHECKING:
    from stackscope.analysis.live.snapshot import Snapshot
    from stackscope.records import AnyRecord

STORY: Final = Path(__file__).parents[1] / "profiles" / "story.jsonl.zst"
"""Of the real engine: one request, then speculation, then eight requests, then none, then a quantised KV cache."""
SECOND: Final = 1_000_000_000


@cache
def story() -> tuple[AnyRecord, ...]:
    return tuple(SessionReader(STORY))


def explainer() -> Explainer:
    return Explainer(rules=Allowances(2), cpu_ns=lambda: 0)


@cache
def seen() -> tuple[Snapshot, ...]:
    """Snapshots of the story, twice a second of its time."""
    view = LiveView(explainer=explainer())
    snapshots, next_ns = [], 0
    for record in story():
        view.write(record)
        at_ns = 0 if isinstance(record, Header) else time_ns(record) or 0
        if at_ns >= next_ns:
            snapshots.append(view.snapshot(at_ns))
            next_ns = at_ns + SECOND // 2
    return tuple(snapshots)
