"""Causes outside the engine: something else takes cores, memory or clocks from it, or it waits for a disk.

At most one of the first three takes what the engine's threads lost (1 − σ). What a slower machine adds while they all
run (σ near 1) goes to contention or to a throttle, by what the probes say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackscope import units
from stackscope.analysis.diagnosis.base import Claim, found, per_step, rejected, without
from stackscope.analysis.diagnosis.evidence import SLOWER
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
    """A quota stops the engine, clocks are held down, it is stopped by hand, or a processor is slower unexplained."""
    machine = evidence.machine
    if _pages(machine):
        return rejected("throttle", "the engine waits for a disk", kind="loss")
    quota, clocks = machine.throttled, machine.clocks_held
    has_quota = quota is not None and quota >= QUOTA
    is_held = bool(clocks) and clocks[0][1] >= QUOTA
    is_stopped = _is_stopped(evidence)
    if has_quota or is_stopped:
        amount = _take_held_up("throttle", evidence, slices)
    elif is_held:
        amount = slices.take("throttle", slices.left["excess"], ("excess",))
    else:
        why_not = _not_slower(evidence)
        if why_not is not None:
            return rejected("throttle", why_not, kind="loss")
        amount = _take_slower("throttle", 1.0 - (machine.compute or 0.0), BUSY, evidence, slices)
    share = slices.share(amount)
    what = "being throttled" if has_quota or is_held else "standing still" if is_stopped else "computing more slowly"
    return found(
        "throttle", kind="loss", share=share, doubt=None,
        claim=f"{what} takes {per_step(evidence, amount)}, {units.percent(share)} of the time",
        evidence=(
            f"a quota held the engine up in {units.percent(quota)} of its periods" if has_quota else None,
            f"{clocks[0][0]} held the GPU's clocks down for {units.percent(clocks[0][1])} of the time"
            if is_held else None,
            "its threads did not run though nobody else wanted their cores" if is_stopped else None,
            *_probes(evidence),
            None if has_quota or is_held or is_stopped
            else "a lower clock or a neighbour on the same host: which of them cannot be told here",
            _sigma(machine), _slower(evidence),
        ),
        counterfactual=without(evidence, amount),
        falsifier="the probes recover and the step does not",
    )  # fmt: skip


def _not_slower(evidence: Evidence) -> str | None:
    """Why the probes do not say that the processor itself is slower. `None`: they do."""
    machine = evidence.machine
    level = machine.compute
    if level is None or level >= SLOWER or evidence.is_on_gpu or _competes(machine):
        return _no_throttle(machine)
    if machine.read is not None and machine.read * ALIKE < level:
        return f"reading memory has slowed down more than computing: to {units.percent(machine.read)}, not " + (
            units.percent(level)
        )
    return _unfelt(level, machine.compute_felt, evidence.slowdown, "computing", evidence)


def _probes(evidence: Evidence) -> tuple[str | None, ...]:
    """What the probes say of a processor that is slower."""
    machine = evidence.machine
    if machine.compute is None or machine.compute >= SLOWER or evidence.is_on_gpu:
        return ()
    felt = machine.compute_felt
    return (
        f"a fixed computation runs at {units.percent(machine.compute)} of its undisturbed speed",
        None if machine.read is None else f"memory is read at {units.percent(machine.read)} of it",
        None if felt is None else f"forwards took {units.ratio(felt)} of what they do while it is not slower",
    )


def _no_throttle(machine: Machine) -> str:
    parts = []
    if machine.throttled is not None:
        parts.append(f"a quota held it up in {units.percent(machine.throttled)} of its periods")
    if machine.compute is not None:
        parts.append(f"a fixed computation runs at {units.percent(machine.compute)} of its undisturbed speed")
    return ", ".join(parts) or "nothing tells of quotas or clocks, and no probe ran"


def _is_stopped(evidence: Evidence) -> bool:
    """Threads did not run for milliseconds as they do on this machine, and nobody else wanted their cores.

    What others used must be known for these very seconds: pressure is told as a mean of ten.
    """
    machine = evidence.machine
    if (1.0 - (machine.cpu_share or 0.0)) * evidence.times.forward < STOPPED_NS * evidence.forwards:
        return False
    rest = None if machine.cpu_share_calm is None else machine.cpu_share_rest
    return rest is not None and rest < LOST_ALONE and machine.foreign_cores is not None and not _competes(machine)


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
    if _pages(machine) or (machine.throttled or 0.0) >= QUOTA:
        return rejected("CPU starvation", "the threads waited for a disk or a quota", kind="loss")
    if _lost(machine) <= 1.0 - HELD_UP:
        return rejected("CPU starvation", _not_lost(machine), kind="loss")
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


def _not_lost(machine: Machine) -> str:
    said, calm = f"the threads ran for {units.percent(machine.cpu_share)} of the time", machine.cpu_share_calm
    if calm is None or (machine.cpu_share or 0.0) >= HELD_UP:
        return said
    return f"{said}, and for {units.percent(calm)} when nothing disturbs them"


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
    # Of how many times as long: where threads were held up as well, what that does not explain.
    slowdown = evidence.slowdown
    rest = None if slowdown is None else slowdown * (machine.cpu_share or 1.0 if is_held_up else 1.0)
    unfelt = _unfelt(machine.read, None if is_held_up else machine.read_felt, rest, "reading", evidence)
    if unfelt is not None:
        return rejected(cause, unfelt, kind="loss")
    amount = _take_slower(cause, 1.0 - machine.read, MEMORY, evidence, slices)
    share = slices.share(amount)
    return found(
        cause, kind="loss", share=share, doubt=None,
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


def _unfelt(level: float, felt: float | None, slowdown: float | None, what: str, evidence: Evidence) -> str | None:
    """What keeps a slower probe from saying anything of the engine: that forwards have slowed down by less than a
    quarter as much. `None`: they have.

    `felt` says it of the seconds in which the probe was slow, against the others. Without these, as after a minute of
    it, the model of an undisturbed machine does, if there is one; what has learned the slow machine says nothing.
    """
    least = 1.0 + FELT * (1.0 / max(level, 1e-9) - 1.0)
    if felt is not None:
        if felt >= least:
            return None
        return f"forwards take {units.ratio(felt)} of what they do while {what} is not slower, which is less than it"
    if slowdown is None or not evidence.is_reference_calm:
        return None
    if slowdown >= least:
        return None
    return f"forwards take {units.ratio(slowdown)} of what an undisturbed machine needs: less than {what} slowed"


def _lost(machine: Machine) -> float:
    """Of the forwards' time, what threads lack of what they have undisturbed; 0: nothing, or σ is not known.

    Where something is known to take their time and no calm machine was seen, they are taken to be able to run all the
    time.
    """
    if machine.cpu_share is None:
        return 0.0
    is_taken = _competes(machine) or _pages(machine) or (machine.throttled or 0.0) >= QUOTA
    calm = NATURAL if machine.cpu_share_calm is None else machine.cpu_share_calm
    undisturbed = 1.0 if is_taken and (machine.cpu_share_calm is None or calm < NATURAL) else calm
    return max(0.0, 1.0 - machine.cpu_share / undisturbed) if undisturbed > 0.0 else 0.0


def _take_held_up(cause: Cause, evidence: Evidence, slices: Slices, *, only_excess: bool = False) -> float:
    """Give a cause what the threads lost.

    Where threads wait for each other, one that is held up holds up all: of n threads that together lost a share of the
    time, one may have missed n times that. So much of what the forwards took beyond the prediction is theirs, and at
    least the share itself of forwards and of the loop's own work.
    """
    forward, lost = evidence.times.forward, _lost(evidence.machine)
    threads = 1 if evidence.config is None else evidence.config.threads or 1
    got = slices.take(cause, min(1.0, threads * lost) * forward, ("excess",))
    if only_excess:
        return got
    got += slices.take_evenly(cause, lost * forward - got, (*FORWARD, "forward"))
    host = (*HOST, "sample")
    return got + slices.take_evenly(cause, lost * sum([slices.left[name] for name in host]), host)


def _take_slower(cause: Cause, lost: float, names: tuple[str, ...], evidence: Evidence, slices: Slices) -> float:
    """Give a cause what a slower machine adds, and no more than what the probe accounts for. By the undisturbed model
    that is part of what it leaves unexplained; where the model has learned the slow machine, the lost share of what
    depends on it."""
    there = sum([slices.left[name] for name in names])
    got = slices.take(cause, there * lost / max(1e-9, 1.0 - lost), ("excess",))
    if evidence.is_reference_calm:
        return got
    return got + slices.take_evenly(cause, there * lost - got, names)


def _sigma(machine: Machine) -> str | None:
    if machine.cpu_share is None:
        return None
    return f"the engine's threads ran for {units.percent(machine.cpu_share)} of the forwards' time (σ)"


def _slower(evidence: Evidence) -> str | None:
    if evidence.slowdown is None or not evidence.is_reference_calm:
        return None
    return f"forwards take {units.ratio(evidence.slowdown)} of what the model predicts of a calm machine"
