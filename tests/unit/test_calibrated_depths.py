"""Which depths and which kinds of cache a calibration goes through."""

from __future__ import annotations

import pytest

from stackscope.experiments import caches, depths
from stackscope.toggles import EngineConfig


@pytest.mark.parametrize(
    ("row_ns", "fill_ns", "last", "chunk"),
    [
        (1e6, 2e9, 4095, 256),  # 2,000 tokens in time
        (3.3e6, 1.4e9, 4095, 192),  # 424: twice 212
        (1e8, 2.8e9, 4095, 0),  # 28: not even 64
        (1e6, 2e9, 255, 64),
        (1e6, 2e9, 100, 50),  # all there is room for
        (None, 2e9, 4095, 256),
        (1e6, 2e9, 1, 0),
        (1e6, 2e9, -5, 0),
    ],
)
def test_what_is_computed_is_what_there_is_time_and_room_for(
    row_ns: float | None, fill_ns: float, last: int, chunk: int
) -> None:
    assert depths.chunk_of(row_ns, fill_ns, last=last) == chunk


def test_depths_double_up_to_the_deepest() -> None:
    assert depths.ladder(1792) == [0, 256, 512, 1024, 1792]
    assert depths.ladder(512) == [0, 256, 512]
    assert depths.ladder(0) == [0]


@pytest.mark.parametrize(("most", "left"), [(9, [0, 1, 2, 3, 4]), (5, [0, 1, 2, 3, 4]), (3, [0, 2, 4]), (0, [4])])
def test_where_time_is_short_the_deepest_stays(most: int, left: list[int]) -> None:
    assert depths.thinned([0, 1, 2, 3, 4], most) == left


@pytest.mark.parametrize(
    ("types", "is_fused", "is_full", "tried"),
    [
        ("f16", True, False, ["KV in q8_0", "KV in f16, attention not fused"]),
        ("f16", True, True, ["KV in q8_0", "KV in q4_0", "KV in f16, attention not fused"]),
        ("f16", False, False, ["KV in f16"]),  # Without fused attention, values cannot be in blocks.
        ("q4_0", True, False, ["KV in f16"]),
    ],
)
def test_other_caches_are_those_that_a_switch_would_bring(
    types: str, is_fused: bool, is_full: bool, tried: list[str]
) -> None:
    config = EngineConfig(kv_type_k=types, kv_type_v=types, flash_attention=is_fused)  # type: ignore[arg-type]
    assert [kind.described for kind in caches.others(config, is_full=is_full)] == tried
