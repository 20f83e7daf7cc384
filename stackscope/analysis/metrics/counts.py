"""How much happened."""

from __future__ import annotations

from typing import ClassVar

from stackscope.analysis.metrics.base import Figures, Metric, Need


class Count(Metric[int]):
    """A plain number of things, 0 when none happened."""

    needs: ClassVar[tuple[Need, ...]] = ("steps",)

    def of(self, figures: Figures) -> int:
        """The number."""
        raise NotImplementedError

    def compute(self, figures: Figures) -> int | None:
        return self.of(figures)


class WallTime(Count):
    """From the start of the first step to the end of the last."""

    tag = "wall_ns"
    header = "wall time"
    unit = "ns"
    formula = "Σ step time + Σ idle time between steps"

    def of(self, figures: Figures) -> int:
        return figures.steps.time.wall_ns


class Steps(Count):
    """Turns of the engine loop that were recorded."""

    tag = "steps"
    header = "steps"
    unit = "steps"
    formula = "number of step records"

    def of(self, figures: Figures) -> int:
        return figures.steps.steps


class Forwards(Count):
    """Forwards of the target that ran to their end."""

    tag = "forwards"
    header = "forwards"
    unit = "forwards"
    formula = "steps with work that were not aborted"

    def of(self, figures: Figures) -> int:
        return figures.steps.work.forwards


class DraftForwards(Count):
    """Forwards of the draft model."""

    tag = "draft_forwards"
    header = "draft forwards"
    unit = "forwards"
    formula = "Σ draft forwards"

    def of(self, figures: Figures) -> int:
        return figures.steps.draft_forwards


class AbortedSteps(Count):
    """Steps whose forward a command cut short. They count in the time, and nowhere else."""

    tag = "aborted_steps"
    header = "aborted"
    unit = "steps"
    formula = "steps marked aborted"

    def of(self, figures: Figures) -> int:
        return figures.steps.aborted


class SettlingSteps(Count):
    """Steps in which the after-effects of a toggle were still being paid. They count like any other."""

    tag = "settling_steps"
    header = "settling"
    unit = "steps"
    formula = "steps marked settling"

    def of(self, figures: Figures) -> int:
        return figures.steps.settling


class InvalidOutputSteps(Count):
    """Steps under synthetic acceptance: their timing is meaningful, their text and their acceptance are not."""

    tag = "invalid_output_steps"
    header = "synthetic"
    unit = "steps"
    formula = "steps marked invalid output"

    def of(self, figures: Figures) -> int:
        return figures.steps.invalid_output


class OutputTokens(Count):
    """Tokens that entered outputs, of finished requests and others."""

    tag = "output_tokens"
    header = "tokens out"
    unit = "tokens"
    formula = "Σ emitted over steps"

    def of(self, figures: Figures) -> int:
        return figures.steps.work.emitted


class PrefillTokens(Count):
    """Prompt tokens computed, those recomputed after a pre-emption or rebuild included."""

    tag = "prefill_tokens"
    header = "tokens in"
    unit = "tokens"
    formula = "Σ rows of prefilling sequences"

    def of(self, figures: Figures) -> int:
        return figures.steps.work.prefill_rows


class Preemptions(Count):
    """Times that a request lost its slot because the KV cache was full."""

    tag = "preemptions"
    header = "pre-emptions"
    unit = "times"
    formula = "Σ pre-empted over steps"

    def of(self, figures: Figures) -> int:
        return figures.steps.preempted


class Rebuilds(Count):
    """Changes of the configuration that needed a new context."""

    tag = "rebuilds"
    header = "rebuilds"
    unit = "times"
    formula = "configuration events of kind rebuild"

    def of(self, figures: Figures) -> int:
        return figures.events.rebuilds


class RebuildTime(Metric[int]):
    """Time that rebuilds took, without the prefill of the requests they put back."""

    tag = "rebuild_ns"
    header = "rebuild time"
    unit = "ns"
    formula = "Σ duration of rebuilds"
    needs: ClassVar[tuple[Need, ...]] = ("steps",)

    def compute(self, figures: Figures) -> int | None:
        events = figures.events
        return events.rebuild_ns if events.timed_rebuilds == events.rebuilds else None


class RefusedChanges(Count):
    """Changes of the configuration that the engine refused."""

    tag = "refused_changes"
    header = "refused"
    unit = "times"
    formula = "configuration events of kind refused"

    def of(self, figures: Figures) -> int:
        return figures.events.refused


class Requests(Metric[dict[str, int]]):
    """Finished requests by how they finished. Latencies are of those that ended by eos, length, context or stop."""

    tag = "requests"
    header = "requests"
    unit = "requests"
    formula = "number of request records, by finish reason"
    needs: ClassVar[tuple[Need, ...]] = ("requests",)

    def compute(self, figures: Figures) -> dict[str, int] | None:
        return dict(sorted(figures.requests.by_reason.items()))


COUNT_METRICS: tuple[Metric[object], ...] = (
    WallTime(),
    Steps(),
    Forwards(),
    DraftForwards(),
    AbortedSteps(),
    SettlingSteps(),
    InvalidOutputSteps(),
    Requests(),
    OutputTokens(),
    PrefillTokens(),
    Preemptions(),
    Rebuilds(),
    RebuildTime(),
    RefusedChanges(),
)
