"""`stackscope run` from outside, on the bundled models: what it prints, records and exits with, and how it ends."""

from __future__ import annotations

import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from stackscope.analysis.summary import RunSummary
from stackscope.model.catalog import bundled_target
from stackscope.records import Footer, Header, RequestRecord
from stackscope.session.paths import recording_folder
from stackscope.session.reader import SessionReader
from tests.integration import cli_support
from tests.integration.cli_support import SMALL, Running, run, run_json, start, start_with, until
from tests.unit.tiny_models import write_tiny

if TYPE_CHECKING:
    from stackscope.records import AnyRecord

pytestmark = pytest.mark.engine

TROUBLED: Final = "tests.integration.troubled_engines:"
ESCAPE: Final = "\x1b"
ENDLESS: Final = (*SMALL, "--duration", "600", "--max-tokens", "40")


def read(path: Path) -> list[AnyRecord]:
    return list(SessionReader(path))


def footer_of(path: Path) -> Footer:
    footer = read(path)[-1]
    assert isinstance(footer, Footer)
    return footer


def is_recording(path: Path) -> bool:
    """A step has been flushed: the file is larger than its header."""
    return path.exists() and path.stat().st_size > 4_000


# A run that succeeds


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """(the object for machines, its recording) of six requests."""
    path = tmp_path_factory.mktemp("recording") / "six.jsonl.zst"
    options = ("--requests", "6", "--max-tokens", "12", "--record", path, "--record-text", "--speculation", "ngram")
    return run_json(*SMALL, *options), path


def test_the_object_for_machines_says_what_ran(finished: tuple[dict[str, Any], Path]) -> None:
    document, path = finished
    assert document["model"] == "stackscope-lab-target"
    assert document["recording"] == str(path)
    assert document["requests"] == {"length": 6}
    assert document["output_tokens"] == 6 * 12
    assert document["config"]["speculation"] == "ngram"
    assert document["workload"]["seed"] == 0
    assert (document["ended"], document["interrupted"], document["notes"], document["failures"]) == (
        "done", False, [], {},
    )  # fmt: skip


def test_the_recording_has_the_numbers_that_were_printed(finished: tuple[dict[str, Any], Path]) -> None:
    document, path = finished
    recorded = RunSummary()
    for record in SessionReader(path):
        recorded.write(record)
    figures = json.loads(json.dumps(recorded.to_dict()))
    assert {name: document[name] for name in figures} == figures


def test_the_recording_has_texts_when_asked(finished: tuple[dict[str, Any], Path]) -> None:
    header, *records = read(finished[1])
    assert isinstance(header, Header)
    assert header.records_text
    requests = [record for record in records if isinstance(record, RequestRecord)]
    assert len(requests) == 6
    assert all(request.prompt and request.output for request in requests)


def test_a_summary_for_people_and_no_recording() -> None:
    before = set(recording_folder().glob("*"))
    done = run(*SMALL, "--requests", "2", "--max-tokens", "4", "--no-record")
    assert (done.returncode, done.stderr) == (0, "")
    assert "requests      2 reached their limit\n" in done.stdout
    assert "recording" not in done.stdout
    assert ESCAPE not in done.stdout
    assert all(line == line.rstrip() for line in done.stdout.splitlines())
    assert set(recording_folder().glob("*")) == before


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_standard_stream_that_is_closed_leads_nowhere(closed: str, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl.zst"
    options = (*SMALL, "--requests", "2", "--max-tokens", "2", "--record", str(path))
    command = shlex.join([*cli_support.STACKSCOPE, "run", *options])
    done = subprocess.run(f"{command} {closed}", shell=True, cwd=cli_support.ROOT, timeout=60, check=False)
    assert done.returncode == 0
    assert footer_of(path).requests == 2


def test_by_default_it_records_where_recordings_go() -> None:
    document = run_json(*SMALL, "--requests", "1", "--max-tokens", "2")
    path = Path(document["recording"])
    try:
        assert path.parent == recording_folder()
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-unique-lab-target-f16(-\d+)?\.jsonl\.zst", path.name)
        assert footer_of(path).requests == 1
    finally:
        path.unlink()


def test_a_folder_to_record_to_is_made(tmp_path: Path) -> None:
    document = run_json(*SMALL, "--requests", "1", "--max-tokens", "2", "--record", f"{tmp_path}/new/")
    assert Path(document["recording"]).parent == tmp_path / "new"
    assert footer_of(Path(document["recording"])).reason == "done"


def test_progress_is_for_a_terminal_and_the_summary_for_standard_output() -> None:
    # Long enough for the line to be drawn in the middle of it, on a fast machine too.
    with start(*SMALL, "--requests", "24", "--max-tokens", "150", "--no-record") as running:
        assert running.wait() == 0
        assert "loading lab-target-f16.gguf" in running.terminal
        assert re.search(r"running .* \d+ of 24 requests  [\d.,]+ tok/s", running.terminal)
        assert "requests      24 reached their limit\n" in running.output
        assert ESCAPE not in running.output
        assert "\x1b[?25l" not in running.terminal.rpartition("\x1b[?25h")[2]


@pytest.mark.parametrize("columns", [80, 40])
def test_the_progress_line_is_one_line(columns: int) -> None:
    with start(*SMALL, "--requests", "8", "--max-tokens", "40", "--no-record", columns=columns) as running:
        assert running.wait() == 0
        assert "running" in running.terminal
        frames = [frame for frame in running.terminal.split("\r") if "running" in frame]
        for frame in frames:
            text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", frame).rstrip("\n")
            assert "\n" not in text
            assert len(text) <= columns


def test_a_run_for_machines_says_nothing_on_the_terminal() -> None:
    with start(*SMALL, "--requests", "2", "--max-tokens", "4", "--no-record", "--json") as running:
        assert running.wait() == 0
        assert running.terminal == ""
        assert len(running.output.splitlines()) == 1
        assert json.loads(running.output)["requests"] == {"length": 2}


# Death


def test_an_engine_that_is_killed_is_reported_with_what_ran(tmp_path: Path) -> None:
    path = tmp_path / "killed.jsonl.zst"
    with start(*ENDLESS, "--record", path) as running:
        until(lambda: is_recording(path))
        engine = running.engine_pid
        assert engine is not None
        os.kill(engine, signal.SIGKILL)
        assert running.wait() == 7
        assert (
            "stackscope: The engine process was killed by SIGKILL, perhaps because memory ran out." in running.terminal
        )
        assert "Traceback" not in running.terminal
        assert "ran           until the engine died after " in running.output
    assert footer_of(path).reason == "engine-died"
    assert footer_of(path).steps > 0


def test_an_assertion_in_the_library_is_told_with_its_last_lines(tmp_path: Path) -> None:
    path = tmp_path / "abort.jsonl.zst"
    with start_with(f"{TROUBLED}Asserting", *ENDLESS, "--record", path, output_too=True) as running:
        until(lambda: running.is_over)
        assert running.is_terminal_sane
        assert running.wait() == 7
        shown = running.terminal
    assert "The engine process aborted (SIGABRT)" in shown
    assert re.search(r"llama-kv-cache\S*\.cpp:\d+: GGML_ASSERT\(.*seq_id.*\) failed", shown)
    assert "A = 1.00 tokens per forward" in shown  # The summary of the steps before.
    assert footer_of(path).reason == "engine-died"


def test_an_abort_signal_is_told_as_one(tmp_path: Path) -> None:
    path = tmp_path / "sigabrt.jsonl.zst"
    with start(*ENDLESS, "--record", path, "--json") as running:
        until(lambda: is_recording(path))
        engine = running.engine_pid
        assert engine is not None
        os.kill(engine, signal.SIGABRT)
        assert running.wait() == 7
        assert "aborted (SIGABRT)" in running.terminal
        assert json.loads(running.output)["ended"] == "engine-died"


# Refusals


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of files that are no models, and one with another tokenizer."""
    folder = tmp_path_factory.mktemp("broken")
    (folder / "page.gguf").write_text("<!DOCTYPE html><html><body>Sign in</body></html>")
    whole = bundled_target().read_bytes()
    (folder / "cut.gguf").write_bytes(whole[: len(whole) * 9 // 10])
    write_tiny(folder, "llama")
    (folder / "file").write_text("")
    (folder / "prompts.jsonl").write_text('{"prompt": "a"}\n{"prompt": \n')
    (folder / "there.jsonl.zst").write_text("")
    return folder


@pytest.mark.parametrize(
    ("options", "status", "says"),
    [
        (["--model", "{}/none.gguf"], 3, "none.gguf"),
        (["--model", "no-such-name"], 3, "no-such-name"),
        (["--model", "{}/page.gguf"], 3, "is a web page"),
        (["--model", "{}/cut.gguf"], 3, "is cut"),
        (["--draft", "{}/tiny-llama.gguf", "--speculation", "draft"], 5, "cannot draft for lab-target-f16.gguf"),
        (["--slots", "0"], 2, "--slots must be a whole number from 1 to 255, not '0'."),
        (["--token-budget", "9000"], 2, "--token-budget must be a whole number from 1 to 8,192, not '9000'."),
        (["--speculation", "mtp"], 5, "Multi-token prediction"),
        (["--slots", "x"], 2, "--slots must be a whole number"),
        (["--workload", "cdoe"], 2, "Did you mean code?"),
        (["--workload", "{}/nothing.jsonl"], 4, "nothing.jsonl"),
        (["--workload", "{}/prompts.jsonl"], 4, "prompts.jsonl:2: it is not whole JSON"),
        (["--rate", "2", "--arrivals", "trace"], 2, "Arrivals come either from the trace or at a rate."),
        (["--record", "{}/file/x"], 8, "Cannot record to"),
        (["--record", "{}/there.jsonl.zst"], 8, "exists already"),
        (["--context", "1073741824"], 5, "GB are free"),
    ],
    ids=lambda value: "-".join(value).replace("{}/", "").strip("-") if isinstance(value, list) else "",
)
def test_what_cannot_be_is_one_line(options: list[str], status: int, says: str, broken: Path) -> None:
    done = run(*[option.format(broken) for option in options], "--requests", "1")
    assert done.stdout == ""
    assert done.stderr.startswith("stackscope: ")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.returncode == status


def test_a_run_in_which_no_request_could_run_has_failed() -> None:
    with start_with(f"{TROUBLED}Refusing", *SMALL, "--requests", "3", "--no-record") as running:
        assert running.wait() == 4
        assert "Nothing ran.\n\nrequests      3 failed\n" in running.output
        assert "None of 3 requests could run: max_tokens is 0." in running.terminal


def test_a_disk_that_fills_up_costs_the_recording_and_not_the_run(tmp_path: Path) -> None:
    path = tmp_path / "full.jsonl.zst"

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (6_000, 6_000))

    options = ("--requests", "12", "--max-tokens", "60", "--record", path, "--json")
    done = run(*SMALL, *options, preexec_fn=limit)
    assert done.returncode == 8
    assert done.stderr.startswith(f"stackscope: Recording to {path} stopped: the file would grow beyond the limit")
    assert done.stderr.count("\n") == 1
    document = json.loads(done.stdout)
    assert document["requests"] == {"length": 12}
    assert any("stopped" in note for note in document["notes"])
    reader = SessionReader(path)
    assert isinstance(next(iter(reader)), Header)


def test_a_summary_that_cannot_be_printed_is_one_sentence() -> None:
    command = [*cli_support.STACKSCOPE, "run", *SMALL, "--requests", "1", "--max-tokens", "2", "--no-record"]
    shell = shutil.which("sh")
    assert shell is not None
    with Running(shell, "-c", f"exec {' '.join(command)} > /dev/full") as running:
        assert running.wait() == 1
        assert "The result cannot be written to standard output: No space left on device." in running.terminal
        assert "Traceback" not in running.terminal
