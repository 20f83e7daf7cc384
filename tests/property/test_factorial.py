"""Laws of contrasts: what blocks have in common drops out, and effects compose as their definitions say."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackscope.analysis import factorial

logarithms = st.floats(-5, 5)


@st.composite
def experiments(draw: st.DrawFn) -> tuple[int, dict[int, list[float]]]:
    """(settings, responses of every combination in the same blocks)."""
    n = draw(st.integers(1, 4))
    n_blocks = draw(st.integers(2, 6))
    block = st.lists(logarithms, min_size=n_blocks, max_size=n_blocks)
    return n, {cell: draw(block) for cell in range(1 << n)}


def contrasts(n: int) -> list[factorial.Weights]:
    everything = (1 << n) - 1
    found = [factorial.speed_up(everything), factorial.product(everything), factorial.of_product(everything)]
    found += [factorial.averaged_effect(1 << i, n) for i in range(n)]
    found += [factorial.averaged_interaction(1 << i | 1 << j, n) for i in range(n) for j in range(i)]
    return found


@given(experiments(), st.data())
def test_what_a_block_has_in_common_drops_out(found: tuple[int, dict[int, list[float]]], data: st.DataObject) -> None:
    n, logs = found
    shifts = [data.draw(logarithms) for _ in logs[0]]
    shifted = {cell: [value + shift for value, shift in zip(some, shifts, strict=True)] for cell, some in logs.items()}
    for weights in contrasts(n):
        assert sum(weights.values()) == pytest.approx(0.0, abs=1e-12)
        before, after = factorial.estimate(logs, weights), factorial.estimate(shifted, weights)
        assert after.log == pytest.approx(before.log, abs=1e-9)
        assert after.error == pytest.approx(before.error, abs=1e-9)


@given(experiments())
def test_the_combination_is_its_product_times_its_interaction(found: tuple[int, dict[int, list[float]]]) -> None:
    n, logs = found
    for cell in range(1 << n):
        whole = factorial.estimate(logs, factorial.speed_up(cell)) if cell else None
        parts = [factorial.estimate(logs, make(cell)).log for make in (factorial.product, factorial.of_product)]
        assert sum(parts) == pytest.approx(0.0 if whole is None else whole.log, abs=1e-9)


@given(experiments())
def test_a_single_setting_has_no_interaction(found: tuple[int, dict[int, list[float]]]) -> None:
    _, logs = found
    one = factorial.estimate(logs, factorial.of_product(1))
    assert one.log == pytest.approx(0.0, abs=1e-9)
    assert one.error == pytest.approx(0.0, abs=1e-9)


@given(st.lists(logarithms, min_size=3, max_size=3), st.lists(logarithms, min_size=3, max_size=3), st.integers(2, 5))
def test_planted_effects_come_out(singles: list[float], pairs: list[float], n_blocks: int) -> None:
    """Without a triple interaction, a pair's is the same whether the third setting is on or off, hence on average."""
    by_pair = dict(zip((3, 5, 6), pairs, strict=True))
    logs = {
        cell: [
            sum(singles[i] for i in range(3) if cell >> i & 1)
            + sum(value for pair, value in by_pair.items() if cell & pair == pair)
        ]
        * n_blocks
        for cell in range(8)
    }
    for pair, value in by_pair.items():
        assert factorial.estimate(logs, factorial.of_product(pair)).log == pytest.approx(value, abs=1e-9)
        assert factorial.estimate(logs, factorial.averaged_interaction(pair, 3)).log == pytest.approx(value, abs=1e-9)


@given(st.floats(-1, 1), st.floats(1e-6, 0.5), st.integers(3, 30), st.floats(0.5, 0.999))
def test_intervals_are_nested_and_around_their_ratio(log: float, error: float, n: int, confidence: float) -> None:
    contrast = factorial.Contrast(log, error, n)
    inner, outer = contrast.interval(confidence), contrast.interval((1 + confidence) / 2)
    assert inner is not None
    assert outer is not None
    assert outer.low <= inner.low <= contrast.ratio <= inner.high <= outer.high
    assert math.sqrt(inner.low * inner.high) == pytest.approx(contrast.ratio)
    assert contrast.is_from_one(confidence) == (inner.low > 1 or inner.high < 1)
