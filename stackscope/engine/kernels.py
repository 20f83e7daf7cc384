"""The library's own matrix product, outside any model: its rate per storage type, and how fast it reads memory.

A graph of products is made as the model loader and the engine make theirs: matrices in the buffer type that the device
prefers for them (repacked, where the CPU has kernels for that), computed by the same team of threads. ggml's functions
are called directly, because the binding has no names for most of them. Whoever uses this has started the library.
"""

from __future__ import annotations

import ctypes
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from stackscope.errors import EngineError, LibraryError
from stackscope.model import native_worker
from stackscope.model.ggml_types import BY_NAME, row_bytes
from stackscope.model.native import library_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

_LIBRARIES: Final = ("ggml-base", "ggml")
_CPU, _GPU, _INTEGRATED_GPU = 0, 1, 2
_F32: Final = 0
_POINTER: Final = ctypes.c_void_p


class _InitParams(ctypes.Structure):
    """`struct ggml_init_params`."""

    _fields_ = (("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool))


_SIGNATURES: Final[dict[str, tuple[Any, list[Any]]]] = {
    "ggml_init": (_POINTER, [_InitParams]),
    "ggml_free": (None, [_POINTER]),
    "ggml_tensor_overhead": (ctypes.c_size_t, []),
    "ggml_graph_overhead_custom": (ctypes.c_size_t, [ctypes.c_size_t, ctypes.c_bool]),
    "ggml_new_tensor_2d": (_POINTER, [_POINTER, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]),
    "ggml_nbytes": (ctypes.c_size_t, [_POINTER]),
    "ggml_mul_mat": (_POINTER, [_POINTER, _POINTER, _POINTER]),
    "ggml_new_graph_custom": (_POINTER, [_POINTER, ctypes.c_size_t, ctypes.c_bool]),
    "ggml_build_forward_expand": (None, [_POINTER, _POINTER]),
    "ggml_backend_dev_by_type": (_POINTER, [ctypes.c_int]),
    "ggml_backend_dev_init": (_POINTER, [_POINTER, ctypes.c_char_p]),
    "ggml_backend_dev_buffer_type": (_POINTER, [_POINTER]),
    "ggml_backend_dev_backend_reg": (_POINTER, [_POINTER]),
    "ggml_backend_dev_supports_op": (ctypes.c_bool, [_POINTER, _POINTER]),
    "ggml_backend_reg_get_proc_address": (_POINTER, [_POINTER, ctypes.c_char_p]),
    "ggml_backend_alloc_ctx_tensors_from_buft": (_POINTER, [_POINTER, _POINTER]),
    "ggml_backend_buffer_free": (None, [_POINTER]),
    "ggml_backend_tensor_set": (None, [_POINTER, _POINTER, ctypes.c_size_t, ctypes.c_size_t]),
    "ggml_backend_graph_compute": (ctypes.c_int, [_POINTER, _POINTER]),
    "ggml_backend_synchronize": (None, [_POINTER]),
    "ggml_backend_free": (None, [_POINTER]),
}


def _functions() -> SimpleNamespace:
    """The functions of the table without their prefix; the registry of devices is in libggml, the rest in its base."""
    libraries = [native_worker.load(library_folder(), name) for name in _LIBRARIES]
    found = SimpleNamespace()
    for name, (result, arguments) in _SIGNATURES.items():
        function = next((getattr(library, name) for library in libraries if hasattr(library, name)), None)
        if function is None:
            raise LibraryError(f"The inference library has no function {name}.")
        function.restype, function.argtypes = result, arguments
        setattr(found, name.removeprefix("ggml_"), function)
    return found


class Matrix(NamedTuple):
    """Weights as a model file has them: `outputs` rows of `inputs` elements."""

    type: str
    inputs: int
    outputs: int
    data: NDArray[np.uint8]
    """As many bytes as the rows take; whoever makes it sees to that."""


class Device:
    """A device of the library and its own stream of work, as the engine's contexts have one."""

    def __init__(self, *, threads: int, is_gpu: bool) -> None:
        """Open the first GPU, or the CPU with a team of so many threads. Raises `EngineError` when there is none."""
        self.ggml = _functions()
        kinds = (_GPU, _INTEGRATED_GPU) if is_gpu else (_CPU,)
        device = next(filter(None, map(self.ggml.backend_dev_by_type, kinds)), None)
        backend = self.ggml.backend_dev_init(device, None) if device else None
        if not backend:
            raise EngineError(f"The inference library opens no {'GPU' if is_gpu else 'CPU'} to measure.")
        self._device = device
        self.backend: int | None = backend
        self.buffer_type = self.ggml.backend_dev_buffer_type(device)
        set_threads = self._function(b"ggml_backend_set_n_threads", None, _POINTER, ctypes.c_int)
        if set_threads is not None:
            set_threads(backend, threads)
        self._preferred = list(self._extra_buffer_types())

    def _function(self, name: bytes, result: Any, *arguments: Any) -> Any:
        registry = self.ggml.backend_dev_backend_reg(self._device)
        address = self.ggml.backend_reg_get_proc_address(registry, name)
        return ctypes.CFUNCTYPE(result, *arguments)(address) if address else None

    def _extra_buffer_types(self) -> Iterator[int]:
        """Buffer types that lay weights out for faster kernels, in the library's order of preference."""
        listing = self._function(b"ggml_backend_dev_get_extra_bufts", ctypes.POINTER(_POINTER), _POINTER)
        found = listing(self._device) if listing is not None else None
        index = 0
        while found and found[index]:
            yield found[index]
            index += 1

    def best_buffer_type(self, matrix: Matrix) -> int:
        """Where the model loader would put such a matrix."""
        for kind in self._preferred:
            with _Arena(self.ggml, tensors=3) as probe:
                weights = probe.matrix(matrix)
                if probe.allocate(kind):
                    product = self.ggml.mul_mat(probe.context, weights, probe.activations(matrix.inputs, 1))
                    if self.ggml.backend_dev_supports_op(self._device, product):
                        return kind
        buffer_type: int = self.buffer_type
        return buffer_type

    def close(self) -> None:
        if self.backend is not None:
            self.ggml.backend_free(self.backend)
            self.backend = None


class _Arena:
    """Descriptions of tensors, and one buffer for the data of those that have none yet."""

    def __init__(self, ggml: SimpleNamespace, *, tensors: int, graph: int = 0) -> None:
        size = (tensors + 1) * ggml.tensor_overhead()
        if graph:
            size += ggml.graph_overhead_custom(graph, False)
        self._ggml = ggml
        self.context = ggml.init(_InitParams(size, None, True))
        if not self.context:
            raise EngineError("The inference library has no memory for a measurement.")
        self._buffer: int | None = None

    def matrix(self, matrix: Matrix) -> int:
        tensor: int = self._ggml.new_tensor_2d(
            self.context, BY_NAME[matrix.type.lower()].id, matrix.inputs, matrix.outputs
        )
        return tensor

    def activations(self, width: int, rows: int) -> int:
        tensor: int = self._ggml.new_tensor_2d(self.context, _F32, width, rows)
        return tensor

    def allocate(self, buffer_type: int) -> bool:
        """Give the tensors memory. False: there is none."""
        self._buffer = self._ggml.backend_alloc_ctx_tensors_from_buft(self.context, buffer_type)
        return bool(self._buffer)

    def close(self) -> None:
        if self._buffer:
            self._ggml.backend_buffer_free(self._buffer)
            self._buffer = None
        if self.context:
            self._ggml.free(self.context)
            self.context = None

    def __enter__(self) -> _Arena:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Products:
    """A graph of independent products, each of one matrix with the same activations of `rows` rows."""

    def __init__(self, device: Device, matrices: Sequence[Matrix], rows: int) -> None:
        """Lay the matrices out and make the graph. Raises `EngineError` when there is no memory for it.

        The same data may stand for several matrices: each has a copy of its own.
        """
        self._device = device
        self.rows = rows
        self.bytes = sum(row_bytes(m.type, m.inputs) * m.outputs for m in matrices)
        """Weights that one run reads."""
        self.flops = 2 * rows * sum(m.inputs * m.outputs for m in matrices)
        """Multiplications and additions of one run."""
        self._arenas: list[_Arena] = []
        try:
            self._graph = self._built(matrices)
        except BaseException:
            self.close()
            raise

    def _built(self, matrices: Sequence[Matrix]) -> int:
        ggml = self._device.ggml
        weights = self._laid_out(matrices)
        widths = sorted({matrix.inputs for matrix in matrices})
        nodes = len(matrices) + len(widths)
        arena = self._arena(tensors=nodes, graph=2 * nodes)
        inputs = {width: arena.activations(width, self.rows) for width in widths}
        graph: int = ggml.new_graph_custom(arena.context, 2 * nodes, False)
        for matrix, tensor in zip(matrices, weights, strict=True):
            ggml.build_forward_expand(graph, ggml.mul_mat(arena.context, tensor, inputs[matrix.inputs]))
        self._allocate(arena, self._device.buffer_type)
        for width, tensor in inputs.items():
            values = np.random.default_rng(width).standard_normal(width * self.rows, dtype=np.float32)
            ggml.backend_tensor_set(tensor, values.ctypes.data, 0, values.nbytes)
        return graph

    def _laid_out(self, matrices: Sequence[Matrix]) -> list[int]:
        """The tensors of the matrices, their data in place."""
        ggml = self._device.ggml
        kinds: dict[tuple[str, int, int], int] = {}
        for matrix in matrices:
            shape = (matrix.type, matrix.inputs, matrix.outputs)
            if shape not in kinds:
                kinds[shape] = self._device.best_buffer_type(matrix)
        tensors: dict[int, int] = {}
        for kind in set(kinds.values()):
            mine = [i for i, m in enumerate(matrices) if kinds[m.type, m.inputs, m.outputs] == kind]
            arena = self._arena(tensors=len(mine))
            tensors.update((i, arena.matrix(matrices[i])) for i in mine)
            self._allocate(arena, kind)
        for i, matrix in enumerate(matrices):
            assert ggml.nbytes(tensors[i]) == matrix.data.nbytes, matrix
            ggml.backend_tensor_set(tensors[i], matrix.data.ctypes.data, 0, matrix.data.nbytes)
        return [tensors[i] for i in range(len(matrices))]

    def _arena(self, *, tensors: int, graph: int = 0) -> _Arena:
        arena = _Arena(self._device.ggml, tensors=tensors, graph=graph)
        self._arenas.append(arena)
        return arena

    @staticmethod
    def _allocate(arena: _Arena, kind: int) -> None:
        if not arena.allocate(kind):
            raise EngineError("There is not enough memory for a measurement.")

    def run(self) -> int:
        """Compute all products once; how long it took, in nanoseconds. Raises `EngineError` when it fails."""
        ggml, backend = self._device.ggml, self._device.backend
        begun_ns = time.perf_counter_ns()
        status = ggml.backend_graph_compute(backend, self._graph)
        ggml.backend_synchronize(backend)
        taken_ns = time.perf_counter_ns() - begun_ns
        if status != 0:
            raise EngineError(f"A matrix product failed inside the inference library (code {status}).")
        return taken_ns

    def close(self) -> None:
        for arena in reversed(self._arenas):
            arena.close()
        self._arenas.clear()
