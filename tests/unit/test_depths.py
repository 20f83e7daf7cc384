"""Forwards at depths of a context whose costs are known: what of them is found, and what is said where it cannot be."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from stackscope.analysis.ledger import Ledger
from stackscope.experiments import assembly, measurements
from stackscope.experiments.depths import OVERTIME, depths
from stackscope.experiments.measurements import Sampler
from stackscope.experiments.protocol import Budget, Findings, Item, Task
from stackscope.experiments.rounds import Rounds
from stackscope.experiments.samples import Sample
from stackscope.experiments.stages import Log
from stackscope.records import LayerSummary
from stackscope.toggles import EngineConfig
from tests.analysis_builders import dense_model
from tests.unit.fake_context import LOADING, SAVING, Clock, FakeContext

if TYPE_CHECKING:
    from collections.abc import Callable

    from stackscope.records.ceilings import ForwardTime

LAYER = LayerSummary(heads=4, kv_heads=2, key_length=64, value_length=64)
MODEL = dense_model(layers=[LAYER, LAYER])
BASE, TOKEN, ROW, OTHER = 600_000.0, 80.0, 10_000.0, 5.0
"""Nanoseconds of a forward, for each cached token, for each row, and for each cell of another sequence."""
SECONDS = 4.0


class Measured(NamedTuple):
    log: Log
    context: FakeContext
    took_s: float
    findings: Findings

    @property
    def depth(self) -> assembly.Depth:
        return assembly.cost_of_depth(self.findings, Ledger(MODEL))

    @property
    def contexts(self) -> tuple[ForwardTime, ...]:
        return assembly.forwards(self.findings, "context")


def exact(cached: int, rows: int, others: int) -> float:
    return BASE + TOKEN * cached + ROW * rows + OTHER * others


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of everything that is timed."""
    made = Clock()
    monkeypatch.setattr(measurements, "time", SimpleNamespace(perf_counter_ns=made))
    return made


def measured(
    clock: Clock, cost_ns: Callable[[int, int, int], float] = exact, *, row_ns: float = ROW, **context: Any
) -> Measured:
    """What is found of a context with such costs; `row_ns` is what a row took in the forwards before it."""
    fake, log, sampler = FakeContext(clock, cost_ns, **context), Log(), Sampler(clock)
    for rows in (1, 4, 512):
        log.add(Item(kind="forward", rows=rows, sequences=1, outputs=1), Sample(BASE + row_ns * rows))
    budget = Budget(curves_s=1.0, contexts_s=SECONDS, rebuilds_s=1.0, most=9)
    task = Task(config=EngineConfig(), budget=budget, cache_bytes=None, memory_bytes=1 << 30)
    began_ns = clock.ns
    depths(fake, sampler, log, Rounds(sampler, log), task, lambda _: None)  # type: ignore[arg-type]
    findings = Findings(library="L", threads=2, is_gpu=False, model=MODEL, draft=None, series=log.series())
    return Measured(log, fake, (clock.ns - began_ns) / 1e9, findings)


def test_known_costs_are_found_at_every_depth(clock: Clock) -> None:
    found = measured(clock)
    assert {time.cached for time in found.contexts} == {0, 256, 512, 1024, 2048, 4096, 8192}
    for time in found.contexts:
        assert time.ns.value == pytest.approx(exact(time.cached, time.rows, time.others)), time
    assert {(time.rows, time.outputs) for time in found.contexts} == {(1, 1), (4, 4), (64, 1)}
    assert {time.cached for time in found.contexts if time.rows == 64} == {512, 4096}
    # An empty sequence beside as many cells as there are; a forward passes over them, and over the padding.
    assert {(time.cached, time.others) for time in found.contexts if time.others} == {(0, 8192)}
    depth = found.depth
    assert depth.why_not is None
    assert depth.ns_per_token is not None
    assert depth.ns_per_token.value == pytest.approx(TOKEN, rel=1e-3)
    assert depth.ns_per_token.spread == pytest.approx(0, abs=1e-6)
    assert depth.ns_per_token.n >= 5
    assert all(not held for held in found.context.cells.values())
    assert found.took_s <= OVERTIME * SECONDS


def test_handing_over_a_state_is_timed_by_its_bytes(clock: Clock) -> None:
    moved = assembly.handoff(measured(clock).findings)
    assert moved is not None
    assert (moved.tokens, moved.state_bytes) == (2048, 8 * 2048)
    assert moved.save_bytes_per_s.value == pytest.approx(SAVING * 1e9, rel=1e-3)
    assert moved.load_bytes_per_s.value == pytest.approx(LOADING * 1e9, rel=1e-3)


def test_noise_and_a_machine_of_two_states_leave_the_slope(clock: Clock) -> None:
    draw = random.Random(3)

    def noisy(cached: int, rows: int, others: int) -> float:
        level = 1.3 if clock.ns // 700_000_000 % 2 else 1.0
        return exact(cached, rows, others) * level * draw.lognormvariate(0.0, 0.03)

    depth = measured(clock, noisy).depth
    assert depth.why_not is None
    assert depth.ns_per_token is not None
    # Between what it is in one state and in the other.
    assert 0.93 * TOKEN <= depth.ns_per_token.value <= 1.4 * TOKEN


def test_rare_interruptions_do_not_reach_the_slope(clock: Clock) -> None:
    draw = random.Random(5)

    def interrupted(cached: int, rows: int, others: int) -> float:
        return exact(cached, rows, others) + (20_000_000 if draw.random() < 0.02 else 0)

    found = measured(clock, interrupted).depth.ns_per_token
    assert found is not None
    assert found.value == pytest.approx(TOKEN, rel=0.05)


def test_descents_that_do_not_agree_are_unknown_with_that_as_the_reason(clock: Clock) -> None:
    def changing(cached: int, rows: int, others: int) -> float:
        factor = (0.5, 4.0, 1.0, 8.0)[clock.ns // 350_000_000 % 4]
        return exact(0, rows, others) + factor * TOKEN * cached

    depth = measured(clock, changing).depth
    assert (depth.ns_per_token, depth.read_bytes_per_s) == (None, None)
    assert depth.why_not is not None
    assert depth.why_not.startswith("its samples differ by ")
    assert depth.why_not.endswith(" %, too much for a figure")


def test_depths_that_cost_nothing_that_is_seen_are_lost_in_the_noise(clock: Clock) -> None:
    depth = measured(clock, lambda cached, rows, others: exact(0, rows, others) - 2.0 * cached).depth
    assert depth == assembly.Depth(why_not="what cached tokens cost is lost in the noise")


@pytest.mark.parametrize("lacking", [{"is_unified": False}, {"can_shift": False}])
def test_where_cells_cannot_be_copied_it_goes_as_deep_as_there_is_time(clock: Clock, lacking: dict[str, bool]) -> None:
    row_ns = 1_000_000.0
    found = measured(clock, lambda cached, rows, _: BASE + 80 * cached + row_ns * rows, row_ns=row_ns, **lacking)
    # Half of four seconds, at a quarter of a second for 256 tokens.
    assert max(time.cached for time in found.contexts) in (1536, 1792)
    assert found.took_s <= OVERTIME * SECONDS
    assert found.depth.ns_per_token is not None
    assert found.depth.ns_per_token.value == pytest.approx(80, rel=0.01)


def test_a_small_context_is_gone_through_to_its_end(clock: Clock) -> None:
    found = measured(clock, n_ctx=1024)
    # 64 tokens are left for what is timed there.
    assert {time.cached for time in found.contexts} == {0, 256, 512, 768}
    assert found.depth.ns_per_token is not None
    assert found.depth.ns_per_token.value == pytest.approx(TOKEN, rel=1e-3)


def test_a_context_without_a_second_sequence_hands_nothing_over_and_says_so(clock: Clock) -> None:
    found = measured(clock, n_seq_max=1)
    assert assembly.handoff(found.findings) is None
    assert found.log.unknown["hand-off"].startswith("the context has no room for the state of a second sequence")
    assert not [time for time in found.contexts if time.others]
    assert found.depth.ns_per_token is not None


def test_a_machine_too_slow_to_fill_a_context_says_so(clock: Clock) -> None:
    row_ns = 100_000_000.0
    found = measured(clock, lambda cached, rows, _: BASE + cached + row_ns * rows, row_ns=row_ns)
    assert {time.cached for time in found.contexts} == {0}
    assert found.log.unknown["hand-off"] == "there was no time to fill a context"
    assert found.depth.why_not == "the context holds too few tokens to see what they cost"


def test_a_machine_that_turns_slow_ends_the_stage_in_time(clock: Clock) -> None:
    def slowing(cached: int, rows: int, others: int) -> float:
        return exact(cached, rows, others) * (200 if clock.ns > 1e9 else 1)

    found = measured(clock, slowing)
    # What is being timed when the time is up is still finished.
    assert found.took_s <= OVERTIME * SECONDS + 1.0
