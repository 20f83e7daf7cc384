"""No option is ignored without a word: what would do nothing is refused in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner

from stackscope.cli import app

CHAT: Final = str(Path(__file__).parents[2] / "profiles" / "chat.jsonl.zst")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("run --theme dark", "--theme would do nothing: `run` has no screen."),
        ("run --no-ascii --refresh 2", "--no-ascii and --refresh would do nothing: `run` has no screen."),
        ("run --no-record --record-text", "--record-text would do nothing: --no-record records nothing."),
        ("report {}/experiment --ttft-limit 5", "--ttft-limit would do nothing: an experiment is judged by"),
        ("report {}/experiment/experiment.jsonl --tpot-limit 5", "--tpot-limit would do nothing"),
        (f"report {CHAT} --replace", "--replace would do nothing: no file is written."),
        ("learn --quick", "That is about one lesson."),
        ("learn --model lab-target-f16", "That is about one lesson."),
        ("learn 1 --show --quick", "--show runs nothing"),
        ("learn 1 --show --model lab-target-f16", "--show runs nothing"),
        ("learn 1 --show -o x.json", "--show runs nothing"),
        ("learn 1 --replace", "Your own result is always replaced by a newer one."),
        ("ablate --blocks 3 --minutes 5", "--blocks says how many there are, so that --minutes would do nothing."),
        ("ablate --quick --minutes 5", "--quick has three blocks, so that --minutes would do nothing."),
        ("sweep {}/sweep.toml", "sweep.toml: the option json would do nothing in a sweep."),
        ("sweep --over slots=1,2 --search 8 --blocks 2", "A search decides by itself"),
        ("calibrate --show --full", "--show measures nothing"),
    ],
)
def test_what_would_do_nothing_is_refused(arguments: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "experiment.jsonl").touch()
    (tmp_path / "sweep.toml").write_text("[axes]\nslots = [1, 2]\n[options]\njson = true\n")
    done = CliRunner().invoke(app, arguments.format(tmp_path).split())
    assert done.exit_code == 2
    assert done.stdout == ""
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
