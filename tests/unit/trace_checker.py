"""The rules of Chrome's trace-event format, as far as what we write uses it, checked strictly."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any, Final

KEYS: Final = {
    "X": ({"ph", "pid", "tid", "name", "ts", "dur"}, {"args", "cat"}),
    "i": ({"ph", "pid", "tid", "name", "ts", "s"}, {"args", "cat"}),
    "C": ({"ph", "pid", "tid", "name", "ts", "args"}, {"cat", "id"}),
    "b": ({"ph", "pid", "tid", "name", "ts", "cat", "id"}, {"args"}),
    "e": ({"ph", "pid", "tid", "name", "ts", "cat", "id"}, {"args"}),
    "M": ({"ph", "pid", "tid", "name", "args"}, set()),
}
"""By phase of an event: the fields it must have, and those that it may."""
METADATA: Final = {
    "process_name": ("name", str), "thread_name": ("name", str),
    "process_sort_index": ("sort_index", int), "thread_sort_index": ("sort_index", int),
}  # fmt: skip


def check(document: Any) -> None:
    """Raises `AssertionError` with the event that breaks a rule."""
    assert isinstance(document, dict)
    assert set(document) == {"displayTimeUnit", "otherData", "traceEvents"}
    assert document["displayTimeUnit"] in ("ms", "ns")
    assert isinstance(document["otherData"], dict)
    events = document["traceEvents"]
    assert isinstance(events, list)
    for event in events:
        _check_fields(event)
    _check_names(events)
    _check_nesting([event for event in events if event["ph"] == "X"])
    _check_asynchronous([event for event in events if event["ph"] in "be"])


def nanoseconds(microseconds: float) -> int:
    """What a reader makes of a time: it keeps nanoseconds."""
    return round(microseconds * 1000)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _check_fields(event: Any) -> None:
    assert isinstance(event, dict), event
    assert event.get("ph") in KEYS, event
    must, may = KEYS[event["ph"]]
    assert must <= set(event) <= must | may, event
    assert isinstance(event["name"], str), event
    assert event["name"], event
    for field in ("pid", "tid"):
        assert isinstance(event[field], int), event
        assert not isinstance(event[field], bool), event
    for field in ("ts", "dur"):
        if field in event:
            assert _is_number(event[field]), event
            assert event[field] >= 0, event
    assert isinstance(event.get("args", {}), dict), event
    if event["ph"] == "i":
        assert event["s"] in ("g", "p", "t"), event
    if event["ph"] == "C":
        assert event["args"], event
        assert all(map(_is_number, event["args"].values())), event
    if event["ph"] in "be":
        assert all(isinstance(event[field], str) and event[field] for field in ("cat", "id")), event
    if event["ph"] == "M":
        assert event["name"] in METADATA, event
        key, kind = METADATA[event["name"]]
        assert set(event["args"]) == {key}, event
        assert isinstance(event["args"][key], kind), event


def _check_names(events: list[Any]) -> None:
    """Every group and every track with slices or instants has exactly one name."""
    processes = [event["pid"] for event in events if event["name"] == "process_name" and event["ph"] == "M"]
    tracks = [(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name" and event["ph"] == "M"]
    assert len(processes) == len(set(processes))
    assert len(tracks) == len(set(tracks))
    assert {event["pid"] for event in events} <= set(processes)
    # Perfetto looks a track up by its number alone when it names it.
    groups: dict[int, set[int]] = defaultdict(set)
    for event in events:
        groups[event["tid"]].add(event["pid"])
    assert all(len(pids) == 1 for pids in groups.values()), groups
    assert {(event["pid"], event["tid"]) for event in events if event["ph"] in "Xi"} <= set(tracks)


def _check_nesting(slices: list[Any]) -> None:
    """On one track, slices hold each other or lie apart; of those that begin together, the longer one is written first,
    so that a reader that sorts by time alone nests them rightly."""
    by_track: dict[tuple[int, int], list[Any]] = defaultdict(list)
    for event in slices:
        by_track[event["pid"], event["tid"]].append(event)
    for track in by_track.values():
        open_until: list[int] = []
        for event in sorted(track, key=lambda event: event["ts"]):
            start = nanoseconds(event["ts"])
            end = start + nanoseconds(event["dur"])
            while open_until and open_until[-1] <= start:
                open_until.pop()
            assert not open_until or end <= open_until[-1], event
            open_until.append(end)


def _check_asynchronous(events: list[Any]) -> None:
    """What begins ends, in the order of nesting, and not before it began."""
    open_slices: dict[tuple[str, str], list[Any]] = defaultdict(list)
    latest: dict[tuple[str, str], int] = {}
    for event in events:
        key = event["cat"], event["id"]
        at = nanoseconds(event["ts"])
        assert at >= latest.get(key, 0), event
        latest[key] = at
        if event["ph"] == "b":
            open_slices[key].append(event["name"])
        else:
            assert open_slices[key], event
            assert open_slices[key].pop() == event["name"], event
    assert not any(open_slices.values()), open_slices
