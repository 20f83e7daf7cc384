"""When shadows look on: at once where something happened, now and then while tokens are all that comes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from stackscope.engine.aside import LOOK_NS, Aside
from stackscope.engine.batching import Rows
from stackscope.records import Log


class Onlooker:
    """Shadows that note when they were asked to look."""

    def __init__(self) -> None:
        self.looks: list[dict[str, Any]] = []

    def observe(self, admitted: list[Any], *sequences: list[Any], **rest: Any) -> tuple[Log, ...]:
        self.looks.append({"admitted": list(admitted), "sequences": sequences, **rest})
        return (Log(at_ns=0, text=f"look {len(self.looks)}"),)


class Loop:
    """The end of made-up steps."""

    def __init__(self) -> None:
        self.onlooker = Onlooker()
        self.now_ns = 0
        self.aside = Aside(lambda: self.now_ns)
        self.aside.shadows = self.onlooker  # type: ignore[assignment]

    def step(self, now_ns: int, *, prefill: bool = False, ended: bool = False) -> int:
        """Records that came of it."""
        self.now_ns = now_ns
        rows = Rows()
        rows.has_prefill = prefill
        if not self.aside.is_due(rows, now_ns, has_ended=ended):
            return 0
        return len(self.aside.observe(rows, [], has_ended=ended, epoch=0))


def test_plain_steps_are_looked_at_once_a_millisecond() -> None:
    loop = Loop()
    times = (0, 1, LOOK_NS - 1, LOOK_NS, LOOK_NS + 1, 2 * LOOK_NS - 1, 2 * LOOK_NS)
    assert [loop.step(at) for at in times] == [1, 0, 0, 1, 0, 0, 1]


def test_what_happens_is_looked_at_in_its_own_step() -> None:
    loop = Loop()
    loop.step(0)
    assert loop.step(1, prefill=True) == 1
    assert loop.step(2, ended=True) == 1
    assert [look["has_ended"] for look in loop.onlooker.looks] == [False, False, True]
    assert loop.step(3) == 0


def test_the_admitted_are_shown_once() -> None:
    loop = Loop()
    loop.step(0)
    sequence: Any = SimpleNamespace(slot=3, n=5, prefilled=0)
    loop.aside.admitted([sequence])
    assert loop.step(1) == 1
    assert loop.step(2) == 0
    assert [len(look["admitted"]) for look in loop.onlooker.looks] == [0, 1]
