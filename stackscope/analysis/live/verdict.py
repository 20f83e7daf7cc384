"""What dominates, by the measured phase shares alone: a name only where they are clear, and no flicker.

Rules of the taxonomy: a share of at least 35 %, or a lead of ten points; and none is named while more than a tenth of
the time is unexplained. What would confirm a name (a probe, a counterfactual) is not looked at here, and the verdict
says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackscope import units
from stackscope.analysis.live.snapshot import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stackscope.analysis.live.snapshot import Window

LEAST_SHARE: Final = 0.35
LEAST_LEAD: Final = 0.10
MOST_UNEXPLAINED: Final = 0.10
HOLD_NS: Final = 2_000_000_000
"""How long another name must lead before it takes over."""
SHORT_HOLD_NS: Final = 1_000_000_000
"""The same where it has left the name that stands far behind."""
FAR: Final = 3.0
"""Times the share of the name that stands."""
LEAST_TOLD: Final = 0.005
"""Smaller shares are not worth rejecting."""

DECODE: Final = "Decode forward"
PREFILL: Final = "Prefill"
DRAFTING: Final = "Drafting"
HOST: Final = "Host"
IDLE: Final = "Idle"

GROUPS: Final[dict[str, tuple[str, ...]]] = {
    PREFILL: ("prefill",),
    DECODE: ("decode", "verify"),
    DRAFTING: ("draft",),
    HOST: ("sample", "schedule", "emit", "shadow"),
    IDLE: ("idle",),
}
"""Parts of the wall time that are named together. Decode and verify rows share forwards, which are timed as a whole."""

BASIS: Final = "by phase shares alone"
_HOST_WORK: Final = {"sample": "sampling", "schedule": "scheduling", "emit": "emitting text", "shadow": "shadows"}


class Verdicts:
    """Follows the shares of the last seconds; a new name must lead for two seconds before it is named."""

    def __init__(self) -> None:
        self._name: str | None = None
        self._since_ns: int | None = None
        self._names: tuple[str, ...] = ()
        """The last name and the one before it, stretches without a name left out."""
        self._candidate: str | None = None
        self._candidate_since_ns: int | None = None
        self._at_ns = 0
        """Up to when shares were taken."""

    def update(self, at_ns: int, parts: Mapping[str, float] | None) -> None:
        """Take the shares of `snapshot.PARTS` in the last seconds up to `at_ns`. `None`: not known."""
        self._at_ns = at_ns
        shares = {} if parts is None else grouped(parts)
        name = leader(shares) if shares else None
        if name == self._name:
            self._candidate_since_ns = None
            return
        if self._candidate_since_ns is None or name != self._candidate:
            self._candidate, self._candidate_since_ns = name, at_ns
        is_far = name is not None and self._name is not None and shares[name] >= FAR * shares[self._name]
        if at_ns - self._candidate_since_ns >= (SHORT_HOLD_NS if is_far else HOLD_NS):
            if name is not None and name not in self._names[-1:]:
                self._names = (*self._names[-1:], name)
            self._name, self._since_ns = name, self._candidate_since_ns
            self._candidate_since_ns = None

    def _previous(self) -> str | None:
        """What other name was there before."""
        return next((name for name in reversed(self._names) if name != self._name), None)

    def verdict(self, window: Window, *, is_over: bool = False) -> Verdict:
        """What is named now, with the figures of a window. `is_over`: no more steps will come."""
        if not window.parts:
            return Verdict(sentence="nothing is known of the last seconds")
        parts = {part.name: part.share for part in window.parts}
        shares = grouped(parts)
        name = self._name
        if name is None:
            why = self._why_none(window, parts["unexplained"], shares, is_over)
            return Verdict(basis="phases", sentence=why, since_ns=self._since_ns, previous=self._previous())
        others = sorted([other for other in GROUPS if other != name], key=lambda other: -shares[other])
        return Verdict(
            basis="phases",
            name=name,
            share=shares[name],
            sentence=f"{_number_behind(name, window, parts)}; {BASIS}",
            rejected=tuple([_share_of(other, shares) for other in others if shares[other] >= LEAST_TOLD]),
            since_ns=self._since_ns,
            previous=self._previous(),
        )

    def _why_none(self, window: Window, unexplained: float, shares: Mapping[str, float], is_over: bool) -> str:
        if unexplained > MOST_UNEXPLAINED:
            return f"{units.percent(unexplained)} of the time is unexplained, too much to name anything"
        first, second = sorted(shares, key=lambda name: -shares[name])[:2]
        if leader(shares) is None:
            return f"nothing dominates: {_share_of(first, shares)}, {_share_of(second, shares)}; {BASIS}"
        led_ns = 0 if self._candidate_since_ns is None else self._at_ns - self._candidate_since_ns
        if not is_over:
            return f"{first.lower()} leads; it is named if it still does in {_seconds(max(HOLD_NS - led_ns, 0))}"
        if window.wall_ns < HOLD_NS:
            seen = _seconds(window.wall_ns)
            return f"the run was too short to name anything: {seen} of steps, {_seconds(HOLD_NS)} are needed"
        return f"{first.lower()} led at the end, but not for the {_seconds(HOLD_NS)} that a name takes"


def _seconds(ns: int) -> str:
    return units.number(ns / 1e9, unit="s", places=0 if ns % 1_000_000_000 == 0 else 1)


def grouped(parts: Mapping[str, float]) -> dict[str, float]:
    """Share of each group of `GROUPS`, from the shares of the parts."""
    return {name: sum([parts[part] for part in members]) for name, members in GROUPS.items()}


def leader(shares: Mapping[str, float]) -> str | None:
    """The group that dominates. `None`: none does, or too much is unexplained (what the groups leave of the whole)."""
    if 1.0 - sum(shares.values()) > MOST_UNEXPLAINED:
        return None
    first, second = sorted(shares, key=lambda name: -shares[name])[:2]
    is_clear = shares[first] >= LEAST_SHARE or shares[first] - shares[second] >= LEAST_LEAD
    return first if is_clear else None


def _share_of(name: str, shares: Mapping[str, float]) -> str:
    return f"{name.lower()} {units.percent(shares[name])}"


def _number_behind(name: str, window: Window, parts: Mapping[str, float]) -> str:
    """One number that belongs to a name."""
    if name == DECODE:
        if window.bytes_per_step is None or window.forward_bytes_per_s is None:
            return f"steps take {units.duration(window.step_ns)}"
        size, speed = units.data_size(window.bytes_per_step), units.bandwidth(window.forward_bytes_per_s)
        return f"steps of {units.duration(window.step_ns)} move {size} at {speed} (modelled)"
    if name == PREFILL:
        return f"prompts are computed at {units.token_rate(window.prefill_tokens_per_s)}"
    if name == DRAFTING:
        return f"{units.percent(window.acceptance)} of what is drafted enters the output"
    if name == IDLE:
        return f"steps run for {units.percent(1.0 - parts['idle'])} of the time"
    largest = max(GROUPS[HOST], key=lambda part: parts[part])
    return f"most of it {_HOST_WORK[largest]}, {units.percent(parts[largest])}"
