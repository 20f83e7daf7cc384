"""`stackscope score`: recordings in, a line for each and one for all, with what did not count and why."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final

import pytest
from typer.testing import CliRunner

from stackscope.analysis.scorecard import Outcome, merged, score_of
from stackscope.cli import app
from stackscope.records import ConfigEvent, Estimate, Prediction
from stackscope.report.score import SessionScore, shown
from stackscope.session.writer import SessionWriter
from stackscope.toggles import EngineConfig
from tests.unit.record_builders import ORIGIN_NS, make_header, make_step

if TYPE_CHECKING:
    from pathlib import Path

    from stackscope.records import AnyRecord, StepRecord

MS: Final = 1_000_000
BEFORE: Final = EngineConfig(model="/models/synthetic-F16.gguf", threads=2, draft_length=3)
AFTER: Final = EngineConfig(model="/models/synthetic-F16.gguf", threads=1, draft_length=3)
CHANGES: Final = {"threads": (2, 1)}


def steps(first: int, n: int, start_ns: int, ms: float, epoch: int) -> list[StepRecord]:
    """Steps without a gap, each of which brings a token and takes so long, give or take a little."""
    made = []
    for i in range(n):
        took = round(ms * MS * (1.0 + 0.01 * (i % 5 - 2)))
        step = make_step(first + i)
        phases = type(step.phases)(decode=took)
        made.append(make_step(first + i, start_ns=start_ns, phases=phases, epoch=epoch, slots=1, slots_busy=1))
        start_ns += took
    return made


def record(path: Path, predicted: Estimate | None, *, is_whole: bool = True) -> Path:
    """A session in which one thread is half as fast as two, which was predicted like that."""
    first = steps(0, 1000, ORIGIN_NS, 10, 0)
    at_ns = first[-1].end_ns
    change = ConfigEvent(at_ns=at_ns, epoch=1, kind="live", changes=CHANGES, config=AFTER)  # type: ignore[arg-type]
    records: list[AnyRecord] = [
        *first,
        Prediction(at_ns=at_ns - 1, changes=CHANGES, tokens=predicted),  # type: ignore[arg-type]
        change,
        *steps(1000, 600, at_ns, 20, 1),
    ]
    header = make_header(config=BEFORE, workload={"concurrency": 1})
    with SessionWriter(path, header) as writer:
        for one in records:
            writer.write(one)
    if not is_whole:
        path.write_bytes(path.read_bytes()[:-40])
    return path


def score(*arguments: Path | str) -> tuple[int, str, str]:
    """(exit code, standard output, standard error)"""
    result = CliRunner(env={"COLUMNS": "100"}).invoke(app, ["score", *map(str, arguments)])
    return result.exit_code, result.stdout, result.stderr


def document(*arguments: Path | str) -> dict[str, Any]:
    code, out, err = score(*arguments, "--json")
    assert (code, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    return found


def test_a_prediction_is_scored_beside_what_was_measured(tmp_path: Path) -> None:
    found = document(record(tmp_path / "right.jsonl.zst", Estimate(0.55, 0.45, 0.65)))
    [session] = found["sessions"]
    [outcome] = session["outcomes"]
    assert outcome["measured"]["value"] == pytest.approx(0.5, rel=0.01)
    assert outcome["error"] == pytest.approx(math.log(0.55 / 0.5), abs=0.01)
    assert (session["scored"], session["signs_right"], session["intervals_held"], session["coverage"]) == (1, 1, 1, 1.0)
    assert found["total"]["scored"] == 1
    assert "outcomes" not in found["total"]


def test_what_was_wrong_counts_against_it(tmp_path: Path) -> None:
    [session] = document(record(tmp_path / "wrong.jsonl.zst", Estimate(1.5, 1.4, 1.6)))["sessions"]
    assert (session["scored"], session["signs"], session["signs_right"], session["intervals_held"]) == (1, 1, 0, 0)


def test_a_folder_stands_for_its_recordings_and_all_are_summed(tmp_path: Path) -> None:
    record(tmp_path / "a.jsonl.zst", Estimate(0.5, 0.4, 0.6))
    record(tmp_path / "b.jsonl.zst", None)
    code, out, err = score(tmp_path)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "session  changes  scored  signs right  median error  intervals held"
    assert lines[1].startswith("a              1       1       1 of 1")
    assert lines[2].split() == ["b", "1", "0", "-", "-", "-"]
    assert lines[3].startswith("total          2       1       1 of 1")
    assert "not scored    1: the prediction gave no number" in out
    assert "too few to judge by" in out


def test_a_recording_that_is_named_twice_counts_once(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    record(path, Estimate(0.5, 0.4, 0.6))
    code, out, _ = score(tmp_path, path, tmp_path / ".." / tmp_path.name / path.name)
    assert code == 0
    assert out.splitlines()[1].startswith("a              1       1       1 of 1")
    assert "total" not in out


def test_a_recording_that_is_cut_off_is_scored_as_far_as_it_goes(tmp_path: Path) -> None:
    _, out, _ = score(record(tmp_path / "cut.jsonl.zst", Estimate(0.5, 0.4, 0.6), is_whole=False))
    assert "note" in out


def test_what_is_no_recording_is_one_sentence(tmp_path: Path) -> None:
    code, out, err = score(tmp_path)
    assert (code, out) == (8, "")
    assert err == f"stackscope: There is no recording in {tmp_path}. Name a folder that has some, or files.\n"
    assert score(tmp_path / "none.jsonl.zst")[0] == 8


def test_lines_keep_to_the_width() -> None:
    outcome = Outcome(at_ns=0, changes={"threads": (2, 1)}, why="it was not predicted")
    one = SessionScore("a-recording-with-a-very-long-name-that-nobody-reads-to-its-end", score_of([outcome] * 3))
    for width in (80, 100):
        for line in shown([one, one], merged([one.score] * 2), width).plain.split("\n"):
            assert len(line) <= width
            assert line == line.rstrip()
    alone = shown([one], one.score, 80).plain
    assert "a-recordi…to-its-end        3       0" in alone
    assert "total" not in alone


def test_without_changes_every_figure_is_unknown_or_none(tmp_path: Path) -> None:
    path = tmp_path / "still.jsonl.zst"
    with SessionWriter(path, make_header()) as writer:
        writer.write(make_step(0))
    assert document(path)["total"] == {
        "changes": 0, "scored": 0, "signs": 0, "signs_right": 0, "median_error": None, "intervals_held": 0,
        "coverage": None, "not_scored": {},
        "why_none": "nothing was changed while it was recorded, so nothing could be predicted and measured",
    }  # fmt: skip


def test_a_recording_without_a_score_says_why(tmp_path: Path) -> None:
    unchanged = tmp_path / "unchanged.jsonl.zst"
    with SessionWriter(unchanged, make_header(config=BEFORE)) as writer:
        writer.write(make_step(0))
    silent = record(tmp_path / "silent.jsonl.zst", None)
    scored = record(tmp_path / "scored.jsonl.zst", Estimate(0.55, 0.45, 0.65))
    code, out, _ = score(unchanged, silent, scored)
    told = " ".join(out.split())
    assert code == 0
    assert "unchanged: nothing was changed while it was recorded, so nothing could be predicted and measured" in told
    assert "silent: of 1 change none counts: the prediction gave no number (1)" in told
    assert "no score scored" not in told
    whys = [one["why_none"] for one in document(unchanged, silent, scored)["sessions"]]
    assert [why is None for why in whys] == [False, False, True]
