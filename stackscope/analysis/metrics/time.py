"""Where the time went. One denominator: the wall time of steps, whose phases sum to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from stackscope.analysis.metrics.base import Figures, Metric, Need, ratio

if TYPE_CHECKING:
    from stackscope.analysis.distribution import Spread


class PhaseShares(Metric[dict[str, float]]):
    """Share of the step time that each phase took; the shares sum to 1. Aborted forwards are in it."""

    tag = "phase_shares"
    header = "step time"
    unit = "1"
    formula = "Σ phase ÷ Σ step time, for each phase"
    needs: ClassVar[tuple[Need, ...]] = ("steps", "phases")

    def compute(self, figures: Figures) -> dict[str, float] | None:
        time = figures.steps.time
        if time.busy_ns == 0:
            return None
        return {phase: spent / time.busy_ns for phase, spent in time.phases_ns.items()}


class StepTime(Metric["Spread"]):
    """Wall time of a step, all phases."""

    tag = "step_ns"
    header = "step"
    unit = "ns"
    formula = "end of step − start of step"
    needs: ClassVar[tuple[Need, ...]] = ("steps",)

    def compute(self, figures: Figures) -> Spread | None:
        return figures.steps.time.step_ns.spread()


class ForwardTime(Metric["Spread"]):
    """Wall time of the target's forward, until the backend has synchronised. Aborted ones are left out."""

    tag = "forward_ns"
    header = "forward"
    unit = "ns"
    formula = "forward phase of a step"
    needs: ClassVar[tuple[Need, ...]] = ("steps", "phases")

    def compute(self, figures: Figures) -> Spread | None:
        return figures.steps.time.forward_ns.spread()


class HostTime(Metric["Spread"]):
    """Wall time of a step outside drafting and the target's forward: scheduling, sampling, trimming, detokenising."""

    tag = "host_ns"
    header = "host time"
    unit = "ns"
    formula = "step − draft phase − forward phase"
    needs: ClassVar[tuple[Need, ...]] = ("steps", "phases")

    def compute(self, figures: Figures) -> Spread | None:
        return figures.steps.time.host_ns.spread()


class IdleTime(Metric[int]):
    """Wall time between steps: nothing to do, or a rebuild."""

    tag = "idle_ns"
    header = "idle"
    unit = "ns"
    formula = "Σ (start of step n+1 − end of step n)"
    needs: ClassVar[tuple[Need, ...]] = ("steps",)

    def compute(self, figures: Figures) -> int | None:
        return figures.steps.time.idle_ns if figures.steps.steps > 0 else None


class IdleShare(Metric[float]):
    """Share of the wall time that lay between steps."""

    tag = "idle_share"
    header = "idle share"
    unit = "1"
    formula = "idle time ÷ (idle time + Σ step time)"
    needs: ClassVar[tuple[Need, ...]] = ("steps",)

    def compute(self, figures: Figures) -> float | None:
        return ratio(figures.steps.time.idle_ns, figures.steps.time.wall_ns)


class CpuShare(Metric[float]):
    """σ: the share of the engine's threads that really ran during the target's forwards. Spinning counts as running;
    below 1, something else had the cores. Unknown where CPU time or the number of threads is."""

    tag = "cpu_share"
    header = "CPU share"
    unit = "1"
    formula = "σ = Σ CPU time of the forward phase ÷ Σ threads × wall time of the forward phase"
    needs: ClassVar[tuple[Need, ...]] = ("steps", "phases", "cpu")

    def compute(self, figures: Figures) -> float | None:
        return ratio(figures.steps.time.cpu_ns, figures.steps.time.thread_ns)


TIME_METRICS: tuple[Metric[object], ...] = (
    PhaseShares(),
    StepTime(),
    ForwardTime(),
    HostTime(),
    IdleTime(),
    IdleShare(),
    CpuShare(),
)
