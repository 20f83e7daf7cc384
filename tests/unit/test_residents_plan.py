"""The plans that are made without the scheduler are those that it would make."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from hypothesis import example, given
from hypothesis import strategies as st

from stackscope.engine import residents as module
from stackscope.engine.residents import Residents
from stackscope.engine.scheduler import Plan, SlotView, plan_step
from stackscope.engine.sequence import Sequence
from stackscope.toggles import EngineConfig
from stackscope.workload.jobs import Job

if TYPE_CHECKING:
    import pytest

    from stackscope.engine.backend import Backend


def decoding(slot: int, order: int, *, want: int, pending: int) -> Sequence:
    """A running request that has generated `pending` tokens which are not in the cache."""
    job = Job(id=slot, tokens=(1, 2, 3), max_tokens=40, arrived_ns=0)
    sequence = Sequence(job, max_context=100, piece=lambda _: b"", keep_text=False)
    sequence.slot, sequence.order, sequence.want = slot, order, want
    sequence.n, sequence.kv = 8 + pending, 8
    return sequence


def residents(n_ctx: int, *, is_unified: bool) -> Residents:
    """Nothing is cached, so that nothing can be evicted."""
    size = SimpleNamespace(
        n_ctx=n_ctx, is_unified=is_unified, path_ids=range(64, 96), guard_ids=range(0), has_guards=False
    )
    backend = SimpleNamespace(memory=SimpleNamespace(apply=list), size=size, spec=SimpleNamespace(layers=()))
    return Residents(cast("Backend", backend), EngineConfig(prefix_cache=False))


@given(
    wants=st.lists(st.sampled_from((0, 0, 0, 0, 0, 0, 2)), max_size=6),
    pending=st.lists(st.sampled_from((1, 1, 1, 1, 1, 1, 2)), min_size=6, max_size=6),
    slots=st.permutations(range(6)),
    rows_beyond=st.integers(-1, 2),
    cells_beyond=st.integers(-1, 2),
    is_unified=st.booleans(),
    cursor=st.integers(-1, 6),
)
@example([0, 0], [1] * 6, [0, 1, 2, 3, 4, 5], 0, -1, True, 0)  # a cell short
@example([0, 0], [1] * 6, [0, 1, 2, 3, 4, 5], -1, 0, True, 0)  # a row short
@example([0, 2], [1] * 6, [0, 1, 2, 3, 4, 5], 2, 2, True, 0)  # one drafts
def test_the_short_way_agrees_with_the_scheduler(
    wants: list[int],
    pending: list[int],
    slots: list[int],
    rows_beyond: int,
    cells_beyond: int,
    is_unified: bool,
    cursor: int,
) -> None:
    """With budgets and rooms around what one row for each takes."""
    running = [
        decoding(slot, order, want=want, pending=n)
        for order, (want, n, slot) in enumerate(zip(wants, pending, slots, strict=False))
    ]
    budget = max(1, len(running) + rows_beyond)
    free = max(0, len(running) + cells_beyond)
    plan, victim = residents(8 * len(running) + free, is_unified=is_unified).plan(running, budget, cursor)
    views = [SlotView(s.slot, s.order, s.n - s.kv, s.is_decoding, s.want) for s in running]
    expected = plan_step(views, token_budget=budget, free_cells=free if is_unified else None, cursor=cursor)
    assert plan == expected
    if plan.need_cells == 0:
        assert victim is None
    else:
        assert victim == (running[0].slot if plan.is_stuck else plan.preempt)


def test_a_step_of_decoding_requests_asks_no_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "plan_step", None)
    running = [decoding(slot, order, want=0, pending=1) for order, slot in enumerate((1, 0))]
    plan, victim = residents(1_000, is_unified=True).plan(running, 8, 5)
    assert plan == Plan([(1, 0), (0, 0)], [], cursor=5)
    assert victim is None


@given(
    pending=st.integers(1, 40),
    budget=st.integers(1, 50),
    free=st.integers(0, 50),
    is_unified=st.booleans(),
    cursor=st.integers(-1, 6),
)
@example(20, 10, 9, True, 0)  # a cell short
@example(1, 1, 1, True, 0)
def test_a_lone_prompt_is_planned_as_the_scheduler_would(
    pending: int, budget: int, free: int, is_unified: bool, cursor: int
) -> None:
    running = [prefilling(3, pending)]
    plan, victim = residents(8 + free, is_unified=is_unified).plan(running, budget, cursor)
    expected = plan_step(
        [SlotView(3, 0, pending, False)], token_budget=budget, free_cells=free if is_unified else None, cursor=cursor
    )
    assert plan == expected
    assert victim == (3 if plan.is_stuck else None)


def prefilling(slot: int, pending: int) -> Sequence:
    """A running request of whose prompt 8 tokens are in the cache and `pending` are not."""
    job = Job(id=slot, tokens=(1,) * (8 + pending), max_tokens=40, arrived_ns=0)
    sequence = Sequence(job, max_context=100, piece=lambda _: b"", keep_text=False)
    sequence.slot, sequence.order, sequence.kv = slot, 0, 8
    return sequence


def test_a_step_of_a_lone_prompt_asks_no_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "plan_step", None)
    plan, victim = residents(1_000, is_unified=True).plan([prefilling(2, 30)], 16, 5)
    assert plan == Plan([], [(2, 16)], cursor=5)
    assert victim is None
