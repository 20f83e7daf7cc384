"""The arithmetic of the benchmarks: intervals, rounds, what counts as quiet, and blocks that went as planned."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from benchmarks import common, engine_speed, host_time, recorder_cost
from benchmarks.common import Interval, Round
from benchmarks.lockstep import Ask, Lockstep, Setup, decode_steps, digest, duration, jobs, prompts
from stackscope.hardware.quiet import QUIET_SHARE
from stackscope.records import Footer, Phases, SlotWork, StepRecord
from stackscope.toggles import EngineConfig
from stackscope.workload.spec import Length, WorkloadSpec
from tests.unit.record_builders import make_header

if TYPE_CHECKING:
    from stackscope.records import WorkPhase
    from stackscope.session.writer import SessionWriter
    from stackscope.workload.jobs import Tokenizer


def a_round(spent: dict[str, int], generation: int = 0, foreign: float | None = 0.0) -> Round:
    return Round(generation, spent, foreign)


def test_the_mean_has_students_interval() -> None:
    # Mean 3, deviations −2 −1 0 1 2: s² = 10 / 4, s / √5 = 0.7071; t(4, 97.5 %) = 2.7764, so ± 1.9632.
    found = common.mean_interval([1, 2, 3, 4, 5])
    assert found.center == 3
    assert found.low == pytest.approx(1.0368, abs=1e-4)
    assert found.high == pytest.approx(4.9632, abs=1e-4)
    assert found.n == 5


def test_one_value_has_no_interval_and_none_has_no_mean() -> None:
    assert common.mean_interval([7]) == (7, None, None, 1)
    assert str(common.mean_interval([7])) == "7.000 [-]"
    with pytest.raises(ValueError, match="nothing"):
        common.mean_interval([])


def test_ratios_are_averaged_by_their_logarithms() -> None:
    # √(1/2 · 2) = 1, where the plain mean would say 1.25. The logs are ∓0.6931: s / √2 = 0.6931, t(1) = 12.706.
    found = common.ratio_interval([0.5, 2.0])
    assert found.center == pytest.approx(1)
    assert found.low == pytest.approx(math.exp(-12.706 * 0.6931), rel=1e-3)
    assert found.high == pytest.approx(math.exp(12.706 * 0.6931), rel=1e-3)
    assert common.ratio_interval([0.9]).low is None


@pytest.mark.parametrize(
    ("low", "high", "judged"),
    [(0.91, 0.95, "met"), (0.80, 0.89, "missed"), (0.85, 0.95, "open"), (None, None, "open"), (0.90, 0.92, "met")],
)
def test_a_goal_is_met_or_missed_by_the_whole_interval(low: float | None, high: float | None, judged: str) -> None:
    assert common.verdict(Interval(0.9, low, high, 3), at_least=0.90) == judged


def test_a_goal_can_be_a_most() -> None:
    assert common.verdict(Interval(95, 93, 97, 3), at_most=102) == "met"
    assert common.verdict(Interval(95, 93, 103, 3), at_most=102) == "open"
    assert common.verdict(Interval(105, 103, 107, 3), at_most=102) == "missed"


def test_a_palindrome_cancels_a_linear_drift() -> None:
    names = ["a", "b", "c"]
    order = common.palindrome(names, random.Random(3))
    assert sorted(order) == ["a", "a", "b", "b", "c", "c"]
    assert order == order[::-1]
    # Positions 0 to 5: each name's two add up to 5, so each meets the same drift.
    assert {sum(i for i, n in enumerate(order) if n == name) for name in names} == {5}
    assert len({tuple(common.palindrome(names, random.Random(seed))) for seed in range(40)}) == 6


def test_a_ratio_over_generations_counts_each_once() -> None:
    # Generation 0: 100/125 = 0.8 twice; generation 1: 100/100 = 1. Two values, whose geometric mean is √0.8.
    slow, fast = {"bare": 100, "engine": 125}, {"bare": 100, "engine": 100}
    rounds = [a_round(slow), a_round(slow), a_round(fast, generation=1)]
    found = common.speed_ratio(rounds, "engine", "bare")
    assert found.center == pytest.approx(math.sqrt(0.8))
    assert found.n == 2


def test_a_ratio_within_one_generation_counts_rounds() -> None:
    rounds = [a_round({"bare": 100, "engine": 125}), a_round({"bare": 100, "engine": 80})]
    assert common.speed_ratio(rounds, "engine", "bare").n == 2
    assert common.speed_ratio(rounds, "engine", "bare").center == pytest.approx(1)  # 0.8 · 1.25 = 1


def test_quiet_rounds_judge_alone_when_there_are_two() -> None:
    quiet, loud, unknown = (a_round({}, foreign=share) for share in (0.01, 0.50, None))
    assert common.quiet_rounds([quiet, loud, quiet]) == ([quiet, quiet], True)
    assert common.quiet_rounds([quiet, loud]) == ([quiet, loud], False)
    assert common.quiet_rounds([unknown, unknown]) == ([unknown, unknown], False)
    assert not a_round({}, foreign=QUIET_SHARE).is_quiet


def test_tables_are_aligned() -> None:
    shown = common.table([["name", "n"], ["a", "1"], ["longer", "1,000"]])
    assert shown.splitlines() == ["name        n", "------  -----", "a           1", "longer  1,000"]


# Blocks


def step(n: int, start_ns: int, batch: int, phase: WorkPhase = "decode", *, decode_ns: int = 80) -> StepRecord:
    """A step of 100 ns."""
    work = [SlotWork(request=i, slot=i, phase=phase, new=1, cached=9, emitted=1, outputs=1) for i in range(batch)]
    return StepRecord(n=n, start_ns=start_ns, phases=Phases(decode=decode_ns, other=100 - decode_ns), work=tuple(work))


def test_a_block_lasts_from_the_end_of_its_prefill() -> None:
    steps = [step(0, 0, 2, "prefill"), step(1, 100, 2), step(2, 200, 2), step(3, 300, 2)]
    decoding = decode_steps(steps, Ask(batch=2, steps=3))
    assert [s.n for s in decoding] == [1, 2, 3]
    assert duration(decoding) == 300


def test_a_block_that_did_not_go_as_planned_is_refused() -> None:
    apart = [step(0, 0, 2, "prefill"), step(1, 100, 1), step(2, 200, 2)]
    with pytest.raises(ValueError, match="1 of 2 steps"):
        decode_steps(apart, Ask(batch=2, steps=2))
    with pytest.raises(ValueError, match="waited"):
        duration([step(1, 100, 1), step(2, 205, 1)])


def test_prompts_are_the_same_wherever_they_are_made() -> None:
    assert prompts(3, 32, 4096, 0) == prompts(3, 32, 4096, 0)
    assert prompts(3, 32, 4096, 0) != prompts(3, 32, 4096, 1)
    tokens = [token for prompt in prompts(16, 32, 4096, 5) for token in prompt]
    assert len(tokens) == 512
    assert min(tokens) >= 512
    assert max(tokens) < 2048


@pytest.mark.parametrize("is_repeating", [True, False])
def test_blocks_repeat_their_prompts_or_never_do(*, is_repeating: bool) -> None:
    setup = Setup(config=EngineConfig(), prompt_tokens=8, is_repeating=is_repeating)
    first = jobs(Ask(2, 5), setup, 4096, 0, 0)
    later = jobs(Ask(2, 5), setup, 4096, 3, 6)
    assert [job.id for job in first + later] == [0, 1, 6, 7]
    assert {job.max_tokens for job in first} == {6}  # the prefill brings the first
    assert ([job.tokens for job in first] == [job.tokens for job in later]) is is_repeating


class FakeTokenizer:
    n_vocab = 4096


def test_the_traffic_offers_a_block_when_told_to_and_says_what_came_out() -> None:
    spec = WorkloadSpec(name="copy", prompt_tokens=Length.fixed(8))
    traffic = Lockstep(spec, cast("Tokenizer", FakeTokenizer()), context_tokens=100)
    assert list(traffic.due(0, 0)) == []
    traffic.set_rate(3.0)
    traffic.set_concurrency(2)
    offered = traffic.due(0, 0)
    assert [job.id for job in offered] == [0, 1]
    assert list(traffic.due(0, 2)) == []
    traffic.finished(1, (5, 6, 7, 8))
    assert not traffic.notes
    traffic.finished(0, (1, 2, 3, 4))
    # In the order of the requests, whichever finished first.
    assert traffic.notes == (f"block 0 {digest([[1, 2, 3, 4], [5, 6, 7, 8]])}",)
    traffic.set_concurrency(2)
    assert [job.id for job in traffic.due(0, 0)] == [2, 3]
    assert [job.tokens for job in offered] == [tuple(p) for p in prompts(2, 8, 4096, 0)]
    assert not traffic.done
    assert traffic.next_arrival_ns() is None


# Each benchmark's own


def test_a_block_takes_the_bare_loop_about_as_long_as_asked() -> None:
    # 24 steps in 24 ms: 1 ms each, so 100 in 0.1 s; bounded by what fits, and by what is not all ends.
    assert engine_speed.block_of(8, 24_000_000, 0.1) == Ask(8, 100)
    assert engine_speed.block_of(8, 24_000_000, 60) == Ask(8, engine_speed.MOST_STEPS)
    assert engine_speed.block_of(8, 24_000_000, 0.001) == Ask(8, engine_speed.FEWEST_STEPS)


def test_tokens_per_second_count_both_blocks_of_a_round() -> None:
    batch = engine_speed.Batch(8, Ask(8, 100))
    rounds = [a_round({"bare loop": 1_000_000_000}), a_round({"bare loop": 3_000_000_000})]
    # 2 rounds × 2 blocks × 8 × 100 tokens in 4 s.
    assert batch.tokens_per_second("bare loop", rounds) == pytest.approx(800)


def test_a_noisy_machine_is_not_judged() -> None:
    batch = engine_speed.Batch(1, Ask(1, 50), n_blocks=3, n_alike=3)
    sides = {"bare loop": 100, "engine": 104, "engine loop": 102}
    batch.rounds = [a_round(sides, generation=g, foreign=0.4) for g in range(3)]
    assert "NOT QUIET" in engine_speed.show([batch], 0.90)
    batch.rounds = [a_round({**sides, "engine": 104 + g}, generation=g) for g in range(3)]
    shown = engine_speed.show([batch], 0.90)
    assert "met" in shown
    assert "3 of 3" in shown


def test_host_time_is_what_is_not_the_forward() -> None:
    assert host_time.host_ns(step(0, 0, 1, decode_ns=80)) == 20
    assert host_time.goal_ns(1) == 102_000
    assert host_time.goal_ns(16) == 282_000


def test_the_median_of_each_round_is_one_value() -> None:
    def a_decode_round(*decode_ns: int) -> host_time.DecodeRound:
        steps = [step(i, 100 * i, 1, decode_ns=ns) for i, ns in enumerate(decode_ns)]
        return host_time.DecodeRound({("engine", 1): steps}, 0.0)

    # Host times 10 20 90 and 30 40 50: medians 20 and 40.
    found = host_time.median_host([a_decode_round(90, 80, 10), a_decode_round(70, 60, 50)], "engine", 1)
    assert found.center == 30
    assert found.n == 2


def test_the_cost_of_a_token_ignores_the_few_steps_that_do_more() -> None:
    # 100 ns and 2 ns for each row, but for one step of 64 that also admits.
    def prefill(rows: int, host: int) -> StepRecord:
        work = SlotWork(request=0, slot=0, phase="prefill", new=rows, cached=0)
        return StepRecord(n=0, start_ns=0, phases=Phases(decode=50, build=host), work=(work,))

    steps = [prefill(rows, 100 + 2 * rows) for rows in (64, 64, 64, 256, 256, 512, 512)] + [prefill(64, 9_000)]
    slope, low, high = host_time.per_token(steps)
    assert slope == pytest.approx(2)
    assert low <= 2 <= high


class FakeWriter:
    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.n_ticks = 0
        self.footer: Footer | None = None

    def write_line(self, raw: bytes) -> None:
        self.lines.append(raw)

    def tick(self, _rest_ns: int = 0) -> None:
        self.n_ticks += 1

    def close(self, footer: Footer | None = None) -> None:
        self.footer = footer


def test_a_recorder_that_is_off_records_nothing() -> None:
    writer = FakeWriter()
    recorder = recorder_cost.SwitchedRecorder(cast("SessionWriter", writer))
    recorder.write_line(b"1\n")
    recorder.tick()
    recorder.is_on = True
    recorder.write_line(b"2\n")
    recorder.tick()
    footer = Footer(at_ns=1, reason="done", steps=0, requests=0)
    recorder.close(footer)
    assert (writer.lines, writer.n_ticks, writer.footer) == ([b"2\n"], 1, footer)


def test_a_clock_put_forward_brings_what_waits_to_disk(tmp_path: Path) -> None:
    from stackscope.session.writer import FLUSH_NS, SessionWriter

    clock = recorder_cost.Clock()
    writer = SessionWriter(tmp_path / "s.jsonl.zst", make_header(), clock=clock)
    before = writer.bytes_written
    writer.write(step(0, 0, 1))
    writer.tick()
    assert writer.bytes_written == before
    clock.ahead_ns += recorder_cost.AHEAD_NS
    writer.tick()
    assert writer.bytes_written > before
    assert recorder_cost.AHEAD_NS > FLUSH_NS
    writer.close()


def test_the_cost_of_recording_is_shown_as_shares_and_bytes() -> None:
    cost = recorder_cost.Cost(
        n_steps=1_000,
        wall_ns=2_000_000_000,
        recorder_ns=10_000_000,
        parent_ns=40_000_000,
        file_bytes=81_000,
        header_bytes=1_000,
        foreign=0.01,
    )
    # 10 ms of 2 s; 10 µs a step; 80 kB without the header over 1,000 steps.
    shown = recorder_cost.show_cost(1, cost)
    assert shown == ["1", "1,000", "0.500%", "≤ 1%: met", "10.00", "2.00%", "80.0", "≤ 100: met", "1,000", "1.0%"]


def test_everything_with_a_goal_is_run_by_the_one_command() -> None:
    from benchmarks.__main__ import NAMES

    folder = Path(common.__file__).parent
    assert all((folder / f"{name}.py").is_file() for name in NAMES)
    assert {"engine_speed", "host_time", "recorder_cost"} <= set(NAMES)
