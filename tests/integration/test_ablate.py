"""`stackscope ablate` from its first run to the report, mostly with a fake engine: kills, interruptions, new plans."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from stackscope.session.reader import read_session
from tests.integration.ablate_support import TRAFFIC, command, lines, runs, start, stored
from tests.integration.cli_support import DEADLINE_S, ROOT, STACKSCOPE, until

if TYPE_CHECKING:
    from pathlib import Path

FACTORS = ("--model", "lab-target-f16", "--factors", "speculation=ngram,slots=4")
CELLS = (0, 1, 2, 3)


def ablate(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command("ablate", *arguments), capture_output=True, text=True, cwd=ROOT, timeout=DEADLINE_S, check=False
    )


def ablate_json(*arguments: str | Path) -> dict[str, Any]:
    done = ablate("--json", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_every_cell_runs_once_in_every_block_and_effects_come_out(tmp_path: Path) -> None:
    found = ablate_json(*FACTORS, *TRAFFIC, "--blocks", "3", "--folder", tmp_path)
    assert sorted(runs(tmp_path)) == [(block, cell) for block in range(3) for cell in CELLS]
    assert (found["blocks"], found["runs"], found["interrupted"]) == (3, 12, False)
    by_cell = {cell["label"]: cell for cell in found["cells"]}
    assert list(by_cell) == ["baseline", "speculation=ngram", "slots=4", "speculation=ngram, slots=4"]
    # Its forwards sleep for half the time, on a machine that may be busy with other tests.
    assert 1.2 < by_cell["speculation=ngram"]["speed_up"]["value"] < 4.0
    assert by_cell["baseline"]["figures"]["warmup_requests"] == 2
    assert by_cell["baseline"]["figures"]["e2e_n"] == 18
    assert [one["names"] for one in found["interactions"]] == ["speculation × slots"]
    assert found["verdict"]
    recordings = sorted(path.name for path in tmp_path.glob("*.zst"))
    assert recordings == sorted(line["recording"] for line in stored(tmp_path))
    assert len(recordings) == 12


def test_a_kill_in_the_middle_costs_the_run_that_was_on(tmp_path: Path) -> None:
    asked = (*FACTORS, *TRAFFIC, "--blocks", "3", "--folder", tmp_path)
    with start("ablate", *asked) as running:
        until(lambda: len(runs(tmp_path)) >= 5)
        os.kill(running.pid, signal.SIGKILL)
        running.wait()
    kept = lines(tmp_path)
    with (tmp_path / "experiment.jsonl").open("ab") as file:
        file.write(b'{"type":"run","block":1')
    found = ablate_json("--folder", tmp_path)
    assert lines(tmp_path)[: len(kept)] == kept
    assert sorted(runs(tmp_path)) == [(block, cell) for block in range(3) for cell in CELLS]
    assert (found["blocks"], found["runs"]) == (3, 12)
    again = ablate_json(*asked)
    assert again["cells"] == found["cells"]
    assert len(runs(tmp_path)) == 12


def test_another_plan_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    ablate_json(*FACTORS, *TRAFFIC, "--blocks", "2", "--folder", tmp_path)
    before = (tmp_path / "experiment.jsonl").read_bytes()
    done = ablate(*FACTORS, *TRAFFIC, "--blocks", "4", "--folder", tmp_path)
    assert done.returncode == 2
    assert "another plan (blocks.first: 2, now 4" in done.stderr
    assert done.stderr.count("\n") == 1
    assert (tmp_path / "experiment.jsonl").read_bytes() == before


def test_without_a_terminal_it_says_what_it_runs_and_what_was_there(tmp_path: Path) -> None:
    asked = (*FACTORS, *TRAFFIC, "--blocks", "2", "--no-quality", "--folder", tmp_path)
    first = ablate(*asked).stderr.splitlines()
    assert first[0] == "stackscope: 4 cells in 2 blocks: 8 runs"
    assert [line.partition(": ")[2].partition(":")[0] for line in first[1:]] == [
        f"block {1 + n // 4} of 2, run {n + 1} of 8" for n in range(8)
    ]
    results = tmp_path / "experiment.jsonl"
    *kept, _ = results.read_bytes().splitlines(keepends=True)
    results.write_bytes(b"".join(kept))
    again = ablate("--folder", tmp_path).stderr.splitlines()
    assert again[0] == "stackscope: 4 cells in 2 blocks: 8 runs; 7 were there already"
    assert len(again) == 2
    [over] = ablate("--folder", tmp_path).stderr.splitlines()
    assert over == "stackscope: 4 cells in 2 blocks: 8 runs; 8 were there already, and none is missing"


def test_ctrl_c_shows_what_there_is_and_says_how_to_go_on(tmp_path: Path) -> None:
    with start("ablate", *FACTORS, *TRAFFIC, "--blocks", "50", "--folder", tmp_path) as running:
        until(lambda: len(runs(tmp_path)) >= 9)
        running.signal(signal.SIGINT)
        assert running.wait() == 130
        shown = running.output
    assert f"stackscope ablate --folder {tmp_path}" in " ".join(shown.split())
    assert "verdict" in shown
    assert "speculation × slots" in shown


def test_the_report_fits_a_terminal(tmp_path: Path) -> None:
    done = ablate(*FACTORS, *TRAFFIC, "--quick", "--full", "--folder", tmp_path)
    assert done.returncode == 0
    assert [line for line in done.stdout.splitlines() if len(line) > 80 and str(tmp_path) not in line] == []
    assert "Quick: 3 blocks instead of 8" in " ".join(done.stdout.split())
    for word in ("baseline", "product of singles", "step gap p95", "useful hits", "verdict", "results"):
        assert word in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--factors", "speculatoin=draft"), "Did you mean speculation"),
        (("--blocks", "1"), "2 to 1,000 --blocks"),
        (("--minutes", "0"), "above 0, up to 100,000"),
        (("--workload", "nowhere"), "nowhere"),
    ],
)
def test_what_cannot_be_is_one_line(arguments: tuple[str, ...], says: str, tmp_path: Path) -> None:
    done = ablate("--model", "lab-target-f16", *arguments, "--folder", tmp_path / "new")
    assert done.returncode != 0
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "new" / "experiment.jsonl").exists()


@pytest.mark.engine
def test_the_real_engine_is_measured_on_the_same_requests_in_every_cell(tmp_path: Path) -> None:
    asked = ("--model", "lab-target-f16", "--draft", "lab-draft-f16", "--factors", "speculation=draft,prefix_cache=on")
    traffic = ("--blocks", "2", "--requests", "6", "--concurrency", "2")
    line = [*STACKSCOPE, "ablate", *asked, *traffic, "--json", "--folder", str(tmp_path)]
    done = subprocess.run(line, capture_output=True, text=True, cwd=ROOT, timeout=DEADLINE_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    figures = {cell["cell"]: cell["figures"] for cell in found["cells"]}
    assert {cell: one["output_tokens"] for cell, one in figures.items()} == dict.fromkeys(CELLS, 6 * 32.0)
    assert {cell: one["e2e_n"] for cell, one in figures.items()} == dict.fromkeys(CELLS, 12.0)
    assert "acceptance" not in figures[0]
    assert 0 < figures[1]["acceptance"] < 1
    assert figures[2]["useful_hit_rate"] > 0.2
    session = read_session(tmp_path / found_recording(tmp_path, 3))
    assert session.header.config is not None
    assert (session.header.config.speculation, session.header.config.prefix_cache) == ("draft", True)


def found_recording(folder: Path, cell: int) -> str:
    return str(next(line["recording"] for line in stored(folder) if line["cell"] == cell))
