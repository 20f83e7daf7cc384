"""The verdict in words: what limits and on what grounds, what would help and what is paid for it."""

from __future__ import annotations

import msgspec
import pytest

from stackscope.analysis.diagnosis.naming import Naming
from stackscope.analysis.doubts import STARVED
from stackscope.analysis.explainer import Explanation
from stackscope.analysis.live.explained import verdict as verdict_of
from stackscope.analysis.live.snapshot import Ratio, Suggestion, Verdict
from stackscope.analysis.whatif.ranking import Ranking
from stackscope.records import Finding
from tests.tui.pane_words import words
from tests.tui.sessions import SESSIONS, calibrated, running


def test_the_verdict_says_on_what_grounds() -> None:
    assert "from phase shares alone" in words("verdict", running(), 98, 3)
    assert "not predicted from phase shares" in words("verdict", running(), 118, 3)
    text = words("verdict", calibrated(), 118, 3)
    assert "WEIGHT BANDWIDTH 68.0 % reading 165 MB per step at 14.1 of 17.2 GB/s measured" in text
    assert "not compute: 70 % of the measured rate · KV: 4 % of the bytes · host: 6 %" in text
    assert "next weights Q4_K_M +44 % [37, 52] draft length 3 +6.0 % [2.0, 9.0]" in text
    assert "phase" not in text


def test_a_change_that_first_tokens_pay_for_says_so() -> None:
    price = Ratio(value=13.58, low=11.0, high=16.0)
    fewer = Suggestion(
        changes={"slots": 4}, predicted=Ratio(value=1.1, low=1.03, high=1.15), label="4 slots", price=price
    )
    verdict = msgspec.structs.replace(calibrated().verdict, next=(fewer,))
    text = words("verdict", msgspec.structs.replace(running(), verdict=verdict), 118, 3)
    assert "next 4 slots +10 % [3, 15] but TTFT +1,258 %" in text


def test_a_gain_that_is_not_of_tokens_says_what_it_is_of() -> None:
    """With open-loop traffic tokens per second stay; what a change moves is the gap between steps."""
    sooner = Suggestion(
        changes={"unified_kv": False},
        predicted=Ratio(value=0.988, low=0.98, high=0.998),
        figure="step_gap",
        label="unified KV off",
    )
    verdict = msgspec.structs.replace(calibrated().verdict, next=(sooner,))
    text = words("verdict", msgspec.structs.replace(running(), verdict=verdict), 118, 3)
    assert "next unified KV off step gap -1.2 % [-2.0, -0.2]" in text


def test_without_a_name_the_verdict_says_why() -> None:
    silent = msgspec.structs.replace(running(), verdict=Verdict(sentence="11 % of the time is unexplained"))
    assert words("verdict", silent) == "11 % of the time is unexplained."


def test_a_dead_engine_says_how_it_ended_instead_of_a_verdict() -> None:
    text = words("verdict", SESSIONS["dead"](), 78, 3)
    assert text == "The engine died. Its log ends with: aborted"
    known = words("verdict", SESSIONS["dead"](), 118, 3, end="The engine process was killed by SIGKILL.")
    assert known == "The engine process was killed by SIGKILL. Its log ends with: aborted"


def test_the_share_beside_the_name_is_not_told_again_at_the_cost_of_the_reason() -> None:
    reason = "computing 32.5 rows per forward takes 130 ms of a step of 187 ms more than one row would"
    verdict = Verdict(name="compute", share=0.693, sentence=f"{reason}, 69.3 % of the time", basis="explainer")
    snapshot = msgspec.structs.replace(running(), verdict=verdict)
    assert f"COMPUTE 69.3 % {reason}" in words("verdict", snapshot, 116, 3)
    assert "of the time" not in words("verdict", snapshot, 196, 3)


def test_a_long_reason_is_cut_and_not_left_out() -> None:
    reason = "speculation loses 52.0 % of the time: 1.14 tokens per forward, and 2.36 are needed to break even with it"
    verdict = Verdict(name="low acceptance", share=0.52, sentence=reason, basis="explainer")
    text = words("verdict", msgspec.structs.replace(running(), verdict=verdict), 78, 2)
    assert "LOW ACCEPTANCE 52.0 % speculation loses 52.0 % of the …" in text


def test_a_name_that_is_not_a_second_old_was_just_named() -> None:
    at = running()
    verdict = msgspec.structs.replace(at.verdict, since_ns=at.at_ns)
    assert "just named" in words("verdict", msgspec.structs.replace(at, verdict=verdict), 118, 3)


def test_a_long_reason_goes_on_below_where_there_is_room() -> None:
    """In 80 columns and 24 rows the pane has three lines: what limits is not cut, and what to do stands there too."""
    reason = "computing 32.5 rows per forward takes 130 ms of a step of 187 ms more than one row would"
    gain = Suggestion(changes={"slots": 4}, predicted=Ratio(value=1.1, low=1.03, high=1.15), label="4 slots")
    verdict = Verdict(
        name="compute", share=0.693, sentence=reason, basis="explainer", rejected=("host 3 %",), next=(gain,)
    )
    for room in (58, 62, 78, 98):
        text = words("verdict", msgspec.structs.replace(running(), verdict=verdict), room, 3)
        assert f"COMPUTE 69.3 % {reason} next 4 slots" in text
        assert "host 3 %" not in text
    assert "host 3 %" in words("verdict", msgspec.structs.replace(running(), verdict=verdict), 118, 3)


def test_what_leads_by_now_is_said_before_what_it_is_not() -> None:
    verdict = Verdict(
        name="weight bandwidth", share=0.242, sentence="reading the weights takes 2.4 ms", basis="explainer",
        ahead=("CPU starvation 30.2 %", "compute 27.9 %"), rejected=("LM head 3 %",),
    )  # fmt: skip
    snapshot = msgspec.structs.replace(running(), verdict=verdict)
    assert "now ahead CPU starvation 30.2 % · compute 27.9 % not LM head 3 %" in words("verdict", snapshot, 118, 3)


def test_what_to_do_is_kept_where_the_reason_takes_two_lines() -> None:
    """What was rejected goes first: also where nothing is put forward, why not is what the last line says."""
    reason = "of each step 11.2 ms are for drafts and for verifying them: speculation loses 43.4 % of the time by it"
    verdict = Verdict(name="draft overhead", share=0.434, sentence=reason, basis="explainer", rejected=("host 3 %",))
    why = "Something has just changed: predictions start anew in 4 seconds."
    explanation = Explanation(why_no_ranking=why)
    text = words("verdict", msgspec.structs.replace(running(), verdict=verdict, explanation=explanation), 98, 3)
    assert "next - something has just changed: predictions start anew in 4 seconds." in text
    assert "host 3 %" not in text


def test_a_change_that_is_wider_than_its_line_is_cut_and_not_left_out() -> None:
    label = "weights Q4_K_M and a draft model of Q4_K_M with a draft length of 5"
    long = Suggestion(changes={"slots": 4}, predicted=Ratio(value=1.1, low=1.03, high=1.15), label=label)
    verdict = msgspec.structs.replace(calibrated().verdict, next=(long,))
    assert "next weights Q4_K_M and a" in words("verdict", msgspec.structs.replace(running(), verdict=verdict), 58, 3)


def test_a_reason_for_no_name_that_is_cut_says_so() -> None:
    sentence = "weight bandwidth is the likely one, with 61.2 % of the time, but not confirmed: no step is without it"
    silent = msgspec.structs.replace(running(), verdict=Verdict(sentence=sentence))
    assert words("verdict", silent, 56, 1).endswith("…")
    assert words("verdict", silent, 56, 2).endswith("without it.")


def test_what_takes_more_than_what_is_named_is_not_denied() -> None:
    found = (
        Finding(cause="weight bandwidth", share=0.577, claim="reading weights", is_confirmed=True),
        Finding(cause="compute", share=0.4, claim="computing", against="no probe speaks for it"),
        Finding(cause="sampling", share=0.03, claim="sampling takes 3 %", is_confirmed=True),
    )
    naming = Naming(name="CPU starvation", share=0.357, sentence="threads wait for their cores", rejected=found)
    snapshot = msgspec.structs.replace(running(), verdict=verdict_of(Explanation(naming=naming)))
    text = words("verdict", snapshot, 118, 4)
    assert "needs beside it weight bandwidth 57.7 % not confirmed compute 40.0 % not sampling 3.00 %" in text
    waiting = msgspec.structs.replace(naming, name="queueing")
    text = words("verdict", msgspec.structs.replace(snapshot, verdict=verdict_of(Explanation(naming=waiting))), 118, 4)
    assert "beside it weight bandwidth 57.7 % of wall time · sampling 3.00 % not confirmed compute 40.0 %" in text
    assert "needs" not in text


def test_a_share_of_another_whole_says_of_what_it_is() -> None:
    waits = Finding(cause="queueing", share=0.3, claim="requests wait for 30 % of their time", is_confirmed=True)
    prompts = Finding(cause="prefill interference", share=0.194, claim="prompts take 19.4 %", is_confirmed=True)
    weights = Finding(cause="weight bandwidth", share=0.1, claim="weights take 10 %", is_confirmed=True)

    def shown(naming: Naming) -> str:
        return words(
            "verdict", msgspec.structs.replace(running(), verdict=verdict_of(Explanation(naming=naming))), 118, 4
        )

    starved = Naming(name="CPU starvation", share=0.22, sentence="waiting for a core", rejected=(waits, prompts))
    # More than the name has, of another whole: it does not stand beside it.
    assert "not queueing 30.0 % of requests' time · prefill interference 19.4 %" in shown(starved)
    waiting = Naming(name="queueing", share=0.99, sentence="requests wait", rejected=(prompts, weights))
    assert "beside it prefill interference 19.4 % of wall time · weight bandwidth 10.0 %" in shown(waiting)


STRAYING = "single steps stray by 80.1 % from what is known of them"


@pytest.mark.parametrize(
    ("doubt", "room", "told"),
    [
        (STRAYING, 118, f"next nothing is recommended, for {STRAYING}"),
        (STRAYING, 78, f"next nothing, for {STRAYING}"),
        (STARVED, 118, f"next nothing, for {STARVED}"),
        (STARVED, 78, "next nothing is recommended, for the engine's threads do not get their"),
    ],
)
def test_that_nothing_is_recommended_is_said_with_the_reason(doubt: str, room: int, told: str) -> None:
    named = Verdict(name="sampling", share=0.7, sentence="sampling takes 1 ms", basis="explainer")
    explanation = Explanation(ranking=Ranking((), (), (), (), doubt))
    snapshot = msgspec.structs.replace(running(), verdict=named, explanation=explanation)
    assert told in words("verdict", snapshot, room, 3)
