"""Causes outside the engine: something else takes cores, memory or clocks from it, or it waits for a disk.

At most one of the first three takes what the engine's threads lost (1 − σ). What a slower machine adds while they all
run (σ near 1) goes to contention or to a throttle, by what the probes say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackscope import units
from stackscope.analysis.diagnosis.base import Claim, found, per_step, rejected, without
from stackscope.analysis.diagnosis.slices import BUSY, FORWARD, HOST, MEMORY

if TYPE_CHECKING:
    from stackscope.analysis.diagnosis.evidence import Evidence, Machine
    from stackscope.analysis.diagnosis.slices import Slices
    from stackscope.records import Cause

HELD_UP: Final = 0.97
"""Of a core's time: threads that get less were held up."""
PRESSED: Final = 0.05
"""Share of the time in which somebody waited for a core or a disk that counts as pressure."""
FOREIGN: Final = 0.10
"""Cores that others use and that count."""
FAULTS: Final = 50.0
"""Pages from disk per second that count."""
SWAPPING: Final = 1e6
"""Bytes swapped per second that count."""
QUOTA: Final = 0.05
"""Share of periods in which a quota held it up that counts."""
SLOWER: Final = 0.9
"""A probe below this share of its undisturbed level says that the machine is slower. On two Zen 3 cores, work inside
the caches on the other one leaves 0.85 to 1 of both levels, and reading memory there 0.3 to 0.6 of reading."""
FELT: Final = 0.25
"""Of what a probe has slowed down by, the part that forwards have to as well."""
ALIKE: Final = 1.05
"""Levels no further apart than this have fallen together, as when clocks fall."""
STOPPED_NS: Final = 2_000_000
"""Per forward: a process that is stopped misses milliseconds. Threads that fell asleep while the loop did something
else take less than one to come back."""
NATURAL: Final = 0.9
"""Threads that wait for each other sleep now and then: so much of a core they have on a calm machine at least."""
LEAST_SOLO: Final = 0.8
"""Times what a calm machine needs: no forward takes less, but for the model's error. A model by which one does has
learned from a machine that was disturbed."""
LOST_ALONE: Final = 0.90
"""Without anybody else who wants the cores, only a larger loss than this is one: threads sleep now and then."""


def paging(evidence: Evidence, slices: Slices) -> Claim:
    """The engine waits for pages from a disk."""
    machine = evidence.machine
    faults, swap = machine.faults_per_s, machine.swap_bytes_per_s
    if faults is None and swap is None:
        return rejected("paging", "this system tells of neither page faults nor swapping", kind="loss")
    if not _pages(machine):
        said = f"{units.number(faults)} page faults per second from disk, {units.bandwidth(swap)} swapped"
        return rejected("paging", said, kind="loss")
    amount = _take_held_up("paging", evidence, slices)
    share = slices.share(amount)
    waits = machine.io_pressure
    is_waiting = (waits is not None and waits >= PRESSED) or (machine.memory_pressure or 0.0) >= PRESSED
    return found(
        "paging", kind="loss", share=share,
        doubt=None if is_waiting else "nothing waited for a disk for long",
        claim=f"waiting for pages from disk takes {per_step(evidence, amount)}, {units.percent(share)} of the time",
        evidence=(
            None if faults is None else f"{units.number(faults)} page faults per second went to a disk",
            None if swap is None else f"{units.bandwidth(swap)} swapped in and out",
            None if waits is None else f"something waited for a disk in {units.percent(waits)} of the time",
            _sigma(machine), _slower(evidence),
        ),
        counterfactual=without(evidence, amount),
        falsifier="with the model whole in memory the step takes as long",
    )  # fmt: skip


def _pages(machine: Machine) -> bool:
    return (machine.faults_per_s or 0.0) >= FAULTS or (machine.swap_bytes_per_s or 0.0) >= SWAPPING


def throttle(evidence: Evidence, slices: Slices) -> Claim:
    """A quota stops the engine, clocks are held down, or it is stopped by hand."""
    machine = evidence.machine
    if _pages(machine):
        return rejected("throttle", "the engine waits for a disk", kind="loss")
    quota, clocks = machine.throttled, machine.clocks_held
    has_quota = quota is not None and quota >= QUOTA
    is_held = bool(clocks) and clocks[0][1] >= QUOTA
    is_probed = machine.compute is not None and not evidence.is_on_gpu
    is_slower = is_probed and (machine.compute or 0.0) < SLOWER and not _competes(machine)
    if not (has_quota or is_held or is_slower or _is_stopped(evidence)):
        return rejected("throttle", _no_throttle(machine), kind="loss")
    if has_quota or _is_stopped(evidence):
        amount = _take_held_up("throttle", evidence, slices)
    elif is_slower:
        assert machine.compute is not None
        amount = _take_slower("throttle", 1.0 - machine.compute, BUSY, evidence, slices)
    else:
        amount = slices.take("throttle", slices.left["excess"], ("excess",))
    share = slices.share(amount)
    is_by_probe_alone = not (has_quota or is_held or _is_stopped(evidence))
    doubt = _unfelt(machine.compute, evidence.slowdown, "computing", evidence) if is_by_probe_alone else None
    return found(
        "throttle", kind="loss", share=share, doubt=doubt,
        claim=f"being throttled takes {per_step(evidence, amount)}, {units.percent(share)} of the time",
        evidence=(
            f"a quota held the engine up in {units.percent(quota)} of its periods" if has_quota else None,
            f"{clocks[0][0]} held the GPU's clocks down for {units.percent(clocks[0][1])} of the time"
            if is_held else None,
            f"a fixed computation runs at {units.percent(machine.compute)} of its undisturbed speed"
            if is_slower else None,
            "its threads did not run though nobody else wanted their cores" if _is_stopped(evidence) else None,
            _sigma(machine), _slower(evidence),
        ),
        counterfactual=without(evidence, amount),
        falsifier="the probes recover and the step does not",
    )  # fmt: skip


def _no_throttle(machine: Machine) -> str:
    parts = []
    if machine.throttled is not None:
        parts.append(f"a quota held it up in {units.percent(machine.throttled)} of its periods")
    if machine.compute is not None:
        parts.append(f"a fixed computation runs at {units.percent(machine.compute)} of its undisturbed speed")
    return ", ".join(parts) or "nothing tells of quotas or clocks, and no probe ran"


def _is_stopped(evidence: Evidence) -> bool:
    """Threads did not run for milliseconds, and nobody else is known to have wanted their cores."""
    machine = evidence.machine
    if (1.0 - (machine.cpu_share or 0.0)) * evidence.times.forward < STOPPED_NS * evidence.forwards:
        return False
    rest, is_told = machine.cpu_share_rest, machine.foreign_cores is not None or machine.cpu_pressure is not None
    return rest is not None and rest < LOST_ALONE and is_told and not _competes(machine)


def _competes(machine: Machine) -> bool:
    """Somebody else wanted the engine's cores."""
    pressed, foreign = machine.cpu_pressure, machine.foreign_cores
    if foreign is not None and foreign < FOREIGN:
        return False  # What waits then are the engine's own threads, or what a quota stops.
    return (pressed or 0.0) >= PRESSED or (foreign or 0.0) >= FOREIGN


def cpu_starvation(evidence: Evidence, slices: Slices) -> Claim:
    """The engine's threads are ready and get no core."""
    machine, sigma = evidence.machine, evidence.machine.cpu_share
    if evidence.is_on_gpu:
        return rejected("CPU starvation", "the forwards run on a GPU, for which the threads wait", kind="loss")
    if sigma is None:
        return rejected("CPU starvation", "the CPU time of the forwards is not known", kind="loss")
    if sigma >= HELD_UP:
        return rejected("CPU starvation", f"the threads ran for {units.percent(sigma)} of the time", kind="loss")
    if _pages(machine) or (machine.throttled or 0.0) >= QUOTA:
        return rejected("CPU starvation", "the threads waited for a disk or a quota", kind="loss")
    is_contested = _competes(machine)
    amount = _take_held_up("CPU starvation", evidence, slices, only_excess=not is_contested)
    share = slices.share(amount)
    return found(
        "CPU starvation", kind="loss", share=share,
        doubt=None if is_contested else "nobody else is known to have wanted the cores",
        claim=f"waiting for a core takes {per_step(evidence, amount)}, {units.percent(share)} of the time",
        evidence=(
            _sigma(machine),
            None if machine.foreign_cores is None else f"others used {units.number(machine.foreign_cores)} cores",
            None if machine.cpu_pressure is None
            else f"something waited for a core in {units.percent(machine.cpu_pressure)} of the time",
            None if machine.switches_per_s is None
            else f"threads lost their core {units.number(machine.switches_per_s)} times per second",
            _with_cores(evidence, sigma),
        ),
        counterfactual=without(evidence, amount),
        falsifier="with the cores to itself the step takes as long",
    )  # fmt: skip


def _with_cores(evidence: Evidence, sigma: float) -> str | None:
    """What the forwards took of the cores, against a calm machine; or that none is known."""
    if evidence.slowdown is None:
        return None
    solo = evidence.slowdown * sigma
    if not evidence.is_reference_calm or solo < LEAST_SOLO:
        return "what an undisturbed machine needs is not known: the time model comes from a disturbed one"
    return f"forwards × σ take {units.ratio(solo)} of what an undisturbed machine needs"


def bandwidth_contention(evidence: Evidence, slices: Slices) -> Claim:
    """Others read memory too: the engine runs all the time, and what it reads comes more slowly."""
    cause: Cause = "external bandwidth contention"
    machine = evidence.machine
    if evidence.is_on_gpu:
        return rejected(cause, "the forwards read the GPU's own memory, which no probe does", kind="loss")
    if machine.read is None:
        return rejected(cause, "no probe says how fast memory is read now and undisturbed", kind="loss")
    if machine.read >= SLOWER:
        said = f"memory is read at {units.percent(machine.read)} of its undisturbed speed"
        return rejected(cause, said, kind="loss")
    if evidence.roofs.fits_cache:
        return rejected(cause, "what a forward reads stays in the processor's cache", kind="loss")
    is_all_slower = machine.compute is not None and machine.compute <= machine.read * ALIKE
    if is_all_slower and not _competes(machine):
        return rejected(cause, "computing has slowed down as much as reading", kind="loss")
    is_held_up = machine.cpu_share_rest is not None and machine.cpu_share_rest < LOST_ALONE
    if is_held_up and slices.left["excess"] <= 0.0:
        # Threads that wait for a core read as little as those that wait for memory.
        said = f"the threads ran for {units.percent(machine.cpu_share)} of the time only, which explains the rest"
        return rejected(cause, said, kind="loss")
    amount = _take_slower(cause, 1.0 - machine.read, MEMORY, evidence, slices)
    share, slowdown = slices.share(amount), evidence.slowdown
    # Of how many times as long: where threads were held up as well, what that does not explain.
    rest = None if slowdown is None else slowdown * (machine.cpu_share or 1.0 if is_held_up else 1.0)
    return found(
        cause, kind="loss", share=share, doubt=_unfelt(machine.read, rest, "reading", evidence),
        claim=f"others reading memory takes {per_step(evidence, amount)}, {units.percent(share)} of the time",
        evidence=(
            f"a probe reads {units.bandwidth(machine.read_bytes_per_s)}, {units.percent(machine.read)} of what it does "
            "undisturbed",
            _slower(evidence), _sigma(machine),
            None if machine.foreign_cores is None else f"others used {units.number(machine.foreign_cores)} cores",
        ),
        counterfactual=without(evidence, amount),
        falsifier="the probe recovers and the step does not",
    )  # fmt: skip


def _unfelt(level: float | None, slowdown: float | None, what: str, evidence: Evidence) -> str | None:
    """What keeps a slower probe from confirming anything: by the model of an undisturbed machine, forwards have slowed
    down by less than a quarter as much."""
    if level is None or level <= 0.0 or slowdown is None or not evidence.is_reference_calm:
        return None
    if slowdown >= 1.0 + FELT * (1.0 / level - 1.0):
        return None
    return f"forwards take {units.ratio(slowdown)} of what an undisturbed machine needs: less than {what} slowed"


def _take_held_up(cause: Cause, evidence: Evidence, slices: Slices, *, only_excess: bool = False) -> float:
    """Give a cause what the threads lost.

    Where threads wait for each other, one that is held up holds up all: of n threads that together ran for σ, one may
    have missed n · (1 − σ) of the time. So much of what the forwards took beyond the prediction is theirs, and at
    least 1 − σ of forwards and of the loop's own work, σ being what it is ÷ what it is undisturbed.
    """
    machine, forward = evidence.machine, evidence.times.forward
    if machine.cpu_share is None:
        return 0.0
    threads = 1 if evidence.config is None else evidence.config.threads or 1
    most = min(1.0, threads * max(0.0, 1.0 - machine.cpu_share)) * forward
    got = slices.take(cause, most, ("excess",))
    if only_excess:
        return got
    calm = machine.cpu_share_calm
    undisturbed = calm if calm is not None and calm >= NATURAL else 1.0
    lost = max(0.0, 1.0 - machine.cpu_share / undisturbed)
    got += slices.take_evenly(cause, lost * forward - got, (*FORWARD, "forward"))
    host = (*HOST, "sample")
    return got + slices.take_evenly(cause, lost * sum([slices.left[name] for name in host]), host)


def _take_slower(cause: Cause, lost: float, names: tuple[str, ...], evidence: Evidence, slices: Slices) -> float:
    """Give a cause what a slower machine adds. By the undisturbed model that is what it leaves unexplained; where the
    model has learned the slow machine, the lost share of what depends on it."""
    excess = slices.left["excess"]
    there = sum([slices.left[name] for name in names])
    if evidence.is_reference_calm:
        # No more than what the probe accounts for, with room for a probe that is not the engine.
        return slices.take(cause, 1.5 * there * lost / max(1e-9, 1.0 - lost), ("excess",))
    return slices.take(cause, excess, ("excess",)) + slices.take_evenly(cause, there * lost - excess, names)


def _sigma(machine: Machine) -> str | None:
    if machine.cpu_share is None:
        return None
    return f"the engine's threads ran for {units.percent(machine.cpu_share)} of the forwards' time (σ)"


def _slower(evidence: Evidence) -> str | None:
    if evidence.slowdown is None or not evidence.is_reference_calm:
        return None
    return f"forwards take {units.ratio(evidence.slowdown)} of what the model predicts of a calm machine"
