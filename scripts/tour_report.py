"""What the tour of the live screen does, and what has to come of it: the judge of its recording."""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from stackscope import units
from stackscope.records import Prediction
from stackscope.session.reader import SessionReader

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stackscope.records import ConfigEvent, RequestRecord
    from stackscope.session.reader import Session

OUTPUT_TOKENS: Final = 64
"""That every request of the tour asks for, and gets: the end-of-sequence token does not end it."""
MOST_BEGUN: Final = 1
"""Steps that may begin between the moment a live change is sent and the step it is in force for: the one that the
engine was about to begin when it came."""
LATE_NS: Final = 50_000_000
"""A machine of two busy cores may let the thread that reads commands wait: steps begun in this time are not counted."""
NEAR_TIES: Final = 25
"""One text of so many may differ: of two tokens that are as good as equally probable, a batch of another size may
choose the other one."""


class Stop(NamedTuple):
    """One key of the tour, and what it should come to."""

    name: str
    key: str
    chip: str
    """What the toggle bar says afterwards."""
    settings: frozenset[str]
    """That may change with it."""
    kind: str
    is_lossless: bool = True
    """Greedy text stays what it would have been."""


KV: Final = frozenset({"kv_type_k", "kv_type_v"})
STOPS: Final = (
    Stop("speculation on", "s", "s spec n-gram", frozenset({"speculation"}), "live"),
    Stop("other draft source", "s", "s spec draft", frozenset({"speculation"}), "live"),
    Stop("longer drafts", "]", "[ ] draft 4", frozenset({"draft_length"}), "live"),
    Stop("prefix cache off", "p", "p cache off", frozenset({"prefix_cache"}), "live"),
    Stop("prefix cache on", "p", "p cache on", frozenset({"prefix_cache"}), "live"),
    Stop("more slots", "b", "b slots 16", frozenset({"slots"}), "live"),
    Stop("fewer slots", "B", "b slots 8", frozenset({"slots"}), "live"),
    Stop("KV type", "k", "k KV q8_0", KV, "rebuild", is_lossless=False),
    Stop("weights", "w", "w Q8_0", frozenset({"model"}), "rebuild", is_lossless=False),
    Stop("speculation off", "s", "s spec off", frozenset({"speculation"}), "live"),
)


class Found(NamedTuple):
    """What came of a tour."""

    lines: list[str]
    faults: list[str]
    """What did not hold."""


def predictions(recording: Path) -> tuple[Prediction, ...]:
    """What was predicted of each change: its time is that at which the change was sent to the engine."""
    return tuple(record for record in SessionReader(recording) if isinstance(record, Prediction))


def report(session: Session, sent: Sequence[Prediction], plain: Mapping[int, str], *, stops: Sequence[Stop] = STOPS
           ) -> Found:  # fmt: skip
    """Judge a recording. `plain` are the texts of the same requests without a change, by their ids."""
    found = Found([], [])
    marks = {mark.label: mark.at_ns for mark in session.marks}
    for stop in stops:
        begins = marks.get(stop.name)
        if begins is None:
            found.faults.append(f"{stop.name}: its mark is missing")
            continue
        ends = min((at for at in marks.values() if at > begins), default=sys.maxsize)
        events = [e for e in session.configs if begins <= e.at_ns < ends and e.changes]
        if len(events) != 1 or not set(events[0].changes) <= stop.settings or events[0].kind != stop.kind:
            told = ", ".join(f"{e.kind} of {sorted(e.changes)} {e.reason or ''}" for e in events) or "nothing"
            found.faults.append(f"{stop.name}: expected one {stop.kind} change, saw {told}")
            continue
        # The engine may obey the mark only when the change is on its way already.
        asked = [one.at_ns for one in sent if one.changes.keys() & events[0].changes and one.at_ns <= events[0].at_ns]
        _judge(session, stop, events[0], asked[-1] if asked else None, found)
    found.faults.extend(requests_harmed(session))
    lossy = {name for stop in stops if not stop.is_lossless for name in stop.settings}
    changed = [event.at_ns for event in session.configs if lossy & event.changes.keys() and event.kind != "refused"]
    line, harmed = texts_harmed(session, plain, min(changed, default=sys.maxsize))
    found.lines.append(f"{len(session.steps)} steps, {len(session.requests)} requests; {line}")
    found.faults.extend(harmed)
    return found


def _judge(session: Session, stop: Stop, event: ConfigEvent, asked_ns: int | None, found: Found) -> None:
    """One change that came as expected: was it in time, at a step boundary, and amid requests that went on?"""
    name, (before, after) = next(iter(event.changes.items()))
    values = f"{name} {Path(str(before)).name} → {Path(str(after)).name}"
    took = "" if event.duration_ns is None else f", rebuilt in {units.duration(event.duration_ns)}"
    if asked_ns is None:
        found.faults.append(f"{stop.name}: when it was sent is not recorded")
        return
    begun = sum(asked_ns + LATE_NS < step.start_ns < event.at_ns and step.epoch < event.epoch for step in session.steps)
    if begun > MOST_BEGUN:
        found.faults.append(f"{stop.name}: {begun} steps began before it came into force")
    if not is_at_boundary(session, event):
        found.faults.append(f"{stop.name}: not at a step boundary")
    n_amid = len(running_through(session, event))
    if n_amid == 0:
        found.faults.append(f"{stop.name}: no request went on through it")
    waited = units.duration(event.at_ns - asked_ns)
    found.lines.append(
        f"{stop.name:<20}{event.kind:<8}{values}: {waited} from sent to change{took}; {n_amid} requests went on"
    )


def is_at_boundary(session: Session, event: ConfigEvent) -> bool:
    """A change lies between two steps, where commands are taken: in the loop of the first step of its epoch at most.

    Of a rebuild, all of it does.
    """
    first = next((step for step in session.steps if step.epoch == event.epoch), None)
    if first is None:
        return False
    ends_ns = event.at_ns + (event.duration_ns or 0)
    is_before_its_forward = ends_ns <= first.end_ns - first.phases.decode
    return is_before_its_forward and all(
        step.end_ns <= event.at_ns for step in session.steps if step.epoch < event.epoch
    )


def running_through(session: Session, event: ConfigEvent) -> set[int]:
    """Requests that the last step before a change and some step after it worked on."""
    before = [step for step in session.steps if step.epoch < event.epoch and step.work]
    after = {work.request for step in session.steps if step.epoch >= event.epoch for work in step.work}
    return {work.request for work in before[-1].work} & after if before else set()


def requests_harmed(session: Session) -> list[str]:
    """Requests that were lost, doubled, failed, or got another number of tokens than they asked for."""
    faults = [f"request {r.id} failed: {r.error}" for r in session.requests if r.finish_reason == "error"]
    counts = Counter(request.id for request in session.requests)
    faults += [f"request {id} ended {n} times" for id, n in counts.items() if n > 1]
    made: Counter[int] = Counter()
    for work in itertools.chain.from_iterable(step.work for step in session.steps):
        made[work.request] += work.emitted
    faults += [f"request {id} never ended" for id in sorted(made.keys() - counts.keys())]
    for request in session.requests:
        if made[request.id] != request.output_tokens:
            faults.append(f"request {request.id} has {request.output_tokens} tokens, its steps made {made[request.id]}")
        if request.finish_reason not in ("cancelled", "error") and request.output_tokens != OUTPUT_TOKENS:
            faults.append(f"request {request.id} asked for {OUTPUT_TOKENS} tokens and has {request.output_tokens}")
        if any(later.at_ns < earlier.at_ns for earlier, later in itertools.pairwise(request.emissions)):
            faults.append(f"the tokens of request {request.id} are not in order")
    return faults


def texts_harmed(session: Session, plain: Mapping[int, str], lossy_ns: int) -> tuple[str, list[str]]:
    """(what was compared, faults). Texts are those of the run without changes, up to a change that is not lossless."""
    compared, through, different = 0, 0, []
    for request in session.requests:
        n_before = sum(emission.tokens for emission in request.emissions if emission.at_ns <= lossy_ns)
        if n_before == 0 or request.finish_reason == "error":
            continue
        if request.output is None or request.id not in plain:
            return "texts are not recorded", [f"the text of request {request.id} is not known"]
        compared += 1
        is_whole = n_before == request.output_tokens and request.finish_reason == "length"
        through += not is_whole
        if not _continues(request, plain[request.id], n_before, is_whole=is_whole):
            different.append(request.id)
    line = f"{compared} texts compared, {through} of them up to a change of KV type or weights, {len(different)} differ"
    if compared == 0:
        return line, ["no text could be compared"]
    is_many = len(different) > max(1, compared // NEAR_TIES)
    return line, [f"texts differ from those without changes: {len(different)} of {compared}"] if is_many else []


def _continues(request: RequestRecord, plain: str, n_before: int, *, is_whole: bool) -> bool:
    """A text is the plain one: whole, or at least its first `n_before` tokens, each of which is a character or more."""
    text = request.output or ""
    if is_whole:
        return text == plain
    # The last of the tokens may still wait for the rest of a character.
    return text[: n_before - 1] == plain[: n_before - 1]
