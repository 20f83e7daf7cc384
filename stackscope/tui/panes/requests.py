"""Requests in flight as a table, by slot."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from stackscope import units
from stackscope.tui.compose import said, wrapped
from stackscope.tui.lines import Line, Span
from stackscope.tui.pane import Context, Drawn, Pane, PaneHelp
from stackscope.tui.wording import awaited, has_begun

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stackscope.analysis.live.snapshot import RequestView, Snapshot


class Column(NamedTuple):
    """A column of the table."""

    header: str
    width: int
    rank: int
    """Columns with the highest rank go first where there is no room."""
    text: Callable[[RequestView], str]
    is_number: bool = True


ENDS: Final = {
    "eos": "end of text", "length": "limit", "context": "context full", "stop": "stop string",
    "cancelled": "cancelled", "error": "error",
}  # fmt: skip
"""How a request ended, in words."""


_PROMPT: Final = 9
"""Cells of a prompt's length; of a longer progress the share is told."""


def _prompt(request: RequestView) -> str:
    if request.prompt_tokens is None:
        return f"{units.count(request.prefilled)}/{units.UNKNOWN}"
    if request.prefilled < request.prompt_tokens:
        progress = f"{units.count(request.prefilled)}/{units.count(request.prompt_tokens)}"
        return progress if len(progress) <= _PROMPT else units.percent(request.prefilled / request.prompt_tokens)
    return units.count(request.prompt_tokens)


def _phase(request: RequestView) -> str:
    return "done" if request.finished is not None else request.phase


def _acceptance(request: RequestView) -> str:
    return units.percent(request.accepted / request.drafted) if request.drafted else units.UNKNOWN


def _pace(request: RequestView) -> str:
    seconds = request.age_ns / 1e9
    return units.number(request.output_tokens / seconds) if seconds > 0 and request.output_tokens else units.UNKNOWN


COLUMNS: Final = (
    Column("request", 7, 0, lambda request: units.count(request.id)),
    Column("slot", 4, 6, lambda request: units.count(request.slot)),
    Column("phase", 7, 1, _phase, is_number=False),
    Column("prompt", _PROMPT, 3, _prompt),
    Column("hits", 6, 4, lambda request: units.count(request.hit_tokens)),
    Column("out", 6, 2, lambda request: units.count(request.output_tokens)),
    Column("accepted", 8, 5, _acceptance),
    Column("tok/s", 6, 8, _pace),
    Column("age", 8, 7, lambda request: units.duration(request.age_ns)),
    Column("ended", 12, 9, lambda r: ENDS[r.finished] if r.finished is not None else "", is_number=False),
)
_OVER: Final = ("dead", "finished")
"""States of a session in which no request goes on."""
_GAP: Final = 2
_POINTER: Final = 2


class RequestsPane(Pane):
    """Requests in flight."""

    id: ClassVar = "requests"
    title: ClassVar = "Requests"
    help: ClassVar = PaneHelp(
        meaning="The requests in the batch, by slot, and those that have just finished. A prompt that is not in the "
        "cache yet is prefilled in chunks; hits are prompt tokens that the prefix cache spared. Out counts the tokens "
        "it has gained, accepted the share of its drafted tokens that verification kept. Age runs since it was first "
        "seen in a slot, and with it the tokens per second.",
        formula="accepted = Σ accepted ÷ Σ drafted of this request. tok/s = tokens gained ÷ age.",
        moves="Slots decide how many there are; the token budget how large a prefill's chunks are. Select one with the"
        " arrow keys to read its text.",
    )

    def drawn(self, context: Context) -> Drawn:
        snapshot, size = context.snapshot, context.size
        note = _notes(snapshot)
        if not snapshot.requests:
            text = "No request is in flight." if has_begun(snapshot) else awaited(snapshot, "requests show here")
            if snapshot.header is not None and snapshot.header.source == "attach":
                text = "This source does not tell of single requests."
            return Drawn(wrapped(text, size.width), note)
        columns = _columns(size.width)
        lines = [_header(columns)] if size.height > 1 else []
        shown, n_hidden = _shown(snapshot.requests, size.height - len(lines), context.selected)
        lines += [_line(request, columns, context) for request in shown]
        if n_hidden:
            lines.append((Span(f"{'':{_POINTER}}{units.count(n_hidden)} more", "label"),))
        return Drawn(tuple(lines), note)


def _notes(snapshot: Snapshot) -> tuple[Line, ...]:
    n = sum(request.finished is None for request in snapshot.requests)
    if not has_begun(snapshot):
        return ()
    if snapshot.state in _OVER:
        done = f"{units.count(snapshot.n_requests)} done"
        return (said(f"{units.count(n)} cut off, {done}"), said(f"{units.count(n)} cut off")) if n else (said(done),)
    waiting = snapshot.levels.queue
    full = f"{units.count(n)} in flight"
    queued = f", {units.count(waiting)} waiting" if waiting is not None else ""
    return (said(f"{full}{queued}, {units.count(snapshot.n_requests)} done"), said(f"{full}{queued}"), said(full))


def _columns(room: int) -> tuple[Column, ...]:
    """The columns that fit, in their order."""
    left = room - _POINTER + _GAP
    chosen = []
    for column in sorted(COLUMNS, key=lambda column: column.rank):
        if column.width + _GAP <= left:
            chosen.append(column)
            left -= column.width + _GAP
    return tuple(column for column in COLUMNS if column in chosen)


def _header(columns: Sequence[Column]) -> Line:
    gap = " " * _GAP
    return (Span(" " * _POINTER + gap.join(_set(column.header, column) for column in columns), "label"),)


def _set(text: str, column: Column) -> str:
    """Text in its column; too long a number takes what room it needs."""
    return text.rjust(column.width) if column.is_number else text.ljust(column.width)


def _shown(requests: Sequence[RequestView], room: int, selected: int | None) -> tuple[Sequence[RequestView], int]:
    """As many as fit, the selected one among them, and how many others there are."""
    if len(requests) <= room:
        return requests, 0
    n = max(room - 1, 1)
    index = next((i for i, request in enumerate(requests) if request.id == selected), 0)
    first = min(max(index - n + 1, 0), len(requests) - n)
    return requests[first : first + n], len(requests) - n


def _line(request: RequestView, columns: Sequence[Column], context: Context) -> Line:
    is_selected = request.id == context.selected
    pointer = f"{context.look.pointer if is_selected else '':<{_POINTER}}"
    gap = " " * _GAP
    if is_selected:
        text = pointer + gap.join(_set(_text(request, column, context), column) for column in columns)
        return (Span(text.ljust(context.size.width), "selected"),)
    style = "label" if request.finished is not None else ""
    spans = [Span(pointer)]
    for index, column in enumerate(columns):
        text = _set(_text(request, column, context), column) + (gap if index < len(columns) - 1 else "")
        spans.append(Span(text, "unknown" if text.strip() == units.UNKNOWN else _style(column, request) or style))
    return tuple(spans)


def _text(request: RequestView, column: Column, context: Context) -> str:
    is_cut_off = request.finished is None and context.snapshot.state in _OVER
    return "cut off" if is_cut_off and column.header == "phase" else column.text(request)


def _style(column: Column, request: RequestView) -> str:
    if request.finished is not None:
        return "label"
    return "value" if column.header in ("out", "request") else ""
