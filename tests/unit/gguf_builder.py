"""Writes small GGUF files byte by byte, so that tests can build any model file, whole or broken."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from stackscope.model.ggml_types import BY_NAME

if TYPE_CHECKING:
    from pathlib import Path

FORMATS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)


class Typed(NamedTuple):
    """A value with the number of its GGUF type, where the usual one for its Python type will not do."""

    type: int
    value: object


class Tensor(NamedTuple):
    """A tensor to write; without data it is zeros."""

    name: str
    shape: tuple[int, ...]
    type: str = "f32"
    data: bytes | None = None

    @property
    def bytes(self) -> int:
        storage = BY_NAME[self.type.lower()]
        return math.prod(self.shape) // storage.block * storage.bytes


Value: TypeAlias = bool | int | float | str | Sequence[object] | Typed


def gguf_bytes(
    metadata: Mapping[str, Value], tensors: Sequence[Tensor] = (), *, version: int = 3, alignment: int = 32
) -> bytes:
    """A whole GGUF file. Numbers become u32 (i32 when negative), floats f32, lists arrays of their first element."""
    front = [b"GGUF", struct.pack("<Iqq", version, len(tensors), len(metadata))]
    front.extend(text(key) + _value(value) for key, value in metadata.items())
    offset = 0
    for tensor in tensors:
        shape = b"".join(struct.pack("<q", n) for n in tensor.shape)
        kind = BY_NAME[tensor.type.lower()].id
        front.append(
            text(tensor.name) + struct.pack("<I", len(tensor.shape)) + shape + struct.pack("<iQ", kind, offset)
        )
        offset += _padded(tensor.bytes, alignment)
    header = b"".join(front)
    if not tensors:
        return header
    parts = [header.ljust(_padded(len(header), alignment), b"\0")]
    for tensor in tensors:
        data = bytes(tensor.bytes) if tensor.data is None else tensor.data
        assert len(data) == tensor.bytes
        parts.append(data.ljust(_padded(len(data), alignment), b"\0"))
    return b"".join(parts)


def write_gguf(
    path: Path,
    metadata: Mapping[str, Value],
    tensors: Sequence[Tensor] = (),
    *,
    version: int = 3,
    alignment: int = 32,
) -> Path:
    path.write_bytes(gguf_bytes(metadata, tensors, version=version, alignment=alignment))
    return path


def keys(architecture: str, **common: Value) -> dict[str, Value]:
    """Metadata of an architecture: names behind its prefix, with `__` for a dot (`attention__head_count=4`)."""
    return {"general.architecture": architecture} | {
        f"{architecture}.{name.replace('__', '.')}": value for name, value in common.items()
    }


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(value: Value) -> bytes:
    kind, plain = _typed(value)
    if kind != ARRAY:
        return struct.pack("<I", kind) + _scalar(kind, plain)
    assert isinstance(plain, Sequence)
    element = _typed(plain[0])[0] if plain else U32
    elements = b"".join(_scalar(element, _typed(item)[1]) for item in plain)
    return struct.pack("<IIQ", ARRAY, element, len(plain)) + elements


def _typed(value: Value) -> tuple[int, object]:
    if isinstance(value, Typed):
        return value.type, value.value
    if isinstance(value, bool):
        return BOOL, value
    if isinstance(value, int):
        return (U32 if value >= 0 else I32), value
    if isinstance(value, float):
        return F32, value
    return (STRING, value) if isinstance(value, str) else (ARRAY, value)


def _scalar(kind: int, value: object) -> bytes:
    return text(str(value)) if kind == STRING else struct.pack("<" + FORMATS[kind], value)


def _padded(n: int, alignment: int) -> int:
    return n + -n % alignment
