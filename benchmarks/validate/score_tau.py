"""Tokens per round at a draft length that was not in force: by replay, by cutting, and by the geometric law."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from stackscope.analysis.roofline import tokens_per_forward
from stackscope.records import DraftShadow, StepRecord

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stackscope.records import AnyRecord, DraftKind


class Rounds(NamedTuple):
    """What drafting rounds brought."""

    rounds: int = 0
    tokens: int = 0
    drafted: int = 0
    accepted: int = 0
    first_tried: int = 0
    """Rounds with a draft."""
    first_kept: int = 0
    """Of those, the ones whose first token was accepted."""

    @property
    def tau(self) -> float | None:
        return self.tokens / self.rounds if self.rounds else None

    @property
    def acceptance(self) -> float | None:
        return self.accepted / self.drafted if self.drafted else None


def happened(records: Sequence[AnyRecord]) -> Rounds:
    """Rounds that really were; those in which an output ended are among them, as they are in a replay."""
    return Rounds(*map(sum, zip(*by_request(records).values(), strict=True)))


def by_request(records: Sequence[AnyRecord]) -> dict[int, Rounds]:
    """The same of each request, by its number."""
    found: dict[int, Rounds] = {}
    for record in records:
        if not isinstance(record, StepRecord) or record.aborted or record.invalid_output:
            continue
        for work in record.work:
            if work.phase != "prefill":
                tried, kept = int(work.drafted > 0), int(work.accepted > 0)
                was = found.get(work.request, Rounds())
                more = (1, work.emitted, work.drafted, work.accepted, tried, kept)
                found[work.request] = Rounds(*map(sum, zip(was, more, strict=True)))
    return found


def replayed(records: Sequence[AnyRecord], source: DraftKind, length: int) -> Rounds:
    """What the engine's shadows say a length would have brought."""
    rounds = tokens = drafted = accepted = 0
    for record in records:
        if isinstance(record, DraftShadow) and record.source == source:
            for counts in record.lengths:
                if counts.length == length:
                    rounds, tokens = rounds + counts.rounds, tokens + counts.tokens
                    drafted, accepted = drafted + counts.drafted, accepted + counts.accepted
    return Rounds(rounds, tokens, drafted, accepted)


def cut(records: Sequence[AnyRecord], length: int) -> float | None:
    """Tokens per round by static survival: rounds of longer drafts, cut to a length. `None`: there are none."""
    rounds = tokens = 0
    for record in records:
        if isinstance(record, StepRecord) and not record.aborted and not record.invalid_output:
            for work in record.work:
                if work.phase != "prefill":
                    rounds, tokens = rounds + 1, tokens + 1 + min(work.accepted, length)
    return tokens / rounds if rounds else None


def geometric(seen: Rounds, length: int) -> float | None:
    """Tokens per round by the geometric law, from how often there was a draft and its first token was accepted."""
    if not seen.first_tried or not seen.rounds:
        return None
    coverage, alpha = seen.first_tried / seen.rounds, seen.first_kept / seen.first_tried
    return 1.0 + coverage * (tokens_per_forward((alpha,), length) - 1.0)


def error(expected: float | None, measured: float | None) -> float | None:
    """Relative error. `None`: one of them is not known."""
    return None if expected is None or not measured else abs(expected / measured - 1.0)


def errors(tried: Mapping[int, Sequence[AnyRecord]], expected: Mapping[int, float | None]) -> list[float]:
    """Relative errors of what was expected of draft lengths, beside what they brought; unknown ones left out."""
    found = [error(value, happened(tried[length]).tau) for length, value in expected.items()]
    return [one for one in found if one is not None]
