"""Laws of comparisons: arrays count as the ledger does, a session is not different from itself, and B ÷ A inverts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackscope.analysis.comparing import counting
from stackscope.analysis.comparing.collecting import METRICS, Collector
from stackscope.analysis.comparing.intervals import Blocks, ratio_of_rates
from stackscope.analysis.comparing.thresholds import conditions
from stackscope.analysis.ledger import Ledger, WorkSum
from stackscope.errors import UsageError
from tests.analysis_builders import attention, dense_model, lab_target, sparse_model, step
from tests.property.test_metrics_laws import HEADER, sessions, slots, summed

if TYPE_CHECKING:
    from stackscope.analysis.comparing.thresholds import Condition
    from stackscope.records import SlotWork, StepRecord

CHUNKED = dense_model(layers=[attention(window=64), attention()], architecture="llama4")
MODELS = {
    "full": lab_target(),
    "window": dense_model(layers=[attention(), attention(window=48), attention(window=48)], tied_head=False),
    "chunks": CHUNKED,
    "experts": sparse_model(),
}


@given(sessions())
def test_a_session_in_arrays_has_the_metrics_of_its_records(session: list[StepRecord]) -> None:
    collector = Collector("x")
    collector.take([HEADER, *session])
    found, expected = collector.digest().values, summed(session).result().values
    for metric in METRICS:
        assert found[metric.tag] == expected[metric.tag], metric.tag


@pytest.mark.parametrize("name", MODELS)
@given(st.lists(st.lists(slots(), min_size=1, max_size=4), min_size=1, max_size=6))
def test_arrays_count_and_price_as_the_ledger_does(name: str, forwards: list[list[SlotWork]]) -> None:
    ledger = Ledger(MODELS[name])
    steps = [step(*work, n=n) for n, work in enumerate(forwards)]
    found = counting.count(ledger, spans_of(steps), passes_of(steps))
    one_by_one = WorkSum()
    for each in steps:
        one_by_one.add(ledger.count(each))
    expected = one_by_one.total
    for field in expected.__struct_fields__:
        assert getattr(found.total, field) == pytest.approx(getattr(expected, field)), field
    prices = counting.price(ledger, found)
    for index, each in enumerate(steps):
        account = ledger.account(each)
        assert prices[:, index].sum() == pytest.approx(float(account.total_bytes))
        assert prices[2, index] == account.kv_bytes


def spans_of(steps: list[StepRecord]) -> counting.Spans:
    work = [slot for each in steps for slot in each.work]
    first = np.cumsum([0, *[len(each.work) for each in steps[:-1]]])
    return counting.Spans(np.array([slot.cached for slot in work]), np.array([slot.new for slot in work]), first)


def passes_of(steps: list[StepRecord]) -> counting.Passes:
    rows, outputs = np.array([each.rows for each in steps]), np.array([each.outputs for each in steps])
    return counting.Passes(rows, outputs, np.arange(len(steps)))


amounts = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 10**6)), min_size=4, max_size=60)


def blocks_of(pairs: list[tuple[int, int]]) -> Blocks:
    tokens, bases = (np.array(side, dtype=float) for side in zip(*pairs, strict=True))
    return Blocks(tokens, bases, tokens)


@given(amounts, amounts, st.booleans())
def test_the_ratio_of_the_other_way_round_is_the_inverse(
    one: list[tuple[int, int]], other: list[tuple[int, int]], is_same: bool
) -> None:
    there = ratio_of_rates(blocks_of(one), blocks_of(other), is_same_work=is_same)
    back = ratio_of_rates(blocks_of(other), blocks_of(one), is_same_work=is_same)
    assert not isinstance(there, str)
    assert not isinstance(back, str)
    assert there.how == back.how
    assert there.interval.low <= there.interval.value <= there.interval.high
    assert math.log(there.interval.value) == pytest.approx(-math.log(back.interval.value), abs=1e-9)
    if there.interval.high < 1e15:
        assert math.log(there.interval.high) == pytest.approx(-math.log(back.interval.low), abs=1e-6)


@given(amounts)
def test_a_session_is_its_own_equal(pairs: list[tuple[int, int]]) -> None:
    found = ratio_of_rates(blocks_of(pairs), blocks_of(pairs), is_same_work=True)
    assert not isinstance(found, str)
    assert found.interval.holds(1.0)


@given(st.text(alphabet="tpo_95<>+-% ms,0.x\n", max_size=24) | st.text(max_size=12))
def test_any_expression_is_understood_or_refused_with_a_remedy(text: str) -> None:
    remedy: str | None = ""
    found: tuple[Condition, ...] = ()
    try:
        found = conditions(text)
    except UsageError as error:
        remedy = error.remedy
    assert remedy or found
    assert all(math.isfinite(one.limit) for one in found)
