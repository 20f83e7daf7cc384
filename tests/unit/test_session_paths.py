"""Where recordings go and what they are called."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import platformdirs
import pytest

from stackscope.errors import UsageError
from stackscope.session.paths import Destination, destination, numbered, recording_folder, recording_name

STARTED = datetime(2026, 11, 29, 20, 15, 3, tzinfo=UTC)
NAME = "2026-11-29T20-15-03-code-lab-target.jsonl.zst"


def package_in(root: Path, project_file: str | None) -> Path:
    package = root / "stackscope"
    package.mkdir()
    if project_file is not None:
        (root / "pyproject.toml").write_text(project_file, encoding="utf-8")
    return package


def test_a_checkout_records_into_its_ignored_folder(tmp_path: Path) -> None:
    package = package_in(tmp_path, '[project]\nname = "stackscope"\n')
    assert recording_folder(package=package) == tmp_path / "profiles" / "recorded"


@pytest.mark.parametrize(
    "project_file",
    [None, "", '[project]\nname = "other"\n', "project = 3\n", '[project]\nname = "stacksc', "\x00"],
    ids=["none", "empty", "another project", "odd", "cut off", "binary"],
)
def test_anything_else_records_into_the_users_folder(tmp_path: Path, project_file: str | None) -> None:
    folder = recording_folder(package=package_in(tmp_path, project_file))
    assert folder == platformdirs.user_data_path("stackscope", appauthor=False) / "recorded"


def test_this_checkout_is_one() -> None:
    root = Path(__file__).parents[2]
    assert recording_folder() == root / "profiles" / "recorded"
    assert "profiles/recorded/" in (root / ".gitignore").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(
    ("workload", "model", "name"),
    [
        ("code", "lab-target", NAME),
        ("", "", "2026-11-29T20-15-03.jsonl.zst"),
        (
            "my trace.jsonl",
            "gemma-3-270m-it-Q4_K_M",
            "2026-11-29T20-15-03-my-trace.jsonl-gemma-3-270m-it-Q4_K_M.jsonl.zst",
        ),
        ("../../etc", "a/b\\c:d*?\x00", "2026-11-29T20-15-03-etc-a-b-c-d.jsonl.zst"),
        ("Überblick", "模型", "2026-11-29T20-15-03-Uberblick.jsonl.zst"),
        ("x" * 300, "y", "2026-11-29T20-15-03-" + "x" * 48 + "-y.jsonl.zst"),
    ],
)
def test_a_name_says_when_and_what(workload: str, model: str, name: str) -> None:
    assert recording_name(STARTED, workload, model) == name


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("run", "run.jsonl.zst"),
        ("run.jsonl", "run.jsonl.zst"),
        ("run.zst", "run.jsonl.zst"),
        ("run.jsonl.zst", "run.jsonl.zst"),
        ("run.v2", "run.v2.jsonl.zst"),
        ("new/run", "new/run.jsonl.zst"),
    ],
)
def test_a_chosen_file_gets_the_suffix(tmp_path: Path, given: str, written: str) -> None:
    for chosen in (tmp_path / given, f"{tmp_path}/{given}"):
        where = destination(chosen, started=STARTED, workload="code", model="lab-target")
        assert where == Destination(tmp_path / written, is_chosen=True)


def test_a_chosen_folder_gets_a_name_in_it(tmp_path: Path) -> None:
    for chosen in (tmp_path, str(tmp_path), f"{tmp_path}/"):
        where = destination(chosen, started=STARTED, workload="code", model="lab-target")
        assert where == Destination(tmp_path / NAME, is_chosen=False)
    where = destination(f"{tmp_path}/new/", started=STARTED, workload="code", model="lab-target")
    assert where == Destination(tmp_path / "new" / NAME, is_chosen=False)


def test_without_a_choice_the_name_is_made(tmp_path: Path) -> None:
    where = destination(None, started=STARTED, workload="code", model="lab-target", folder=tmp_path)
    assert where == Destination(tmp_path / NAME, is_chosen=False)
    where = destination(None, started=STARTED, workload="code", model="lab-target")
    assert where == Destination(recording_folder() / NAME, is_chosen=False)


def test_the_home_folder_can_be_abbreviated() -> None:
    where = destination("~/no-such-folder/run", started=STARTED, workload="code", model="lab-target")
    assert where.path == Path.home() / "no-such-folder" / "run.jsonl.zst"


@pytest.mark.parametrize("chosen", ["", "  "])
def test_an_empty_path_is_refused(chosen: str) -> None:
    with pytest.raises(UsageError):
        destination(chosen, started=STARTED, workload="code", model="lab-target")


def test_numbers_stand_before_the_suffix() -> None:
    paths = list(islice(numbered(Path("a") / NAME), 3))
    stem = NAME.removesuffix(".jsonl.zst")
    assert paths == [Path("a") / NAME, Path("a") / f"{stem}-2.jsonl.zst", Path("a") / f"{stem}-3.jsonl.zst"]


def test_what_is_no_file_cannot_be_recorded_to(tmp_path: Path) -> None:
    """A device, for one: with the suffix it would become a file beside it."""
    os.mkfifo(tmp_path / "pipe")
    for chosen in ("/dev/null", tmp_path / "pipe"):
        with pytest.raises(UsageError, match=r"is no file") as caught:
            destination(chosen, started=STARTED, workload="code", model="lab-target")
        assert "--no-record" in (caught.value.remedy or "")
