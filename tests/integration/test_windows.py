"""Sliding-window layers on Gemma 270M: cached prefixes stay whole although the library takes window cells back."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
