"""`stackscope sweep` with a fake engine: grids, searches, kills, and files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import TYPE_CHECKING, Any

from tests.integration.ablate_support import TRAFFIC, command, lines, runs, start
from tests.integration.cli_support import DEADLINE_S, ROOT, until

if TYPE_CHECKING:
    from pathlib import Path

MODEL = ("--model", "lab-target-f16", "--no-quality")
EIGHT = "speculation=off,ngram; kv_type=f16,q8_0; slots=8,4"


def sweep(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command("sweep", *arguments), capture_output=True, text=True, cwd=ROOT, timeout=DEADLINE_S, check=False
    )


def sweep_json(*arguments: str | Path) -> dict[str, Any]:
    done = sweep("--json", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_a_grid_runs_everything_in_every_block(tmp_path: Path) -> None:
    found = sweep_json(*MODEL, *TRAFFIC, "--over", EIGHT, "--blocks", "2", "--folder", tmp_path)
    assert sorted(runs(tmp_path)) == [(block, cell) for block in range(2) for cell in range(8)]
    assert (found["configurations"], found["runs"]) == (8, 16)
    winner = found["rows"][0]
    assert winner["label"] == "speculation=ngram kv_type=q8_0 slots=4"
    assert found["winner"] == winner["cell"]
    assert "--speculation ngram" in winner["command"]
    assert winner["pareto"]


def test_a_search_that_is_killed_goes_on_within_its_budget(tmp_path: Path) -> None:
    asked = (*MODEL, *TRAFFIC, "--over", f"{EIGHT}; token_budget=64,128,256", "--search", "10", "--folder", tmp_path)
    with start("sweep", *asked) as running:
        until(lambda: len(runs(tmp_path)) >= 4)
        os.kill(running.pid, signal.SIGKILL)
        running.wait()
    kept = lines(tmp_path)
    found = sweep_json("--folder", tmp_path)
    assert lines(tmp_path)[: len(kept)] == kept
    assert (found["configurations"], found["runs"]) == (24, 10)
    assert len(runs(tmp_path)) == len(set(runs(tmp_path))) == 10
    assert found["winner"] is not None
    again = sweep_json(*asked)
    assert again["rows"] == found["rows"]
    assert len(runs(tmp_path)) == 10


def test_it_says_how_much_it_will_run_before_it_does_and_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[axes]\nspeculation = ["off", "ngram"]\nslots = [8, 4]\n')
    asked = (*MODEL, *TRAFFIC, path, "--over", "kv_type=f16,q8_0", "--folder")
    grid = sweep(*asked, tmp_path / "grid", "--blocks", "1").stderr.splitlines()
    assert grid[0] == "stackscope: 8 configurations in 1 block: 8 runs"
    assert len(grid) == 9
    [over] = sweep("--folder", tmp_path / "grid").stderr.splitlines()
    assert over == "stackscope: 8 configurations in 1 block: 8 runs; 8 were there already, and none is missing"
    searched = sweep(*asked, tmp_path / "searched", "--search", "5").stderr.splitlines()
    assert searched[0] == "stackscope: 8 configurations, searched with 5 runs at most"
    assert searched[1].startswith("stackscope: looking, run 1 of 5: ")
    [over] = sweep("--folder", tmp_path / "searched").stderr.splitlines()
    n = len(runs(tmp_path / "searched"))
    assert over == f"{searched[0]}; {n} were there already, and none is missing"


def test_a_file_names_axes_options_and_limits_and_the_command_line_has_the_last_word(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'constraints = "step_gap_p95 < 1ms"\n[axes]\nspeculation = ["off", "ngram"]\nslots = [8, 4]\n'
        '[options]\nworkload = "unique"\nrequests = 4\nconcurrency = 2\nmax_tokens = 4\n'
    )
    asked = (*MODEL, path, "--over", "slots=4,2", "--blocks", "1", "--folder", tmp_path / "results")
    found = sweep_json(*asked)
    assert [axis["name"] for axis in found["plan"]["axes"]] == ["speculation", "slots"]
    assert [value["text"] for value in found["plan"]["axes"][1]["values"]] == ["4", "2"]
    assert found["plan"]["workload"]["requests"] == 6
    # Steps of two milliseconds keep no limit of one.
    assert found["winner"] is None
    assert not any(row["keeps"] for row in found["rows"])
    done = sweep("--folder", tmp_path / "results")
    assert "no configuration that ran keeps" in " ".join(done.stdout.split())


def test_what_cannot_be_is_one_line(tmp_path: Path) -> None:
    for arguments, says in (
        (("--over", "kv_tpye=f16,q8_0"), "Did you mean kv_type"),
        (("--over", EIGHT, "--search", "2"), "at least 4"),
        (("--over", EIGHT, "--constraints", "ttft < 1"), "no figure ttft"),
        ((), "nothing to sweep over"),
        (("nowhere.toml",), "nowhere.toml"),
    ):
        done = sweep(*MODEL, *arguments, "--folder", tmp_path / "new")
        assert done.returncode == 2
        assert says in done.stderr
        assert done.stderr.count("\n") == 1
