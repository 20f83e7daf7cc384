"""When shadows look on: at once where something happened, now and then while tokens are all that comes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from stackscope.engine.aside import IDLE_LOOK_NS, LOOK_NS, Aside
from stackscope.engine.batching import Rows
from stackscope.records import Log
from stackscope.toggles import EngineConfig


class Onlooker:
    """Shadows that note when they were asked to look."""

    def __init__(self) -> None:
        self.looks: list[dict[str, Any]] = []

    def observe(self, admitted: list[Any], *sequences: list[Any], **rest: Any) -> tuple[Log, ...]:
        self.looks.append({"admitted": list(admitted), "sequences": sequences, **rest})
        return (Log(at_ns=0, text=f"look {len(self.looks)}"),)

    def reconfigure(self, *_: object) -> tuple[Log, ...]:
        return ()

    def take(self, _: int) -> tuple[Log, ...]:
        return ()

    def close(self) -> None:
        pass


class Loop:
    """The end of made-up steps."""

    def __init__(self) -> None:
        self.onlooker = Onlooker()
        self.now_ns = 0
        self.aside = Aside(lambda: self.now_ns)
        self.aside.shadows = self.onlooker  # type: ignore[assignment]

    def step(self, now_ns: int, *, prefilled: bool = False, ended: bool = False, outputs: int = 1) -> int:
        """Records that came of it."""
        self.now_ns = now_ns
        rows = Rows()
        rows.ends_prefill, rows.n_outputs = prefilled, outputs
        if not self.aside.is_due(rows, now_ns, has_ended=ended):
            return 0
        return len(self.aside.observe(rows, [], has_ended=ended, epoch=0))


def test_plain_steps_are_looked_at_now_and_then() -> None:
    loop = Loop()
    times = (0, 1, LOOK_NS - 1, LOOK_NS, LOOK_NS + 1, 2 * LOOK_NS - 1, 2 * LOOK_NS)
    assert [loop.step(at) for at in times] == [1, 0, 0, 1, 0, 0, 1]


def test_steps_in_the_middle_of_a_prompt_are_looked_at_by_the_clock_only() -> None:
    loop = Loop()
    times = (0, LOOK_NS, IDLE_LOOK_NS - 1, IDLE_LOOK_NS, IDLE_LOOK_NS + LOOK_NS)
    assert [loop.step(at, outputs=0) for at in times] == [1, 0, 0, 1, 0]
    assert loop.step(IDLE_LOOK_NS + LOOK_NS + 1, outputs=2) == 1


def test_what_happens_is_looked_at_in_its_own_step() -> None:
    loop = Loop()
    loop.step(0)
    assert loop.step(1, prefilled=True) == 1
    assert loop.step(2, ended=True) == 1
    assert [look["has_ended"] for look in loop.onlooker.looks] == [False, False, True]
    assert loop.step(3) == 0


def admit(loop: Loop, slot: int) -> None:
    sequence: Any = SimpleNamespace(slot=slot, n=5, prefilled=0)
    loop.aside.admitted([sequence])


def test_the_admitted_are_shown_once_when_a_prompt_ends() -> None:
    loop = Loop()
    loop.step(0)
    admit(loop, 3)
    assert loop.step(1, outputs=0) == 0
    admit(loop, 4)
    assert loop.step(2, prefilled=True) == 1
    assert loop.step(3) == 0
    assert [[one.slot for one in look["admitted"]] for look in loop.onlooker.looks] == [[], [3, 4]]


def test_the_admitted_are_shown_under_the_settings_of_their_admission() -> None:
    loop = Loop()
    loop.step(0)
    admit(loop, 3)
    loop.aside.reconfigure(EngineConfig(), 7)
    loop.aside.reconfigure(EngineConfig(), 8)
    assert [(look["epoch"], len(look["admitted"])) for look in loop.onlooker.looks] == [(0, 0), (7, 1)]
    admit(loop, 4)
    loop.aside.release(9)
    assert [(look["epoch"], len(look["admitted"])) for look in loop.onlooker.looks[2:]] == [(9, 1)]


def test_the_admitted_are_shown_at_the_end_of_the_session() -> None:
    loop = Loop()
    loop.step(0)
    admit(loop, 3)
    assert len(loop.aside.take(2)) == 1
    assert [(look["epoch"], len(look["admitted"])) for look in loop.onlooker.looks[1:]] == [(2, 1)]
