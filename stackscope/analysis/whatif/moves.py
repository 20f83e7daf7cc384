"""What some changes do to the work, term by term, in numbers and in words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from stackscope import units
from stackscope.analysis.whatif.evaluate import contributions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stackscope.analysis.whatif.evaluate import Evaluation

NAMES: Final[Mapping[str, str]] = {
    "weights": "weight reads",
    "head": "the output head",
    "compute": "computing",
    "attention": "KV reads",
    "resident": "scanning others' cells",
    "fixed": "fixed overhead",
    "draft": "drafting",
    "sample": "sampling",
    "host": "the host",
    "prefill": "prefill",
}
SMALL: Final = 0.02
"""Share of a step that a term must change by to be told."""
NOTICED: Final = 0.01
"""A gain of the whole work (of ln) from which on it is not said that hardly anything changes."""
_NOTHING: Final = 1e-3
"""A loss smaller than this (of ln) is none."""


class Move(NamedTuple):
    """The work before and after some of the changes."""

    before: Evaluation
    after: Evaluation

    @property
    def gain(self) -> float:
        """Of the same work, as ln(time before ÷ after)."""
        return log_ratio(float(self.before.total_ns[0]), float(self.after.total_ns[0]))


class Told(NamedTuple):
    """Words, and the gain that they are of: positive for less time or more tokens."""

    gain: float
    text: str


def gains_first(told: list[Told]) -> str:
    """The largest gain first, and what is no gain after a `but`."""
    told = sorted(told, key=lambda one: -one.gain)
    gains = [one.text for one in told if one.gain > -_NOTHING]
    costs = [one.text for one in reversed(told) if one.gain <= -_NOTHING]
    better, worse = (listed(some) if some else "" for some in (gains, costs))
    return f"{better}{_comma(better)} but {worse}" if better and worse else better or worse


def listed(several: list[str]) -> str:
    """`a, b and c`."""
    *first, last = several
    before = ", ".join(first)
    return f"{before}{_comma(before)} and {last}" if first else last


def _comma(before: str) -> str:
    """Due after a clause in a clause, lest what follows be taken for a part of it."""
    return "," if ", of which" in before else ""


def log_ratio(one: float, other: float) -> float:
    """ln(one ÷ other); 0 where that is not known."""
    return math.log(one / other) if one > 0.0 and other > 0.0 else 0.0


def falls(move: Move) -> dict[str, float]:
    """Nanoseconds of the whole work by which each term, and `prefill`, becomes less."""
    was, becomes = contributions(move.before), contributions(move.after)
    return {name: was[name] - becomes[name] for name in was}


def largest_moves(move: Move, terms: tuple[str, ...], small: float = SMALL) -> tuple[str | None, str | None]:
    """Of some terms and `prefill`, the one that makes most of the gain or loss, and the one that makes most against it.

    `None`: none does, or hardly: by less than a `small` share of a step.
    """
    all_falls = falls(move)
    told = {name: all_falls[name] for name in (*terms, "prefill") if _is_told(move, name, small)}
    way = 1.0 if sum(told.values()) > 0.0 else -1.0
    for_it = {name: fall * way for name, fall in told.items() if fall * way > 0.0}
    against = {name: -fall * way for name, fall in told.items() if fall * way <= 0.0}
    return max(for_it, key=for_it.__getitem__, default=None), max(against, key=against.__getitem__, default=None)


def _is_told(move: Move, term: str, small: float) -> bool:
    """Whether a term changes by enough: of a step; and what prompts add, of the whole work."""
    before, after = move
    if term == "prefill":
        change = abs(float(after.prefill_ns[0] - before.prefill_ns[0]))
        return before.whole_tokens > 0.0 and change > small * float(before.total_ns[0])
    change = abs(float(getattr(after.terms, term)) - float(getattr(before.terms, term)))
    return change > small * max(before.terms.total, 1e-9)


def becomes(move: Move, term: str, s: str) -> str:
    """`cuts KV reads from 9.00 ms to 4.78 ms a step`; `s` ends the verb."""
    before, after = (_duration(one, term) for one in move)
    low, high = ends(move, term)
    per = "per token" if term == "prefill" else "a step"
    if low == high:
        return f"leave{s} {NAMES[term]} at {low} {per}"
    return f"{'cut' if after < before else 'raise'}{s} {NAMES[term]} from {low} to {high} {per}"


def ends(move: Move, term: str) -> tuple[str, str]:
    """A term before and after: a step, or of prefill per token."""
    # Prompts are shared out over the tokens that all configurations have to produce.
    return units.milliseconds(_duration(move.before, term)), units.milliseconds(_duration(move.after, term))


def _duration(one: Evaluation, term: str) -> float:
    if term == "prefill":
        return float(one.prefill_ns[0]) / one.whole_tokens
    return float(getattr(one.terms, term))


def prefill_changes(move: Move) -> str:
    """`falls from 2.00 ms to 1.00 ms per token`."""
    tokens = move.before.whole_tokens
    before, after = float(move.before.prefill_ns[0]), float(move.after.prefill_ns[0])
    if tokens <= 0.0:
        return changes(before, after)
    return f"{changes(before / tokens, after / tokens)} per token"


def prompt_steps(move: Move) -> tuple[float, float]:
    """Mean duration of a step with a prompt, before and after, for the same prompts in as many steps."""
    before, after = (float(one.first_ns[0]) / max(one.first_steps, 1e-9) for one in move)
    return before, after


def changes(before: float, after: float) -> str:
    """How a duration changes, as far as that is seen of it as it is written."""
    was, is_now = units.milliseconds(before), units.milliseconds(after)
    if was == is_now or abs(after - before) <= 0.005 * max(before, after):
        return f"stays at {was}"
    return f"{'falls' if after < before else 'rises'} from {was} to {is_now}"
