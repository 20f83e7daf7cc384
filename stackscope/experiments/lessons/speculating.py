"""Lessons 3 and 6: what drafts cost, and how batches take the compute that they live on."""

from __future__ import annotations

import math
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
    drafting,
    require_draft,
)
from stackscope.experiments.lessons.data import (
    Point,
    crossings,
    expected_at,
    is_less,
    is_more,
    measured_at,
    told,
    why_lost,
)
from stackscope.experiments.lessons.traffic import completions, decoding
from stackscope.toggles import EngineConfig

if TYPE_CHECKING:
    from stackscope.experiments.lessons.data import Crossing, Data

OFF = "plain"
ACCEPTANCES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
QUICK_ACCEPTANCES = (0.0, 0.4, 0.8)
LENGTH = 3


def accepting(rate: float) -> str:
    """What a cell with a set acceptance is called."""
    return f"{round(rate * 100)} % accepted"


def stage_acceptance(models: Models, is_quick: bool) -> Stage:
    """Drafts of three, whose tokens are accepted with a probability that is set."""
    draft = require_draft(models)
    off = EngineConfig(model=models.target, draft_model=draft, draft_length=LENGTH)
    traffic = completions(is_quick=is_quick)
    return Stage(
        cells=(
            LessonCell(key=OFF, config=off, workload=traffic),
            *(
                LessonCell(
                    key=accepting(rate),
                    config=changed(off, speculation="draft", synthetic_acceptance=rate),
                    workload=traffic,
                    over=OFF,
                )
                for rate in (QUICK_ACCEPTANCES if is_quick else ACCEPTANCES)
            ),
        ),
        told=(
            "Drafts of three tokens, corrupted: each is accepted with a probability that is set, whatever it is. The "
            "first that is not ends its draft, so that fewer of all drafted tokens are accepted. The text is then "
            "worthless, the work is real.",
            "Look for the acceptance at which drafting turns from a loss into a gain.",
        ),
        quick="Acceptance has three values, not six; requests are fewer.",
        figures=("tokens_per_s", "tokens_per_forward", "acceptance", "share.draft"),
    )


def expect_acceptance(data: Data) -> str:
    """Where the predicted speed-up goes through 1."""
    points = [expected_at(rate, one) for rate in _rates(data) if (one := data.estimate(accepting(rate))) is not None]
    even = _break_even(points)
    if even is not None:
        return f"Drafts of {LENGTH} break even at an acceptance {even}."
    if len(points) < len(_rates(data)):
        return ""  # Where they would break even may lie among those of which nothing was predicted.
    if len({point.side for point in points}) > 1 or points[0].side == 0:
        return f"Where drafts of {LENGTH} break even cannot be foretold."
    return f"Drafts of {LENGTH} {'gain' if points[0].side > 0 else 'lose'} at every acceptance."


def _break_even(points: list[Point]) -> str | None:
    """`of 54 % [51, 58]`, or `between 40 % and 80 %` where only that is known. `None`: the course stays on one side."""
    found = crossings(points)
    if not found:
        return None
    if len(found) == 1 and found[0].at is not None:
        return f"of {units.percent(found[0].at)}{_between(found[0].ends, 100.0)}"
    return f"between {units.percent(found[0].low)} and {units.percent(found[-1].high)}"


def conclude_acceptance(data: Data) -> Conclusion:
    """By where the speed-up goes through 1."""
    known = _rates(data)
    ratios = [(rate, data.ratio(accepting(rate))) for rate in known]
    points = [measured_at(rate, one) for rate, one in ratios if one is not None]
    if len(points) < len(ratios) or not points:
        return Conclusion(holds=None, sentences=("Nothing was measured whole.",))
    lowest, highest = accepting(known[0]), accepting(known[-1])
    even = _break_even(points)
    ends = f"From {told(data.ratio(lowest))} ({lowest}) it goes to {told(data.ratio(highest))} ({highest})."
    cost = _cost(data, known)
    price = (
        ""
        if cost is None
        else f" A round of up to {LENGTH + 1} rows and its drafts costs {units.number(cost)} plain steps"
    )
    if even is not None and is_less(data.ratio(lowest)) and is_more(data.ratio(highest)):
        at = f"Drafts of {LENGTH} break even at an acceptance {even}.{price}"
        return Conclusion(holds=True, sentences=(ends, at + (", and has to bring as many tokens." if price else "")))
    if all(is_less(data.ratio(accepting(rate))) for rate in known):
        most = max((data.figure(accepting(rate), "tokens_per_forward") or 0.0) for rate in known)
        why = f"Speculation loses here at every acceptance.{price}, and brings {units.number(most)} tokens at best."
        return Conclusion(holds=True, sentences=(ends, why if price else "Speculation loses here at every acceptance."))
    if all(is_more(data.ratio(accepting(rate))) for rate in known):
        why = f"Speculation gains here at every acceptance, even where it brings no token.{price}."
        return Conclusion(holds=False, sentences=(ends, why if price else why.rstrip(".") + "."))
    return Conclusion(holds=None, sentences=(ends, f"The intervals leave open where drafts of {LENGTH} break even."))


def _rates(data: Data) -> list[float]:
    return [rate for rate in ACCEPTANCES if accepting(rate) in data.cells]


def _cost(data: Data, rates: list[float]) -> float | None:
    """Of a round in plain steps, on average over the acceptances: it does not depend on them."""
    costs = [cost for rate in rates if (cost := data.cost(accepting(rate))) is not None]
    return math.exp(sum(map(math.log, costs)) / len(costs)) if costs else None


def picture_acceptance(data: Data) -> Picture:
    """Speed-up against acceptance."""
    bars = tuple(data.bar(accepting(rate), accepting(rate)) for rate in _rates(data))
    return Picture(title="tokens/s over plain decoding, by acceptance", bars=bars)


BATCHES = (1, 2, 4, 8, 16)
FEW_BATCHES = (1, 4, 16)
KINDS = ("F16", "Q8_0")
LOOK_REQUESTS = 12
"""Of a look: with the four that are measured, too few rounds of drafts are scored for anything to be predicted."""


def _plain(kind: str, batch: int) -> str:
    return f"{kind}, {batch} at a time"


def _drafted(kind: str, batch: int) -> str:
    return f"{_plain(kind, batch)}, drafts"


def stage_batches(models: Models, is_quick: bool) -> Stage:
    """Plain and with drafts, for more and more requests at a time, with heavy and with light weights."""
    source = drafting(models)
    batches = {"F16": (1, 16) if is_quick else BATCHES, "Q8_0": () if is_quick else FEW_BATCHES}
    cells: list[LessonCell] = []
    for kind in KINDS:
        model = models.target if kind == "F16" or not batches[kind] else models.weights(kind)
        off = EngineConfig(model=model, draft_model=models.draft, draft_length=LENGTH, slots=BATCHES[-1])
        on = changed(off, speculation=source)
        for batch in batches[kind]:
            traffic = decoding(batch, is_quick=is_quick)
            cells += [
                LessonCell(key=_plain(kind, batch), config=off, workload=traffic),
                LessonCell(key=_drafted(kind, batch), config=on, workload=traffic, over=_plain(kind, batch)),
            ]
    return Stage(
        cells=tuple(cells),
        told=(
            "The same short completions, plain and with drafts of three, at 1 to 16 requests at a time, with weights "
            "of 16 and of 8 bits.",
            "Look for the batch at which drafts stop helping, and whether lighter weights move it.",
        ),
        quick="Batches are 1 and 16 only, with one type of weights; requests are fewer.",
        figures=("tokens_per_s", "tokens_per_forward", "occupancy"),
        look_requests=LOOK_REQUESTS,
    )


def _batches(data: Data, kind: str) -> list[int]:
    return [batch for batch in BATCHES if _drafted(kind, batch) in data.cells]


def expect_batches(data: Data) -> str:
    """At which batches drafts are predicted to help."""
    phrases = []
    for kind in KINDS:
        known = [(math.log2(n), data.estimate(_drafted(kind, n))) for n in _batches(data, kind)]
        sentence = _course(kind, [expected_at(x, one) for x, one in known if one is not None], len(known))
        phrases += [] if sentence is None else [sentence]
    return " ".join(phrases)


def conclude_batches(data: Data) -> Conclusion:
    """By the speed-up at the largest batch relative to that at the smallest."""
    batches = _batches(data, "F16")
    few, many = _drafted("F16", batches[0]), _drafted("F16", batches[-1])
    fall = data.contrast({many: 1.0, _plain("F16", batches[-1]): -1.0, few: -1.0, _plain("F16", batches[0]): 1.0})
    if fall is None:
        return Conclusion(holds=None, sentences=("Nothing was measured whole.",))
    sentences = [
        f"Drafts bring {told(data.ratio(few))} at {batches[0]} at a time and {told(data.ratio(many))} at "
        f"{batches[-1]}: the gain changes by {told(fall)}.",
        *(sentence for kind in KINDS if (sentence := _measured_course(data, kind)) is not None),
    ]
    holds: bool | None = None
    if is_less(fall):
        holds = True
        sentences.append("The more rows a forward has already, the less of the compute that verifying needs is idle.")
    elif is_more(fall):
        holds = False
        sentences.append(
            f"Here the batch helps drafts instead: {_price(data, 'F16', batches)}, as rows come cheaper in a batch."
        )
    elif fall.half_width() < 0.1:
        holds = False
        sentences.append("The batch makes no difference to speak of here.")
    sentences += _moved(data)
    lost = why_lost(data, few)
    if lost is not None and is_less(data.ratio(few)):
        sentences.append(f"At {batches[0]} at a time there is no idle compute to begin with. {lost}")
    return Conclusion(holds=holds, sentences=tuple(sentences))


def _moved(data: Data) -> list[str]:
    """Whether drafts stop helping at another batch with lighter weights; nothing where but one type was measured."""
    found = []
    for kind in KINDS:
        turns = [one for one in crossings(_measured_points(data, kind)) if one.falls]
        if not _batches(data, kind):
            return []
        found.append(turns[0] if len(turns) == 1 else None)
    one, other = found
    if one is None or other is None:
        return ["Whether lighter weights move that batch cannot be told."]
    spans = [turn.ends or ((turn.low, turn.high) if turn.at is None else (turn.at, turn.at)) for turn in (one, other)]
    if spans[1][1] < spans[0][0]:
        return ["With the lighter weights they stop at a smaller batch: there is less reading to save."]
    if spans[0][1] < spans[1][0]:
        return ["With the lighter weights they go on helping to a larger batch."]
    return ["Whether lighter weights move that batch the intervals leave open."]


def _price(data: Data, kind: str, batches: list[int]) -> str:
    costs = [data.cost(_drafted(kind, batch)) for batch in (batches[0], batches[-1])]
    return (
        f"a round costs {units.number(costs[0])} plain steps at {batches[0]} at a time and {units.number(costs[1])} at "
        f"{batches[-1]}"
    )


def _measured_course(data: Data, kind: str) -> str | None:
    """At which batches drafts help, with one type of weights."""
    return _course(kind, _measured_points(data, kind), len(_batches(data, kind)))


def _measured_points(data: Data, kind: str) -> list[Point]:
    ratios = [(math.log2(batch), data.ratio(_drafted(kind, batch))) for batch in _batches(data, kind)]
    return [measured_at(x, one) for x, one in ratios if one is not None]


def _course(kind: str, points: list[Point], n_tried: int) -> str | None:
    """On which side of 1 gains lie along log₂ batch, as far as they are known, of `n_tried` batches."""
    if not points:
        return None
    sides = {word: [one for one in points if one.side == side] for word, side in (("help", 1), ("lose", -1))}
    for word, known in sides.items():
        if len(known) == n_tried:
            return f"With {kind} weights they {word} at every batch that was tried."
    course = " and ".join(f"{word} at {_listed(known)} at a time" for word, known in sides.items() if known)
    unclear = [one for one in points if one.side == 0]
    told_apart = [f"they {course}"] if course else []
    told_apart += [f"no difference can be told at {_listed(unclear)}"] if unclear else []
    turns = " and ".join(map(_turn, crossings(points)))
    told_apart += [f"they {turns}"] if turns else []
    told_apart += ["of the other batches nothing is known"] if len(points) < n_tried else []
    return f"With {kind} weights {'; '.join(told_apart)}."


def _listed(points: list[Point]) -> str:
    batches = [str(round(2**one.x)) for one in points]
    return batches[0] if len(batches) == 1 else f"{', '.join(batches[:-1])} and {batches[-1]}"


def _turn(found: Crossing) -> str:
    word = "stop helping" if found.falls else "begin to help"
    if found.at is None:
        return f"{word} somewhere between {round(2**found.low)} and {round(2**found.high)}"
    ends = None if found.ends is None else (2 ** found.ends[0], 2 ** found.ends[1])
    return f"{word} at about {units.number(2**found.at)}{_between(ends)}"


def _between(ends: tuple[float, float] | None, scale: float = 1.0) -> str:
    """An interval behind a figure; nothing where there is none."""
    return "" if ends is None else f" [{units.number(scale * ends[0])}, {units.number(scale * ends[1])}]"


def picture_batches(data: Data) -> Picture:
    """Speed-up by drafts against the batch, for each type of weights."""
    bars = tuple(
        data.bar(_drafted(kind, batch), f"{batch} at a time", group=f"{kind} weights")
        for kind in KINDS
        for batch in _batches(data, kind)
    )
    return Picture(title="tokens/s with drafts over plain, by batch", bars=bars)


LESSONS = (
    Lesson(
        number=3,
        title="Speculation is not only verification saved",
        claim="Drafts are not free: a second model runs for them, they take rows in the target's forward, and only "
        "what is accepted counts. Below some acceptance, plain decoding is faster.",
        elsewhere="A processor has little idle compute: rows cost nearly what they are, and break-even lies "
        "higher than on a GPU, or nowhere. What a small draft costs beside its target is the other "
        "half of it.",
        stage=stage_acceptance,
        expect=expect_acceptance,
        conclude=conclude_acceptance,
        picture=picture_acceptance,
    ),
    Lesson(
        number=6,
        title="Large batches starve speculation",
        claim="With one request at a time a forward waits for memory, and verifying drafts uses compute that idles. A "
        "large batch uses it for other requests, so that drafts stop paying; the batch at which they do depends on how "
        "heavy the weights are.",
        elsewhere="Kernels of a processor take rows in blocks. One request that verifies four rows may fill a "
        "block that one row leaves empty, while a batch has filled it already; or drafts lose at any "
        "batch, since nothing idles.",
        stage=stage_batches,
        expect=expect_batches,
        conclude=conclude_batches,
        picture=picture_batches,
    ),
)
