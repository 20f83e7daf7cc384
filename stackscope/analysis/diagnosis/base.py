"""What the causes have in common: a claim on wall time with its finding, and the sentences that all findings share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from stackscope import units
from stackscope.records import Cause, Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stackscope.analysis.diagnosis.evidence import Evidence
    from stackscope.analysis.diagnosis.slices import Slices

Kind: TypeAlias = Literal["wait", "loss", "need"]
"""`wait`: of the time of requests, which is spent while others run. `loss`: time that an undisturbed, well-set engine
would not spend. `need`: what the work itself takes."""

LEAST_CLAIM: Final = 0.005
"""Smaller shares are not worth a claim."""


class Claim(NamedTuple):
    """What one cause says of a window."""

    finding: Finding
    kind: Kind


if TYPE_CHECKING:
    Look: TypeAlias = Callable[[Evidence, Slices], Claim]


def rejected(cause: Cause, against: str, *, kind: Kind = "need", share: float | None = None) -> Claim:
    """A cause that does not apply, and why."""
    return Claim(Finding(cause=cause, share=share, against=against), kind)


def found(
    cause: Cause,
    *,
    kind: Kind,
    share: float,
    claim: str,
    evidence: Sequence[str | None],
    doubt: str | None,
    counterfactual: str,
    falsifier: str,
) -> Claim:
    """A cause that takes time. `doubt` is what keeps it from being confirmed; `None`: nothing does."""
    if share < LEAST_CLAIM:
        against = f"it takes {units.percent(share)} of the time"
        lines = tuple([line for line in evidence if line is not None])
        return Claim(Finding(cause=cause, share=share, evidence=lines, against=against), kind)
    finding = Finding(
        cause=cause,
        share=share,
        is_confirmed=doubt is None,
        claim=claim,
        evidence=tuple([line for line in evidence if line is not None]),
        against=doubt,
        counterfactual=counterfactual,
        falsifier=falsifier,
    )
    return Claim(finding, kind)


def without(evidence: Evidence, amount_ns: float) -> str:
    """The bound: what a step would take without some of the window's time."""
    if evidence.steps == 0:
        return ""
    left = units.duration(max(0.0, evidence.step_ns - amount_ns / evidence.steps))
    whole = units.duration(evidence.step_ns)
    if left == whole:  # As they are written.
        return f"without it a step would hardly take less than {whole}"
    return f"without it a step would take {left} instead of {whole}"


def per_step(evidence: Evidence, amount_ns: float) -> str:
    """`12.3 ms of a step of 31.0 ms`."""
    mean = amount_ns / evidence.steps if evidence.steps else 0.0
    return f"{units.duration(mean)} of a step of {units.duration(evidence.step_ns)}"


NO_MODEL: Final = "no time model is there yet to divide the forward"
