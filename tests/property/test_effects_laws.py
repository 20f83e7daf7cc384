"""Whatever a session does, the measuring of its changes takes it: no failure, and what is said holds together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.blocks import SECOND, Session

if TYPE_CHECKING:
    from collections.abc import Callable

RUNS = st.builds(
    lambda **kwargs: lambda session: session.run(**kwargs),
    seconds=st.sampled_from([0.5, 2, 5, 20, 90]),
    speed=st.sampled_from([0.0, 1.0, 1.7]),
    rates=st.lists(st.floats(0, 1e4), min_size=1, max_size=7),
    prompts=st.sampled_from([0.0, 2.0, 50.0]),
    found=st.sampled_from([0.0, 1.5]),
    busy=st.sampled_from([0.0, 1.0, 4.0]),
    is_settling=st.booleans(),
    block_ns=st.sampled_from([SECOND // 10, SECOND // 2, 3 * SECOND]),
)
CHANGES = st.builds(
    lambda kind, took_s, name: lambda session: session.toggle(kind, took_s=took_s, **{name: 1}),
    kind=st.sampled_from(["live", "rebuild"]),
    took_s=st.none() | st.floats(0, 5),
    name=st.sampled_from(["threads", "slots", "prefix_cache", "model"]),
)
LOADS = st.builds(
    lambda concurrency, rate: lambda session: session.offer(concurrency=concurrency, rate=rate),
    concurrency=st.none() | st.integers(1, 9),
    rate=st.none() | st.floats(0.1, 9),
)


@settings(max_examples=60)
@given(
    deeds=st.lists(st.one_of(RUNS, CHANGES, LOADS), max_size=12),
    slots=st.integers(0, 4),
    concurrency=st.none() | st.integers(1, 8),
)
def test_what_is_said_of_a_change_holds_together(
    deeds: list[Callable[[Session], int | None]], slots: int, concurrency: int | None
) -> None:
    session = Session(concurrency=concurrency, slots=slots)
    times: set[int] = set()
    for deed in deeds:
        at_ns = deed(session)
        if at_ns is not None:
            times.add(at_ns)
    session.effects.end(session.now_ns)
    for at_ns in times:
        effect = session.effects.effect_of(at_ns)
        if effect is None:  # A load that was offered already.
            continue
        assert effect.state in ("measured", "not distinguishable", "not comparable")
        assert (effect.tokens is None) is (effect.state == "not comparable")
        assert effect.state != "not comparable" or effect.why
        if effect.tokens is not None:
            assert 0 < effect.tokens.low <= effect.tokens.value <= effect.tokens.high
            assert effect.tokens.is_distinguishable is (effect.state == "measured")
            assert effect.after_s >= 3
            assert effect.before_s >= 3
