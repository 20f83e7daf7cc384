"""Where drafts begin to lose, and where the KV cache passes the weights: arithmetic on machines stated by the test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import pytest

from stackscope.analysis.timing.terms import Terms
from stackscope.analysis.whatif import breakevens
from stackscope.analysis.whatif.predict import Predictor
from stackscope.records import Estimate, LengthCounts
from tests.unit.whatif_engine import LotCurve, Traffic, recorded
from tests.unit.whatif_machine import CONFIG, FOUR_BITS, MODEL, Machine, stated_point

if TYPE_CHECKING:
    from stackscope.analysis.ledgers import Pricing
    from stackscope.analysis.timing.shapes import Shape
    from stackscope.analysis.whatif.breakevens import BreakEven

MS: Final = 1e6
EIGHT: Final = frozenset(range(1, 9))


def dear_rows(shape: Shape, _: Pricing) -> Terms:
    """One row 10 ms, five rows 48 ms: verifying costs nearly as much as decoding one by one."""
    return Terms(weights=10 * MS, compute=9.5 * MS * (shape.rows - 1))


def blocks_of_four(shape: Shape, _: Pricing) -> Terms:
    """Rows in blocks of four cost as one block; rows beyond are dear: 1, 2, 3 rows cost 10, 14, 18 ms, four 12."""
    whole, odd = divmod(shape.rows, 4)
    return Terms(weights=8 * MS, compute=4 * MS * whole + 4 * MS * odd - (2 * MS if whole == 0 else 0.0))


def halves(shape: Shape, _: Pricing) -> Terms:
    """Weights 8 ms, each row 0.5 ms, and 1 µs per cached token."""
    cached = sum(c for c, _ in shape.spans)
    return Terms(weights=8 * MS, compute=0.5 * MS * shape.rows, attention=1e3 * cached)


def found(results: tuple[BreakEven, ...], kind: str) -> BreakEven:
    [one] = [result for result in results if result.kind == kind]
    return one


def value(one: BreakEven) -> float:
    assert one.value is not None
    return one.value.value


def test_acceptance_of_ninety_percent_does_not_pay_where_five_rows_cost_five() -> None:
    """t(1) = 10 ms and t(5) = 48 ms: four drafts must bring 4.8 tokens, but 90 % each brings 1 + 0.9 + … = 4.10."""
    curve = LotCurve(0.9, 1.0, EIGHT, error=0.001)
    predictor = Predictor(stated_point(dear_rows, curves={"draft": curve}))
    drafting = predictor.state.after({"speculation": "draft", "draft_length": 4})
    tokens, acceptance = breakevens.acceptance(predictor, drafting)
    assert value(tokens) == pytest.approx(4.8)
    assert value(acceptance) == pytest.approx(3.8 / 4)
    prediction = predictor.predict({"speculation": "draft", "draft_length": 4})
    assert prediction.tokens is not None
    assert prediction.tokens.high < 1.0
    assert prediction.tokens.value == pytest.approx(4.0951 / 4.8)
    assert "brings 4.10 rather than 1.00 tokens per sequence but takes 48.0 ms rather than 10.0 ms" in prediction.reason


def test_some_drafts_could_not_pay_at_any_acceptance() -> None:
    """Two rows cost more than two forwards of one."""

    def absurd(shape: Shape, _: Pricing) -> Terms:
        return Terms(weights=10 * MS, compute=15 * MS * (shape.rows - 1))

    predictor = Predictor(stated_point(absurd, curves={"draft": LotCurve(0.9, 1.0, EIGHT)}))
    _, acceptance = breakevens.acceptance(predictor, predictor.state.after({"speculation": "draft"}))
    assert acceptance.value is None
    assert acceptance.sentence.startswith("No acceptance is enough for drafts of 3")


def test_a_window_far_too_long_loses_and_a_shorter_one_is_suggested() -> None:
    """Windows of 64, of whose 1,378 drafted tokens 96 were accepted (7 %): a loss; short ones gain."""
    rounds = 26
    long = LengthCounts(length=64, rounds=rounds, covered=rounds, drafted=1378, accepted=96)

    class Curve(LotCurve):
        def tokens_per_round(self, length: int) -> Estimate | None:
            won = long.tokens / long.rounds
            return Estimate(won, 0.95 * won, 1.05 * won) if length == 64 else super().tokens_per_round(length)

    config = msgspec.structs.replace(CONFIG, speculation="ngram", draft_length=64)
    curve = Curve(0.75, 0.9, EIGHT)
    point = stated_point(halves, config, curves={"ngram": curve}, tokens_per_round=long.tokens / long.rounds)
    one = point.rounds[0]
    verified = msgspec.structs.replace(one.shape, spans=((100, 54),), outputs=54, drafted=53)
    drafted = msgspec.structs.replace(one.decoding[0], drafted=53)
    point = msgspec.structs.replace(
        point, rounds=(msgspec.structs.replace(one, shape=verified, decoding=(drafted,)),), tokens_per_round=1.2
    )
    off = Predictor(point).predict({"speculation": "off"}).tokens
    assert off is not None
    assert off.low > 1.0
    best = found(breakevens.all_of(Predictor(point)), "draft length")
    assert 2 <= value(best) <= 8
    acceptance = found(breakevens.all_of(Predictor(point)), "acceptance")
    assert acceptance.sentence.startswith("Drafts of 64 by n-gram look-up lose below an acceptance of")


def test_the_best_draft_length_fills_a_block_of_rows() -> None:
    """At 60 % each, 3 drafts (4 rows, 12 ms) bring 2.18 tokens; 2 (3 rows) cost 18 ms and 4 (5 rows) 16 ms."""
    predictor = Predictor(stated_point(blocks_of_four, curves={"draft": LotCurve(0.6, 1.0, EIGHT)}))
    best = breakevens.draft_length(predictor, predictor.state.after({"speculation": "draft"}))
    assert best.value == Estimate(3.0, 3.0, 3.0)
    assert best.sentence == "Of the lengths scored, drafts of 3 by the draft model bring most, 1.81× of none."


def test_the_batch_above_which_drafts_lose() -> None:
    """Weights 8 ms, a row 0.5 ms, A = 2.18, four rows a sequence: 2.18 × (8 + b/2) = 8 + 2b at b = 10.3."""
    predictor = Predictor(stated_point(halves, curves={"draft": LotCurve(0.6, 1.0, EIGHT)}, cached=0))
    batch = breakevens.batch(predictor, predictor.state.after({"speculation": "draft"}))
    assert value(batch) == pytest.approx(10.36, rel=0.03)
    assert batch.sentence == "Drafts of 3 by the draft model lose above 10 sequences at a time."


def test_fewer_bits_move_the_crossover_to_a_smaller_batch() -> None:
    machine = Machine(row_ns=0.4e6)
    traffic = Traffic(concurrency=4, accepted={"ngram": 0.6, "draft": 0.6})
    config = msgspec.structs.replace(CONFIG, slots=16)
    predictor = Predictor(recorded(machine, config, traffic))
    drafting = predictor.state.after({"speculation": "ngram", "draft_length": 3})
    wide = breakevens.batch(predictor, drafting)
    narrow = breakevens.batch(predictor, drafting.after({"model": FOUR_BITS}))
    assert value(narrow) < 0.8 * value(wide)


def test_the_context_at_which_kv_passes_the_weights() -> None:
    """1 µs a token against 8 ms of weights: 8,000 tokens for one sequence, 2,000 each for four."""
    model = msgspec.structs.replace(MODEL, context=32_768)
    one, four = (stated_point(halves, sequences=n, model=model) for n in (1, 4))
    assert value(breakevens.context(Predictor(one))) == pytest.approx(8000)
    assert value(breakevens.context(Predictor(four))) == pytest.approx(2000)


def test_a_context_that_the_model_does_not_have() -> None:
    result = breakevens.context(Predictor(stated_point(halves)))
    assert result.value is None
    assert result.sentence == "With one sequence at a time, KV reads stay below weight reads up to 2,048 tokens."


def test_what_cannot_be_separated_is_said() -> None:
    point = stated_point(halves)
    assert point.times is not None
    point.times.unknown = {"attention": "all steps had the same context"}  # type: ignore[misc]
    result = breakevens.context(Predictor(point))
    assert result.value is None
    assert result.sentence == "Attention cannot be told apart: all steps had the same context"


def test_without_any_drafts_there_is_no_break_even() -> None:
    results = breakevens.all_of(Predictor(stated_point(halves)))
    assert found(results, "acceptance").sentence == "No drafts were made or shadowed here yet."


def test_intervals_widen_with_what_is_not_known() -> None:
    curves = {"draft": LotCurve(0.6, 1.0, EIGHT)}
    sure = Predictor(stated_point(halves, curves=curves))
    vague = Predictor(stated_point(halves, curves=curves, spread=0.1))
    widths = []
    for predictor in (sure, vague):
        tokens, _ = breakevens.acceptance(predictor, predictor.state.after({"speculation": "draft"}))
        assert tokens.value is not None
        widths.append(tokens.value.high - tokens.value.low)
    assert widths[0] < 1e-9
    assert widths[1] > 0.02


def vague(spread: float) -> tuple[BreakEven, ...]:
    curves = {"draft": LotCurve(0.6, 1.0, EIGHT, error=0.4)}
    return breakevens.all_of(Predictor(stated_point(halves, curves=curves, spread=spread, cached=0)))


@pytest.mark.parametrize("spread", [0.05, 0.3, 1.0, 2.0])
def test_intervals_hold_nothing_that_is_impossible(spread: float) -> None:
    limits = {
        "tokens per round": (1.0, None),
        "acceptance": (0.0, 1.0),
        "batch": (1.0, 64.0),
        "draft length": (1.0, 8.0),
    }
    for one in vague(spread):
        if one.value is not None and one.kind in limits:
            least, most = limits[one.kind]
            assert least <= one.value.low <= one.value.value <= one.value.high
            assert most is None or one.value.high <= most


def test_an_interval_that_says_nothing_is_none() -> None:
    results = vague(2.0)
    for kind, told in (
        ("acceptance", "begin to lose cannot be told yet: anything is possible."),
        ("batch", "begin to lose cannot be told yet: anywhere from 1 to 64 is possible."),
        ("draft length", ", but any from 1 to 8 may be the best."),
    ):
        one = found(results, kind)
        assert one.value is None, kind
        assert one.sentence.endswith(told)
