"""Requests that begin alike share cells, in the target's memory and in the draft model's, whenever that came to be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from stackscope.engine.llama import Context, DecodeStatus
from stackscope.workload import corpus
from tests.integration.harness import finish, job, lab_config, open_engine

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from stackscope.engine.batching import Entry
    from stackscope.engine.loop import Engine
    from tests.integration.harness import Run

    Drafts = dict[tuple[int, int], list[int]]

pytestmark = pytest.mark.engine

N_SHARED, N_OWN, N_TOKENS = 1200, 20, 30


class Overhearing:
    """The engine's chooser, with an ear for the drafts: what was proposed to each request at each length."""

    def __init__(self, engine: Engine) -> None:
        self._chooser = engine._chooser
        self.drafts: Drafts = {}
        engine._chooser = self  # type: ignore[assignment]

    def choose(self, entries: Sequence[Entry], logits: NDArray[np.float32], synthetic: float | None) -> None:
        for entry in entries:
            if entry.sequence.draft:
                self.drafts[entry.sequence.job.id, entry.sequence.n] = list(entry.sequence.draft)
        self._chooser.choose(entries, logits, synthetic)


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


def change(engine: Engine, **settings: object) -> None:
    assert engine.reconfigure(msgspec.structs.replace(engine.config, **settings)).kind == "live"


def second_round(unified: bool, *, drafts_first: bool) -> tuple[Run, Drafts]:
    """Eight requests whose prefix was cached by others, drafted for, and what was drafted."""
    config = lab_config(
        slots=8,
        context_tokens=2048 if unified else 32 * 1536,
        cache_paths=16,
        unified_kv=unified,
        speculation="draft" if drafts_first else "off",
    )
    engine = open_engine(config)
    try:
        serve(engine, 0)
        change(engine, speculation="draft")
        overhearing = Overhearing(engine)
        return serve(engine, 8), overhearing.drafts
    finally:
        engine.close()


def draft_prefill(run: Run) -> int:
    """Rows that the draft model was fed to catch up with what it lacked."""
    return sum(new for step in run.steps for forward in step.draft for _, new in forward.spans if new >= 16)


@pytest.mark.parametrize("unified", [True, False])
def test_a_prefix_cached_before_drafting_began_is_computed_once(unified: bool) -> None:
    """One of the eight feeds it to the draft model, and the others take it over: the drafts are the same."""
    usual, expected = second_round(unified, drafts_first=True)
    run, drafts = second_round(unified, drafts_first=False)
    assert draft_prefill(usual) < 8 * 50
    assert N_SHARED <= draft_prefill(run) < N_SHARED + 8 * 50
    assert sum(step.settling for step in run.steps) <= N_SHARED // 256 + 2
    both = drafts.keys() & expected.keys()
    assert len(both) > 100
    assert sum(drafts[key] == expected[key] for key in both) > 0.97 * len(both)


def test_drafting_goes_on_for_those_for_whom_the_draft_s_context_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight requests share cells of the target through a prefix that is cached no more, so nobody can borrow it."""
    refused: list[int] = []
    right = Context.decode

    def decode(context: Context, n_rows: int) -> int:
        status = right(context, n_rows)
        if status == DecodeStatus.NO_ROOM:
            assert context is engine.backend.draft
            refused.append(n_rows)
        return status

    engine = open_engine(lab_config(slots=8, context_tokens=2048))
    try:
        serve(engine, 0)
        monkeypatch.setattr(Context, "decode", decode)
        tokens = engine.tokenizer.encode(corpus.code_passage(0, 0.1, 9_000))
        for number in range(8, 16):
            engine.submit(job(number, tokens[: N_SHARED + 10], N_TOKENS, ignore_eos=True))
        engine.step()
        change(engine, prefix_cache=False, speculation="draft")
        run = finish(engine)
    finally:
        engine.close()
    assert {record.finish_reason for record in run.requests} == {"length"}
    assert sum(record.preemptions for record in run.requests) == 0
    assert sum(record.drafted for record in run.requests if record.id == 8) > 30
    assert 0 < len(refused) < 8
    assert all(step.settling for step in run.steps if any(work.drafted for work in step.work))
