"""What the explainer has to say, as lines: the cause and its evidence, what each change would bring, and the score."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Final

from stackscope import units
from stackscope.analysis.diagnosis.naming import LEAST_SHARE as LEAST_NAMED
from stackscope.analysis.diagnosis.responses import LEAST_PROBES
from stackscope.tui.charts import bar
from stackscope.tui.compose import quantity, wrapped
from stackscope.tui.lines import Line, Span, cells, fitted, printable, width
from stackscope.tui.wording import changed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from stackscope.analysis.diagnosis.naming import Naming
    from stackscope.analysis.explainer import Explanation
    from stackscope.analysis.scorecard import Outcome, Score
    from stackscope.analysis.whatif.ranking import Ranked, Ranking
    from stackscope.records import Estimate, Finding
    from stackscope.tui.look import Look

MOST_CHANGES: Final = 14
"""Rows of the table of changes."""
MOST_OUTCOMES: Final = 6
LEAST_SHARE: Final = 0.005
"""Causes that take less are told together."""
LEAST_REST: Final = 0.0005
UNEXPLAINED: Final = "unexplained"
DELAYED: Final = {
    "sample": "sampling", "build": "building the batch", "decode": "the forward", "draft": "obtaining drafts",
}  # fmt: skip
"""Parts of a step that causal probes delay."""
_SOUGHT: Final = {"draft length": "the best length", "batch": "that batch", "context": "that length"}
"""What the interval of a break-even is of, where its sentence has other numbers too."""
_STANDS: Final = {
    "agrees": "as predicted",
    "vague": "within both intervals, too uncertain to tell",
    "differs": "outside the interval",
}
_WHOLE: Final = partial(units.number, places=0)
_SPELLED: Final[Mapping[str, Callable[[float], str]]] = {
    "acceptance": units.percent,
    "draft length": _WHOLE,
    "batch": _WHOLE,
    "context": _WHOLE,
}
_NUMBER: Final = re.compile(r"\d+ tokens?")
_CAUSE: Final = 30
_BAR: Final = 24
_CHANGE: Final = 34
_MARK: Final = 2
"""Cells before the name of a change."""
_TOKENS: Final = 24
_OTHER: Final = 9
_LIMIT: Final = 22
_WIDE: Final = _CHANGE + _TOKENS + 3 * _OTHER + _LIMIT
"""Cells from which on all columns of the table of changes are there."""


def cause(explanation: Explanation, room: int, look: Look) -> list[Line]:
    """The finding behind the name: evidence, bound, what would prove it wrong."""
    finding = explanation.naming.finding
    lines: list[Line] = []
    if finding is not None:
        for text in finding.evidence:
            lines += _point(text, room, look)
        if finding.counterfactual:
            lines += wrapped(_sentence(finding.counterfactual), room, "")
        if finding.falsifier:
            lines += _labelled("It is wrong if", finding.falsifier, room)
    for note in explanation.naming.notes:
        lines += wrapped(_sentence(note), room, "warning")
    return lines


def shares(explanation: Explanation, room: int, look: Look) -> list[Line]:
    """Wall time by cause; it sums to the whole, what is not explained included."""
    naming = explanation.naming
    if not naming.shares:
        return []
    lines: list[Line] = [_head("What takes the time", "by cause; all of it, with what is not explained")]
    length = max(min(_BAR, room - _CAUSE - 10), 0)
    told = [(name, share) for name, share in naming.shares if share >= LEAST_SHARE or name == UNEXPLAINED]
    rest = sum(share for _, share in naming.shares) - sum(share for _, share in told)
    if rest > LEAST_REST:
        told.append(("the rest", rest))
    told.sort(key=lambda one: one[0] == UNEXPLAINED and one[1] < LEAST_SHARE)
    for name, share in told:
        style = "unknown" if name == UNEXPLAINED else "chart"
        lines.append(
            (Span(f"{printable(name):<{_CAUSE}}"), Span(f"{units.percent(share):>8}  ", "value"),
             *bar(share, length, look, style))
        )  # fmt: skip
    return lines


def rejected(explanation: Explanation, room: int, look: Look) -> list[Line]:
    """The other causes, each with why it is not named."""
    findings = explanation.naming.rejected
    if not findings:
        return []
    lines: list[Line] = [_head("What it is not, and why")]
    for finding in findings:
        lines += _point(f"{finding.cause}: {_why_not(finding, explanation.naming)}", room, look)
    return lines


def _why_not(finding: Finding, naming: Naming) -> str:
    if finding in naming.ahead:
        return f"{finding.claim or finding.cause}: it leads by now, and the name goes if that lasts"
    if finding.against is not None:
        return finding.against
    told = finding.claim or "takes time"
    if naming.name is None or naming.share is None:
        return told
    if finding.cause == "queueing":
        return f"{told}: less than the {units.percent(LEAST_NAMED)} that a wait is named for"
    if naming.name == "queueing":
        return f"{told}: that is of wall time, in which requests wait for others as well"
    share = f"what is named ({units.percent(naming.share)})"
    if finding.share is not None and finding.share > naming.share:
        return f"{told}: more than {share}, but what is lost goes before what the work needs"
    return f"{told}: less than {share}"


def changes(explanation: Explanation, room: int, look: Look) -> list[Line]:
    """What each change would bring, the best first; then pairs, contradictions, and what cannot be predicted."""
    ranking = explanation.ranking
    note = "tokens/s with its 90 % interval"
    if ranking is None:
        head = _head("What each change would bring", note)
        return [head, *wrapped(_sentence(explanation.why_no_ranking), room)]
    legend = f"{note}; {look.pointer} gains beyond doubt"
    is_long = len(legend) + 30 > room or not ranking.recommended
    head = _head("What each change would bring", note if is_long else legend)
    lines: list[Line] = [head]
    if ranking.doubt is not None:
        lines += wrapped(f"Nothing is recommended, for {ranking.doubt}.", room)
    told = sorted([*ranking.recommended, *_others(ranking)][:MOST_CHANGES], key=_worth, reverse=True)
    if told:
        column = _change_room(told, room)
        lines.append(_columns(room, column))
        for one in told:
            lines += _row(one, room, column, look)
    else:
        lines += wrapped("Nothing can be predicted yet.", room)
    for sentence in ranking.contradictions:
        lines += _point(sentence, room, look)
    lines += _unpredicted(ranking, room, look)
    return lines


def _others(ranking: Ranking) -> list[Ranked]:
    """The best of what is not recommended, one for each family, losses included: they are worth knowing too."""
    chosen = {id(one) for one in ranking.recommended}
    families: set[str] = set()
    found = []
    for one in ranking.singles:
        if one.gain is None or id(one) in chosen:
            continue
        if one.candidate.family not in families:
            families.add(one.candidate.family)
            found.append(one)
    return found


def _worth(one: Ranked) -> float:
    """What it is expected to gain."""
    return 0.0 if one.gain is None else one.gain.value


def _change_room(told: Sequence[Ranked], room: int) -> int:
    """Cells of the column of names: the longest of them, as far as the others leave that."""
    left = room - _TOKENS - _n_others(room) * _OTHER - (_LIMIT if room >= _WIDE else 0)
    return max(_CHANGE, min(left, max(cells(printable(one.label)) for one in told) + _MARK + 2))


def _columns(room: int, column: int) -> Line:
    text = f"{'':{column}}{'tokens/s':<{_TOKENS}}"
    text += "".join(f"{name:>{_OTHER}}" for name in ("TTFT", "gap", "memory")[: _n_others(room)])
    return (Span(f"{text}  then limits" if room >= _WIDE else text, "label"),)


def _n_others(room: int) -> int:
    """Columns after the tokens that there is room for: what a change costs is not left out before the rest."""
    return max(0, min((room - _CHANGE - _TOKENS) // _OTHER, 3))


def _row(one: Ranked, room: int, column: int, look: Look) -> list[Line]:
    """A change with its figures, and beneath it what its name takes beyond its column, and the reason."""
    prediction = one.prediction
    style = "" if not one.is_recommended else "good"
    mark = look.pointer if one.is_recommended else " "
    first, *more = wrapped(printable(one.label), column - _MARK - 1, style)
    name = fitted((Span(f"{mark} ", style), *first), column)
    line: Line = (*name, *fitted(_change(prediction.tokens), _TOKENS))
    others = (_plain(prediction.ttft), _plain(prediction.step_gap), _memory(prediction.memory_bytes))
    for text in others[: _n_others(room)]:
        line = (*line, *_flush(text))
    if room >= _WIDE:
        line = (*line, Span(f"  {prediction.bottleneck or units.UNKNOWN}", "label"))
    told = wrapped(prediction.reason, room - 4)
    return [line, *((Span(" " * _MARK), *text) for text in more), *((Span("    "), *text) for text in told)]


def _change(ratio: Estimate | None) -> Line:
    if ratio is None:
        return quantity(units.UNKNOWN)
    return quantity(units.change(ratio.value - 1, ratio.low - 1, ratio.high - 1))


def _plain(ratio: Estimate | None) -> str:
    return units.change(None if ratio is None else ratio.value - 1)


def _memory(change: int | None) -> str:
    if change is None:
        return units.UNKNOWN
    return "0" if change == 0 else f"{'+' if change > 0 else '-'}{units.data_size(abs(change))}"


def _flush(text: str) -> Line:
    return (Span(" " * max(_OTHER - len(text), 0)), *quantity(text))


def _unpredicted(ranking: Ranking, room: int, look: Look) -> list[Line]:
    """What cannot be predicted, by the reason."""
    reasons: dict[str, list[Ranked]] = {}
    for one in ranking.singles:
        if one.gain is None:
            reasons.setdefault(_NUMBER.sub("", one.prediction.reason), []).append(one)
    lines: list[Line] = []
    for alike in reasons.values():
        more = f", and {units.counted(len(alike) - 1, 'change')} more" if len(alike) > 1 else ""
        lines += _point(f"Not predicted: {alike[0].label}{more}. {alike[0].prediction.reason}", room, look)
    return lines


def break_evens(explanation: Explanation, room: int, look: Look) -> list[Line]:
    """Where something begins to lose."""
    found = () if explanation.ranking is None else explanation.ranking.break_evens
    if not found:
        return []
    lines: list[Line] = [_head("Where it turns")]
    for one in found:
        value = one.value
        told = one.sentence
        if value is not None and value.high > value.low:
            # Said of what, lest it be taken for the interval of another number in the sentence.
            low, high = (_SPELLED.get(one.kind, units.number)(end) for end in (value.low, value.high))
            told += f" Nine times in ten {_SOUGHT.get(one.kind, 'it')} lies within [{low}, {high}]."
        lines += _point(told, room, look)
    return lines


def drafts(explanation: Explanation, room: int) -> list[Line]:
    """How drafts of each source and length do, whether they run or are only shadowed."""
    if not explanation.drafts:
        return []
    lines: list[Line] = [_head("Drafts", "made, or shadowed while they are off; each length by itself")]
    lines.append((Span(f"{'source':<10}{'length':>7}{'tokens/forward':>24}{'accepted':>12}{'coverage':>10}", "label"),))
    for one in explanation.drafts:
        tokens = one.tokens_per_round
        told = f"{units.number(tokens.value)} [{units.number(tokens.low)}, {units.number(tokens.high)}]"
        accepted = units.percent(None if one.acceptance is None else one.acceptance.value)
        line: Line = (
            Span(f"{'n-gram' if one.source == 'ngram' else 'model':<10}{one.length:>7}"), Span(f"{told:>24}", "value"),
            Span(f"{accepted:>12}{units.percent(one.coverage.value):>10}"),
        )  # fmt: skip
        if room - width(line) >= 22:
            line = (*line, Span(f"  of {units.count(one.drafted)} drafted", "label"))
        lines.append(line)
    return lines


def score(found: Score | None, room: int, look: Look) -> list[Line]:
    """How well this session's predictions did."""
    if found is None or not found.outcomes:
        return []
    lines: list[Line] = [_head("Score of the predictions"), *wrapped(found.sentence, room, "")]
    for outcome in list(found.outcomes)[-MOST_OUTCOMES:][::-1]:
        lines += _outcome(outcome, room, look)
    return lines


def _outcome(outcome: Outcome, room: int, look: Look) -> list[Line]:
    told = [f"{units.clock(outcome.at_ns)}  {changed(outcome.changes, look)}:"]
    predicted, measured = outcome.predicted, outcome.measured
    told.append(f"predicted {units.change(None if predicted is None else predicted.value - 1)},")
    told.append(f"measured {units.change(None if measured is None else measured.value - 1)}")
    if outcome.why is not None:
        told.append(f"({outcome.why})")
    elif outcome.agreement is not None:
        told.append(f"({_STANDS[outcome.agreement]})")
    return _point(" ".join(told), room, look)


def time_model(explanation: Explanation, room: int, *, was_busy: bool) -> list[Line]:
    """What the predictions rest on. `was_busy`: the machine was, when it was calibrated."""
    if explanation.residual is None:
        return []
    calibrated = f"calibrated on {'a busy' if was_busy else 'this'} machine"
    source = calibrated if explanation.is_calibrated else "learned from this session's steps alone"
    text = f"{source}; single steps stray from it by {units.percent(explanation.residual)}"
    lines: list[Line] = [_head("Time model", text if room >= len(text) + 12 else source)]
    parts = [(name, ns) for name, ns in explanation.terms if ns > 0]
    if parts:
        told = ", ".join(f"{name} {units.duration(ns)}" for name, ns in parts)
        is_calm = not was_busy and "starvation" not in explanation.unknown
        lines += wrapped(f"A mean step {'on a calm machine' if is_calm else 'by this model'}: {told}.", room, "")
    if was_busy or not explanation.is_calibrated:
        lines += wrapped("stackscope calibrate measures what this machine can do: 20 s, when it is quiet.", room)
    return lines


def probes(explanation: Explanation, room: int, look: Look) -> list[Line]:
    """What causal probes found of each part of a step, or how many more it takes."""
    if not explanation.responses:
        return []
    lines: list[Line] = [_head("Causal probes", "parts of a step, delayed by a known time")]
    for response in explanation.responses:
        name, lag = DELAYED[response.phase], response.lag
        if lag is None:
            lines += _point(f"{name}: {response.n} of the {LEAST_PROBES} probes that it takes", room, look)
            continue
        value, low, high = (units.number(number) for number in (lag.value, lag.low, lag.high))
        told = f"{name}: a step ends {value} ms [{low}, {high}] later for each ms of delay"
        lines += _point(f"{told}, by {units.counted(response.n, 'probe')}", room, look)
    return [*lines, *wrapped("Near 1 the step waits for that part; near 0 something else takes as long anyway.", room)]


def unknown(explanation: Explanation) -> Iterator[str]:
    """What the time model cannot tell, in sentences."""
    for name, why in explanation.unknown.items():
        yield f"Of the time model, {name}: {why}."


def _labelled(label: str, text: str, room: int) -> list[Line]:
    first, *rest = wrapped(f"{printable(text).rstrip('.')}.", room - len(label) - 2, "") or ((),)
    return [(Span(f"{label}: ", "label"), *first), *((Span(" " * (len(label) + 2)), *line) for line in rest)]


def _point(text: str, room: int, look: Look) -> list[Line]:
    first, *rest = wrapped(printable(text), room - 2, "") or ((),)
    return [(Span(f"{look.dot} ", "label"), *first), *((Span("  "), *line) for line in rest)]


def _head(text: str, note: str = "") -> Line:
    return (Span(text, "headline"), Span(f"  {note}", "label"))


def _sentence(text: str) -> str:
    text = printable(text).rstrip(".")
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def sections(
    explanation: Explanation, found: Score | None, room: int, look: Look, *, was_busy: bool
) -> Iterable[list[Line]]:
    """Everything that follows the verdict, in its order; what is not known is left out."""
    yield shares(explanation, room, look)
    yield changes(explanation, room, look)
    yield break_evens(explanation, room, look)
    yield score(found, room, look)
    yield drafts(explanation, room)
    yield time_model(explanation, room, was_busy=was_busy)
    yield probes(explanation, room, look)
    yield rejected(explanation, room, look)
