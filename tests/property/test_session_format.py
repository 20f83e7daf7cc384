"""The encoding loses nothing, wherever its bytes are cut, and reads what a newer version has added."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stackscope.session.format import LineDecoder, decode, encode, encode_all
from tests.property.record_strategies import RECORD_KINDS, records

if TYPE_CHECKING:
    import msgspec

    from stackscope.records import AnyRecord

# No deadline: it would measure the machine's other work.
_few = settings(max_examples=40, deadline=None)


@pytest.mark.parametrize("kind", RECORD_KINDS)
@_few
@given(data=st.data())
def test_a_decoded_record_equals_the_encoded_one(kind: type[msgspec.Struct], data: st.DataObject) -> None:
    record = data.draw(records(kind))
    line = encode(record)
    assert decode(line) == record
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert json.loads(line)["type"] == kind.__struct_config__.tag


@_few
@given(st.lists(records(), max_size=6), st.data())
def test_records_do_not_depend_on_where_the_bytes_are_cut(sent: list[AnyRecord], data: st.DataObject) -> None:
    stream = encode_all(sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    decoder = LineDecoder()
    received: list[AnyRecord] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        received += decoder.feed(stream[start:end])
    assert received == sent
    assert decoder.lines == len(sent)
    assert not decoder.has_partial_line


@_few
@given(
    records(), st.dictionaries(st.from_regex(r"new_[a-z]{1,5}", fullmatch=True), st.integers() | st.text(max_size=3))
)
def test_fields_of_a_newer_version_are_ignored(record: AnyRecord, extra: dict[str, object]) -> None:
    line = json.dumps({**json.loads(encode(record)), **extra}).encode()
    assert decode(line) == record


@_few
@given(st.lists(st.one_of(records(), st.sampled_from(["gpu", "kernel", "step"])), max_size=8))
def test_records_of_a_newer_version_are_skipped_and_counted(stream: list[AnyRecord | str]) -> None:
    lines = [b'{"type":"%b","size":1}\n' % item.encode() if isinstance(item, str) else encode(item) for item in stream]
    decoder = LineDecoder()
    known = [item for item in stream if not isinstance(item, str)]
    unknown = [item for item in stream if isinstance(item, str)]
    assert decoder.feed(b"".join(lines)) == known
    assert sorted(decoder.skipped.elements()) == sorted(unknown)
    assert (decoder.first_misfit is None) == (unknown == [])
    assert decoder.damage is None


@_few
@given(st.binary(max_size=200))
def test_any_bytes_are_taken_without_an_exception(noise: bytes) -> None:
    decoder = LineDecoder()
    decoder.feed(noise)
    decoder.finish()
