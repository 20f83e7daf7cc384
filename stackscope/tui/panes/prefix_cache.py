"""What the prefix cache spares, what it holds, and where the last prompt left it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, ClassVar

from stackscope import units
from stackscope.tui.charts import bar
from stackscope.tui.compose import Rows, figure, flow, flowed, quantity, said, wrapped
from stackscope.tui.lines import Line, Span, width
from stackscope.tui.pane import Context, Drawn, Pane, PaneHelp
from stackscope.tui.series import add_chart
from stackscope.tui.wording import awaited, has_begun

if TYPE_CHECKING:
    from stackscope.analysis.live.snapshot import Levels, Window


class PrefixCachePane(Pane):
    """The prefix cache."""

    id: ClassVar = "prefix"
    title: ClassVar = "Prefix cache"
    help: ClassVar = PaneHelp(
        meaning="How much of the prompts was found in the cache, so that it was not computed again. A hit is useful "
        "when it spared work: a request that was pre-empted and finds its own tokens again is a hit, and no gain. "
        "Blocks are the cache's grains; those that more than one cached path runs through are shared. The last miss is"
        " the first prompt token that differed from what is cached: a date in a system prompt shows here.",
        formula="useful hit rate = Σ useful hit tokens ÷ Σ prompt tokens looked up. Held is the KV of the resident "
        "blocks in the target's cache.",
        moves="Prompts that begin alike, what changes at their end; more room (cache capacity, context, fewer bits per"
        " KV value); fewer requests in flight, which take cells from it.",
    )

    def drawn(self, context: Context) -> Drawn:
        snapshot, size = context.snapshot, context.size
        if not has_begun(snapshot):
            return Drawn(wrapped(awaited(snapshot, "what it spares shows here"), size.width))
        window = snapshot.minute
        if snapshot.config is not None and not snapshot.config.prefix_cache:
            return Drawn(self._off(context), (said("off", "headline"),))
        if window.lookup_tokens is None and snapshot.levels.resident_blocks is None:
            return Drawn(wrapped("This source does not tell what its prefix cache does.", size.width))
        rows = Rows()
        rows.add(0, *_reused(context, window))
        for rank, line in enumerate(_resident(snapshot.levels, size.width)):
            rows.add(2 + 3 * rank, line)
        rows.add(4, _moved(window, size.width))
        rows.add(3, _missed(snapshot.levels, size.width))
        add_chart(rows, 1, context, "useful_hit_rate", "useful hits", spelled=units.percent, top=1.0)
        return Drawn(rows.laid_out(size.height), _notes(window))

    def _off(self, context: Context) -> tuple[Line, ...]:
        rows = Rows()
        rows.add(0, *wrapped("The prefix cache is off.", context.size.width, ""))
        rows.add(2, *wrapped("Every prompt is computed whole.", context.size.width))
        levels = context.snapshot.levels
        if levels.resident_blocks:
            rows.add(3, *_resident(levels, context.size.width))
        add_chart(rows, 4, context, "useful_hit_rate", "useful hits", spelled=units.percent, top=1.0)
        return rows.laid_out(context.size.height)


def _notes(window: Window) -> tuple[Line, ...]:
    if window.useful_hit_rate is None:
        return ()
    rate = quantity(units.percent(window.useful_hit_rate), "headline")
    return ((*rate, Span(" useful, last minute", "label")), (*rate, Span(" useful", "label")), rate)


def _reused(context: Context, window: Window) -> tuple[Line, ...]:
    """Tokens spared of those looked up, as numbers and as a bar."""
    room = context.size.width
    if not window.lookup_tokens:
        return wrapped("Nothing was looked up in the last minute.", room)
    saved, looked_up = units.count(window.useful_hit_tokens), units.count(window.lookup_tokens)
    whole: Line = (
        Span("reused ", "label"), Span(saved, "value"), Span(" of ", "label"), Span(looked_up, "value"),
        Span(" tok", "unit"),
    )  # fmt: skip
    line = flow((whole,), room) or flow((figure("reused", f"{saved} tok"),), room)
    length = room - width(line) - 2
    return (
        ((*line, Span("  "), *bar(window.useful_hit_rate, min(length, 40), context.look)),) if length >= 6 else (line,)
    )


def _resident(levels: Levels, room: int) -> tuple[Line, ...]:
    items = [
        figure("resident", units.counted(levels.resident_blocks, "block")),
        figure("shared", units.count(levels.shared_blocks)),
        figure("holds", units.data_size(levels.held_bytes)),
        figure("paths", units.count(levels.resident_paths)),
    ]
    return flowed(items, room, 2)


def _moved(window: Window, room: int) -> Line:
    read = figure("read", units.count(window.blocks_read))
    written = figure("written", units.count(window.blocks_written))
    evicted = figure("evicted", units.count(window.blocks_evicted))
    items = [read, written, evicted, said("blocks in the last minute")]
    if width(flow(items[:3], sys.maxsize, 2)) > room:
        items = [evicted, written, read]  # What was thrown away is what tells that there is too little room.
    return flow(items, room, 2)


def _missed(levels: Levels, room: int) -> Line:
    if levels.missed_at is None:
        return flow(((Span("last miss ", "label"), Span("none known", "unit")),), room)
    where = (
        Span("last miss ", "label"),
        Span("at prompt token ", "unit"),
        Span(units.count(levels.missed_at), "value"),
    )
    return flow((where,), room) or flow((figure("last miss", units.count(levels.missed_at)),), room)
