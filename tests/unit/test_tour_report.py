"""The judge of the tour through the live screen: it finds each fault, and none in a session without."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest

from stackscope.records import ConfigEvent, Emission, Mark, Prediction, RequestRecord, SlotWork, StepRecord
from stackscope.session.reader import Session
from tests.unit.record_builders import ORIGIN_NS, make_header, make_request, make_step
from tour_report import OUTPUT_TOKENS, Found, Stop, report

if TYPE_CHECKING:
    from collections.abc import Callable

MS: Final = 1_000_000
REBUILT_NS: Final = 5 * MS
LIVE_AT, REBUILD_AT, N_STEPS = 60, 100, 200
STOPS: Final = (
    Stop("speculation on", "s", "s spec draft", frozenset({"speculation"}), "live"),
    Stop("KV type", "k", "k KV q8_0", frozenset({"kv_type_k"}), "rebuild", is_lossless=False),
)
"""Before which step each of them came: `LIVE_AT`, `REBUILD_AT`."""
TEXTS: Final = {id: "".join(chr(97 + (id + k) % 26) for k in range(OUTPUT_TOKENS)) for id in range(6)}
"""A character for each token."""


def start_ns(n: int) -> int:
    """When a step begins: one each millisecond, and the rebuild in between."""
    return ORIGIN_NS + n * MS + (REBUILT_NS if n >= REBUILD_AT else 0)


def lives() -> dict[int, range]:
    """The steps of each request: two slots, of which the second begins half a request later."""
    return {id: range(begin := id % 2 * 32 + id // 2 * OUTPUT_TOKENS, begin + OUTPUT_TOKENS) for id in range(6)}


def a_step(n: int) -> StepRecord:
    work = [
        SlotWork(request=id, slot=id % 2, phase="decode", new=1, cached=100 + n, emitted=1, outputs=1)
        for id, steps in lives().items()
        if n in steps
    ]
    return make_step(n, start_ns=start_ns(n), work=tuple(work), epoch=(n >= LIVE_AT) + (n >= REBUILD_AT))


def a_request(id: int) -> RequestRecord:
    emissions = [Emission(step=n, at_ns=start_ns(n) + MS, tokens=1) for n in lives()[id] if n < N_STEPS]
    is_whole = len(emissions) == OUTPUT_TOKENS
    return make_request(
        id, emissions=tuple(emissions), finish_reason="length" if is_whole else "cancelled",
        output=TEXTS[id][: len(emissions)],
    )  # fmt: skip


def a_session() -> Session:
    """Six requests in two slots, a live change and a rebuild; the last request is cancelled by the end."""
    events = (
        ConfigEvent(at_ns=start_ns(LIVE_AT), epoch=1, kind="live", changes={"speculation": ("off", "draft")}),
        ConfigEvent(at_ns=start_ns(REBUILD_AT) - REBUILT_NS, epoch=2, kind="rebuild", duration_ns=REBUILT_NS,
                    changes={"kv_type_k": ("f16", "q8_0")}, requeued=2),
    )  # fmt: skip
    marks = tuple(Mark(at_ns=e.at_ns - 39 * MS, label=s.name) for s, e in zip(STOPS, events, strict=True))
    return Session(
        header=make_header(), steps=tuple(map(a_step, range(N_STEPS))), requests=tuple(map(a_request, lives())),
        configs=events, traffic=(), marks=marks, logs=(), hardware=(), footer=None, truncated=None, skipped={},
    )  # fmt: skip


def judged(session: Session, *, sent_before_ns: int = MS, plain: dict[int, str] | None = None) -> Found:
    sent = [Prediction(at_ns=event.at_ns - sent_before_ns, changes=event.changes) for event in session.configs]
    return report(session, sent, TEXTS if plain is None else plain, stops=STOPS)


def with_request(session: Session, id: int, **changes: Any) -> Session:
    changed = [msgspec.structs.replace(r, **changes) if r.id == id else r for r in session.requests]
    return replace(session, requests=tuple(changed))


def with_event(session: Session, index: int, **changes: Any) -> Session:
    events = list(session.configs)
    events[index] = msgspec.structs.replace(events[index], **changes)
    return replace(session, configs=tuple(events))


def test_nothing_is_wrong_with_a_session_that_is_as_it_should_be() -> None:
    found = judged(a_session())
    assert found.faults == []
    assert len(found.lines) == len(STOPS) + 1
    # Requests 0 and 1 end before the KV type changes; 2 and 3 are compared up to there; 4 and 5 come later.
    assert "4 texts compared, 2 of them up to a change of KV type or weights, 0 differ" in found.lines[-1]


def without_last(session: Session) -> Session:
    return replace(session, requests=session.requests[:-1])


def twice(session: Session) -> Session:
    return replace(session, requests=(*session.requests, session.requests[0]))


FAULTS: Final[dict[str, tuple[Callable[[Session], Session], str]]] = {
    "lost": (without_last, "request 5 never ended"),
    "doubled": (twice, "request 0 ended 2 times"),
    "failed": (lambda s: with_request(s, 4, finish_reason="error", error="it broke"), "request 4 failed: it broke"),
    "cut short": (
        lambda s: with_request(s, 4, emissions=a_request(4).emissions[:-1]),
        "request 4 asked for 64 tokens and has 63",
    ),
    "tokens lost": (
        lambda s: with_request(s, 4, emissions=a_request(4).emissions[:-1]),
        "request 4 has 63 tokens, its steps made 64",
    ),
    "refused": (
        lambda s: with_event(s, 0, kind="refused", reason="no"),
        "speculation on: expected one live change, saw refused of ['speculation'] no",
    ),
    "no mark": (lambda s: replace(s, marks=s.marks[1:]), "speculation on: its mark is missing"),
    "inside a forward": (lambda s: with_event(s, 0, at_ns=start_ns(LIVE_AT) + 900_000), "not at a step boundary"),
    "steps in a rebuild": (lambda s: with_event(s, 1, duration_ns=2 * REBUILT_NS), "KV type: not at a step boundary"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found(name: str) -> None:
    spoil, told = FAULTS[name]
    assert any(told in fault for fault in judged(spoil(a_session())).faults)


def test_a_change_that_lets_steps_begin_first_is_late() -> None:
    told = judged(a_session(), sent_before_ns=56 * MS).faults
    assert any("steps began before it came into force" in fault for fault in told)


def test_a_change_may_be_sent_before_the_mark_is_obeyed() -> None:
    session = a_session()
    marks = tuple(Mark(at_ns=event.at_ns, label=stop.name) for stop, event in zip(STOPS, session.configs, strict=True))
    assert judged(replace(session, marks=marks), sent_before_ns=9 * MS).faults == []


def test_a_text_that_does_not_continue_is_found() -> None:
    session = a_session()
    for id in (0, 2):  # One of them whole, one up to the change of the KV type.
        session = with_request(session, id, output="x" + TEXTS[id][1:])
    assert judged(session).faults == ["texts differ from those without changes: 2 of 4"]


def test_after_a_lossy_change_the_text_may_be_another() -> None:
    session = a_session()
    n_before = sum(n < REBUILD_AT for n in lives()[2])
    session = with_request(session, 2, output=TEXTS[2][:n_before] + "x" * (OUTPUT_TOKENS - n_before))
    session = with_request(session, 4, output="x" * OUTPUT_TOKENS)
    assert judged(session).faults == []


def test_without_texts_nothing_is_shown_to_hold() -> None:
    assert judged(a_session(), plain={}).faults
