"""Reading a workload file: telling its format, decoding and checking every line."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgspec

from stackscope.errors import WorkloadError
from stackscope.workload.entries import Entry, WorkloadFile
from stackscope.workload.formats import FORMATS, BadEntryError
from stackscope.workload.rows import Row, bad_line, decode_reason, read_bytes, rows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stackscope.workload.formats import Format


def read_file(path: str, format: str = "auto") -> WorkloadFile:
    """Read a file whole. Raises WorkloadError for the first bad line, as `FILE:LINE: reason`.

    Entries with arrival times come back ordered by them.
    """
    data = read_bytes(path)
    values = list(rows(data, path))
    if not values:
        raise WorkloadError(f"{path} has no entries.")
    chosen = _detected(values[0], path) if format == "auto" else _named(format)
    entries, n_silent = _decoded(values, chosen, path)
    if not entries:
        raise WorkloadError(f"{path} has nothing to ask: none of its conversations has a message from the user.")
    notes = []
    if n_silent > 0:
        notes.append(f"{n_silent:,} conversations without a message from the user were left out.")
    timed = [entry for entry in entries if entry.arrival_ns is not None]
    if 0 < len(timed) < len(entries):
        untimed = next(entry for entry in entries if entry.arrival_ns is None)
        raise bad_line(path, untimed.line, f"it has no arrival time, but line {timed[0].line} has one")
    ordered = sorted(entries, key=lambda entry: entry.arrival_ns or 0)
    if ordered != entries:
        notes.append("The entries were put in the order of their arrival.")
    return WorkloadFile(
        path=path,
        format=chosen.name,
        entries=tuple(ordered),
        notes=tuple(notes),
        sha256=hashlib.sha256(data).hexdigest(),
    )


def _decoded(values: Iterable[Row], chosen: Format, path: str) -> tuple[list[Entry], int]:
    """The entries of all lines, and how many lines had nothing to ask."""
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(type=chosen.line_type)
    entries: list[Entry] = []
    n_silent = 0
    for row in values:
        try:
            found = chosen.entries(decoder.decode(row.json), row.line)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise bad_line(path, row.line, decode_reason(error, bytes(row.json)), remedy=_as(chosen)) from error
        except BadEntryError as error:
            raise bad_line(path, row.line, str(error)) from error
        entries += found
        n_silent += not found
    return entries, n_silent


def _as(chosen: Format) -> str:
    return f"The file is read as {chosen.name}; give the format if it is another one."


def _named(format: str) -> Format:
    for candidate in FORMATS:
        if candidate.name == format:
            return candidate()
    raise WorkloadError(f"There is no workload format {format!r}.", remedy=f"Use {_names()}.")


def _detected(first: Row, path: str) -> Format:
    """The format whose keys the first value has. Raises WorkloadError when it is none or several."""
    try:
        value = msgspec.json.decode(first.json, type=str | dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, RecursionError) as error:
        reason = decode_reason(error, bytes(first.json))
        raise bad_line(path, first.line, reason, remedy="A workload is one JSON object per line.") from error
    if isinstance(value, str):
        return _named("jsonl")
    found = [candidate for candidate in FORMATS if candidate.keys & value.keys()]
    if len(found) == 1:
        return found[0]()
    if not found:
        keys = ", ".join(list(value)[:8]) or "none"
        raise bad_line(path, first.line, f"no format has these keys: {keys}", remedy=f"Give the format: {_names()}.")
    candidates = " or ".join(candidate.name for candidate in found)
    raise bad_line(path, first.line, f"its keys fit {candidates}", remedy="Give the format.")


def _names() -> str:
    return ", ".join(candidate.name for candidate in FORMATS)
