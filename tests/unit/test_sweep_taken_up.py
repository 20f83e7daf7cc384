"""Options beside the folder of a sweep are held against it, whether they name its axes again or not."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from stackscope.cli import app
from stackscope.commands.experiment_models import ModelMaker, teller
from stackscope.commands.sweep import SweepOptions, plan_of
from stackscope.experiments.state import NAME, StateFile
from tests.unit.ablate_builders import plan as ablation_plan

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    asked = SweepOptions(over="speculation=off,ngram; draft_length=2,3", search=8)
    of = plan_of({}, asked, config=None, maker=ModelMaker(teller(is_quiet=True)))
    with StateFile.open(tmp_path / "swept", "sweep", of):
        pass
    return tmp_path / "swept"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--slots", "3", "--search", "8"), r"\(base\.slots: \d+, now 3\)"),
        (("--search", "12"), r"\(budget: 8, now 12\)"),
        (("--slots", "3"), r"base\.slots: .*budget: 8, now -"),
    ],
)
def test_a_difference_is_named_without_the_axes(options: tuple[str, ...], named: str, folder: Path) -> None:
    before = (folder / NAME).read_bytes()
    done = CliRunner().invoke(app, ["sweep", "--folder", str(folder), *options])
    told = " ".join(done.stderr.split())
    assert done.exit_code == 2
    assert f"The experiment in {folder} has another plan (" in told
    assert re.search(named, told)
    assert "Go on with the one that is there by naming the folder alone" in told
    assert (folder / NAME).read_bytes() == before


def test_the_folder_of_an_ablation_is_no_sweep(tmp_path: Path) -> None:
    with StateFile.open(tmp_path / "ablated", "ablation", ablation_plan()):
        pass
    done = CliRunner().invoke(app, ["sweep", "--folder", str(tmp_path / "ablated"), "--slots", "4"])
    assert done.exit_code == 2
    assert "has another kind of experiment: ablation." in done.stderr


def test_where_there_is_no_sweep_yet_axes_are_asked_for(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["sweep", "--folder", str(tmp_path / "new"), "--slots", "4"])
    assert done.exit_code == 2
    assert "nothing to sweep over" in done.stderr
