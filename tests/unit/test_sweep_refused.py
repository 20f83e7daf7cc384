"""Why configurations of a sweep cannot run: each reason with its remedy, once, and of how many it is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from stackscope.cli import app
from stackscope.report.sweep_refused import by_reason
from tests.unit.ablate_builders import run

if TYPE_CHECKING:
    from pathlib import Path

    from stackscope.experiments.state import CellRun

WHY = "Speculation by draft model needs a draft model: give one with --draft."


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    def ran(*_: object, block: int, cell: int, **__: object) -> CellRun:
        return run(block, cell, 10.0 + cell)

    monkeypatch.setattr("stackscope.commands.sweep.run_cell", ran)
    return tmp_path / "swept"


def test_what_cannot_run_is_told_with_its_reason_everywhere(folder: Path) -> None:
    over = "speculation=off,ngram,draft; draft_length=2,3,7; slots=4,8"
    asked = ["--over", over, "--search", "8", "--model", "lab-target-f16", "--no-quality"]
    done = CliRunner().invoke(app, ["sweep", *asked, "--folder", str(folder)])
    assert done.exit_code == 0, done.stderr
    text = " ".join(done.stdout.split())
    assert "14 configurations, searched with 8 runs at most · 6 of them cannot run" in text
    assert f"cannot run all 6 with speculation=draft: {WHY}" in text
    assert text.count("needs a draft model") == 1

    found = json.loads(CliRunner().invoke(app, ["sweep", "--folder", str(folder), "--json"]).stdout)
    assert [why for _, why in found["refused"]] == [WHY] * 6
    (group,) = found["refused_by_reason"]
    assert (group["why"], len(group["configurations"])) == (WHY, 6)

    for page in ("page.html", "page.md"):
        made = CliRunner().invoke(app, ["report", str(folder), "--output", str(folder / page)])
        assert made.exit_code == 0, made.stderr
        content = (folder / page).read_text(encoding="utf-8")
        assert "6 of 14 configurations." in content
        assert content.count("needs a draft model") == 1


def test_configurations_that_share_nothing_of_their_own_are_named() -> None:
    labels = [f"slots={n} kv=q8" for n in range(1, 7)]
    space = [*labels, "slots=9 kv=q8"]
    (found,) = by_reason([(label, "No room.") for label in labels], space)
    assert found.text == (
        "6 configurations (slots=1 kv=q8; slots=2 kv=q8; slots=3 kv=q8; slots=4 kv=q8; 2 more): No room."
    )
    assert [one.text for one in by_reason([("a", "No."), ("b", "Not.")], ["a", "b"])] == ["a: No.", "b: Not."]
