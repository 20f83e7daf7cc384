"""The library, a model, a context and its batch: each a small owner of its native handle.

Nothing here decides anything. Every number is checked before it crosses into native code, because the library answers
a bad one with an assertion and an abort. The process that imports this module is the engine child.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import llama_cpp
import numpy as np
from llama_cpp import llama_cpp as low

from stackscope.engine.devices import registered
from stackscope.errors import EngineError, LibraryError, ToggleRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from stackscope.engine.abort import AbortFlag
    from stackscope.engine.devices import Device
    from stackscope.engine.sizing import ContextSize
    from stackscope.toggles import EngineConfig

TESTED_VERSIONS: Final = ("0.3.36", "0.3.37")
"""First tested version of the binding, and the first one that is not."""

GGML_TYPES: Final = {
    "f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "iq4_nl": 20, "bf16": 30,
}  # fmt: skip
SPLIT_MODES: Final = {"none": 0, "layer": 1, "row": 2, "tensor": 3}

PLAIN_ROPES: Final = (-1, 0, 2)
"""Rotary embeddings with one position per token: none, adjacent pairs, halves."""

_DEFAULTS: Final[dict[str, dict[str, object]]] = {
    "context": {
        "n_ctx": 512, "n_batch": 2048, "n_ubatch": 512, "n_seq_max": 1, "n_outputs_max": 0, "flash_attn_type": -1,
        "type_k": 1, "type_v": 1, "offload_kqv": True, "op_offload": True, "swa_full": True, "kv_unified": False,
        "yarn_ext_factor": -1.0, "embeddings": False,
    },
    "model": {"n_gpu_layers": -1, "split_mode": 1, "main_gpu": 0, "vocab_only": False, "use_extra_bufts": True},
}  # fmt: skip
"""What the library itself fills in. A binding whose structs drifted reads other values in these fields."""

LOG_WARNING: Final = 3
LOG_CONTINUED: Final = 5
"""ggml's log levels: below a warning are information and debugging; a continued line has that of the one before."""

_log_handler = None  # the callback object must outlive the library's use of it


class DecodeStatus:
    """What `llama_decode` answers."""

    OK: Final = 0
    NO_ROOM: Final = 1
    """No KV cells for the batch; the memory is as before."""
    ABORTED: Final = 2
    """The abort flag was raised; ubatches done before it remain in the memory."""


def check_binding() -> None:
    """Refuse a binding outside the tested range, or one whose structs do not match the shared library.

    Raises `LibraryError`.
    """
    version = llama_cpp.__version__
    remedy = f"Install llama-cpp-python>={TESTED_VERSIONS[0]},<{TESTED_VERSIONS[1]} in this environment."
    if not _version(TESTED_VERSIONS[0]) <= _version(version) < _version(TESTED_VERSIONS[1]):
        raise LibraryError(
            f"llama-cpp-python {version} is not a version that Stackscope was tested with.", remedy=remedy
        )
    actual = {"context": low.llama_context_default_params(), "model": low.llama_model_default_params()}
    for struct, fields in _DEFAULTS.items():
        for name, expected in fields.items():
            value = getattr(actual[struct], name)
            if value != expected:
                raise LibraryError(
                    f"The llama.cpp library and its Python binding disagree: default {struct} parameter {name} reads "
                    f"{value!r}, not {expected!r}.",
                    remedy=remedy,
                )


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:3] if part.isdigit())


def start_library() -> None:
    """Check the binding, route the library's warnings and errors to fd 2, and initialise the backends."""
    global _log_handler
    check_binding()

    is_wanted = False

    def write(level: int, text: bytes | None, _user: object) -> None:
        nonlocal is_wanted
        if level != LOG_CONTINUED:
            # Each context tells some sixty lines of its making, which would bury the line that matters.
            is_wanted = level >= LOG_WARNING
        if text and is_wanted:
            os.write(2, text)

    _log_handler = low.llama_log_callback(write)
    low.llama_log_set(_log_handler, ctypes.c_void_p(0))
    low.llama_backend_init()


def library_description(found: Sequence[Device] | None = None) -> str:
    """Binding version, the CPU features and backends in use, and the GPUs that it can offload to, one line.

    `found`: the build's `devices`, where they have been asked for already.
    """
    info = low.llama_print_system_info().decode(errors="replace").strip()
    gpus = [
        device.name for device in (devices() if found is None else found) if device.is_gpu
    ]  # Not every backend tells of its features.
    said = f" offloads to {', '.join(gpus)} |" if gpus else ""
    return f"llama-cpp-python {llama_cpp.__version__} | {info}{said}"


def library_folder() -> Path:
    """Where the library and its backends are."""
    return Path(low._lib._name).parent


def devices() -> tuple[Device, ...]:
    """The devices that this build has found."""
    return registered(library_folder())


def supports_offload() -> bool:
    """Whether this build can put layers on a GPU."""
    return bool(low.llama_supports_gpu_offload())


class Model:
    """A loaded model. Contexts made from it must be closed first."""

    def __init__(self, path: str, config: EngineConfig, *, progress: Callable[[float], None] | None = None) -> None:
        """Load a model. Raises `EngineError` when the library refuses the file."""
        params = low.llama_model_default_params()
        params.n_gpu_layers = config.gpu_layers
        params.main_gpu = config.main_gpu
        params.split_mode = SPLIT_MODES[config.split_mode]
        if config.tensor_split:
            n_devices = int(low.llama_max_devices())
            if len(config.tensor_split) > n_devices:
                raise ToggleRefusedError(
                    f"--tensor-split has {len(config.tensor_split)} shares; there can be {n_devices} devices.",
                    remedy="Give one number per device.",
                )
            self._split = (ctypes.c_float * n_devices)(*config.tensor_split)
            params.tensor_split = self._split
        if progress is not None:
            self._progress = low.llama_progress_callback(lambda done, _user: (progress(done), True)[1])
            params.progress_callback = self._progress
        handle = low.llama_model_load_from_file(os.fsencode(path), params)
        if not handle:
            raise EngineError(
                f"llama.cpp could not load {path}.",
                remedy="Its last log lines say why; check free memory and that this build knows the architecture.",
            )
        self._handle: int | None = handle
        self.path = path
        self.n_vocab = int(low.llama_vocab_n_tokens(self.vocab))
        self.trained_context = int(low.llama_model_n_ctx_train(handle))
        self.is_recurrent = bool(low.llama_model_is_recurrent(handle))
        self.is_hybrid = bool(low.llama_model_is_hybrid(handle))
        self.n_swa = int(low.llama_model_n_swa(handle))
        self.description = self._text(low.llama_model_desc)

    @property
    def handle(self) -> int:
        assert self._handle is not None, "the model is closed"
        return self._handle

    @property
    def vocab(self) -> int:
        """The model's vocabulary, which lives as long as the model."""
        found: int = low.llama_model_get_vocab(self.handle)
        return found

    def close(self) -> None:
        if self._handle is not None:
            low.llama_model_free(self._handle)
            self._handle = None

    def _text(self, read: Callable[..., int]) -> str:
        buffer = ctypes.create_string_buffer(512)
        read(self.handle, buffer, len(buffer))
        return buffer.value.decode(errors="replace")


class Batch:
    """Rows for one forward, in arrays that numpy owns and the library reads in place.

    `token`, `position`, `sequence` and `output` have `capacity` entries; the caller fills the first `n` and says so.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.token: NDArray[np.int32] = np.zeros(capacity, np.int32)
        self.position: NDArray[np.int32] = np.zeros(capacity, np.int32)
        self.sequence: NDArray[np.int32] = np.zeros(capacity, np.int32)
        self.output: NDArray[np.int8] = np.zeros(capacity, np.int8)
        self._ones = np.ones(capacity, np.int32)
        addresses = self.sequence.ctypes.data + 4 * np.arange(capacity, dtype=np.uint64)
        self._addresses: NDArray[np.uint64] = addresses.astype(np.uint64)

        def pointer(array: NDArray[np.generic], kind: type) -> object:
            return ctypes.cast(array.ctypes.data, ctypes.POINTER(kind))

        self.struct = low.llama_batch(
            n_tokens=0,
            token=pointer(self.token, low.llama_token),
            embd=None,
            pos=pointer(self.position, low.llama_pos),
            n_seq_id=pointer(self._ones, ctypes.c_int32),
            seq_id=ctypes.cast(self._addresses.ctypes.data, ctypes.POINTER(ctypes.POINTER(low.llama_seq_id))),
            logits=pointer(self.output, ctypes.c_int8),
        )


class SequenceRange(NamedTuple):
    """First and last position that the memory holds of a sequence; -1, -1 when it holds none."""

    first: int
    last: int


class Context:
    """A context: the KV cache of all sequences, and the forward."""

    def __init__(self, model: Model, size: ContextSize, config: EngineConfig, abort: AbortFlag) -> None:
        """Create a context of a size that `engine.sizing` has checked. Raises `EngineError` when memory runs out."""
        params = low.llama_context_default_params()
        params.n_ctx = size.n_ctx
        params.n_batch = size.n_batch
        params.n_ubatch = size.n_ubatch
        params.n_seq_max = size.n_seq_max
        params.n_outputs_max = size.n_outputs_max
        params.n_threads = params.n_threads_batch = size.threads
        params.type_k = GGML_TYPES[config.kv_type_k]
        params.type_v = GGML_TYPES[config.kv_type_v]
        params.flash_attn_type = 1 if config.flash_attention else 0
        params.swa_full = config.swa_full
        params.kv_unified = config.unified_kv
        params.no_perf = True
        params.abort_callback = low.ggml_abort_callback(abort.function)
        params.abort_callback_data = ctypes.c_void_p(abort.data)
        handle = low.llama_init_from_model(model.handle, params)
        if not handle:
            raise EngineError(
                f"llama.cpp could not create a context of {size.n_ctx} cells for {size.n_seq_max} sequences.",
                remedy="Ask for less: fewer --context tokens, fewer --slots, or a smaller --kv-type.",
            )
        self._handle: int | None = handle
        self._abort = abort  # its byte must outlive the context
        self.model = model
        self.size = size
        self.batch = Batch(size.n_batch)
        self.n_ctx = int(low.llama_n_ctx(handle))
        self.n_ctx_seq = int(low.llama_n_ctx_seq(handle))
        self._memory = low.llama_get_memory(handle)
        self._views: dict[tuple[int, int], NDArray[np.float32]] = {}
        self._is_asynchronous = supports_offload()
        """A forward may go on when the call has returned. On processors alone it does not."""
        self.set_threads(size.threads)

    @property
    def handle(self) -> int:
        assert self._handle is not None, "the context is closed"
        return self._handle

    def close(self) -> None:
        if self._handle is not None:
            self._views.clear()
            low.llama_free(self._handle)
            self._handle = None

    def set_threads(self, n: int) -> None:
        low.llama_set_n_threads(self.handle, n, n)

    def decode(self, n_rows: int) -> int:
        """Run the first `n_rows` of the batch and wait for the backend. Answers one of `DecodeStatus`.

        Raises `EngineError` for an invalid batch or a failed computation.
        """
        batch = self.batch.struct
        if not 0 < n_rows <= self.batch.capacity:
            raise EngineError(f"A batch of {n_rows} rows does not fit one of {self.batch.capacity}.")
        batch.n_tokens = n_rows
        code = _decode(self._handle, batch)
        if self._is_asynchronous:
            _synchronize(self._handle)
        if code < 0:
            kind = "refused the batch as invalid" if code == -1 else "failed inside a forward"
            raise EngineError(f"llama.cpp {kind} (code {code}).", remedy="Its last log lines say why.")
        return int(code)

    def logits(self, n_outputs: int) -> NDArray[np.float32]:
        """The logit rows of the last forward, `[n_outputs, n_vocab]`, in the order of the batch's output rows.

        A view of the library's memory: it dies at the next decode.
        """
        address = _get_logits(self._handle)
        if not address:
            raise EngineError("The last forward produced no logits.")
        key = (address, n_outputs)
        view = self._views.get(key)
        if view is None:
            if len(self._views) > 512:
                self._views.clear()
            raw = (ctypes.c_float * (n_outputs * self.model.n_vocab)).from_address(address)
            view = np.ctypeslib.as_array(raw).reshape(n_outputs, self.model.n_vocab)
            view.flags.writeable = False
            self._views[key] = view
        return view

    # Memory operations. Sequence ids and positions are checked: the library asserts on a bad id.

    def _check(self, *sequences: int) -> None:
        for sequence in sequences:
            if not 0 <= sequence < self.size.n_seq_max:
                raise EngineError(f"Sequence id {sequence} is outside 0..{self.size.n_seq_max - 1}.")

    def remove(self, sequence: int, start: int, stop: int = -1) -> bool:
        """Forget positions `start` up to `stop` (-1: to the end). False: this memory cannot remove a part."""
        self._check(sequence)
        return bool(_seq_rm(self._memory, sequence, start, stop))

    def copy(self, source: int, target: int, start: int, stop: int) -> None:
        """Let `target` share `source`'s cells at positions `start` up to `stop`; with split KV, copy all (-1, -1)."""
        self._check(source, target)
        if not self.size.is_unified and (start, stop) != (-1, -1):
            raise EngineError("With split KV only a whole sequence can be copied.")
        _seq_cp(self._memory, source, target, start, stop)

    @property
    def can_shift(self) -> bool:
        """Whether positions can be moved: not where a token has several, where the library asserts."""
        is_plain = int(low.llama_model_rope_type(self.model.handle)) in PLAIN_ROPES
        return is_plain and bool(low.llama_memory_can_shift(self._memory))

    def shift(self, sequence: int, by: int) -> None:
        """Move all positions of a sequence; its keys are turned before the next forward. `can_shift` has to hold."""
        self._check(sequence)
        low.llama_memory_seq_add(self._memory, sequence, 0, -1, by)

    def clear(self) -> None:
        low.llama_memory_clear(self._memory, False)

    def range_of(self, sequence: int) -> SequenceRange:
        self._check(sequence)
        first = int(low.llama_memory_seq_pos_min(self._memory, sequence))
        return SequenceRange(first, int(low.llama_memory_seq_pos_max(self._memory, sequence)))

    def state_bytes(self, sequence: int) -> int:
        """Size of the serialised state of one sequence, in bytes."""
        self._check(sequence)
        return int(low.llama_state_seq_get_size(self.handle, sequence))

    def save_state(self, sequence: int, into: NDArray[np.uint8]) -> int:
        """Serialise one sequence into memory of at least `state_bytes`; the bytes written. Raises `EngineError`."""
        self._check(sequence)
        target = into.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
        n_bytes = int(low.llama_state_seq_get_data(self.handle, target, into.nbytes, sequence))
        if n_bytes == 0:
            raise EngineError("The library could not save the state of a sequence.")
        return n_bytes

    def load_state(self, sequence: int, state: NDArray[np.uint8]) -> None:
        """Put a saved state in place of what a sequence holds. Raises `EngineError` when there is no room for it."""
        self._check(sequence)
        source = state.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
        if int(low.llama_state_seq_set_data(self.handle, source, state.nbytes, sequence)) == 0:
            raise EngineError("The library could not load the state of a sequence.")


# The four calls of the hot path and the pointer they answer, with prototypes of our own: the binding's wrappers build a
# pointer object for each logit view, which costs more than the call.
_library = ctypes.CDLL(low._lib._name)
_decode = _library.llama_decode
_decode.argtypes, _decode.restype = [ctypes.c_void_p, low.llama_batch], ctypes.c_int32
_synchronize = _library.llama_synchronize
_synchronize.argtypes, _synchronize.restype = [ctypes.c_void_p], None
_get_logits = _library.llama_get_logits
_get_logits.argtypes, _get_logits.restype = [ctypes.c_void_p], ctypes.c_void_p
_seq_rm = _library.llama_memory_seq_rm
_seq_rm.argtypes, _seq_rm.restype = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32], ctypes.c_bool
_seq_cp = _library.llama_memory_seq_cp
_seq_cp.argtypes, _seq_cp.restype = [ctypes.c_void_p] + [ctypes.c_int32] * 4, None
