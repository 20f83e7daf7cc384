"""docs/lessons.md says what the lessons and their recorded results say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

import generate_lessons_doc as generator
from stackscope.experiments.lessons import record as records
from stackscope.experiments.lessons.catalogue import CATALOGUE
from stackscope.report import lesson as report
from tests.unit.lessons_builders import lesson
from tests.unit.test_lessons_report import record

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_the_page_is_current() -> None:
    assert generator.TARGET.read_text(encoding="utf-8") == generator.document()


def test_recorded_results_hold_what_follows_from_their_runs() -> None:
    """What `--show` says of them, and not what an earlier version concluded."""
    concluded = generator.concluded_anew()
    assert len(concluded) == 10
    for path, document in concluded:
        assert generator.is_stored(path, document), path.name


def test_a_result_is_stored_where_nothing_but_last_digits_differs(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    path.write_bytes(msgspec.json.encode({"sentences": ["It holds."], "value": 0.3, "n": 3, "low": None}))
    same = {"sentences": ["It holds."], "value": 0.1 + 0.2, "n": 3, "low": None}
    assert generator.is_stored(path, same)
    for change in ({"value": 0.3001}, {"n": 4}, {"sentences": ["It fails."]}, {"low": 0.0}, {"high": 1.0}):
        assert not generator.is_stored(path, same | change)


def test_every_lesson_has_a_section() -> None:
    text = generator.document()
    for number, one in CATALOGUE.items():
        assert f"\n## {number}. {one.title}\n" in text


def test_a_recorded_result_is_told_with_its_picture(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(generator, "RESULTS", tmp_path)
    assert "Not recorded yet: `stackscope learn 1`" in generator.section(lesson(1))
    records.write(tmp_path / "01.json", report.document(lesson(1), record(1)))
    told = generator.section(lesson(1))
    assert "Not recorded yet" not in told
    assert "A processor, 2 cores, 2026-11-30, 5 blocks" in told
    assert "their product" in told
    assert "predicted 1.25×" in told
    assert max(map(len, told.splitlines())) <= 120
