"""What the engine would run, and the memory it would take."""

from __future__ import annotations

import msgspec

from stackscope.engine import sizing
from stackscope.engine.allowances import Allowances
from tests.unit.whatif_machine import CONFIG, DRAFT, MODEL


def test_what_runs_is_not_refused() -> None:
    assert Allowances(cores=2).refusal(CONFIG, MODEL, DRAFT) is None


def test_the_engine_s_own_reasons() -> None:
    rules = Allowances(cores=2)
    too_many = msgspec.structs.replace(CONFIG, slots=250)
    assert rules.refusal(too_many, MODEL, None) == (
        "250 slots and 32 cached paths need 282 of 256 sequence ids. Lower --slots or --cache-paths."
    )
    assert rules.memory_bytes(too_many, MODEL, None) is None
    assert rules.cells(too_many, MODEL) is None
    without = msgspec.structs.replace(CONFIG, draft_model=None, speculation="draft")
    assert "needs a draft model" in str(rules.refusal(without, MODEL, None))


def test_memory_is_that_of_both_models_and_their_contexts() -> None:
    rules = Allowances()
    size = sizing.resolve(CONFIG, MODEL, usable_threads=1)
    one = MODEL.tensor_bytes + sizing.memory_estimate(CONFIG, size, MODEL)
    other = DRAFT.tensor_bytes + sizing.memory_estimate(CONFIG, size, DRAFT)
    assert rules.memory_bytes(CONFIG, MODEL, None) == one
    assert rules.memory_bytes(CONFIG, MODEL, DRAFT) == one + other
    assert rules.cells(CONFIG, MODEL) == size.n_ctx


def test_lengths_of_requests_count_as_in_the_engine() -> None:
    rules = Allowances(cores=2)
    split = msgspec.structs.replace(CONFIG, unified_kv=False)
    longest = 1500
    holding = rules.holding(CONFIG, longest=longest, in_flight=longest, free=None)
    size = sizing.resolve(split, MODEL, usable_threads=2, longest_request=longest)
    assert holding.cells(split, MODEL) == size.n_ctx
    bare, held = rules.memory_bytes(split, MODEL, None), holding.memory_bytes(split, MODEL, None)
    assert bare is not None
    assert held is not None
    assert held > bare
    small = msgspec.structs.replace(split, context_tokens=48 * 512)
    assert rules.refusal(small, MODEL, None) is None
    ended = rules.holding(CONFIG, longest=longest, in_flight=0, free=None)
    assert ended.refusal(small, MODEL, None) is None
    assert "A request in flight may take 1,500 tokens" in str(holding.refusal(small, MODEL, None))


def test_a_live_change_leaves_the_context_as_it_was_built() -> None:
    rules = Allowances(cores=2).holding(CONFIG, longest=0, in_flight=0, free=None)
    now = rules.memory_bytes(CONFIG, MODEL, DRAFT)
    fewer, more, wider = (msgspec.structs.replace(CONFIG, slots=slots) for slots in (1, 16, 17))
    assert rules.memory_bytes(fewer, MODEL, DRAFT) == now
    assert rules.memory_bytes(more, MODEL, DRAFT) == now, "the context has room for sixteen"
    assert rules.memory_bytes(wider, MODEL, DRAFT) == Allowances(cores=2).memory_bytes(wider, MODEL, DRAFT) != now


def test_a_rebuild_has_room_for_what_could_be_asked_for_where_memory_is_plenty() -> None:
    rules = Allowances(cores=2)
    split = msgspec.structs.replace(CONFIG, unified_kv=False)
    most = sizing.resolve(CONFIG, MODEL, usable_threads=2).n_ctx_seq
    roomy = sizing.resolve(split, MODEL, usable_threads=2, longest_request=most)
    lean = sizing.resolve(split, MODEL, usable_threads=2)
    assert roomy.n_ctx > lean.n_ctx
    takes = sizing.memory_estimate(split, roomy, MODEL)
    plenty, little = int(takes / sizing.MODEST) + 1, int(takes / sizing.MODEST) - 1000

    def cells(free: int | None) -> int | None:
        return rules.holding(CONFIG, longest=0, in_flight=0, free=free).cells(split, MODEL)

    assert [cells(free) for free in (plenty, little, None)] == [roomy.n_ctx, lean.n_ctx, lean.n_ctx]
