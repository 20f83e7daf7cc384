"""`stackscope replay` without a terminal: its options, and what a recording comes to by them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from typer.testing import CliRunner

from stackscope.analysis.metrics.base import ServiceLimits
from stackscope.cli import app
from stackscope.report.page.gather import gather
from stackscope.session.format import encode_all
from stackscope.session.reader import SessionReader
from stackscope.session.writer import SessionWriter
from tests.explained_story import STORY
from tests.unit.report_sessions import header, request, steps

if TYPE_CHECKING:
    from stackscope.report.text import RunReport


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "a.jsonl.zst"
    with SessionWriter(path, header()) as writer:
        writer.write_line(encode_all([*steps(20), request(0), request(1)]))
    return path


def replayed(path: Path, *options: str, **environment: str) -> tuple[int, str]:
    """(exit code, all that was printed)"""
    result = CliRunner().invoke(app, ["replay", str(path), *options], env=environment)
    return result.exit_code, result.output


def test_limits_are_applied_to_what_was_recorded(recording: Path) -> None:
    assert "in time" not in replayed(recording)[1]
    code, out = replayed(recording, "--ttft-limit", "100")
    assert code == 0
    assert "in time       100 % within a TTFT of 100 ms" in out
    assert "in time       0 % within a TTFT of 100 ms and a TPOT of 1 ms" in replayed(
        recording, "--ttft-limit=100", STACKSCOPE_TPOT_LIMIT="1"
    )[1]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--refresh", "20"), "stackscope: --refresh must be a number from 0.1 to 10, not '20'."),
        (("--ttft-limit", "0"), "stackscope: --ttft-limit must be a number above 0, not '0'."),
        (("--theme", "pink"), "stackscope: --theme must be one of auto, dark, light, ansi, mono, not 'pink'.\n"),
        (("--slots", "4"), "No such option"),
    ],
)
def test_a_mistake_is_named(recording: Path, options: tuple[str, ...], message: str) -> None:
    code, out = replayed(recording, *options)
    assert code == 2
    assert message in out


def test_the_settings_file_counts(recording: Path, tmp_path: Path) -> None:
    settings = tmp_path / "mine.toml"
    settings.write_text("[limits]\nttft_ms = 1\n[screen]\ntheme = 'light'\n[keys]\nmark = 'M'\n")
    assert "in time       0 % within a TTFT of 1 ms" in replayed(recording, "--config", str(settings))[1]


def test_keys_that_cannot_be_are_told_once_with_their_file(recording: Path, tmp_path: Path) -> None:
    settings = tmp_path / "mine.toml"
    settings.write_text("[keys]\nmark = 'hyper+q'\npause = 'f2'\n")
    code, told = replayed(recording, "--config", str(settings))
    assert code == 0
    assert told.count(f"stackscope: {settings}: [keys] mark: there is no key hyper+q") == 1
    assert "pause" not in told


def test_what_it_says_would_help_is_what_the_engine_would_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rules know what memory a configuration takes, and which it refuses."""
    shown: list[RunReport] = []
    monkeypatch.setattr("stackscope.report.output.show", lambda made: shown.append(made.args[0]))
    CliRunner().invoke(app, ["replay", str(STORY)])
    [report] = shown
    assert report.explanation is not None
    assert report.explanation.ranking is not None
    told = [one.prediction for one in report.explanation.ranking.singles]
    assert any(one.memory_bytes is not None for one in told)
    assert gather(SessionReader(STORY), ServiceLimits()).explanation.ranking == report.explanation.ranking


def test_advice_on_threads_goes_by_the_cores_of_the_machine_that_recorded(tmp_path: Path) -> None:
    path = tmp_path / "two-cores.jsonl.zst"
    reader = SessionReader(STORY)
    with SessionWriter(path, msgspec.structs.replace(reader.header, cores=2)) as writer:
        for record in list(reader)[1:]:
            writer.write(record)
    for recording, is_advised in ((STORY, False), (path, True)):
        ranking = gather(SessionReader(recording), ServiceLimits()).explanation.ranking
        assert ranking is not None
        assert any("threads" in one.prediction.changes for one in ranking.singles) is is_advised


def test_predictions_of_changes_are_scored_and_without_changes_there_is_nothing_to_score(recording: Path) -> None:
    story = Path(__file__).parents[2] / "profiles" / "story.jsonl.zst"
    assert "4 predictions scored:" in replayed(story)[1]
    assert "\npredictions " not in replayed(recording)[1]
