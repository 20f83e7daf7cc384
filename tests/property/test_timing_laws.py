"""Laws of the time model that hold whatever was measured."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stackscope.analysis.ledger import Ledger
from stackscope.analysis.ledgers import Pricing
from stackscope.analysis.timing.curves import INCREMENTS, KNOTS, Curve, increments
from stackscope.analysis.timing.fit import Fit
from stackscope.analysis.timing.shapes import Shape
from stackscope.analysis.timing.terms import TERMS, Terms
from stackscope.records import LayerSummary, Phases, SlotWork, Ubatch
from tests.unit.record_builders import make_model, make_step
from tests.unit.timing_machines import CONFIG, Machine, quantised

if TYPE_CHECKING:
    from stackscope.analysis.timing.model import TimeModel
    from stackscope.records import StepRecord

_FULL = LayerSummary(heads=8, kv_heads=2, key_length=64, value_length=64)
_WINDOWED = msgspec.structs.replace(_FULL, window=512)


@cache
def model_of(kind: str) -> TimeModel:
    """Of a machine that was calibrated, only run, or neither on a CPU nor without windows."""
    layers = (_WINDOWED, _WINDOWED, _FULL, _WINDOWED) if kind == "windowed" else (_FULL,) * 4
    machine = Machine(model=make_model(layers=layers), single_flops=9e9)
    ceilings = None if kind == "plain" else machine.calibrated(noise=0.05, seed=3)
    fit = Fit(ceilings, is_gpu=kind == "gpu")
    fit.begin(CONFIG, machine.pricing)
    if kind != "unrun":
        fit.add(machine.traffic(150, seed=5, noise=0.2))
    model = fit.model()
    assert model is not None
    return model


kinds = st.sampled_from(("calibrated", "plain", "unrun", "gpu", "windowed"))
spans = st.lists(st.tuples(st.integers(0, 9_000), st.integers(1, 300)), min_size=1, max_size=6).map(tuple)


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    of = draw(spans)
    rows = sum(new for _, new in of)
    outputs = draw(st.integers(0, rows))
    longest = max(cached + new for cached, new in of)  # Others may share its cells.
    cells = draw(st.one_of(st.just(0), st.integers(longest, longest + 40_000)))
    cut = draw(st.integers(1, 3))
    sizes = [rows // cut + (index < rows % cut) for index in range(cut)]
    passes = tuple(Ubatch(size, min(size, outputs)) for size in sizes if size)
    return Shape(of, min(outputs, sum(p.outputs for p in passes)), passes, cells=cells)


@given(kinds, shapes())
@settings(deadline=None)
def test_terms_are_not_negative_and_sum_to_the_prediction(kind: str, shape: Shape) -> None:
    terms = model_of(kind).terms(shape)
    assert all(value >= 0.0 for value in terms)
    assert sum(terms) == pytest.approx(terms.total)
    assert terms.forward <= terms.total
    assert Terms._fields == TERMS


@given(kinds, shapes(), st.integers(0, 5), st.integers(1, 3_000))
@settings(deadline=None)
def test_more_context_never_predicts_less_time(kind: str, shape: Shape, which: int, more: int) -> None:
    model = model_of(kind)
    which %= len(shape.spans)
    cached, new = shape.spans[which]
    deeper = (*shape.spans[:which], (cached + more, new), *shape.spans[which + 1 :])
    other = msgspec.structs.replace(shape, spans=deeper, cells=shape.cells + more if shape.cells else 0)
    assert model.terms(other).total >= model.terms(shape).total * (1 - 1e-9)


@given(kinds, shapes(), st.integers(1, 20_000))
@settings(deadline=None)
def test_more_idle_cells_never_predict_less_time(kind: str, shape: Shape, more: int) -> None:
    # Threads share the cells of a single row, and where they lie decides how evenly.
    assume(shape.rows >= 2 * len(shape.passes))
    model = model_of(kind)
    own = sum(cached + new for cached, new in shape.spans)
    few, many = (msgspec.structs.replace(shape, cells=own + extra) for extra in (0, more))
    assert model.terms(many).total >= model.terms(few).total * (1 - 1e-9)


@given(kinds, shapes())
@settings(deadline=None)
def test_two_passes_never_read_less_than_one(kind: str, shape: Shape) -> None:
    model = model_of(kind)
    rows, outputs = sum(one.rows for one in shape.passes), sum(one.outputs for one in shape.passes)
    halves = (Ubatch(rows - rows // 2, outputs), Ubatch(rows // 2, 0))
    one, two = (
        model.terms(msgspec.structs.replace(shape, outputs=outputs, passes=passes))
        for passes in ((Ubatch(rows, outputs),), halves)
    )
    assert two.weights + two.fixed >= one.weights + one.fixed


@given(kinds, st.lists(shapes(), min_size=1, max_size=4), st.integers(0, 99))
@settings(deadline=None, max_examples=40)
def test_a_draw_is_one_machine_for_all_shapes(kind: str, several: list[Shape], seed: int) -> None:
    model = model_of(kind)
    together = model.draws(several, n=20, seed=seed)
    assert together.shape == (20, len(several))
    assert np.all(together > 0.0)
    for index, shape in enumerate(several):
        np.testing.assert_allclose(model.draws([shape], n=20, seed=seed)[:, 0], together[:, index], rtol=1e-9)


@given(kinds, shapes())
@settings(deadline=None, max_examples=40)
def test_draws_are_paired_between_models(kind: str, shape: Shape) -> None:
    """What two models share leaves their ratio: for the same weights in the same place nothing is left at all."""
    model = model_of(kind)
    other = model.under(msgspec.structs.replace(CONFIG, slots=3), model.pricing)
    assert not isinstance(other, str)
    np.testing.assert_array_equal(other.draws([shape], n=50), model.draws([shape], n=50))
    small = quantised(Machine(model=make_model()))
    config = msgspec.structs.replace(CONFIG, model="/x/synthetic-Q4_0.gguf")
    scaled = model.under(config, Pricing(Ledger(small.model), None, 2))
    assert not isinstance(scaled, str)
    here, there = model.draws([shape], n=400)[:, 0], scaled.draws([shape], n=400)[:, 0]
    shuffled = np.random.default_rng(0).permutation(there)
    assert np.std(np.log(there / here)) <= np.std(np.log(shuffled / here)) + 0.02


@given(kinds, shapes())
@settings(deadline=None, max_examples=40)
def test_intervals_hold_what_is_most_likely(kind: str, shape: Shape) -> None:
    model = model_of(kind)
    interval = model.interval(shape)
    assert 0.0 < interval.low <= interval.high
    assert interval.low <= interval.value * 1.3
    assert interval.high >= interval.value / 1.3


@given(st.integers(0, 5_000), st.booleans())
def test_columns_of_a_curve_add_up_to_its_rows(rows: int, is_blocked: bool) -> None:
    """If every increment took as long as it has rows, so would the product: all but the first row are in it."""
    columns = Curve(is_blocked=is_blocked).columns(rows)
    assert np.all(columns >= 0.0)
    assert columns @ np.array([one.rows for one in increments()]) == pytest.approx(max(0, rows - 1))
    assert len(columns) == len(INCREMENTS)


def test_knots_are_whole_blocks() -> None:
    assert all(knot % 4 == 0 for knot in KNOTS)
    assert list(KNOTS) == sorted(KNOTS)


@st.composite
def strange_steps(draw: st.DrawFn) -> list[StepRecord]:
    """Steps that no machine makes: any times, any counts, none of it consistent."""
    times = st.one_of(st.integers(0, 10), st.integers(10**5, 10**8), st.just(10**15))
    slots = st.builds(
        SlotWork, request=st.just(0), slot=st.just(0), phase=st.just("decode"), new=st.integers(1, 600),
        cached=st.integers(0, 10**6), drafted=st.integers(0, 4), outputs=st.integers(0, 9),
    )  # fmt: skip
    steps = []
    for n in range(draw(st.integers(1, 30))):
        work = tuple(draw(st.lists(slots, max_size=4)))
        phases = Phases(decode=draw(times), sample=draw(times), other=draw(times), draft=draw(times))
        cpu_ns = draw(st.one_of(st.none(), times))
        steps.append(make_step(n, work=work, phases=phases, cpu_ns=cpu_ns, kv_cells=draw(st.integers(0, 10**6))))
    return steps


@given(strange_steps(), st.booleans(), shapes())
@settings(deadline=None, max_examples=60)
def test_whatever_comes_the_model_is_finite(steps: list[StepRecord], is_calibrated: bool, shape: Shape) -> None:
    machine = Machine()
    fit = Fit(machine.calibrated() if is_calibrated else None)
    fit.begin(CONFIG, machine.pricing)
    fit.add(steps)
    model = fit.model()
    if model is None:
        assert not is_calibrated
        assert not any(step.work for step in steps)
        return
    assert np.isfinite(model.terms(shape)).all()
    assert np.isfinite(model.draws([shape], n=20)).all()
    interval = model.interval(shape)
    assert 0.0 <= interval.low <= interval.high < float("inf")
    assert 0.0 < model.residual < float("inf")
