"""Lessons as text and as JSON: the list, the staging, what was predicted, what was measured, picture and conclusion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
from rich.text import Text

from stackscope import units
from stackscope.experiments.lessons.contracts import Waiting
from stackscope.experiments.lessons.data import Data, told
from stackscope.experiments.plan import warmup_requests
from stackscope.report.layout import bar, columns, hang, row
from stackscope.workload.spec import describe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from stackscope.experiments.lessons.contracts import Bar, Lesson, Picture, Stage
    from stackscope.experiments.lessons.record import LessonRecord
    from stackscope.records import Estimate, Prediction

TTFT: Final = "TTFT: from a request's arrival to its first token"
GAP: Final = "gap: between two emissions of a request"
FIGURES: Final[dict[str, tuple[str, Callable[[float | None], str], str]]] = {
    "tokens_per_s": ("tok/s", units.number, "tok/s: tokens put out per second"),
    "ttft_p50_ns": ("TTFT p50", units.duration, TTFT),
    "ttft_p95_ns": ("TTFT p95", units.duration, TTFT),
    "step_gap_p50_ns": ("gap p50", units.duration, GAP),
    "step_gap_p95_ns": ("gap p95", units.duration, GAP),
    "tokens_per_forward": ("A", units.number, "A: tokens that one forward of the target brings a request"),
    "acceptance": ("accepted", units.percent, "accepted: of the drafted tokens"),
    "share.draft": ("drafting", units.percent, "drafting: of the time of steps"),
    "host_share": ("host", units.percent, "host: of the time of steps, what is outside both models"),
    "occupancy": ("slots busy", units.percent, "slots busy: of those that there are"),
    "useful_hit_rate": (
        "prefix hits",
        units.percent,
        "prefix hits: of the prompt tokens, those that were in the cache",
    ),
}
"""Figures of a run that tables show: header, how they are written, and what they are."""

INDENT: Final = "  "
LEAST_BAR: Final = 12
MOST_BAR: Final = 40

VERDICTS: Final = {True: "holds here", False: "does not hold here", None: "is left open here"}


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line of the list."""

    lesson: Lesson | Waiting
    path: Path | None
    """Of the recorded result. `None`: there is none."""
    is_own: bool
    """It was measured here, and did not come with Stackscope."""


def listing(entries: Sequence[Entry], width: int) -> Text:
    """All lessons, a line each."""
    lines = []
    for entry in entries:
        lesson = entry.lesson
        state = "waits" if isinstance(lesson, Waiting) else _recorded(entry)
        lines.append(hang(Text(f"{lesson.number:>2}  ", style="bold"), [lesson.title, Text(state, style="dim")], width))
    rest = hang(Text(), ["stackscope learn N runs one", "--show shows its recorded result"], width, style="dim")
    return Text("\n").join([*lines, Text(), rest])


def _recorded(entry: Entry) -> str:
    if entry.path is None:
        return "not recorded yet"
    return "recorded here" if entry.is_own else "recorded"


def list_document(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """The same for machines."""
    return [
        {
            "lesson": entry.lesson.number,
            "title": entry.lesson.title,
            "claim": entry.lesson.claim,
            "waits_for": entry.lesson.waits_for if isinstance(entry.lesson, Waiting) else None,
            "recorded": None if entry.path is None else str(entry.path),
            "own": entry.is_own,
        }
        for entry in entries
    ]


def waiting(lesson: Waiting, width: int) -> Text:
    """A lesson that cannot be staged yet."""
    return Text("\n").join([*_head(lesson, width), row("waits", [lesson.waits_for], width)])


def waiting_document(lesson: Waiting) -> dict[str, Any]:
    """The same for machines."""
    return {"lesson": lesson.number, "title": lesson.title, "claim": lesson.claim, "waits_for": lesson.waits_for}


def unrecorded(lesson: Lesson, width: int) -> Text:
    """A lesson that has no recorded result."""
    command = f"stackscope learn {lesson.number}"
    return Text("\n").join(
        [*_head(lesson, width), row("recorded", [f"Not yet: {command} measures it on this machine."], width)]
    )


def _head(lesson: Lesson | Waiting, width: int) -> list[Text]:
    return [
        hang(Text(f"Lesson {lesson.number}: ", style="bold"), [Text(lesson.title, style="bold")], width),
        Text(),
        row("claim", [lesson.claim], width),
    ]


def staged(lesson: Lesson, stage: Stage, width: int, *, is_quick: bool) -> Text:
    """What is going to run, before anything does."""
    lines = [*_head(lesson, width), row("staged", [" ".join(stage.told)], width)]
    traffics = dict.fromkeys(_offered(cell.workload) for cell in stage.cells)
    lines += [row("", [traffic], width, style="dim") for traffic in traffics]
    if is_quick:
        lines.append(
            row("quick", [f"{stage.quick} Three blocks at least: the intervals are wide."], width, style="yellow")
        )
    return Text("\n").join([*lines, Text()])


def _offered(workload: Any) -> str:
    n_warm = warmup_requests(workload)
    warm = "the first request warms up" if n_warm == 1 else f"the first {units.count(n_warm)} requests warm up"
    return f"{describe(workload)} · {warm}"


def predicted(lesson: Lesson, stage: Stage, predictions: Mapping[str, Prediction], width: int) -> Text:
    """What is said before the measurement."""
    what = _reference(stage) or "what each is held against"
    told_how = f"By one short run of {what}, before the others run: what they do relative to it, with 90 % intervals."
    lines = [row("predicted", [told_how], width)]
    told_of = {cell.key: predictions[cell.key] for cell in stage.cells if cell.key in predictions}
    lines += _indented(_predictions({key: one for key, one in told_of.items() if one.tokens is not None}, width), width)
    reasons: dict[str, list[str]] = {}
    for key, one in told_of.items():
        if one.tokens is None:
            reasons.setdefault(one.reason, []).append(key)
    for reason, keys in reasons.items():
        lines.append(row("", [f"Nothing for {'; '.join(keys)}. {reason}"], width))
    expected = lesson.expect(Data(stage.cells, [], predictions))
    if expected:
        lines.append(row("expected", [expected], width))
    return Text("\n").join([*lines, Text()])


def _predictions(predictions: Mapping[str, Prediction], width: int) -> list[str]:
    """Ratios as predicted; latencies without their intervals where there is no room for those."""
    header = ["", "tok/s", "TTFT p50", "gap p50"]
    if not predictions:
        return []

    def table(*, is_short: bool) -> list[str]:
        ratios = {
            key: [_estimate(one.tokens), *(_estimate(other, is_short=is_short) for other in (one.ttft, one.step_gap))]
            for key, one in predictions.items()
        }
        return columns(header, [[key, *one] for key, one in ratios.items()])

    whole_table = table(is_short=False)
    return whole_table if max(map(len, whole_table)) + len(INDENT) <= width else table(is_short=True)


def _estimate(estimate: Estimate | None, *, is_short: bool = False) -> str:
    if estimate is not None and is_short:
        return units.ratio(estimate.value)
    return units.UNKNOWN if estimate is None else units.ratio(estimate.value, estimate.low, estimate.high)


def _indented(lines: Sequence[str], width: int) -> list[Text]:
    """A table, its header dim; what does not fit is cut."""
    return [
        Text(f"{INDENT}{line}"[: max(width, 40)], style="dim" if index == 0 else "") for index, line in enumerate(lines)
    ]


def measured(lesson: Lesson, record: LessonRecord, width: int) -> Text:
    """What came out: the table, the picture, and what it means here."""
    data, stage = record.data, record.stage
    blocks = units.counted(data.n_blocks, "block")
    took = units.duration(round(record.seconds) * 10**9)
    all_once = f"in each of which all {len(stage.cells)} configurations ran once"
    when = [f"{blocks}, {all_once}", took, "figures are medians of the blocks"]
    lines = [row("measured", when, width)]
    if data.n_blocks:
        table, explained = _table(data, stage, width)
        lines += [*_indented(table, width), hang(Text(INDENT), explained, width, style="dim")]
        lines += [Text(), *chart(lesson.picture(data), width), Text()]
        conclusion = lesson.conclude(data)
        lines.append(row("the claim", [Text(VERDICTS[conclusion.holds], style="bold")], width))
        lines.append(row("here", [" ".join(conclusion.sentences)], width))
        lines.append(row("elsewhere", [lesson.elsewhere], width))
    else:
        lines.append(row("", ["No block is whole."], width))
    if data.n_disturbed:
        runs = units.counted(data.n_blocks * len(stage.cells), "run")
        busy = f"In {data.n_disturbed} of {runs} something else had the engine's cores: repeat it in quiet."
        lines.append(row("note", [busy], width, style="yellow"))
    if record.is_interrupted:
        lines.append(row("note", ["It was interrupted, and is not stored."], width, style="yellow"))
    if record.is_quick:
        lines.append(row("note", [f"A quick run. {stage.quick}"], width, style="yellow"))
    lines += [row("note", [note], width, style="yellow") for note in record.notes]
    where = f"{record.device}, {units.counted(record.cores, 'core')}, {record.date}, Stackscope {record.stackscope}"
    lines.append(row("machine", [where], width, style="dim"))
    return Text("\n").join(lines)


def stored(path: Path, width: int) -> Text:
    """Where the result is."""
    return row("stored", [str(path)], width, style="dim")


def whole(lesson: Lesson, record: LessonRecord, path: Path, width: int) -> Text:
    """A recorded lesson from its claim to its conclusion."""
    return Text("\n").join(
        [
            staged(lesson, record.stage, width, is_quick=False),
            predicted(lesson, record.stage, record.predictions, width),
            measured(lesson, record, width),
            stored(path, width),
        ]
    )


def _reference(stage: Stage) -> str | None:
    """What all others are held against. `None`: they are not held against the same."""
    overs = {cell.over for cell in stage.cells if cell.over is not None}
    return next(iter(overs)) if len(overs) == 1 else None


def _table(data: Data, stage: Stage, width: int) -> tuple[list[str], list[str]]:
    """The figures of the cells, and what the columns are; tokens/s over the reference, and as predicted, where there is
    room for them."""
    names = [name for name in stage.figures if any(data.figure(cell.key, name) is not None for cell in stage.cells)]
    header = ["", *(FIGURES[name][0] for name in names)]
    rows = [[cell.key, *(FIGURES[name][1](data.figure(cell.key, name)) for name in names)] for cell in stage.cells]
    more = [
        ["", ""] if cell.over is None else [told(data.ratio(cell.key)), units.ratio(data.predicted(cell.key))]
        for cell in stage.cells
    ]
    explained = list(dict.fromkeys(FIGURES[name][2] for name in names))
    if any(one.endswith("p50") for one in header):
        explained.append("p50: half are shorter")
    if any(one.endswith("p95") for one in header):
        explained.append("p95: one in twenty is longer")
    reference = _reference(stage)
    over = f"÷ {reference or 'reference'}"
    wide = columns([*header, over, "predicted"], [[*own, *one] for own, one in zip(rows, more, strict=True)])
    if max(map(len, wide)) + len(INDENT) > width:
        return columns(header, rows), explained
    what = f"those of {reference}" if reference else "the nearest row above that has no ratio"
    explained += [f"{over}: tok/s relative to {what} [95 % interval]", "predicted: the same, before it ran"]
    return wide, explained


def chart(picture: Picture, width: int) -> list[Text]:
    """A picture as rows of bars that begin at 0, with a mark where nothing would change.

    A row is a label, its bar, the value with its interval, and what was predicted. Bars share one scale.
    """
    values = [one for b in picture.bars for one in (b.value, picture.mark) if one is not None]
    most = max(values, default=1.0) or 1.0
    labels = max((len(b.label) for b in picture.bars), default=0)
    texts = [_value(b, picture.unit) for b in picture.bars]
    room = width - labels - max(map(len, texts), default=0) - 6
    track = max(LEAST_BAR, min(MOST_BAR, room))
    lines = [hang(Text(INDENT), [Text(_title(picture), style="bold")], width)]
    group = ""
    for b, text in zip(picture.bars, texts, strict=True):
        if b.group != group:
            group = b.group
            lines.append(Text(f"  {group}", style="dim"))
        line = Text(f"  {b.label:<{labels}}  ")
        line.append(drawn(b, most, track, picture.mark), style="cyan" if b.value is not None else "")
        lines.append(line.append(f"  {text}"))
    return lines


def _title(picture: Picture) -> str:
    """With what the mark in the bars is, where one is to be seen."""
    if picture.mark is None or all((b.value or 0.0) >= picture.mark for b in picture.bars):
        return picture.title
    return f"{picture.title} (| is {picture.mark:g}{picture.unit}: no difference)"


def drawn(b: Bar, most: float, track: int, mark: float | None) -> str:
    """A bar of exactly `track` cells, with `|` at the mark where the bar does not reach it."""
    filled = bar((b.value or 0.0) / most, track)
    cells = list(f"{filled:<{track}}")
    if mark is not None:
        at = min(track - 1, int(mark / most * track))
        if cells[at] == " ":
            cells[at] = "|"
    return "".join(cells)


def _value(b: Bar, unit: str) -> str:
    if b.value is None:
        return "not measured"
    text = f"{units.number(b.value)}{unit}"
    if b.low is not None and b.high is not None:
        text += f" [{units.number(b.low)}, {units.number(b.high)}]"
    return text if b.predicted is None else f"{text}, predicted {units.number(b.predicted)}{unit}"


def document(lesson: Lesson, record: LessonRecord) -> dict[str, Any]:
    """A lesson for machines: its record, and what follows from it. Times in ns, ratios with their ends."""
    data = record.data
    conclusion = lesson.conclude(data)
    expected = lesson.expect(data)
    return {
        **msgspec.to_builtins(record),
        "title": lesson.title,
        "claim": lesson.claim,
        "elsewhere": lesson.elsewhere,
        "blocks": data.n_blocks,
        "disturbed": data.n_disturbed,
        "expected": expected or None,
        "measured": {cell.key: _measured(data, cell.key, record.stage) for cell in record.stage.cells},
        "conclusion": {"holds": conclusion.holds, "sentences": list(conclusion.sentences)},
        "picture": msgspec.to_builtins(lesson.picture(data)) if data.n_blocks else None,
    }


def _measured(data: Data, key: str, stage: Stage) -> dict[str, Any]:
    cell = data.cells[key]
    ratios = {} if cell.over is None else {name: _ratio(data, key, name) for name in stage.figures}
    return {
        "figures": {name: data.figure(key, name) for name in stage.figures},
        "over": cell.over,
        "ratios": {name: one for name, one in ratios.items() if one is not None},
    }


def _ratio(data: Data, key: str, name: str) -> dict[str, float | None] | None:
    contrast = data.ratio(key, name=name)
    if contrast is None:
        return None
    interval = contrast.interval()
    return {
        "ratio": contrast.ratio,
        "low": None if interval is None else interval.low,
        "high": None if interval is None else interval.high,
        "n": contrast.n,
    }
