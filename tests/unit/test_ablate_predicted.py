"""What an ablation says of the cells that nothing was predicted of."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
from typer.testing import CliRunner

from stackscope.cli import app
from stackscope.records import Prediction
from tests.unit.ablate_builders import run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pytest

    from stackscope.experiments.state import CellRun
    from stackscope.toggles import EngineConfig

FEW, WIDE = "Only 43 rounds have been scored yet.", "Anything is possible: run stackscope calibrate."


def test_of_a_cell_without_a_prediction_the_newest_reason_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def ran(*_: object, block: int, cell: int, **__: object) -> CellRun:
        return msgspec.structs.replace(run(block, cell, 10.0 + cell), recording=f"{block}-{cell}.jsonl.zst")

    def foreseen(
        recordings: Sequence[Path], cells: Mapping[int, EngineConfig], _: EngineConfig
    ) -> dict[int, Prediction]:
        reason = FEW if len(recordings) == 1 else WIDE
        return {cell: Prediction(at_ns=0, changes={}, reason=reason) for cell in cells}

    monkeypatch.setattr("stackscope.commands.ablate.run_cell", ran)
    monkeypatch.setattr("stackscope.commands.ablate.explained.predictions", foreseen)
    asked = ["--model", "lab-target-f16", "--factors", "slots=4", "--blocks", "4", "--no-quality", "--json"]
    done = CliRunner().invoke(app, ["ablate", *asked, "--folder", str(tmp_path / "new")])
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert {one["reason"] for one in found["predictions"].values()} == {WIDE}
    assert found["notes"][0] == f"Not everything was predicted: {WIDE}"
