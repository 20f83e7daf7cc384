"""The validation's own arithmetic, on made-up recordings: figures, blocks, scores, what must make it fail, resuming."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import msgspec
import pytest

from benchmarks.validate import figures, naming, score_naming, score_tau, score_toggles
from benchmarks.validate.__main__ import EVERY
from benchmarks.validate.checks import CHECKS, Accounting, Following, Seen, failures
from benchmarks.validate.figures import HEALTHY, Figure, Judged, Named
from benchmarks.validate.mutants import MUTANTS
from benchmarks.validate.pairing import Compared, Simpler
from benchmarks.validate.printing import printed
from benchmarks.validate.reading import divided
from benchmarks.validate.rows import Row, Scored
from benchmarks.validate.scenarios import NATURAL
from benchmarks.validate.scoring import Scores
from benchmarks.validate.state import Folder, Staged
from stackscope.records import CacheCounters, Phases, SlotWork
from stackscope.session.writer import SessionWriter
from tests.unit.validate_sessions import CONFIG, MS, Session, drafting, put_back, rounds, shadowed, wide

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.validate.reading import Recording
    from benchmarks.validate.state import State
    from stackscope.analysis.whatif.watch import Watch

LENGTHS: Final = (1, 3, 5)


def seen() -> Seen:
    """Everything that the checks look at."""
    followed = Following("ngram", shadowed(LENGTHS), {length: drafting(length) for length in LENGTHS})
    return Seen([divided(one.records) for one in (wide(), put_back())], [followed])


def test_what_is_true_passes_every_check() -> None:
    assert failures(Accounting(), seen()) == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_wrong_accounting_fails(mutant: Accounting) -> None:
    assert failures(mutant, seen()) != []


def test_there_are_ten_and_each_check_is_needed() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == 10
    caught = {one.partition(":")[0] for mutant in MUTANTS for one in failures(mutant, seen())}
    assert caught == set(CHECKS)


def test_a_check_without_anything_to_look_at_does_not_fail_for_it() -> None:
    assert failures(Accounting(), Seen()) == []


def test_blocks_leave_their_warm_up_out() -> None:
    session = Session()
    session.block()
    session.steps(300, 10 * MS)
    session.block(threads=1)
    session.steps(200, 20 * MS)
    first, second = divided(session.records).stretches
    # A second of 10 ms steps, and one of 20 ms.
    assert (len(first.warm_up), len(first.steps)) == (100, 200)
    assert (len(second.warm_up), len(second.steps)) == (50, 150)
    assert (first.changes, second.changes) == ({}, {"threads": 1})
    assert first.tokens_per_s == pytest.approx(100)
    assert second.tokens_per_s == pytest.approx(50)
    assert second.config is not None
    assert second.config.threads == 1


def test_toggles_are_measured_between_their_neighbours() -> None:
    session = Session()
    for threads, ms in ((2, 10), (1, 20), (2, 12), (1, 24), (2, 14)):
        session.block(threads=threads)
        session.steps(3000 // ms, ms * MS)
    recording = divided(session.records)
    [(settings, measured)] = score_toggles.ratios(recording).values()
    assert settings == {"threads": 1}
    assert measured == pytest.approx([math.sqrt(10 * 12) / 20, math.sqrt(12 * 14) / 24])
    [one] = score_toggles.toggles(recording)
    assert one.measured == pytest.approx(math.exp(math.fsum(map(math.log, measured)) / 2))
    # One degree of freedom: t(0.95) = 6.314 standard errors of the difference of the two.
    spread = abs(math.log(measured[0] / measured[1])) / math.sqrt(2)
    assert one.noise == pytest.approx(6.3138 * spread / math.sqrt(2), rel=1e-3)


def test_a_pair_is_told_from_its_parts() -> None:
    def toggle(measured: float, **settings: int) -> score_toggles.Toggle:
        return score_toggles.Toggle(dict(settings), measured, 0.0, None, "made up", {})

    one, other, both = toggle(0.5, threads=1), toggle(0.8, slots=2), toggle(0.45, threads=1, slots=2)
    found = [one, other, both]
    completed = score_toggles.with_products(found)
    assert [each.is_pair for each in completed] == [False, False, True]
    assert completed[2].simpler == {score_toggles.MEASURED_PRODUCT: pytest.approx(0.4)}
    product = score_toggles.multiplied(found, both)
    assert product is not None
    assert product.predicted == pytest.approx(0.4)
    assert product.measured == 0.45


def test_predictions_are_made_before_the_first_visit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The predictor has seen no step under the toggle that it is asked about."""
    session = Session()
    for threads in (2, 1, 2):
        session.block(threads=threads)
        session.steps(200, 20 * MS)
    asked: list[set[int]] = []

    def spy(watch: Watch, *_: object) -> score_toggles.Guess:
        asked.append({step.epoch for step in watch._steps})
        return score_toggles.Guess()

    monkeypatch.setattr(score_toggles, "_predicted", spy)
    score_toggles.predictions(divided(session.records))
    assert asked == [{0}]


def test_signs_are_asked_only_of_changes_that_have_one() -> None:
    found = [Judged(1.2, 1.1, 1.3, 1.5), Judged(0.9, 0.8, 1.0, 1.5), Judged(0.9, 0.8, 1.0, 1.02)]
    assert figures.sign_right(found)[0] == 0.5
    assert figures.sign_right(found).n == 2
    # Visits between 0.74 and 1.5 times as fast do not say which way the third went.
    torn = [*found, Judged(0.9, 0.8, 1.0, 1.05, noise=0.35)]
    assert figures.sign_right(torn).n == 2
    assert figures.sign_right(torn, at_all=True)[0] == pytest.approx(1 / 3)
    assert figures.sign_right([]) == figures.UNKNOWN
    assert figures.median_error(found).value == pytest.approx(math.log(1.5 / 1.2))


def test_intervals_allow_for_the_noise_of_the_measurement() -> None:
    assert Judged(1.2, 1.1, 1.3, 1.25).is_covered
    assert not Judged(1.2, 1.1, 1.3, 1.4).is_covered
    assert Judged(1.2, 1.1, 1.3, 1.4, noise=0.2).is_covered
    assert not Judged(1.0, 1.0, 1.0, 1.1).is_covered


def test_macro_f1_weighs_causes_alike() -> None:
    # a: 2 of 2 and one false: F1 = 4/5. b: 1 of 2: F1 = 2/3. healthy: nothing of one: 0.
    found = [Named("a", "a"), Named("a", "a"), Named("b", "b"), Named("b", "a"), Named(HEALTHY, "c")]
    assert figures.macro_f1(found) == pytest.approx((0.8 + 2 / 3 + 0) / 3)
    assert figures.alarms(found)[0] == 1.0
    perfect = figures.naming([one for one in found if one.truth == one.said])
    assert perfect[:3] == (1.0, 1.0, 1.0)


def test_natural_names_are_no_alarm_and_no_discovery() -> None:
    by_name = {one.name: one for one in naming.SCENARIOS}
    placebo, starved, stopped = by_name["lab alone"], by_name["compute hog 0.5"], by_name["stopped 0.5"]
    assert score_naming.judged(placebo, "weight bandwidth") == (HEALTHY, HEALTHY)
    assert score_naming.judged(placebo, None) == (HEALTHY, HEALTHY)
    assert score_naming.judged(placebo, "throttle") == (HEALTHY, "throttle")
    assert score_naming.judged(starved, "weight bandwidth") == ("CPU starvation", HEALTHY)
    assert score_naming.judged(starved, "CPU starvation") == ("CPU starvation", "CPU starvation")
    assert score_naming.judged(stopped, "CPU starvation") == ("throttle", "throttle")
    batch = by_name["batch 16"]
    assert batch.cause in NATURAL
    assert score_naming.judged(batch, "compute") == ("compute", "compute")


def test_the_largest_phase_is_what_a_simple_namer_names() -> None:
    session = Session()
    session.block()
    session.steps(300, 0, phases=Phases(decode=3 * MS, sample=5 * MS, other=MS))
    assert score_naming.largest_phase(divided(session.records)) == "sampling"
    alone = next(one for one in naming.SCENARIOS if one.name == "lab alone")
    assert score_naming.slow_down(alone, divided(session.records)) is None


def test_slow_downs_are_of_the_calm_block() -> None:
    session = Session()
    for ms in (10, 25):
        session.block()
        session.steps(3000 // ms, ms * MS)
    hog = next(one for one in naming.SCENARIOS if one.name == "compute hog 1")
    assert score_naming.slow_down(hog, divided(session.records)) == pytest.approx(2.5)


def test_tokens_per_round_by_replay_by_cutting_and_by_law() -> None:
    without = shadowed(LENGTHS)
    for length in LENGTHS:
        real = score_tau.happened(drafting(length))
        assert score_tau.replayed(without, "ngram", length).tau == pytest.approx(real.tau)
        assert real.tau == pytest.approx(1 + sum(kept for _, kept in rounds(length, 4000)) / real.rounds)
    # Rounds of five begin elsewhere than rounds of one.
    assert abs((score_tau.cut(drafting(5), 1) or 0) / (score_tau.happened(drafting(1)).tau or 1) - 1) > 0.01
    first = score_tau.happened(drafting(1))
    alpha = first.first_kept / first.first_tried
    assert score_tau.geometric(first, 3) == pytest.approx(1 + alpha + alpha**2 + alpha**3)
    assert score_tau.replayed(without, "draft", 3).tau is None
    assert score_tau.error(None, 2.0) is None


def test_a_replay_over_few_of_the_requests_is_not_held_against_all_of_them() -> None:
    real = {length: drafting(length) for length in LENGTHS}
    part = shadowed(LENGTHS, tokens=29 * 10 + 2)  # Ends within a run, and came with a tenth of the tokens.
    assert not failures(Accounting(), Seen(followed=[Following("ngram", [*shadowed(()), *part[-1:]], real)]))
    assert failures(Accounting(), Seen(followed=[Following("ngram", part, {k: real[k + 2] for k in (1, 3)})]))


def test_what_unfinished_requests_found_was_found() -> None:
    session = Session()
    session.block()
    cache = CacheCounters(lookups=1, lookup_tokens=600, hit_tokens=512, useful_hit_tokens=512)
    work = SlotWork(request=7, slot=0, phase="prefill", new=88, cached=512, outputs=1)
    session.steps(1, MS, work=(work,), cache=cache)
    assert failures(Accounting(), Seen([divided(session.records)])) == []
    again = msgspec.structs.replace(work, request=8, cached=0, new=600)
    session.steps(1, MS, work=(again,), cache=cache)
    assert [one.partition(":")[0] for one in failures(Accounting(), Seen([divided(session.records)]))] == ["hits"]


@pytest.mark.parametrize(
    ("row", "met"),
    [
        (Row("a", Figure(0.04), at_most=0.05), True),
        (Row("a", Figure(0.06), at_most=0.05), False),
        (Row("a", Figure(0.99), at_least=0.80, at_most=0.97), False),
        (Row("a", Figure(0.99, 0.96, 1.0), at_least=0.80, at_most=0.97), False),
        (Row("a", Figure(0.96, 0.93, 0.99), at_least=0.80, at_most=0.97), True),
        (Row("a", Figure(0.5)), None),
        (Row("a", figures.UNKNOWN, at_most=0.05), None),
    ],
)
def test_a_goal_is_met_missed_or_open(row: Row, met: bool | None) -> None:
    assert row.is_met is met


def test_doses_do_more_when_larger() -> None:
    assert figures.is_monotone([1.0, 1.5, 1.49, 4.0])
    assert not figures.is_monotone([1.0, 2.0, 1.5])


def paired(*blocks_ms: Sequence[float]) -> Recording:
    """Blocks of steps of ten milliseconds, then of others, each block with its lengths in turn."""
    session = Session()
    for lengths in ([10.0], *blocks_ms):
        session.block()
        session.steps(400, lambda i, lengths=lengths: round(lengths[i % len(lengths)] * MS))  # type: ignore[misc]
    return divided(session.records)


def test_a_fault_that_its_control_shows_to_do_nothing_need_not_be_named() -> None:
    by_name = {one.name: one for one in naming.SCENARIOS}
    hog = by_name["bandwidth hog 0.5"]
    assert score_naming.did_too_little(hog, paired([10.5]))
    assert not score_naming.did_too_little(hog, paired([11.5]))
    # Half of the speeds differ so much that a tenth is not ruled out.
    assert not score_naming.did_too_little(hog, paired([5.0] * 40 + [15.5] * 40))
    # A machine that becomes slower by itself: what it is without the fault is the mean of before and after.
    assert score_naming.slow_down(hog, paired([11.0], [12.1])) == pytest.approx(1.0)
    assert score_naming.slow_down(hog, paired([11.0])) == pytest.approx(1.1)
    assert score_naming.did_too_little(by_name["slow sampler 1"], paired([10.0]))
    for name in ("another that sleeps", "long context 11264", "batch 8", "arrivals 2", "corrupted draft 0"):
        assert not score_naming.did_too_little(by_name[name], paired([10.0]))


def test_a_scenario_may_go_on_after_its_fault() -> None:
    by_name = {one.name: one for one in naming.SCENARIOS}
    for name, n_blocks, fault in (("stopped 0.5", 3, 1), ("slow sampler 1", 2, -1), ("batch 8", 2, -1)):
        one = by_name[name]
        assert (len(one.blocks), one.fault_block) == (n_blocks, fault)
        assert one.ending_with_fault.blocks == one.blocks[:2]
    session = Session()
    for ms in (10, 10, 10):
        session.block()
        session.steps(400, ms * MS)
    recording = divided(session.records)
    ends = [stretch.ends_ns for stretch in recording.stretches]
    named: list[int | None] = []
    for name in ("stopped 0.5", "lab alone"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(score_naming, "named", lambda _, ends_ns=None: named.append(ends_ns))
            score_naming.verdict(by_name[name], recording)
    assert named == [ends[1], None]


def staged(folder: Folder) -> State:
    """A folder with one made-up recording for a toggle, a placebo and a draft length."""
    session = Session()
    for threads, ms in ((2, 10), (1, 20), (2, 10), (1, 20), (2, 10)):
        session.block(threads=threads)
        session.steps(3000 // ms, ms * MS)
    by_name = {
        "toggles short": session.records,
        "lab alone": session.records,
        "no drafts, all followed": shadowed(LENGTHS),
        "ngram, 3 drafted": drafting(3),
    }
    for one in EVERY:
        if one.name in by_name:
            path = folder.place(one, EVERY)
            with SessionWriter(path, session.header) as writer:
                for record in by_name[one.name][1:]:
                    writer.write(record)
            folder.keep(one, Staged(path.name, 0.05 if one.name == "lab alone" else 0.0))
    return folder.state


def test_what_is_there_is_scored_and_the_rest_is_unknown(tmp_path: Path) -> None:
    folder = Folder(tmp_path, machine="a machine")
    state = staged(folder)
    scored = Scores(folder).all()
    by_name = {row.name: row for row in scored.rows}
    assert by_name["step time, in range: median error"].found == figures.UNKNOWN
    assert by_name["placebos: false alarms"].found.n == 1
    for what in ("step time", "toggles"):
        held = by_name[f"{what}: 90 % intervals hold"]
        assert (held.at_least, held.at_most) == (0.80, 0.97)
    [tau] = [row for name, row in by_name.items() if name.startswith("τ at another length")]
    assert tau.found.value == pytest.approx(0.0, abs=1e-9)
    assert tau.is_met
    assert by_name["checks of bytes, FLOPs and counts that fail"].found.value == 0
    text = printed(scored, state)
    assert "4 sessions, 3 of them quiet: NOT QUIET" in text
    assert text.startswith("a machine\n")
    assert "Not staged:" in text
    assert "no check caught" not in text
    assert "NOT BEATEN" not in text
    [note] = [note for note in scored.notes if note.startswith("wrong accountings not judged: ")]
    assert "sessions missing" in note
    [caught] = [row for row in scored.rows if row.name.startswith("wrong accountings caught")]
    assert caught.is_met is None


def test_a_name_is_not_held_against_a_session_that_somebody_disturbed(tmp_path: Path) -> None:
    folder = Folder(tmp_path, machine="a machine")
    state = staged(folder)
    state.staged["lab alone"] = Staged(state.staged["lab alone"].recording, 0.3)
    scored = Scores(folder).all()
    assert {row.name: row.found.n for row in scored.rows}["placebos: false alarms"] == 0
    assert "lab alone: not counted, somebody took 30% of a CPU meanwhile" in scored.notes


def test_figures_and_goals_are_printed_with_their_simpler_predictors() -> None:
    simpler = Simpler("multiplied", Figure(0.2, 0.1, 0.3, 9), Figure(0.05), Compared(Figure(0.1, 0.02, 0.2, 9)))
    few = Simpler("geometric", Figure(0.2, n=2), Figure(0.05), Compared(Figure(0.1, n=2)))
    row = Row("pairs", Figure(0.04, 0.03, 0.06, 9), at_most=0.10, simpler=(simpler, few))
    count = Row("caught", Figure(9, n=0), is_share=False, at_least=10)
    text = printed(Scored([row, count], ["a note"]), msgspec.convert({"machine": "m"}, type=_state()))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "pairs ≤ 10.0 % 4.0 % 3.0 % to 6.0 % 9 met" in lines
    assert "multiplied 20.0 % 10.0 % to 30.0 % 9 5.0 % 10.0 % (2.0 % to 20.0 %) beaten" in lines
    assert "geometric 20.0 % 2 5.0 % 10.0 % (too few to tell) not told apart" in lines
    assert "MISSED" in text
    assert "- a note" in text


def _state() -> type[State]:
    from benchmarks.validate.state import State

    return State


def test_a_session_under_one_configuration_is_one_block() -> None:
    session = Session(CONFIG)
    session.block()
    session.steps(10, 500 * MS)
    assert len(divided(session.records).stretches) == 1
