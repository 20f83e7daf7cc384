"""Wider copies of a model that compute the same: an honest target of any size, offline, with a draft that fits it.

A gated feed-forward block computes down · (act(gate · x) ∘ (up · x)). Further rows of gate and up meet columns of zeros
in down: every weight is read and multiplied, and nothing is added to the result. So the text stays the same while a
token costs what it costs in a model of the chosen size.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

import numpy as np

from stackscope import units
from stackscope.characters import harmless
from stackscope.errors import ModelFileError, UsageError
from stackscope.model import cursor as c
from stackscope.model.catalog import folder_of
from stackscope.model.files import open_model, require_new, shown, whole_file
from stackscope.model.ftypes import split_type
from stackscope.model.ggml_types import BY_NAME, row_bytes
from stackscope.model.header import Header, TensorInfo, read_header
from stackscope.model.rewrite import copy_bytes, header_bytes, laid_out
from stackscope.model.suitability import require_text_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

STEP: Final = 256
"""Widths are multiples of it: the block of K-quants, so that any type can be made of the copy."""

CHUNK_ELEMENTS: Final = 1 << 20
"""Elements made and written at a time: memory stays below 20 MB for a copy of any size."""

SMALLEST: Final = 0.002
LARGEST: Final = 0.03
"""Bounds of the added weights' magnitude: the size of trained ones, none subnormal in F16, none zero."""

MAX_WIDTH: Final = (1 << 31) - STEP

GATED: Final = frozenset(
    {
        "llama", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "mistral3", "granite", "smollm3", "olmo2", "exaone4",
        "internlm2", "stablelm", "seed_oss", "ernie4_5", "command-r", "cohere2",
    }
)  # fmt: skip
"""Architectures whose feed-forward blocks are of the plain gated kind (`LLM_FFN_PAR` in `src/models/*.cpp`)."""

_ROWS_ADDED: Final = ("ffn_gate.weight", "ffn_up.weight")
_COLUMNS_ADDED: Final = "ffn_down.weight"
_ENTRIES_ADDED: Final = ("ffn_gate.bias", "ffn_up.bias")
_UNTOUCHED: Final = ("ffn_norm.weight", "ffn_norm.bias", "ffn_down.bias")
_FLOAT_TYPES: Final = ("f32", "f16", "bf16")


class Plan(NamedTuple):
    """What a copy will be, before a byte is written."""

    width_before: int
    """Feed-forward width of the source."""
    width: int
    bytes: int
    """Length of the file."""


class Inflated(NamedTuple):
    """A finished copy."""

    path: Path
    plan: Plan
    source_bytes: int


def plan(header: Header, megabytes: float) -> Plan:
    """Choose the width whose file comes closest to `megabytes` (10⁶ bytes each).

    Raises `UsageError` when the size is no larger than the source's or beyond reason, `ModelFileError` when the model
    cannot be widened.
    """
    width_before = _feed_forward(header)
    if not math.isfinite(megabytes) or megabytes <= 0:
        remedy = "For example: stackscope models inflate lab-target-f16 200."
        raise UsageError("The size is a positive number of megabytes.", remedy=remedy)
    at_first = header.data_offset + _section_bytes(header, width_before)
    per_step = _section_bytes(header, width_before + STEP) - _section_bytes(header, width_before)
    width = STEP * round((megabytes * 1e6 - at_first) / per_step + width_before / STEP)
    if width <= width_before:
        size = units.data_size(header.file_bytes)
        raise UsageError(
            f"{units.number(megabytes)} MB leaves nothing to add to {shown(header.path)}, which has {size}.",
            remedy=f"Ask for at least {math.ceil((at_first + per_step) / 1e6)} MB.",
        )
    if width > MAX_WIDTH:
        raise UsageError(
            f"{units.data_size(megabytes * 1e6)} is more than this model can be widened to.",
            remedy=f"Ask for at most {math.floor((at_first + per_step * (MAX_WIDTH - width_before) / STEP) / 1e6)} MB.",
        )
    with open_model(header.path) as old:
        front = len(_front(header, old, _table(header, width), width, megabytes))
    return Plan(width_before, width, front + _section_bytes(header, width))


def default_output(source: Path, megabytes: float) -> Path:
    """Where a copy goes when no place is named: the cache folder, its size in front of the type in its name."""
    stem, suffix = split_type(source.stem)
    return folder_of("inflated") / f"{stem}-{megabytes:g}mb{suffix}.gguf"


def inflate(
    source: Path,
    megabytes: float,
    *,
    output: Path | None = None,
    replace: bool = False,
    seed: int = 0,
    on_progress: Callable[[int, int], None] | None = None,
) -> Inflated:
    """Write a copy of about `megabytes` that gives the same logits, and say what came out.

    The added rows come from `seed` alone, so the same call writes the same file; it appears under its name only when it
    is whole. `on_progress` gets (bytes written, bytes in all). Raises `UsageError` and `ModelFileError` as `plan`, and
    when there is no room.
    """
    header = read_header(source)
    require_text_model(header)
    chosen = plan(header, megabytes)
    target = default_output(header.path, megabytes) if output is None else output
    require_new(target, source=header.path, replace=replace)
    with whole_file(target, needs=chosen.bytes) as temporary:
        try:
            with open_model(header.path) as old, temporary.open("wb", buffering=1 << 20) as new:
                _write(header, chosen, megabytes, np.random.default_rng(seed), old, new, on_progress)
            is_whole = read_header(temporary).file_bytes == chosen.bytes
        except c.CutShortError:
            is_whole = False
        if not is_whole:
            raise ModelFileError(f"{shown(header.path)} changed while it was copied.", remedy="Try again.")
    return Inflated(target, chosen, header.file_bytes)


def _feed_forward(header: Header) -> int:
    """The feed-forward width. Raises `ModelFileError`, with the reason, for a model that cannot be widened."""
    architecture = header.metadata.get("general.architecture")
    if architecture not in GATED:
        raise _refusal(
            header,
            f"of architecture {harmless(str(architecture))}, not known to have plainly gated feed-forward blocks",
        )
    width = header.metadata.get(f"{architecture}.feed_forward_length")
    blocks = header.metadata.get(f"{architecture}.block_count")
    if not isinstance(width, int) or not isinstance(blocks, int) or width < 1:
        raise _refusal(header, "not made of blocks of one feed-forward width")
    shapes = {t.name: t for t in header.tensors}
    for il in range(blocks):
        for part in (*_ROWS_ADDED, _COLUMNS_ADDED):
            tensor = shapes.get(f"blk.{il}.{part}")
            if tensor is None:
                raise _refusal(header, f"without {part} in block {il}: perhaps a mixture of experts")
            if tensor.type not in _FLOAT_TYPES:
                remedy = "Inflate the F16, BF16 or F32 file, then quantise the copy."
                raise _refusal(header, f"quantised ({tensor.type})", remedy)
            is_down = part == _COLUMNS_ADDED
            if len(tensor.shape) != 2 or tensor.shape[0 if is_down else 1] != width:
                raise _refusal(header, f"with {part} of block {il} in the unexpected shape {tensor.shape}")
    known = {*_ROWS_ADDED, _COLUMNS_ADDED, *_ENTRIES_ADDED, *_UNTOUCHED}
    for name in shapes:
        part = _part(name)
        if part.startswith("ffn_") and part not in known:
            raise _refusal(header, f"with {harmless(name)}, which may depend on the feed-forward width")
    return width


def _refusal(header: Header, why: str, remedy: str | None = None) -> ModelFileError:
    if remedy is None:
        remedy = "Inflate a plain model, such as lab-target-f16."
    return ModelFileError(f"{shown(header.path)} cannot be inflated: it is {why}.", remedy=remedy)


def _part(name: str) -> str:
    """The name behind `blk.N.`."""
    return name.split(".", 2)[2] if name.startswith("blk.") else name


def _widened(tensor: TensorInfo, width: int) -> TensorInfo:
    """The tensor's line of the table in the copy; its offset is still the source's."""
    part = _part(tensor.name)
    shape = tensor.shape
    if part in _ROWS_ADDED:
        shape = (shape[0], width)
    elif part == _COLUMNS_ADDED:
        shape = (width, shape[1])
    elif part in _ENTRIES_ADDED:
        shape = (width,)
    if shape == tensor.shape:
        return tensor
    return tensor._replace(shape=shape, bytes=row_bytes(tensor.type, shape[0]) * math.prod(shape[1:]))


def _table(header: Header, width: int) -> tuple[TensorInfo, ...]:
    return laid_out((_widened(t, width) for t in header.tensors), header.alignment)


def _section_bytes(header: Header, width: int) -> int:
    """Length of the copy's tensor section."""
    last = _table(header, width)[-1]
    return last.offset + last.bytes + -last.bytes % header.alignment


def _front(header: Header, old: BinaryIO, table: tuple[TensorInfo, ...], width: int, megabytes: float) -> bytes:
    """The copy's header: the source's, but for the width and the name."""
    architecture = header.metadata["general.architecture"]
    name = f"{header.metadata.get('general.name', header.path.stem)} inflated to {megabytes:g} MB"
    return header_bytes(header, old, table, {f"{architecture}.feed_forward_length": width, "general.name": name})


def _write(
    header: Header,
    chosen: Plan,
    megabytes: float,
    random: np.random.Generator,
    old: BinaryIO,
    new: BinaryIO,
    on_progress: Callable[[int, int], None] | None,
) -> None:
    table = _table(header, chosen.width)
    new.write(_front(header, old, table, chosen.width, megabytes))
    for source, tensor in zip(header.tensors, table, strict=True):
        for chunk in _chunks(header, source, tensor, random, old):
            new.write(chunk)
            if on_progress is not None:
                on_progress(new.tell(), chosen.bytes)
        new.write(bytes(-tensor.bytes % header.alignment))


def _chunks(
    header: Header, source: TensorInfo, tensor: TensorInfo, random: np.random.Generator, old: BinaryIO
) -> Iterator[bytes | memoryview]:
    """The bytes of one tensor of the copy, in order."""
    start = header.data_offset + source.offset
    if _part(tensor.name) == _COLUMNS_ADDED and source != tensor:
        yield from _with_columns(start, source, tensor, old)
        return
    yield from copy_bytes(old, start, source.bytes)
    added = tensor.elements - source.elements
    is_weight = _part(tensor.name) in _ROWS_ADDED
    while added > 0:
        count = min(added, CHUNK_ELEMENTS)
        yield _small_weights(random, count, tensor.type) if is_weight else bytes(row_bytes(tensor.type, count))
        added -= count


def _with_columns(start: int, source: TensorInfo, tensor: TensorInfo, old: BinaryIO) -> Iterator[memoryview]:
    """Rows of the down-projection, each continued with zeros."""
    width = BY_NAME[tensor.type].bytes
    before, after = source.shape[0] * width, tensor.shape[0] * width
    rows_at_once = max(1, CHUNK_ELEMENTS // tensor.shape[0])
    old.seek(start)
    for first in range(0, tensor.shape[1], rows_at_once):
        n_rows = min(rows_at_once, tensor.shape[1] - first)
        rows = np.zeros((n_rows, after), dtype=np.uint8)
        read = old.read(n_rows * before)
        if len(read) != n_rows * before:
            raise c.CutShortError
        rows[:, :before] = np.frombuffer(read, dtype=np.uint8).reshape(n_rows, before)
        yield rows.data.cast("B")


def _small_weights(random: np.random.Generator, count: int, type_name: str) -> memoryview:
    """Weights of either sign, their magnitude even between `SMALLEST` and `LARGEST`, as `type_name` stores them."""
    values: NDArray[np.float32] = random.random(count, dtype=np.float32) * 2 - 1
    values = values * np.float32(LARGEST - SMALLEST) + np.copysign(np.float32(SMALLEST), values)
    if type_name == "f16":
        return values.astype(np.float16).data.cast("B")
    if type_name == "bf16":  # the upper half of an f32
        return (values.view(np.uint32) >> 16).astype(np.uint16).data.cast("B")
    return values.data.cast("B")
