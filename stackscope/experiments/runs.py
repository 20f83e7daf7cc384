"""One run of one configuration: a fresh engine process, warm-up, measurement, and figures out.

A process for each run costs a second of starting, and is worth it: what a process draws once, such as where its pages
lie, is drawn anew for each run and enters the intervals, and no state of one cell (cached prefixes, grown buffers,
fragmented memory) reaches the next.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Final

from stackscope.analysis.metrics import cost, latency, load, speculation
from stackscope.analysis.metrics import counts as count_metrics
from stackscope.analysis.metrics import time as time_metrics
from stackscope.analysis.summary import RunSummary
from stackscope.engine import wire
from stackscope.engine.process import EngineProcess
from stackscope.errors import EngineError
from stackscope.experiments.plan import warmup_requests
from stackscope.experiments.state import CellRun
from stackscope.launch import Failures, header_of, start_sampler
from stackscope.records import HardwareSample, Header, RequestRecord
from stackscope.session.writer import SessionWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stackscope.analysis.distribution import Spread
    from stackscope.analysis.metrics.base import Metric, ServiceLimits
    from stackscope.analysis.summary import RunResult
    from stackscope.records import AnyRecord
    from stackscope.toggles import EngineConfig
    from stackscope.workload.check import WorkloadFacts
    from stackscope.workload.spec import WorkloadSpec

TRAFFIC: Final = "stackscope.experiments.runs_traffic:TwoWaves"

LOOK_S: Final = 0.2
"""How often it is asked whether to stop, while the engine says nothing."""

SAMPLE_NS: Final = 500_000_000
"""Between readings of the machine: runs are short."""

SPREADS: Final[dict[str, type[Metric[Spread]]]] = {
    "ttft": latency.TimeToFirstToken,
    "step_gap": latency.StepGap,
    "tpot": latency.TimePerOutputToken,
    "e2e": latency.EndToEnd,
}
"""Latencies, of which p50, p95 (ns) and the number of values become figures."""

SINGLE: Final[dict[str, type[Metric[float]]]] = {
    "tokens_per_s": load.OutputRate,
    "tokens_per_forward": speculation.TokensPerForward,
    "acceptance": speculation.AcceptanceRate,
    "useful_hit_rate": load.UsefulHitRate,
    "occupancy": load.Occupancy,
    "bytes_per_s": cost.TargetBandwidth,
    "goodput": latency.Goodput,
    "cpu_share": time_metrics.CpuShare,
}


class Stopped(Exception):
    """Somebody asked for the end in the middle of a run; what it had is not used."""


def run_cell(
    config: EngineConfig,
    workload: WorkloadSpec,
    facts: WorkloadFacts,
    *,
    block: int,
    cell: int,
    limits: ServiceLimits,
    recording: Path | None = None,
    is_stopping: Callable[[], bool] = lambda: False,
) -> CellRun:
    """Run a configuration once. The workload's first requests warm up and enter no figure.

    Raises `Stopped`, `StackscopeError` when the engine cannot run it, and `EngineError` when no request was served.
    """
    begun_ns = time.monotonic_ns()
    collector = Collector(limits, warmup_requests(workload))
    notes: list[str] = []
    recorder: SessionWriter | None = None
    with EngineProcess.start(config, workload, traffic=TRAFFIC) as process, ExitStack() as ending:
        started = process.started
        ready = process.wait_ready()
        if ready.note is not None:
            notes.append(ready.note)
        header = header_of(process, workload, facts)
        if recording is not None:
            with suppress(FileNotFoundError):  # What a run left that did not come to its end.
                recording.unlink()
            recorder = SessionWriter(recording, header)
        collector.take(header)
        process.begin(header, recorder)
        sampler = start_sampler(process, recorder_cpu_ns=lambda: None, period_ns=SAMPLE_NS)
        ending.callback(sampler.close)
        while True:
            is_read = process.is_read  # Only a call after that raises what ended the engine.
            item = process.next_item(LOOK_S)
            if item is None:
                if is_read:
                    break
                if is_stopping():
                    raise Stopped
            elif isinstance(item, wire.Refused | wire.Note):
                notes.append(item.text)
            elif not isinstance(item, wire.Message):
                collector.take(item)
                if isinstance(item, RequestRecord) and is_stopping():
                    raise Stopped
    if process.recording_failure is not None:
        raise process.recording_failure
    return CellRun(
        block=block,
        cell=cell,
        figures=collector.figures(),
        duration_ns=time.monotonic_ns() - begun_ns,
        started=started or datetime.now().astimezone().isoformat(timespec="seconds"),
        recording=None if recorder is None else recorder.path.name,
        notes=tuple(notes),
    )


class Collector:
    """Takes the records of a run and gives its figures, without the requests that warm up."""

    def __init__(self, limits: ServiceLimits, n_warmup: int) -> None:
        self._limits = limits
        self._n_left = n_warmup
        self._held: list[AnyRecord] = []
        """Everything until the last of them has ended."""
        self._summary: RunSummary | None = None
        self._samples: list[HardwareSample] = []
        self._failures = Failures()
        self._header: Header | None = None

    def take(self, record: AnyRecord) -> None:
        """Follow the run."""
        if isinstance(record, Header):
            self._header = record
        elif isinstance(record, HardwareSample):
            self._samples.append(record)
        if self._summary is not None:
            self._summary.write(record)
        else:
            self._held.append(record)
        if isinstance(record, RequestRecord):
            self._failures.take(record)
            self._n_left -= 1
            if self._n_left == 0:
                self._begin(record.finished_ns)

    def _begin(self, at_ns: int) -> None:
        self._summary = RunSummary(limits=self._limits, warmup_ns=at_ns)
        for record in self._held:
            self._summary.write(record)
        self._samples = self._samples[-1:]
        self._held = []

    def figures(self) -> dict[str, float]:
        """What was measured, by name. Raises the failure of a run that served nobody."""
        failure = self._failures.only()
        if failure is not None:
            raise failure
        if self._summary is None:
            raise EngineError("The run ended before its first requests had.")
        result = self._summary.result()
        if result[load.OutputRate] is None:
            raise EngineError("No request was measured.", remedy="Give more --requests.")
        found = {name: result[metric] for name, metric in SINGLE.items()}
        found |= _latencies(result)
        found |= _shares(result)
        found |= self._machine(result)
        if self._failures.reasons:
            found["failed"] = float(self._failures.reasons.total())
        return {name: float(value) for name, value in found.items() if value is not None}

    def _machine(self, result: RunResult) -> dict[str, float | None]:
        """Memory, energy and compute, as far as the machine tells."""
        samples = self._samples
        resident = [sample.rss_bytes for sample in samples if sample.rss_bytes is not None]
        on_gpus = [
            sum(gpu.engine_memory_bytes or 0 for gpu in sample.gpus if gpu.is_used)
            for sample in samples
            if sample.gpus and any(gpu.engine_memory_bytes is not None for gpu in sample.gpus)
        ]
        tokens, wall_ns = result[count_metrics.OutputTokens], result[count_metrics.WallTime]
        energy_j = _energy_j(samples, wall_ns)
        return {
            "memory_bytes": max(resident, default=None),
            "gpu_memory_bytes": max(on_gpus, default=None),
            "joules_per_token": None if energy_j is None or not tokens else energy_j / tokens,
            "idle_compute": self._idle_compute(result),
            "output_tokens": tokens,
            "wall_ns": wall_ns,
            "warmup_requests": result.warmup_requests,
        }

    def _idle_compute(self, result: RunResult) -> float | None:
        """Share of the measured FLOP/s that was not used. `None`: it was not measured under these conditions."""
        header = self._header
        flops, rate = result[cost.FlopsPerToken], result[load.OutputRate]
        if header is None or header.ceilings is None or header.config is None or flops is None or rate is None:
            return None
        ceiling = header.ceilings.limits(header.config).compute
        return None if ceiling is None else max(1.0 - flops * rate / ceiling.value, 0.0)


def _latencies(result: RunResult) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for name, metric in SPREADS.items():
        spread = result[metric]
        found[f"{name}_n"] = 0 if spread is None else spread.n
        if spread is not None:
            found[f"{name}_p50_ns"] = spread.p50
            found[f"{name}_p95_ns"] = spread.p95
    return found


def _shares(result: RunResult) -> dict[str, float | None]:
    """Shares of step time by phase, and of all that is outside the models."""
    shares = result[time_metrics.PhaseShares]
    if shares is None:
        return {}
    found: dict[str, float | None] = {f"share.{phase}": share for phase, share in shares.items() if share > 0}
    found["host_share"] = max(1.0 - shares.get("decode", 0.0) - shares.get("draft", 0.0), 0.0)
    return found


def _energy_j(samples: list[HardwareSample], wall_ns: int | None) -> float | None:
    """What packages and used GPUs took, by their mean power. `None`: nobody told."""
    if wall_ns is None:
        return None
    watts = [
        (sample.package_power_w or 0.0)
        + sum(gpu.power_w for gpu in sample.gpus or () if gpu.is_used and gpu.power_w is not None)
        for sample in samples
        if sample.package_power_w is not None
        or any(gpu.is_used and gpu.power_w is not None for gpu in sample.gpus or ())
    ]
    return None if not watts else sum(watts) / len(watts) * wall_ns / 1e9
