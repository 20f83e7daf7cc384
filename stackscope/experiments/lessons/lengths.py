"""Lesson 8: how long drafts should be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stackscope import units
from stackscope.experiments.lessons.contracts import (
    Conclusion,
    Lesson,
    LessonCell,
    Models,
    Picture,
    Stage,
    changed,
    require_draft,
)
from stackscope.experiments.lessons.data import is_less, told, why_lost
from stackscope.experiments.lessons.speculating import OFF, accepting
from stackscope.experiments.lessons.traffic import completions
from stackscope.toggles import EngineConfig

if TYPE_CHECKING:
    from stackscope.experiments.lessons.data import Data

LENGTHS = (1, 3, 4, 7, 8)
QUICK_LENGTHS = (1, 3, 7)
RATES = (0.4, 0.9)
LONGEST = 8


def _length(length: int, rate: float) -> str:
    return f"drafts of {length}, {accepting(rate)}"


def stage_lengths(models: Models, is_quick: bool) -> Stage:
    """Drafts of several lengths, which agree rarely or mostly."""
    draft = require_draft(models)
    off = EngineConfig(model=models.target, draft_model=draft, draft_length_max=LONGEST)
    traffic = completions(is_quick=is_quick)
    cells = [LessonCell(key=OFF, config=off, workload=traffic)]
    for rate in RATES:
        for length in QUICK_LENGTHS if is_quick else LENGTHS:
            on = changed(off, speculation="draft", synthetic_acceptance=rate, draft_length=length)
            cells.append(LessonCell(key=_length(length, rate), config=on, workload=traffic, over=OFF))
    return Stage(
        cells=tuple(cells),
        told=(
            "Drafts of 1 to 8 tokens, each accepted with a probability of 40 % or 90 %, whatever it is. The first that "
            "is not ends its draft: the longer it is, the fewer of its tokens are accepted.",
            "Look at which length is best for each, and at the step from 4 to 5 rows and from 8 to 9: kernels that "
            "take rows in blocks of four begin a new one there.",
        ),
        quick="Lengths are 1, 3 and 7 only, so that nothing is said of row blocks; requests are fewer.",
        figures=("tokens_per_s", "tokens_per_forward", "acceptance", "share.draft"),
    )


def _lengths(data: Data, rate: float) -> list[int]:
    return [length for length in LENGTHS if _length(length, rate) in data.cells]


def best_length(data: Data, rate: float) -> int | None:
    """The length with most tokens per second. `None`: nothing was measured."""
    ratios = {length: one.log for length in _lengths(data, rate) if (one := data.ratio(_length(length, rate)))}
    return max(ratios, key=lambda length: ratios[length]) if ratios else None


def expect_lengths(data: Data) -> str:
    """The best length at each acceptance, as predicted."""
    phrases = []
    for rate in RATES:
        known = {n: one for n in _lengths(data, rate) if (one := data.predicted(_length(n, rate))) is not None}
        if known:
            best = max(known, key=lambda n: known[n])
            phrases.append(f"{best} at {units.percent(rate)} accepted ({units.ratio(known[best])})")
    return f"The best lengths are {' and '.join(phrases)}." if phrases else ""


def conclude_lengths(data: Data) -> Conclusion:
    """By the best length at each acceptance."""
    low, high = (best_length(data, rate) for rate in RATES)
    if low is None or high is None:
        return Conclusion(holds=None, sentences=("Nothing was measured whole.",))
    sentences = [
        f"At 40 % accepted the best of these lengths is {low} ({told(data.ratio(_length(low, 0.4)))} of plain "
        f"decoding), at 90 % it is {high} ({told(data.ratio(_length(high, 0.9)))})."
    ]
    longest = _lengths(data, RATES[0])[-1]
    wasted = data.ratio(_length(longest, RATES[0]), _length(low, RATES[0]))
    rivals = _rivals(data, RATES[0]), _rivals(data, RATES[1])
    holds: bool | None
    if low <= high and not (max(rivals[0]) < min(rivals[1]) or len(rivals[0]) == len(rivals[1]) == 1):
        holds = None
        sentences.append(f"{_unclear(data, low, high, rivals)}, so that it stays open whether the best length changes.")
    elif low < high:
        holds = True
        if any(len(lengths) > 1 for lengths in rivals):
            sentences.append(f"{_unclear(data, low, high, rivals)}; but no length can be the best of both.")
        sentences.append(
            f"Drafts of {longest} that rarely agree run at {told(wasted)} of those of {low}: rows that are thrown away "
            "still cost."
        )
    elif low == high:
        holds = False
        sentences.append(f"One length is best for both here: beyond {low}, {_dearest(data, low)}.")
    else:
        holds = None
        sentences.append("The longer drafts win where they agree less, which only chance explains: repeat it.")
    if is_less(data.ratio(_length(low, RATES[0]))):
        why = why_lost(data, _length(low, RATES[0]), f"Even the best length at 40 %, {low},")
        sentences.append(why if why is not None else "At 40 % accepted every length loses.")
    blocks = row_blocks(data)
    return Conclusion(holds=holds, sentences=tuple([*sentences, blocks] if blocks else sentences))


def _rivals(data: Data, rate: float) -> list[int]:
    """The lengths that may be the best: those that the best is not beyond doubt faster than, itself among them."""
    best = best_length(data, rate)
    assert best is not None
    return [
        n for n in _lengths(data, rate) if n == best or not is_less(data.ratio(_length(n, rate), _length(best, rate)))
    ]


def _unclear(data: Data, low: int, high: int, rivals: tuple[list[int], list[int]]) -> str:
    """Which lengths cannot be told from the best of each acceptance."""
    phrases = []
    for rate, best, lengths in zip(RATES, (low, high), rivals, strict=True):
        near = [
            f"{n} ({told(data.ratio(_length(n, rate), _length(best, rate)))} of {best})" for n in lengths if n != best
        ]
        if near:
            phrases.append(f"at {units.percent(rate)} drafts of {' and '.join(near)}")
    return f"The intervals do not tell from the best {', '.join(phrases)}"


def _dearest(data: Data, length: int) -> str:
    longer = [one for one in _lengths(data, RATES[1]) if one > length]
    if not longer:
        return "nothing was tried"
    costs = [data.cost(_length(one, RATES[1])) for one in (length, longer[0])]
    return f"a round goes from {units.number(costs[0])} to {units.number(costs[1])} plain steps at {longer[0]}"


def row_blocks(data: Data) -> str | None:
    """What one row more costs, in plain steps, where it begins a block of four and where it does not. `None`: unknown.

    Each comes with one more draft forward, which both have.
    """
    costs = {length: data.cost(_length(length, RATES[1])) for length in _lengths(data, RATES[1])}
    if any(costs.get(length) is None for length in LENGTHS):
        return None
    known = {length: cost for length, cost in costs.items() if cost is not None}
    crossing_rows = (known[4] - known[3] + known[8] - known[7]) / 2
    within = (known[7] - known[4]) / 3
    says = (
        "so that lengths of 3 and 7 are the ones to take"
        if crossing_rows > 1.3 * max(within, 0.0)
        else ("so that row blocks do not show in these times")
    )
    return (
        f"A row that begins a block of four adds {units.number(crossing_rows)} plain steps to a round, another one "
        f"{units.number(within)}, {says}."
    )


def picture_lengths(data: Data) -> Picture:
    """Speed-up against length, at each acceptance."""
    bars = tuple(
        data.bar(_length(length, rate), f"drafts of {length}", group=accepting(rate))
        for rate in RATES
        for length in _lengths(data, rate)
    )
    return Picture(title="tokens/s over plain decoding, by draft length", bars=bars)


LESSONS = (
    Lesson(
        number=8,
        title="A draft that rarely agrees wants a shorter draft length",
        claim="Behind the first wrong token all others are thrown away. The less a draft agrees, the sooner that "
        "happens, and the shorter it should be; which length is best also depends on how many rows the kernels take at "
        "once.",
        elsewhere="Where each row costs the same, the acceptance alone decides; where rows come in blocks, the "
        "lengths that fill a block are best at nearly every acceptance.",
        stage=stage_lengths,
        expect=expect_lengths,
        conclude=conclude_lengths,
        picture=picture_lengths,
    ),
)
