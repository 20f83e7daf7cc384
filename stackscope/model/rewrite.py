"""Writing a GGUF file that is another one with a few values changed: the header anew, everything else copied."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, Final

from stackscope.model import cursor as c
from stackscope.model.ggml_types import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from stackscope.model.header import Header, Pair, TensorInfo

COPIED_BYTES: Final = 1 << 22
"""Bytes copied at a time."""


def laid_out(tensors: Iterable[TensorInfo], alignment: int) -> tuple[TensorInfo, ...]:
    """The tensors one behind the other, each at the next multiple of the alignment, as the format wants them."""
    placed: list[TensorInfo] = []
    offset = 0
    for tensor in tensors:
        placed.append(tensor._replace(offset=offset))
        offset += tensor.bytes + -tensor.bytes % alignment
    return tuple(placed)


def header_bytes(
    header: Header, old: BinaryIO, tensors: tuple[TensorInfo, ...], changes: Mapping[str, int | str]
) -> bytes:
    """Everything in front of the tensor section, padded to the alignment.

    Metadata is copied byte for byte from `old`, but for the keys in `changes`; a changed key keeps its type, and one
    that was not there is added as a text or an unsigned 32-bit number. Raises OverflowError when a number does not fit.
    """
    known = {pair.key for pair in header.pairs}
    added = {key: value for key, value in changes.items() if key not in known}
    parts = [
        b"GGUF",
        c.U32.pack(header.version),
        c.I64.pack(len(tensors)),
        c.I64.pack(len(header.pairs) + len(added)),
    ]
    parts.extend(
        _encoded(pair.key, pair.type, changes[pair.key]) if pair.key in changes else _raw(old, pair)
        for pair in header.pairs
    )
    parts.extend(_encoded(key, c.STRING if isinstance(value, str) else 4, value) for key, value in added.items())
    parts.extend(_line(tensor) for tensor in tensors)
    length = sum(len(part) for part in parts)
    return b"".join(parts) + bytes(-length % header.alignment)


def copy_bytes(old: BinaryIO, start: int, n_bytes: int) -> Iterator[bytes]:
    """A stretch of a file, piece by piece. Raises `CutShortError` when the file ends first."""
    old.seek(start)
    while n_bytes > 0:
        piece = old.read(min(n_bytes, COPIED_BYTES))
        if not piece:
            raise c.CutShortError
        n_bytes -= len(piece)
        yield piece


def _raw(old: BinaryIO, pair: Pair) -> bytes:
    old.seek(pair.start)
    return old.read(pair.end - pair.start)


def _encoded(key: str, type_id: int, value: int | str) -> bytes:
    if isinstance(value, str):
        return _text(key) + c.U32.pack(c.STRING) + _text(value)
    layout = c.SCALARS[type_id]
    return _text(key) + c.U32.pack(type_id) + value.to_bytes(layout.size, "little")


def _line(tensor: TensorInfo) -> bytes:
    shape = b"".join(c.I64.pack(n) for n in tensor.shape)
    kind = BY_NAME[tensor.type.lower()].id
    return _text(tensor.name) + c.U32.pack(len(tensor.shape)) + shape + c.I32.pack(kind) + c.U64.pack(tensor.offset)


def _text(value: str) -> bytes:
    raw = value.encode("utf-8")
    return c.U64.pack(len(raw)) + raw
