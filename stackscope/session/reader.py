"""Reading a recording, whole or cut off, finished or still being written."""

from __future__ import annotations

import stat
from collections import Counter, deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, TypeVar

import msgspec
import zstandard

from stackscope import units
from stackscope.errors import SessionFileError
from stackscope.pipeline import time_ns
from stackscope.records import (
    AnyRecord,
    ConfigEvent,
    Footer,
    HardwareSample,
    Header,
    Log,
    Mark,
    RequestRecord,
    StepRecord,
    TrafficEvent,
)
from stackscope.session.format import MAX_LINE_BYTES, UPGRADES, LineDecoder, not_a_session, schema_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from stackscope.session.format import Upgrade

ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
SKIPPABLE_MAGIC: Final = tuple(bytes((low, 0x2A, 0x4D, 0x18)) for low in range(0x50, 0x60))
"""How a zstd frame without content may begin: tools that cut files into seekable pieces put one in front."""

_TAIL_BYTES: Final = 1 << 18
"""Plain bytes from which the end of a session is told: a second of the fastest engine."""

_BOM: Final = b"\xef\xbb\xbf"

_READ_BYTES: Final = 1 << 16
_PIECE_BYTES: Final = 1 << 12
"""Compressed bytes handed to zstd at once. When it meets damage it drops what the same call has decoded before, so
small pieces lose few good lines."""


class _Bytes:
    """The plain bytes of a file, zstd or not, as far as they can be had; and why they end."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.damage: str | None = None
        """Why the bytes end before the file does. `None`: they do not."""
        self.is_cut_off = False
        """The file ends inside a compressed frame."""

    def __iter__(self) -> Iterator[bytes]:
        first = self._read()
        if first.startswith((ZSTD_MAGIC, *SKIPPABLE_MAGIC)):
            yield from self._decompressed(first)
            return
        first = first.removeprefix(_BOM)
        while first:
            yield first
            first = self._read()

    def _read(self) -> bytes:
        try:
            return self._file.read(_READ_BYTES)
        except OSError as error:
            self.damage = f"the file cannot be read any further ({error.strerror or error})"
            return b""

    def _decompressed(self, data: bytes) -> Iterator[bytes]:
        context = zstandard.ZstdDecompressor()
        frame = context.decompressobj()
        is_inside = False
        n_read = 0
        while data:
            n_read += len(data)
            while data:
                piece, data = data[:_PIECE_BYTES], data[_PIECE_BYTES:]
                try:
                    plain = frame.decompress(piece)
                except zstandard.ZstdError as error:
                    self.damage = f"the compressed data is damaged before byte {n_read - len(data):,} ({error})"
                    return
                is_inside = not frame.eof
                if frame.eof:
                    data = frame.unused_data + data
                    frame = context.decompressobj()
                if plain:
                    yield plain
            data = self._read()
        self.is_cut_off = is_inside


class SessionReader:
    """A session file as a sequence of records, the header first; each iteration reads the file anew.

    Opens `.jsonl.zst` and plain `.jsonl`. Memory does not grow with the file. Raises `SessionFileError` when there is
    no session to read at all: no such file, something else, no whole header, or a format from the future. Anything
    that is wrong after the header ends the iteration at the last whole record, and `truncated` says what it was.
    """

    def __init__(self, path: Path | str, *, upgrades: Mapping[int, Upgrade] = UPGRADES) -> None:
        self.path = Path(path)
        self._upgrades = upgrades
        self._schema: int
        self.truncated: str | None = None
        """After an iteration: a sentence on why it ended early. `None`: it reached the end mark of the session."""
        self.skipped: Counter[str] = Counter()
        """Records left out so far, by `type`: kinds that this version does not know, or whose fields do not fit it."""
        self.first_misfit: str | None = None
        """Line and reason of the first of `skipped`. `None`: there is none."""
        with self._open() as file:
            source = _Bytes(file)
            self.header: Final = self._start(source, iter(source))[0]

    def __iter__(self) -> Iterator[AnyRecord]:
        for batch in self.batches():
            yield from batch

    def batches(self) -> Iterator[list[AnyRecord]]:
        """The records in lists, as they were decoded: for those to whom a fifth of a microsecond per record matters."""
        with self._open() as file:
            source = _Bytes(file)
            chunks = iter(source)
            header, decoder, records = self._start(source, chunks)
            self.truncated, self.skipped, self.first_misfit = None, decoder.skipped, None
            yield [header]
            has_footer = False
            while True:
                kinds = [type(record) for record in records]
                if Header in kinds:
                    yield records[: kinds.index(Header)]
                    self.truncated = "A second session follows in the same file; only the first was read."
                    return
                has_footer = has_footer or Footer in kinds
                yield records
                self.first_misfit = decoder.first_misfit
                chunk = next(chunks, None) if decoder.damage is None else None
                if chunk is None:
                    break
                records = decoder.feed(chunk)
            records = decoder.finish()
            has_footer = has_footer or any(type(record) is Footer for record in records)
            yield records
            self.first_misfit = decoder.first_misfit
            self.truncated = _why_truncated(source, decoder, has_footer=has_footer)

    @property
    def left_out(self) -> str | None:
        """What of the records read so far could not be used, as a sentence. `None`: nothing."""
        n = self.skipped.total()
        if n == 0:
            return None
        verb = "was" if n == 1 else "were"
        where = "" if self.first_misfit is None else f": {'first ' if n > 1 else ''}{self.first_misfit}"
        return f"{units.counted(n, 'record')} could not be read and {verb} left out{where}."

    @property
    def n_bytes(self) -> int:
        """Size of the file now. Raises `SessionFileError` when it is gone."""
        with self._open() as file:
            return file.seek(0, 2)

    def extent(self) -> Extent:
        """When the session begins and ends, by its first and last lines: many times as quick as reading all of it."""
        start_ns = next((record.start_ns for record in self if type(record) is StepRecord), None)
        with self._open() as file:
            source = _Bytes(file)
            chunks: deque[bytes] = deque()
            n_bytes = 0
            for chunk in source:
                chunks.append(chunk)
                n_bytes += len(chunk)
                while n_bytes - len(chunks[0]) >= _TAIL_BYTES:
                    n_bytes -= len(chunks.popleft())
        _, _, tail = b"".join(chunks).partition(b"\n")
        decoder = LineDecoder(schema=self._schema, upgrades=self._upgrades)
        records = [*decoder.feed(tail), *decoder.finish()]
        truncated = _why_truncated(source, decoder, has_footer=any(type(record) is Footer for record in records))
        if not records or decoder.damage is not None:
            # One line that is longer than all that was kept, or damage: then only reading tells.
            records, truncated = list(self), self.truncated
        end_ns = max((time_ns(record) or 0 for record in records), default=0)
        return Extent(start_ns=start_ns, end_ns=max(end_ns, start_ns or 0), truncated=truncated)

    def _open(self) -> BinaryIO:
        try:
            mode = self.path.stat().st_mode
            if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                # It is read more than once, and opening a pipe would wait for somebody to write to it.
                raise not_a_session(str(self.path), "it is a pipe or a device, not a file")
            return self.path.open("rb")
        except FileNotFoundError:
            raise SessionFileError(f"{self.path} does not exist.", remedy="Check the path of the recording.") from None
        except IsADirectoryError:
            raise not_a_session(str(self.path), "it is a folder") from None
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise SessionFileError(
                f"{self.path} cannot be opened: {reason}.", remedy="Check that you may read it."
            ) from None

    def _start(self, source: _Bytes, chunks: Iterator[bytes]) -> tuple[Header, LineDecoder, list[AnyRecord]]:
        """The header, and the records that came with the same bytes."""
        name = str(self.path)
        opening = bytearray()
        for chunk in chunks:
            opening += chunk
            if b"\n" in chunk:
                break
            if not opening.startswith(b"{") or len(opening) > MAX_LINE_BYTES:
                raise not_a_session(name, "it holds something else than lines of JSON")
        if source.damage is not None and b"\n" not in opening:
            raise SessionFileError(
                f"{name} has a damaged header: {source.damage}.",
                remedy="Nothing in it can be recovered; record the run again.",
            )
        if not opening:
            raise SessionFileError(
                f"{name} holds no session yet: it is empty, or cut off before its header.",
                remedy="If its run has just started, try again in a second; otherwise nothing in it can be recovered.",
            )
        line, newline, rest = bytes(opening).partition(b"\n")
        if not newline:
            raise SessionFileError(
                f"{name} is cut off inside its header.", remedy="Nothing in it can be recovered; record the run again."
            )
        self._schema = schema_of(line, name=name, upgrades=self._upgrades)
        decoder = LineDecoder(schema=self._schema, upgrades=self._upgrades)
        header = decoder.feed(line + b"\n")
        if len(header) != 1 or not isinstance(header[0], Header):
            reason = decoder.first_misfit or "its fields do not fit"
            raise SessionFileError(
                f"{name} has a damaged header ({reason}).",
                remedy="Nothing in it can be recovered; record the run again.",
            )
        return header[0], decoder, decoder.feed(rest)


@dataclass(frozen=True)
class Extent:
    """From when to when a session goes."""

    start_ns: int | None
    """When the first step began. `None`: there is none."""
    end_ns: int
    """Time of the last record."""
    truncated: str | None
    """As in `SessionReader`, as far as the last lines tell: damage in the middle shows when it is read."""


def _why_truncated(source: _Bytes, decoder: LineDecoder, *, has_footer: bool) -> str | None:
    damage = decoder.damage or source.damage
    if damage is not None:
        return f"Reading stopped at damage: {damage}."
    if not has_footer:
        partial = " Its last line is unfinished and was left out." if decoder.has_partial_line else ""
        return f"It has no end mark: its run was killed, or is still being recorded.{partial}"
    if source.is_cut_off:
        return "It is cut off after its end mark: no record is missing, but its last checksum could not be verified."
    return None


@dataclass(frozen=True)
class Session:
    """A whole session in memory, its records by kind and otherwise in the order of the file."""

    header: Header
    steps: tuple[StepRecord, ...]
    requests: tuple[RequestRecord, ...]
    """Finished requests, in the order in which they finished."""
    configs: tuple[ConfigEvent, ...]
    traffic: tuple[TrafficEvent, ...]
    marks: tuple[Mark, ...]
    logs: tuple[Log, ...]
    hardware: tuple[HardwareSample, ...]
    footer: Footer | None
    """`None`: the recording was cut off, or goes on."""
    truncated: str | None
    """As in `SessionReader`."""
    skipped: Mapping[str, int]
    """As in `SessionReader`."""


_R = TypeVar("_R", bound=msgspec.Struct)


def read_session(path: Path | str) -> Session:
    """A whole session; about 1 KB of memory a step. Raises `SessionFileError` as `SessionReader` does."""
    reader = SessionReader(path)
    by_kind: dict[type[msgspec.Struct], list[msgspec.Struct]] = {}
    for record in reader:
        by_kind.setdefault(type(record), []).append(record)

    def of(kind: type[_R]) -> tuple[_R, ...]:
        return tuple(record for record in by_kind.get(kind, ()) if isinstance(record, kind))

    return Session(
        header=reader.header,
        steps=of(StepRecord),
        requests=of(RequestRecord),
        configs=of(ConfigEvent),
        traffic=of(TrafficEvent),
        marks=of(Mark),
        logs=of(Log),
        hardware=of(HardwareSample),
        footer=next(iter(of(Footer)), None),
        truncated=reader.truncated,
        skipped=dict(reader.skipped),
    )
