"""What is named of findings, when nothing is, and how long a name stands."""

from __future__ import annotations

import msgspec
import pytest

from stackscope.analysis.diagnosis.base import without
from stackscope.analysis.diagnosis.evidence import CacheUse, Evidence, Load, Machine, Times
from stackscope.analysis.diagnosis.judge import judge
from stackscope.analysis.diagnosis.naming import choose
from tests.diagnosis_machine import MS
from tests.unit.naming_windows import named, window

# One window


def test_a_share_of_35_per_cent_is_enough_for_a_name() -> None:
    # 36 and 30 of 100; the lead is small.
    name, _ = named(window(weights=3.6, attention=3.0, compute=1.8, commit=1.6))
    assert name == "weight bandwidth"


def test_a_lead_of_ten_points_is_enough_for_a_name() -> None:
    name, _ = named(window(weights=3.2, attention=2.1, compute=1.6, head=1.6, commit=1.5))
    assert name == "weight bandwidth"


def test_neither_is_not_enough() -> None:
    name, sentence = named(window(weights=2.8, attention=2.2, compute=1.8, head=1.7, commit=1.5))
    assert name is None
    assert sentence == "nothing dominates: weight bandwidth 28.0 %, KV and attention 22.0 %"


def test_two_that_cannot_be_told_apart_are_named_together() -> None:
    evidence = window(weights=4.0, attention=3.9, compute=1.1, commit=1.0)
    choice = choose(evidence, judge(evidence))
    assert choice.name == "co-limited"
    assert [finding.cause for finding in choice.together] == ["weight bandwidth", "KV and attention"]
    assert choice.share == pytest.approx(0.79)
    assert choice.finding is not None
    assert "40.0 %" in choice.sentence
    assert "39.0 %" in choice.sentence


def test_more_than_a_tenth_unexplained_refuses() -> None:
    assert named(window(weights=8.8, other=1.2)) == (
        None,
        "12.0 % of the time is unexplained, too much to name anything",
    )
    assert named(window(weights=9.1, other=0.9))[0] == "weight bandwidth"


def test_what_forwards_take_beyond_the_prediction_is_unexplained() -> None:
    name, sentence = named(window(weights=8.0, excess=2.0))
    assert name is None
    assert sentence.startswith("20.0 % of the time is unexplained")


def test_what_the_model_may_be_wrong_by_is_its_own_error() -> None:
    evidence = msgspec.structs.replace(window(weights=6.0, attention=2.0, excess=2.0), model_error=0.15)
    shares = dict(judge(evidence).shares)
    # Of a fifth beyond 8 ms, no more than a tenth of those can be the model's error.
    assert shares["unexplained"] == pytest.approx(0.12)
    assert shares["weight bandwidth"] == pytest.approx(0.66)
    sure = dict(judge(msgspec.structs.replace(evidence, model_error=0.05)).shares)
    assert sure["unexplained"] == pytest.approx(0.16)
    assert sum(sure.values()) == pytest.approx(1.0)


def test_what_slows_the_machine_comes_before_the_models_error() -> None:
    hog = Machine(cpu_share=0.8, foreign_cores=0.4, cpu_pressure=0.4)
    evidence = msgspec.structs.replace(window(weights=8.0, excess=2.0), machine=hog)
    unsure = msgspec.structs.replace(evidence, model_error=0.1)
    assert dict(judge(unsure).shares) == pytest.approx(dict(judge(evidence).shares))
    assert named(unsure)[0] == "CPU starvation"


def test_idle_cells_keep_their_part_where_the_terms_are_scaled() -> None:
    evidence = msgspec.structs.replace(taxed(4_000, 0, 0.0), model_error=0.1)
    slower = msgspec.structs.replace(evidence, times=Times(forward=100 * MS * 10.9))
    assert dict(judge(slower).shares)["resident-prefix tax"] == pytest.approx(0.2)


def test_what_the_rest_of_the_loop_always_takes_is_its_own_work() -> None:
    evidence = window(weights=8.0, other=2.0)
    assert evidence.terms is not None
    usual = msgspec.structs.replace(evidence, terms=evidence.terms._replace(host=100 * MS * 1.5))
    shares = dict(judge(usual).shares)
    # 1.5 ms a step is what the model knows of the loop; half a millisecond more nobody explains.
    assert shares["host scheduling"] == pytest.approx(0.15)
    assert shares["unexplained"] == pytest.approx(0.05)


def test_a_cause_that_is_not_confirmed_is_not_named() -> None:
    evidence = msgspec.structs.replace(window(), unknown={"weights": "weights and fixed cost cannot be told apart"})
    name, sentence = named(evidence)
    assert name is None
    assert sentence == (
        "weight bandwidth is the likely one, with 100 % of the time, but not confirmed: "
        "weights and fixed cost cannot be told apart"
    )


def test_too_few_forwards_refuse() -> None:
    assert named(window(forwards=7)) == (None, "7 forwards so far, 8 are needed to name anything")
    assert named(window(forwards=8))[0] == "weight bandwidth"


def test_after_effects_of_a_change_refuse() -> None:
    evidence = msgspec.structs.replace(window(), settling=0.5)
    assert named(evidence) == (
        None,
        "the after-effects of a change are paid in 50 % of the last steps: something is named once they are in less "
        "than 25 %",
    )


def test_nothing_limits_an_engine_that_waits() -> None:
    assert named(window(weights=2.0, idle=8.0)) == (
        None, "nothing limits: the engine waits for requests for 80.0 % of the time",
    )  # fmt: skip


def test_what_requests_wait_for_comes_first() -> None:
    load = Load(queue=6.0, slots_busy=4.0, slots=4.0, waiting=1.0, wait_share=0.6, full=1.0)
    assert named(msgspec.structs.replace(window(), load=load))[0] == "queueing"
    short = msgspec.structs.replace(load, wait_share=0.2)
    assert named(msgspec.structs.replace(window(), load=short))[0] == "weight bandwidth"


def test_a_queue_is_counted_whatever_is_unexplained() -> None:
    load = Load(queue=6.0, slots_busy=4.0, slots=4.0, waiting=1.0, wait_share=0.6, full=1.0)
    unexplained = window(weights=8.0, excess=2.0)
    assert named(msgspec.structs.replace(unexplained, load=load))[0] == "queueing"
    assert named(unexplained)[0] is None


def test_a_queue_without_room_is_told_from_one_without_slots() -> None:
    load = Load(queue=6.0, slots_busy=2.0, slots=4.0, waiting=1.0, wait_share=0.6, full=0.0)
    judged = judge(msgspec.structs.replace(window(), load=load))
    queueing = next(one for one in judged.findings if one.cause == "queueing")
    assert "slots were free: the KV cache has no room for what waits" in queueing.evidence


def test_a_loss_comes_before_what_the_work_needs() -> None:
    evidence = msgspec.structs.replace(
        window(weights=8.0, excess=2.0), machine=Machine(cpu_share=0.8, foreign_cores=0.4, cpu_pressure=0.4)
    )
    assert named(evidence)[0] == "CPU starvation"


def test_a_small_loss_does_not() -> None:
    evidence = msgspec.structs.replace(
        window(weights=9.5, excess=0.5), machine=Machine(cpu_share=0.95, foreign_cores=0.4, cpu_pressure=0.4)
    )
    assert named(evidence)[0] == "weight bandwidth"


def test_a_small_loss_waits_for_a_large_need_to_be_confirmed() -> None:
    hog = Machine(cpu_share=0.85, foreign_cores=0.4, cpu_pressure=0.4)
    evidence = msgspec.structs.replace(window(weights=1.5, attention=7.0, excess=1.5), machine=hog)
    assert named(evidence)[0] == "CPU starvation"
    doubtful = msgspec.structs.replace(evidence, unknown={"attention": "they cannot be told apart"})
    assert named(doubtful) == (
        None,
        "KV and attention is the likely one, with 70.0 % of the time, but not confirmed: they cannot be told apart",
    )
    # What takes less, or hardly more, is no rival.
    smaller = msgspec.structs.replace(evidence, unknown={"weights": "they cannot be told apart"})
    assert named(smaller)[0] == "CPU starvation"


def test_a_large_loss_does_not_wait() -> None:
    hog = Machine(cpu_share=0.6, foreign_cores=1.0, cpu_pressure=0.4)
    evidence = msgspec.structs.replace(
        window(weights=0.5, attention=5.5, excess=4.0), machine=hog, unknown={"attention": "they cannot be told apart"}
    )
    assert named(evidence)[0] == "CPU starvation"


def test_a_need_is_not_named_beside_a_loss_of_more_that_nothing_confirms() -> None:
    asleep = Machine(cpu_share=0.4, cpu_share_calm=1.0)
    evidence = msgspec.structs.replace(window(weights=2.8, attention=0.9, compute=0.3, excess=6.0), machine=asleep)
    assert named(evidence) == (
        None,
        "CPU starvation is the likely one, with 60.0 % of the time, but not confirmed: "
        "nobody else is known to have wanted the cores",
    )


def test_a_slower_probe_alone_is_no_throttle() -> None:
    slower = Machine(compute=0.8, foreign_cores=0.0, cpu_share=1.0)
    felt = msgspec.structs.replace(window(weights=8.0, excess=2.0), machine=slower)
    assert named(felt)[0] == "throttle"
    # Sampling takes most of the time, and forwards are as fast as ever.
    unfelt = msgspec.structs.replace(window(weights=2.0, sample=8.0), machine=slower)
    unfelt = msgspec.structs.replace(unfelt, batching=msgspec.structs.replace(unfelt.batching, per_output_ns=8 * MS))
    assert named(unfelt)[0] == "sampling"
    throttle = next(one for one in judge(felt).findings if one.cause == "throttle")
    assert throttle.is_confirmed
    quarter = msgspec.structs.replace(window(weights=9.5, excess=0.5), machine=slower)
    throttle = next(one for one in judge(quarter).findings if one.cause == "throttle")
    assert throttle.against == "forwards take 1.05× of what an undisturbed machine needs: less than computing slowed"


def taxed(tokens: int, hits: int, spared: float | None) -> Evidence:
    """A fifth of the time goes to cells of idle prefixes, half of it to attention."""
    evidence = window(weights=3.0, attention=5.0, resident=2.0)
    cells = msgspec.structs.replace(evidence.batching, idle_cells=9_000.0, cells=12_000.0)
    return msgspec.structs.replace(
        evidence, batching=cells, idle_resident_ns=100 * MS * 2.0,
        cache=CacheUse(lookup_tokens=tokens, hit_tokens=hits, useful_hit_tokens=hits, spared=spared),
    )  # fmt: skip


def test_idle_prefixes_are_a_loss_only_where_the_cache_does_not_earn_them() -> None:
    assert named(taxed(4_000, 0, 0.0))[0] == "resident-prefix tax"
    assert named(taxed(4_000, 400, 0.1))[0] == "resident-prefix tax"
    name, sentence = named(taxed(4_000, 3_900, 5.0))
    assert name == "KV and attention"
    assert "50 % of the time" in sentence
    idle = next(one for one in judge(taxed(4_000, 3_900, 5.0)).findings if one.cause == "resident-prefix tax")
    assert "what the cache finds spares more" in idle.claim


def test_what_idle_prefixes_spare_is_told_only_where_they_spare_something() -> None:
    def told(evidence: Evidence) -> tuple[str, str]:
        idle = next(one for one in judge(evidence).findings if one.cause == "resident-prefix tax")
        return idle.counterfactual, idle.evidence[-1]

    assert told(taxed(4_000, 0, 0.0)) == (
        "without it a step would take 8 ms instead of 10 ms", "0 of 4,000 prompt tokens were found",
    )  # fmt: skip
    bound, found = told(taxed(4_000, 400, 0.1))
    assert bound.endswith("; useful hits and the time to the first token would pay for it")
    assert found == "400 of 4,000 prompt tokens were found; to compute them would have taken 10.0 % of the time"
    assert told(taxed(4_000, 3_900, 5.0))[1].endswith("would have taken 5.00× the time")
    assert told(taxed(4_000, 3_900, None))[1] == "3,900 of 4,000 prompt tokens were found"


def test_a_bound_that_is_written_like_what_is_now_does_not_name_both() -> None:
    evidence = msgspec.structs.replace(window(weights=10.13), forwards=100)
    assert without(evidence, 100 * MS * 0.03) == "without it a step would hardly take less than 10.1 ms"
    assert without(evidence, 100 * MS * 0.5) == "without it a step would take 9.63 ms instead of 10.1 ms"


def test_idle_prefixes_are_not_judged_before_their_gain_is_known() -> None:
    idle = next(one for one in judge(taxed(4_000, 3_900, None)).findings if one.cause == "resident-prefix tax")
    assert not idle.is_confirmed


def test_without_a_time_model_the_forward_has_no_name_but_what_is_measured_has() -> None:
    evidence = msgspec.structs.replace(window(), terms=None)
    name, sentence = named(evidence)
    assert name is None
    assert "which no time model divides yet" in sentence
    slow = msgspec.structs.replace(window(commit=30.0), terms=None)
    assert named(slow)[0] == "host scheduling"
