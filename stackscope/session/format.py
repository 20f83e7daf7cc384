"""The encoding of records: JSON Lines, the same in a session file and on the engine's pipe.

A reader is generous: it ignores fields it does not know, skips and counts records it does not know, and lifts those of
an older schema to today's. It stops at the first line that is not JSON: what follows is not to be trusted.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, TypeAlias, get_args

import msgspec

from stackscope.errors import SessionFileError
from stackscope.records import SCHEMA_VERSION, AnyRecord, Header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

SUFFIX: Final = ".jsonl.zst"
"""What the name of a recording ends in."""

MAX_LINE_BYTES: Final = 64 << 20
"""A line beyond this is no record: the longest, a request with its text, is a few bytes per token of context."""

Upgrade: TypeAlias = "Callable[[dict[str, object]], dict[str, object]]"
"""Turns one record, as a JSON object, from its schema into the next; an error it raises makes the record a misfit."""

UPGRADES: Final[Mapping[int, Upgrade]] = {}
"""By the schema they start from: one for every schema before `SCHEMA_VERSION`, the first of which is 1."""

RECORD_TYPES: Final = {str(record.__struct_config__.tag): record for record in get_args(AnyRecord)}
"""Every kind of record by its `type`."""

_encoder: Final = msgspec.json.Encoder()
_decoder: Final[msgspec.json.Decoder[AnyRecord]] = msgspec.json.Decoder(AnyRecord)
_objects: Final = msgspec.json.Decoder(dict[str, object])

_NOT_JSON: Final = (msgspec.DecodeError, RecursionError)
"""What the decoder raises for damage; recursion is a line of a thousand opening brackets."""


def encode(record: AnyRecord) -> bytes:
    """One record as one line, its newline included."""
    return encode_all((record,))


def encode_all(records: Iterable[AnyRecord]) -> bytes:
    """Records as lines, each with its newline.

    A float that is not finite becomes `null`, unknown; half a surrogate pair (a path that is not UTF-8) becomes `?`.
    """
    records = tuple(records)
    try:
        return _encoder.encode_lines(records)
    except UnicodeEncodeError:
        return _encoder.encode_lines([without_surrogates(msgspec.to_builtins(record)) for record in records])


def decode(line: bytes) -> AnyRecord:
    """The record on one line; `msgspec.DecodeError` when it is none that this version knows."""
    return _decoder.decode(line)


def without_surrogates(value: object) -> object:
    """A value of JSON's types in which half a surrogate pair, which UTF-8 cannot hold, has become `?`."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {without_surrogates(key): without_surrogates(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_surrogates(item) for item in value]
    return value


class _Opening(msgspec.Struct):
    """What every schema's header has promised to keep."""

    type: str | None = None
    schema: int | None = None
    stackscope: str = "of an unknown version"


def schema_of(first_line: bytes, *, name: str, upgrades: Mapping[int, Upgrade] = UPGRADES) -> int:
    """The schema of a session by its first line; `name` is what messages call the session.

    Raises `SessionFileError` when the line opens no session, or one that this version cannot read.
    """
    try:
        opening = msgspec.json.decode(first_line, type=_Opening)
    except msgspec.ValidationError:
        raise not_a_session(name, "its first line is not a session's header") from None
    except _NOT_JSON:
        raise not_a_session(name, "its first line is not JSON") from None
    if opening.type != Header.__struct_config__.tag or opening.schema is None:
        raise not_a_session(name, "its first line is not a session's header")
    if opening.schema > SCHEMA_VERSION:
        raise SessionFileError(
            f"{name} was recorded by Stackscope {opening.stackscope} in format {opening.schema}, "
            f"and this version reads formats up to {SCHEMA_VERSION}.",
            remedy="Update Stackscope to open it.",
        )
    if not all(step in upgrades for step in range(opening.schema, SCHEMA_VERSION)):
        raise SessionFileError(f"{name} says that it is in format {opening.schema}, which no Stackscope has written.")
    return opening.schema


def not_a_session(name: str, reason: str) -> SessionFileError:
    """The refusal of something that is not a session."""
    return SessionFileError(
        f"{name} is not a Stackscope session: {reason}.",
        remedy=f"Give the path of a recording, a file that ends in {SUFFIX}.",
    )


class LineDecoder:
    """Turns bytes, cut anywhere, into records, and keeps count of what it could not use."""

    def __init__(self, *, schema: int = SCHEMA_VERSION, upgrades: Mapping[int, Upgrade] = UPGRADES) -> None:
        self._upgrades = [upgrades[step] for step in range(schema, SCHEMA_VERSION)]
        self._tail = bytearray()
        self.lines = 0
        """Whole lines seen, blank ones left out."""
        self.skipped: Counter[str] = Counter()
        """Records left out, by their `type`: kinds this version does not know, and known kinds with unfit fields."""
        self.first_misfit: str | None = None
        """Where the first of `skipped` stands and why it did not fit. `None`: all fitted."""
        self.damage: str | None = None
        """Why decoding stopped. `None`: every line so far was JSON. Nothing is decoded after damage."""

    @property
    def has_partial_line(self) -> bool:
        """Bytes are held that no newline has ended yet."""
        return bool(self._tail)

    def feed(self, chunk: bytes) -> list[AnyRecord]:
        """The records whose lines these bytes complete, in order."""
        if self.damage is not None:
            return []
        cut = chunk.rfind(b"\n") + 1
        if cut == 0:
            self._tail += chunk
            if len(self._tail) > MAX_LINE_BYTES:
                self.damage = f"line {self.lines + 1:,} is longer than any record"
            return []
        whole = bytes(self._tail) + chunk[:cut]
        self._tail = bytearray(chunk[cut:])
        if not self._upgrades:
            try:
                records = _decoder.decode_lines(whole)
            except _NOT_JSON:
                pass  # Something in the chunk needs a closer look, line by line: three times slower.
            else:
                self.lines += len(records)
                return records
        return self._one_by_one(whole)

    def _one_by_one(self, whole: bytes) -> list[AnyRecord]:
        records: list[AnyRecord] = []
        for line in whole.split(b"\n"):
            if not line or line.isspace():
                continue
            self.lines += 1
            try:
                fields = _objects.decode(line)
            except _NOT_JSON as error:
                self.damage = f"line {self.lines:,} is not a record ({error})"
                break
            try:
                for upgrade in self._upgrades:
                    fields = upgrade(fields)
                records.append(msgspec.convert(fields, AnyRecord) if self._upgrades else _decoder.decode(line))
            except (msgspec.ValidationError, LookupError, TypeError, ValueError) as error:
                self._skip(fields, error)
        return records

    def finish(self) -> list[AnyRecord]:
        """The record on a last line without a newline: an object that is whole is not the beginning of a longer one."""
        try:
            _objects.decode(self._tail)
        except _NOT_JSON:
            return []
        return self.feed(b"\n")

    def _skip(self, fields: dict[str, object], error: Exception) -> None:
        kind = str(fields.get("type", "untyped"))
        self.skipped[kind] += 1
        if self.first_misfit is None:
            self.first_misfit = f"line {self.lines:,}: {error}"
