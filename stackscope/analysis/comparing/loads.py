"""The load that was offered during a session: what its header says, and what it was changed to while it ran."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from stackscope.records import StepRecord, TrafficEvent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stackscope.records import AnyRecord, Header

MOST_TOLD: Final = 4
"""Loads of a session that are named one by one; of more, the first and the last are."""


@dataclass(frozen=True)
class Load:
    """How requests are offered. `None`: not recorded, or, of a rate, that none is set."""

    concurrency: int | None
    """Requests in flight of a closed loop; of an open one, conversations at most."""
    rate: float | None
    """Requests per second that arrive by themselves. `None`: a closed loop, or a trace."""
    is_trace: bool = False
    """They arrive when a trace says so."""

    def changed(self, event: TrafficEvent) -> Load:
        """What is offered after an event. A trace that is given a rate leaves its arrival times for good."""
        return replace(
            self,
            concurrency=self.concurrency if event.concurrency is None else event.concurrency,
            rate=self.rate if event.rate is None else event.rate,
            is_trace=self.is_trace and event.rate is None,
        )

    def spelled(self, before: Load | None = None) -> str:
        """In words, e.g. `20 requests/s`. `before`: the load before it, if what changed since is to be seen."""
        if self.rate is None and not self.is_trace:
            return "not recorded" if self.concurrency is None else f"{self.concurrency} in flight"
        text = "the trace's arrivals" if self.rate is None else f"{self.rate:g} requests/s"
        if before is None or before.concurrency == self.concurrency:
            return text
        return f"{text} with at most {self.concurrency} conversations"


@dataclass(frozen=True)
class LoadSpan:
    """One load that a session ran under without a break."""

    load: Load
    steps: int


def load_of(header: Header) -> Load:
    """What a session begins with."""
    asked = header.workload
    concurrency, rate = asked.get("concurrency"), asked.get("rate")
    return Load(
        concurrency if isinstance(concurrency, int) else None,
        float(rate) if isinstance(rate, int | float) else None,
        is_trace=asked.get("arrivals") == "trace" and rate is None,
    )


def told(loads: Sequence[Load]) -> str:
    """Loads one after the other, in words, e.g. `4 in flight, then 20 requests/s`."""
    before = (None, *loads[:-1])
    texts = [load.spelled(last) for load, last in zip(loads, before, strict=True)]
    if len(texts) > MOST_TOLD:
        texts = [texts[0], f"{len(texts) - 2} others", texts[-1]]
    return ", then ".join(texts)


class LoadsSeen:
    """A sink for the records of a session: under which loads its steps ran, one after the other."""

    def __init__(self, header: Header) -> None:
        self._load = load_of(header)
        self._seen: list[Load] = []

    def write(self, record: AnyRecord) -> None:
        """Take the next record."""
        if isinstance(record, TrafficEvent):
            self._load = self._load.changed(record)
        elif isinstance(record, StepRecord) and self._load not in self._seen[-1:]:
            self._seen.append(self._load)

    @property
    def loads(self) -> list[Load]:
        """None more than once in a row."""
        return self._seen


def described(header: Header, loads: Sequence[Load]) -> str:
    """What a header says of its workload, and the loads of a session that it does not know of."""
    text = header.workload.get("text")
    asked = [text] if isinstance(text, str) and text else []
    later = loads[1:] if loads and loads[0] == load_of(header) else loads
    return " · ".join([*asked, f"load changed to {told(later)}"] if later else asked)


def offered(header: Header, spans: Sequence[LoadSpan]) -> Mapping[str, object]:
    """The workload of a header with the load that its steps really ran under; `load` says it where there were several.

    One that was set before the first step that counts is the only one there was.
    """
    if not spans:
        return header.workload
    if len(spans) == 1:
        load = spans[0].load
        return header.workload if load == load_of(header) else {
            **header.workload, "concurrency": load.concurrency, "rate": load.rate
        }  # fmt: skip
    return {**header.workload, "load": told([span.load for span in spans])}
