"""Comparisons of the validation: a planted difference is found, and none is claimed where there is none."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
import pytest

from benchmarks.validate import against, against_tau, figures, pairing
from benchmarks.validate.checks import Following
from benchmarks.validate.figures import HEALTHY, Figure, Judged, Named
from benchmarks.validate.pairing import Compared, Item, Simpler, compared
from benchmarks.validate.reading import divided
from benchmarks.validate.rows import Row
from benchmarks.validate.score_time import Predicted
from benchmarks.validate.score_toggles import (
    GEOMETRIC,
    MEASURED_PRODUCT,
    MEMORY,
    PRODUCT,
    ROOFLINE,
    Toggle,
    drafts_otherwise,
    key_of,
)
from stackscope.records import DraftShadow, Estimate, LengthCounts, StepRecord
from tests.unit.validate_sessions import CONFIG, MS, Session, drafting, shadowed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.records import AnyRecord

TRIALS: Final = 400


def items(draw: random.Random, n_clusters: int, per_cluster: int, *, mean: float, heavy: bool = False) -> list[Item]:
    """Differences with a part that the items of a cluster share."""
    made = []
    for cluster in range(n_clusters):
        shared = draw.gauss(0, 0.05)
        for _ in range(per_cluster):
            noise = draw.gauss(0, 0.05) * (draw.expovariate(1) * 2 if heavy else 1)
            made.append(Item(str(cluster), 0.1, 0.1 + mean + shared + noise))
    return made


def verdicts(n_clusters: int, *, mean: float, heavy: bool = False) -> list[str]:
    draw = random.Random(1)
    found = [compared(items(draw, n_clusters, 3, mean=mean, heavy=heavy)) for _ in range(TRIALS)]
    return [one.verdict for one in found if one is not None]


@pytest.mark.parametrize("n_clusters", [5, 7, 16])
@pytest.mark.parametrize("heavy", [False, True])
def test_a_difference_is_claimed_of_nothing_as_seldom_as_stated(
    monkeypatch: pytest.MonkeyPatch, n_clusters: int, heavy: bool
) -> None:
    monkeypatch.setattr(pairing, "RESAMPLES", 1000)
    claimed = [one != "not told apart" for one in verdicts(n_clusters, mean=0.0, heavy=heavy)]
    # 5 %, and three standard errors of 400 trials.
    assert len(claimed) == TRIALS
    assert sum(claimed) / TRIALS <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / TRIALS)


def test_single_items_of_clusters_would_claim_too_much() -> None:
    """What clusters are for: items that err together, counted one by one, find differences that are not there."""
    draw = random.Random(1)
    claimed = 0
    for _ in range(100):
        alone = [one._replace(cluster=str(i)) for i, one in enumerate(items(draw, 7, 12, mean=0.0))]
        found = compared(alone)
        claimed += found is not None and found.verdict != "not told apart"
    assert claimed > 25


def test_a_planted_difference_is_found() -> None:
    assert verdicts(7, mean=0.15).count("beaten") > 0.95 * TRIALS
    assert verdicts(7, mean=-0.15).count("beats us") > 0.95 * TRIALS


def test_the_difference_is_of_the_means_and_needs_enough_clusters() -> None:
    few = [Item(str(i % 4), 0.1, 0.3) for i in range(40)]
    found = compared(few)
    assert found is not None
    assert found.difference.value == pytest.approx(0.2)
    assert found.difference.low is None
    assert (found.difference.n, found.verdict) == (40, "not told apart")
    enough = compared([Item(str(i % 5), 0.1, 0.3) for i in range(40)])
    assert enough is not None
    assert enough.difference[:3] == pytest.approx((0.2, 0.2, 0.2))
    assert enough.verdict == "beaten"
    assert compared([]) is None


def test_wrong_answers_are_held_to_the_exact_interval() -> None:
    """McNemar: of questions that one of them alone got wrong, five all one way are chance (2/32), six are not."""

    def asked(theirs_alone: int, both: int) -> list[Item]:
        wrong = [1.0] * theirs_alone + [0.0] * both
        return [Item(str(i), 0.0, one) for i, one in enumerate(wrong)]

    five, six, none = compared(asked(5, 20)), compared(asked(6, 20)), compared(asked(0, 13))
    assert five is not None
    assert six is not None
    assert none is not None
    assert (five.verdict, six.verdict, none.verdict) == ("not told apart", "beaten", "not told apart")
    # The same 13 answers: what they may differ in is 1 − 0.025^(1/13).
    assert none.difference[:3] == pytest.approx((0.0, -0.247, 0.247), abs=0.001)
    # Clopper and Pearson: 6 of 6 is 0.541 at least; 6/26 × (2 × 0.541 − 1).
    assert pairing.mcnemar(asked(6, 20)) == pytest.approx((6 / 26 * (2 * 0.5407 - 1), 6 / 26), abs=1e-3)


def test_the_interval_is_wider_for_few_clusters() -> None:
    def width(n: int) -> float:
        values = np.linspace(-1, 1, n)
        found = pairing.resampled(n, lambda some: np.asarray(values[some].mean(axis=1)))
        assert found is not None
        return (found[1] - found[0]) / (2 * float(values.std(ddof=1)) / math.sqrt(n))

    assert width(5) > 2.3  # Student's t with four degrees of freedom: 2.78, less what a bootstrap of five can reach
    assert width(200) == pytest.approx(1.97, abs=0.12)


def toggle(
    session: str, measured: float, ours: float | None, *, drafts: bool = False, pair: bool = False, **simpler: float
) -> Toggle:
    guess = None if ours is None else Estimate(ours, ours, ours)
    named = {"memory": MEMORY, "product": PRODUCT, "tried": MEASURED_PRODUCT, "law": GEOMETRIC, "sheet": ROOFLINE}
    said = {named[name]: value for name, value in simpler.items()}
    return Toggle({}, measured, 0.0, guess, None, said, session, drafts, pair)


def test_predictors_are_compared_where_both_say_something_and_can_differ() -> None:
    found = [
        toggle("a", 0.5, 0.5, pair=True, memory=1.0, product=0.6, law=0.5),
        toggle("b", 0.8, 0.8, memory=1.0, law=0.7, drafts=True),
        toggle("c", 1.5, 1.5, memory=1.0, product=1.0),  # not a pair
        toggle("d", 1.5, None, memory=1.0, law=1.0, drafts=True),  # nothing is ours
    ]
    errors = {one.name: one for one in against.of_errors(found)}
    assert {name: one.found.n for name, one in errors.items()} == {MEMORY: 3, GEOMETRIC: 1, PRODUCT: 1}
    assert errors[GEOMETRIC].found.value == pytest.approx(math.log(0.8 / 0.7))
    assert errors[GEOMETRIC].ours.value == 0.0
    assert errors[MEMORY].compared is not None
    assert errors[MEMORY].compared.difference.value == pytest.approx(math.log(2 * 1.25 * 1.5) / 3)
    signs = {one.name: one for one in against.of_signs(found)}
    # 1.0 says that nothing becomes faster, which is right of the two that became slower.
    assert signs[MEMORY].found.value == pytest.approx(2 / 3)
    assert signs[MEMORY].ours.value == 1.0
    assert ROOFLINE not in errors


def test_drafts_are_tried_otherwise_when_their_length_or_source_is_another() -> None:
    session = Session(CONFIG)
    asked = (
        {"speculation": "draft"},
        {"speculation": "draft", "draft_length": 7},
        {"threads": 1},
        {"draft_length": 5},  # nothing drafts
    )
    for settings in asked:
        session.block()
        session.steps(5, MS)
        session.block(**settings)
        session.steps(5, MS)
    recording = divided(session.records)
    told = [drafts_otherwise(recording, key_of(stretch.changes)) for stretch in recording.stretches[1::2]]
    assert told == [True, True, False, False]


def test_names_of_the_same_sessions_are_compared() -> None:
    truths = [cause for cause in "abcd" for _ in range(4)] + [HEALTHY] * 4
    ours = [Named(truth, truth) for truth in truths]
    theirs = [Named(truth, "a") for truth in truths]
    [one] = against.of_names(ours, {MEMORY: theirs})
    assert one.compared is not None
    assert one.compared.verdict == "beaten"
    # Of five classes one, of which four of twenty are right: 2 × 4 ÷ (4 + 20).
    assert one.compared.difference.value == pytest.approx(1 - 1 / 3 / 5)
    [same] = against.of_names(ours, {MEMORY: ours})
    assert same.compared is not None
    assert same.compared.verdict == "not told apart"
    [alarms] = against.of_alarms(ours, {MEMORY: theirs})
    assert alarms.found.value == 1.0
    assert alarms.compared is not None
    assert (alarms.compared.difference.n, alarms.compared.verdict) == (4, "not told apart")
    wide = figures.naming([*ours[:-1], Named(HEALTHY, "a")])
    assert wide.low is not None
    assert wide.high is not None
    assert wide.low < (wide.value or 0) < wide.high


def test_times_of_steps_are_compared_block_by_block() -> None:
    blocks = [([Predicted(10.0, 10.0, True)] * 50, [Predicted(5.0, 10.0, False)] * 50) for _ in range(5)]
    [one] = against.of_steps(blocks)
    assert (one.name, one.found.n, one.ours.value, one.found.value) == (ROOFLINE, 250, 0.0, 0.5)
    assert one.compared is not None
    assert one.compared.verdict == "beaten"
    assert one.compared.difference.value == pytest.approx(math.log(2))
    [few] = against.of_steps(blocks[:2])
    assert few.compared is not None
    assert few.compared.verdict == "not told apart"
    assert against.of_steps([]) == ()


def test_the_summary_names_each_of_the_five() -> None:
    better, worse = Compared(Figure(0.1, 0.05, 0.2, 9)), Compared(Figure(-0.1, -0.2, -0.05, 9))
    same = Compared(Figure(0.0, -0.1, 0.1, 9))
    unknown = figures.UNKNOWN
    two = (
        Simpler(MEMORY, unknown, unknown, same),
        Simpler(PRODUCT, unknown, unknown, better),
        Simpler(MEASURED_PRODUCT, unknown, unknown, worse),
    )
    rows = [
        Row("one", unknown, simpler=(Simpler(MEMORY, unknown, unknown, better), Simpler(ROOFLINE, unknown))),
        Row("two", unknown, simpler=two),
    ]
    text = "\n".join(against.summary(rows))
    assert "- always memory-bound: BEATEN in one figure at least, and nowhere better." in text
    assert "    beaten: one\n    not told apart: two\n" in text
    assert "- multiplied speed-ups: NOT BEATEN." in text
    assert "    beaten: two\n    beats us: two (of the measured speed-ups of its parts)\n" in text
    for name in ("largest phase", "geometric acceptance", "uncalibrated roofline"):
        assert f"- {name}: not compared." in text


def followed(n_groups: int, lengths: Sequence[int] = (1, 3, 5)) -> Following:
    """The drafter of the made-up sessions, which the geometric law does not describe: its requests, and its shadows."""
    by_length: dict[int, list[AnyRecord]] = {length: [] for length in lengths}
    shadows: list[AnyRecord] = []
    for group in range(n_groups):
        tokens = 1000 + 29 * group
        for length in lengths:
            for record in drafting(length, tokens):
                if isinstance(record, StepRecord):
                    work = tuple(msgspec.structs.replace(one, request=group) for one in record.work)
                    by_length[length].append(msgspec.structs.replace(record, work=work))
        shadows += [one for one in shadowed(lengths, tokens) if isinstance(one, DraftShadow)]
    return Following("ngram", shadows, by_length)


def test_replays_are_told_from_the_law_over_requests() -> None:
    found = against_tau.worst(followed(8))
    assert found.replayed.value == pytest.approx(0.0, abs=1e-9)
    assert found.replayed.high == pytest.approx(0.0, abs=1e-9)
    assert found.replayed.n == 3
    assert found.law is not None
    assert found.law.compared is not None
    assert found.law.compared.verdict == "beaten"
    # With acceptance p at the first length the law says 1 + p + p² + p³ and so on.
    assert found.law.found.value is not None
    assert found.law.found.low is not None
    assert 0.01 < found.law.found.low <= found.law.found.value
    assert found.law.found.n == 2


def test_a_replay_that_is_wrong_is_told_to_be() -> None:
    one = followed(8)
    wrong = []
    for shadow in one.without:
        assert isinstance(shadow, DraftShadow)
        lengths = tuple(LengthCounts(c.length, c.rounds * 2, c.covered, c.drafted, c.accepted) for c in shadow.lengths)
        wrong.append(msgspec.structs.replace(shadow, lengths=lengths))
    found = against_tau.worst(one._replace(without=wrong))
    assert (found.replayed.value or 0) > 0.3
    assert found.law is not None
    assert found.law.compared is not None
    assert found.law.compared.verdict == "beats us"


def test_without_shadows_or_rounds_nothing_is_said_of_draft_lengths() -> None:
    assert against_tau.worst(followed(8)._replace(without=[])) == against_tau.Worst()
    few = against_tau.worst(followed(3))
    assert few.law is not None
    assert few.replayed.low is None
    assert few.law.compared is not None
    assert few.law.compared.verdict == "not told apart"


def test_a_sign_is_asked_of_what_has_one() -> None:
    assert figures.has_sign(Judged(1.2, 1.2, 1.2, 1.1))
    assert not figures.has_sign(Judged(1.2, 1.2, 1.2, 1.1, noise=0.1))
    assert figures.has_sign(Judged(1.2, 1.2, 1.2, 1.1, noise=0.1), at_all=True)
    assert not figures.is_sign_right(Judged(0.9, 0.9, 0.9, 1.1))


def test_what_needs_sessions_that_are_missing_is_not_judged() -> None:
    same, worse = Compared(Figure(0.0, -0.1, 0.1, 9)), Compared(Figure(-0.1, -0.2, -0.05, 9))
    unknown = figures.UNKNOWN
    row = Row(
        "one", unknown, simpler=(Simpler(MEMORY, unknown, unknown, same), Simpler(PRODUCT, unknown, unknown, worse))
    )
    text = "\n".join(against.summary([row], 12))
    assert "- always memory-bound: not judged: 12 sessions missing." in text
    assert "- multiplied speed-ups: NOT BEATEN." in text
