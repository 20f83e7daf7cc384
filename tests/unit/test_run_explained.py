"""A run and a replay of what it recorded explain it alike, however its records came."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from stackscope.analysis.explainer import Explainer, unhurried
from stackscope.commands import run
from stackscope.config import RunOptions
from stackscope.engine.allowances import Allowances
from stackscope.options import OutputOptions
from stackscope.records import StepRecord
from stackscope.report import explained
from stackscope.workload.check import WorkloadFacts
from tests.explained_story import SECOND, story

if TYPE_CHECKING:
    import pytest

    from stackscope.records import AnyRecord


class Told:
    """An engine that has said all of the story, in pieces: between them it says nothing for a while."""

    def __init__(self, records: tuple[AnyRecord, ...]) -> None:
        self._items: list[AnyRecord | None] = []
        for n, record in enumerate(records):
            self._items += [record] if n % 700 else [None, record]
        self._items.reverse()
        self.is_read = False

    def next_item(self, _wait_s: float) -> AnyRecord | None:
        self.is_read = not self._items
        return self._items.pop() if self._items else None

    def now_ns(self) -> int:
        return 0


class Silent:
    """A progress line that nobody sees."""

    def look(self, now_ns: int) -> None:
        pass

    def take(self, item: object) -> None:
        pass


def replayed() -> dict[str, object]:
    one, last_ns = Explainer(rules=Allowances(), cpu_ns=unhurried), 0
    for record in story():
        one.write(record)
        if isinstance(record, StepRecord):
            last_ns = record.end_ns
    return explained.document(one.final(last_ns))


def test_a_run_says_what_its_replay_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "usable_cores", lambda: None)  # Not recorded, and of the one machine only.
    options = RunOptions(output=OutputOptions(record=False))
    session = run._Session(options, options.engine, WorkloadFacts())
    session._follow(cast("Any", Told(story())), cast("Any", Silent()))
    assert explained.document(session._explainer.final(session._last_ns)) == replayed()


def test_looks_make_no_difference_to_what_stood() -> None:
    one, last_ns = Explainer(rules=Allowances(), cpu_ns=unhurried), 0
    for n, record in enumerate(story()):
        one.write(record)
        if isinstance(record, StepRecord):
            last_ns = record.end_ns
            if n % 37 == 0:
                one.follow(last_ns + n % 11 * SECOND // 5)
                one.explanation(last_ns + n % 7 * SECOND // 3)
    assert explained.document(one.final(last_ns)) == replayed()
