"""`stackscope compare`: stored texts, JSON, exit statuses, and what is refused in one sentence."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from typer.testing import CliRunner

from stackscope.analysis.comparing.comparison import compare_digests
from stackscope.cli import app
from stackscope.experiments import comparing
from stackscope.experiments.comparing import compare, digests
from stackscope.records import GpuSample
from stackscope.report import compare as report
from stackscope.session.format import encode_all
from tests.unit.compare_sessions import Run

if TYPE_CHECKING:
    from stackscope.analysis.comparing.comparison import Comparison

GOLDEN: Final = Path(__file__).parent.parent / "golden"
UPDATE: Final = "UPDATE_GOLDEN"
"""Environment variable that has the stored texts written anew, to be read before they are committed."""

PROFILES: Final = Path(__file__).parents[2] / "profiles"

RUNS: Final[dict[str, tuple[Run, ...]]] = {
    "slower": (Run(), Run(noise=2, base_ns=6e6, config={"kv_type_k": "q8_0", "kv_type_v": "q8_0"})),
    "drafts": (Run(), Run(drafted=3, noise=2, config={"speculation": "draft"}), Run(noise=3)),
    "warm": (Run(), Run(noise=2, hit=0.92)),
    "few": (
        Run(requests=6, gpu=GpuSample(uuid="G", name="G", is_used=True, throttle=())),
        Run(
            requests=6, work=1, noise=2, workload={"seed": 1}, footer=None, header={"host": "there"},
            gpu=GpuSample(uuid="G", name="G", is_used=True, throttle=("temperature",)),
        ),
    ),
}  # fmt: skip


def compared(name: str) -> Comparison:
    return compare_digests([run.digest(f"run-{n}.jsonl.zst") for n, run in enumerate(RUNS[name])])


@pytest.fixture
def recordings(tmp_path: Path) -> tuple[str, str]:
    """Two sessions, the second of which is slower by a sixth."""
    paths = []
    for name, run in zip(("a", "b"), RUNS["slower"], strict=True):
        path = tmp_path / f"{name}.jsonl"
        path.write_bytes(encode_all(run.records()))
        paths.append(str(path))
    return paths[0], paths[1]


def invoked(*options: str, **environment: str) -> tuple[int, str, str]:
    """(exit code, standard output, standard error)"""
    result = CliRunner(env={"COLUMNS": "80", **environment}).invoke(app, ["compare", *options])
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", RUNS)
def test_it_looks_as_stored(name: str, width: int) -> None:
    shown = report.shown(compared(name), [], min(width, 100)).plain + "\n"
    path = GOLDEN / f"compare-{name}-{width}.txt"
    if os.environ.get(UPDATE):
        path.write_text(shown, encoding="utf-8")
    assert shown == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", RUNS)
def test_no_sentence_stands_there_twice(name: str) -> None:
    comparison = compared(name)
    words = " ".join(report.shown(comparison, [], 100).plain.split())
    texts = [concern.text for versus in comparison.versus for concern in versus.concerns]
    assert [text for text in texts if words.count(text) != 1] == []


@pytest.mark.parametrize("width", [78, 80, 100])
@pytest.mark.parametrize("name", RUNS)
def test_lines_keep_to_the_width_without_trailing_spaces(name: str, width: int) -> None:
    for line in report.shown(compared(name), [], width).plain.split("\n"):
        assert line == line.rstrip()
        assert len(line) <= width, line


def test_colour_is_never_the_only_sign(recordings: tuple[str, str]) -> None:
    code, out, _ = invoked(*recordings, NO_COLOR="1")
    assert code == 0
    assert "\x1b" not in out
    assert "B is slower than A" in out
    assert "worse" in out


def test_the_document_has_everything(recordings: tuple[str, str]) -> None:
    code, out, err = invoked(*recordings, "--json", "--fail-if", "tpot_p50 > +5%")
    assert (code, err) == (1, "")
    found: dict[str, Any] = json.loads(out)
    assert [one["letter"] for one in found["sessions"]] == ["A", "B"]
    (versus,) = found["versus"]
    assert versus["verdict"] == "slower"
    assert versus["figures"]["tpot_p50"]["ratio"]["low"] > 1.05
    assert versus["figures"]["tpot_p50"]["standing"] == "worse"
    assert versus["moved"]["step"]["change_ns"] > 0
    assert found["fail_if"][0]["outcome"] == "broken"


def test_a_broken_limit_ends_in_one(recordings: tuple[str, str]) -> None:
    code, out, err = invoked(*recordings, "--fail-if", "tpot_p50 > +5%", "--fail-if", "ttft_p50 > 10s")
    assert (code, err) == (1, "")
    words = " ".join(out.split())
    assert "fails tpot_p50 > +5% holds for B against A: TPOT p50 +" in words
    assert "passes ttft_p50 > 10s is not shown to hold for B: TTFT p50" in words


def test_limits_that_are_kept_end_in_zero(recordings: tuple[str, str]) -> None:
    assert invoked(*recordings, "--fail-if", "tpot_p50 > +60%, tokens_per_s < -60%")[0] == 0
    assert invoked(recordings[1], recordings[0], "--fail-if", "tpot_p50 > +5%")[0] == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--fail-if", "speed > +5%"), "is no figure"),
        (("--fail-if", "tpot_p50 > fast"), "is no condition"),
        (("--warmup", "-1"), "--warmup is a number of seconds"),
        (("--warmup", "nan"), "--warmup is a number of seconds"),
    ],
)
def test_what_makes_no_sense_ends_in_two(recordings: tuple[str, str], options: tuple[str, ...], message: str) -> None:
    code, out, err = invoked(*recordings, *options)
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())


def test_one_recording_is_not_enough(recordings: tuple[str, str]) -> None:
    code, _, err = invoked(recordings[0])
    assert code == 2
    assert "Give two recordings or more." in err


def test_what_is_not_comparable_is_not_judged(tmp_path: Path, recordings: tuple[str, str]) -> None:
    warm = tmp_path / "warm.jsonl"
    warm.write_bytes(encode_all(RUNS["warm"][1].records()))
    code, out, err = invoked(recordings[0], str(warm), "--fail-if", "tpot_p50 > +5%")
    assert (code, out) == (2, "")
    assert "--fail-if cannot be judged: A and B are not comparable." in " ".join(err.split())
    assert invoked(recordings[0], str(warm), "--fail-if", "tpot_p50 > +50%", "--anyway")[0] == 0
    assert invoked(recordings[0], str(warm))[0] == 0


def test_a_file_that_is_no_session_is_refused_before_anything_is_read(recordings: tuple[str, str]) -> None:
    code, _, err = invoked(recordings[0], "nowhere.jsonl.zst")
    assert code == 8
    assert "nowhere.jsonl.zst does not exist" in err
    assert invoked(recordings[0], __file__)[0] == 8


def test_warm_up_is_left_out_of_all(recordings: tuple[str, str]) -> None:
    code, out, _ = invoked(*recordings, "--warmup", "1.5")
    assert code == 0
    assert out.count("steps of warm-up left out") == 2


def test_recorded_sessions_are_compared() -> None:
    found = compare([PROFILES / "chat.jsonl.zst", PROFILES / "code-q8.jsonl.zst"])
    assert [facts.steps for facts in found.sessions] == [277, 252]
    assert found.versus[0].verdict == "not comparable"
    mixed = compare([PROFILES / "chat.jsonl.zst", PROFILES / "story.jsonl.zst"]).versus[0]
    assert "epochs" in [one.kind for one in mixed.concerns if one.is_barrier]


def test_large_recordings_are_read_in_processes(recordings: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes back is what reading in this process gives."""
    together = digests(recordings)
    monkeypatch.setattr(comparing, "WORTH_A_PROCESS", 1)
    apart = digests((*recordings, recordings[0]))
    assert [one.values for one in apart] == [one.values for one in (*together, together[0])]
    assert [one.name for one in apart] == ["a.jsonl", "b.jsonl", "a.jsonl"]


def test_settings_are_shown_exactly(tmp_path: Path) -> None:
    paths = []
    for share in (0.008, 0.0124):
        path = tmp_path / f"{share}.jsonl"
        path.write_bytes(encode_all(Run(config={"shadow_share": share}).records()))
        paths.append(str(path))
    assert "shadow-share 0.008 → 0.0124\n" in invoked(*paths)[1]
    done = CliRunner().invoke(app, ["report", *paths])
    assert "shadow-share 0.008 → 0.0124" in done.stdout
