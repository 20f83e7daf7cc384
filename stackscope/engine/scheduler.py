"""What the next forward contains, who is admitted and who must give way. Pure policy: it decides, the engine executes.

The rules, in the order in which they yield:

1. Every decoding slot gets one row. Only when there are more of them than the token budget has rows do they take
   turns, and a waiting prefill takes its turn, of one row, among them: nobody starves.
2. While a prefill waits, a quarter of the budget is kept for it, at least one row: a draft is a gamble, a prompt is
   not.
3. Drafts share what is left evenly.
4. Prefill chunks fill the rest, oldest request first.

A row needs a KV cell, so cells that are free limit a forward as the budget does. When they are short the plan fits them
and says how many more it wanted; when a decoding slot would stand still for lack of one, it names the youngest slot to
be pre-empted. The oldest never is, so whatever arrives, the oldest request ends, and then the next.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PREFILL_SHARE: Final = 4
"""A prefill that waits is kept one row in this many, however much there is to draft."""
HEADROOM: Final = 16
"""Cells kept for each running request to grow into before another is admitted: fewer, and a request admitted now is
likely pre-empted within its first tokens, its prefill wasted."""
FORWARD_LIMIT_NS: Final = 250_000_000
"""What a forward may take where it cannot be cut short, so that cancelling and quitting stay under a second."""
FIRST_PREFILL_ROWS: Final = 32
"""Prefill rows of a forward before any was timed: few enough for a large model on a slow device."""
_TARGET_SHARE: Final = 0.7
"""Of the limit; the rest is for forwards that differ by ±10 %, and for rows that get dearer with every chunk."""
_REMEMBERED: Final = 8
"""Forwards of each kind that an estimate rests on: their median shrugs off three that a busy neighbour spoilt."""
_PREFILL_TURN: Final = -1
"""Stands for the prefill among the slot indices that take turns."""

_by_order = attrgetter("order")
_by_drafts = attrgetter("drafts")


class SlotView(msgspec.Struct, frozen=True, gc=False):
    """What the scheduler must know of one running request."""

    index: int
    """What the plan calls it: not negative, and the same from step to step as far as turns are to be fair."""
    order: int
    """Counts admissions: the greatest is the youngest."""
    remaining: int
    """Tokens still to be prefilled. Ignored once it decodes."""
    is_decoding: bool
    drafts: int = 0
    """Tokens that it would like drafted, at most; 0 while it prefills."""


class Plan(NamedTuple):
    """The rows of one forward, and what kept them from being more."""

    decode: list[tuple[int, int]]
    """(slot index, drafts at most) of the slots that decode, oldest first: 1 + drafts rows each."""
    prefill: list[tuple[int, int]]
    """(slot index, tokens) of the prefill chunks, oldest first."""
    need_cells: int = 0
    """KV cells that were missing to what the budget would have allowed. Evict, and plan again; where nothing is left to
    evict, the plan stands as it is, unless `preempt` names a slot."""
    preempt: int | None = None
    """The slot to pre-empt if nothing can be evicted: someone would stand still. `None`: everyone can go on, or there
    is only one slot."""
    cursor: int = _PREFILL_TURN
    """Who had the last turn; hand it to the next call."""

    @property
    def rows(self) -> int:
        return len(self.decode) + sum([n for _, n in self.decode]) + sum([n for _, n in self.prefill])

    @property
    def is_stuck(self) -> bool:
        """The only slot needs a cell and there is none: the context is full, and it must end."""
        return self.need_cells > 0 and self.preempt is None and not self.decode and not self.prefill

    def nothing(self) -> Plan:
        """A plan without rows that leaves the turns where they are."""
        return Plan([], [], cursor=self.cursor)


def plan_step(
    running: Iterable[SlotView],
    *,
    token_budget: int,
    free_cells: int | None = None,
    whole_prefill_rows: int | None = None,
    cursor: int = _PREFILL_TURN,
) -> Plan:
    """Decide the next forward.

    `token_budget`: rows at most. `free_cells`: KV cells that nobody holds; `None` where slots do not share them.
    `whole_prefill_rows`: switches chunking off: prompts are prefilled whole, beyond the token budget, as far as this
    many rows in all allow; only a prompt that does not fit with the decoding rows is still cut. `cursor`: the last
    plan's. Raises `ValueError` for a budget below 1.
    """
    if token_budget < 1:
        raise ValueError(f"a forward has at least one row, not {token_budget}")
    by_age = sorted(running, key=_by_order)
    decoding = [view for view in by_age if view.is_decoding]
    waiting = [view for view in by_age if not view.is_decoding and view.remaining > 0]
    whole = whole_prefill_rows is not None
    limit = token_budget if whole_prefill_rows is None else max(token_budget, whole_prefill_rows)
    served, turn = _take_turns(decoding, bool(waiting) and len(decoding) >= limit, token_budget, cursor)
    decode, prefill, rows = _fill(served, waiting, token_budget, limit, whole)
    if free_cells is None or rows <= free_cells:
        return Plan(decode, prefill, cursor=turn)
    room = max(free_cells, 0)
    if room < len(served):
        # Whoever is left out is pre-empted or served next time: the turn is not over.
        served, turn = served[:room], cursor
        is_halted = True
    else:
        is_halted = False
    decode, prefill, fitting = _fill(served, waiting, min(token_budget, room), min(limit, room), whole)
    is_halted = is_halted or fitting == 0
    preempt = by_age[-1].index if is_halted and len(by_age) > 1 else None
    return Plan(decode, prefill, rows - room, preempt, turn)


def _take_turns(decoding: list[SlotView], is_contested: bool, budget: int, cursor: int) -> tuple[list[SlotView], int]:
    """Who gets a row, oldest first, and who had the last turn; with `is_contested` prefill takes part."""
    if len(decoding) + is_contested <= budget:
        return decoding, cursor
    ring = sorted([view.index for view in decoding])
    if is_contested:
        ring.insert(0, _PREFILL_TURN)
    first = bisect_right(ring, cursor)
    turns = (ring[first:] + ring[:first])[:budget]
    chosen = set(turns)
    return [view for view in decoding if view.index in chosen], turns[-1]


def _fill(
    served: list[SlotView], waiting: list[SlotView], budget: int, limit: int, whole: bool
) -> tuple[list[tuple[int, int]], list[tuple[int, int]], int]:
    """Drafts within `budget` rows and prefill within `limit`: the two lists of a plan, and their rows."""
    n_served = len(served)
    drafts = sum([view.drafts for view in served])
    if drafts > 0:
        spare = budget
        if waiting:
            kept = min(max(1, budget // PREFILL_SHARE), sum([view.remaining for view in waiting]))
            spare = min(budget, limit - kept)
        spare = max(0, spare - n_served)
        if drafts <= spare:
            decode = [(view.index, view.drafts) for view in served]
        else:
            decode = _share(served, spare)
            drafts = spare
    else:
        decode = [(view.index, 0) for view in served]
    rows = n_served + drafts
    prefill: list[tuple[int, int]] = []
    for view in waiting:
        chunk = min(view.remaining, limit - rows)
        if chunk <= 0 or (whole and prefill and chunk < view.remaining):
            break
        prefill.append((view.index, chunk))
        rows += chunk
    return decode, prefill, rows


def _share(served: list[SlotView], spare: int) -> list[tuple[int, int]]:
    """Divide fewer drafts than are wanted: whoever wants little gets it, the others differ by one at most."""
    given: dict[int, int] = {}
    left = len(served)
    for view in sorted(served, key=_by_drafts):
        given[view.index] = share = min(view.drafts, spare // left)
        spare -= share
        left -= 1
    return [(view.index, given[view.index]) for view in served]


def admissions(
    needs: Sequence[int], *, free_slots: int, free_cells: int | None, n_running: int, owed_cells: int = 0
) -> int:
    """How many requests from the head of the queue to admit now. Never past one that does not fit: arrival is order.

    `needs`: tokens of the waiting requests, oldest first, with what they generated before; as many as there are slots
    will do. `free_cells`: cells that nobody holds, and those that could be evicted; `None` where slots do not share
    them. `owed_cells`: tokens that running slots have still to prefill. With nothing running the head is admitted
    whatever it needs, for nothing could make more room.
    """
    n_admitted = 0
    room = None if free_cells is None else free_cells - owed_cells - HEADROOM * n_running
    for need in needs[: max(0, free_slots)]:
        if room is not None:
            room -= need + HEADROOM
            if room < 0 and n_running + n_admitted > 0:
                break
        n_admitted += 1
    return n_admitted


class BudgetGovernor:
    """Bounds the token budget so that no forward takes longer than a limit, where a running one cannot be aborted.

    A forward is taken to cost what those without prefill cost, plus so much per prefill row: a median of the latest
    forwards. Rows are at most doubled beyond what was timed lately, for a line through few small forwards is easily
    wrong, and attention makes rows dearer as they grow in number.
    """

    def __init__(self, *, limit_ns: int = FORWARD_LIMIT_NS) -> None:
        self._limit_ns = limit_ns
        self._plain_ns: deque[int] = deque(maxlen=_REMEMBERED)
        """Durations of forwards without prefill."""
        self._timed: deque[tuple[float, int]] = deque(maxlen=_REMEMBERED)
        """(nanoseconds per prefill row, prefill rows) of those with it."""
        self._is_over = False
        """The last forward with prefill took longer than the limit."""

    def observe(self, duration_ns: int, *, prefill_rows: int) -> None:
        """A forward ended: how long it took, and how many of its rows were prefill."""
        if prefill_rows == 0:
            self._plain_ns.append(duration_ns)
            return
        # Against the fastest, not the median: few rows on a dear forward drown in its noise, and would seem free.
        excess_ns = max(0, duration_ns - min(self._plain_ns, default=0))
        self._timed.append((excess_ns / prefill_rows, prefill_rows))
        self._is_over = duration_ns > self._limit_ns

    def budget(self, token_budget: int, *, decode_rows: int) -> int:
        """The budget to plan with: `token_budget` or less, never so little that a prefill gets no row.

        `decode_rows`: rows of the decoding slots, drafts included; they are not bounded here.
        """
        prefill_rows = FIRST_PREFILL_ROWS
        if self._timed:
            prefill_rows = 2 * max(rows for _, rows in self._timed)
            plain_ns = sorted(self._plain_ns)[len(self._plain_ns) // 2] if self._plain_ns else 0
            spare_ns = _TARGET_SHARE * self._limit_ns - plain_ns
            row_ns = self._row_ns()
            if spare_ns <= 0:
                prefill_rows = 1
            elif spare_ns < prefill_rows * row_ns:
                prefill_rows = max(1, int(spare_ns / row_ns))
        return min(token_budget, decode_rows + prefill_rows)

    def _row_ns(self) -> float:
        """Median cost of a prefill row, each forward counting by its rows; the last one's if it was too long."""
        half = sum(rows for _, rows in self._timed) / 2
        median = 0.0
        for cost, rows in sorted(self._timed):
            median = cost
            half -= rows
            if half <= 0:
                break
        return max(median, self._timed[-1][0]) if self._is_over else median
