"""A recording with a line in its middle that cannot be read: every command that shows it says what is missing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from stackscope.cli import app
from stackscope.session.format import encode_all
from stackscope.session.reader import SessionReader
from tests.unit.compare_sessions import Run

if TYPE_CHECKING:
    from pathlib import Path

MISFIT = "1 record could not be read and was left out: line 50: "
GARBAGE = "Reading stopped at damage: line 50 is not a record"


@pytest.fixture(params=["misfit", "garbage"])
def spoilt(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    """A recording whose fiftieth line is spoilt, and what is to be said of it."""
    lines = encode_all(Run().records()).splitlines(keepends=True)
    lines[49] = b'{"type":"step","n":"x"}\n' if request.param == "misfit" else b"\xff\x00 nothing\n"
    path = tmp_path / "spoilt.jsonl"
    path.write_bytes(b"".join(lines))
    return path, MISFIT if request.param == "misfit" else GARBAGE


def called(*arguments: object) -> str:
    done = CliRunner(env={"COLUMNS": "400", "NO_COLOR": "1"}).invoke(app, list(map(str, arguments)))
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("command", [("replay",), ("report",), ("score",), ("compare",), ("export", "--to", "json")])
def test_every_command_says_what_is_missing(command: tuple[str, ...], spoilt: tuple[Path, str], tmp_path: Path) -> None:
    path, told = spoilt
    others = [path] if command == ("compare",) else ["-o", tmp_path / "x.json"] if "export" in command else []
    shown = " ".join(called(*command, path, *others).split())
    assert told in shown.replace("\\", "")


def test_the_document_of_a_score_has_it(spoilt: tuple[Path, str]) -> None:
    path, told = spoilt
    (session,) = json.loads(called("score", path, "--json"))["sessions"]
    assert (session["truncated"] or session["left_out"]).startswith(told)


def test_several_lines_are_counted_and_the_first_is_named(tmp_path: Path) -> None:
    lines = encode_all(Run().records()).splitlines(keepends=True)
    lines[20] = lines[30] = b'{"type":"step","n":"x"}\n'
    path = tmp_path / "spoilt.jsonl"
    path.write_bytes(b"".join(lines))
    reader = SessionReader(path)
    assert reader.left_out is None
    list(reader)
    assert reader.left_out is not None
    assert reader.left_out.startswith("2 records could not be read and were left out: first line 21: ")
