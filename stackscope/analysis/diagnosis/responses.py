"""What causal probes found: how much later the end of a step came for each nanosecond that a part of it was delayed.

A delayed step is held against its neighbours, which did the same work: (its interval − theirs) ÷ the delay, where an
interval is the time from one step's begin to the next one's. 1: all waits for that part. 0: something else takes as
long anyway. Above 1: it holds up more, as when threads that wait for the next forward fall asleep. The middle one of
many such ratios is what is told, because a single hiccup of the machine is many times a delay; its interval is the one
that order statistics give, which asks nothing of how they are spread.
"""

from __future__ import annotations

import itertools
from collections import deque
from math import comb
from statistics import median
from typing import TYPE_CHECKING, Final

import msgspec

from stackscope import units
from stackscope.analysis.statistics import Interval
from stackscope.records import DelayedPhase

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stackscope.records import StepRecord

LEAST_PROBES: Final = 6
"""Of a part, for an interval."""
MOST_KEPT: Final = 60
"""Ratios of each part: what was found longer ago may be of other traffic."""
LEAST_NEIGHBOURS: Final = 2
WAITED_FOR: Final = 0.5
"""A part whose delays surely lengthen the step by less than this share of them is not what the step waits for."""
CONFIDENCE: Final = 0.95
_BEFORE: Final = 2
"""Steps before a delayed one that may be its neighbours."""
_AFTER: Final = 2
"""Steps after it that must be known: one neighbour, and where that ends."""


class Response(msgspec.Struct, frozen=True):
    """How a step answers to delays of one part of it."""

    phase: DelayedPhase
    n: int
    """Delayed steps that had neighbours."""
    lag: Interval | None
    """Nanoseconds later for each of the delay. `None`: there were too few for an interval."""


def answer(found: Mapping[DelayedPhase, Response], phase: DelayedPhase) -> str | None:
    """What delays of a phase did, in words. `None`: there were too few."""
    response = found.get(phase)
    if response is None or response.lag is None:
        return None
    value, low, high = (units.number(lag) for lag in (response.lag.value, response.lag.low, response.lag.high))
    probes = units.counted(response.n, "causal probe")
    return f"{probes}: a step ends {value} [{low}, {high}] ms later for each ms of delay"


def contradiction(found: Mapping[DelayedPhase, Response], phase: DelayedPhase) -> str | None:
    """Why a phase is not what the step waits for, by its delays. `None`: it is, or that is not known."""
    response = found.get(phase)
    if response is None or response.lag is None or response.lag.high >= WAITED_FOR:
        return None
    return f"a delay there lengthens the step by {units.percent(max(0.0, response.lag.value))} of it only"


class Responses:
    """Takes the steps of a session in order, and keeps what was found of those that were delayed."""

    def __init__(self) -> None:
        self._tail: list[StepRecord] = []
        self._lags: dict[DelayedPhase, deque[float]] = {}

    def add(self, steps: Sequence[StepRecord]) -> None:
        """Take the next steps."""
        known = [*self._tail, *steps]
        for at in range(max(_BEFORE, len(self._tail) - _AFTER), len(known) - _AFTER):
            delay = known[at].delay
            if delay is not None and (lag := _lag(known[at - _BEFORE : at + _AFTER + 1], delay.ns)) is not None:
                self._lags.setdefault(delay.phase, deque(maxlen=MOST_KEPT)).append(lag)
        self._tail = known[-(_BEFORE + _AFTER) :]

    def found(self) -> dict[DelayedPhase, Response]:
        """What is known by now of each part that was delayed."""
        return {phase: Response(phase, len(lags), middle(list(lags))) for phase, lags in self._lags.items()}


def _lag(around: Sequence[StepRecord], delay_ns: int) -> float | None:
    """Of the delayed step in the middle. `None`: it did not do what its neighbours did."""
    delayed = around[_BEFORE]
    if not _is_comparable(delayed, delayed) or any(b.n != a.n + 1 for a, b in itertools.pairwise(around)):
        return None
    intervals = {step.n: after.start_ns - step.start_ns for step, after in itertools.pairwise(around)}
    neighbours = [s for s in around[:-1] if s is not delayed and s.delay is None and _is_comparable(s, delayed)]
    if len(neighbours) < LEAST_NEIGHBOURS:
        return None
    usual = median([intervals[step.n] for step in neighbours])
    return (intervals[delayed.n] - usual) / delay_ns


def _is_comparable(step: StepRecord, other: StepRecord) -> bool:
    """Decoding alone, as many rows for as many sequences, under the same settings."""
    return (
        bool(step.work)
        and not step.aborted
        and not step.settling
        and step.epoch == other.epoch
        and len(step.work) == len(other.work)
        and step.rows == other.rows
        and all(work.phase != "prefill" for work in step.work)
    )


def middle(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval | None:
    """The median and its interval by order statistics. `None`: too few for this confidence; 95 % takes six.

    The interval from the k-th smallest to the k-th largest holds the median unless fewer than k values lie on one side
    of it, which happens with 2 × P(Binomial(n, ½) < k) (David and Nagaraja, *Order Statistics*, 2003, section 7.1).
    """
    n, k, tail = len(values), 0, 0.0
    while k < n and 2 * (tail + comb(n, k) / 2**n) <= 1 - confidence:
        tail += comb(n, k) / 2**n
        k += 1
    if k == 0:
        return None
    in_order = sorted(values)
    return Interval(median(in_order), in_order[k - 1], in_order[n - k])
