"""Recordings as lines: the list with its headline numbers, and everything known about one of them."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

from stackscope import units
from stackscope.analysis.metrics import counts, load, speculation
from stackscope.tui.compose import wrapped
from stackscope.tui.library import begun
from stackscope.tui.lines import Line, Span, fitted, printable

if TYPE_CHECKING:
    from stackscope.tui.library import Digest, Entry
    from stackscope.tui.look import Look


class Marks(NamedTuple):
    """How a recording stands out in the list."""

    is_selected: bool = False
    is_picked: bool = False
    """For a comparison."""
    is_written: bool = False
    """It is being recorded now."""


class Columns(NamedTuple):
    """Cells of the columns that depend on the width. 0: left out."""

    date: int
    model: int
    workload: int
    per_forward: int
    hits: int
    state: int


def columns(room: int) -> Columns:
    """The columns of a line of so many cells. What would have a few letters is left out for what tells more."""
    date, state = (17, 15) if room >= 100 else (12, 1)
    left = room - _FIXED - date - state
    per_forward, hits = (0 if left < _NAMES + each else each for each in (_PER_FORWARD, _PER_FORWARD + _HITS))
    hits = max(hits - _PER_FORWARD, 0)
    left -= per_forward + hits
    model = min(left * 3 // 5, left - _WORKLOAD) if left >= _NAMES else max(left, 0)
    return Columns(date, model, max(left - model, 0), per_forward, hits, state)


_FIXED = 3 + 11 + 8 + 9 + 2
"""Pointer and pick, duration, tok/s, size, a gap."""
_PER_FORWARD, _HITS = 6, 8
_WORKLOAD = 8
_NAMES = 2 * _WORKLOAD
"""Cells of model and workload, below which there is one of them alone."""


def heading(room: int, look: Look) -> Line:
    """The names of the columns."""
    cols = columns(room)
    per_forward = f"{'A':>{cols.per_forward}}" if cols.per_forward else ""
    hits = f"{'hits':>{cols.hits}}" if cols.hits else ""
    text = (
        f"   {'recorded':<{cols.date}}{'model':<{cols.model}}{'workload'[: cols.workload]:<{cols.workload}}{'took':>11}"
        f"{'tok/s':>8}{per_forward}{hits}{'size':>9}  {'state' if cols.state > 1 else ''}"
    )
    return fitted((Span(text, "label"),), room, look.ellipsis)


def row_line(entry: Entry, known: Digest, marks: Marks, room: int, look: Look) -> Line:
    """A recording on a line of exactly `room` cells. What cannot be read says so."""
    cols = columns(room)
    pointer = look.pointer if marks.is_selected else " "
    pick = look.tick if marks.is_picked else " "
    head: list[Span] = [Span(f"{pointer}{pick} ", "accent"), Span(_date(entry, known, cols.date), "label")]
    if known.damage is not None:
        text = f"{look.cross} {printable(known.damage.replace(str(entry.path), entry.path.name))}"
        line = fitted((*head, Span(text, "bad")), room, look.ellipsis)
    else:
        sign, word = state_of(known, look, is_written=marks.is_written)
        state = f"{sign} {word}" if cols.state > 1 else sign
        line = (
            *head,
            *fitted((Span(model_of(entry, known), "value"),), cols.model - 1, look.ellipsis),
            Span(" "),
            *fitted((Span(workload_of(known)),), cols.workload, look.ellipsis),
            *_figures(entry, known, cols),
            *fitted((Span(f"  {state}", "warning" if word in ("cut off", "being written") else "label"),),
                    cols.state + 2, look.ellipsis),
        )  # fmt: skip
        line = fitted(line, room, look.ellipsis)
    return tuple(Span(span.text, "selected") for span in line) if marks.is_selected else line


def _figures(entry: Entry, known: Digest, cols: Columns) -> Line:
    result = known.result
    size = Span(f"{units.data_size(entry.bytes):>9}", "label")
    if result is None:
        return (Span(f"{'reading':>11}{'':>{8 + cols.per_forward + cols.hits}}", "unknown"), size)
    per_forward, hits = (
        f"{text:>{room}}" if room else ""
        for text, room in (
            (units.number(result[speculation.TokensPerForward]), cols.per_forward),
            (units.percent(result[load.UsefulHitRate]), cols.hits),
        )
    )
    return (
        Span(f"{units.duration(known.duration_ns):>11}"),
        Span(f"{units.number(result[load.OutputRate]):>8}", "value"),
        Span(f"{per_forward}{hits}"),
        size,
    )


def state_of(known: Digest, look: Look, *, is_written: bool) -> tuple[str, str]:
    """A sign and a word for the state of a recording."""
    if known.damage is not None:
        return look.cross, "damaged"
    if is_written:
        return look.recording, "being written"
    if known.result is None:
        return " ", ""
    if known.truncated is not None:
        return "~", "cut off"
    if known.left_out is not None:
        return "~", "incomplete"
    return look.tick, {"done": "whole", "interrupted": "ended by hand", "engine-died": "engine died"}.get(
        known.result.ended or "", "whole"
    )


def _date(entry: Entry, known: Digest, room: int) -> str:
    """When it was begun."""
    moment = begun(entry, known)
    if moment is None:
        return units.UNKNOWN.ljust(room)
    text = moment.strftime("%Y-%m-%d %H:%M" if room >= 16 else "%m-%d %H:%M")
    return text.ljust(room)


def model_of(entry: Entry, known: Digest) -> str:
    """The target by its file, whose name tells the weights too."""
    if known.header is None:
        return printable(entry.path.name)
    model = known.header.model
    return "unknown model" if model is None else printable(PurePath(model.path).stem or model.name)


def workload_of(known: Digest) -> str:
    """What traffic it was."""
    if known.header is None:
        return ""
    workload = known.header.workload
    name = workload.get("name") or str(workload.get("path") or units.UNKNOWN).rpartition("/")[2]
    return printable(str(name))


def detail_lines(entry: Entry, known: Digest, marks: Marks, room: int, look: Look) -> tuple[Line, ...]:
    """Everything about one recording."""
    lines: list[Line] = [(Span(printable(str(entry.path)), "title"),)]
    if known.damage is not None:
        return (*lines, *wrapped(known.damage, room, "bad"))
    sign, word = state_of(known, look, is_written=marks.is_written)
    told = [f"{sign} {word}".strip()] if word else ["being read"]
    if entry.is_shipped:
        told.append("comes with Stackscope")
    if known.header is not None:
        told += [known.header.device, f"stackscope {known.header.stackscope}"]
    lines.append((Span(f" {look.dot} ".join(map(printable, told)), "label"),))
    if known.truncated is not None and not marks.is_written:
        lines += wrapped(known.truncated, room, "warning")
    if known.left_out is not None:
        lines += wrapped(known.left_out, room, "warning")
    result = known.result
    if result is not None:
        finished = sum((result[counts.Requests] or {}).values())
        text = f" {look.dot} ".join(
            (units.counted(result[counts.Steps], "step"), units.counted(finished, "request"),
             f"{units.counted(result[counts.OutputTokens], 'token')} out",
             units.counted(len(result.epochs) or 1, "configuration"))
        )  # fmt: skip
        lines.append((Span(text),))
    return tuple(lines)
