"""Requests that begin alike share cells, in the target's memory and in the draft model's, whenever that came to be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stackscope.workload import corpus
from tests.integration.harness import finish, job, lab_config, open_engine

if TYPE_CHECKING:
    from stackscope.engine.loop import Engine
    from tests.integration.harness import Run

pytestmark = pytest.mark.engine

N_SHARED, N_OWN, N_TOKENS = 1200, 20, 30


def serve(engine: Engine, first: int, n: int = 8) -> Run:
    """Requests whose prompts begin with the same 1,200 tokens."""
    tokens = engine.tokenizer.encode(corpus.code_passage(0, 0.1, 9_000))
    for number in range(first, first + n):
        own = tokens[N_SHARED + 7 * number :][:N_OWN]
        engine.submit(job(number, tokens[:N_SHARED] + own, N_TOKENS, ignore_eos=True))
    return finish(engine)


def test_requests_that_share_what_others_use_are_admitted_together() -> None:
    """The shared prefix is not counted as if it had to be kept from being evicted: those that run hold it anyway."""
    engine = open_engine(lab_config(slots=8, context_tokens=2048))
    try:
        serve(engine, 0)
        serve(engine, 8)  # 1,200 tokens and 16 tails of 48 fill the context
        run = serve(engine, 16)
        assert max(step.slots_busy for step in run.steps) == 8
        assert len(run.steps) < N_TOKENS + 4
        assert sum(record.preemptions for record in run.requests) == 0
    finally:
        engine.close()
