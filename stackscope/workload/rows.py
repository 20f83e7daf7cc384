"""Reading a workload file into its JSON values, each with the line on which it stands."""

from __future__ import annotations

import gzip
import re
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import zstandard

from stackscope.errors import WorkloadError

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_BYTES: Final = 4 * 10**9
"""A file is read whole, so there is a bound, also on what a small compressed file unpacks to."""
_CHUNK: Final = 1 << 20

_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_OTHER_KINDS: Final = (
    (b"GGUF", "a model file"),
    (b"PAR1", "a Parquet file"),
    (b"PK\x03\x04", "a zip archive"),
    (b"\xff\xfe", "text in UTF-16"),
    (b"\xfe\xff", "text in UTF-16"),
    (b"<!DOCTYPE", "an HTML page"),
    (b"<html", "an HTML page"),
)

# msgspec takes an escaped first half of a pair without its second for the end of the input.
_HALF_PAIR: Final = re.compile(rb"\\u[dD][89abAB]")


class Row(NamedTuple):
    line: int
    """Of the file, from 1."""
    json: bytes | msgspec.Raw


def bad_line(path: str, line: int, reason: str, *, remedy: str | None = None) -> WorkloadError:
    """The error for one line of a file: `FILE:LINE: reason.`"""
    return WorkloadError(f"{path}:{line}: {reason}.", remedy=remedy)


def read_bytes(path: str) -> bytes:
    """The whole file, unpacked where it is compressed with gzip or zstd, without a byte order mark.

    Raises WorkloadError for what is missing, no regular file, damaged, too large, empty, or plainly something else.
    """
    try:
        if not Path(path).exists():
            raise WorkloadError(f"There is no file {path}.", remedy="Check the path.")
        if not Path(path).is_file():
            raise WorkloadError(f"{path} is not a regular file.", remedy="Give the path of a file with requests.")
        data = _unpacked(path)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise WorkloadError(f"{path} cannot be read: {reason}.") from error
    data = data.removeprefix(b"\xef\xbb\xbf")
    for magic, kind in _OTHER_KINDS:
        if data.startswith(magic):
            raise WorkloadError(
                f"{path} is {kind}, not a workload.", remedy="Save the requests as JSON Lines in UTF-8."
            )
    if not data.strip():
        raise WorkloadError(f"{path} is empty.")
    return data


def rows(data: bytes, path: str) -> Iterator[Row]:
    """The values of a file: one per line (blank lines are skipped), or the elements of one JSON array.

    Raises WorkloadError, naming the line, for an array that is not whole; lines are checked by whoever decodes them.
    """
    if data.lstrip()[:1] == b"[":
        yield from _elements(data, path)
        return
    # Not splitlines(): U+2028 and its like may stand inside a JSON string.
    for number, line in enumerate(data.split(b"\n"), start=1):
        if line and not line.isspace():
            yield Row(number, line)


def decode_reason(error: Exception, json: bytes = b"") -> str:
    """What is wrong with a line, from the error of decoding it: the key in front, without the decoder's notation."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    text = str(error)
    if "Invalid UTF-8" in text:
        return "it is not UTF-8"
    if "surrogate" in text or ("truncated" in text and _HALF_PAIR.search(json)):
        return "it holds half of a UTF-16 surrogate pair"
    if isinstance(error, msgspec.ValidationError):
        what, _, where = text.partition(" - at `$")
        key = where.removesuffix("`").removeprefix(".")
        what = what.replace("`", "").replace(" | null", "")
        return (f"`{key}`: " if key else "") + what[:1].lower() + what[1:]
    if "truncated" in text:
        return "it is not whole JSON: one value has to stand on one line"
    return "it is not JSON: " + text.removeprefix("JSON is malformed: ")


def _unpacked(path: str) -> bytes:
    with Path(path).open("rb") as file:
        magic = file.read(4)
        file.seek(0)
        if magic.startswith(_GZIP):
            try:
                with gzip.open(file) as unpacked:
                    data = unpacked.read(MOST_BYTES + 1)
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                raise WorkloadError(f"{path} is a damaged gzip file: {error}.") from error
        elif magic == _ZSTD:
            data = _unpack_zstd(file.read(MOST_BYTES + 1), path)
        else:
            data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise WorkloadError(f"{path} holds more than {MOST_BYTES // 10**9} GB.", remedy="Cut it into parts.")
    return data


def _unpack_zstd(packed: bytes, path: str) -> bytes:
    """Frame after frame: the stream reader of the library takes a truncated frame for a whole one."""
    parts: list[bytes] = []
    total = 0
    rest = packed
    try:
        while rest:
            frame = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
            for start in range(0, len(rest), _CHUNK):
                parts.append(frame.decompress(rest[start : start + _CHUNK]))
                total += len(parts[-1])
                if frame.eof:
                    rest = frame.unused_data + rest[start + _CHUNK :]
                    break
                if total > MOST_BYTES:
                    return b"".join(parts)
            else:
                raise WorkloadError(f"{path} is a damaged zstd file: it ends in the middle.")
    except zstandard.ZstdError as error:
        raise WorkloadError(f"{path} is a damaged zstd file: {error}.") from error
    return b"".join(parts)


def _elements(data: bytes, path: str) -> Iterator[Row]:
    try:
        elements = msgspec.json.decode(data, type=list[msgspec.Raw])
    except (msgspec.MsgspecError, RecursionError) as error:
        line = _line_of(error, data)
        reason = "the array is not whole" if "truncated" in str(error) else decode_reason(error)
        raise bad_line(path, line, reason) from error
    line, position = 1, 0
    for element in elements:
        raw = bytes(element)
        start = data.index(raw, position)
        line += data.count(b"\n", position, start)
        yield Row(line, element)
        line += raw.count(b"\n")
        position = start + len(raw)


def _line_of(error: Exception, data: bytes) -> int:
    """The line at which a decoding error stopped: msgspec counts bytes, or says that the end came too early."""
    match = re.search(r"\(byte (\d+)\)", str(error))
    end = int(match[1]) if match else len(data.rstrip())
    return data.count(b"\n", 0, end) + 1
