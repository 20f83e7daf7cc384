"""The pieces of a trace in Chrome's trace-event format, and a file of them that is written as they come.

The format is that of *Trace Event Format* (Google, 2016), in its JSON object form, which ui.perfetto.dev and
chrome://tracing read. Times are microseconds; three decimals keep every nanosecond.
"""

from __future__ import annotations

import gzip
from typing import IO, TYPE_CHECKING, Any, Final, TypeAlias, cast

import msgspec

from stackscope.characters import harmless
from stackscope.session.format import without_surrogates

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TraceEvent: TypeAlias = dict[str, object]
Args: TypeAlias = "Mapping[str, object]"

GZIP_LEVEL: Final = 3
"""Nearly the size of level 6 in a third of its time: the text repeats itself closely."""


def microseconds(ns: int) -> float:
    return ns / 1000


def slice_of(pid: int, tid: int, name: str, start_ns: int, end_ns: int, args: Args | None = None) -> TraceEvent:
    """Something that lasted, on a track."""
    event: TraceEvent = {
        "ph": "X", "pid": pid, "tid": tid, "name": harmless(name), "ts": microseconds(start_ns),
        "dur": microseconds(max(end_ns - start_ns, 0)),
    }  # fmt: skip
    return event | {"args": known(args)} if args else event


def instant(pid: int, tid: int, name: str, at_ns: int, args: Args | None = None) -> TraceEvent:
    """Something that happened, on a track."""
    event: TraceEvent = {
        "ph": "i", "s": "t", "pid": pid, "tid": tid, "name": harmless(name), "ts": microseconds(at_ns),
    }  # fmt: skip
    return event | {"args": known(args)} if args else event


def counter(pid: int, name: str, at_ns: int, values: Mapping[str, float]) -> TraceEvent:
    """Levels from then on, by series."""
    return {"ph": "C", "pid": pid, "tid": pid, "name": harmless(name), "ts": microseconds(at_ns), "args": values}


def asynchronous(
    ph: str, pid: int, name: str, at_ns: int, *, category: str, id: int, args: Args | None = None
) -> TraceEvent:
    """Beginning (`b`) or end (`e`) of something that may overlap others; what has the same id nests."""
    event: TraceEvent = {
        "ph": ph, "pid": pid, "tid": pid, "cat": category, "id": f"0x{id:x}", "name": harmless(name),
        "ts": microseconds(at_ns),
    }  # fmt: skip
    return event | {"args": known(args)} if args else event


def process_name(pid: int, name: str, *, order: int) -> list[TraceEvent]:
    """What a group of tracks is called, and where it stands."""
    return [
        {"ph": "M", "pid": pid, "tid": pid, "name": "process_name", "args": {"name": name}},
        {"ph": "M", "pid": pid, "tid": pid, "name": "process_sort_index", "args": {"sort_index": order}},
    ]


def track_name(pid: int, tid: int, name: str) -> list[TraceEvent]:
    """What a track is called; tracks stand in the order of their `tid`."""
    return [
        {"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": name}},
        {"ph": "M", "pid": pid, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": tid}},
    ]


def known(args: Args | None) -> dict[str, object]:
    """Arguments without those that are not known, their texts without what would not be seen."""
    return {
        name: harmless(value) if isinstance(value, str) else value
        for name, value in (args or {}).items()
        if value is not None
    }


class TraceFile:
    """Writes events to a file, one by one; compressed where its name ends in `.gz`. Raises `OSError`."""

    def __init__(self, path: Path, *, is_compressed: bool, about: Args) -> None:
        self._raw = path.open("wb")
        file: IO[bytes] = self._raw
        if is_compressed:
            # Without name and time of its own, the same session gives the same bytes.
            file = cast("Any", gzip.GzipFile(filename="", fileobj=self._raw, mode="wb", mtime=0,
                                             compresslevel=GZIP_LEVEL))  # fmt: skip
        self._file = file
        head = _encoded({"displayTimeUnit": "ms", "otherData": known(about)})
        self._file.write(head[:-1] + b',"traceEvents":[\n')
        self.n_events = 0

    def put(self, event: TraceEvent) -> None:
        line = _encoded(event)
        self._file.write(b",\n" + line if self.n_events else line)
        self.n_events += 1

    def finish(self) -> None:
        """Write the end."""
        self._file.write(b"\n]}\n")

    def close(self) -> None:
        """Close, finished or not."""
        try:
            self._file.close()
        finally:
            self._raw.close()


def _encoded(value: object) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(without_surrogates(value))
