"""What `--fail-if` understands, and what it says of the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from stackscope.analysis.comparing.figures import BY_NAME
from stackscope.analysis.comparing.judging import judge
from stackscope.analysis.comparing.thresholds import Condition, conditions
from stackscope.errors import UsageError
from stackscope.experiments.comparing import digest
from tests.unit.compare_sessions import Run


@pytest.mark.parametrize(
    ("text", "figure", "sign", "is_change", "limit"),
    [
        ("tpot_p95 > +5%", "tpot_p95", ">", True, 1.05),
        ("tpot_p95>+5%", "tpot_p95", ">", True, 1.05),
        (" tokens_per_s < -3.5 % ", "output_tokens_per_s", "<", True, 0.965),
        ("tokens_per_s < 100", "output_tokens_per_s", "<", False, 100.0),
        ("ttft_p99 > 200ms", "ttft_p99", ">", False, 200e6),
        ("ttft_p99 > 0.2 s", "ttft_p99", ">", False, 200e6),
        ("step_gap_p50 > 800us", "step_gap_p50", ">", False, 800e3),
        ("acceptance < 60%", "acceptance_rate", "<", False, 0.6),
        ("acceptance < 0.6", "acceptance_rate", "<", False, 0.6),
        ("a < 2", "tokens_per_forward", "<", False, 2.0),
        ("memory > 2GB", "memory", ">", False, 2e9),
        ("target_bytes_per_s < 10GB/s", "target_bytes_per_s", "<", False, 1e10),
        ("energy_per_token > +10%", "energy_per_token", ">", True, 1.1),
    ],
)
def test_what_is_understood(text: str, figure: str, sign: str, is_change: bool, limit: float) -> None:
    (found,) = conditions(text)
    assert (found.figure, found.sign, found.is_change) == (figure, sign, is_change)
    assert found.limit == pytest.approx(limit)


def test_several_may_stand_in_one() -> None:
    assert [one.text for one in conditions("tpot_p95 > +5%, ttft_p50 > 200ms")] == [
        "tpot_p95 > +5%", "ttft_p50 > 200ms",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message", "remedy"),
    [
        ("", "is no condition", "tpot_p95 > +5%"),
        ("tpot_p95 +5%", "is no condition", "a figure, < or >, and a limit"),
        ("tpot_p95 >= +5%", "is no condition", "< or >"),
        ("tpot_p95 > +5% or", "is no condition", "< or >"),
        ("tpot_p95 > +5%,", "is no condition", "< or >"),
        ("tpot > +5%", "distribution without a percentile", "tpot_p50, tpot_p90, tpot_p95, tpot_p99"),
        ("tpot_p75 > +5%", "distribution without a percentile", "tpot_p95"),
        ("speed > +5%", "is no figure", "output_tokens_per_s"),
        ("tpot_p95 > +5ms", "a change is given in per cent", "+5%"),
        ("tpot_p95 > +5", "a change is given in per cent", "+5%"),
        ("tpot_p95 > 5%", "is not given in %", "+5%"),
        ("tpot_p95 > 5", "is not given in plain numbers", "ns, us"),
        ("tokens_per_s < 5ms", "is not given in ms", "5 alone (tokens/s is meant)"),
        ("tokens_per_s < -100%", "falls by more than all", "-100%"),
    ],
)
def test_what_is_refused(text: str, message: str, remedy: str) -> None:
    with pytest.raises(UsageError) as refused:
        conditions(text)
    assert message in refused.value.message
    assert remedy in (refused.value.remedy or "")
    assert refused.value.exit_code == 2


def test_every_figure_can_be_limited() -> None:
    for name in BY_NAME:
        assert conditions(f"{name} > +5%")[0].figure == name


SLOWER = Run(noise=2, base_ns=6e6)
BASE = Run()


def judged(text: str, run: Run, base: Run = BASE) -> tuple[str, str]:
    (condition,) = conditions(text)
    found = judge(condition, base.digest(), run.digest(), ("A", "B"), is_same_work=True)
    return found.outcome, found.sentence


def test_a_limit_is_broken_only_beyond_the_interval() -> None:
    """B takes 18 % longer over a forward of 5.5 ms: more than 5 % is certain, more than 17.5 % is not."""
    outcome, sentence = judged("tpot_p50 > +5%", SLOWER)
    assert outcome == "broken"
    assert sentence.startswith("tpot_p50 > +5% holds for B against A: TPOT p50 +")
    assert judged("tpot_p50 > +40%", SLOWER)[0] == "kept"
    found = judge(conditions("tpot_p50 > +5%")[0], BASE.digest(), SLOWER.digest(), ("A", "B"), is_same_work=True)
    assert found.interval is not None
    inside = (found.interval.low + found.interval.value) / 2
    limit = Condition(text="x", figure="tpot_p50", sign=">", is_change=True, limit=inside)
    assert judge(limit, BASE.digest(), SLOWER.digest(), ("A", "B"), is_same_work=True).outcome == "kept"


def test_a_limit_the_other_way() -> None:
    assert judged("tokens_per_s < -5%", SLOWER)[0] == "broken"
    assert judged("tokens_per_s < -5%", BASE, SLOWER)[0] == "kept"


def test_levels_have_intervals_of_their_own() -> None:
    outcome, sentence = judged("tpot_p50 > 1ms", SLOWER)
    assert outcome == "broken"
    assert "[" in sentence
    assert judged("tpot_p50 > 1s", SLOWER)[0] == "kept"
    assert judged("tokens_per_s < 1", SLOWER)[0] == "kept"
    assert judged("tokens_per_s < 100000", SLOWER)[0] == "broken"
    assert judged("memory > 1MB", SLOWER)[0] == "broken"
    assert judged("memory > 1GB", SLOWER)[0] == "kept"


def test_what_has_no_interval_is_not_judged() -> None:
    outcome, sentence = judged("ttft_p99 > +5%", SLOWER)
    assert outcome == "not judged"
    assert sentence.startswith("ttft_p99 > +5% cannot be judged for B: TTFT p99 has no interval (too few: 60 worth ")
    assert judged("ttft_p99 > 1ms", SLOWER)[0] == "not judged"
    assert judged("acceptance > 50%", SLOWER) == (
        "not judged", "acceptance_rate > 50% cannot be judged for B: acceptance is not known.",
    )  # fmt: skip


def test_what_was_measured_once_stands_for_itself() -> None:
    assert judged("memory > +5%", SLOWER)[0] == "kept"


def test_shares_and_rates_stay_within_what_is_possible() -> None:
    """Hits come in few large portions: their intervals would end above all of the prompt tokens, and below none."""
    recordings = Path(__file__).parents[2] / "profiles"
    ends = []
    for name in ("code.jsonl.zst", "causes/weight-bandwidth.jsonl.zst"):
        found = digest(recordings / name)
        for text in ("useful_hit_rate < 80%", "occupancy < 99%", "cpu_share < 50%", "tokens_per_s > 1"):
            (condition,) = conditions(text)
            interval = judge(condition, found, found, ("A", "B"), is_same_work=True).interval
            assert interval is not None
            assert 0.0 <= interval.low <= interval.value <= interval.high
            assert interval.high <= 1.0 or condition.figure == "output_tokens_per_s"
            ends += [interval.low, interval.high]
    assert 0.0 in ends
    assert 1.0 in ends
