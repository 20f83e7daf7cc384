"""The explainer as a whole, on a recorded session: what it names, predicts, and costs."""

from __future__ import annotations

import itertools
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from stackscope.analysis.explainer import NAMING_NS, RANKING_NS, RENEWED_NS, SETTLING_NS, Explainer
from stackscope.pipeline import time_ns
from stackscope.records import ConfigEvent, Footer, Header, Phases, Prediction, SlotWork, StepRecord, TrafficEvent
from tests.explained_story import SECOND, explainer, seen, story
from tests.unit.record_builders import make_header, make_step

if TYPE_CHECKING:
    from stackscope.analysis.live.snapshot import Snapshot
    from stackscope.toggles import Setting


def names(snapshots: tuple[Snapshot, ...]) -> list[str]:
    """What was named, one after the other."""
    found: list[str] = []
    for snapshot in snapshots:
        name = snapshot.verdict.name
        if name is not None and name not in found[-1:]:
            found.append(name)
    return found


def test_the_story_is_told_by_its_names() -> None:
    found = names(seen())
    assert found[0] == "weight bandwidth"  # One request: every step reads all weights for one token.
    assert "low acceptance" in found  # Eight requests: drafts no longer pay.
    assert found.index("weight bandwidth") < found.index("low acceptance")
    assert found[-1] in ("compute", "co-limited", "KV and attention")


def test_a_change_of_the_verdict_is_an_event() -> None:
    events = [event.label for event in reversed(seen()[-1].events) if event.kind == "verdict"]
    assert events[0] == "weight bandwidth"
    assert "low acceptance" in events
    charts = {label for snapshot in seen() for _, label in snapshot.history.changes}
    assert not charts & set(events)


def test_shares_sum_to_one_whenever_something_is_named() -> None:
    for snapshot in seen():
        assert snapshot.explanation is not None
        naming = snapshot.explanation.naming
        if naming.shares:
            assert sum(share for _, share in naming.shares) == pytest.approx(1.0)
        if naming.name is not None:
            assert naming.finding is not None
            # What has stood may be on its way out.
            assert naming.finding.is_confirmed or naming.change is None
            assert naming.finding.share == naming.share


def test_what_is_suggested_can_be_told_from_nothing() -> None:
    for snapshot in seen():
        for suggestion in snapshot.verdict.next:
            assert suggestion.predicted.low > 1.0
            assert suggestion.label


def test_it_is_predicted_once_steps_have_run() -> None:
    one = explainer()
    changes: dict[str, Setting] = {"speculation": "draft", "draft_length": 4}
    one.write(make_header())
    assert one.predict(changes, 1) is None
    for record in story():
        one.write(record)
        if isinstance(record, StepRecord) and record.n == 100:
            break
    told = one.predict(changes, 5)
    assert told is not None
    assert told.at_ns == 5
    assert told.changes["speculation"] == ("off", "draft")
    assert told.reason


def test_a_setting_without_a_working_point_is_told_why() -> None:
    one = explainer()
    for record in story():
        one.write(record)
        if isinstance(record, StepRecord):
            break
    told = one.predict({"slots": 3}, 1)
    assert isinstance(told, Prediction)
    assert told.tokens is None
    assert told.changes == {"slots": (8, 3)}
    assert told.reason


@pytest.mark.parametrize(
    ("cost_ns", "spaces"), [(0, (NAMING_NS[0], RANKING_NS[0])), (10**9, (NAMING_NS[1], RANKING_NS[1]))]
)
def test_it_is_made_anew_by_what_it_costs(cost_ns: int, spaces: tuple[int, int]) -> None:
    spent = [0]

    def cpu_ns() -> int:
        spent[0] += cost_ns
        return spent[0]

    one = Explainer(cpu_ns=cpu_ns)
    named, ranked = [], []
    for record in story():
        if isinstance(record, ConfigEvent | TrafficEvent):
            break
        one.write(record)
        at_ns = 0 if isinstance(record, Header) else time_ns(record) or 0
        explanation = one.explanation(at_ns)
        if "are needed to name anything" not in explanation.naming.sentence:  # That is looked at again soon.
            named.append(explanation.naming.at_ns)
        ranked.append((explanation.ranked_at_ns or 0) if explanation.ranking is not None else 0)
    for times, space in zip((named, ranked), spaces, strict=True):
        gaps = [later - earlier for earlier, later in pairwise(times) if later != earlier and earlier > 0]
        if times is ranked:
            assert all(gap >= min(space, RENEWED_NS) for gap in gaps[:1])  # The first are of few steps.
            gaps = gaps[1:]
        assert all(gap >= space for gap in gaps)
    assert len(set(named)) >= 5


def test_without_a_step_there_is_nothing_to_say() -> None:
    one = explainer()
    one.write(make_header())
    assert one.explanation(SECOND).ranking is None
    assert one.explanation(SECOND).why_no_ranking == "No step has run yet."
    assert one.final(SECOND).naming.name is None


def test_a_header_begins_anew() -> None:
    one = explainer()
    for record in story():
        one.write(record)
    assert one.final(200 * SECOND).naming.shares
    one.write(make_header())
    assert not one.explanation(201 * SECOND).naming.shares


def test_after_a_change_it_is_told_when_predictions_start_anew() -> None:
    one = explainer()
    for record in story():
        one.write(record)
        if isinstance(record, ConfigEvent) and record.changes:
            break
    assert isinstance(record, ConfigEvent)
    settling_s = SETTLING_NS // SECOND if record.kind != "rebuild" else None
    told = [one.explanation(record.at_ns + s * SECOND).why_no_ranking for s in (0, 2)]
    left = [int(why.removeprefix("Something has just changed: predictions start anew in ").split()[0]) for why in told]
    assert left[0] - left[1] == 2
    assert settling_s in (None, left[0])


def test_at_the_start_it_is_told_when_predictions_start() -> None:
    """The first prompts all begin at once, beside a cold cache: what they show is not what goes on."""
    one = explainer()
    for record in story():
        one.write(record)
        if isinstance(record, StepRecord) and record.n >= 20:
            break
    assert isinstance(record, StepRecord)
    told = one.explanation(record.end_ns)
    assert told.ranking is None
    assert told.why_no_ranking.startswith("The session has just begun: predictions start in ")
    assert one.explanation(record.end_ns + SETTLING_NS).ranking is not None


def test_predictions_of_other_traffic_are_renewed() -> None:
    """However dear they are: all steps decoded when they were made, and then all have prompts."""
    spent = itertools.count(step=10**9)
    one = Explainer(cpu_ns=lambda: next(spent))
    decode = (SlotWork(request=0, slot=0, phase="decode", new=1, cached=50, outputs=1, emitted=1),)
    prompt = (*decode, SlotWork(request=1, slot=1, phase="prefill", new=64, cached=0))
    one.write(make_header())
    ranked: list[int] = []
    for n in range(1000):
        work, phases = decode if n < 180 else prompt, Phases(decode=SECOND // 20)
        one.write(make_step(n, start_ns=n * SECOND // 10, phases=phases, work=work))
        ranked.append(one.explanation((n + 1) * SECOND // 10).ranked_at_ns or 0)
    first, second, moved, *_ = sorted({at_ns for at_ns in ranked if at_ns > 0})
    assert second - first >= RENEWED_NS
    assert RENEWED_NS <= moved - second < RANKING_NS[1]


def test_a_recording_that_ends_early_says_what_was_missing() -> None:
    """After 1.6 s of steps, with nothing to follow."""
    one, steps = explainer(), []
    for record in story():
        if isinstance(record, StepRecord):
            steps.append(record)
            if record.end_ns - steps[0].start_ns > 1.6 * SECOND:
                break
        one.write(record)
    end_ns = steps[-2].end_ns
    assert "leads; it is named if it still does in" in one.explanation(end_ns).naming.sentence
    one.write(Footer(at_ns=end_ns, reason="done", steps=len(steps) - 1, requests=0))
    assert one.explanation(end_ns).naming.sentence.startswith("the run was too short to name anything: 1.")
