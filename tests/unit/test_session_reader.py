"""The reader: what it accepts, what it leaves out, and the sentence it has for each thing that is no session."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
import zstandard

from stackscope.errors import SessionFileError
from stackscope.pipeline import time_ns
from stackscope.records import SCHEMA_VERSION, Footer, HardwareSample, Header, RequestRecord, StepRecord
from stackscope.session.format import LineDecoder, encode, encode_all
from stackscope.session.reader import SessionReader, read_session
from stackscope.session.replay import Replay
from tests.unit.record_builders import make_footer, make_header, make_request, make_step, synthetic_session

if TYPE_CHECKING:
    from pathlib import Path

    from stackscope.records import AnyRecord

SMALL: list[AnyRecord] = [make_header(), make_step(0), make_step(1), make_footer(steps=2)]


def saved(folder: Path, content: bytes, name: str = "a.jsonl") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def changed_header(**changes: object) -> bytes:
    return json.dumps({**json.loads(encode(make_header())), **changes}).encode() + b"\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no session yet: it is empty"),
        (zstandard.compress(b""), "holds no session yet: it is empty"),
        (b"<html><body>Not found</body></html>\n", "is not a Stackscope session: its first line is not JSON"),
        (b"GGUF\x03\x00\x00\x00", "it holds something else than lines of JSON"),
        (gzip.compress(encode_all(SMALL)), "is not a Stackscope session"),
        (b'{\n  "type": "header"\n}\n', "its first line is not JSON"),
        (b'{"name": "stackscope"}\n', "its first line is not a session's header"),
        (b'{"type": "header"}\n', "its first line is not a session's header"),
        (b'{"type": "header", "schema": "one"}\n', "its first line is not a session's header"),
        (b'["header", 1]\n', "its first line is not a session's header"),
        (encode(make_step(0)), "its first line is not a session's header"),
        (b'{"x":' * 100_000 + b"\n", "its first line is not JSON"),
        (encode(make_header())[:-2], "is cut off inside its header"),
        (zstandard.compress(encode(make_header())[:-2]), "is cut off inside its header"),
        (changed_header(started=17), "has a damaged header"),
        (changed_header(schema=0), "in format 0, which no Stackscope has written"),
        (changed_header(schema=-(10**15)), "which no Stackscope has written"),
        (b"\x28\xb5\x2f\xfd" + bytes(range(60)), "has a damaged header: the compressed data is damaged"),
    ],
)
def test_what_is_no_session_is_refused_in_a_sentence(tmp_path: Path, content: bytes, message: str) -> None:
    path = saved(tmp_path, content)
    with pytest.raises(SessionFileError) as caught:
        SessionReader(path)
    assert message in caught.value.message
    assert str(path) in caught.value.message
    assert caught.value.message.count(". ") == 0


def test_a_session_from_the_future_names_both_versions(tmp_path: Path) -> None:
    path = saved(tmp_path, changed_header(schema=SCHEMA_VERSION + 1, stackscope="9.9", host={"moved": True}))
    with pytest.raises(SessionFileError) as caught:
        SessionReader(path)
    assert "recorded by Stackscope 9.9 in format 2, and this version reads formats up to 1" in caught.value.message
    assert caught.value.remedy == "Update Stackscope to open it."


def test_a_path_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SessionFileError, match="does not exist"):
        SessionReader(tmp_path / "missing.jsonl.zst")
    with pytest.raises(SessionFileError, match="is a folder"):
        SessionReader(tmp_path)
    with pytest.raises(SessionFileError, match="cannot be opened: not a directory"):
        SessionReader(saved(tmp_path, b"") / "below")


@pytest.mark.parametrize(
    "content",
    [
        encode_all(SMALL),
        encode_all(SMALL).rstrip(b"\n"),
        encode_all(SMALL).replace(b"\n", b"\r\n"),
        encode_all(SMALL).replace(b"\n", b"\n\n"),
        b"\xef\xbb\xbf" + encode_all(SMALL),
        zstandard.compress(encode_all(SMALL), 19),
        b"".join(zstandard.compress(encode(record)) for record in SMALL),
        b"\x5e\x2a\x4d\x18\x03\x00\x00\x00abc" + zstandard.compress(encode_all(SMALL)),
    ],
    ids=["plain", "no newline at the end", "CRLF", "blank lines", "BOM", "recompressed", "frame a line", "skippable"],
)
def test_what_other_tools_make_of_a_session_is_accepted(tmp_path: Path, content: bytes) -> None:
    reader = SessionReader(saved(tmp_path, content))
    assert list(reader) == SMALL
    assert reader.truncated is None
    assert list(reader) == SMALL  # A second iteration reads it anew.


def test_without_an_end_mark_it_says_so(tmp_path: Path) -> None:
    reader = SessionReader(saved(tmp_path, encode_all(SMALL[:3]) + encode(make_step(2))[:40]))
    assert list(reader) == SMALL[:3]
    assert reader.truncated == (
        "It has no end mark: its run was killed, or is still being recorded. "
        "Its last line is unfinished and was left out."
    )


def test_a_line_that_is_not_json_ends_the_reading(tmp_path: Path) -> None:
    lines = encode_all(SMALL[:2]) + b'{"type":"step","n":\n' + encode_all(SMALL[2:])
    reader = SessionReader(saved(tmp_path, lines))
    assert list(reader) == SMALL[:2]
    assert reader.truncated is not None
    assert "Reading stopped at damage: line 3 is not a record" in reader.truncated


def test_a_cut_after_the_end_mark_loses_no_record(tmp_path: Path) -> None:
    parameters = zstandard.ZstdCompressionParameters.from_level(3, write_checksum=True)
    content = zstandard.ZstdCompressor(compression_params=parameters).compress(encode_all(SMALL))
    reader = SessionReader(saved(tmp_path, content[:-1]))
    assert list(reader) == SMALL
    assert reader.truncated is not None
    assert "no record is missing" in reader.truncated


def test_of_two_sessions_in_a_file_the_first_is_read(tmp_path: Path) -> None:
    reader = SessionReader(saved(tmp_path, encode_all(SMALL) * 2))
    assert list(reader) == SMALL
    assert reader.truncated is not None
    assert "second session" in reader.truncated


def test_records_of_a_newer_version_are_left_out_and_counted(tmp_path: Path) -> None:
    newer = b'{"type":"gpu","at_ns":1}\n{"type":"step","n":"seven"}\n{"type":"gpu","at_ns":2}\n'
    reader = SessionReader(saved(tmp_path, encode_all(SMALL[:2]) + newer + encode_all(SMALL[2:])))
    assert list(reader) == SMALL
    assert reader.truncated is None
    assert reader.skipped == {"gpu": 2, "step": 1}
    assert reader.first_misfit is not None
    assert reader.first_misfit.startswith("line 3: Invalid value 'gpu'")


@pytest.mark.parametrize(
    "step",
    [
        b'{"type":"step","n":3,"start_ns":-5,"phases":{}}',
        b'{"type":"step","n":3,"start_ns":1180591620717411303424,"phases":{}}',
        b'{"type":"step","n":3,"start_ns":5,"phases":{"decode":-1}}',
        b'{"type":"step","n":3,"start_ns":5,"phases":{},"slots":-4}',
        b'{"type":"step","n":3,"start_ns":5,"phases":{},'
        b'"work":[{"request":2,"slot":2,"phase":"verify","new":999999999999999999,"cached":61}]}',
        b'{"type":"request","id":0,"arrived_ns":-1,"finished_ns":9,"finish_reason":"eos","prompt_tokens":1}',
    ],
)
def test_records_of_what_cannot_be_are_left_out_and_told(tmp_path: Path, step: bytes) -> None:
    reader = SessionReader(saved(tmp_path, encode_all(SMALL[:2]) + step + b"\n" + encode_all(SMALL[2:])))
    assert list(reader) == SMALL
    assert sum(reader.skipped.values()) == 1
    assert reader.first_misfit is not None
    assert reader.first_misfit.startswith("line 3: Expected `int`")


def test_older_records_are_lifted_to_todays_schema(tmp_path: Path) -> None:
    """In a made-up format 0, a step's number was called `number` and the footer did not count requests."""

    def upgrade(fields: dict[str, object]) -> dict[str, object]:
        if fields["type"] == "step":
            return {("n" if name == "number" else name): value for name, value in fields.items()}
        if fields["type"] == "footer":
            return {**fields, "requests": 0}
        return fields

    old_lines = changed_header(schema=0)
    for record in SMALL[1:]:
        fields = json.loads(encode(record))
        fields.pop("requests", None)
        old_lines += json.dumps({("number" if name == "n" else name): value for name, value in fields.items()}).encode()
        old_lines += b"\n"
    old_lines += b'{"untyped":1}\n'
    reader = SessionReader(saved(tmp_path, old_lines), upgrades={0: upgrade})
    assert list(reader)[1:] == SMALL[1:]
    assert reader.skipped == {"untyped": 1}


def test_an_endless_line_is_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stackscope.session.format.MAX_LINE_BYTES", 1_000)
    decoder = LineDecoder()
    assert decoder.feed(encode(make_step(0))) == [make_step(0)]
    assert decoder.feed(b'{"type":"') == []
    assert decoder.feed(b"x" * 1_000) == []
    assert decoder.damage == "line 2 is longer than any record"
    assert decoder.feed(b"\n" + encode(make_step(0))) == []


def test_a_whole_session_has_its_records_by_kind(tmp_path: Path) -> None:
    records = synthetic_session(2_000, slots=2)
    session = read_session(saved(tmp_path, encode_all(records)))
    assert session.header == records[0]
    assert session.steps == tuple(r for r in records if isinstance(r, StepRecord))
    assert session.requests == tuple(r for r in records if isinstance(r, RequestRecord))
    assert session.hardware == tuple(r for r in records if isinstance(r, HardwareSample))
    assert session.footer == records[-1]
    assert session.truncated is None
    assert session.skipped == {}
    assert not any((session.configs, session.traffic, session.marks, session.logs))


def test_synthetic_sessions_add_up() -> None:
    records = synthetic_session(3_000, slots=4, draft_length=3)
    steps = [r for r in records if isinstance(r, StepRecord)]
    finished = {r.id: r for r in records if isinstance(r, RequestRecord)}
    for before, after in pairwise(steps):
        assert before.end_ns == after.start_ns
    for request in finished.values():
        work = [w for step in steps for w in step.work if w.request == request.id]
        assert request.output_tokens == sum(w.emitted for w in work)
        assert request.accepted == sum(w.accepted for w in work)
        assert request.prompt_tokens - request.hit_tokens == sum(w.new for w in work if w.phase == "prefill")
    assert len(finished) > 50
    assert records[-1] == make_footer(at_ns=steps[-1].end_ns, steps=3_000, requests=len(finished))


def test_a_replay_is_in_the_order_of_time(tmp_path: Path) -> None:
    # A request that finished within step 0 (ended at 3,001 ms) and a sample taken during it, both written after step 1.
    request = make_request(arrived_ns=0, finished_ns=3_000_900_000, emissions=())
    sample = HardwareSample(at_ns=3_000_500_000)
    stored: list[AnyRecord] = [make_header(), make_step(0), make_step(1), request, sample, make_footer(), make_step(2)]
    replay = Replay(saved(tmp_path, encode_all(stored)))
    expected = [make_header(), sample, request, make_step(0), make_step(1), make_step(2), make_footer()]
    assert list(replay.records()) == expected
    assert list(replay.records()) == expected
    assert replay.lateness.n_late == 0
    assert replay.reader.truncated is None


def test_a_replay_passes_on_what_is_too_late_and_counts_it(tmp_path: Path) -> None:
    stray = make_step(0)
    stored: list[AnyRecord] = [
        make_header(),
        *(make_step(n) for n in range(1, 5_000)),
        stray,
        make_footer(at_ns=10**12),
    ]
    replay = Replay(saved(tmp_path, encode_all(stored)))
    replayed = list(replay.records())
    # Step 4,999 ends at 8,000 ms, so everything up to 6,000 ms has been passed on; step 0 ended at 3,001 ms.
    assert replayed[3_000] == stray
    assert replay.lateness.n_late == 1
    assert replay.lateness.worst_ns == 6_000_000_000 - 3_001_000_000
    assert len(replayed) == len(stored)
    assert type(replayed[0]) is Header
    assert type(replayed[-1]) is Footer


def test_begin_and_end_are_found_without_reading_all(tmp_path: Path) -> None:
    session = synthetic_session(5_000, slots=2)
    path = saved(tmp_path, zstandard.compress(encode_all(session)), "a.jsonl.zst")
    reader = SessionReader(path)
    extent = reader.extent()
    steps = [record for record in session if isinstance(record, StepRecord)]
    assert (extent.start_ns, extent.end_ns, extent.truncated) == (steps[0].start_ns, session[-1].at_ns, None)  # type: ignore[union-attr]


@pytest.mark.parametrize("n_lost", [1, 30, 400, 5_000, 100_000])
def test_the_end_of_what_was_cut_off_is_that_of_its_last_whole_line(tmp_path: Path, n_lost: int) -> None:
    content = encode_all(synthetic_session(2_000))
    path = saved(tmp_path, content[:-n_lost])
    reader = SessionReader(path)
    extent = reader.extent()
    records = list(reader)
    assert extent.truncated == reader.truncated
    assert extent.end_ns == max(time_ns(record) or 0 for record in records)


def test_a_last_line_longer_than_what_is_looked_at_is_read_all_the_same(tmp_path: Path) -> None:
    request = make_request(output="x" * 1_000_000)
    path = saved(tmp_path, encode_all([*SMALL[:-1], request]))
    assert SessionReader(path).extent().end_ns == request.finished_ns


def test_a_session_of_nothing_has_no_begin(tmp_path: Path) -> None:
    extent = SessionReader(saved(tmp_path, encode(make_header()))).extent()
    assert (extent.start_ns, extent.end_ns) == (None, 0)
    assert extent.truncated is not None


def test_damage_in_the_last_lines_is_where_it_ends(tmp_path: Path) -> None:
    content = encode_all(SMALL[:-1]) + b"not JSON\n" + encode(make_footer())
    reader = SessionReader(saved(tmp_path, content))
    extent = reader.extent()
    assert extent.end_ns == make_step(1).end_ns
    assert extent.truncated is not None
    assert "damage" in extent.truncated
