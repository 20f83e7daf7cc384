"""A file that was cut, damaged or is none at all gives a prefix of its records and a reason, never a wrong record."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stackscope.errors import SessionFileError
from stackscope.records import StepRecord
from stackscope.session.reader import ZSTD_MAGIC, SessionReader
from stackscope.session.writer import SessionWriter
from tests.property.record_strategies import records
from tests.unit.record_builders import make_footer, make_header, make_model, synthetic_session

if TYPE_CHECKING:
    from stackscope.records import AnyRecord

_few = settings(max_examples=60, deadline=None)


def recorded(path: Path, session: list[AnyRecord]) -> bytes:
    """The bytes of a session written with a clock that follows its steps: a flush every 0.8 s, a frame every minute."""
    now_ns = 0
    header, *body, footer = session
    with SessionWriter(path, header, clock=lambda: now_ns) as writer:  # type: ignore[arg-type]
        for record in body:
            if isinstance(record, StepRecord):
                now_ns = record.end_ns
            writer.write(record)
        writer.close(footer)  # type: ignore[arg-type]
    return path.read_bytes()


@pytest.fixture(scope="module")
def session() -> list[AnyRecord]:
    """20 steps of 4 s each: every step gets a block of its own, and there are two frames."""
    body = synthetic_session(20, decode_ns=4_000_000_000)[1:-1]
    footer = make_footer(at_ns=90_000_000_000, steps=20, requests=0, recorder_cpu_ns=1)
    return [make_header(model=make_model(tensors=(), layers=())), *body, footer]


@pytest.fixture(scope="module")
def intact(session: list[AnyRecord], tmp_path_factory: pytest.TempPathFactory) -> bytes:
    content = recorded(tmp_path_factory.mktemp("session") / "intact.jsonl.zst", session)
    assert content.count(ZSTD_MAGIC) == 2
    return content


def read(path: Path) -> tuple[list[AnyRecord], str | None] | None:
    """The records and the reason for an early end; `None`: the file was refused."""
    try:
        reader = SessionReader(path)
        return list(reader), reader.truncated
    except SessionFileError:
        return None


def read_bytes(content: bytes) -> tuple[list[AnyRecord], str | None] | None:
    """As `read`, from a file with this content."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "session"
        path.write_bytes(content)
        return read(path)


def test_cut_at_any_byte_it_reads_a_prefix(session: list[AnyRecord], intact: bytes, tmp_path: Path) -> None:
    path = tmp_path / "cut.jsonl.zst"
    path.write_bytes(intact)
    assert read(path) == (session, None)
    n_read_before = len(session)
    for size in range(len(intact) - 1, -1, -1):
        os.truncate(path, size)
        outcome = read(path)
        n_read = 0 if outcome is None else len(outcome[0])
        assert n_read <= n_read_before
        if outcome is not None:
            assert outcome[0] == session[:n_read]
            assert outcome[1] is not None
        n_read_before = n_read
    assert n_read_before == 0


@_few
@given(st.data())
def test_a_changed_byte_is_noticed(session: list[AnyRecord], intact: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(intact) - 1))
    value = data.draw(st.integers(0, 255).filter(lambda value: value != intact[at]))
    outcome = read_bytes(intact[:at] + bytes([value]) + intact[at + 1 :])
    if outcome is not None:
        # A few bits (of the window's size) change nothing that is read.
        assert outcome[1] is not None or outcome[0] == session


@_few
@given(st.binary(max_size=300), st.sampled_from([b"", b"\x28\xb5\x2f\xfd", b"\x1f\x8b", b"{", b'{"type":"header"}\n']))
def test_other_files_are_refused(noise: bytes, magic: bytes) -> None:
    assert read_bytes(magic + noise) is None


@_few
@given(st.binary(min_size=1, max_size=300))
def test_garbage_after_the_end_costs_no_record(session: list[AnyRecord], intact: bytes, noise: bytes) -> None:
    outcome = read_bytes(intact + noise)
    assert outcome is not None
    assert outcome[0] == session
    assert outcome[1] is not None


@_few
@given(st.lists(records(), max_size=8))
def test_any_records_come_back_from_a_file(body: list[AnyRecord]) -> None:
    body = [record for record in body if type(record).__name__ != "Header"]
    session = [make_header(), *body, make_footer(recorder_cpu_ns=0)]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "session.jsonl.zst"
        recorded(path, session)
        assert read(path) == (session, None)
