"""What the windows of a ladder come to: bandwidth as modelled and as measured, idle compute, what speculation gains."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Final

import msgspec

from benchmarks.common import table
from stackscope import units
from stackscope.analysis.ledger import Ledger
from stackscope.analysis.statistics import Interval, Series, rate_ratio
from stackscope.hardware import peaks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.analysis.account import Account
    from stackscope.records import GpuSample, HardwareSample, Header, StepRecord

BLOCK_NS: Final = 100_000_000
"""Tokens are counted in blocks of this for the interval of a ratio."""
GPM_NS: Final = 200_000_000
"""A counter's reading is about the time since the one before it, so the beginning of a window has none."""


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of the session in which nothing was changed. Times are on the session's clock."""

    kv_type: str
    batch: int
    speculation: str
    began_ns: int
    ended_ns: int


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """All windows with the same settings. `None` is not known."""

    kv_type: str
    batch: int
    speculation: str
    steps: int
    seconds: float
    tokens_per_s: float
    tokens_per_forward: float
    """Emitted by a sequence in a forward."""
    forward_share: float
    """Of the wall time, in forwards of the target and in drafting."""
    modelled_bytes_per_s: float
    """Σ bytes of target and draft model ÷ wall time."""
    forward_bytes_per_s: float | None
    """Σ bytes of the target ÷ Σ decode phase."""
    flops_per_s: float
    measured_bytes_per_s: float | None = None
    """By GPM, of all GPUs in use."""
    measured_from: int = 0
    """Readings that it is the mean of."""
    peak_bytes_per_s: float | None = None
    idle_compute: float | None = None
    """1 − FLOPs per second ÷ the rated BF16 rate of the GPUs in use."""
    sm_active: float | None = None
    tensor_active: float | None = None
    power_w: float | None = None
    tokens: tuple[float, ...] = ()
    """Emitted in each block of `BLOCK_NS`."""

    @property
    def agreement(self) -> float | None:
        """Measured ÷ modelled."""
        if self.measured_bytes_per_s is None or self.modelled_bytes_per_s <= 0:
            return None
        return self.measured_bytes_per_s / self.modelled_bytes_per_s


class Losing(msgspec.Struct, frozen=True, kw_only=True):
    """What speculation does to tokens per second at each batch, for one KV type."""

    kv_type: str
    gains: dict[int, tuple[float, float, float]]
    """By batch: with draft ÷ off, and the ends of its interval of 95 %."""
    loses_from: int | None
    """Smallest batch from which on it loses at every batch that was tried. `None`: at none."""
    text: str


def cells_of(
    header: Header, windows: Sequence[Window], steps: Sequence[StepRecord], samples: Sequence[HardwareSample]
) -> list[Cell]:
    """A cell for each setting that has steps, in the order in which they came."""
    keys = dict.fromkeys((one.kv_type, one.batch, one.speculation) for one in windows)
    found = []
    for key in keys:
        mine = [one for one in windows if (one.kv_type, one.batch, one.speculation) == key]
        inside = [[step for step in steps if _is_within(step, one)] for one in mine]
        if any(inside):
            found.append(_cell(header, mine, inside, samples))
    return found


def _is_within(step: StepRecord, window: Window) -> bool:
    return window.began_ns <= step.start_ns and step.end_ns <= window.ended_ns


def _cell(
    header: Header, windows: Sequence[Window], inside: Sequence[Sequence[StepRecord]], samples: Sequence[HardwareSample]
) -> Cell:
    first = windows[0]
    steps = [step for some in inside for step in some]
    wall_s = sum(some[-1].end_ns - some[0].start_ns for some in inside if some) / 1e9
    target, draft = accounts(header, first.kv_type, steps)
    decode_ns = sum(step.phases.decode for step in steps)
    drafting_ns = sum(step.phases.draft for step in steps if step.draft)
    decoding = [work for step in steps for work in step.work if work.phase != "prefill"]
    flops = (target.flops.total + (0 if draft is None else draft.flops.total)) / wall_s
    gpus = [gpu for window in windows for gpu in readings(samples, window)]
    peak, rated = _limits(gpus)
    return Cell(
        kv_type=first.kv_type,
        batch=first.batch,
        speculation=first.speculation,
        steps=len(steps),
        seconds=wall_s,
        tokens_per_s=sum(step.emitted for step in steps) / wall_s,
        tokens_per_forward=sum(work.emitted for work in decoding) / max(1, len(decoding)),
        forward_share=(decode_ns + drafting_ns) / (wall_s * 1e9),
        modelled_bytes_per_s=(bytes_of(target) + (0.0 if draft is None else bytes_of(draft))) / wall_s,
        forward_bytes_per_s=bytes_of(target) * 1e9 / decode_ns if decode_ns else None,
        flops_per_s=flops,
        measured_bytes_per_s=_mean([gpu.dram_bytes_per_s for gpu in gpus]),
        measured_from=sum(gpu.dram_bytes_per_s is not None for gpu in gpus),
        peak_bytes_per_s=peak,
        idle_compute=None if rated is None else 1 - flops / rated,
        sm_active=_mean([gpu.sm_active for gpu in gpus]),
        tensor_active=_mean([gpu.tensor_active for gpu in gpus]),
        power_w=_mean([gpu.power_w for gpu in gpus]),
        tokens=tuple(count for some in inside for count in _blocks(some)),
    )


def accounts(header: Header, kv_type: str, steps: Sequence[StepRecord]) -> tuple[Account, Account | None]:
    """What steps cost: (of the target, of the draft model)."""
    assert header.model is not None
    kv = kv_type  # one type for keys and values
    target = Ledger(header.model, kv, kv)  # type: ignore[arg-type]
    work = target.price(target.count_steps(steps))
    if header.draft_model is None:
        return work, None
    draft = Ledger(header.draft_model, kv, kv)  # type: ignore[arg-type]
    return work, draft.account_draft([forward for step in steps for forward in step.draft])


def bytes_of(account: Account) -> float:
    """All bytes that count."""
    return account.exact.total + account.expected.total


def readings(samples: Sequence[HardwareSample], window: Window) -> list[GpuSample]:
    """Readings of the GPU in use that are about a window, each once. Of several GPUs in use none: their sums differ."""
    found: dict[int, GpuSample] = {}
    for sample in samples:
        used = [gpu for gpu in sample.gpus or () if gpu.is_used and not gpu.is_lost and gpu.instance_of is None]
        if len(used) == 1 and used[0].age_ns is not None:
            taken_ns = sample.at_ns - used[0].age_ns
            if window.began_ns + GPM_NS <= taken_ns <= window.ended_ns:
                found[taken_ns] = used[0]
    return list(found.values())


def _limits(gpus: Sequence[GpuSample]) -> tuple[float | None, float | None]:
    """(theoretical bandwidth, rated BF16 FLOPs per second) of the GPU in use."""
    if not gpus:
        return None, None
    row = peaks.rated(gpus[0].name)
    rated = None if row is None or row.bf16_tflops is None else row.bf16_tflops * 1e12
    return gpus[0].peak_bytes_per_s, rated


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _blocks(steps: Sequence[StepRecord]) -> list[float]:
    """Tokens in each whole block of a window's steps: those of a step that lies in two are divided by time."""
    if not steps:
        return []
    start_ns = steps[0].start_ns
    n_blocks = (steps[-1].end_ns - start_ns) // BLOCK_NS
    blocks = [0.0] * n_blocks
    for step in steps:
        duration = max(1, step.duration_ns)
        for index in range((step.start_ns - start_ns) // BLOCK_NS, (step.end_ns - start_ns) // BLOCK_NS + 1):
            if index < n_blocks:
                low, high = start_ns + index * BLOCK_NS, start_ns + (index + 1) * BLOCK_NS
                overlap = max(0, min(step.end_ns, high) - max(step.start_ns, low))
                blocks[index] += step.emitted * overlap / duration
    return blocks


def losing(cells: Sequence[Cell]) -> list[Losing]:
    """Where speculation gains and where it loses, for each KV type."""
    found = []
    for kv_type in dict.fromkeys(cell.kv_type for cell in cells):
        gains: dict[int, Interval] = {}
        for batch in dict.fromkeys(cell.batch for cell in cells if cell.kv_type == kv_type):
            pair = {one.speculation: one for one in cells if one.kv_type == kv_type and one.batch == batch}
            gain = _gain(pair.get("off"), pair.get("draft"))
            if gain is not None:
                gains[batch] = gain
        found.append(_verdict(kv_type, gains))
    return found


def _gain(off: Cell | None, draft: Cell | None) -> Interval | None:
    if off is None or draft is None:
        return None
    series = [Series(one.tokens, [BLOCK_NS / 1e9] * len(one.tokens)) for one in (off, draft)]
    try:
        return rate_ratio(series[0], series[1])
    except ValueError:  # Too few blocks, or nothing came out in them.
        return None


def _verdict(kv_type: str, gains: dict[int, Interval]) -> Losing:
    loses_from = None
    for batch in sorted(gains, reverse=True):
        if gains[batch].high >= 1:
            break
        loses_from = batch
    if not gains:
        text = f"KV {kv_type}: what speculation gains was not measured."
    elif loses_from is not None:
        text = f"KV {kv_type}: speculation loses from batch {loses_from} on."
    else:
        text = f"KV {kv_type}: no batch up to {max(gains)} from which on speculation surely loses."
    told = {batch: (gain.value, gain.low, gain.high) for batch, gain in gains.items()}
    return Losing(kv_type=kv_type, gains=told, loses_from=loses_from, text=text)


def tables(cells: Sequence[Cell]) -> list[str]:
    """Bandwidth and compute, then what speculation gains."""
    head = (
        "KV, batch, speculation",
        "tok/s",
        "A",
        "modelled",
        "measured",
        "ratio",
        "peak",
        "idle compute",
        "tensor",
        "W",
    )
    lines = [
        (
            f"{cell.kv_type} {cell.batch} {cell.speculation}",
            units.number(cell.tokens_per_s),
            units.number(cell.tokens_per_forward),
            units.bandwidth(cell.modelled_bytes_per_s),
            units.bandwidth(cell.measured_bytes_per_s),
            units.number(cell.agreement),
            units.bandwidth(cell.peak_bytes_per_s),
            units.percent(cell.idle_compute),
            units.percent(cell.tensor_active),
            units.number(cell.power_w),
        )
        for cell in cells
    ]
    gains = [
        (f"{one.kv_type} {batch}", *[f"{end:.3f}" for end in ends])
        for one in losing(cells)
        for batch, ends in one.gains.items()
    ]
    return [table([head, *lines]), table([("KV, batch", "draft ÷ off", "from", "to"), *gains])] if cells else []
