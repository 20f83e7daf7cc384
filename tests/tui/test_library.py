"""Recordings on disk: which there are, what is read of them and when."""

from __future__ import annotations

import os
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
import pytest

from stackscope.analysis.metrics import load
from stackscope.records import ConfigEvent, Header
from stackscope.session.format import encode_all
from stackscope.session.paths import Folder, known_folders
from stackscope.session.reader import SessionReader
from stackscope.tui.library import Digest, Entry, Library, begun, digest, find_recordings, read_header
from stackscope.tui.lines import plain, width
from stackscope.tui.look import UNICODE
from stackscope.tui.session_lines import Marks, detail_lines, heading, row_line, state_of
from tests.tui.recordings import cut_off, damaged, write

if TYPE_CHECKING:
    from pathlib import Path


def always() -> bool:
    return True


def entry_of(path: Path) -> Entry:
    (found,) = (entry for entry in find_recordings([Folder(path.parent)]) if entry.path == path)
    return found


def digest_of(path: Path) -> Digest:
    found = digest(entry_of(path), always)
    assert found is not None
    return found


def test_recordings_are_found_newest_first_and_each_once(tmp_path: Path) -> None:
    old, new = write(tmp_path / "old.jsonl.zst", steps=3), write(tmp_path / "new.jsonl.zst", steps=3)
    os.utime(old, ns=(1, 1))
    (tmp_path / "notes.txt").write_text("no recording")
    (tmp_path / "folder.jsonl.zst").mkdir()
    (tmp_path / ".hidden.jsonl.zst").write_bytes(b"")
    (tmp_path / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    shipped = write(tmp_path / "profiles" / "baseline.jsonl.zst", steps=3)
    (tmp_path / "again").symlink_to(tmp_path)
    folders = [Folder(tmp_path), Folder(tmp_path / "again"), Folder(tmp_path / "missing"), Folder(shipped.parent, True)]
    found = find_recordings(folders)
    assert {entry.path for entry in found} == {old, new, shipped}
    assert found[-1].path == old
    assert [entry.is_shipped for entry in found if entry.path == shipped] == [True]


def test_the_folders_are_those_that_recordings_go_to_and_come_with(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    (checkout / "stackscope").mkdir(parents=True)
    (own,) = known_folders(package=checkout / "stackscope")
    assert own.path.name == "recorded"
    (checkout / "pyproject.toml").write_text('[project]\nname = "stackscope"\n')
    folders = known_folders(package=checkout / "stackscope")
    assert folders == (Folder(checkout / "profiles" / "recorded"), own, Folder(checkout / "profiles", is_shipped=True))


def test_a_whole_recording_is_summed_up(tmp_path: Path) -> None:
    found = digest_of(write(tmp_path / "a.jsonl.zst", steps=300))
    assert found.result is not None
    assert found.truncated is None
    assert found.damage is None
    assert found.result[load.OutputRate] is not None
    assert found.duration_ns is not None


def test_one_that_was_cut_off_says_so_and_has_its_numbers(tmp_path: Path) -> None:
    found = digest_of(cut_off(tmp_path / "a.jsonl.zst", steps=3_000))
    assert found.truncated is not None
    assert found.result is not None


def test_one_with_an_unreadable_line_is_not_called_whole(tmp_path: Path) -> None:
    whole = SessionReader(write(tmp_path / "whole" / "a.jsonl.zst", steps=300))
    lines = encode_all(whole).splitlines(keepends=True)
    lines[40] = b'{"type":"step","n":"x"}\n'
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"".join(lines))
    found = digest_of(path)
    assert found.left_out is not None
    assert state_of(found, UNICODE, is_written=False) == ("~", "incomplete")
    told = detail_lines(entry_of(path), found, Marks(), 200, UNICODE)
    assert any("line 41: " in span.text for line in told for span in line)


@pytest.mark.parametrize("content", [b"", b"\x28\xb5\x2f\xfd", b"{}\n", b"<html>", bytes(300), b'{"type":"step"}\n'])
def test_a_file_that_is_none_is_damaged_and_no_crash(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(content)
    assert digest_of(path).damage is not None
    assert read_header(entry_of(path)).damage is not None


def test_one_that_vanishes_meanwhile_is_damaged(tmp_path: Path) -> None:
    entry = entry_of(write(tmp_path / "a.jsonl.zst", steps=3))
    entry.path.unlink()
    found = digest(entry, always)
    assert found is not None
    assert "does not exist" in (found.damage or "")


def test_reading_ends_when_nobody_wants_it_any_more(tmp_path: Path) -> None:
    entry = entry_of(write(tmp_path / "a.jsonl.zst", steps=3_000))
    answers = iter([True, True, False])
    assert digest(entry, lambda: next(answers)) is None


def test_files_are_read_once_for_each_version_and_wished_ones_first(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{name}.jsonl.zst", steps=30) for name in "abc"]
    for place, path in enumerate(paths):
        os.utime(path, ns=(place, place))  # c is the newest
    library = Library([Folder(tmp_path)])
    library.look()
    told: list[list[str]] = []

    def announce() -> None:
        told.append([e.path.name[0] for e in library.entries if library.known(e).result is not None])

    a = next(entry for entry in library.entries if entry.path == paths[0])
    library.wish([a])
    library.fill(always, announce)
    assert told == [[], ["a"], ["c", "a"], ["c", "b", "a"]]
    library.look()
    library.fill(always, announce)
    assert told[4:] == [["c", "b", "a"]]  # headers alone were looked for
    os.utime(paths[1], ns=(9, 9))
    library.look()
    (b,) = (entry for entry in library.entries if entry.path == paths[1])
    assert library.known(b) == Digest()
    library.forget(b)
    assert b not in library.entries


# Lines


@pytest.mark.parametrize("room", [24, 60, 79, 119, 199])
def test_lines_keep_to_the_room(room: int, tmp_path: Path) -> None:
    whole, cut, broken = (
        write(tmp_path / "whole.jsonl.zst", steps=50),
        cut_off(tmp_path / "cut.jsonl.zst", steps=900),
        damaged(tmp_path / "broken.jsonl.zst"),
    )
    for path in (whole, cut, broken):
        for known in (Digest(), read_header(entry_of(path)), digest_of(path)):
            for marks in (Marks(), Marks(True, True, True)):
                assert width(row_line(entry_of(path), known, marks, room, UNICODE)) == room
                assert plain(row_line(entry_of(path), known, marks, room, UNICODE)).strip()
                lines = detail_lines(entry_of(path), known, marks, room, UNICODE)
                assert lines
    assert width(heading(room, UNICODE)) == room


def test_a_line_tells_what_became_of_a_recording(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl.zst", steps=300, started="2026-11-29T20:15:03+01:00")
    line = plain(row_line(entry_of(path), digest_of(path), Marks(), 140, UNICODE))
    assert line.split()[:4] == ["2026-11-29", "20:15", "synthetic-F16", "synthetic"]
    assert line.split()[-2:] == ["✓", "whole"]
    assert state_of(digest_of(path), UNICODE, is_written=True) == ("●", "being written")
    broken = damaged(tmp_path / "b.jsonl.zst")
    line = plain(row_line(entry_of(broken), digest_of(broken), Marks(), 100, UNICODE))
    assert "✗ b.jsonl.zst has a damaged header" in line
    assert "/" not in line
    assert "reading" in plain(row_line(entry_of(path), read_header(entry_of(path)), Marks(), 100, UNICODE))


def test_a_date_that_is_none_is_not_known(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl.zst", steps=3, started="yesterday")
    assert plain(row_line(entry_of(path), digest_of(path), Marks(), 100, UNICODE)).split()[0] == "-"


def test_they_stand_in_the_order_in_which_they_were_begun(tmp_path: Path) -> None:
    """A second recording of a session began when it opens, and copying a file makes it no newer."""
    session = list(SessionReader(write(tmp_path / "a.jsonl.zst", steps=20)))
    header, *rest = session
    assert isinstance(header, Header)
    later = msgspec.structs.replace(header, started="2026-11-30T10:00:00+00:00")
    files = {
        "whole": [msgspec.structs.replace(header, started="2026-11-30T09:59:00+00:00"), *rest],
        "second": [later, ConfigEvent(at_ns=90_000_000_000, epoch=0, kind="live", by="engine"), *rest],
        "first": [later, *rest],
        "other": [msgspec.structs.replace(header, started="2026-11-30T10:01:00+00:00"), *rest],
        "untold": [msgspec.structs.replace(header, started="yesterday"), *rest],
    }
    (tmp_path / "a.jsonl.zst").unlink()
    for place, (name, records) in enumerate(files.items()):
        path = tmp_path / f"{name}.jsonl"
        path.write_bytes(encode_all(records))
        os.utime(path, ns=(place, place))
    library = Library([Folder(tmp_path)])
    library.look()
    library.fill(always, lambda: None)
    shown = [entry.path.name.partition(".")[0] for entry in library.entries]
    assert shown == ["second", "other", "first", "whole", "untold"]
    second = library.entries[0]
    assert begun(second, library.known(second)) == datetime.fromisoformat("2026-11-30T10:01:30+00:00")
    library.look()
    assert [entry.path.name.partition(".")[0] for entry in library.entries] == shown
