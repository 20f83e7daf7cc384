"""Whether drafts are too long: what shorter ones would have brought of the rounds that were seen, and what they take.

Rounds of a shorter draft begin elsewhere than those of a longer one that is cut, so that this is an approximation
(`speculating` has replays, as far as there are shadows). It is asked only where drafting loses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from stackscope import units
from stackscope.analysis.diagnosis.evidence import Shorter
from stackscope.records import Ubatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.analysis.diagnosis.evidence import Speculation
    from stackscope.analysis.diagnosis.tally import Tally
    from stackscope.analysis.timing.shapes import Shape
    from stackscope.analysis.timing.terms import Terms

LENGTHS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
MOST_ASKED: Final = 4
"""Steps that the time model is asked about for each length, at 80 µs each."""
LEAST_SURVIVAL: Final = 0.25
"""Share of the drafts that must be accepted up to a token for it to be worth drafting, by survival alone."""
MOST_LATE: Final = 0.10
"""Accepted share of all tokens after that, below which they are as good as all rejected."""
LEAST_LATE: Final = 0.50
"""Share of the drafted tokens that must come after that for drafts to be called too long."""
WINS: Final = 1.03
"""Times the speed without drafts from which on a length wins."""
_WHOLE: Final = 0.05
"""Lengths that differ from a whole number by less are told as one."""


class Times(Protocol):
    """What is asked of a time model."""

    def terms(self, shape: Shape) -> Terms: ...


def shorter(model: Times, kept: Sequence[tuple[Shape, float]], tally: Tally) -> Shorter | None:
    """The best of the lengths below what is drafted now. `kept`: steps without prompts, with their weights.

    `None`: there is none to be shorter.
    """
    lengths = [k for k in LENGTHS if k * tally.verifications < tally.drafted]
    n = min(MOST_ASKED, len(kept))
    some = [kept[(2 * i + 1) * len(kept) // (2 * n)] for i in range(n)]
    plain = sum([weight * _time(model, shape, 0) for shape, weight in some])
    if not lengths or plain <= 0.0:
        return None
    found = []
    for k in lengths:
        tokens = tokens_at(tally, k)
        found.append(Shorter(k, tokens, tokens * plain / sum([weight * _time(model, s, k) for s, weight in some])))
    return max(found, key=lambda one: one.gain)


def tokens_at(tally: Tally, length: int) -> float:
    """Tokens per forward of a sequence, had its drafts been cut to a length."""
    won = 0
    for (_, accepted, emitted), times in tally.rounds.items():
        kept = min(accepted, emitted, length)
        won += times * (kept + (emitted > kept))  # Of a draft that is cut, the next token is the target's own.
    return (won + tally.pairs - tally.verifications) / tally.pairs


def _time(model: Times, shape: Shape, length: int) -> float:
    """Nanoseconds of a step whose drafts are cut to a length; 0 is none."""
    spans = tuple([(cached, min(new, 1 + length)) for cached, new in shape.spans])
    rows = sum([new for _, new in spans])
    cut = msgspec.structs.replace(
        shape, spans=spans, outputs=rows, passes=(Ubatch(rows, rows),), draft=shape.draft[:length],
        drafted=rows - len(spans),
    )  # fmt: skip
    terms = model.terms(cut)
    return terms.total if length > 0 else terms.total - terms.draft


def survival(tally: Tally) -> tuple[float, ...]:
    """Share of the drafts of which at least so many tokens were accepted: 1, 2, … up to the last that ever was."""
    longest = max([min(accepted, emitted) for _, accepted, emitted in tally.rounds], default=0)
    counts = [0] * longest
    for (_, accepted, emitted), times in tally.rounds.items():
        for place in range(min(accepted, emitted)):
            counts[place] += times
    return tuple([count / tally.verifications for count in counts])


def fitting(speculation: Speculation) -> int | None:
    """The token of a draft after which hardly any is accepted, though most are drafted. `None`: it is not like that."""
    length = speculation.length or 0.0
    fits = sum(share >= LEAST_SURVIVAL for share in speculation.survival)
    late = length - fits
    if fits == 0 or late < LEAST_LATE * length:
        return None
    return fits if _after(speculation, fits, late) < MOST_LATE else None


def _after(speculation: Speculation, fits: int, late: float) -> float:
    """Accepted share of what is drafted after so many tokens."""
    return sum(speculation.survival[fits:]) / late


def told(speculation: Speculation) -> str | None:
    """That drafts are too long, and which length fits. `None`: nothing says so."""
    best, fits, length = speculation.shorter, fitting(speculation), speculation.length or 0.0
    places = 0 if abs(length - round(length)) < _WHOLE else 1
    long = f"drafts of {units.number(length, places=places)} tokens are too long"
    if best is not None and best.gain >= WINS:
        return f"{long}, those of {best.length} would win: {units.ratio(best.gain)} the speed without drafts"
    return None if fits is None else f"{long}, those of {fits} fit better"


def evidence(speculation: Speculation) -> tuple[str | None, ...]:
    """What speaks for it, line by line. `None` is no line."""
    first, fits, best = speculation.survival[:4], fitting(speculation), speculation.shorter
    course = late = cut = None
    if first:
        shares = ", ".join(units.percent(share) for share in first)
        places = "token 1 of a draft was" if len(first) == 1 else f"tokens 1 to {len(first)} of a draft were"
        course = f"{places} accepted in {shares} of the drafts"
    if fits is not None:
        after = _after(speculation, fits, (speculation.length or 0.0) - fits)
        late = f"of what is drafted after token {fits}, {units.percent(after)} is accepted"
    if best is not None and best.gain >= WINS:
        cut = (
            f"cut to {best.length}, drafts would bring about {units.number(best.tokens_per_forward)} tokens per forward"
        )
    return course, late, cut
