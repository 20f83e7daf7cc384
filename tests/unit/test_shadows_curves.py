"""Acceptance by draft length, from shadows and from real rounds, with intervals that hold."""

from __future__ import annotations

from typing import Final

import msgspec
import pytest

from stackscope.analysis.speculating import Curve, Curves
from stackscope.records import (
    ConfigEvent,
    DraftShadow,
    Estimate,
    Header,
    LengthCounts,
    Mark,
    Phases,
    SlotWork,
    StepRecord,
)
from stackscope.toggles import EngineConfig

SECOND: Final = 1_000_000_000


def step(n: int, *works: SlotWork, at_ns: int = 0, invalid: bool = False) -> StepRecord:
    return StepRecord(n=n, start_ns=at_ns, phases=Phases(decode=1000), work=works, invalid_output=invalid)


def round_of(drafted: int, accepted: int, *, emitted: int | None = None) -> SlotWork:
    return SlotWork(
        request=0,
        slot=0,
        phase="verify" if drafted else "decode",
        new=1 + drafted,
        cached=10,
        drafted=drafted,
        accepted=accepted,
        emitted=accepted + 1 if emitted is None else emitted,
        outputs=1 + drafted,
    )


def curves_of(works: list[SlotWork], **settings: object) -> Curves:
    """Of a session whose every step has one of these rounds, a hundred a second."""
    curves = Curves()
    curves.write(Header(stackscope="0", started="", host="", device="", config=EngineConfig(**settings)))  # type: ignore[arg-type]
    for n, work in enumerate(works):
        curves.write(step(n, work, at_ns=n * SECOND // 100))
    return curves


def known(curve: Curve | None) -> Curve:
    assert curve is not None
    return curve


def shadow(at_ns: int, *lengths: LengthCounts, source: str = "ngram") -> DraftShadow:
    return DraftShadow(
        at_ns=at_ns,
        epoch=0,
        source=source,  # type: ignore[arg-type]
        requests=1,
        tokens=sum(counts.tokens for counts in lengths[:1]),
        lengths=lengths,
    )


# Cases of others


def test_a_window_far_too_long_accepts_seven_percent() -> None:
    # Drafts of 64 tokens, 1,378 drafted and 96 accepted.
    works = [round_of(64, 4) for _ in range(18)] + [round_of(64, 8) for _ in range(3)] + [round_of(34, 0)]
    assert (sum(w.drafted for w in works), sum(w.accepted for w in works)) == (1378, 96)
    standing = known(curves_of(works, speculation="ngram", draft_length=64).curve("ngram")).standing(64)
    assert standing is not None
    assert standing.acceptance is not None
    assert standing.acceptance.value == pytest.approx(96 / 1378)
    assert "6.97 % of 1,378 drafted tokens" in standing.described
    assert standing.tokens_per_round.value == pytest.approx(1 + 96 / 22)


def test_all_of_almost_nothing_is_never_praised() -> None:
    # 3 drafted, 3 accepted, 500 forwards.
    works = [round_of(3, 3), *[round_of(0, 0) for _ in range(499)]]
    curve = known(curves_of(works, speculation="draft", draft_length=3).curve("draft"))
    standing = curve.standing(3)
    assert standing is not None
    assert standing.acceptance is not None
    assert standing.acceptance.value == 1.0
    assert standing.acceptance.low < 0.5  # One round says little.
    assert standing.coverage.value == pytest.approx(1 / 500, rel=0.2)
    assert standing.tokens_per_round.value < 1.02
    assert standing.described.startswith("100 % of 3 drafted tokens accepted, with a draft in 0.")
    assert "tokens per forward" in standing.described


def test_without_a_draft_there_is_no_acceptance() -> None:
    standing = known(curves_of([round_of(0, 0)] * 9, speculation="ngram").curve("ngram")).standing(3)
    assert standing is not None
    assert standing.acceptance is None
    assert standing.described == "nothing drafted; 1 tokens per forward"


# Real rounds


def test_real_rounds_of_the_length_in_force_are_counted_as_they_were() -> None:
    works = [round_of(3, 3), round_of(3, 1), round_of(0, 0), round_of(2, 2), round_of(3, 3, emitted=3)]
    curve = known(curves_of(works, speculation="ngram", draft_length=3).curve("ngram"))
    assert curve.counts(3) == LengthCounts(3, 5, 4, 11, 9, 1, 3, 2)
    assert curve.is_replayed(3)


def test_shorter_drafts_are_longer_ones_cut() -> None:
    works = [round_of(3, 3), round_of(3, 1), round_of(0, 0), round_of(2, 2), round_of(3, 1, emitted=1)]
    curve = known(curves_of(works, speculation="ngram", draft_length=3).curve("ngram"))
    assert curve.lengths == (1, 2, 3)
    assert not curve.is_replayed(2)
    # The last output ended with its first draft: what a second would have been is not known.
    assert curve.counts(2) == LengthCounts(2, 5, 4, 8, 6, 1, 3, 2)
    assert curve.counts(1) == LengthCounts(1, 5, 4, 4, 4, 1, 4, 4)
    assert curve.tokens_per_round(4) is None


def test_no_speculation_is_one_token_per_round() -> None:
    curve = known(curves_of([round_of(3, 3)], speculation="ngram", draft_length=3).curve("ngram"))
    assert curve.tokens_per_round(0) == Estimate(1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    "settings",
    [{"speculation": "off"}, {"speculation": "ngram", "adaptive_draft": True}],
)
def test_rounds_that_say_nothing_of_a_length_are_left_out(settings: dict[str, object]) -> None:
    curves = curves_of([round_of(3, 3)] * 9, **settings)
    assert curves.curve("ngram") is None
    assert curves.curve("draft") is None


def test_synthetic_acceptance_and_prefills_are_left_out() -> None:
    curves = curves_of([], speculation="ngram", draft_length=3)
    curves.write(step(0, round_of(3, 3), invalid=True))
    curves.write(step(1, SlotWork(request=0, slot=0, phase="prefill", new=9, cached=0, emitted=1, outputs=1)))
    curves.write(Mark(at_ns=0, label=""))
    assert curves.curve("ngram") is None


def test_another_drafter_begins_anew_and_another_model_too() -> None:
    config = EngineConfig(model="a", draft_model="d", speculation="ngram", draft_length=3)
    for changed, gone in (({"ngram_max": 6}, "ngram"), ({"model": "b"}, "draft"), ({"slots": 2}, None)):
        curves = Curves()
        curves.begin(config)
        counts = LengthCounts(3, 10, 5, 15, 5)
        curves.write(shadow(0, counts, source="ngram"))
        curves.write(shadow(0, counts, source="draft"))
        after = EngineConfig(**{name: getattr(config, name) for name in config.__struct_fields__} | changed)
        curves.write(ConfigEvent(at_ns=1, epoch=1, kind="live", config=after))
        for source in ("ngram", "draft"):
            assert (curves.curve(source) is None) == (source == gone)


# Shadows


def test_shadows_and_real_rounds_make_one_curve() -> None:
    curves = curves_of([round_of(3, 2)] * 20, speculation="ngram", draft_length=3)
    curves.write(
        shadow(SECOND, LengthCounts(1, 3000, 2000, 2000, 1000), LengthCounts(2, 2500, 2000, 4000, 1500, 0, 2000, 500))
    )
    curve = known(curves.curve("ngram"))
    assert [curve.is_replayed(length) for length in (1, 2, 3)] == [True] * 3
    tokens = [curve.tokens_per_round(length) for length in (1, 2, 3)]
    assert [t.value for t in tokens if t is not None] == pytest.approx([40 / 30, 40 / 25, 3.0])
    survival = curve.survival(2)
    assert survival is not None
    assert survival.value == pytest.approx(0.25)


def test_few_replayed_rounds_are_less_sure_than_many_real_ones_that_are_cut() -> None:
    curves = curves_of([round_of(3, 3), round_of(3, 1)] * 500, speculation="ngram", draft_length=3)
    curves.write(shadow(SECOND, LengthCounts(1, 15, 15, 15, 5)))
    curve = known(curves.curve("ngram"))
    assert not curve.is_replayed(1)
    assert curve.is_replayed(3)
    tokens = curve.tokens_per_round(1)
    assert tokens is not None
    assert tokens.value == pytest.approx(2.0)
    for second in range(2, 20):
        curves.write(shadow(second * SECOND, LengthCounts(1, 300, 300, 300, 180)))
    curve = known(curves.curve("ngram"))
    assert curve.is_replayed(1)
    tokens = curve.tokens_per_round(1)
    assert tokens is not None
    assert tokens.value == pytest.approx(1.6, abs=0.01)


def test_what_is_recent_counts_most() -> None:
    curves = Curves()
    for second in range(240):
        accepted = 0 if second < 120 else 10
        curves.write(shadow(second * SECOND, LengthCounts(1, 20, 20, 20, accepted)))
    acceptance = known(curves.curve("ngram")).acceptance(1)
    assert acceptance is not None
    assert 0.45 < acceptance.value <= 0.5


def test_old_evidence_stays_when_nothing_new_comes() -> None:
    curves = curves_of([], speculation="off")
    curves.write(shadow(0, LengthCounts(1, 20, 20, 20, 5)))
    curves.write(step(0, round_of(0, 0), at_ns=3600 * SECOND))
    acceptance = known(curves.curve("ngram")).acceptance(1)
    assert acceptance is not None
    assert acceptance.value == pytest.approx(0.25)


def test_what_is_alike_within_requests_is_no_more_than_the_requests() -> None:
    """Two requests at a time, one that agrees and one that does not, and blocks of both that are all alike."""
    curves = Curves()
    curves.write(
        Header(stackscope="0", started="", host="", device="", config=EngineConfig(speculation="ngram", draft_length=3))
    )
    for n in range(3000):
        works = [msgspec.structs.replace(round_of(3, accepted), request=r) for r, accepted in enumerate((0, 3))]
        curves.write(step(n, *works, at_ns=n * SECOND // 100))
    curve = known(curves.curve("ngram"))
    for length in (1, 3):
        acceptance = curve.acceptance(length)
        assert acceptance is not None
        assert acceptance.value == pytest.approx(0.5)
        assert acceptance.high - acceptance.low > 0.6
