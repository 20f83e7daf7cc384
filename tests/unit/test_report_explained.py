"""What a run's summary and its JSON say of why it was as fast as it was."""

from __future__ import annotations

import json
from functools import cache

import pytest

from stackscope.analysis.diagnosis.naming import Naming
from stackscope.analysis.explainer import Explainer, Explanation
from stackscope.analysis.live.explained import LEAST_PRICE, suggested
from stackscope.analysis.stood import Stood
from stackscope.analysis.whatif.candidates import Candidate
from stackscope.analysis.whatif.ranking import Ranked, Ranking
from stackscope.records import Estimate, Prediction
from stackscope.report import explained
from stackscope.tui import explained as screen
from stackscope.tui.lines import plain
from stackscope.tui.look import UNICODE
from tests.diagnosis_machine import Costs, Disturbance, Load, Machine, S, Watch
from tests.explained_story import SECOND, explainer, seen, story


@cache
def at_the_end() -> Explanation:
    one = explainer()
    last_ns = 0
    for record in story():
        one.write(record)
        end_ns = getattr(record, "end_ns", 0)
        if end_ns > last_ns + SECOND:
            last_ns = end_ns
            one.explanation(last_ns)
    return one.final(last_ns)


def text(explanation: Explanation, width: int = 100) -> str:
    return "\n".join(line.plain for line in explained.lines(explanation, width))


def test_what_stood_longest_is_said_first_with_its_claim_and_bound() -> None:
    explanation = at_the_end()
    shares = [one.share for one in explanation.stood]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) <= 1.0 + 1e-9
    shown = text(explanation)
    first = explanation.stood[0].naming
    assert first.name is not None
    assert f"limited by    {first.name}" in shown
    assert first.sentence[:30] in shown
    assert "of the run" in shown
    assert "without it a step would take" in shown


def test_what_would_help_comes_with_interval_and_reason() -> None:
    snapshot = next(one for one in seen() if one.verdict.next)
    assert snapshot.explanation is not None
    assert snapshot.explanation.ranking is not None
    shown = text(snapshot.explanation)
    best = snapshot.explanation.ranking.recommended[0]
    assert f"would help    {best.label} +" in shown
    assert "%" in shown
    assert "[" in shown


@pytest.mark.parametrize(
    ("ttft", "told"),
    [(Estimate(1.5, 1.2, 1.9), "8 slots +10 % [3, 15] · but TTFT +50 % · Because"), (None, None),
     (Estimate(1.3, LEAST_PRICE - 0.01, 1.6), None)],
)  # fmt: skip
def test_what_a_change_costs_the_first_token_is_said_as_the_verdict_says_it(
    ttft: Estimate | None, told: str | None
) -> None:
    gain = Estimate(1.1, 1.03, 1.15)
    prediction = Prediction(at_ns=0, changes={"slots": (4, 8)}, tokens=gain, ttft=ttft, reason="Because.")
    ranked = Ranked(Candidate("slots", {"slots": 8}), prediction, gain, "8 slots")
    shown = text(Explanation(ranking=Ranking((ranked,), ())))
    assert "would help    8 slots +10 % [3, 15]" in shown
    assert ("but TTFT" in shown) is (told is not None)
    if told is not None:
        assert told in shown


def test_where_arrivals_decide_the_tokens_the_gap_is_called_so() -> None:
    """Ranked by how much sooner tokens come, and told as what the gap does: tokens per second stay as they are."""
    prediction = Prediction(
        at_ns=0,
        changes={"unified_kv": (True, False)},
        tokens=Estimate(1.0, 1.0, 1.0),
        step_gap=Estimate(0.988, 0.98, 0.998),
        reason="Tokens/s stay.",
    )
    gain = Estimate(1 / 0.988, 1 / 0.998, 1 / 0.98)
    ranked = Ranked(Candidate("kv", {"unified_kv": False}), prediction, gain, "unified KV off")
    assert ranked.is_recommended
    shown = text(Explanation(ranking=Ranking((ranked,), ())))
    assert "would help    unified KV off step gap -1.2 % [-2.0, -0.2] · Tokens/s stay" in shown
    assert suggested(ranked).figure == "step_gap"


def test_before_any_step_nothing_is_said() -> None:
    assert explained.lines(Explanation(), 80) == []


@pytest.mark.parametrize("width", [60, 80, 120])
def test_lines_keep_to_the_width(width: int) -> None:
    assert max(map(len, text(at_the_end(), width).splitlines())) <= width


def test_the_document_is_plain_json_with_everything() -> None:
    document = json.loads(json.dumps(explained.document(at_the_end()), allow_nan=False))
    assert sum(document["shares"].values()) == pytest.approx(1.0)
    assert document["stood"][0]["share"] > 0
    assert {one["change"] for one in document["changes"]} >= {"prefix cache off", "1 thread"}
    known = [one for one in document["changes"] if one["tokens"] is not None]
    assert all(one["tokens"]["low"] <= one["tokens"]["value"] <= one["tokens"]["high"] for one in known)
    assert all(one["reason"] for one in document["changes"])
    assert document["rejected"]
    assert document["break_evens"]
    empty = explained.document(Explanation())
    assert empty["not_predicted"] == "No step has run yet."


def test_time_that_is_counted_under_another_cause_is_null_in_json_and_told_on_the_screen() -> None:
    watch = Watch(Machine(Load(drafted=4, acceptance=0.1, output=200), Costs(row=3_000_000)))
    explanation = Explanation(naming=watch.run(14))
    document = json.loads(json.dumps(explained.document(explanation)))
    rejected = {one["cause"]: one for one in document["rejected"]}
    drafts = rejected["draft overhead"]
    assert drafts["share"] is None
    assert drafts["against"].startswith("what it takes is counted under low acceptance (")
    shown = [plain(line) for line in screen.rejected(explanation, 200, UNICODE)]
    assert any(f"draft overhead: {drafts['against']}" in line for line in shown)


def test_a_stall_is_told_at_the_end_however_long_ago_it_was() -> None:
    machine, one = Machine(Load(output=400)), Explainer()
    one.write(machine.header)

    def run(seconds: float, stopped_ns: int = 0) -> None:
        machine.disturbance = Disturbance(stopped_ns=stopped_ns)
        for record in machine.run(seconds):
            one.write(record)
        one.explanation(machine.now_ns)

    for stopped_ns in (0, 12 * S, 0):
        run(0.001 if stopped_ns else 3, stopped_ns)
        run(1)
    for _ in range(20):
        run(1)
    explanation = one.final(machine.now_ns)
    assert explanation.naming.notes == ()  # It is out of sight of what is named now.
    assert [round(stall.duration_ns / S) for stall in explanation.stalls] == [12]
    assert "stalled       a step stalled: it took 12.0 s where" in text(explanation)
    assert explained.document(explanation)["stalls"][0]["duration_ns"] > 11 * S  # type: ignore[index]


def test_where_nothing_is_recommended_it_is_said_why() -> None:
    gain = Estimate(1.1, 1.03, 1.15)
    prediction = Prediction(at_ns=0, changes={"slots": (4, 8)}, tokens=gain, reason="Because.")
    candidate = Candidate("slots", {"slots": 8})
    naming = Naming(shares=(("idle", 1.0),), sentence="nothing limits")

    def told(ranking: Ranking) -> str:
        return " ".join(text(Explanation(ranking=ranking, naming=naming)).split())

    doubtful = Ranking((Ranked(candidate, prediction, gain, "8 slots", True),), (), doubt="steps stray")
    assert "would help not said: steps stray" in told(doubtful)
    open_ = Ranking((Ranked(candidate, prediction, None, "8 slots"),), ())
    assert "would help nothing could be predicted" in told(open_)
    small = Ranking((Ranked(candidate, prediction, Estimate(1.1, 0.9, 1.2), "8 slots"),), ())
    assert "would help nothing that was predicted gains beyond doubt" in told(small)


def test_the_shares_of_names_are_told_with_the_time_without_one() -> None:
    naming = Naming(name="compute", sentence="computing takes 60 %", shares=(("compute", 0.6),))
    other = Naming(name="sampling", shares=naming.shares)
    stood = (Stood(naming=naming, ns=5 * S, share=0.5), Stood(naming=other, ns=2 * S, share=0.2))
    assert " ".join(text(Explanation(stood=stood), 200).split()) == (
        "limited by compute · computing takes 60 % compute was named for 50 % of the run · sampling for 20.0 % · "
        "nothing for 30.0 % · its figures: the last seconds in which it was named"
    )
