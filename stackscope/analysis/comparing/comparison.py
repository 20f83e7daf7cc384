"""Sessions compared: every figure with its ratio and interval, what differs, where the time moved, and a verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from stackscope import units
from stackscope.analysis.comparing.concerns import Concern, concerns, did_same_work
from stackscope.analysis.comparing.differences import Difference, differences
from stackscope.analysis.comparing.figures import BY_NAME, FIGURES, TOKENS, Better, Figure, Level, Percentile, Rate
from stackscope.analysis.comparing.intervals import Blocks, How, ratio_of_rates
from stackscope.analysis.comparing.loads import described, load_of
from stackscope.analysis.comparing.moved import Moved, anatomy, moved
from stackscope.analysis.comparing.percentiles import Grouped, ratio_of_percentiles
from stackscope.analysis.metrics import counts, time
from stackscope.analysis.statistics import Interval
from stackscope.toggles import EngineConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.analysis.comparing.digest import Digest
    from stackscope.analysis.comparing.loads import Load

LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
MOST_SESSIONS: Final = len(LETTERS)

Standing: TypeAlias = Literal["better", "worse", "more", "less", "not distinguishable", "unknown"]
"""How a figure of the other session stands to the first's, with 95 % confidence. `more` and `less`: neither is good or
bad by itself. `unknown`: there is no interval."""

Verdict: TypeAlias = Literal["faster", "slower", "not distinguishable", "not comparable", "unknown"]


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of two sessions."""

    name: str
    header: str
    unit: str
    better: Better
    a: float | None
    """`None`: unknown or undefined, like `b`."""
    b: float | None
    n: tuple[int, int] | None = None
    """Of a percentile: the values that each is of."""
    is_maximum: tuple[bool, bool] = (False, False)
    """Of a percentile: so few values that it is no more than the largest."""
    ratio: Interval | None = None
    """b ÷ a with the ends of its 95 % interval. `None`: there is no interval, and `why` says why."""
    how: How | None = None
    """Where the interval comes from."""
    why: str | None = None

    @property
    def standing(self) -> Standing:
        if self.ratio is None:
            return "unknown"
        if self.ratio.holds(1.0):
            return "not distinguishable"
        is_more = self.ratio.low > 1.0
        if self.better == "neither":
            return "more" if is_more else "less"
        return "better" if is_more == (self.better == "more") else "worse"


class Versus(msgspec.Struct, frozen=True, kw_only=True):
    """One session against the first."""

    letters: tuple[str, str]
    """What the first and this one are called."""
    verdict: Verdict
    sentence: str
    """The verdict in words, with its number."""
    headline: str
    """Name of the figure that the verdict is of."""
    is_same_work: bool
    """Both served the same requests, so that portions of them could be paired."""
    concerns: tuple[Concern, ...]
    differences: tuple[Difference, ...]
    figures: tuple[Compared, ...]
    moved: Moved | None
    """`None`: not known."""

    @property
    def is_comparable(self) -> bool:
        """Nothing forbids a verdict."""
        return not any(concern.is_barrier for concern in self.concerns)

    @property
    def untold(self) -> tuple[Concern, ...]:
        """Concerns that the sentence does not tell of already: what stands beside it."""
        return tuple([one for one in self.concerns if not (one.is_barrier and self.sentence.endswith(one.text))])

    def __getitem__(self, name: str) -> Compared:
        """A figure of those that are shown. Raises `KeyError`."""
        for figure in self.figures:
            if figure.name == name:
                return figure
        raise KeyError(name)


class SessionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What was compared, in short."""

    letter: str
    name: str
    started: str
    model: str | None
    workload: str | None
    config: EngineConfig | None
    steps: int
    requests: int
    """Those that completed."""
    wall_ns: int | None
    warmup_ns: int
    warmup_steps: int
    warmup_requests: int
    truncated: str | None
    anatomy_ns: dict[str, float] | None
    """The mean step by part, in the order of the live anatomy, the idle time before it included. `None`: not known."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two sessions or more, each held against the first."""

    sessions: tuple[SessionFacts, ...]
    versus: tuple[Versus, ...]
    """One for every session but the first, in their order."""


def compare_digests(digests: Sequence[Digest], *, anyway: bool = False) -> Comparison:
    """Hold every session against the first. `anyway`: give a verdict even on what is not comparable.

    Raises `ValueError` for fewer than two, or for more than there are letters.
    """
    if not 2 <= len(digests) <= MOST_SESSIONS:
        raise ValueError(f"2 to {MOST_SESSIONS} sessions can be compared")
    sessions = tuple(_facts(letter, digest) for letter, digest in zip(LETTERS, digests, strict=False))
    first = digests[0]
    return Comparison(
        sessions=sessions,
        versus=tuple(
            _versus(first, digest, ("A", facts.letter), anyway=anyway)
            for digest, facts in zip(digests[1:], sessions[1:], strict=True)
        ),
    )


def compared(
    figure: Figure, a: Digest, b: Digest, letters: tuple[str, str] = ("A", "B"), *, is_same_work: bool
) -> Compared:
    """One figure of two sessions, with the interval of its ratio where there is one."""
    values = figure.of(a), figure.of(b)
    made = Compared(
        name=figure.name, header=figure.header, unit=figure.unit, better=figure.better, a=values[0], b=values[1]
    )
    if isinstance(figure, Percentile):
        held = a.distributions[figure.metric.tag], b.distributions[figure.metric.tag]
        made = msgspec.structs.replace(
            made,
            n=(len(held[0].values), len(held[1].values)),
            is_maximum=(not figure.is_supported(a), not figure.is_supported(b)),
        )
    if values[0] is None or values[1] is None:
        return msgspec.structs.replace(made, why="not known")
    if isinstance(figure, Level) and figure.parts(a) != figure.parts(b):
        return msgspec.structs.replace(made, why="not of the same parts of the machine")
    if isinstance(figure, Percentile):
        found = ratio_of_percentiles(grouped(figure, a), grouped(figure, b), figure.percentile, letters)
    elif isinstance(figure, Rate):
        found = ratio_of_rates(_blocks(figure, a), _blocks(figure, b), is_same_work=is_same_work, letters=letters)
    else:
        found = "measured once"
    if isinstance(found, str):
        return msgspec.structs.replace(made, why=found)
    return msgspec.structs.replace(made, ratio=found.interval, how=found.how)


def grouped(figure: Percentile, digest: Digest) -> Grouped:
    """The values that a percentile is of, in groups of requests that ran together, or blocks of steps."""
    in_flight = 1 if figure.metric is time.StepTime else digest.in_flight
    return Grouped(digest.distributions[figure.metric.tag], in_flight)


def _blocks(figure: Rate, digest: Digest) -> Blocks:
    amounts, bases = figure.blocks(digest)
    return Blocks(amounts, bases, digest.column("emitted"))


def _versus(a: Digest, b: Digest, letters: tuple[str, str], *, anyway: bool) -> Versus:
    found = differences(a, b)
    bearing = concerns(a, b, found, letters)
    same = did_same_work(a, b, found)
    figures = tuple(
        one
        for figure in FIGURES
        for one in [compared(figure, a, b, letters, is_same_work=same)]
        if not (isinstance(figure, Level) and one.a is None and one.b is None)
    )
    headline = _headline(figures, a, b)
    barriers = [concern for concern in bearing if concern.is_barrier]
    verdict, sentence = _verdict(headline, figures, letters)
    if barriers and not (anyway and verdict != "unknown"):
        verdict = "not comparable"
        sentence = f"{letters[0]} and {letters[1]} are not comparable. {barriers[0].text}"
    return Versus(
        letters=letters, verdict=verdict, sentence=sentence, headline=headline.name, is_same_work=same,
        concerns=bearing, differences=found, figures=figures, moved=moved(a, b, found, letters),
    )  # fmt: skip


def _headline(figures: Sequence[Compared], a: Digest, b: Digest) -> Compared:
    """What a verdict is of: tokens per second where the engine sets the pace, and how long requests take where arrivals
    do, because then the throughput is theirs."""
    by_name = {one.name: one for one in figures}
    if any(load.rate is not None for digest in (a, b) for load in _loads(digest)):
        for name in ("e2e_p50", "tpot_p50"):
            if by_name[name].ratio is not None:
                return by_name[name]
    return by_name[TOKENS.name]


def _loads(digest: Digest) -> list[Load]:
    return [span.load for span in digest.loads] or [load_of(digest.header)]


def _verdict(headline: Compared, figures: Sequence[Compared], letters: tuple[str, str]) -> tuple[Verdict, str]:
    a, b = letters
    worse, better = (_sure(figures, standing) for standing in ("worse", "better"))
    if headline.ratio is None:
        sentence = f"{headline.header} has no interval ({headline.why})."
        if not worse and not better:
            return "unknown", f"Nothing can be said of {a} and {b}: {sentence}"
        return "unknown", " ".join([f"Of {a} and {b}, {sentence}", *_all_the_same(worse, better)])
    change = spelled(headline.ratio)
    if headline.standing == "not distinguishable":
        if not worse and not better:
            return "not distinguishable", f"{b} is not distinguishable from {a}: {headline.header} {change}."
        sentence = f"{b} is not distinguishable from {a} in {headline.header}: {change}."
        return "not distinguishable", " ".join([sentence, *_all_the_same(worse, better)])
    is_faster = headline.standing == "better"
    sentence = f"{b} is {'faster' if is_faster else 'slower'} than {a}: {headline.header} {change}."
    contrary = _all_the_same(worse if is_faster else "", "" if is_faster else better)
    return ("faster" if is_faster else "slower"), " ".join([sentence, *contrary])


def _sure(figures: Sequence[Compared], standing: Standing) -> str:
    """The times that stand so beyond doubt, in words; empty where none does."""
    told = [one for one in figures if one.standing == standing and one.unit == "ns"]
    return ", ".join(f"{one.header} {spelled(one.ratio)}" for one in told if one.ratio is not None)


def _all_the_same(worse: str, better: str) -> list[str]:
    """What a table beside the verdict would seem to contradict it with, in sentences."""
    return [f"{word} all the same: {told}." for word, told in (("Worse", worse), ("Better", better)) if told]


def spelled(ratio: Interval) -> str:
    """A ratio as a change with its interval, e.g. `+44 % [37, 52]`; as a multiple from 3 on."""
    if ratio.value >= 3 or ratio.value <= 1 / 3:
        return units.ratio(ratio.value, ratio.low, ratio.high)
    return units.change(ratio.value - 1, ratio.low - 1, ratio.high - 1)


def _facts(letter: str, digest: Digest) -> SessionFacts:
    header = digest.header
    text = header.workload.get("text")
    return SessionFacts(
        letter=letter,
        name=digest.name,
        started=header.started,
        model=None if header.model is None else header.model.name,
        workload=described(header, _loads(digest)) if isinstance(text, str) else None,
        config=header.config,
        steps=digest[counts.Steps] or 0,
        requests=len(digest.requests.ids),
        wall_ns=digest[counts.WallTime],
        warmup_ns=digest.warmup_ns,
        warmup_steps=digest.warmup_steps,
        warmup_requests=digest.warmup_requests,
        truncated=digest.truncated,
        anatomy_ns=anatomy(digest),
    )


def figure_named(name: str) -> Figure:
    """A figure that an expression may name. Raises `KeyError`."""
    return BY_NAME[name]
