"""What the metric classes draw on, made of arrays instead of step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from stackscope.analysis.comparing.columns import AT
from stackscope.analysis.distribution import Distribution, Spread, spread_of
from stackscope.analysis.metrics import latency, time
from stackscope.analysis.metrics.base import Figures
from stackscope.analysis.totals import PHASES, EventTotals, RequestTotals, StepTotals

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stackscope.analysis.account import Account
    from stackscope.analysis.comparing.counting import Floats, Ints
    from stackscope.analysis.ledgers import Pricing
    from stackscope.records import FinishReason, StepRecord

_WORK: Final = ("forwards", "prefill_rows", "decode_rows", "outputs", "emitted", "decode_emitted", "decode_forwards")


class Kept(Distribution):
    """A distribution whose values are in an array already, all of them."""

    __slots__ = ("_array",)

    def __init__(self, values: Floats) -> None:
        super().__init__()
        self._array = values

    def __len__(self) -> int:
        return len(self._array)

    def spread(self) -> Spread | None:
        return spread_of(self._array) if len(self._array) > 0 else None  # type: ignore[arg-type]


class Sums:
    """What blocks do not hold: counts of rare things, and how verifications ended."""

    def __init__(self) -> None:
        self.draft_forwards = 0
        self.unpriced_forwards = 0
        """Of the target, whose geometry was not known."""
        self.unpriced_drafts = 0
        self.verifications: dict[tuple[int, int, int], int] = {}

    def add(self, steps: Sequence[StepRecord], verifications: Ints, n_drafts: int, pricing: Pricing) -> None:
        """Take steps, the verifications in them, and the forwards of their draft model."""
        self.draft_forwards += n_drafts
        if pricing.target is None:
            self.unpriced_forwards += sum([bool(step.work) and not step.aborted for step in steps])
        if pricing.draft is None:
            self.unpriced_drafts += n_drafts
        if len(verifications) == 0:
            return
        kinds, numbers = np.unique(verifications, axis=0, return_counts=True)
        for (drafted, accepted, emitted), n in zip(kinds.tolist(), numbers.tolist(), strict=True):
            key = (drafted, accepted, emitted)
            self.verifications[key] = self.verifications.get(key, 0) + n


def figures_of(
    blocks: Floats,
    sums: Sums,
    distributions: Mapping[str, Kept],
    by_reason: Mapping[FinishReason, int],
    *,
    target: Account | None,
    draft: Account | None,
) -> Figures:
    """The sums of a session as the metrics take them. Only those are filled in that some figure draws on."""
    totals = dict(zip(AT, map(int, blocks.sum(axis=1)), strict=True))
    steps = StepTotals()
    steps.steps, steps.draft_forwards = totals["steps"], sums.draft_forwards
    steps.invalid_output = totals["invalid"]
    steps.time.busy_ns, steps.time.idle_ns = totals["busy"], totals["wall"] - totals["busy"]
    steps.time.phases_ns.update({name: totals[name] for name in PHASES})
    steps.time.cpu_ns, steps.time.thread_ns = totals["cpu"], totals["threads"]
    steps.time.forward_total_ns = totals["forward"]
    steps.time.step_ns = distributions[time.StepTime.tag]
    for name in _WORK:
        setattr(steps.work, name, totals[name])
    steps.work.verifications.update(sums.verifications)
    for name in ("lookup_tokens", "hit_tokens", "useful_hit_tokens"):
        setattr(steps.cache, name, totals[name])
    steps.load.busy_slot_ns, steps.load.slot_ns = totals["busy_slots"], totals["slots"]
    requests = RequestTotals()
    requests.by_reason.update(by_reason)
    requests.values.update({metric.tag: distributions[metric.tag] for metric in latency.REQUEST_METRICS})
    return Figures(steps=steps, requests=requests, events=EventTotals(), target=target, draft=draft)
