"""Write docs/lessons.md from the lessons and their recorded results, and into these what follows from their runs today.

With --check, say whether the page is current.
"""

from __future__ import annotations

import math
import sys
import textwrap
from pathlib import Path
from typing import Any

import msgspec

from stackscope import units
from stackscope.experiments.lessons import record as records
from stackscope.experiments.lessons.catalogue import CATALOGUE
from stackscope.experiments.lessons.contracts import Lesson, Waiting
from stackscope.experiments.lessons.data import Data
from stackscope.report import lesson as report
from stackscope.report.lesson import VERDICTS, chart

ROOT = Path(__file__).parent.parent
TARGET = ROOT / "docs" / "lessons.md"
RESULTS = ROOT / "profiles" / "lessons"
WIDTH = 100

INTRODUCTION = """\
# Lessons

Generated from the code and `profiles/lessons` by `scripts/generate_lessons_doc.py`; do not edit.

Twelve claims of the field, for you to check on your own machine:

    stackscope learn                                       # the list
    stackscope learn 3                                     # stage, predict, measure, conclude: up to four minutes
    stackscope learn 3 --quick                             # about one minute; says what it gives up
    stackscope learn 3 --show                              # a recorded result, without running anything
    stackscope learn 3 --model TARGET.gguf --draft D.gguf  # on your own models; large ones take longer

Each lesson says the claim, what it stages, and what the explainer expects, before anything is measured. The expectation
comes from one short run of what the others are held against, and from nothing else. Then every configuration runs in
randomised blocks, each time in a process of its own, and ratios are formed within blocks: their intervals are
Student's, at 95 %. At the end stands whether the claim holds *here*. It need not: on a processor some do not, and then
the lesson says why, by its own figures. A round of drafts costs A ÷ speed-up plain steps, for example: it pays where
that is less than the A tokens that it brings.

Lessons run on the bundled pair, its target inflated to 200 MB where reading weights has to matter, offline. Without
`--draft`, drafts of your own model come from n-gram look-up; lessons 3 and 8 want a draft model. The result goes to
`profiles/recorded/lessons`, or your data folder, as JSON with every setting, prediction and run; `--output` names
another place, and `--replace` writes over a file there. Results below were recorded on the machine that each names,
where a run counts as disturbed when something else had more than a little of the engine's cores, by

    stackscope learn N --output profiles/lessons/NN.json --replace
"""

NOT_RECORDED = "Not recorded yet: `stackscope learn {number}` measures it on your machine."


class _Unnamed:
    """Models of which only the names matter, for what a lesson says of its staging."""

    target = small = "target.gguf"
    draft = "draft.gguf"

    def weights(self, kind: str) -> str:
        return f"target-{kind}.gguf"


def document() -> str:
    """The whole page."""
    return "\n".join([INTRODUCTION, *[section(one) for one in CATALOGUE.values()]])


def section(lesson: Lesson | Waiting) -> str:
    """One lesson."""
    lines = [f"## {lesson.number}. {lesson.title}", "", lesson.claim, ""]
    if isinstance(lesson, Waiting):
        return "\n".join(wrapped([*lines, f"**Waits.** {lesson.waits_for}", ""]))
    told = " ".join(lesson.stage(_Unnamed(), False).told)
    lines += [f"    stackscope learn {lesson.number}", "", f"*Staged.* {told}", ""]
    path = RESULTS / f"{lesson.number:02}.json"
    if path.is_file():
        lines += result(lesson, path)
    else:
        lines += [NOT_RECORDED.format(number=lesson.number), ""]
    return "\n".join(wrapped([*lines, f"*Elsewhere.* {lesson.elsewhere}", ""]))


def result(lesson: Lesson, path: Path) -> list[str]:
    """What was expected and measured."""
    record = records.read(path)
    data = record.data
    conclusion = lesson.conclude(data)
    expected = lesson.expect(Data(record.stage.cells, [], record.predictions))
    picture = [f"    {line.plain}".rstrip() for line in chart(lesson.picture(data), WIDTH)]
    blocks = units.counted(data.n_blocks, "block")
    machine = f"{record.device}, {units.counted(record.cores, 'core')}, {record.date[:10]}, {blocks}"
    disturbed = f", {units.counted(data.n_disturbed, 'run')} disturbed" if data.n_disturbed else ""
    return [
        f"*Expected.* {expected or 'Nothing could be predicted.'}",
        "",
        f"*Measured* ({machine}{disturbed}):",
        "",
        *picture,
        "",
        f"*The claim {VERDICTS[conclusion.holds]}.* {' '.join(conclusion.sentences)}",
        "",
    ]


def wrapped(lines: list[str]) -> list[str]:
    """Prose in lines of 120; pictures and commands as they are."""
    found: list[str] = []
    for line in lines:
        found += [line] if line.startswith(("    ", "#")) or not line else textwrap.wrap(line, 120)
    return found


def main() -> int:
    text = document()
    if "--check" in sys.argv[1:]:
        is_current = TARGET.is_file() and TARGET.read_text(encoding="utf-8") == text
        print("docs/lessons.md is current." if is_current else f"docs/lessons.md is stale: run {Path(__file__).name}.")
        return 0 if is_current else 1
    TARGET.write_text(text, encoding="utf-8")
    for path, concluded in concluded_anew():
        if not is_stored(path, concluded):
            records.write(path, concluded)
    return 0


def is_stored(path: Path, concluded: dict[str, Any]) -> bool:
    """A file says the same already, but for last digits: logarithms differ in them from processor to processor."""
    stored = msgspec.json.decode(path.read_bytes())
    return _is_alike(stored, msgspec.json.decode(msgspec.json.encode(concluded)))


def _is_alike(one: object, other: object) -> bool:
    match one, other:
        case dict(), dict():
            return one.keys() == other.keys() and all(_is_alike(one[key], other[key]) for key in one)
        case list(), list():
            return len(one) == len(other) and all(map(_is_alike, one, other))
        case float(), float():
            return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    return type(one) is type(other) and one == other


def concluded_anew() -> list[tuple[Path, dict[str, Any]]]:
    """Every recorded result with what the lesson says of its staging, and concludes of its runs, now."""
    lessons = [(RESULTS / f"{one.number:02}.json", one) for one in CATALOGUE.values() if isinstance(one, Lesson)]
    return [(path, report.document(one, _told_anew(one, path))) for path, one in lessons if path.is_file()]


def _told_anew(lesson: Lesson, path: Path) -> records.LessonRecord:
    record = records.read(path)
    told = lesson.stage(_Unnamed(), record.is_quick).told
    return msgspec.structs.replace(record, stage=msgspec.structs.replace(record.stage, told=told))


if __name__ == "__main__":
    sys.exit(main())
