"""The writer: when data reaches the disk, what it costs to kill it, and what happens when the disk says no."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import zstandard

from stackscope.errors import SessionFileError
from stackscope.records import Log, Mark, StepRecord
from stackscope.session.format import encode
from stackscope.session.paths import Destination
from stackscope.session.reader import SessionReader, read_session
from stackscope.session.writer import FLUSH_NS, FRAME_NS, SessionWriter, check_destination, open_recording
from tests.unit.record_builders import make_footer, make_header, make_step, synthetic_session

if TYPE_CHECKING:
    from stackscope.records import AnyRecord

MS = 1_000_000
ROOT = Path(__file__).parents[2]


class Clock:
    """Monotonic nanoseconds that pass when told to."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


def on_disk(path: Path) -> list[AnyRecord]:
    return list(SessionReader(path))


def run_doomed(*arguments: object) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "tests.unit.doomed_writer", *map(str, arguments)]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout
    return [json.loads(line) for line in output.splitlines()]


def test_the_header_is_on_disk_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    with SessionWriter(path, make_header(), clock=Clock()) as writer:
        assert on_disk(path) == [make_header()]
        assert writer.bytes_written == path.stat().st_size


def test_data_reaches_the_disk_when_it_is_old_enough_though_nothing_else_arrives(tmp_path: Path) -> None:
    path, clock = tmp_path / "a.jsonl.zst", Clock()
    with SessionWriter(path, make_header(), clock=clock) as writer:
        clock.now_ns = 5_000 * MS  # An idle spell does not count: the age is that of the data.
        writer.write(make_step(0))
        clock.now_ns += FLUSH_NS - 1
        writer.tick()
        assert len(on_disk(path)) == 1
        clock.now_ns += 1
        writer.tick()
        assert on_disk(path) == [make_header(), make_step(0)]


def test_data_that_would_be_too_old_by_the_next_tick_reaches_the_disk_now(tmp_path: Path) -> None:
    path, clock = tmp_path / "a.jsonl.zst", Clock()
    with SessionWriter(path, make_header(), clock=clock) as writer:
        writer.tick(FLUSH_NS)
        writer.write(make_step(0))
        clock.now_ns += 150 * MS
        writer.tick(FLUSH_NS - 150 * MS - 1)
        assert len(on_disk(path)) == 1
        writer.tick(FLUSH_NS - 150 * MS)
        assert on_disk(path) == [make_header(), make_step(0)]


def test_an_idle_writer_writes_nothing(tmp_path: Path) -> None:
    clock = Clock()
    with SessionWriter(tmp_path / "a.jsonl.zst", make_header(), clock=clock) as writer:
        size = writer.bytes_written
        for _ in range(100):
            clock.now_ns += 100 * MS
            writer.tick()
        assert writer.bytes_written == size


def test_a_steady_stream_flushes_without_ticks(tmp_path: Path) -> None:
    path, clock = tmp_path / "a.jsonl.zst", Clock()
    with SessionWriter(path, make_header(), clock=clock) as writer:
        for n in range(1_000):
            clock.now_ns = n * MS
            writer.write(make_step(n))
        # Step 0 was due at 400 ms and took steps 1 to 400 along; step 401 will be due at 801 ms.
        assert len(on_disk(path)) == 1 + 802


def test_encoded_lines_and_records_keep_their_order(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    sent: list[AnyRecord] = []
    with SessionWriter(path, make_header(), clock=Clock()) as writer:
        for n in range(0, 600, 3):
            mark = Mark(at_ns=n, label=f"mark {n}")
            writer.write(make_step(n))
            writer.write_line(encode(make_step(n + 1)) + encode(mark))
            writer.write(make_step(n + 2))
            sent += [make_step(n), make_step(n + 1), mark, make_step(n + 2)]
        writer.close(make_footer(recorder_cpu_ns=7))
    assert on_disk(path) == [make_header(), *sent, make_footer(recorder_cpu_ns=7)]


def test_half_a_line_is_a_mistake(tmp_path: Path) -> None:
    with SessionWriter(tmp_path / "a.jsonl.zst", make_header()) as writer, pytest.raises(ValueError, match="newline"):
        writer.write_line(encode(make_step(0))[:-1])


def test_a_new_frame_begins_every_minute(tmp_path: Path) -> None:
    path, clock = tmp_path / "a.jsonl.zst", Clock()
    with SessionWriter(path, make_header(), clock=clock) as writer:
        for n in range(150):
            clock.now_ns = n * 1_000 * MS
            writer.write(make_step(n))
        writer.close(make_footer())
    # A record waits a second for the next one, so flushes fall on the odd seconds: frames end at 61 s and 123 s.
    assert FRAME_NS == 60_000 * MS
    assert path.read_bytes().count(b"\x28\xb5\x2f\xfd") == 3
    assert len(read_session(path).steps) == 150


def test_standard_tools_open_it(tmp_path: Path) -> None:
    path, clock = tmp_path / "a.jsonl.zst", Clock()
    session = synthetic_session(50, decode_ns=2_000 * MS)
    with SessionWriter(path, make_header(), clock=clock) as writer:
        for record in session[1:-1]:
            clock.now_ns += 2_000 * MS
            writer.write(record)
        writer.close(make_footer())
    with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True) as stream:
        lines = [json.loads(line) for line in stream.readall().splitlines()]
    assert [line["n"] for line in lines if line["type"] == "step"] == list(range(50))
    assert lines[0]["type"] == "header"
    assert lines[0]["schema"] == 1
    assert lines[-1]["type"] == "footer"


@pytest.mark.skipif(shutil.which("zstd") is None, reason="the zstd command is not installed")
def test_the_zstd_command_opens_it(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    with SessionWriter(path, make_header()) as writer:
        for n in range(1_000):
            writer.write(make_step(n))
        writer.close(make_footer())
    subprocess.run(["zstd", "--test", "--quiet", path], check=True)
    plain = subprocess.run(
        ["zstd", "--decompress", "--stdout", "--quiet", path], capture_output=True, check=True
    ).stdout
    assert plain.count(b"\n") == 1 + 1_000 + 1


def test_the_footer_says_what_recording_cost(tmp_path: Path) -> None:
    writer = SessionWriter(tmp_path / "a.jsonl.zst", make_header())
    for n in range(2_000):
        writer.write(make_step(n))
    writer.close(make_footer(steps=2_000))
    writer.close()
    session = read_session(writer.path)
    assert session.footer is not None
    assert session.footer.recorder_cpu_ns is not None
    assert 0 < session.footer.recorder_cpu_ns <= writer.cpu_ns
    assert session.truncated is None


def test_threads_may_share_a_writer(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    writer = SessionWriter(path, make_header())

    def work(thread: int) -> None:
        for n in range(2_000):
            writer.write(Log(at_ns=n, text=f"thread {thread}"))
            writer.tick()

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close(make_footer())
    logs = read_session(path).logs
    for index in range(4):
        assert [log.at_ns for log in logs if log.text == f"thread {index}"] == list(range(2_000))


def test_text_that_is_not_unicode_does_not_stop_a_recording(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.gguf")
    with SessionWriter(tmp_path / "a.jsonl.zst", make_header(host=name, workload={name: [name]})) as writer:
        writer.write(Log(at_ns=1, text=f"loading {name}"))
        writer.write(Log(at_ns=2, text="fin\u2028 \x00 \U0001f600"))
        writer.close(make_footer())
    session = read_session(writer.path)
    assert session.header.host == "caf?.gguf"
    assert session.header.workload == {"caf?.gguf": ["caf?.gguf"]}
    assert [log.text for log in session.logs] == ["loading caf?.gguf", "fin\u2028 \x00 \U0001f600"]


def test_an_existing_recording_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(b"precious")
    with pytest.raises(SessionFileError, match="exists already"):
        SessionWriter(path, make_header())
    assert path.read_bytes() == b"precious"


def test_overwriting_replaces_it_once_the_header_is_written(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(b"precious")
    with SessionWriter(path, make_header(), overwrite=True):
        assert on_disk(path) == [make_header()]
    with SessionWriter(tmp_path / "new.jsonl.zst", make_header(), overwrite=True):
        pass
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.jsonl.zst", "new.jsonl.zst"]


def test_what_is_not_a_file_is_never_replaced(tmp_path: Path) -> None:
    pipe, folder = tmp_path / "pipe", tmp_path / "folder"
    os.mkfifo(pipe)
    folder.mkdir()
    for path in (pipe, folder):
        with pytest.raises(SessionFileError, match="Cannot record to"):
            SessionWriter(path, make_header(), overwrite=True)
    assert pipe.is_fifo()
    assert sorted(tmp_path.iterdir()) == [folder, pipe]


def test_a_header_that_cannot_be_encoded_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        SessionWriter(tmp_path / "a.jsonl.zst", make_header(workload={"name": object()}))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("folder", ["missing", "file/below"])
def test_a_folder_that_is_none_is_refused_with_a_remedy(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SessionFileError, match="Cannot record to") as caught:
        SessionWriter(tmp_path / folder / "a.jsonl.zst", make_header())
    assert caught.value.remedy is not None


def test_a_name_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SessionFileError, match="file name too long"):
        SessionWriter(tmp_path / ("x" * 300), make_header())


@pytest.mark.parametrize("is_folder", [False, True])
def test_a_recording_that_vanishes_is_reported_once(tmp_path: Path, is_folder: bool) -> None:
    folder, clock = tmp_path / "run", Clock()
    folder.mkdir()
    writer = SessionWriter(folder / "a.jsonl.zst", make_header(), clock=clock)
    writer.write(make_step(0))
    if is_folder:
        shutil.rmtree(folder)
    else:
        writer.path.unlink()
    clock.now_ns += FLUSH_NS
    with pytest.raises(SessionFileError, match="stopped: it was deleted while it was being written"):
        writer.tick()
    assert writer.failure is not None
    for n in range(1, 1_000):
        clock.now_ns += FLUSH_NS
        writer.write(make_step(n))
        writer.write_line(encode(make_step(n)))
        writer.tick()
    writer.close(make_footer())
    assert writer.n_lost == 1 + 2 * 999


def test_a_full_disk_stops_the_recording_and_not_the_run(tmp_path: Path) -> None:
    writer = SessionWriter(tmp_path / "a.jsonl.zst", make_header(), clock=Clock())
    for n in range(100):
        writer.write(make_step(n))
    writer.write_line(encode(make_step(100)))
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, writer._file.fileno())
    os.close(full)
    with pytest.raises(SessionFileError, match=r"stopped: the disk is full\. Free some space"):
        writer.close(make_footer())
    assert writer.n_lost == 102
    writer.close()
    assert on_disk(writer.path) == [make_header()]


def test_a_file_that_may_not_grow_stays_readable(tmp_path: Path) -> None:
    (report,) = run_doomed("limited", tmp_path, 20_000)
    assert len(report["messages"]) == 1
    assert "the file would grow beyond the limit" in report["messages"][0]
    assert Path(report["path"]).stat().st_size == 20_000
    session = read_session(report["path"])
    # The clock makes a step 100 ms, so that eight or nine steps may be lost with their block, and no more.
    assert 5_000 - report["lost"] <= len(session.steps) <= 5_000 - report["lost"] + 9
    assert [step.n for step in session.steps] == list(range(len(session.steps)))
    assert session.truncated is not None
    assert session.footer is None


def test_killing_the_writer_costs_less_than_the_last_second(tmp_path: Path) -> None:
    reports = run_doomed("killed", tmp_path, 20, 1)
    assert len(reports) == 20
    for report in reports:
        session = read_session(report["path"])
        n_read = len(session.steps)
        assert session.steps == tuple(make_step(n) for n in range(n_read))
        # One step an injected millisecond: a second is 1,000 steps. One step may be written and not acknowledged.
        assert report["acknowledged"] - 1_000 < n_read <= report["acknowledged"] + 1
        assert session.truncated is not None
        assert "no end mark" in session.truncated
    assert max(report["acknowledged"] for report in reports) > 1_000


def test_a_running_recording_can_be_read(tmp_path: Path) -> None:
    path, clock = tmp_path / "a.jsonl.zst", Clock()
    session = synthetic_session(3_000)
    n_read_before = 0
    with SessionWriter(path, session[0], clock=clock) as writer:  # type: ignore[arg-type]
        for index, record in enumerate(session[1:-1], 1):
            if isinstance(record, StepRecord):
                clock.now_ns = record.end_ns
            writer.write(record)
            if index % 500 == 0:
                reader = SessionReader(path)
                read = list(reader)
                assert read == session[: len(read)]
                assert len(read) >= n_read_before
                assert reader.truncated is not None
                n_read_before = len(read)
        writer.close(session[-1])  # type: ignore[arg-type]
    assert n_read_before > 2_000
    assert on_disk(path)[:-1] == session[:-1]


def test_two_runs_in_one_second_get_a_file_each(tmp_path: Path) -> None:
    where = Destination(tmp_path / "new" / "folder" / "run.jsonl.zst", is_chosen=False)
    writers = [open_recording(where, make_header()) for _ in range(3)]
    for writer in writers:
        writer.close(make_footer())
    assert [writer.path.name for writer in writers] == ["run.jsonl.zst", "run-2.jsonl.zst", "run-3.jsonl.zst"]


def test_a_chosen_file_is_not_renamed(tmp_path: Path) -> None:
    where = Destination(tmp_path / "run.jsonl.zst", is_chosen=True)
    open_recording(where, make_header()).close()
    with pytest.raises(SessionFileError, match="exists already"):
        open_recording(where, make_header())


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SessionFileError, match="Cannot record to"):
        open_recording(Destination(tmp_path / "file" / "run.jsonl.zst", is_chosen=False), make_header())


def test_a_destination_is_refused_before_anything_starts(tmp_path: Path) -> None:
    taken = tmp_path / "taken.jsonl.zst"
    taken.touch()
    with pytest.raises(SessionFileError, match="exists already"):
        check_destination(Destination(path=taken, is_chosen=True))
    check_destination(Destination(path=taken, is_chosen=False))  # it will be given a number
    check_destination(Destination(path=tmp_path / "new" / "s.jsonl.zst", is_chosen=True))
    assert (tmp_path / "new").is_dir()
    with pytest.raises(SessionFileError, match=r"not a directory.*--record PATH"):
        check_destination(Destination(path=taken / "s.jsonl.zst", is_chosen=True))
