"""What every way of running the engine needs around it: its models, its header, where it records, how it failed."""

from __future__ import annotations

import os
import platform
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from stackscope import units
from stackscope.errors import ModelFileError, StackscopeError, ToggleRefusedError, WorkloadError
from stackscope.model.catalog import bundled_draft, bundled_target, resolve
from stackscope.session.paths import destination

if TYPE_CHECKING:
    from collections.abc import Callable

    from stackscope.engine.devices import Device
    from stackscope.engine.process import EngineProcess
    from stackscope.hardware.ceilings import Found
    from stackscope.hardware.gpu_probe import BackgroundGpus, GpuReading
    from stackscope.hardware.gpu_use import EngineUse
    from stackscope.hardware.nvml_gpus import Gpus
    from stackscope.hardware.sampler import Sampler
    from stackscope.options import OutputOptions
    from stackscope.records import Ceilings, Header, RequestRecord
    from stackscope.session.paths import Destination
    from stackscope.toggles import EngineConfig
    from stackscope.workload.check import WorkloadFacts
    from stackscope.workload.spec import WorkloadSpec

MOST_OTHERS: Final = 8
"""Ceilings of other conditions that a session's header carries: some kilobytes each."""

MOST_FAILURES: Final = 3
"""Reasons why requests failed that are told; the recording has all of them."""


def with_models(config: EngineConfig) -> EngineConfig:
    """The configuration with the paths of its models, checked: the bundled pair where none was named."""
    if config.model:
        model = str(resolve(config.model))
        draft = None if config.draft_model is None else str(resolve(config.draft_model))
    else:
        model = str(bundled_target())
        draft = str(bundled_draft()) if config.draft_model is None else str(resolve(config.draft_model))
    if config.speculation == "draft" and draft is None:
        raise ToggleRefusedError("Speculation by draft model needs a draft model.", remedy="Give one with --draft.")
    return msgspec.structs.replace(config, model=model, draft_model=draft)


def place_of_recording(
    output: OutputOptions, workload: WorkloadSpec, config: EngineConfig, *, started: datetime
) -> Destination | None:
    """Where to record. `None`: not at all."""
    if not output.record:
        return None
    return destination(
        output.record_path,
        started=started,
        workload=workload.name or Path(workload.path or "").stem,
        model=Path(config.model).stem,
    )


def header_of(
    process: EngineProcess, workload: WorkloadSpec, facts: WorkloadFacts, *, notes: list[str] | None = None
) -> Header:
    """The header of a session with an engine that is ready; `notes` takes what the user should know about it."""
    # Imported late: a screen asks for models and places before it shows anything, and for this once it does.
    from stackscope.engine.openmp import usable_cores
    from stackscope.hardware import peaks
    from stackscope.hardware.host import processor_name
    from stackscope.workload import check

    peaks.override(os.environ)  # What it refuses is refused before the traffic begins.
    gpus = ", ".join(gpu.description or gpu.name for gpu in _gpus_of(process))
    header = process.compose_header(host=platform.node(), device=gpus or processor_name() or platform.machine())
    found = _ceilings_of(header)
    if found.note is not None and notes is not None:
        notes.append(found.note)
    return msgspec.structs.replace(
        header,
        cores=usable_cores(),
        workload=check.header(workload, facts),
        ceilings=found.ceilings,
        other_ceilings=_others(header, found.ceilings),
    )


def start_sampler(
    process: EngineProcess, *, recorder_cpu_ns: Callable[[], int | None], period_ns: int | None = None
) -> Sampler:
    """Sample the machine, the engine process and GPUs into the session, until the sampler is closed.

    `period_ns` is the time between samples, a second where it is `None`.
    """
    from stackscope.hardware import peaks
    from stackscope.hardware.gpu_probe import BackgroundGpus
    from stackscope.hardware.nvml_gpus import Gpus
    from stackscope.hardware.sampler import PERIOD_NS, Sampler

    gpus = Gpus(gpu_use_of(process), peak=peaks.override(os.environ))
    background = BackgroundGpus(gpus)
    background.start()
    sampler = Sampler(
        process.inject,
        clock=process.now_ns,
        pid=process.pid,
        gpus=_EngineGpus(process, gpus, background),
        recorder_cpu_ns=recorder_cpu_ns,
        period_ns=PERIOD_NS if period_ns is None else period_ns,
    )
    sampler.start()
    return sampler


class _EngineGpus:
    """The GPUs as another thread reads them, who is told at each look which of them the engine uses by now."""

    def __init__(self, process: EngineProcess, gpus: Gpus, background: BackgroundGpus) -> None:
        self._process = process
        self._gpus = gpus
        self._background = background

    def read(self) -> GpuReading:
        self._gpus.use = gpu_use_of(self._process)
        return self._background.read()

    def close(self) -> None:
        self._background.close()


def gpu_use_of(process: EngineProcess) -> EngineUse:
    """What is known of the GPUs that an engine computes on: what it says itself, and its environment."""
    from stackscope.hardware.gpu_use import EngineUse, pci_id

    use = EngineUse.of(os.environ, pid=process.pid)
    if process.ready is None or not process.ready.devices:
        return use
    gpus = _gpus_of(process)
    told = [pci_id(gpu.pci_id or "") for gpu in gpus]
    names = tuple(name for name in told if name is not None)
    return msgspec.structs.replace(use, offloads=bool(gpus), pci_ids=names if len(names) == len(gpus) else None)


def _gpus_of(process: EngineProcess) -> tuple[Device, ...]:
    """The GPUs that the engine computes on with the configuration in force."""
    from stackscope.engine.devices import used

    if process.ready is None:
        return ()
    return used(process.ready.devices, process.config or process.ready.config)


def _ceilings_of(header: Header) -> Found:
    """What this machine was measured to do at most with the header's models and configuration."""
    from stackscope.engine import openmp
    from stackscope.engine.process import child_environment
    from stackscope.hardware import ceilings

    config = header.config
    if config is None or config.threads is None:
        return ceilings.Found(None)
    waiting = openmp.described(child_environment(os.environ, config.threads))
    try:
        wanted = ceilings.conditions(config, library=header.library or "", threads=config.threads, waiting=waiting)
    except ModelFileError:  # It was deleted after it was loaded, which is no harm.
        return ceilings.Found(None)
    return ceilings.fitting(wanted, draft=None if config.draft_model is None else Path(config.draft_model).name)


def _others(header: Header, chosen: Ceilings | None) -> tuple[Ceilings, ...]:
    """The newest ceilings of this machine and library under other conditions: other weights, types or threads."""
    from stackscope.hardware import ceilings

    here = ceilings.machine()
    found = [
        each.ceilings
        for each in ceilings.known()
        if each.ceilings is not None
        and each.ceilings != chosen
        and (each.ceilings.conditions.machine, each.ceilings.conditions.library) == (here, header.library)
    ]
    found.sort(key=lambda each: datetime.fromisoformat(each.measured), reverse=True)
    return tuple(found[:MOST_OTHERS])


class Failures:
    """Why requests failed, and how many."""

    def __init__(self) -> None:
        self.reasons: Counter[str] = Counter()
        self._is_any_served = False

    def take(self, request: RequestRecord) -> None:
        """Note a request that has ended."""
        if request.error is not None:
            self.reasons[request.error] += 1
        if request.finish_reason != "error":
            self._is_any_served = True

    def told(self) -> list[str]:
        """Sentences for people, the commonest reasons first."""
        most = self.reasons.most_common(MOST_FAILURES)
        told = [f"{units.counted(n, 'request')} failed: {why}" for why, n in most]
        n_more = len(self.reasons) - len(told)
        return told if n_more <= 0 else [*told, f"Requests failed for {units.counted(n_more, 'other reason')}."]

    def only(self) -> StackscopeError | None:
        """The failure of a run in which not one request could run. `None`: it was another run."""
        if not self.reasons or self._is_any_served:
            return None
        reason, _ = self.reasons.most_common(1)[0]
        requests = units.counted(self.reasons.total(), "request")
        return WorkloadError(
            f"None of {requests} could run: {reason}", remedy="Change the workload, or give a larger --context."
        )
