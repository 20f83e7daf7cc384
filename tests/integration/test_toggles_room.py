"""A rebuild leaves room for the requests in flight: none is cut short by a context that holds less per sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from stackscope.engine import backend, changes, sizing
from stackscope.model.catalog import bundled_draft
from stackscope.model.spec import load_spec
from tests.integration.harness import finish, job, lab_config, open_engine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stackscope.engine.loop import Engine
    from stackscope.records import ConfigEvent

pytestmark = pytest.mark.engine

N_TOKENS = 48
LONG = tuple(range(100, 1119))
"""With its output it is longer than half of what a sequence of the default context may hold, 2,048 tokens."""
LONGER = tuple(range(50, 1350))


def submit(engine: Engine) -> None:
    """A long request that runs, a short one, and one that waits and is the longest."""
    engine.submit(job(0, LONG, N_TOKENS, ignore_eos=True))
    engine.submit(job(1, LONG[:100], N_TOKENS, ignore_eos=True))
    engine.submit(job(2, LONGER, N_TOKENS, ignore_eos=True))


def step(engine: Engine, n: int) -> None:
    for _ in range(n):
        turn = engine.step()
        assert turn is not None
        assert not turn.finished


def change(engine: Engine, **settings: object) -> ConfigEvent:
    return engine.reconfigure(msgspec.structs.replace(engine.config, **settings))


@pytest.fixture
def engine() -> Iterator[Engine]:
    opened = open_engine(lab_config(slots=2, context_tokens=None))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def plain() -> dict[int, tuple[int, ...]]:
    engine = open_engine(lab_config(slots=2, context_tokens=None))
    try:
        submit(engine)
        return finish(engine).outputs
    finally:
        engine.close()


@pytest.mark.parametrize("modest", [0.0, sizing.MODEST])
def test_unified_kv_off_and_on_again_cuts_no_request_short(
    engine: Engine, plain: dict[int, tuple[int, ...]], monkeypatch: pytest.MonkeyPatch, modest: float
) -> None:
    monkeypatch.setattr(sizing, "MODEST", modest)
    submit(engine)
    step(engine, 12)
    assert (event := change(engine, unified_kv=False)).kind == "rebuild", event.reason
    assert event.requeued == 2
    assert engine.context_tokens >= len(LONGER) + N_TOKENS
    step(engine, 12)
    assert change(engine, unified_kv=True).kind == "rebuild"
    assert engine.context_tokens == 2048
    run = finish(engine)
    assert {r.id: r.finish_reason for r in run.requests} == dict.fromkeys(range(3), "length")
    assert run.outputs == plain


def test_it_is_refused_while_the_context_asked_for_cannot_hold_them(plain: dict[int, tuple[int, ...]]) -> None:
    engine = open_engine(lab_config(slots=2, context_tokens=8192))
    try:
        submit(engine)
        step(engine, 12)
        event = change(engine, unified_kv=False)
        assert event.kind == "refused"
        assert event.reason == (
            "A request in flight may take 1,348 tokens, and a sequence would hold 256, as split KV parts the context"
            " among 48 sequences. Try again when such requests have ended, or start with --context 73728."
        )
        assert engine.config.unified_kv
        run = finish(engine)
        assert run.outputs == plain
        assert {r.requeues for r in run.requests} == {0}
        assert change(engine, unified_kv=False).kind == "rebuild"
    finally:
        engine.close()


def test_more_slots_than_there_were_take_nothing_from_a_request(plain: dict[int, tuple[int, ...]]) -> None:
    """A split cache of a given size is shared by more sequences then."""
    engine = open_engine(lab_config(slots=2, slots_max=2, cache_paths=2, unified_kv=False, context_tokens=4 * 1536))
    try:
        submit(engine)
        step(engine, 12)
        event = change(engine, slots=4, slots_max=4)
        assert event.kind == "refused"
        assert event.reason is not None
        assert "as split KV parts the context among 6 sequences" in event.reason
        assert finish(engine).outputs == plain
    finally:
        engine.close()


def test_a_model_with_a_smaller_context_is_refused_while_it_would_cut(
    engine: Engine, plain: dict[int, tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Short:
        def __init__(self, path: str) -> None:
            self._spec = load_spec(path)

        def summary(self) -> object:
            return msgspec.structs.replace(self._spec.summary(), context=1024)

    monkeypatch.setattr(changes, "load_spec", Short)
    submit(engine)
    step(engine, 12)
    event = change(engine, model=str(bundled_draft()), draft_model=None)
    assert event.kind == "refused"
    assert event.reason is not None
    assert "would hold 1,024, the context that the model was trained for" in event.reason
    assert finish(engine).outputs == plain


def test_requests_that_are_over_take_no_memory_that_there_is_not(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without memory for the longest request so far, a context that holds those in flight will do."""
    submit(engine)
    finish(engine)
    engine.submit(job(3, LONG[:100], N_TOKENS, ignore_eos=True))
    step(engine, 4)
    split = msgspec.structs.replace(engine.config, unified_kv=False)
    small = sizing.resolve(split, engine.model, usable_threads=2)
    estimate = sizing.memory_estimate(split, small, engine.model)
    for module in (backend, changes):
        monkeypatch.setattr(module, "available_memory", lambda: estimate)
    assert change(engine, unified_kv=False).kind == "rebuild"
    assert engine.context_tokens == 1024
    assert [r.finish_reason for r in finish(engine).requests] == ["length"]


def test_requests_to_come_fit_as_well(engine: Engine) -> None:
    """Traffic goes by what a request could have before."""
    engine.submit(job(0, LONG[:100], N_TOKENS, ignore_eos=True))
    step(engine, 4)
    change(engine, unified_kv=False)
    engine.submit(job(1, [*LONG, *LONG][:1900], 4, ignore_eos=True))
    assert [r.finish_reason for r in finish(engine).requests] == ["length", "length"]


def test_the_turns_to_come_of_a_conversation_fit_where_memory_is_scarcer(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizing, "MODEST", 0.0)
    engine.submit(job(0, LONG[:100], N_TOKENS, ignore_eos=True, conversation=0))
    step(engine, 4)
    change(engine, unified_kv=False)
    assert engine.context_tokens == 2048
    engine.submit(job(1, [*LONG, *LONG][:1900], 4, ignore_eos=True, conversation=0))
    assert [r.finish_reason for r in finish(engine).requests] == ["length", "length"]
