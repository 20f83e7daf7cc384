"""One step in full: every phase, sequence and forward, what the prefix cache did, how busy the threads were."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackscope import units
from stackscope.analysis.totals import SPELLED
from stackscope.tui.charts import bar, stacked_bar
from stackscope.tui.compose import beside, figure, flowed, wrapped
from stackscope.tui.lines import Line, Span, fitted, width
from stackscope.tui.steps import flags, parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.records import StepRecord
    from stackscope.tui.look import Look

PHASES: Final = {
    "admit": "part.schedule", "draft": "part.draft", "build": "part.schedule", "decode": "part.decode",
    "sample": "part.sample", "commit": "part.schedule", "emit": "part.emit", "shadow": "part.shadow",
    "other": "part.unexplained",
}  # fmt: skip
"""As they are stamped, with the style of the part that each is counted to."""
TWO_COLUMNS: Final = 76
"""Cells from which the phases stand beside the rest."""
_LEFT: Final = 40


def details(step: StepRecord, threads: int | None, room: int, look: Look) -> tuple[Line, ...]:
    """Everything about a step, in lines of at most `room` cells. `threads`: `None` is not known."""
    lines = [_head(step, room, look), stacked_bar(parts(step), room, look)]
    lines += [(Span(text, "warning"),) for text in flags(step)]
    if room < TWO_COLUMNS:
        lines += [(), *_phases(step, room, look), (), *_rest(step, threads, room, look)]
    else:
        left, right = _phases(step, _LEFT, look), _rest(step, threads, room - _LEFT - 3, look)
        lines.append(())
        for y in range(max(len(left), len(right))):
            lines.append(beside(left[y] if y < len(left) else (), right[y] if y < len(right) else (), _LEFT))
    return tuple(fitted(line, room, look.ellipsis) if width(line) > room else line for line in lines)


def _head(step: StepRecord, room: int, look: Look) -> Line:
    line = (
        Span(f"Step {units.count(step.n)}", "headline"), Span(f"  at {units.clock(step.start_ns)}  ", "label"),
        Span(units.duration(step.duration_ns), "value"),
        Span(f"  configuration {units.count(step.epoch)}", "label"),
    )  # fmt: skip
    return fitted(line, room, look.ellipsis)


def _phases(step: StepRecord, room: int, look: Look) -> list[Line]:
    """A line for each phase that took any time, in the order in which they are stamped."""
    whole = step.duration_ns
    lines = []
    for name, style in PHASES.items():
        ns = getattr(step.phases, name)
        if ns == 0:
            continue
        share = ns / whole if whole else 0.0
        told = SPELLED.get(name, name)
        text: Line = (
            Span(f"{told:<7}"), Span(f"{units.duration(ns):>9}", "value"), Span(f"{units.percent(share):>8} ", "label"),
        )  # fmt: skip
        lines.append((*text, *bar(share, max(room - width(text), 0), look, style)))
    return lines


def _rest(step: StepRecord, threads: int | None, room: int, look: Look) -> list[Line]:
    lines = [*flowed(_forward(step, threads), room, gap=3)]
    lines += _drafts(step, room)
    lines += _cache(step, room)
    return [*lines, (), *_sequences(step, room, look)] if step.work else [*lines, (Span("no forward", "label"),)]


def _forward(step: StepRecord, threads: int | None) -> Sequence[Line]:
    """The target's forward, and what stood around it."""
    found = [
        figure("rows", units.count(step.rows)),
        figure("logit rows", units.count(step.outputs)),
        figure("out", units.count(step.emitted)),
        figure("queue", units.count(step.queue)),
        figure("slots", f"{units.count(step.slots_busy)}/{units.count(step.slots)}"),
        figure("KV cells", units.count(step.kv_cells)),
    ]
    decode = step.phases.decode
    share = None if step.cpu_ns is None or not threads or not decode else step.cpu_ns / (threads * decode)
    found.append(figure("CPU of threads", units.percent(share)))
    passes = step.passes
    if len(passes) > 1:
        found.append(figure("passes", " + ".join(units.count(p.rows) for p in passes)))
    if step.delay is not None:
        found.append(figure(f"causal probe: {step.delay.phase} later by", units.duration(step.delay.ns)))
    return found


def _drafts(step: StepRecord, room: int) -> tuple[Line, ...]:
    if not step.draft:
        return ()
    rows = [sum(new for _, new in forward.spans) for forward in step.draft]
    text = f"{units.counted(len(rows), 'draft forward')} of {', '.join(map(units.count, rows))} rows"
    return wrapped(text, room, "")


def _cache(step: StepRecord, room: int) -> tuple[Line, ...]:
    cache = step.cache
    said = []
    if cache.lookups:
        looked_up = units.counted(cache.lookup_tokens, "token")
        said.append(f"prefix cache: {units.count(cache.hit_tokens)} of {looked_up} hit")
        if cache.useful_hit_tokens != cache.hit_tokens:
            said.append(f"{units.count(cache.useful_hit_tokens)} of them useful")
        if cache.missed_at is not None:
            said.append(f"missed at token {units.count(cache.missed_at)}")
    for n, verb in ((cache.blocks_written, "written"), (cache.blocks_evicted, "evicted")):
        if n:
            said.append(f"{units.counted(n, 'block')} {verb}")
    if cache.copied_bytes:
        said.append(f"{units.data_size(cache.copied_bytes)} of KV copied")
    return flowed([(Span(text),) for text in said], room, gap=3)


def _sequences(step: StepRecord, room: int, look: Look) -> list[Line]:
    """A line for each sequence in the batch; where it is narrow, without what matters least."""
    has_drafts = any(w.drafted for w in step.work)
    is_wide, has_room = room >= 32 + 13 * has_drafts + 10, room >= 32 + 13
    rows: list[Sequence[str]] = [("slot", "request", "phase", "new", "in cache", "drafted", "kept", "out")]
    rows += [
        (*map(units.count, (w.slot, w.request)), w.phase,
         *map(units.count, (w.new, w.cached, w.drafted, w.accepted, w.emitted)))
        for w in step.work
    ]  # fmt: skip
    lines = []
    for index, (slot, request, phase, new, cached, drafted, kept, out) in enumerate(rows):
        text = f"{slot:>4} {request:>8} {phase:<7}{new:>6}"
        text += f"{cached:>10}" if is_wide else ""
        text += f"{drafted:>8}{kept:>5}" if has_drafts and has_room else ""
        lines.append(fitted((Span(f"{text}{out:>5}", "label" if index == 0 else ""),), room, look.ellipsis))
    return lines
