"""Folders without recordings, files that are none, and experiments that were spoilt: one sentence, with a remedy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from typer.testing import CliRunner

from stackscope.cli import app

if TYPE_CHECKING:
    from pathlib import Path

HEAD: Final = '{"type":"plan","format":1,"kind":"ablation","stackscope":"x","plan":{}}\n'
SPOILT: Final = {
    "empty": ("", "has no plan: it was ended before it began. Begin anew, with options, in this folder or another."),
    "head": ('{"type":"pl\n', "is not what an experiment left behind: line 1 is no plan ("),
    "line": (HEAD + '{"type":"run","x":\n', "Line 2 of {}/experiment.jsonl cannot be read: "),
    "deep": (HEAD + "[" * 100_000 + "\n", "Line 2 of {}/experiment.jsonl cannot be read: "),
    "deep head": ("[" * 100_000 + "\n", "is not what an experiment left behind: line 1 is no plan ("),
    "plan": (HEAD, "The plan on line 1 of {}/experiment.jsonl cannot be used: Object missing required field"),
    "version": (HEAD.replace('"format":1', '"format":9'), "is of another version of Stackscope (x). Begin anew"),
}


def refused(*arguments: object) -> str:
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == 8, (done.output, done.exception)
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    return done.stderr


@pytest.mark.parametrize("command", ["report", "score"])
def test_a_folder_without_recordings(command: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    told = f"stackscope: There is no recording in {tmp_path}. Name a folder that has some, or files.\n"
    assert refused(command, tmp_path) == told


@pytest.mark.parametrize("command", [("report",), ("score",), ("compare", "{}"), ("replay",)])
def test_a_file_that_is_no_recording(command: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello\n")
    done = CliRunner().invoke(app, [command[0], str(path), *(one.format(path) for one in command[1:])])
    assert done.exit_code == 8
    assert done.stderr == (
        f"stackscope: {path} is not a Stackscope session: its first line is not JSON."
        " Give the path of a recording, a file that ends in .jsonl.zst.\n"
    )


@pytest.mark.parametrize("spoilt", SPOILT)
@pytest.mark.parametrize("command", [("report",), ("ablate", "--folder")])
def test_an_experiment_that_was_spoilt(command: tuple[str, ...], spoilt: str, tmp_path: Path) -> None:
    content, says = SPOILT[spoilt]
    (tmp_path / "experiment.jsonl").write_text(content)
    assert says.format(tmp_path) in refused(*command, tmp_path)
    assert (tmp_path / "experiment.jsonl").read_text() == content


def test_going_on_with_no_sweep_makes_no_folder(tmp_path: Path) -> None:
    assert "There is no experiment in " in refused("sweep", "--folder", tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("command", ["ablate", "sweep"])
def test_a_folder_with_other_files_is_gone_on_with_by_nobody(command: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    assert "There is no experiment in " in refused(command, "--folder", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize("more", [(), ("--quality",)])
def test_an_ablation_with_the_defaults_begins_in_an_empty_folder(
    more: tuple[str, ...], is_there: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It comes as far as making its models; sweeps have no axes by default."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    folder = tmp_path / "new"
    if is_there:
        folder.mkdir()
    monkeypatch.setenv("STACKSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("stackscope.model.inflate.inflate", interrupted)
    done = CliRunner().invoke(app, ["ablate", "--folder", str(folder), *more])
    assert done.exit_code == 130
    assert f"{folder} is empty: an ablation with the defaults begins there." in done.stderr
