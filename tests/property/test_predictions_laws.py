"""A prediction finds its change by one rule: the live view and the score say the same of any sequence of records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from hypothesis import event, given, settings
from hypothesis import strategies as st

from stackscope.analysis.live.view import LiveView
from stackscope.analysis.predictions import JOIN_NS
from stackscope.analysis.scorecard import Scorer
from stackscope.records import ConfigEvent, Estimate, Mark, Prediction, TrafficEvent
from stackscope.toggles import EngineConfig, Setting
from tests.analysis_builders import decode, step
from tests.unit.record_builders import make_header

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.records import AnyRecord

Changes: TypeAlias = dict[str, tuple[Setting, Setting]]
SECOND: Final = 1_000_000_000
CONFIG: Final = EngineConfig(model="/models/synthetic-F16.gguf")

DRAFTS: Final[Changes] = {"draft_length": (3, 5)}
NGRAMS: Final[Changes] = {"speculation": ("off", "ngram")}
some_changes = st.sampled_from([DRAFTS, DRAFTS, DRAFTS, NGRAMS])
loads = st.sampled_from([2, 4])
gaps = st.sampled_from([1, 1, 1, 2, 3, 5, JOIN_NS // SECOND, JOIN_NS // SECOND + 1])
kinds = st.sampled_from(["prediction", "change", "refusal", "prediction", "change", "between", "of a load", "load"])


@st.composite
def happenings(draw: st.DrawFn) -> list[AnyRecord]:
    """Predictions, changes, refusals, loads and what lies between, each at a time of its own, after a first step."""
    records: list[AnyRecord] = [step(decode(0, cached=9))]
    now = epoch = 0
    for n, kind in enumerate(draw(st.lists(kinds, min_size=8, max_size=16))):
        now += draw(gaps) * SECOND
        changes = draw(some_changes)
        if kind in ("prediction", "of a load"):
            if kind == "of a load":
                changes = {"concurrency": (6 - (after := draw(loads)), after)}
            if draw(st.booleans()):
                changes = {**changes, "threads": (2, 2)}
            tokens = None if draw(st.integers(0, 4)) == 0 else Estimate(1.0 + n, 0.5 + n, 1.5 + n)
            records.append(Prediction(at_ns=now, changes=changes, tokens=tokens))
        elif kind == "change":
            epoch += 1
            records.append(ConfigEvent(at_ns=now, epoch=epoch, kind="live", changes=changes, config=CONFIG))
        elif kind == "refusal":
            records.append(ConfigEvent(at_ns=now, epoch=epoch, kind="refused", changes=changes, reason="No."))
        elif kind == "load":
            records.append(TrafficEvent(at_ns=now, concurrency=draw(loads)))
        else:
            between: list[AnyRecord] = [
                ConfigEvent(at_ns=now, epoch=epoch, kind="live", config=CONFIG),
                step(decode(0, cached=9), n=1 + n, start_ns=now, epoch=epoch),
                Mark(at_ns=now, label="nothing"),
            ]
            records.append(draw(st.sampled_from(between)))
    return records


@settings(max_examples=200)
@given(happenings())
def test_live_and_score_say_the_same(records: list[AnyRecord]) -> None:
    view, scorer = LiveView(), Scorer()
    for record in (make_header(workload={"concurrency": 2}), *records):
        view.write(record)
        scorer.write(record)
    snapshot = view.snapshot(10**12)
    shown = [one for one in reversed(snapshot.events) if one.kind in ("live", "traffic")]
    scored = scorer.card.outcomes()
    assert [(one.at_ns, one.changes) for one in shown] == [(one.at_ns, one.changes) for one in scored]
    values = [None if one.predicted is None else one.predicted.value for one in scored]
    assert [None if one.predicted is None else one.predicted.value for one in shown] == values
    assert list(snapshot.score.outcomes if snapshot.score is not None else ()) == scored
    assert all(one.predicted is None for one in snapshot.events if one.kind == "refused")

    expected = _expected(records, [one.at_ns for one in scored], [one.changes for one in scored])
    assert values == expected
    event(f"joined: {sum(value is not None for value in values)}")


def _expected(records: Sequence[AnyRecord], times: Sequence[int], made: Sequence[Changes]) -> list[float | None]:
    """Said without a memory: the newest prediction of each change, within 30 s, with nothing between that spends it."""
    found: list[float | None] = []
    for index, (at_ns, changes) in enumerate(zip(times, made, strict=True)):
        refused = [
            one.at_ns
            for one in records
            if isinstance(one, ConfigEvent) and one.kind == "refused" and one.changes == changes and one.at_ns < at_ns
        ]
        since_ns = max([at_ns - JOIN_NS, *times[:index][-1:], *refused[-1:]])
        candidates = [
            one
            for one in records
            if isinstance(one, Prediction)
            and since_ns <= one.at_ns < at_ns
            and {name: pair for name, pair in one.changes.items() if name != "threads"} == changes
        ]
        newest = candidates[-1] if candidates else None
        found.append(None if newest is None or newest.tokens is None else newest.tokens.value)
    return found
