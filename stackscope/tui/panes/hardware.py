"""The machine: each GPU on a line, the processor, memory, and whatever holds them back."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar, Final

from stackscope import units
from stackscope.tui.compose import Rows, figure, flow, flowed, quantity, said, wrapped
from stackscope.tui.lines import Line, Span, printable
from stackscope.tui.pane import Context, Drawn, Pane, PaneHelp
from stackscope.tui.series import add_chart
from stackscope.tui.wording import awaited

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.analysis.live.snapshot import Snapshot
    from stackscope.records import GpuSample, HardwareSample
    from stackscope.tui.look import Look

_NAMES: Final = {
    "cpu_percent": "CPU", "frequency_mhz": "clock", "rss_bytes": "engine RSS", "cpu_pressure": "pressure",
    "throttled_share": "held by quota", "dram_share": "DRAM", "sm_active": "SM", "sm_clock_mhz": "SM clock",
    "is_used": "use", "is_gpm_live": "counters", "*": "all readings",
}  # fmt: skip
"""What readings are called that do not say it themselves."""
_TOLD_ELSEWHERE: Final = frozenset(
    {
        "gpus", "io_pressure", "memory_pressure", "swap_used_bytes", "swap_bytes_per_s", "major_faults_per_s",
        "involuntary_switches_per_s", "package_power_w", "dram_bytes_per_s",
    }
)  # fmt: skip
"""Readings whose reasons are not listed: that of `gpus` stands where they would, the others few hosts tell, and doctor
says why."""
_WORTH_A_WORD: Final = 0.01
"""Share of the time that something waited."""
_UNIT: Final = re.compile(r"(_bytes|_mhz|_percent|_ns|_w|_j|_c)?(_per_s)?$")


class HardwarePane(Pane):
    """Hardware."""

    id: ClassVar = "hardware"
    title: ClassVar = "Hardware"
    help: ClassVar = PaneHelp(
        meaning="The last reading of the machine. A GPU's utilisation is the share of time in which at least one "
        "kernel ran: it says nothing about how much of the GPU that used; SM and DRAM do, where the GPU has such "
        "counters. Throttled says what holds the clock down. Engine share (σ) is how much of the engine's threads "
        "really ran during forwards: below 1, something else had the cores. Cores lost is how many times a second one "
        "of them was put off its core while it had work; held by quota is the share of the quota's periods in which "
        "the container's CPU time was used up, so that none of them might run. Pressure is the share of the last ten "
        "seconds in which something runnable waited for a core.",
        formula="σ = Σ CPU time of the forward phase ÷ Σ threads × wall time of the forward phase. J/tok = power of "
        "the GPUs in use ÷ tokens per second, both of this moment.",
        moves="σ: fewer threads, or fewer neighbours. Power and heat: limits and cooling. Throttling by a quota: more "
        "processor time for the container.",
    )

    def drawn(self, context: Context) -> Drawn:
        snapshot, size, sample = context.snapshot, context.size, context.snapshot.hardware
        device = printable(snapshot.header.device) if snapshot.header is not None else ""
        note = (said(device),)
        if sample is None:
            return Drawn(wrapped(_unsampled(snapshot), size.width), note)
        rows = Rows()
        gpus = sample.gpus or ()
        lines = _host_lines(sample, snapshot, size.width)
        _add_gpus(rows, gpus, context, max(size.height - min(len(lines), 2), 1))
        if sample.gpus is None:
            for line in wrapped(f"GPUs: {printable(sample.unknown.get('gpus', 'nobody looked'))}", size.width)[:2]:
                rows.add(0, line)
        elif not gpus:
            rows.add(0, said("no GPU: CPU backend", ""))
        for rank, line in enumerate(lines):
            rows.add(1 + rank, line)
        used = [gpu for gpu in gpus if gpu.is_used and not gpu.is_lost]
        extra = flowed(_extra(used, snapshot), size.width, 2)
        for rank, line in enumerate(extra):
            rows.add(3 + rank, line)
        for line in _reasons(sample, size.width):
            rows.add(8, line)
        add_chart(rows, 9, context, "cpu_percent", "CPU", spelled=lambda value: units.percent(value / 100), top=100.0)
        return Drawn(rows.laid_out(size.height), note)


def _unsampled(snapshot: Snapshot) -> str:
    if snapshot.state == "starting":
        return awaited(snapshot, "the machine shows here")
    return "Nobody sampled this machine." if snapshot.state == "finished" else "Nobody samples this machine."


def _add_gpus(rows: Rows, gpus: Sequence[GpuSample], context: Context, height: int) -> None:
    """A line for each GPU, those that matter first; where there is no room for all, one line sums the others up."""
    room, look = context.size.width, context.look
    by_weight = sorted(gpus, key=lambda gpu: (not gpu.is_lost, not gpu.throttle, not gpu.is_used))
    listed = by_weight if len(gpus) <= height else by_weight[: max(height - 1, 0)]
    for gpu in sorted(listed, key=lambda gpu: gpu.index if gpu.index is not None else 0):
        rows.add(0, _gpu(gpu, room, look))
    others = by_weight[len(listed) :]
    if others:
        rows.add(0, _summed(others, room, is_all=not listed))


def _gpu(gpu: GpuSample, room: int, look: Look) -> Line:
    name = f"GPU{units.count(gpu.index) if gpu.index is not None else ''}"
    if gpu.is_lost:
        why = next(iter(gpu.unknown.values()), "it no longer answers")
        return flow(((Span(f"{name} ", "label"), Span("LOST", "bad")), said(printable(why))), room, 2)
    if "*" in gpu.unknown and gpu.utilisation is None and gpu.memory_total_bytes is None:
        return flow(
            ((Span(f"{name} ", "label"), *_flush(units.UNKNOWN, 6)), said(printable(gpu.unknown["*"]))), room, 2
        )
    items: list[Line] = [(Span(f"{name} ", "label"), *_flush(units.percent(gpu.utilisation), 6))]
    if not gpu.is_used:
        items.append(said("use unknown" if "is_used" in gpu.unknown else "not used"))
    if gpu.throttle:
        items.append((Span("throttled: ", "bad"), Span(printable(", ".join(gpu.throttle)), "value")))
    items += [
        figure("mem", _of(gpu.memory_used_bytes, gpu.memory_total_bytes)),
        _flush(units.number(gpu.power_w, unit="W", places=0), 5),
        _flush(units.number(gpu.sm_clock_mhz, unit="MHz", places=0), 9),
        figure("DRAM", units.percent(gpu.dram_share)),
        _flush(units.number(gpu.temperature_c, unit="C" if look.is_ascii else "°C", places=0), 5),
        figure("SM", units.percent(gpu.sm_active)),
        figure("tensor", units.percent(gpu.tensor_active)),
    ]
    head, *others = items
    return flow([head, *(item for item in others if item[-1].text != units.UNKNOWN)], room, 2)


def _flush(text: str, room: int) -> Line:
    """A number without a label, flush right."""
    return (Span(" " * max(room - len(text), 0)), *quantity(text))


def _of(part: float | None, whole: float | None) -> str:
    """`21.4/80.0 GB`, or the part alone."""
    if part is None or whole is None:
        return units.data_size(part)
    has, of = units.data_size(part), units.data_size(whole)
    number, _, unit = has.partition(" ")
    return f"{number}/{of}" if of.endswith(f" {unit}") else f"{has} of {of}"


def _summed(gpus: Sequence[GpuSample], room: int, *, is_all: bool) -> Line:
    """GPUs without a line of their own."""
    lost, used = sum(gpu.is_lost for gpu in gpus), [gpu for gpu in gpus if gpu.is_used and not gpu.is_lost]
    known = [gpu.utilisation for gpu in used if gpu.utilisation is not None]
    head = units.counted(len(gpus), "GPU") if is_all else f"{units.count(len(gpus))} more"
    items: list[Line] = [said(head)]
    if lost:
        items.append((Span(f"{units.count(lost)} LOST", "bad"),))
    held_back = sum(bool(gpu.throttle) for gpu in gpus)
    if held_back:
        items.append((Span(f"{units.count(held_back)} throttled", "bad"),))
    if used:
        items.append((Span(f"{units.count(len(used))} used", ""),))
    if known:
        items.append(figure("mean", units.percent(sum(known) / len(known))))
    idle = len(gpus) - lost - len(used)
    if idle:
        items.append(said(f"{units.count(idle)} not used"))
    return flow(items, room, 2)


def _host_lines(sample: HardwareSample, snapshot: Snapshot, room: int) -> tuple[Line, ...]:
    """Processor and memory, most important first."""
    cores = f" of {units.counted(sample.cores, 'core')}" if sample.cores is not None else ""
    used = None if sample.cpu_percent is None else sample.cpu_percent / 100
    free, total = sample.memory_available_bytes, sample.memory_total_bytes
    throttled = figure("held by quota", units.percent(sample.throttled_share), style="bad")
    items = [
        (*figure("CPU", units.percent(used)), Span(cores, "unit")),
        throttled if sample.throttled_share else (),
        figure("engine share", units.number(snapshot.now.cpu_share)),
        figure("pressure", units.percent(sample.cpu_pressure)),
        figure("memory", _of(None if free is None or total is None else total - free, total)),
        figure("engine RSS", units.data_size(sample.rss_bytes)),
    ]
    if sample.frequency_mhz is not None:
        items.append(figure("clock", units.number(sample.frequency_mhz, unit="MHz", places=0)))
    if sample.throttled_share == 0:
        items.append(figure("held by quota", units.percent(0.0)))
    items += _rarer(sample)
    return flowed(items, room, 2)


def _rarer(sample: HardwareSample) -> list[Line]:
    """What few hosts tell, and what is only worth a word when it is there."""
    items: list[Line] = []
    if sample.package_power_w is not None:
        items.append(figure("package", units.number(sample.package_power_w, unit="W", places=0)))
    if sample.dram_bytes_per_s is not None:
        items.append(figure("DRAM", units.bandwidth(sample.dram_bytes_per_s)))
    if (sample.io_pressure or 0.0) >= _WORTH_A_WORD:
        items.append(figure("I/O pressure", units.percent(sample.io_pressure), style="bad"))
    if (sample.memory_pressure or 0.0) >= _WORTH_A_WORD:
        items.append(figure("memory pressure", units.percent(sample.memory_pressure), style="bad"))
    if sample.swap_bytes_per_s:
        items.append(figure("swapping", units.bandwidth(sample.swap_bytes_per_s), style="bad"))
    if sample.major_faults_per_s:
        items.append(figure("faults from disk", units.number(sample.major_faults_per_s, unit="/s"), style="bad"))
    if sample.involuntary_switches_per_s:
        items.append(figure("cores lost", units.number(sample.involuntary_switches_per_s, unit="/s")))
    return items


def _extra(gpus: Sequence[GpuSample], snapshot: Snapshot) -> list[Line]:
    """Figures of the GPUs in use together."""
    if not gpus:
        return []
    items = []
    if all(gpu.throttle == () for gpu in gpus):
        items.append(figure("throttling", "none", style=""))
    powers = [gpu.power_w for gpu in gpus if gpu.power_w is not None]
    rate = snapshot.now.tokens_per_s
    if len(powers) == len(gpus) and rate:
        items.append(figure("energy", units.number(sum(powers) / rate, unit="J/tok")))
    moved = [(gpu.pcie_read_bytes_per_s, gpu.pcie_write_bytes_per_s) for gpu in gpus]
    known = [read + write for read, write in moved if read is not None and write is not None]
    if len(known) == len(gpus):
        items.append(figure("PCIe", units.bandwidth(sum(known))))
    limits = [gpu.power_limit_w for gpu in gpus if gpu.power_limit_w is not None]
    if len(limits) == len(gpus):
        items.append(figure("power limit", units.number(sum(limits), unit="W", places=0)))
    return items


def _reasons(sample: HardwareSample, room: int) -> tuple[Line, ...]:
    """Why readings are missing, each reason once."""
    missing = {field: reason for field, reason in sample.unknown.items() if field not in _TOLD_ELSEWHERE}
    for gpu in sample.gpus or ():
        if not gpu.is_lost:
            missing |= gpu.unknown
    fields: dict[str, list[str]] = {}
    for field, reason in missing.items():
        fields.setdefault(reason, []).append(_NAMES.get(field) or _UNIT.sub("", field).replace("_", " "))
    texts = [f"{', '.join(names)}: {printable(reason)}" for reason, names in fields.items()]
    return tuple(line for text in texts for line in wrapped(text, room, "unknown")[:2])
