"""What the explainer says, as lines: of a recorded session, whole, and within any width."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
import pytest

from stackscope.analysis.diagnosis.naming import Naming
from stackscope.analysis.diagnosis.responses import LEAST_PROBES, Response
from stackscope.analysis.explainer import Explanation
from stackscope.analysis.live.explained import verdict
from stackscope.analysis.scorecard import Outcome, score_of
from stackscope.analysis.statistics import Interval
from stackscope.analysis.whatif.breakevens import BreakEven
from stackscope.analysis.whatif.ranking import Ranking
from stackscope.records import Estimate, Finding
from stackscope.tui import explained
from stackscope.tui.evidence import evidence
from stackscope.tui.lines import plain, spelled, width
from stackscope.tui.look import ASCII, UNICODE
from stackscope.tui.pane import Context, Size
from stackscope.tui.panes import PANES
from stackscope.tui.panes.events import EventsPane
from tests.explained_story import SECOND, seen

if TYPE_CHECKING:
    from stackscope.analysis.live.snapshot import Snapshot
    from stackscope.toggles import Setting


def context_of(snapshot: Snapshot) -> Context:
    return Context(snapshot=snapshot, size=Size(118, 6), look=UNICODE)


def text(snapshot: Snapshot, room: int = 118) -> str:
    return "\n".join(plain(line) for line in evidence(snapshot, None, room, UNICODE))


def named(name: str) -> Snapshot:
    return next(snapshot for snapshot in seen() if snapshot.verdict.name == name)


@pytest.mark.parametrize("room", [40, 78, 118, 132])
def test_everything_keeps_to_the_room(room: int) -> None:
    for snapshot in seen()[::20]:
        for look in (UNICODE, ASCII):
            assert max(width(spelled(line, look)) for line in evidence(snapshot, None, room, look)) <= room


def test_a_cause_comes_with_evidence_bound_and_falsifier() -> None:
    shown = text(named("low acceptance"))
    assert "tokens per forward" in shown
    assert "needed to break even" in shown
    assert "Without it a step would take" in shown
    assert "It is wrong if: without speculation tokens do not come faster." in shown
    assert "What it is not, and why" in shown


def test_what_has_to_be_said_beside_a_verdict_is_said_where_nothing_is_named_too() -> None:
    """As of a stall: then nothing is named, and what it was must be told all the same."""
    known = named("weight bandwidth")
    assert known.explanation is not None
    note = "a step stalled: it took 62.0 s where 22.1 ms is usual"
    naming = msgspec.structs.replace(
        known.explanation.naming, name=None, finding=None, sentence="stalled for 96.8 % of the time", notes=(note,)
    )
    explanation = msgspec.structs.replace(known.explanation, naming=naming)
    shown = text(msgspec.structs.replace(known, explanation=explanation, verdict=verdict(explanation)))
    assert "Nothing is named" in shown
    assert "Stalled for 96.8 % of the time." in shown
    assert f"A{note[1:]}." in shown


def test_all_of_the_time_is_accounted_for() -> None:
    shown = text(named("weight bandwidth"))
    assert "What takes the time" in shown
    assert "weight bandwidth" in shown
    told: tuple[tuple[str, float], ...] = (
        ("weight bandwidth", 0.72), ("compute", 0.265), ("emit", 0.004), ("sampling", 0.004), ("idle", 0.004),
        ("unexplained", 0.003),
    )  # fmt: skip
    lines = explained.shares(Explanation(naming=Naming(shares=told)), 118, UNICODE)
    rows = [re.fullmatch(r"(.+?) +([\d.]+) %.*", plain(line).rstrip()) for line in lines[1:]]
    shares = {row[1]: float(row[2]) for row in rows if row is not None}
    assert shares == {"weight bandwidth": 72.0, "compute": 26.5, "the rest": 1.2, "unexplained": 0.3}
    assert sum(shares.values()) == pytest.approx(100.0)
    whole = (("weight bandwidth", 1.0), ("idle", 0.0), ("unexplained", 0.0))
    assert "the rest" not in str(explained.shares(Explanation(naming=Naming(shares=whole)), 118, UNICODE))


def test_changes_come_with_their_reasons_and_what_is_not_known_with_its() -> None:
    shown = " ".join(text(seen()[-1]).split())
    assert "What each change would bring" in shown
    assert "then dominate" in shown
    assert "Where it turns" in shown


def test_what_cannot_be_predicted_is_told_with_the_reason() -> None:
    known = [one.explanation.ranking for one in seen() if one.explanation is not None and one.explanation.ranking]
    unknown = [one for ranking in known for one in ranking.singles if one.gain is None]
    told = [snapshot for snapshot in seen() if "Not predicted:" in text(snapshot)]
    assert len(unknown) >= len(told) > 0
    [first] = [line for line in text(told[0], 400).splitlines() if "Not predicted:" in line][:1]
    assert re.search(r"Not predicted: \S.+\. \S.+", first)


def test_what_takes_less_is_told_with_the_share_of_what_is_named() -> None:
    less = Finding(cause="weight bandwidth", share=0.24, claim="reading the weights takes 24.0 % of the time")
    more = Finding(cause="KV and attention", share=0.7, claim="attention takes 70.0 % of the time")
    naming = Naming(name="compute", share=0.538, rejected=(more, less))
    shown = "\n".join(plain(line) for line in explained.rejected(Explanation(naming=naming), 200, UNICODE))
    assert "takes 24.0 % of the time: less than what is named (53.8 %)" in shown
    assert "takes 70.0 % of the time: more than what is named (53.8 %), but what is lost goes before" in shown
    waits = Finding(cause="queueing", share=0.3, claim="requests wait for 30 % of their time", is_confirmed=True)
    other = msgspec.structs.replace(naming, rejected=(waits,))
    shown = "\n".join(plain(line) for line in explained.rejected(Explanation(naming=other), 200, UNICODE))
    assert "30 % of their time: less than the 35.0 % that a wait is named for" in shown
    waiting = msgspec.structs.replace(naming, name="queueing", share=0.9)
    shown = "\n".join(plain(line) for line in explained.rejected(Explanation(naming=waiting), 200, UNICODE))
    assert "takes 24.0 % of the time: that is of wall time" in shown
    assert "less than what is named" not in shown
    held = msgspec.structs.replace(naming, ahead=(more,))
    shown = "\n".join(plain(line) for line in explained.rejected(Explanation(naming=held), 200, UNICODE))
    assert "takes 70.0 % of the time: it leads by now, and the name goes if that lasts" in shown
    unnamed = msgspec.structs.replace(naming, name=None, share=None)
    assert "what is named" not in str(explained.rejected(Explanation(naming=unnamed), 200, UNICODE))


def test_without_a_ranking_it_says_why() -> None:
    shown = "\n".join(plain(line) for line in explained.changes(Explanation(), 80, UNICODE))
    assert "No step has run yet." in shown


def test_the_score_names_what_counts_and_what_does_not() -> None:
    changes: dict[str, tuple[Setting, Setting]] = {"draft_length": (3, 5)}
    good = Outcome(
        at_ns=61 * SECOND, changes=changes, predicted=Estimate(1.3, 1.2, 1.4), measured=Estimate(1.28, 1.2, 1.36)
    )
    bad = msgspec.structs.replace(good, measured=Estimate(0.7, 0.68, 0.72))
    apart = msgspec.structs.replace(good, predicted=None, why="it was not predicted")
    score = score_of([apart, bad, good])
    shown = "\n".join(plain(line) for line in explained.score(score, 118, UNICODE))
    assert "1 of 2 signs right" in shown
    assert "1:01 draft length 3 → 5: predicted +30 %, measured +28 % (as predicted)" in shown
    assert "measured -30 % (outside the interval)" in shown
    assert "(it was not predicted)" in shown
    unclear = msgspec.structs.replace(good, predicted=Estimate(1.22, 0.6, 2.4), measured=Estimate(0.84, 0.6, 1.2))
    opposite = msgspec.structs.replace(unclear, measured=Estimate(0.84, 0.75, 0.95))
    for outcome in (unclear, opposite):
        shown = "\n".join(plain(line) for line in explained.score(score_of([outcome]), 118, UNICODE))
        assert "predicted +22 %, measured -16 % (within both intervals, too uncertain to tell)" in shown
    pane = EventsPane().drawn(context_of(msgspec.structs.replace(seen()[-1], score=score)))
    assert "1 of 2 signs right, median error" in plain(pane.notes[0])


def test_the_verdict_pane_says_when_nothing_is_put_forward() -> None:
    snapshot = next(s for s in seen() if s.verdict.name and not s.verdict.next and s.explanation.ranking)  # type: ignore[union-attr]
    shown = "\n".join(plain(line) for line in PANES["verdict"].drawn(context_of(snapshot)).lines)
    assert "nothing is predicted to gain beyond doubt" in shown


def test_a_pane_of_few_rows_shows_changes_rather_than_verdicts() -> None:
    snapshot = seen()[-1]
    assert {event.kind for event in snapshot.events[:2]} == {"verdict"}
    small = PANES["events"].drawn(Context(snapshot=snapshot, size=Size(118, 4), look=UNICODE))
    assert not any("limits now" in plain(line) for line in small.lines)
    assert any("predicted" in plain(line) for line in small.lines)
    large = PANES["events"].drawn(Context(snapshot=snapshot, size=Size(118, 12), look=UNICODE))
    assert any("limits now" in plain(line) for line in large.lines)


def test_the_break_even_stands_beside_the_acceptance() -> None:
    snapshot = next(s for s in seen() if s.explanation and s.explanation.ranking and s.now.drafted)
    shown = "\n".join(plain(line) for line in PANES["acceptance"].drawn(context_of(snapshot)).lines)
    assert re.search(r"break-even A \d", shown)


def test_causal_probes_are_told_whatever_is_named() -> None:
    enough = Response("sample", 11, Interval(1.02, 0.95, 1.1))
    explanation = Explanation(responses=(enough, Response("decode", LEAST_PROBES - 2, None)))
    told = "\n".join(plain(line) for line in explained.probes(explanation, 118, UNICODE))
    assert "sampling: a step ends 1.02 ms [0.95, 1.10] later for each ms of delay, by 11 probes" in told
    assert "the forward: 4 of the 6 probes that it takes" in told
    assert explained.probes(Explanation(), 118, UNICODE) == []


def test_what_a_change_costs_the_first_token_is_told_in_a_narrow_terminal_too() -> None:
    ranked = [one for one in seen() if one.explanation is not None and one.explanation.ranking is not None]
    shown = text(ranked[-1], 78).splitlines()
    assert any(line.split() == ["tokens/s", "TTFT", "gap"] for line in shown)


def test_changes_come_in_the_order_of_what_they_gain() -> None:
    for snapshot in seen():
        if snapshot.explanation is None or snapshot.explanation.ranking is None:
            continue
        told = [plain(line) for line in explained.changes(snapshot.explanation, 132, UNICODE)]
        if "Requests arrive" in " ".join(told):
            continue  # What is gained is then how much sooner tokens come.
        rows = [found[1] for line in told if (found := re.match(r"[▸ ] \S.*? ([+-]?<?[\d.]+) % \[", line))]
        gains = [0.0 if "<" in text else float(text) for text in rows]
        assert gains
        assert gains == sorted(gains, reverse=True)


def test_the_interval_of_a_length_is_said_to_be_of_the_length() -> None:
    sentence = "Of the lengths scored, drafts of 1 by the draft model bring most, 0.98× of none."
    best = BreakEven(kind="draft length", value=Estimate(1.0, 1.0, 2.0), sentence=sentence)
    explanation = Explanation(ranking=Ranking((), (), (), (best,)))
    told = " ".join(plain(line) for line in explained.break_evens(explanation, 200, UNICODE))
    assert told.endswith("0.98× of none. Nine times in ten the best length lies within [1, 2].")


def test_a_share_of_the_time_of_requests_is_not_called_one_of_wall_time() -> None:
    snapshot = named("compute")
    waiting = msgspec.structs.replace(snapshot.verdict, name="queueing", share=0.514)
    shown = text(msgspec.structs.replace(snapshot, verdict=waiting))
    assert "51.4 % of the time of requests" in shown.splitlines()[0]


@pytest.mark.parametrize("room", [60, 78, 118, 132])
def test_the_name_of_a_change_is_whole_at_any_width(room: int) -> None:
    for snapshot in seen()[::20]:
        if snapshot.explanation is None or snapshot.explanation.ranking is None:
            continue
        ranking = snapshot.explanation.ranking
        if not ranking.recommended:
            continue
        label = "unified KV off and a cache limit of 1,024 tokens"
        only = msgspec.structs.replace(ranking.recommended[0], label=label)
        ranking = msgspec.structs.replace(ranking, singles=(only,), pairs=())
        explanation = msgspec.structs.replace(snapshot.explanation, ranking=ranking)
        lines = [plain(line) for line in explained.changes(explanation, room, UNICODE)]
        start = next(n for n, line in enumerate(lines) if line.startswith("▸ unified KV off"))
        column = lines[start - 1].index("tokens/s")
        name = " ".join(line[:column].strip() for line in lines[start : start + 3])
        assert name.startswith(f"▸ {label}"), name
        assert max(map(len, lines[start:])) <= room
        assert room < 132 or lines[start].startswith(f"▸ {label}")
        return
    pytest.fail("nothing is recommended in the story")
