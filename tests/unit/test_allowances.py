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
