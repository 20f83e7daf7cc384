"""Measured ceilings as text: what limits a model here at most, and how steady the figures are."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

from rich.text import Text

from stackscope import units
from stackscope.hardware import ceilings as cache
from stackscope.report.layout import bar, columns, hang, row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.records.ceilings import Ceiling, Ceilings, ForwardTime, Measured, Place

PLACES: Final[dict[Place, str]] = {"memory": "reading memory", "cache": "reading the cache"}
BAR_WIDTH: Final = 20

UNSTEADY: Final = 0.10
"""Spread from which on a figure is marked."""

LEGEND: Final = (
    "row: a token that a forward computes, of one sequence or of many",
    "logits: rows that a token can be chosen from",
    f"spread: how far a figure's samples are apart, as a share of it; (!) from {units.percent(UNSTEADY)} on",
)
"""What the tables' words mean."""


def shown(ceilings: Ceilings, width: int, *, now: datetime, notes: Sequence[str] = ()) -> Text:
    """Everything that was measured, in lines of at most `width` cells."""
    blocks = [
        _title(ceilings, width, now),
        _limits(ceilings, width),
        _types(ceilings),
        _curve(ceilings),
        _costs(ceilings, width),
        [row("words", LEGEND, width, style="dim")] if ceilings.types or ceilings.forwards else [],
        [row("not known", [f"{what}: {why}"], width, style="yellow") for what, why in ceilings.unknown.items()],
        [row("note", [note], width, style="yellow") for note in (*_warnings(ceilings, now), *notes)],
    ]
    return Text("\n\n").join(Text("\n").join(lines) for lines in blocks if lines)


def one_line(ceilings: Ceilings, now: datetime) -> str:
    """The two ceilings, and how old they are."""
    parts = [
        f"{_at_most(ceilings.bandwidth, is_bytes=True)} and {_rate(ceilings.compute)} on {_threads(ceilings)}",
        f"measured {units.duration(cache.age_ns(ceilings, now))} ago",
    ]
    return "; ".join([*parts, *_warnings(ceilings, now)])


def _title(ceilings: Ceilings, width: int, now: datetime) -> list[Text]:
    given = ceilings.conditions
    kind = "full" if ceilings.is_full else "quick"
    when = datetime.fromisoformat(ceilings.measured)
    measured = [
        f"{when:%Y-%m-%d %H:%M}",
        f"{units.duration(cache.age_ns(ceilings, now))} ago",
        f"{kind}, {units.duration(ceilings.duration_ns)}",
        "others took an unknown share of a CPU"
        if ceilings.foreign_share is None
        else f"others took {units.percent(ceilings.foreign_share)} of a CPU",
    ]
    types = given.kv_type_k if given.kv_type_k == given.kv_type_v else f"{given.kv_type_k}/{given.kv_type_v}"
    flash = "flash attention" if given.flash_attention else "no flash attention"
    return [
        hang(Text(f"{given.model}  ", style="bold"), [_threads(ceilings), f"KV {types}", flash], width),
        row("machine", given.machine.split("; "), width),
        row("library", [given.library.split(" | ")[0], f"threads wait with {given.waiting}"], width),
        row("measured", measured, width),
    ]


def _threads(ceilings: Ceilings) -> str:
    return units.counted(ceilings.conditions.threads, "thread")


def _warnings(ceilings: Ceilings, now: datetime) -> list[str]:
    found = []
    if ceilings.is_busy:
        found.append(
            "the machine was not quiet: these may be too low; sessions take them for no ceiling, and their time model "
            "only begins with them"
        )
    elif not ceilings.is_quiet:
        found.append("whether the machine was quiet is not known")
    if cache.is_old(ceilings, now):
        found.append("they are old: measure again with `stackscope calibrate`")
    return found


def _limits(ceilings: Ceilings, width: int) -> list[Text]:
    lines = [
        row("bandwidth", [_at_most(ceilings.bandwidth, is_bytes=True), _source(ceilings.bandwidth)], width),
        row("compute", [_at_most(ceilings.compute), _source(ceilings.compute)], width),
    ]
    reads = [
        f"{'memory' if read.place == 'memory' else 'the cache'} {_figure(read.bytes_per_s, 'B/s')}, "
        f"{units.data_size(read.set_bytes)} again and again"
        for read in ceilings.reads
    ]
    if reads:
        lines.append(row("reading", reads, width))
    if ceilings.cache_bytes is not None:
        fits = "fits" if ceilings.fits_cache else "does not fit"
        size = f"{units.data_size(ceilings.cache_bytes)} at the last level"
        parts = [size, f"what a forward of one row reads {fits}"]
        if ceilings.draft_fits_cache is not None:
            parts.append(f"the draft model {'fits' if ceilings.draft_fits_cache else 'does not fit'}")
        lines.append(row("cache", parts, width))
    return lines


def _rate(ceiling: Ceiling | None, *, is_bytes: bool = False) -> str:
    if ceiling is None:
        return units.UNKNOWN
    return (units.bandwidth if is_bytes else units.flop_rate)(ceiling.value)


def _at_most(ceiling: Ceiling | None, *, is_bytes: bool = False) -> str:
    return units.UNKNOWN if ceiling is None else f"at most {_rate(ceiling, is_bytes=is_bytes)}"


def _source(ceiling: Ceiling | None) -> str:
    """What reached it, and how steadily."""
    if ceiling is None:
        return "not measured"
    what = f"forwards of {units.counted(ceiling.rows, 'row')}" if ceiling.kind == "forward" else PLACES[ceiling.kind]
    when = "" if ceiling.measured is None else f", reached {datetime.fromisoformat(ceiling.measured):%Y-%m-%d %H:%M}"
    return f"{what}, {_spread(ceiling.spread)}{when}"


def _spread(spread: float | None) -> str:
    """How far apart the samples are that count, as a share of the figure."""
    return "one sample" if spread is None else f"spread {_marked(spread)}"


def _marked(spread: float | None) -> str:
    return units.percent(spread) + (" (!)" if spread is not None and spread >= UNSTEADY else "")


def _figure(measured: Measured | None, unit: str) -> str:
    if measured is None:
        return units.UNKNOWN
    return f"{units.scaled(measured.value, unit)} ({_spread(measured.spread)})"


def _types(ceilings: Ceilings) -> list[Text]:
    """Matrices by storage type."""
    if not ceilings.types:
        return []
    many = max(kind.matrix_rows for kind in ceilings.types)
    header = (
        ("products", "weights", "FLOPs", "", "FLOPs", ""),
        ("of matrices", "at 1 row", "at 1 row", "spread", f"at {many} rows" if many else "at many rows", "spread"),
    )
    rows = []
    for kind in ceilings.types:
        vector, matrix = kind.vector_flops_per_s, kind.matrix_flops_per_s
        rows.append(
            (
                f"{kind.type}, {'in the cache' if kind.place == 'cache' else 'from memory'}",
                units.bandwidth(None if kind.vector_bytes_per_s is None else kind.vector_bytes_per_s.value),
                units.flop_rate(None if vector is None else vector.value),
                _share(vector),
                units.flop_rate(None if matrix is None else matrix.value),
                _share(matrix),
            )
        )
    return _table(header, rows)


def _share(measured: Measured | None) -> str:
    return _marked(None if measured is None else measured.spread)


def _curve(ceilings: Ceilings) -> list[Text]:
    """Forward time against rows, and time per row as bars: where they jump up, a row more costs more than it brings."""
    times = ceilings.forwards
    if not times:
        return []
    most = max(time.ns.value / time.rows for time in times)
    rows = [(*_cells(time), bar(time.ns.value / time.rows / most, BAR_WIDTH)) for time in times]
    drafts = [(*_cells(time), "") for time in ceilings.draft_forwards]
    lines = _table(_heads("target,"), rows)
    return [*lines, Text(""), *_table(_heads("draft,"), drafts)] if drafts else lines


def _heads(model: str) -> tuple[tuple[str, ...], ...]:
    """The two lines above forward times; bars have no head."""
    return (
        (model, "with", "time of", "", "", "time", ""),
        ("rows", "logits", "forward", "spread", "samples", "per row", ""),
    )


def _cells(time: ForwardTime) -> tuple[str, ...]:
    return (
        units.count(time.rows),
        units.count(time.outputs),
        units.milliseconds(time.ns.value),
        _share(time.ns),
        units.count(time.ns.n),
        units.milliseconds(time.ns.value / time.rows),
    )


def _table(heads: Sequence[Sequence[str]], rows: Sequence[Sequence[str]]) -> list[Text]:
    """Columns to the right, but for the first, and a last one that has no head: it holds bars."""
    n_columns = len(heads[0]) - (heads[-1][-1] == "")
    cells = [tuple(line[:n_columns]) for line in (*heads, *rows)]
    tails = [f"  {line[n_columns]}" if len(line) > n_columns else "" for line in (*heads, *rows)]
    lines = columns(cells[0], cells[1:], first_width=8)
    return [
        Text((line + tail).rstrip(), style="bold" if nth < len(heads) else "")
        for nth, (line, tail) in enumerate(zip(lines, tails, strict=True))
    ]


def _costs(ceilings: Ceilings, width: int) -> list[Text]:
    lines = []
    context = ceilings.context_ns_per_token
    if context is not None:
        rate = _figure(ceilings.kv_read_bytes_per_s, "B/s")
        deepest = max((time.cached for time in ceilings.contexts), default=0)
        per_token = f"{units.duration(context.value)} per cached token and row ({_spread(context.spread)})"
        lines.append(row("context", [per_token, f"KV at {rate}", f"up to {units.count(deepest)} tokens"], width))
    if ceilings.fixed_ns is not None:
        rest = f"{units.duration(ceilings.fixed_ns)} of a forward of one row go by beside its matrix products"
        lines.append(row("fixed", [rest], width))
    made = [
        f"{name} {units.duration(taken.value)} ({_spread(taken.spread)})"
        for name, taken in (("contexts made anew in", ceilings.rebuild_ns), ("target loaded anew in", ceilings.load_ns))
        if taken is not None
    ]
    if made:
        lines.append(row("rebuild", made, width))
    moved = ceilings.handoff
    if moved is not None:
        rates = [
            f"{units.bandwidth(moved.bytes_per_s)} for the KV of {moved.tokens:,} tokens",
            f"{units.data_size(moved.state_bytes)}",
            f"saving {_figure(moved.save_bytes_per_s, 'B/s')}",
            f"loading {_figure(moved.load_bytes_per_s, 'B/s')}",
        ]
        lines.append(row("hand-off", rates, width))
    return lines
