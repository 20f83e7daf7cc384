"""The wall time of a window as slices that causes take their shares from, so that nothing is counted twice.

The forward is measured as a whole; the time model says how it divides. What was measured beyond the prediction for a
calm machine is `excess`: a cause that slows the machine may take it, and what none takes stays unexplained.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stackscope.analysis.diagnosis.evidence import Evidence

FORWARD: Final = ("weights", "head", "compute", "attention", "resident", "fixed")
HOST: Final = ("admit", "build", "commit", "emit", "rest")
MEMORY: Final = ("weights", "head", "attention", "resident")
"""Terms of the forward that are spent reading memory."""
BUSY: Final = (*FORWARD, *HOST, "sample", "draft", "shadow")
TOLERANCE: Final = 0.03
"""A forward that takes this much longer than predicted is as predicted; the terms are scaled to fill it."""
MOST_WRONG: Final = 0.10
"""More than this the model's own error does not account for, however little the model is sure of."""

LEAST_PART: Final = 0.1
"""Of what others got of a cause's time: who has less of it is not worth naming."""


class Slices:
    """What is left of each slice, in nanoseconds."""

    def __init__(self, evidence: Evidence) -> None:
        times = evidence.times
        self.wall: Final = times.wall
        self.left: Final[dict[str, float]] = {
            "idle": times.idle, "admit": times.admit, "build": times.build, "commit": times.commit, "emit": times.emit,
            "shadow": times.shadow, "sample": times.sample, "draft": times.draft, "unexplained": times.other,
            "excess": 0.0, "forward": 0.0, "rest": 0.0,
        }  # fmt: skip
        self._taken: Final[dict[str, float]] = {}
        self._takers: Final[dict[str, dict[str, float]]] = {}
        """Of each slice, what each cause has got of it."""
        self._asked: Final[dict[str, tuple[float, frozenset[str]]]] = {}
        """What each cause would have taken if none had come before it, at most, and out of which slices."""
        self.factor = 1.0
        """Of the terms as they stand here to the predicted ones."""
        self._divide(evidence)

    def _divide(self, evidence: Evidence) -> None:
        """Divide the measured forward by the model's terms. Without a model it stays whole."""
        terms, times = evidence.terms, evidence.times
        measured = times.forward
        if terms is None or terms.forward <= 0.0:
            self.left.update(dict.fromkeys(FORWARD, 0.0), forward=measured)
            return
        # The rest of the loop, as far as it always takes that long: making records and handing them over.
        known = times.admit + times.build + times.commit + times.emit
        self.left["rest"] = min(times.other, max(0.0, terms.host - known))
        self.left["unexplained"] = times.other - self.left["rest"]
        predicted = terms.forward
        if measured > predicted * (1.0 + TOLERANCE):
            # A machine whose undisturbed speed nobody has seen has no excess: that is all that is known of it.
            self.left["excess"] = measured - predicted
        else:
            self.factor = measured / predicted
        self.left.update({name: self.factor * getattr(terms, name) for name in FORWARD})

    def allow_for_error(self, evidence: Evidence) -> None:
        """Give the terms what is left of the excess, as far as the model may have been too low by as much: that is
        its own error, for which there is nothing to find. To be called when what slows the machine has taken its
        part."""
        terms, error = evidence.terms, evidence.model_error
        there = sum([self.left[name] for name in FORWARD])
        if terms is None or error is None or there <= 0.0:
            return
        amount = min(self.left["excess"], min(error, MOST_WRONG) * terms.forward)
        self.left["excess"] -= amount
        self.factor *= 1.0 + amount / there
        for name in FORWARD:
            self.left[name] *= 1.0 + amount / there

    def take(self, cause: str, amount: float, names: Iterable[str]) -> float:
        """Give a cause up to `amount` out of slices, one after the other; how much it got."""
        chosen, got = tuple(names), 0.0
        self.ask(cause, amount, chosen)
        for name in chosen:
            got += self._give(cause, min(max(0.0, amount - got), self.left[name]), name)
        return got

    def take_rest(self, cause: str, names: Iterable[str]) -> float:
        """Give a cause all that is left of slices which are its own; how much it got."""
        chosen = tuple(names)
        self.ask(cause, inf, chosen)
        return sum([self._give(cause, self.left[name], name) for name in chosen])

    def take_evenly(self, cause: str, amount: float, names: Iterable[str]) -> float:
        """Give a cause up to `amount` out of slices in proportion to what they have left; how much it got."""
        chosen = tuple(names)
        self.ask(cause, amount, chosen)
        there = sum([self.left[name] for name in chosen])
        share = min(1.0, max(0.0, amount) / there) if there > 0.0 else 0.0
        return sum([self._give(cause, share * self.left[name], name) for name in chosen])

    def take_like(self, cause: str, amount: float, pattern: dict[str, float], names: Iterable[str]) -> float:
        """Give a cause up to `amount`, divided over slices as the pattern is, as far as they have it; what they lack
        comes from `names`, one after the other. How much it got."""
        chosen, whole, got = tuple(names), sum(pattern.values()), 0.0
        self.ask(cause, amount, {*pattern, *chosen})
        for name, part in pattern.items():
            if whole > 0.0:
                got += self._give(cause, min(amount * part / whole, self.left[name]), name)
        for name in chosen:
            got += self._give(cause, min(max(0.0, amount - got), self.left[name]), name)
        return got

    def ask(self, cause: str, amount: float, names: Iterable[str]) -> None:
        """Say that a cause takes this much out of slices, be it counted under others."""
        before, chosen = self._asked.get(cause, (0.0, frozenset[str]()))
        self._asked[cause] = before + max(0.0, amount), chosen | frozenset(names)

    def _give(self, cause: str, part: float, name: str) -> float:
        self.left[name] -= part
        takers = self._takers.setdefault(name, {})
        takers[cause] = takers.get(cause, 0.0) + part
        self._taken[cause] = self._taken.get(cause, 0.0) + part
        return part

    def elsewhere(self, cause: str) -> tuple[float, tuple[str, ...]]:
        """What a cause would have taken and others got before it: its share of the wall time, and those that have most
        of it, the first of them first. 0: nothing."""
        asked, names = self._asked.get(cause, (0.0, frozenset[str]()))
        others: dict[str, float] = {}
        for name in names:
            for other, part in self._takers.get(name, {}).items():
                if other != cause:
                    others[other] = others.get(other, 0.0) + part
        there = sum(others.values())
        lost = min(there, asked - self.taken(cause))
        if lost <= 0.0:
            return 0.0, ()
        in_order = sorted(others, key=lambda other: -others[other])
        return self.share(lost), tuple([other for other in in_order if others[other] >= LEAST_PART * there])

    def taken(self, cause: str) -> float:
        """What a cause has got so far."""
        return self._taken.get(cause, 0.0)

    def share(self, amount: float) -> float:
        """Of the wall time; 0 of nothing."""
        return min(1.0, amount / self.wall) if self.wall > 0.0 else 0.0

    @property
    def unexplained(self) -> float:
        """Share of the wall time that nothing explains."""
        return self.share(self.left["unexplained"] + self.left["excess"])

    def shares(self) -> tuple[tuple[str, float], ...]:
        """Every cause that took something, and what is left; they sum to 1 of any wall time. Largest first."""
        if self.wall <= 0.0:
            return ()
        known = {name: ns / self.wall for name, ns in self._taken.items() if ns > 0.0}
        rest = {LEFT[name]: 0.0 for name in self.left}
        for name, ns in self.left.items():
            rest[LEFT[name]] += max(0.0, ns) / self.wall
        for name, share in rest.items():
            if share > 0.0 or name == "unexplained":
                known[name] = known.get(name, 0.0) + share
        return tuple(sorted(known.items(), key=lambda item: -item[1]))


LEFT: Final = {
    "idle": "idle", "admit": "host scheduling", "build": "host scheduling", "commit": "host scheduling",
    "emit": "host scheduling", "rest": "host scheduling", "shadow": "shadows", "sample": "sampling",
    "draft": "draft overhead",
    "unexplained": "unexplained", "excess": "unexplained", "forward": "forward, undivided",
    "weights": "weight bandwidth", "head": "LM head", "compute": "compute", "attention": "KV and attention",
    "resident": "KV and attention", "fixed": "fixed per forward",
}  # fmt: skip
"""What is left of a slice counts as this."""
