"""Bytes per second: what the ledger says was moved, what the hardware measured, and what this machine can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from stackscope import units
from stackscope.tui.charts import bar, ceiling
from stackscope.tui.compose import Rows, figure, flow, quantity, said, wrapped
from stackscope.tui.lines import Line, Span, cells, width
from stackscope.tui.pane import Context, Drawn, Pane, PaneHelp
from stackscope.tui.series import add_chart
from stackscope.tui.wording import awaited, has_begun, no_ceiling

if TYPE_CHECKING:
    from collections.abc import Callable

    from stackscope.analysis.live.snapshot import Snapshot
    from stackscope.records import GpuSample

_LABEL = 12
_VALUE = 10


class BandwidthPane(Pane):
    """Memory bandwidth."""

    id: ClassVar = "bandwidth"
    title: ClassVar = "Bandwidth"
    help: ClassVar = PaneHelp(
        meaning="Modelled is what the ledger says was moved: weights once per pass, KV read and written, of target and"
        " draft model, over wall time. In forwards is the target's alone over the time of its forwards; where a draft "
        "model runs, whose bytes it leaves out, it is called target only. Measured comes from the GPU's own counters "
        "(GPM), where it has them, and without a GPU from the processor's, which count the whole machine. Busy time is "
        "the share of time in which memory was accessed at all: it is no bandwidth, and says little about how much was "
        "moved.",
        formula="modelled = Σ bytes of target and draft model ÷ wall time. in forwards, or target only = Σ bytes of "
        "the target ÷ Σ forward phase. measured = DRAM share × theoretical bandwidth (clock × bus width).",
        moves="Fewer bytes: weights and KV in fewer bits, shorter contexts, shared prefixes. More tokens for the same "
        "bytes: slots, speculation. A forward far below the ceiling is bound by something else.",
    )

    def drawn(self, context: Context) -> Drawn:
        snapshot, size = context.snapshot, context.size
        if not has_begun(snapshot):
            return Drawn(wrapped(awaited(snapshot, "bytes show here"), size.width))
        gpus = tuple(gpu for gpu in (snapshot.hardware.gpus if snapshot.hardware else None) or () if _counts(gpu))
        if snapshot.now.bytes_per_s is None and not gpus and not _was_moved(snapshot):
            return Drawn(wrapped(_missing(snapshot), size.width))
        rows = Rows()
        row = _row(context, _scale(snapshot, gpus))
        measured, why = _measured(gpus, snapshot)
        rows.add(1, row("modelled", snapshot.now.bytes_per_s, ""))
        rows.add(0, row(_of_target(snapshot), snapshot.now.forward_bytes_per_s, ""))
        rows.add(3, row("measured", measured, why))
        rows.add(2, row("ceiling", snapshot.bandwidth_ceiling, no_ceiling(snapshot, size.width - _LABEL - 3)))
        peak = _total([gpu.peak_bytes_per_s for gpu in gpus])
        if peak is not None:
            rows.add(7, row("peak", peak, "clock × bus"))
        rows.add(4, _kv(snapshot, size.width))
        rows.add(6, _busy(gpus, size.width))
        add_chart(rows, 5, context, "bytes_per_s", "modelled", spelled=units.bandwidth)
        return Drawn(rows.laid_out(size.height), _notes(snapshot))


def _of_target(snapshot: Snapshot) -> str:
    """What the target's forwards alone move: the draft model's own are in what is modelled, and not here."""
    config = snapshot.config
    return "target only" if config is not None and config.speculation == "draft" else "in forwards"


def _counts(gpu: GpuSample) -> bool:
    return gpu.is_used and not gpu.is_lost


def _was_moved(snapshot: Snapshot) -> bool:
    return any(point.bytes_per_s is not None for point in snapshot.history.points)


def _missing(snapshot: Snapshot) -> str:
    if snapshot.minute.steps > 0 or (snapshot.header is not None and snapshot.header.model is None):
        return "The model's geometry is not known, so neither are the bytes it moves."
    return "There was no step in the last minute."


def _total(values: list[float | None]) -> float | None:
    """The sum over GPUs, where each of them is known."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _measured(gpus: tuple[GpuSample, ...], snapshot: Snapshot) -> tuple[float | None, str]:
    """Traffic by the GPUs' own counters, else by those of the processor, or why there is none."""
    if not gpus:
        if snapshot.hardware is not None and snapshot.hardware.dram_bytes_per_s is not None:
            return snapshot.hardware.dram_bytes_per_s, ""
        return None, "no GPU" if snapshot.hardware is not None and snapshot.hardware.gpus is not None else "not sampled"
    reason = next((gpu.unknown["dram_share"] for gpu in gpus if "dram_share" in gpu.unknown), "no GPM counters")
    return _total([gpu.dram_bytes_per_s for gpu in gpus]), reason


def _scale(snapshot: Snapshot, gpus: tuple[GpuSample, ...]) -> float:
    """What a full bar stands for."""
    peak = _total([gpu.peak_bytes_per_s for gpu in gpus])
    now = snapshot.now
    seen = [now.bytes_per_s, now.forward_bytes_per_s, snapshot.bandwidth_ceiling, peak]
    known = [value for value in (snapshot.bandwidth_ceiling, peak) if value is not None]
    return max(known) if known else ceiling(seen)


def _row(context: Context, top: float) -> Callable[[str, float | None, str], Line]:
    """Lines of label, number and bar."""
    room = context.size.width

    def line(label: str, value: float | None, why: str) -> Line:
        text = units.bandwidth(value)
        number, _, unit = text.partition(" ")
        if room < _LABEL + _VALUE:
            return flow((figure(label.removeprefix("in ").removesuffix(" only"), text),), room)
        head = Span(f"{label:<{_LABEL}}", "label")
        if value is None:
            reason = f"  {why}" if why and cells(why) + _LABEL + 3 <= room else ""
            return (head, Span(units.UNKNOWN, "unknown"), Span(reason, "unit"))
        figures = (head, Span(f"{number:>4}", "value"), Span(f" {unit:<5}", "unit"))
        length = room - _LABEL - _VALUE - 1
        return (*figures, Span(" "), *bar(value / top, length, context.look)) if length >= 5 else figures

    return line


def _kv(snapshot: Snapshot, room: int) -> Line:
    now = snapshot.now
    items = [
        figure("KV read", units.bandwidth(now.kv_read_bytes_per_s)),
        figure("written", units.bandwidth(now.kv_write_bytes_per_s)),
        figure("weights", units.bandwidth(now.weight_bytes_per_s)),
    ]
    return flow(items, room, 2)


def _busy(gpus: tuple[GpuSample, ...], room: int) -> Line:
    known = [gpu.memory_busy for gpu in gpus if gpu.memory_busy is not None]
    if not known:
        return ()
    share = figure("busy time", units.percent(sum(known) / len(known)))
    longer = (*share, Span("  not a bandwidth", "unit"))
    return longer if width(longer) <= room else share


def _notes(snapshot: Snapshot) -> tuple[Line, ...]:
    now, top = snapshot.now, snapshot.bandwidth_ceiling
    per_step = said(f"{units.data_size(now.bytes_per_step)} per step") if now.bytes_per_step is not None else ()
    if now.forward_bytes_per_s is not None and top:
        share = quantity(units.percent(now.forward_bytes_per_s / top), "headline")
        return ((*share, Span(" of ceiling in forwards", "label")), (*share, Span(" of ceiling", "label")), share)
    return (per_step,)
