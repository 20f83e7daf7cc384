"""What to multiply: sets of matrices that stay in the cache or do not, made from a model's own tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from stackscope.engine.kernels import Matrix, Products
from stackscope.experiments.measurements import TimedProducts
from stackscope.experiments.protocol import Item
from stackscope.model.ggml_types import row_bytes
from stackscope.model.roles import is_matrix, layer_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from stackscope.engine.kernels import Device
    from stackscope.model.header import TensorInfo
    from stackscope.model.spec import ModelSpec
    from stackscope.records.ceilings import Place

BEYOND_CACHE: Final = 4
"""What is read over and over lies in memory when it is this many times as large as the last cache."""

UNKNOWN_CACHE_BYTES: Final = 64 << 20
"""Taken for the cache where nobody says how large it is, and for that of a GPU."""

READ_WIDTH: Final = 1024
READ_MATRIX_BYTES: Final = 4 << 20

MATRIX_ROWS: Final = 512
MATRIX_ELEMENTS: Final = 4 << 20
"""Elements multiplied by 512 rows: some 4 GFLOP, a tenth of a second on few cores."""

ROW_GROUP: Final = 64
"""Matrices are cut to a multiple of this: kernels for repacked weights take rows by eight or sixteen."""


class Sets(NamedTuple):
    """How much to read."""

    memory_bytes: int | None
    """`None`: there is not enough memory free to go beyond the cache."""
    model_place: Place
    """Where the model's weights are when a forward reads them."""
    weight_bytes: int
    """What a forward of one row reads of them."""

    @classmethod
    def of(cls, weight_bytes: int, *, cache_bytes: int | None, most_bytes: int) -> Sets:
        """`most_bytes` may be taken for one set."""
        cache = UNKNOWN_CACHE_BYTES if cache_bytes is None else cache_bytes
        fits = cache_bytes is not None and weight_bytes <= cache_bytes
        wanted = BEYOND_CACHE * cache
        return cls(wanted if wanted <= most_bytes else None, "cache" if fits else "memory", weight_bytes)


def reads(device: Device, sets: Sets) -> Iterator[TimedProducts]:
    """Reading alone: products of f32 matrices and one row, which convert nothing.

    They read memory as fast as numpy's sum and maximum do, and what is in the cache twice as fast, as their threads
    are those of the engine, which wait for each other without sleeping.
    """
    wanted: list[tuple[Place, int]] = [("memory", sets.memory_bytes)] if sets.memory_bytes is not None else []
    if sets.model_place == "cache":
        wanted.append(("cache", sets.weight_bytes))
    for place, n_bytes in wanted:
        products = Products(device, _plain(n_bytes), 1)
        item = Item(kind="read", rows=1, place=place, bytes=products.bytes, flops=products.flops)
        yield TimedProducts(item, products)


def _plain(n_bytes: int) -> list[Matrix]:
    """About so many bytes of f32."""
    count = max(1, n_bytes // READ_MATRIX_BYTES)
    outputs = max(1, n_bytes // count // (4 * READ_WIDTH))
    values = np.random.default_rng(0).standard_normal(READ_WIDTH * outputs, dtype=np.float32)
    return [Matrix("f32", READ_WIDTH, outputs, values.view(np.uint8))] * count


def products(device: Device, spec: ModelSpec, sets: Sets) -> Iterator[TimedProducts]:
    """The model's own matrices, type by type: with one row where they lie in a forward, and with many rows."""
    set_bytes = sets.weight_bytes if sets.model_place == "cache" else sets.memory_bytes
    for kind, tensors in matrices_of(spec).items():
        if set_bytes is not None:
            yield _timed(
                device, kind, vector_set(spec, tensors, set_bytes, is_cut=sets.model_place == "cache"), 1, sets
            )
        yield _timed(device, kind, matrix_set(spec, tensors), MATRIX_ROWS, sets)


def _timed(device: Device, kind: str, matrices: Sequence[Matrix], rows: int, sets: Sets) -> TimedProducts:
    made = Products(device, matrices, rows)
    place = sets.model_place
    return TimedProducts(
        Item(kind="product", type=kind, rows=rows, place=place, bytes=made.bytes, flops=made.flops), made
    )


def matrices_of(spec: ModelSpec) -> dict[str, list[TensorInfo]]:
    """Tensors that a forward multiplies by, by storage type; a tied head is the embedding matrix."""
    found: dict[str, list[TensorInfo]] = {}
    for tensor in spec.tensors:
        layer = layer_of(tensor.name)
        is_head = spec.has_tied_head and tensor.name == "token_embd.weight"
        if (is_matrix(tensor) or is_head) and (layer is None or layer < len(spec.layers)):
            found.setdefault(tensor.type, []).append(tensor)
    return found


def vector_set(spec: ModelSpec, tensors: Sequence[TensorInfo], n_bytes: int, *, is_cut: bool) -> list[Matrix]:
    """The tensors one after the other, repeated until they take `n_bytes`; no more than once each when `is_cut`."""
    chosen: list[Matrix] = []
    left = n_bytes
    for tensor in tensors:
        if left <= 0:
            break
        chosen.append(_read(spec.path, spec.data_offset, tensor, left))
        left -= chosen[-1].data.nbytes
    distinct = len(chosen)
    while not is_cut and left > 0:
        chosen.append(chosen[len(chosen) - distinct])
        left -= chosen[-1].data.nbytes
    return chosen


def matrix_set(spec: ModelSpec, tensors: Sequence[TensorInfo]) -> list[Matrix]:
    """Some tensors, of the blocks if there are any, that hold no more than `MATRIX_ELEMENTS` together."""
    inside = [tensor for tensor in tensors if layer_of(tensor.name) is not None] or list(tensors)
    chosen: list[Matrix] = []
    left = MATRIX_ELEMENTS
    for tensor in inside:
        if chosen and tensor.elements > left:
            break
        per_row = row_bytes(tensor.type, tensor.shape[0])
        chosen.append(_read(spec.path, spec.data_offset, tensor, max(1, left // tensor.shape[0]) * per_row))
        left -= chosen[-1].inputs * chosen[-1].outputs
    return chosen


def _read(path: Path, data_offset: int, tensor: TensorInfo, most_bytes: int) -> Matrix:
    """The first rows of a tensor, as many as stay within `most_bytes`; experts follow each other as rows."""
    inputs = tensor.shape[0]
    outputs = tensor.elements // inputs
    per_row = row_bytes(tensor.type, inputs)
    if outputs * per_row > most_bytes:
        outputs = min(outputs, max(ROW_GROUP, most_bytes // per_row // ROW_GROUP * ROW_GROUP))
    data = np.fromfile(path, np.uint8, count=outputs * per_row, offset=data_offset + tensor.offset)
    return Matrix(tensor.type, inputs, outputs, data)
