"""Laws of predictions, whatever the machine and the work."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Final

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stackscope.analysis.timing.shapes import Shape
from stackscope.analysis.whatif.predict import Predictor, predict
from stackscope.analysis.whatif.ranking import rank
from stackscope.analysis.whatif.transforms import Drafting, Prompts, drafts_of, forwards, rechunked
from stackscope.analysis.whatif.working_point import Chunk, Decoding, Round, WorkingPoint
from stackscope.records import Ubatch
from stackscope.toggles import Setting
from tests.unit.whatif_engine import Traffic, recorded
from tests.unit.whatif_machine import CONFIG, FOUR_BITS, Machine, pricing

WIDE: Final = msgspec.structs.replace(CONFIG, slots=8)


@cache
def worked(concurrency: int, seed: int) -> WorkingPoint:
    return recorded(Machine(), WIDE, Traffic(concurrency=concurrency), 200, seed)


machines = st.builds(
    Machine,
    bandwidth=st.floats(2e8, 2e10),
    row_ns=st.floats(1e3, 2e6),
    odd=st.floats(1.0, 2.0),
    kv_bandwidth=st.floats(1e8, 1e10),
    fixed_ns=st.floats(0.0, 5e6),
    sample_ns=st.floats(0.0, 1e6),
    host_ns=st.floats(1e4, 5e6),
    spread=st.floats(0.0, 0.1),
)


@st.composite
def points(draw: st.DrawFn) -> WorkingPoint:
    machine = draw(machines)
    point = worked(draw(st.sampled_from([1, 3, 8])), draw(st.integers(1, 3)))
    return msgspec.structs.replace(point, times=machine.times(WIDE, pricing(WIDE)))


singles = st.one_of(
    st.builds(lambda n: {"speculation": "ngram", "draft_length": n}, st.integers(1, 8)),
    st.builds(lambda n: {"speculation": "draft", "draft_length": n}, st.integers(1, 8)),
    st.just({"model": FOUR_BITS}),
    st.sampled_from(["q8_0", "q4_0"]).map(lambda kind: {"kv_type_k": kind, "kv_type_v": kind}),
    st.just({"flash_attention": False}),
    st.just({"unified_kv": False}),
    st.sampled_from([1, 2, 4]).map(lambda n: {"slots": n}),
    st.sampled_from([32, 64, 512]).map(lambda n: {"token_budget": n}),
    st.just({"threads": 1}),
)
Changes = dict[str, Setting]
FEW = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])


@FEW
@given(points(), singles)
def test_no_change_is_exactly_one(point: WorkingPoint, changes: Changes) -> None:
    now: Changes = {name: getattr(point.config, name) for name in changes}
    prediction = predict(point, now)
    for one in (prediction.tokens, prediction.step_gap, prediction.ttft):
        assert one is None or (one.value, one.low, one.high) == (1.0, 1.0, 1.0)
    assert prediction.tokens is not None
    assert prediction.changes == {}


@FEW
@given(points(), singles)
def test_there_and_back_is_one(point: WorkingPoint, changes: Changes) -> None:
    predictor = Predictor(point)
    there = predictor.compare(predictor.state, predictor.state.after(changes))
    back = predictor.compare(predictor.state.after(changes), predictor.state)
    assert not isinstance(there, str)
    assert not isinstance(back, str)
    assert there.tokens.value * back.tokens.value == pytest.approx(1.0)


@FEW
@given(points(), singles, singles)
def test_the_order_of_two_changes_does_not_matter(point: WorkingPoint, one: Changes, other: Changes) -> None:
    if one.keys() & other.keys():
        return
    first, second = predict(point, {**one, **other}), predict(point, {**other, **one})
    assert first.tokens == second.tokens
    assert first.ttft == second.ttft
    assert first.step_gap == second.step_gap


@FEW
@given(points(), singles, singles)
def test_steps_on_a_path_multiply_to_the_whole(point: WorkingPoint, one: Changes, other: Changes) -> None:
    if one.keys() & other.keys():
        return
    predictor = Predictor(point)
    start, middle = predictor.state, predictor.state.after(one)
    end = middle.after(other)
    parts = [predictor.compare(start, middle), predictor.compare(middle, end), predictor.compare(start, end)]
    ratios = [part.tokens.value for part in parts if not isinstance(part, str)]
    assert len(ratios) == 3
    assert ratios[0] * ratios[1] == pytest.approx(ratios[2])


@FEW
@given(points(), singles)
def test_an_interval_holds_its_value(point: WorkingPoint, changes: Changes) -> None:
    prediction = predict(point, changes)
    for one in (prediction.tokens, prediction.step_gap, prediction.ttft):
        assert one is None or (0.0 < one.low <= one.value <= one.high and math.isfinite(one.high))


@FEW
@given(points(), singles, st.floats(0.05, 0.2))
def test_a_machine_known_less_gives_no_narrower_interval(point: WorkingPoint, changes: Changes, spread: float) -> None:
    assert point.times is not None
    machine = point.times.machine  # type: ignore[attr-defined]
    widths = []
    for known in (0.0, 2.0 * spread):
        sure = replace(machine, spread=known)
        tokens = predict(msgspec.structs.replace(point, times=sure.times(WIDE, pricing(WIDE))), changes).tokens
        widths.append(math.inf if tokens is None else math.log(tokens.high / tokens.low))
    # A hundred draws of one thing and of another may happen to cancel a little.
    assert widths[1] >= 0.85 * widths[0]


@FEW
@given(points())
def test_what_removes_work_never_predicts_fewer_tokens(point: WorkingPoint) -> None:
    tokens = predict(point, {"model": FOUR_BITS}).tokens
    assert tokens is not None
    assert tokens.value >= 1.0


@settings(deadline=None, max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@given(points())
def test_nothing_is_recommended_whose_interval_holds_one(point: WorkingPoint) -> None:
    for one in rank(Predictor(point)).recommended:
        assert one.gain is not None
        assert not one.gain.holds(1.0)
        assert one.prediction.tokens is not None


decodings = st.lists(
    st.builds(Decoding, st.integers(0, 2000), st.integers(0, 8), st.integers(0, 63)), min_size=1, max_size=12
).map(tuple)


@given(decodings, st.floats(0.0, 1.0), st.floats(0.0, 8.0), st.integers(0, 100))
def test_drafts_keep_to_their_mean_and_the_budget(
    sequences: tuple[Decoding, ...], coverage: float, mean: float, spare: int
) -> None:
    mixture = drafts_of(sequences, Drafting("ngram", length=8, coverage=coverage, mean=mean), spare)
    assert sum(share for share, _ in mixture) == pytest.approx(1.0)
    assert all(sum(drafts) <= spare and min(drafts) >= 0 for _, drafts in mixture)
    if spare >= 8 * len(sequences):
        drafted = sum(share * sum(drafts) for share, drafts in mixture)
        # Steps rarer than one in fifty are left out, and tokens are whole.
        assert drafted == pytest.approx(len(sequences) * coverage * mean, abs=0.5 + 0.2 * len(sequences))


chunks = st.builds(
    lambda cached, new, more, found: Chunk(cached, new, new + more, found),
    st.integers(0, 3000), st.integers(1, 500), st.integers(0, 500), st.integers(0, 500),
)  # fmt: skip


@given(st.lists(chunks, min_size=1, max_size=4).map(tuple), st.floats(0.05, 3.0), st.integers(4, 600), st.booleans())
def test_chunks_compute_all_tokens_within_the_room(
    some: tuple[Chunk, ...], factor: float, room: int, was_full: bool
) -> None:
    made, times = rechunked(some, Prompts(factor), room, was_full)
    computed = times * sum(one.new for one in made)
    wanted = sum(one.new * max(factor, 1.0 / one.computed) for one in some)
    assert computed == pytest.approx(wanted)
    assert all(one.cached >= 0 and one.new >= 1 for one in made)
    # Each has a whole row at least and is rounded to whole rows, which may pass the room by less than a row each.
    assert sum(one.new for one in made) < max(room, len(made)) + len(made)


@given(decodings, st.floats(0.1, 6.0))
def test_shares_of_a_round_sum_to_one_and_rows_to_the_load(sequences: tuple[Decoding, ...], load: float) -> None:
    n = len(sequences)
    spans = tuple((one.cached, 1) for one in sequences)
    plain = Round(Shape(spans, n, (Ubatch(n, n),), (), sum(map(sum, spans))), sequences)
    steps = forwards(
        plain, WIDE, recorded=WIDE, load=load, drafting=Drafting(), prompts=Prompts(), idle_cells=None
    )  # fmt: skip
    assert sum(step.share for step in steps) == pytest.approx(1.0)
    mean = sum(step.share * step.sequences for step in steps)
    assert mean == pytest.approx(n * load, abs=0.05)
