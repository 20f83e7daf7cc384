"""What holds for every target, draft and row: the identity behind losslessness, supports, the chain's truncation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from stackscope.engine.sampling import (
    Distribution,
    NumpyTruncation,
    distribution_from_logits,
    draw,
    greedy_accept,
    greedy_accept_batch,
    probability,
    residual,
    synthetic_accept,
    verify,
)
from tests.sampler_chain import check_against_chain

units = st.floats(0.0, 1.0, exclude_max=True)
logits = st.floats(-40.0, 40.0, width=32)


@st.composite
def distributions(draw_: st.DrawFn) -> Distribution:
    """Distributions over a few tokens in any order, zeros and tiny probabilities among them."""
    ids = draw_(st.lists(st.integers(0, 9), min_size=1, max_size=8, unique=True))
    sizes = st.one_of(st.just(0.0), st.floats(1e-12, 1.0))
    weights = np.array(draw_(st.lists(sizes, min_size=len(ids), max_size=len(ids))))
    if weights.sum() == 0.0:
        weights[0] = 1.0
    return Distribution(np.array(ids, np.int32), weights / weights.sum())


@given(distributions(), distributions())
def test_accepting_and_resampling_add_up_to_the_target(p: Distribution, q: Distribution) -> None:
    """P(x) = min(p, q)(x) + (1 − Σ min(p, q)) · residual(x) = p(x): what verification emits for one draft of q."""
    overlap = {t: min(probability(p, t), probability(q, t)) for t in range(10)}
    rejected = 1.0 - sum(overlap.values())
    lacking = residual(p, q)
    assert lacking.probs.sum() == pytest.approx(1.0)
    for token in range(10):
        emitted = overlap[token] + rejected * probability(lacking, token)
        assert emitted == pytest.approx(probability(p, token), abs=1e-9)


@given(distributions(), units | st.just(1.0 - 2.0**-53))
def test_draw_is_the_quantile(d: Distribution, u: float) -> None:
    token = draw(d, u)
    index = d.ids.tolist().index(token)
    assert d.probs[index] > 0.0
    assert d.probs[:index].sum() <= u + 1e-12
    assert d.probs[: index + 1].sum() >= u - 1e-12


@given(st.lists(distributions(), min_size=1, max_size=6), st.data())
def test_verification_stays_within_bounds_and_supports(p_rows: list[Distribution], data: st.DataObject) -> None:
    k = len(p_rows) - 1
    q_rows = data.draw(st.lists(st.none() | distributions(), min_size=k, max_size=k))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    drafts = [data.draw(st.integers(0, 9)) if q is None else draw(q, rng.random()) for q in q_rows]
    accepted, following = verify(p_rows, drafts, q_rows, rng)
    assert 0 <= accepted <= k
    assert all(probability(p, token) > 0.0 for p, token in zip(p_rows, drafts[:accepted], strict=False))
    assert probability(p_rows[accepted], following) > 0.0
    if accepted < k and q_rows[accepted] is None:
        assert following != drafts[accepted]


@given(st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=6), max_size=8))
def test_the_batch_accepts_what_each_sequence_would(batch: list[list[tuple[int, int]]]) -> None:
    """Rows are (fed, chosen) pairs, from an alphabet of 3 so that neighbours often agree by chance."""
    starts = np.cumsum([0] + [len(rows) for rows in batch])
    fed = np.array([fed for rows in batch for fed, _ in rows], np.int32)
    choices = np.array([choice for rows in batch for _, choice in rows], np.int64)
    expected = [greedy_accept([c for _, c in rows], [f for f, _ in rows[1:]]) for rows in batch]
    assert greedy_accept_batch(choices, fed, starts).tolist() == expected


@given(st.integers(0, 16), st.floats(0.0, 1.0), st.integers(0, 2**32))
def test_synthetic_acceptance_stays_within_bounds(n: int, rate: float, seed: int) -> None:
    assert 0 <= synthetic_accept(n, rate, np.random.default_rng(seed)) <= n


@given(hnp.arrays(np.float32, st.integers(1, 60), elements=logits), st.floats(0.05, 5.0))
def test_softmax_is_a_distribution_in_the_order_of_the_logits(row: np.ndarray, temperature: float) -> None:
    d = distribution_from_logits(np.arange(len(row), dtype=np.int32), row, temperature)
    assert d.probs.sum() == pytest.approx(1.0)
    assert (d.probs >= 0.0).all()
    order = np.argsort(row, kind="stable")
    assert (np.diff(d.probs[order]) >= 0.0).all()


settings = st.builds(
    NumpyTruncation,
    st.integers(-1, 70),
    st.one_of(st.just(1.0), st.floats(0.0, 1.2)),
    st.one_of(st.just(0.0), st.floats(-0.1, 1.2)),
    st.integers(0, 5),
)


@given(settings, hnp.arrays(np.float32, st.integers(1, 60), elements=st.one_of(logits, st.sampled_from([0.0, 1.0]))))
def test_truncation_agrees_with_the_chain_on_any_row(setting: NumpyTruncation, row: np.ndarray) -> None:
    check_against_chain(setting, row)


@given(settings, st.integers(0, 2**32), st.sampled_from([1_030, 12_345, 70_000]), st.floats(0.1, 8.0))
def test_truncation_agrees_with_the_chain_on_vocabularies(
    setting: NumpyTruncation, seed: int, n_vocab: int, scale: float
) -> None:
    row = (scale * np.random.default_rng(seed).standard_normal(n_vocab)).astype(np.float32)
    check_against_chain(setting, row)
