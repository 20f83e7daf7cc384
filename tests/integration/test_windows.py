"""Sliding-window layers on Gemma 270M: cached prefixes stay whole although the library takes window cells back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from stackscope.toggles import EngineConfig
from tests.integration.harness import finish, job, open_engine

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.gemma

TEXT = "The quick brown fox jumps over the lazy dog while the sun sets behind the old stone bridge. "


def test_prefixes_longer_than_the_window_are_reused_whole_and_say_the_same(gemma: Path) -> None:
    config = EngineConfig(model=str(gemma), threads=2, slots=2, context_tokens=8192, token_budget=256)
    engine = open_engine(config)
    try:
        assert engine.backend.size.has_guards
        long = engine.tokenizer.encode(TEXT * 60)[:1100]
        other = engine.tokenizer.encode("Numbers: " + " ".join(str(i) for i in range(500)))[:900]
        engine.submit(job(0, long, 8, ignore_eos=True))
        first = finish(engine).outputs[0]
        for i in range(1, 4):  # traffic that would take the window cells of what is cached
            engine.submit(job(i, [2, 100 + i, *other], 8, ignore_eos=True))
        finish(engine)
        for path in engine._residents.cache._paths.leaves:
            assert engine.backend.memory.first_position(path) == 0
        engine.submit(job(9, long, 8, ignore_eos=True))
        again = finish(engine)
        assert again.requests[0].hit_tokens == 1088  # 1,100 − 1 in whole blocks of 16
        assert again.outputs[9] == first
    finally:
        engine.close()


def test_a_draft_model_with_windows_borrows_the_whole_of_a_prefix(gemma: Path) -> None:
    """It is the target itself, so that its drafts are right as long as its windows are."""
    config = EngineConfig(
        model=str(gemma), draft_model=str(gemma), threads=2, slots=2, context_tokens=4096, token_budget=256
    )
    engine = open_engine(config)
    try:
        long = engine.tokenizer.encode(TEXT * 60)[:1100]
        engine.submit(job(0, long, 4, ignore_eos=True))
        finish(engine)
        assert engine.reconfigure(msgspec.structs.replace(config, speculation="draft")).kind == "live"
        fed = []
        for number in (1, 2):
            engine.submit(job(number, long, 12, ignore_eos=True))
            run = finish(engine)
            fed.append(sum(new for step in run.steps for forward in step.draft for _, new in forward.spans))
            assert run.requests[0].drafted > 0
            assert run.requests[0].accepted == run.requests[0].drafted
        assert fed[0] > 1088 > 64 > fed[1]
        lengths = engine.backend.memory.draft_length
        size = engine.backend.size
        assert [lengths[path] for path in size.path_ids] == [lengths[guard] for guard in size.guard_ids]
        assert max(lengths) >= 1088
    finally:
        engine.close()
