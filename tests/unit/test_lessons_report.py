"""Lessons as text, as JSON, and as files."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import msgspec
import pytest

from stackscope.commands import learn as command
from stackscope.errors import SessionFileError, UsageError
from stackscope.experiments.lessons import record as records
from stackscope.experiments.lessons.catalogue import CATALOGUE
from stackscope.experiments.lessons.contracts import Bar, Lesson, Picture
from stackscope.experiments.lessons.record import LessonRecord
from stackscope.records import Estimate, Prediction
from stackscope.report import lesson as report
from stackscope.report.layout import encodable
from tests.unit.lessons_builders import lesson, planted, stage

if TYPE_CHECKING:
    from pathlib import Path

NUMBERS = [number for number, one in CATALOGUE.items() if isinstance(one, Lesson)]
WIDTHS = (60, 80, 100)


def record(number: int, *, is_interrupted: bool = False) -> LessonRecord:
    of = stage(number)
    speeds = {cell.key: 1.0 + 0.1 * place for place, cell in enumerate(of.cells)}
    figures = {cell.key: dict.fromkeys(of.figures, 2e7) for cell in of.cells}
    for own in figures.values():
        own.pop("tokens_per_s", None)
    predictions = {
        cell.key: Prediction(
            at_ns=0, changes={"model": ("/models/a.gguf", cell.config.model)}, tokens=Estimate(1.25, 1.1, 1.4)
        )
        for cell in of.cells
        if cell.over is not None
    }
    return LessonRecord(
        lesson=number,
        stackscope="0.1.0",
        date="2026-11-30T12:00:00+00:00",
        host="bench",
        device="A processor",
        cores=2,
        stage=records.with_names(of),
        is_interrupted=is_interrupted,
        seconds=100.0,
        predictions={key: records.prediction_with_names(one) for key, one in predictions.items()},
        runs=tuple(planted(of, speeds, figures)),
    )


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("width", WIDTHS)
def test_a_whole_lesson_fits_the_width(number: int, width: int, tmp_path: Path) -> None:
    shown = report.whole(lesson(number), record(number), tmp_path / "x", width).plain
    # A path is one word, and a figure with its interval is not cut.
    long = [line for line in shown.splitlines() if len(line) > width and "stored" not in line]
    assert width < 80 or long == []
    for part in ("claim", "staged", "predicted", "measured", "the claim", "here", "machine"):
        assert f"\n{part}" in shown


@pytest.mark.parametrize("number", NUMBERS)
def test_a_record_reads_back_as_it_was_written(number: int, tmp_path: Path) -> None:
    made = record(number)
    path = tmp_path / "lessons" / "01.json"
    records.write(path, report.document(lesson(number), made))
    assert records.read(path) == made
    assert [one.name for one in path.parent.iterdir()] == ["01.json"]


def test_a_record_names_models_by_their_files_alone() -> None:
    text = msgspec.json.encode(report.document(lesson(10), record(10))).decode()
    assert "/models" not in text
    assert '"target-q4_k_m.gguf"' in text


def test_the_document_has_ratios_with_their_ends_and_the_conclusion() -> None:
    found = report.document(lesson(1), record(1))
    one = found["measured"]["prefix cache"]
    assert one["over"] == "baseline"
    ratio = one["ratios"]["tokens_per_s"]
    assert ratio["low"] < ratio["ratio"] < ratio["high"]
    assert ratio["ratio"] == pytest.approx(1.2, rel=0.01)
    assert ratio["n"] == 5
    assert found["conclusion"]["sentences"]
    assert found["expected"].startswith("Together 1.25×, which is 0.64×")  # 1.25 ÷ 1.25³


def test_a_file_that_is_no_record_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "01.json"
    path.write_text("{}")
    with pytest.raises(SessionFileError, match="no record of a lesson"):
        records.read(path)
    with pytest.raises(SessionFileError, match="cannot be read"):
        records.read(tmp_path / "02.json")
    os.mkfifo(tmp_path / "03.json")  # To which nobody writes.
    with pytest.raises(SessionFileError, match="is not a file"):
        records.read(tmp_path / "03.json")


def test_bars_share_a_scale_and_have_a_mark() -> None:
    bar = Bar(label="a", value=2.0)
    assert report.drawn(bar, 2.0, 8, 1.0) == "████████"
    assert report.drawn(Bar(label="a", value=0.5), 2.0, 8, 1.0) == "██  |   "
    assert report.drawn(Bar(label="a", value=None), 2.0, 8, 1.0) == "    |   "
    assert report.drawn(Bar(label="a", value=1.0), 2.0, 8, None) == "████    "


def test_a_picture_says_what_was_not_measured_and_what_was_predicted() -> None:
    picture = Picture(
        title="t",
        bars=(
            Bar(label="one", value=1.5, low=1.4, high=1.6, predicted=1.2, group="g"),
            Bar(label="other", value=None, group="g"),
        ),
    )
    lines = [line.plain for line in report.chart(picture, 80)]
    assert lines[0].strip() == "t (| is 1×: no difference)"
    assert lines[1].strip() == "g"
    assert lines[2].endswith("1.50× [1.40, 1.60], predicted 1.20×")
    assert lines[3].endswith("not measured")
    assert len({line.index("1.50×") if "1.50×" in line else line.index("not") for line in lines[2:]}) == 1


def test_predicted_latencies_lose_their_intervals_where_there_is_no_room() -> None:
    of = stage(12)
    key = of.cells[-1].key
    ratio = Estimate(1.25, 1.1, 1.4)
    made = Prediction(at_ns=0, changes={}, tokens=ratio, ttft=ratio, step_gap=ratio)
    wide, narrow = (report.predicted(lesson(12), of, {key: made}, width).plain for width in (100, 80))
    assert wide.count("1.25× [1.10, 1.40]") == 3
    assert narrow.count("1.25× [1.10, 1.40]") == 1
    assert narrow.count("1.25×") - " ".join(narrow.split()).count("1.25× of plain") == 3


@pytest.mark.parametrize("number", NUMBERS)
def test_every_column_of_a_lesson_is_explained(number: int) -> None:
    shown = " ".join(report.measured(lesson(number), record(number), 100).plain.split())
    for name in stage(number).figures:
        header, _, meaning = report.FIGURES[name]
        assert header in shown
        assert meaning in shown
    if "\u00f7 " in shown.partition("(| is")[0]:
        assert "relative to" in shown
        assert "predicted: the same, before it ran" in shown
    assert "cells" not in shown


@pytest.mark.parametrize("number", NUMBERS)
def test_where_references_differ_each_stands_above_what_is_held_against_it(number: int) -> None:
    """So that the nearest row without a ratio is the one that is meant."""
    above = None
    for cell in stage(number).cells:
        above = cell.key if cell.over is None else above
        assert cell.over in (None, above)


def test_what_cannot_be_predicted_says_why() -> None:
    of = stage(12)
    keys = [cell.key for cell in of.cells if cell.over is not None][:2]
    made = Prediction(at_ns=0, changes={}, reason="No step has run.")
    told = " ".join(report.predicted(lesson(12), of, dict.fromkeys(keys, made), 100).plain.split())
    assert f"Nothing for {keys[0]}; {keys[1]}. No step has run." in told


def test_a_picture_of_nothing_is_a_title() -> None:
    assert [line.plain for line in report.chart(Picture(title="t", bars=()), 80)] == ["  t"]


@pytest.mark.parametrize("number", NUMBERS)
def test_everything_has_a_form_in_ascii(number: int, tmp_path: Path) -> None:
    shown = report.whole(lesson(number), record(number), tmp_path / "x", 80).plain
    assert encodable(shown, "ascii").isascii()


def test_an_interrupted_lesson_says_so() -> None:
    shown = report.measured(lesson(1), record(1, is_interrupted=True), 80).plain
    assert "It was interrupted, and is not stored." in shown
    assert "\nstored" not in shown


@pytest.fixture
def folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Neither an own nor a shipped result; own ones go to this folder."""
    monkeypatch.setattr(records, "own_path", lambda number: tmp_path / "own" / f"{number:02}.json")
    monkeypatch.setattr(
        records,
        "shipped_path",
        lambda number: path if (path := tmp_path / "shipped" / f"{number:02}.json").is_file() else None,
    )
    return tmp_path


def test_the_list_has_a_line_for_each_and_says_what_is_recorded(
    folders: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records.write(folders / "shipped" / "03.json", report.document(lesson(3), record(3)))
    records.write(folders / "own" / "04.json", report.document(lesson(4), record(4)))
    assert command.learn(command.LearnOptions()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 14
    assert lines[0].endswith("not recorded yet")
    assert lines[2].endswith("recorded")
    assert lines[3].endswith("recorded here")
    assert lines[6].endswith("waits")


def test_the_list_for_machines(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records.write(folders / "own" / "04.json", report.document(lesson(4), record(4)))
    assert command.learn(command.LearnOptions(json=True)) == 0
    entries = json.loads(capsys.readouterr().out)
    assert [entry["lesson"] for entry in entries] == list(range(1, 13))
    assert [entry["lesson"] for entry in entries if entry["waits_for"] is not None] == [7, 11]
    assert [entry["lesson"] for entry in entries if entry["recorded"] is not None] == [4]


@pytest.mark.parametrize("number", [7, 11])
def test_a_lesson_that_waits_says_for_what(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.learn(command.LearnOptions(lesson=number)) == 0
    assert "cannot run yet" in " ".join(capsys.readouterr().out.split())


def test_show_without_a_recorded_result(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.learn(command.LearnOptions(lesson=8, is_shown=True)) == 0
    assert "Not yet: stackscope learn 8 measures it" in capsys.readouterr().out
    assert command.learn(command.LearnOptions(lesson=8, is_shown=True, json=True)) == 0
    assert json.loads(capsys.readouterr().out)["recorded"] is None
    assert not (folders / "own").exists()


def test_show_prefers_what_was_measured_here(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own, shipped = record(1), msgspec.structs.replace(record(1), device="Another machine")
    records.write(folders / "shipped" / "01.json", report.document(lesson(1), shipped))
    assert command.learn(command.LearnOptions(lesson=1, is_shown=True)) == 0
    assert "Another machine" in capsys.readouterr().out
    records.write(folders / "own" / "01.json", report.document(lesson(1), own))
    assert command.learn(command.LearnOptions(lesson=1, is_shown=True)) == 0
    assert "A processor" in capsys.readouterr().out


@pytest.mark.parametrize("number", [0, 13, -1])
def test_a_number_without_a_lesson(number: int) -> None:
    with pytest.raises(UsageError, match="There is no lesson"):
        command.learn(command.LearnOptions(lesson=number))


def test_options_of_a_lesson_without_a_lesson() -> None:
    with pytest.raises(UsageError, match="about one lesson"):
        command.learn(command.LearnOptions(is_shown=True))


@pytest.mark.parametrize("number", NUMBERS)
def test_every_result_that_ships_is_read_and_concludes(number: int) -> None:
    path = records.shipped_path(number)
    if path is None:
        pytest.skip("not recorded yet")
    found = records.read(path)
    assert found.lesson == number
    assert not found.is_interrupted
    assert found.data.n_blocks >= 3
    assert [cell.key for cell in found.stage.cells] == [
        cell.key for cell in stage(number, is_quick=found.is_quick).cells
    ]
    assert lesson(number).conclude(found.data).sentences
