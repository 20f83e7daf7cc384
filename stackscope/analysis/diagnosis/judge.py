"""Asks every cause about a window, in the order in which they may take wall time: outside causes before what the work
itself needs, and what is done in vain before what is done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from stackscope import units
from stackscope.analysis.diagnosis import (
    causes_forward,
    causes_machine,
    causes_serving,
    causes_speculation,
)
from stackscope.analysis.diagnosis.base import LEAST_CLAIM, Kind
from stackscope.analysis.diagnosis.slices import Slices
from stackscope.records import Finding

if TYPE_CHECKING:
    from stackscope.analysis.diagnosis.base import Look
    from stackscope.analysis.diagnosis.evidence import Evidence

OUTSIDE: Final[tuple[Look, ...]] = (
    causes_machine.paging,
    causes_machine.throttle,
    causes_machine.cpu_starvation,
    causes_machine.bandwidth_contention,
)
INSIDE: Final[tuple[Look, ...]] = (
    causes_forward.batch_fragmentation,
    causes_forward.resident_prefixes,
    causes_speculation.low_acceptance,
    causes_speculation.draft_overhead,
    causes_serving.cache_thrash,
    causes_serving.prefill_interference,
    causes_serving.host_scheduling,
    causes_serving.sampling,
    causes_forward.lm_head,
    causes_forward.kv_attention,
    causes_forward.compute,
    causes_forward.weight_bandwidth,
    causes_serving.queueing,
)
CAUSES: Final = (*OUTSIDE, *INSIDE)
"""All of the taxonomy but `co-limited`, which is a relation of two."""


class Judged(msgspec.Struct, frozen=True):
    """What every cause says of a window."""

    findings: tuple[Finding, ...] = ()
    kinds: dict[str, Kind] = {}
    """Of each cause."""
    shares: tuple[tuple[str, float], ...] = ()
    """Of the wall time by cause, with what none took; they sum to 1. Largest first. Empty: no time passed."""
    unexplained: float = 0.0
    """One of those shares."""

    def of_kind(self, kind: Kind) -> list[Finding]:
        """Findings with a share, largest first."""
        chosen = [f for f in self.findings if self.kinds[f.cause] == kind and f.claim]
        return sorted(chosen, key=lambda finding: -(finding.share or 0.0))

    def share_of(self, name: str) -> float:
        """Of the wall time; 0 of what took none."""
        return dict(self.shares).get(name, 0.0)


def judge(evidence: Evidence) -> Judged:
    """Ask every cause."""
    slices = Slices(evidence)
    claims = [look(evidence, slices) for look in OUTSIDE]
    slices.allow_for_error(evidence)
    claims += [look(evidence, slices) for look in INSIDE]
    return Judged(
        tuple([_told(claim.finding, slices) for claim in claims]),
        {claim.finding.cause: claim.kind for claim in claims},
        slices.shares(),
        slices.unexplained,
    )


def _told(finding: Finding, slices: Slices) -> Finding:
    """A cause whose time others have got takes not nothing: how much is its own is not known, and who has it is."""
    if finding.claim or finding.share is None:
        return finding
    share, others = slices.elsewhere(finding.cause)
    if share < LEAST_CLAIM:
        return finding
    under = f"what it takes is counted under {' and '.join(others)} ({units.percent(share)} of the time)"
    return msgspec.structs.replace(finding, share=None, against=under)
