"""What the scheduler plans, row by row."""

from __future__ import annotations

import pytest

from stackscope.engine.scheduler import (
    FIRST_PREFILL_ROWS,
    FORWARD_LIMIT_NS,
    HEADROOM,
    BudgetGovernor,
    Plan,
    SlotView,
    admissions,
    plan_step,
)

MS = 1_000_000


def decoding(index: int, drafts: int = 0) -> SlotView:
    """A slot admitted in the order of its index."""
    return SlotView(index, index, 0, True, drafts)


def waiting(index: int, remaining: int) -> SlotView:
    return SlotView(index, index, remaining, False)


def test_nothing_running_is_an_empty_plan() -> None:
    plan = plan_step([], token_budget=8, free_cells=0)
    assert (plan.decode, plan.prefill, plan.rows) == ([], [], 0)
    assert not plan.is_stuck


def test_decode_rows_come_first_and_prefill_gets_the_rest() -> None:
    plan = plan_step([waiting(0, 100), decoding(1, 2), decoding(2, 2)], token_budget=16)
    # 2 × (1 + 2) rows decode, 16 − 6 = 10 prefill.
    assert plan == Plan([(1, 2), (2, 2)], [(0, 10)])
    assert plan.rows == 16


def test_prefill_chunks_go_by_admission_not_by_slot() -> None:
    views = [SlotView(0, 9, 5, False), SlotView(1, 3, 6, False), SlotView(2, 5, 7, False)]
    assert plan_step(views, token_budget=16).prefill == [(1, 6), (2, 7), (0, 3)]


def test_drafts_are_cut_before_anyone_loses_its_row() -> None:
    views = [decoding(i, 3) for i in range(4)]
    # 4 rows of 6 are the slots' own; 2 of 12 drafts fit.
    plan = plan_step(views, token_budget=6)
    assert [index for index, _ in plan.decode] == [0, 1, 2, 3]
    assert sorted(n for _, n in plan.decode) == [0, 0, 1, 1]
    assert plan_step(views, token_budget=4).decode == [(0, 0), (1, 0), (2, 0), (3, 0)]


def test_whoever_wants_few_drafts_gets_them() -> None:
    views = [decoding(0, 8), decoding(1, 1), decoding(2, 8), decoding(3, 0)]
    # 13 − 4 = 9 drafts to give: 0, 1, and the remaining 8 in halves.
    assert plan_step(views, token_budget=13).decode == [(0, 4), (1, 1), (2, 4), (3, 0)]


def test_a_waiting_prefill_is_kept_a_quarter_of_the_budget() -> None:
    views = [*[decoding(i, 7) for i in range(4)], waiting(4, 100)]
    # 32 rows of 4 × 8 would take all 32; 8 are kept, so 32 − 8 − 4 = 20 drafts.
    plan = plan_step(views, token_budget=32)
    assert plan.decode == [(0, 5), (1, 5), (2, 5), (3, 5)]
    assert plan.prefill == [(4, 8)]
    # No more is kept than waits: 3 rows.
    assert plan_step([*views[:4], waiting(4, 3)], token_budget=32).prefill == [(4, 3)]


def test_more_decoders_than_budget_take_turns() -> None:
    views = [decoding(i, 1) for i in range(5)]
    served: list[int] = []
    cursor = -1
    for _ in range(5):
        plan = plan_step(views, token_budget=2, cursor=cursor)
        assert plan.rows == 2
        served += [index for index, _ in plan.decode]
        cursor = plan.cursor
    # 5 steps of 2 rows serve each of 5 slots twice.
    assert sorted(served) == sorted([0, 1, 2, 3, 4] * 2)


def test_prefill_takes_its_turn_among_too_many_decoders() -> None:
    views = [*[decoding(i) for i in range(3)], waiting(3, 10)]
    cursor = -1
    chunks, decoded = 0, 0
    for _ in range(8):
        plan = plan_step(views, token_budget=3, cursor=cursor)
        assert plan.rows == 3
        chunks += sum(n for _, n in plan.prefill)
        decoded += len(plan.decode)
        cursor = plan.cursor
    # 8 steps of 3 rows, shared by 4: 6 rows each.
    assert (chunks, decoded) == (6, 18)


def test_a_budget_of_one_row_serves_everybody() -> None:
    views = [decoding(0, 4), waiting(1, 10)]
    cursor, seen = -1, []
    for _ in range(4):
        plan = plan_step(views, token_budget=1, cursor=cursor)
        seen.append((plan.decode, plan.prefill))
        cursor = plan.cursor
    assert seen == [([(0, 0)], []), ([], [(1, 1)])] * 2


def test_whole_prefill_ignores_the_token_budget_but_not_the_native_limit() -> None:
    views = [decoding(0), waiting(1, 100), waiting(2, 300), waiting(3, 90)]
    plan = plan_step(views, token_budget=16, whole_prefill_rows=512)
    # 1 + 100 + 300 = 401 rows, 111 are left.
    assert plan.prefill == [(1, 100), (2, 300), (3, 90)]
    # The second does not fit whole behind the first, and the third waits behind the second.
    assert plan_step(views, token_budget=16, whole_prefill_rows=256).prefill == [(1, 100)]
    # A prompt longer than the limit is cut: nothing else would ever start it.
    assert plan_step([waiting(0, 1000)], token_budget=16, whole_prefill_rows=512).prefill == [(0, 512)]


def test_short_cells_cut_prefill_and_say_what_is_missing() -> None:
    views = [decoding(0), decoding(1), waiting(2, 50)]
    plan = plan_step(views, token_budget=32, free_cells=12)
    # 32 rows were wanted, 12 fit: 2 decode, 10 prefill.
    assert (plan.decode, plan.prefill) == ([(0, 0), (1, 0)], [(2, 10)])
    assert (plan.need_cells, plan.preempt) == (20, None)
    assert plan_step(views, token_budget=32, free_cells=32).need_cells == 0


def test_the_youngest_gives_way_when_a_decoder_would_stand_still() -> None:
    views = [decoding(0), decoding(1, 3), waiting(2, 50)]
    plan = plan_step(views, token_budget=32, free_cells=1)
    assert plan.decode == [(0, 0)]
    assert (plan.need_cells, plan.preempt) == (31, 2)
    # Without the third, slot 1 is the youngest.
    assert plan_step(views[:2], token_budget=32, free_cells=1).preempt == 1
    assert plan_step(views[:2], token_budget=32, free_cells=-5).preempt == 1


def test_prefills_that_block_each_other_are_resolved_at_the_youngest() -> None:
    plan = plan_step([waiting(0, 9), waiting(1, 9)], token_budget=32, free_cells=0)
    assert (plan.rows, plan.preempt, plan.need_cells) == (0, 1, 18)
    assert not plan.is_stuck


def test_the_only_slot_is_never_pre_empted() -> None:
    plan = plan_step([decoding(0)], token_budget=32, free_cells=0)
    assert plan.preempt is None
    assert plan.is_stuck
    assert not plan_step([decoding(0, 5)], token_budget=32, free_cells=1).is_stuck


def test_a_turn_cut_short_by_cells_is_not_over() -> None:
    views = [decoding(i) for i in range(4)]
    plan = plan_step(views, token_budget=2, free_cells=1, cursor=1)
    assert plan.decode == [(2, 0)]
    assert plan.cursor == 1


def test_a_plan_without_rows_keeps_the_turns() -> None:
    plan = plan_step([decoding(0), decoding(1)], token_budget=1)
    assert plan.nothing() == Plan([], [], cursor=plan.cursor)


@pytest.mark.parametrize("budget", [0, -3])
def test_a_budget_below_one_row_is_refused(budget: int) -> None:
    with pytest.raises(ValueError, match="at least one row"):
        plan_step([decoding(0)], token_budget=budget)


def test_admission_is_by_arrival_and_by_room() -> None:
    free = 3 * HEADROOM + 100
    # 40 + 60 tokens and the headroom of 2 fit beside 1 that runs; the third would not.
    assert admissions([40, 60, 1], free_slots=9, free_cells=free, n_running=1) == 2
    assert admissions([40, 61, 1], free_slots=9, free_cells=free, n_running=1) == 1
    assert admissions([40, 60], free_slots=9, free_cells=free, n_running=1, owed_cells=1) == 1
    assert admissions([40, 60], free_slots=1, free_cells=free, n_running=1) == 1
    assert admissions([40, 60], free_slots=9, free_cells=None, n_running=1) == 2
    assert admissions([40], free_slots=-2, free_cells=None, n_running=9) == 0
    assert admissions([], free_slots=3, free_cells=5, n_running=0) == 0


def test_alone_the_head_of_the_queue_is_admitted_whatever_it_needs() -> None:
    assert admissions([500, 1], free_slots=4, free_cells=100, n_running=0) == 1
    assert admissions([500, 1], free_slots=4, free_cells=100, n_running=1) == 0


def forward_ns(rows: int, *, base_ms: float, row_ms: float) -> int:
    return int((base_ms + rows * row_ms) * MS)


@pytest.mark.parametrize(
    ("base_ms", "row_ms", "expected"),
    [
        # (0.7 × 250 − 20) ÷ 2 = 77.5 rows.
        (20, 2.0, 77),
        (0, 1.0, 175),
        # A forward is slower than the limit without any prefill: one row keeps the queue moving.
        (260, 2.0, 1),
        # 155 ÷ 0.001 rows are more than the budget.
        (20, 0.001, 512),
    ],
)
def test_the_governor_finds_the_rows_that_fit(base_ms: float, row_ms: float, expected: int) -> None:
    governor = BudgetGovernor()
    budget = governor.budget(512, decode_rows=0)
    assert budget == FIRST_PREFILL_ROWS
    for _ in range(20):
        governor.observe(forward_ns(0, base_ms=base_ms, row_ms=row_ms), prefill_rows=0)
        budget = governor.budget(512, decode_rows=0)
        governor.observe(forward_ns(budget, base_ms=base_ms, row_ms=row_ms), prefill_rows=budget)
    assert abs(governor.budget(512, decode_rows=0) - expected) <= 1


def test_the_governor_doubles_at_most_however_cheap_rows_look() -> None:
    governor = BudgetGovernor()
    budgets = []
    for _ in range(5):
        budgets.append(governor.budget(400, decode_rows=0))
        governor.observe(MS, prefill_rows=budgets[-1])
    assert budgets == [32, 64, 128, 256, 400]


def test_the_governor_leaves_decode_rows_alone_and_never_exceeds_the_setting() -> None:
    governor = BudgetGovernor()
    assert governor.budget(512, decode_rows=48) == 48 + FIRST_PREFILL_ROWS
    assert governor.budget(50, decode_rows=48) == 50
    assert governor.budget(16, decode_rows=48) == 16


def test_without_a_plain_forward_all_cost_is_laid_on_prefill() -> None:
    governor = BudgetGovernor()
    for _ in range(40):
        rows = governor.budget(1000, decode_rows=0)
        governor.observe(forward_ns(rows, base_ms=100, row_ms=1), prefill_rows=rows)
    # 100 ms + 75 rows × 1 ms = 175 ms, which is 0.7 × 250.
    assert abs(governor.budget(1000, decode_rows=0) - 75) <= 3


def test_one_spoilt_forward_shrinks_the_budget_at_once_and_for_once() -> None:
    governor = BudgetGovernor()
    for _ in range(8):
        rows = governor.budget(150, decode_rows=0)
        governor.observe(forward_ns(rows, base_ms=0, row_ms=1), prefill_rows=rows)
    assert governor.budget(150, decode_rows=0) == 150
    governor.observe(1500 * MS, prefill_rows=150)
    # 10 ms per row: 175 ÷ 10.
    assert governor.budget(150, decode_rows=0) == 17
    governor.observe(17 * MS, prefill_rows=17)
    assert governor.budget(150, decode_rows=0) == 150


def test_a_free_forward_is_no_division_by_zero() -> None:
    governor = BudgetGovernor()
    governor.observe(2 * FORWARD_LIMIT_NS, prefill_rows=0)
    governor.observe(0, prefill_rows=4)
    assert governor.budget(512, decode_rows=0) == 1
