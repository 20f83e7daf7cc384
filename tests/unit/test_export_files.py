"""Exports are there whole or not at all, and whatever prevents them is one sentence."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

import pytest

from stackscope.errors import StackscopeError, UsageError
from stackscope.report.export.export import Form, export
from stackscope.report.export.output import whole_file, whole_folder
from stackscope.session.reader import SessionReader
from stackscope.session.writer import SessionWriter
from tests.unit.record_builders import make_footer, make_header, make_request, make_step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stackscope.records import AnyRecord

ROOT: Final = Path(__file__).parents[2]
CHAT: Final = ROOT / "profiles" / "chat.jsonl.zst"
FORMS: Final[tuple[Form, ...]] = get_args(Form)


def left_in(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}


def content(path: Path) -> dict[str, bytes]:
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    return {file.name: file.read_bytes() for file in files}


@pytest.mark.parametrize("form", FORMS)
def test_the_same_session_gives_the_same_bytes(form: Form, tmp_path: Path) -> None:
    first, second = (content(_exported(form, tmp_path / name / "out.json.gz")) for name in "ab")
    assert first == second
    assert left_in(tmp_path / "a") == {"out.json.gz"}


def _exported(form: Form, path: Path, *, replace: bool = False) -> Path:
    export(SessionReader(CHAT), form, path, replace=replace)
    return path


@pytest.mark.parametrize("form", FORMS)
def test_what_exists_is_refused_unless_told_otherwise(form: Form, tmp_path: Path) -> None:
    path = _exported(form, tmp_path / "out")
    before = content(path)
    with pytest.raises(UsageError, match=r"out exists already. Give another name, or --replace"):
        _exported(form, path)
    assert content(path) == before
    _exported(form, path, replace=True)
    assert content(path) == before
    assert left_in(tmp_path) == {"out"}


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_folder_with_anything_else_in_it_is_never_replaced(form: Form, tmp_path: Path) -> None:
    path = _exported(form, tmp_path / "out")
    (path / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match="holds more than an export"):
        _exported(form, path, replace=True)
    assert (path / "thesis.txt").read_text() == "mine"
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="holds more than an export"):
        _exported(form, tmp_path / "file", replace=True)


@pytest.mark.parametrize("form", ["json", "perfetto"])
def test_what_is_no_file_is_never_replaced(form: Form, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "pipe"):
        with pytest.raises(UsageError, match="is no file"):
            _exported(form, tmp_path / name, replace=True)
    assert left_in(tmp_path) == {"folder", "pipe"}


@pytest.mark.parametrize("form", FORMS)
def test_a_number_that_no_engine_counts_prevents_no_export(form: Form, tmp_path: Path) -> None:
    """Damaged recordings have integers of 64 bits without a sign, which no column holds: there they are unknown."""
    path = tmp_path / "damaged.jsonl.zst"
    with SessionWriter(path, make_header(cost_model=2**63)) as writer:
        writer.write(make_footer())
    export(SessionReader(path), form, tmp_path / "out", replace=False)
    if form == "parquet":
        parquet = pytest.importorskip("pyarrow.parquet")
        session = parquet.read_table(tmp_path / "out" / "session.parquet")
        assert session["cost_model"].to_pylist() == [None]
        assert None not in session["schema"].to_pylist()


class Stopped(Exception):
    pass


class Failing:
    """A reader that fails on the way."""

    def __init__(self) -> None:
        self.header = make_header()
        self.truncated = None

    def __iter__(self) -> Iterator[AnyRecord]:
        for n in range(100):
            yield make_step(n)
        raise Stopped


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("is_there", [True, False])
def test_a_failure_leaves_nothing_behind_and_what_was_there_as_it_was(
    form: Form, is_there: bool, tmp_path: Path
) -> None:
    path = tmp_path / "out"
    before = content(_exported(form, path)) if is_there else None
    failing: Any = Failing()
    with pytest.raises(Stopped):
        export(failing, form, path, replace=True)
    assert left_in(tmp_path) == ({"out"} if is_there else set())
    assert before is None or content(path) == before


def test_somebody_else_s_file_that_appears_meanwhile_is_kept(tmp_path: Path) -> None:
    def make_file(path: Path) -> None:
        with whole_file(path, replace=False) as unfinished:
            unfinished.write_text("ours")
            path.write_text("theirs")

    def make_folder(path: Path) -> None:
        with whole_folder(path, replace=False, ours=()):
            path.mkdir()

    for make in (make_file, make_folder):
        with pytest.raises(UsageError, match="exists already"):
            make(tmp_path / make.__name__)
    assert (tmp_path / "make_file").read_text() == "theirs"
    assert left_in(tmp_path) == {"make_file", "make_folder"}


def test_a_link_to_nowhere_counts_as_being_there(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="exists already"):
        _exported("json", tmp_path / "link")


LIMITED = """
import resource, sys
from stackscope.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
sys.argv = ["stackscope", "export", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize("form", FORMS)
def test_a_file_that_may_not_grow_is_one_sentence(form: Form, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(CHAT), "--to", form, "-o", str(tmp_path / "out.json")],
        cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith(f"stackscope: {tmp_path}/out.json could not be written: ")
    assert done.stderr.count("\n") == 1
    assert "it would grow beyond the limit for one file" in done.stderr
    assert left_in(tmp_path) == set()


def test_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(StackscopeError) as caught, whole_file(tmp_path / "out", replace=False):
        raise OSError(28, "No space left on device")
    assert str(caught.value) == (
        f"{tmp_path}/out could not be written: the disk is full. Free some space, or write elsewhere. Nothing was left"
        " behind."
    )


def test_without_pyarrow_parquet_is_one_sentence_and_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(StackscopeError, match=r"pip install pyarrow"):
        _exported("parquet", tmp_path / "out")
    assert left_in(tmp_path) == set()


@pytest.mark.parametrize("name", [".", "..", "/"])
def test_a_path_that_names_nothing_is_refused(name: str) -> None:
    with pytest.raises(UsageError):
        _exported("json", Path(name), replace=True)


def test_a_recording_that_was_cut_off_is_exported_as_far_as_it_goes(tmp_path: Path) -> None:
    cut = tmp_path / "cut.jsonl.zst"
    cut.write_bytes(CHAT.read_bytes()[:15_000])
    done = export(SessionReader(cut), "csv", tmp_path / "out")
    assert done.truncated is not None
    assert 0 < done.counts["steps"] < 277
    assert done.truncated in (tmp_path / "out" / "session.csv").read_text()


# Memory


def recording_of(path: Path, n_steps: int) -> Path:
    with SessionWriter(path, make_header()) as writer:
        for n in range(n_steps):
            writer.write(make_step(n))
            if n % 20 == 0:
                writer.write(make_request(id=n))
        writer.close(make_footer())
    return path


def peak_of(form: Form, recording: Path, out: Path) -> int:
    tracemalloc.start()
    try:
        export(SessionReader(recording), form, out)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("form", FORMS)
def test_memory_does_not_grow_with_the_session(form: Form, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stackscope.report.export.parquet_files.GROUP_ROWS", 200)
    short, long = recording_of(tmp_path / "a.jsonl.zst", 1_000), recording_of(tmp_path / "b.jsonl.zst", 4_000)
    peak_of(form, short, tmp_path / "warm")  # What is imported or cached once.
    first = peak_of(form, short, tmp_path / "first")
    second = peak_of(form, long, tmp_path / "second")
    assert second < first + 600_000  # Kept, 3,000 more steps would be 3 MB.
