"""Single steps as lines: a bar of their parts to a common scale, who was in the batch, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from stackscope import units
from stackscope.records import StepRecord
from stackscope.tui.charts import LETTERS, ceiling, portions
from stackscope.tui.lines import Line, Span, fitted, printable, width
from stackscope.tui.theme import PARTS
from stackscope.tui.wording import changed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.analysis.live.snapshot import Event
    from stackscope.records import SlotWork
    from stackscope.tui.look import Look

SLOW: Final = 2
"""A step is slow from this many times the median on."""
PHASES: Final = {"prefill": "p", "decode": "d", "verify": "v"}


@dataclass(frozen=True)
class Divider:
    """What happened between two steps."""

    text: str
    is_change: bool
    """The configuration changed; else it was a mark, or the load."""


Row: TypeAlias = StepRecord | Divider


class Columns(NamedTuple):
    """Cells of the columns that depend on the width. 0: left out."""

    clock: int
    bar: int
    batch: int
    hits: int
    epoch: int


@dataclass(frozen=True)
class Waterfall:
    """Rows to be shown, and what they are drawn to."""

    rows: tuple[Row, ...] = ()
    n_steps: int = 0
    """Steps kept, those that a filter leaves out included."""
    median_ns: float | None = None
    """Of all steps kept. `None`: there are none."""
    scale_ns: float = 1.0
    """What a whole bar stands for."""


def waterfall(steps: Sequence[StepRecord], events: Sequence[Event], look: Look, *, is_slow_only: bool) -> Waterfall:
    """Steps (oldest first) with what happened between them. `events` are newest first."""
    if not steps:
        return Waterfall()
    durations = [step.duration_ns for step in steps]
    middle = float(median(durations))
    kept = [s for s, ns in zip(steps, durations, strict=True) if not is_slow_only or ns >= SLOW * middle]
    # The slowest tenth may run over the edge: a few long prefills must not make all the others invisible.
    high = sorted(durations)[max(len(durations) * 9 // 10 - 1, 0)]
    return Waterfall(_rows(kept, events, look), len(steps), middle, ceiling([float(high), 1.5 * middle]))


def _rows(steps: Sequence[StepRecord], events: Sequence[Event], look: Look) -> tuple[Row, ...]:
    # The oldest is at the end, to be popped.
    waiting = [event for event in events if event.kind not in ("refused", "verdict")]
    rows: list[Row] = []
    before: StepRecord | None = None
    for step in steps:
        is_new = before is not None and step.epoch != before.epoch
        between: list[Divider] = []
        # A step begins where the one before ended: what is done between the two is done as the second begins.
        while waiting and waiting[-1].at_ns < step.end_ns:
            between.append(_divider(waiting.pop(), look))
        if is_new and not any(divider.is_change for divider in between):
            between.append(Divider(f"configuration {units.count(step.epoch)}", is_change=True))
        if before is not None:
            rows += between
        rows.append(step)
        before = step
    return tuple(rows)


def _divider(event: Event, look: Look) -> Divider:
    if event.kind == "mark":
        return Divider(f"{units.clock(event.at_ns)}  mark: {printable(event.label)}", is_change=False)
    took = "" if event.duration_ns is None else f"  rebuilt in {units.duration(event.duration_ns)}"
    text = f"{units.clock(event.at_ns)}  {changed(event.changes, look)}{took}"
    return Divider(text, is_change=event.kind in ("live", "rebuild"))


def columns(room: int) -> Columns:
    """The columns of a line of so many cells."""
    clock, hits, epoch = (8 if room >= 100 else 0), (6 if room >= 72 else 0), (5 if room >= 100 else 0)
    left = room - _FIXED - clock - hits - epoch
    bar = max(left * 11 // 20, 6)
    return Columns(clock, bar, max(left - bar - 1, 0), hits, epoch)


_FIXED: Final = 9 + 1 + 8 + 1 + 1 + 6 + 7 + 6 + 6
"""Number, flag, milliseconds, gaps, rows, drafted, kept, out."""


def heading(room: int, scale_ns: float, look: Look) -> Line:
    """The names of the columns; over the bars, what a whole one stands for."""
    cols = columns(room)
    top = units.milliseconds(scale_ns)
    scale = f"{look.track * max(cols.bar - len(top) - 1, 0)} {top}" if cols.bar > len(top) + 2 else top
    text = (
        f"{'step':>9} {'at':>{cols.clock}}{'ms':>7} {scale:>{cols.bar}}{'rows':>6}"
        if cols.clock
        else f"{'step':>9} {'ms':>8} {scale:>{cols.bar}}{'rows':>6}"
    )
    batch = f" {'batch':<{cols.batch}}" if cols.batch >= 5 else " " * (cols.batch + 1)
    tail = f"{'drafted':>8}{'kept':>5}{'out':>6}"
    hits = f"{'hits':>{cols.hits}}" if cols.hits else ""
    epoch = f"{'conf':>{cols.epoch}}" if cols.epoch else ""
    return fitted((Span(f"{text}{batch}{tail}{hits}{epoch}", "label"),), room, look.ellipsis)


def row_line(row: Row, room: int, scale_ns: float, look: Look, *, is_selected: bool = False) -> Line:
    """A row as a line of exactly `room` cells."""
    if isinstance(row, Divider):
        style = "mark" if row.is_change else "accent"
        text = f"{look.track * 3} {row.text} "
        return (*fitted((Span(text[:room], style),), min(len(text), room), look.ellipsis),
                Span(look.track * max(room - len(text), 0), "track"))  # fmt: skip
    cols = columns(room)
    pointer = look.pointer if is_selected else " "
    number = units.count(row.n)
    line: list[Span] = [
        Span(f"{pointer}{number:>8}", "selected" if is_selected else "label"), Span(_flag(row), "warning"),
    ]  # fmt: skip
    if cols.clock:
        line.append(Span(f"{units.clock(row.start_ns):>{cols.clock}}", "label"))
    duration = row.duration_ns
    line.append(Span(f"{units.number(duration / 1e6):>{7 if cols.clock else 8}} ", "value"))
    line += _bar(row, duration, cols.bar, scale_ns, look)
    line.append(Span(f"{units.count(row.rows):>6} "))
    line += fitted(batch(row.work, cols.batch, look), cols.batch, look.ellipsis)
    drafted, accepted = sum(w.drafted for w in row.work), sum(w.accepted for w in row.work)
    line.append(Span(f"{units.count(drafted):>8}", "" if drafted else "label"))
    line.append(Span(f"{units.count(accepted):>5}", "" if accepted else "label"))
    line.append(Span(f"{units.count(row.emitted):>6}", "value" if row.emitted else "label"))
    if cols.hits:
        hits = units.count(row.cache.hit_tokens) if row.cache.lookups else ""
        line.append(Span(f"{hits:>{cols.hits}}", "good" if row.cache.hit_tokens else "label"))
    if cols.epoch:
        line.append(Span(f"{units.count(row.epoch):>{cols.epoch}}", "label"))
    return fitted(tuple(line), room, look.ellipsis)


def _flag(step: StepRecord) -> str:
    """One character: cut short, settling, invalid output, or nothing."""
    return "!" if step.aborted else "~" if step.settling else "x" if step.invalid_output else " "


def flags(step: StepRecord) -> tuple[str, ...]:
    """The same in words."""
    said = (
        (step.aborted, "! cut short by a command: its rows are done again"),
        (step.settling, "~ settling: it still pays for a change"),
        (step.invalid_output, "x acceptance is synthetic: its text is invalid"),
        (step.preempted > 0, f"{units.counted(step.preempted, 'request')} put back for want of room"),
    )
    return tuple(text for is_so, text in said if is_so)


def _bar(step: StepRecord, duration_ns: int, room: int, scale_ns: float, look: Look) -> Line:
    """The parts of a step, as long as it took; what runs over the edge ends in a pointer."""
    is_over = duration_ns > scale_ns
    cells = room - 1 if is_over else max(round(duration_ns / scale_ns * room), 1)
    drawn = _stacked(parts(step), cells, look)
    if is_over:
        return (*drawn, Span(look.pointer, "warning"))
    return (*drawn, Span(" " * (room - cells)))


def _stacked(shares: Sequence[float], room: int, look: Look) -> Line:
    """Parts side by side, each beginning with its letter: names in every line would hide their lengths."""
    spans = []
    for part, letter, texture, size in zip(PARTS, LETTERS, look.textures, portions(shares, room), strict=True):
        if size and look.has_colour and not look.is_ascii:
            spans.append(Span(letter.ljust(size), f"part.{part}.label"))
        elif size:
            spans.append(Span(letter + texture * (size - 1), f"part.{part}"))
    return tuple(spans)


def parts(step: StepRecord) -> tuple[float, ...]:
    """Nanoseconds of each of `snapshot.PARTS`: the forward divided by rows, idle being none of a step."""
    p = step.phases
    prefill = sum(w.new for w in step.work if w.phase == "prefill")
    deciding = sum(1 for w in step.work if w.phase != "prefill")
    rows = step.rows
    forward = 0 if step.aborted or rows == 0 else p.decode
    each = forward / rows if rows else 0.0
    return (
        each * prefill, each * deciding, each * (rows - prefill - deciding), p.draft, p.sample,
        p.admit + p.build + p.commit, p.emit, p.shadow, 0.0, p.other + p.decode - forward,
    )  # fmt: skip


def batch(work: Sequence[SlotWork], room: int, look: Look) -> Line:
    """Who was in the batch: `0d 1v4 2p256` by slot, where that fits; else `2×d 1×p256` by what they did."""
    if not work:
        return ()
    spans: list[Span] = []
    for w in sorted(work, key=lambda w: w.slot):
        spans += (Span(f"{w.slot}", "label"), Span(f"{_did(w)} "))
    if width(tuple(spans)) - 1 <= room:
        return tuple(spans)
    counts: dict[str, int] = {}
    for w in work:
        counts[_did(w)] = counts.get(_did(w), 0) + 1
    grouped: list[Span] = []
    for did, n in sorted(counts.items(), key=lambda item: -item[1]):
        grouped += (Span(f"{n}{look.times}", "label"), Span(f"{did} "))
    return tuple(grouped)


def _did(work: SlotWork) -> str:
    return PHASES[work.phase] + (units.count(work.new) if work.phase != "decode" or work.new != 1 else "")
