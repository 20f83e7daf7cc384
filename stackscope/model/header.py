"""The check of a GGUF file in Python, before native code sees it: magic, version, metadata, and every tensor's place.

The C reader accepts a file whose tensor data is cut short, and llama.cpp then aborts or reads garbage; here every
offset + size is compared with the length of the file. Layout of the format: `ggml/include/gguf.h` of llama.cpp.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import msgspec

from stackscope import units
from stackscope.characters import harmless
from stackscope.errors import ModelFileError
from stackscope.model import cursor as c
from stackscope.model.files import open_model, shown
from stackscope.model.ggml_types import BY_ID, REMOVED, TYPE_COUNT
from stackscope.model.impostors import PREFIX_BYTES, impostor

DEFAULT_ALIGNMENT: Final = 32
MAX_KEYS: Final = 1 << 16
MAX_TENSORS: Final = 1 << 20
MAX_DIMENSIONS: Final = 4
MAX_TENSOR_NAME: Final = 63
"""GGML_MAX_NAME less its terminating zero."""

_MIN_PAIR_BYTES: Final = 14
"""Length of a one-letter key (9), its type (4) and a one-byte value."""
_MIN_TENSOR_BYTES: Final = 24
"""An empty name's length (8), a number of dimensions (4), a type (4) and an offset (8)."""

_RAW_PART: Final = re.compile(r"(\.part-?(\d\w*|[a-z]{1,2})|-split-[a-z]+)$")
_FETCH_AGAIN: Final = "Download or copy it again; stackscope models get continues where a download stopped."


class ArrayInFile(NamedTuple):
    """An array left where it lies."""

    type: int
    """Number of its elements' GGUF type."""
    n_elements: int
    start: int
    """Offset of its first element in the file."""
    end: int


Value: TypeAlias = c.Scalar | ArrayInFile


class Pair(NamedTuple):
    """One metadata entry, and the bytes of the file it takes."""

    key: str
    type: int
    value: Value
    start: int
    end: int


class TensorInfo(NamedTuple):
    """One line of the tensor table."""

    name: str
    type: str
    shape: tuple[int, ...]
    """Elements per dimension, the contiguous one first: a matrix of n outputs over m inputs is (m, n)."""
    offset: int
    """From the beginning of the tensor section."""
    bytes: int

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """Everything in front of the tensor data, found intact."""

    path: Path
    file_bytes: int
    version: int
    alignment: int
    """Every tensor begins at a multiple of it, in bytes."""
    data_offset: int
    """Where the tensor section begins in the file."""
    pairs: tuple[Pair, ...]
    tensors: tuple[TensorInfo, ...]

    @property
    def metadata(self) -> dict[str, Value]:
        return {pair.key: pair.value for pair in self.pairs}


def read_header(path: Path | str) -> Header:
    """Read and check the header of a GGUF file; takes 0.1 s on a 262k vocabulary.

    Raises `ModelFileError`, with a sentence for each kind of file that is not an intact GGUF file.
    """
    path = Path(path)
    with open_model(path) as stream:
        try:
            size = stream.seek(0, 2)
            stream.seek(0)
            prefix = stream.read(PREFIX_BYTES)
            if not prefix.startswith(b"GGUF"):
                raise _not_gguf(path, prefix)
            return _parse(path, c.Cursor(stream, size, position=4))
        except c.CutShortError:
            raise _cut_short(path, f"ends after {units.data_size(size)}, inside its own header") from None
        except c.DamagedError as error:
            raise ModelFileError(f"{shown(path)} is damaged: {error}.", remedy=_FETCH_AGAIN) from None
        except OSError as error:
            raise ModelFileError(f"{shown(path)} cannot be read: {error.strerror or error}.") from error


def _parse(path: Path, cursor: c.Cursor) -> Header:
    version = _version(path, cursor)
    n_tensors = _count(cursor, "tensors", MAX_TENSORS, _MIN_TENSOR_BYTES)
    n_pairs = _count(cursor, "metadata entries", MAX_KEYS, _MIN_PAIR_BYTES)
    pairs = _pairs(cursor, n_pairs)
    alignment = _alignment(pairs)
    tensors = _tensors(path, cursor, n_tensors, alignment)
    data_offset = _padded(cursor.position, alignment) if tensors else cursor.position
    _check_extent(path, tensors, data_offset, cursor.end)
    return Header(
        path=path,
        file_bytes=cursor.end,
        version=version,
        alignment=alignment,
        data_offset=data_offset,
        pairs=pairs,
        tensors=tensors,
    )


def _version(path: Path, cursor: c.Cursor) -> int:
    version = cursor.integer(c.U32)
    if version in (2, 3):
        return version
    if version & 0xFFFF == 0 and version != 0:
        remedy = "Convert it with gguf_convert_endian.py of llama.cpp, or get the little-endian file."
        raise ModelFileError(f"{shown(path)} was written for big-endian machines.", remedy=remedy)
    if version == 1:
        remedy = "Get a newer GGUF file of the model, or convert it anew."
        raise ModelFileError(
            f"{shown(path)} is in version 1 of the GGUF format, which nothing reads any more.", remedy=remedy
        )
    remedy = "Update Stackscope, or download the file again if it should be an ordinary one."
    raise ModelFileError(
        f"{shown(path)} says it is in version {version} of the GGUF format; 2 and 3 are known.", remedy=remedy
    )


def _count(cursor: c.Cursor, what: str, limit: int, min_bytes: int) -> int:
    count = cursor.integer(c.I64)
    if not 0 <= count <= limit:
        raise c.DamagedError(f"it claims {units.count(count)} {what}")
    if count * min_bytes > cursor.end - cursor.position:
        raise c.CutShortError
    return count


def _pairs(cursor: c.Cursor, n_pairs: int) -> tuple[Pair, ...]:
    pairs: list[Pair] = []
    seen: set[bytes] = set()
    for _ in range(n_pairs):
        start = cursor.position
        key = cursor.string(limit=0xFFFF)
        if not key or key in seen:
            raise c.DamagedError(f"the metadata key {_text(key)!r} comes twice" if key else "a metadata key is empty")
        seen.add(key)
        type_id = cursor.integer(c.U32)
        pairs.append(Pair(_text(key), type_id, _value(cursor, _text(key), type_id), start, cursor.position))
    return tuple(pairs)


def _value(cursor: c.Cursor, key: str, type_id: int) -> Value:
    if type_id == c.STRING:
        return _text(cursor.string())
    if type_id == c.ARRAY:
        return _array(cursor, key)
    if type_id not in c.SCALARS:
        raise c.DamagedError(f"the metadata key {key!r} has a value of unknown type {type_id}")
    return cursor.unpack(c.SCALARS[type_id])


def _array(cursor: c.Cursor, key: str) -> ArrayInFile:
    element, count = cursor.integer(c.U32), cursor.integer(c.U64)
    start = cursor.position
    if element == c.STRING:
        cursor.skip_strings(count)
    elif element in c.SCALARS:
        cursor.skip(count * c.SCALARS[element].size)
    else:
        raise c.DamagedError(f"the metadata key {key!r} is a list of unknown type {element}")
    return ArrayInFile(element, count, start, cursor.position)


def _alignment(pairs: tuple[Pair, ...]) -> int:
    for pair in pairs:
        if pair.key == "general.alignment":
            value = pair.value
            if pair.type != 4 or not isinstance(value, int) or value == 0 or value & (value - 1) != 0:
                raise c.DamagedError("its alignment is not a power of two")
            return value
    return DEFAULT_ALIGNMENT


def _tensors(path: Path, cursor: c.Cursor, n_tensors: int, alignment: int) -> tuple[TensorInfo, ...]:
    tensors: list[TensorInfo] = []
    seen: set[bytes] = set()
    expected = 0
    for _ in range(n_tensors):
        name = cursor.string(limit=MAX_TENSOR_NAME)
        if name in seen:
            raise c.DamagedError(f"the tensor {harmless(_text(name))} comes twice")
        seen.add(name)
        tensor = _tensor(path, cursor, _text(name))
        if tensor.offset != expected:
            places = f"lies at {units.count(tensor.offset)} where {units.count(expected)} was expected"
            raise c.DamagedError(f"the tensor {harmless(tensor.name)} {places}")
        expected = _padded(tensor.offset + tensor.bytes, alignment)
        tensors.append(tensor)
    return tuple(tensors)


def _tensor(path: Path, cursor: c.Cursor, name: str) -> TensorInfo:
    n_dimensions = cursor.integer(c.U32)
    if n_dimensions > MAX_DIMENSIONS:
        raise c.DamagedError(f"the tensor {harmless(name)} has {units.count(n_dimensions)} dimensions")
    shape = tuple(cursor.integer(c.I64) for _ in range(n_dimensions))
    type_id, offset = cursor.integer(c.I32), cursor.integer(c.U64)
    elements = math.prod(shape)
    if any(n < 0 for n in shape) or elements >= 1 << 63:
        raise c.DamagedError(f"the tensor {harmless(name)} has the shape {shape}")
    storage = BY_ID.get(type_id)
    if storage is None:
        raise _unknown_type(path, name, type_id)
    if shape and shape[0] % storage.block != 0:
        raise c.DamagedError(
            f"a row of {harmless(name)} has {units.count(shape[0])} elements, not a multiple of {storage.block}"
        )
    return TensorInfo(name, storage.name, shape, offset, elements // storage.block * storage.bytes)


def _unknown_type(path: Path, name: str, type_id: int) -> Exception:
    if type_id in REMOVED:
        return ModelFileError(
            f"{shown(path)} holds {REMOVED[type_id]} weights, a type that llama.cpp no longer reads.",
            remedy="Get the same model as Q4_0 (it is repacked on loading), or quantise it anew.",
        )
    if TYPE_COUNT <= type_id < 2 * TYPE_COUNT:
        return ModelFileError(
            f"{shown(path)} holds weights of type {type_id}, which is newer than the installed llama.cpp.",
            remedy="Update Stackscope, or get the model in an older type such as Q4_K_M.",
        )
    return c.DamagedError(f"the tensor {harmless(name)} has the impossible type {type_id}")


def _check_extent(path: Path, tensors: tuple[TensorInfo, ...], data_offset: int, file_bytes: int) -> None:
    if not tensors:
        return
    needed = data_offset + max(t.offset + t.bytes for t in tensors)
    if needed > file_bytes:
        first = next(t for t in tensors if data_offset + t.offset + t.bytes > file_bytes)
        share = units.percent(file_bytes / needed)
        sizes = f"{units.data_size(file_bytes)} of {units.data_size(needed)} ({share})"
        raise _cut_short(path, f"has {sizes} and ends inside {harmless(first.name)}")
    if data_offset > file_bytes:  # only empty tensors: nothing to read, but the C reader would refuse it
        raise c.CutShortError


def _cut_short(path: Path, how: str) -> ModelFileError:
    joined = _RAW_PART.sub("", path.name)
    if joined != path.name:
        return ModelFileError(
            f"{shown(path)} is one part of a file.", remedy=f"Join the parts in order into {shown(joined)}."
        )
    return ModelFileError(f"{shown(path)} is cut short: it {how}.", remedy=_FETCH_AGAIN)


def _not_gguf(path: Path, prefix: bytes) -> ModelFileError:
    joined = _RAW_PART.sub("", path.name)
    if prefix and joined != path.name:
        return ModelFileError(
            f"{shown(path)} is one part of a file, and not the first.",
            remedy=f"Join the parts in order into {shown(joined)}.",
        )
    if b"GGUF".startswith(prefix) and prefix:
        return _cut_short(path, f"ends after {len(prefix)} bytes")
    found = impostor(prefix)
    return ModelFileError(f"{shown(path)} is {found.kind}.", remedy=found.remedy)


def _padded(position: int, alignment: int) -> int:
    return (position + alignment - 1) // alignment * alignment


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
