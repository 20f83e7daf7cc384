"""`stackscope learn` from its options to its file, on a machine that is made up; and Ctrl-C in a real process."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import subprocess
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from stackscope.cli import app
from stackscope.commands import learn as command
from stackscope.commands import still_bar
from stackscope.commands.experiment_models import ModelMaker
from stackscope.commands.learn import LearnOptions
from stackscope.errors import StackscopeError
from stackscope.experiments.lessons import record as records
from stackscope.experiments.lessons.conducting import Conductor
from tests.integration.ablate_support import ROOT
from tests.integration.ablate_support import command as with_fake_engine
from tests.unit.lessons_builders import FakeModels, stage
from tests.unit.test_lessons_conducting import Machine

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """The machine that lesson 1 runs on: all together bring less than the product."""
    speeds = {"weights Q8_0": 1.5, "prefix cache": 1.4, "speculation": 1.3, "all together": 2.0}
    made = Machine(stage(1), speeds)
    monkeypatch.setattr(command, "LessonModels", lambda *_: FakeModels())
    monkeypatch.setattr(command, "Conductor", partial(Conductor, run=made.run, clock=made.clock))
    return made


def test_a_lesson_is_staged_predicted_measured_and_stored(
    machine: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.json"
    assert command.learn(LearnOptions(lesson=1, output=path)) == 0
    told = capsys.readouterr().out
    places = [told.index(f"\n{part}") for part in ("staged", "predicted", "measured", "the claim", "stored")]
    assert places == sorted(places)
    found = records.read(path)
    assert found.data.n_blocks == 8
    assert found.seconds == 5.0 * 41  # one look, eight blocks of five
    assert not found.is_quick
    assert "take from each other" in " ".join(told.split())
    assert machine.ran[0] == (-1, "baseline")


def test_a_quick_lesson_says_what_it_gives_up(
    machine: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine._cells = stage(1, is_quick=True).cells
    assert command.learn(LearnOptions(lesson=1, is_quick=True, output=tmp_path / "x.json")) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "Requests are fewer. Three blocks at least" in told
    assert "A quick run." in told
    assert records.read(tmp_path / "x.json").data.n_blocks == 3


@pytest.mark.usefixtures("machine")
def test_a_lesson_for_machines_is_one_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.json"
    assert command.learn(LearnOptions(lesson=1, json=True, output=path)) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(path.read_bytes())
    assert printed["conclusion"]["holds"] is True
    assert len(printed["runs"]) == 40


def test_options_reach_the_body(monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[Any] = []

    def body(asked: LearnOptions) -> int:
        received.append(asked)
        return 3

    monkeypatch.setattr(command, "learn", body)
    typed = ["learn", "6", "--quick", "--model", "a.gguf", "--draft", "b.gguf", "--replace", "--json"]
    result = CliRunner().invoke(app, typed)
    assert result.exit_code == 3
    asked = LearnOptions(lesson=6, model="a.gguf", draft="b.gguf", is_quick=True, is_replacing=True, json=True)
    assert received == [asked]


@pytest.mark.parametrize(
    ("name", "options", "code", "told"),
    [
        ("there.json", [], 2, "exists already. Give another name, or --replace to write over it."),
        ("folder", [], 2, "exists already. Give another name, or --replace to write over it."),
        ("folder", ["--replace"], 2, "is no file, and is not written over. Give another name."),
        (
            "there.json/x.json",
            [],
            1,
            "could not be written: file exists. Write where you may, and where the path exists.",
        ),
    ],
)
def test_an_output_that_cannot_be_is_refused_before_anything_runs(
    machine: Machine, tmp_path: Path, name: str, options: list[str], code: int, told: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "there.json").write_text("mine")
    result = CliRunner().invoke(app, ["learn", "1", "-o", str(tmp_path / name), *options])
    assert result.exit_code == code
    assert result.stderr == f"stackscope: {tmp_path / name} {told}\n"
    assert result.stdout == ""
    assert machine.ran == []
    assert (tmp_path / "there.json").read_text() == "mine"
    assert {path.name for path in tmp_path.rglob("*")} == {"folder", "there.json"}


def test_a_closed_folder_is_refused_before_anything_runs(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(self: Path, *_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr("pathlib.Path.touch", closed)  # Rights mean nothing to root.
    result = CliRunner().invoke(app, ["learn", "1", "-o", str(tmp_path / "x.json")])
    assert result.exit_code == 1
    assert "x.json could not be written: permission denied. Write where you may" in result.stderr
    assert machine.ran == []


@pytest.mark.usefixtures("machine")
def test_a_file_is_written_over_when_that_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text("old")
    assert command.learn(LearnOptions(lesson=1, output=path, is_replacing=True)) == 0
    assert records.read(path).lesson == 1


@pytest.mark.usefixtures("machine")
def test_ones_own_result_takes_the_place_of_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "own_path", lambda number: tmp_path / "lessons" / f"{number}.json")
    for _ in range(2):
        assert command.learn(LearnOptions(lesson=1)) == 0
    assert records.read(tmp_path / "lessons" / "1.json").lesson == 1


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("is_json", [False, True])
def test_what_cannot_be_stored_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_json: bool
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(records, "write", full)
    with pytest.raises(StackscopeError, match="the disk is full"):
        command.learn(LearnOptions(lesson=1, output=tmp_path / "x.json", json=is_json))
    told = capsys.readouterr().out
    assert json.loads(told)["conclusion"]["holds"] is True if is_json else "\nthe claim" in told
    assert "\nstored" not in told
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("machine")
def test_what_cannot_be_shown_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_: str) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("stackscope.report.output.write", gone)
    path = tmp_path / "x.json"
    with pytest.raises(BrokenPipeError):
        command.learn(LearnOptions(lesson=1, output=path, json=True))
    assert records.read(path).lesson == 1


@pytest.mark.usefixtures("machine")
def test_predictions_do_not_stand_on_the_line_of_the_bar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = io.StringIO()
    monkeypatch.setattr(still_bar, "Console", lambda **_: Console(file=both, force_terminal=True, width=100))
    monkeypatch.setattr("stackscope.report.output.write", both.write)
    assert command.learn(LearnOptions(lesson=1, output=tmp_path / "x.json")) == 0
    before, _, after = both.getvalue().partition("predicted")
    assert "run 1 of" in before
    assert before.endswith("\r\x1b[2K")
    assert "run 2 of" in after


def test_models_of_ones_own_take_the_place_of_the_bundled_pair() -> None:
    from stackscope.model.catalog import bundled_draft, bundled_target

    own = command.LessonModels(str(bundled_target()), None, ModelMaker(lambda _: None))
    assert own.target == own.small == str(bundled_target())
    assert own.draft is None
    bundled = command.LessonModels(None, None, ModelMaker(lambda _: None))
    assert bundled.small == str(bundled_target())
    assert bundled.draft == str(bundled_draft())


def test_ctrl_c_leaves_cleanly_and_stores_nothing(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    process = subprocess.Popen(
        with_fake_engine("learn", "4", "-o", path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        process_group=0,
        env={**os.environ, "PYTHONIOENCODING": "utf-8", "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    told = ""
    for line in process.stdout:
        told += line
        if line.startswith("predicted"):
            break
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT
    assert "Traceback" not in errors
    assert "It was interrupted, and is not stored." in rest
    assert not path.exists()
