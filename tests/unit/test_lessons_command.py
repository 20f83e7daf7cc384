"""`stackscope learn` from its options to its file, on a machine that is made up; and Ctrl-C in a real process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

import stackscope.verbs.learning  # noqa: F401 - which registers the verb
from stackscope.commands import learn as command
from stackscope.commands.learn import LearnOptions
from stackscope.experiments.lessons import record as records
from stackscope.experiments.lessons.conducting import Conductor
from stackscope.verbs.base import app
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
    result = CliRunner().invoke(app, ["learn", "6", "--quick", "--model", "a.gguf", "--draft", "b.gguf", "--json"])
    assert result.exit_code == 3
    assert received == [LearnOptions(lesson=6, model="a.gguf", draft="b.gguf", is_quick=True, json=True)]


def test_models_of_ones_own_take_the_place_of_the_bundled_pair() -> None:
    from stackscope.model.catalog import bundled_draft, bundled_target

    own = command.LessonModels(str(bundled_target()), None, lambda _: None)
    assert own.target == own.small == str(bundled_target())
    assert own.draft is None
    bundled = command.LessonModels(None, None, lambda _: None)
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
