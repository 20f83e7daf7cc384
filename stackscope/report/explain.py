"""The cost model without a run, as text: decomposition, roofline, and where one thing begins to outweigh another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rich.text import Text

from stackscope import units
from stackscope.analysis.roofline import MOST_BATCH, MOST_CONTEXT
from stackscope.report.layout import bar, columns, hang, row
from stackscope.report.roofline_plot import Point, plot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.analysis.roofline import Case, Explained, Forward, Speculation, Variant

BAR_WIDTH: Final = 32
PLAIN_MARK: Final = "o"
VERIFY_MARK: Final = "x"


@dataclass(frozen=True, kw_only=True)
class ExplainReport:
    """An answer of the cost model, and what it was asked."""

    case: Case
    explained: Explained
    ladder: Sequence[Forward]
    variants: Sequence[Variant]
    model: tuple[str, ...]
    """What is known of the model, in words."""
    machine: tuple[str, ...]
    notes: tuple[str, ...] = ()


def shown(report: ExplainReport, width: int, *, is_ascii: bool = False) -> Text:
    """Everything, in lines of at most `width` cells, but for words (a path, say) that are longer."""
    blocks = [
        _title(report, width),
        _parts(report),
        _verdict(report, width),
        _roofline(report, width, is_ascii=is_ascii),
        _speculation(report, width),
        _ladder(report),
        _variants(report),
        [row("note", [note], width, style="yellow") for note in report.notes],
    ]
    return Text("\n\n").join(Text("\n").join(lines) for lines in blocks if lines)


def _title(report: ExplainReport, width: int) -> list[Text]:
    case = report.case
    used = [f"batch {units.count(case.batch)}"]
    used.append("no context" if case.context is None else f"{units.counted(case.context, 'token')} of context each")
    return [
        hang(Text(), [Text(report.model[0], style="bold"), *report.model[1:]], width),
        row("machine", report.machine, width),
        row("use", used, width),
    ]


def _parts(report: ExplainReport) -> list[Text]:
    """What a forward consists of, with its time and a bar."""
    one, found = report.explained.forward, report.explained.speculation
    parts = [("read weights", units.data_size(one.weight_bytes), one.weights_ns)]
    if one.kv_bytes != 0:
        parts.append(("read KV cache", units.data_size(one.kv_bytes), one.kv_ns))
    parts.append(("compute", units.flops(one.flops), one.compute_ns))
    rate = None if one.ns is None else report.case.batch / one.ns * 1e9
    n_parts = len(parts)
    parts.append(("forward", units.counted(one.rows, "row"), one.ns))
    if found is not None and found.draft_ns > 0:
        parts.append(("drafting", units.counted(found.length, "token"), found.draft_ns))
    times = _times([ns for _, _, ns in parts])
    most = max((ns for _, _, ns in parts if ns is not None), default=0.0)
    bars = ["" if ns is None or most <= 0 else bar(ns / most, BAR_WIDTH) for _, _, ns in parts]
    bars[n_parts] = "" if rate is None else units.token_rate(rate)  # its bar would be that of the longer part again
    cells = [(name, amount, time) for (name, amount, _), time in zip(parts, times, strict=True)]
    first, *others = columns(("a forward", "amount", "time"), cells, first_width=14)
    return [Text(first.rstrip(), style="bold")] + [
        Text(f"{line}  {tail}".rstrip()) for line, tail in zip(others, bars, strict=True)
    ]


def _verdict(report: ExplainReport, width: int) -> list[Text]:
    case, found = report.case, report.explained
    one = found.forward
    lines = [row("verdict", _bound(report), width)]
    if one.ns is not None:
        batch = found.crossover_batch
        if batch is None:
            said = f"none up to {units.count(MOST_BATCH)}: reading the KV cache grows with the batch too"
        else:
            said = f"from batch {units.count(batch)} on, computing takes as long as reading"
        lines.append(row("crossover", [said], width))
    tokens = found.crossover_context
    if tokens is not None:
        said = f"the KV cache outweighs the weights from {units.counted(tokens, 'token')} of context each on"
        lines.append(row("context", [f"{said}, at batch {units.count(case.batch)}"], width))
    elif one.kv_bytes:
        lines.append(row("context", [f"the KV cache outweighs the weights at none to {MOST_CONTEXT:,} tokens"], width))
    return lines


def _bound(report: ExplainReport) -> list[str]:
    """What limits, and what is left for drafts."""
    one, free = report.explained.forward, report.explained.free_drafts
    memory, compute = one.memory_ns, one.compute_ns
    if memory is None or compute is None or free is None:
        return ["not known: see the notes"]
    if one.bound == "both":
        return ["no slack is left: computing takes as long as reading", "speculation now costs, token by token"]
    if one.bound == "compute":
        longer = f"compute-bound: computing takes {units.ratio(compute / memory)} as long as reading"
        return [longer, "no slack is left: speculation costs, token by token"]
    longer = f"memory-bound: reading takes {units.ratio(memory / compute)} as long as computing"
    idle = f"{units.percent(1 - compute / memory)} of the arithmetic is idle"
    if free == 0:
        return [longer, idle, "too little for a drafted token of each sequence: speculation costs"]
    more = "" if free < MOST_BATCH else " or more"
    return [longer, idle, f"each sequence could verify {units.counted(free, 'drafted token')}{more} in the same time"]


def _roofline(report: ExplainReport, width: int, *, is_ascii: bool) -> list[Text]:
    machine, found = report.case.machine, report.explained
    verify = None if found.speculation is None else found.speculation.verify
    named = ((PLAIN_MARK, "a forward", found.forward), (VERIFY_MARK, "verifying", verify))
    points, legend = [], []
    for mark, name, one in named:
        if one is None or one.ns is None or one.intensity is None or machine.flops is None:
            continue
        rate = one.flops / one.ns * 1e9
        points.append(Point(mark, one.intensity, rate))
        where = f"{mark} {name}: {units.number(one.intensity)} FLOP/byte"
        legend.append(f"{where}, {units.flop_rate(rate)} ({units.percent(rate / machine.flops)})")
    if not points or machine.bandwidth is None or machine.flops is None or found.ridge is None:
        return []
    legend.append(f"ridge: {units.number(found.ridge)} FLOP/byte")
    chart = plot(machine.bandwidth, machine.flops, points, width, is_ascii=is_ascii)
    return [row("roofline", legend, width), *chart]


def _speculation(report: ExplainReport, width: int) -> list[Text]:
    found = report.explained.speculation
    if found is None:
        return []
    share = f", {units.percent(found.draft_share)} of the round" if found.draft_ns > 0 else ""
    ratio = units.ratio((found.verify.ns or 0.0) / found.plain_ns)
    verifying = f"{units.counted(found.verify.rows, 'row')}, {units.duration(found.verify.ns)}"
    lines = [
        row("speculation", [f"{units.counted(found.length, 'token')} drafted per round and sequence"], width),
        row("  draft", [f"{units.duration(found.draft_ns)}{share}"], width),
        row("  verify", [verifying, f"{ratio} a forward without drafts"], width),
        row("  break-even", _break_even(found), width),
    ]
    if found.tokens is not None:
        lines.append(row("  as given", _gain(found), width))
    return lines


def _break_even(found: Speculation) -> list[str]:
    said = [f"{units.number(found.break_even_tokens)} tokens per forward and sequence"]
    if found.break_even_acceptance is None:
        said.append(f"never: a draft brings {units.count(found.length + 1)} at most")
    elif found.break_even_acceptance == 0.0:
        said.append("any acceptance")
    else:
        said.append(f"an acceptance of {units.percent(found.break_even_acceptance)} of every drafted token")
    return said


def _gain(found: Speculation) -> list[str]:
    said = [f"{units.number(found.tokens)} tokens per forward and sequence"]
    said.append(f"{units.ratio(found.speed_up)} as fast as without")
    if found.loses_from is None:
        said.append(f"gains at every batch up to {units.count(MOST_BATCH)}")
    elif found.loses_from == 1:
        said.append("gains nothing even at batch 1")
    else:
        said.append(f"gains nothing from batch {units.count(found.loses_from)} on")
    return said


def _ladder(report: ExplainReport) -> list[Text]:
    """What becomes of the slack as the batch grows."""
    if report.explained.forward.ns is None:
        return []
    times = [_times([getattr(one, name) for one in report.ladder]) for name in ("memory_ns", "compute_ns", "ns")]
    cells = []
    for index, one in enumerate(report.ladder):
        rate = None if one.ns is None else one.rows / one.ns * 1e9
        spare = None
        if one.memory_ns is not None and one.compute_ns is not None:
            spare = max(0.0, 1 - one.compute_ns / one.memory_ns)
        cells.append(
            (
                units.count(one.rows),
                *(column[index] for column in times),
                units.percent(spare),
                units.token_rate(rate),
            )
        )
    return _table(("batch", "reading", "computing", "forward", "idle", "tokens"), cells)


def _variants(report: ExplainReport) -> list[Text]:
    """The same with other weights."""
    reading = _times([one.forward.weights_ns for one in report.variants])
    whole = _times([one.forward.ns for one in report.variants])
    cells = [
        (
            one.name,
            units.number(int(one.bits) if one.bits.is_integer() else one.bits),
            units.data_size(one.forward.weight_bytes),
            reading[index],
            whole[index],
            "none" if one.crossover_batch is None and one.forward.ns is not None else units.count(one.crossover_batch),
        )
        for index, one in enumerate(report.variants)
    ]
    return _table(("weights", "bits", "bytes", "reading", "forward", "crossover"), cells) if cells else []


def _times(column: Sequence[float | None]) -> list[str]:
    """Times of one column: all in ms, unless the longest has but a fraction of one."""
    most = max((ns for ns in column if ns is not None), default=0.0)
    return [(units.milliseconds if most >= 1e6 else units.duration)(ns) for ns in column]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[Text]:
    first, *others = columns(header, rows, first_width=8)
    return [Text(first.rstrip(), style="bold"), *(Text(line) for line in others)]
