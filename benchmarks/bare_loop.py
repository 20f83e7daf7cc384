"""The baseline: a loop over the library that decodes and takes the argmax of every row, and does nothing else.

Run by `benchmarks.arms`, which asks for blocks on standard input and reads how long they took from standard output. It
has the engine's context, threads, batch arrays and positions, no abort callback, and no line of the engine's code.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import llama_cpp
import msgspec
import numpy as np

from benchmarks.lockstep import Ask, Setup, Taken, digest, prompts

if TYPE_CHECKING:
    from numpy.typing import NDArray

lib: Any = llama_cpp


class BareLoop:
    """A model, a context, and a batch whose arrays numpy owns."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._number = 0
        self._silent = lib.llama_log_callback(lambda *_: None)
        lib.llama_log_set(self._silent, ctypes.c_void_p(0))
        lib.llama_backend_init()
        model = lib.llama_model_load_from_file(os.fsencode(setup.config.model), lib.llama_model_default_params())
        params = lib.llama_context_default_params()
        for name, value in setup.context.items():
            setattr(params, name, value)
        self._context = lib.llama_init_from_model(model, params)
        if not self._context:
            raise SystemExit("the library could not create the context")
        lib.llama_set_n_threads(self._context, params.n_threads, params.n_threads_batch)
        self.n_vocab = int(lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model)))
        self._allocate(int(params.n_batch))
        # The binding's own prototypes build a pointer object on every call.
        library = ctypes.CDLL(lib.llama_cpp._lib._name)
        self._decode = library.llama_decode
        self._decode.argtypes, self._decode.restype = [ctypes.c_void_p, lib.llama_batch], ctypes.c_int32
        self._logits = library.llama_get_logits
        self._logits.argtypes, self._logits.restype = [ctypes.c_void_p], ctypes.c_void_p
        self._views: dict[tuple[int, int], NDArray[np.float32]] = {}

    def _allocate(self, capacity: int) -> None:
        self.token = np.zeros(capacity, np.int32)
        self.position = np.zeros(capacity, np.int32)
        self.sequence = np.zeros(capacity, np.int32)
        self.output = np.zeros(capacity, np.int8)
        self._ones = np.ones(capacity, np.int32)
        self._addresses = self.sequence.ctypes.data + 4 * np.arange(capacity, dtype=np.uint64)
        self.batch = lib.llama_batch(
            n_tokens=0,
            token=_pointer(self.token, lib.llama_token),
            embd=None,
            pos=_pointer(self.position, lib.llama_pos),
            n_seq_id=_pointer(self._ones, ctypes.c_int32),
            seq_id=_pointer(self._addresses, ctypes.POINTER(lib.llama_seq_id)),
            logits=_pointer(self.output, ctypes.c_int8),
        )

    def _forward(self, n_rows: int, n_outputs: int) -> NDArray[np.intp]:
        """Decode the batch's first rows; the argmax of each row of logits."""
        self.batch.n_tokens = n_rows
        code = self._decode(self._context, self.batch)
        if code != 0:
            raise SystemExit(f"llama_decode answered {code}")
        address = self._logits(self._context)  # Waits for the backend.
        view = self._views.get((address, n_outputs))
        if view is None:
            raw = (ctypes.c_float * (n_outputs * self.n_vocab)).from_address(address)
            view = self._views[address, n_outputs] = np.ctypeslib.as_array(raw).reshape(n_outputs, self.n_vocab)
        best: NDArray[np.intp] = view.argmax(1)
        return best

    def run(self, ask: Ask) -> Taken:
        """One block."""
        n, length = ask.batch, self._setup.prompt_tokens
        number, self._number = 0 if self._setup.is_repeating else self._number, self._number + 1
        lib.llama_memory_clear(lib.llama_get_memory(self._context), False)
        rows = n * length
        self.token[:rows] = np.asarray(prompts(n, length, self.n_vocab, number)).ravel()
        self.position[:rows] = np.tile(np.arange(length), n)
        self.sequence[:rows] = np.repeat(np.arange(n), length)
        self.output[:rows] = 0
        self.output[length - 1 : rows : length] = 1
        said = np.zeros((ask.steps + 1, n), np.int32)
        said[0] = best = self._forward(rows, n)
        self.position[:n] = length
        self.sequence[:n] = np.arange(n)
        self.output[:n] = 1
        begun = time.monotonic_ns()
        for step in range(1, ask.steps + 1):
            self.token[:n] = best
            said[step] = best = self._forward(n, n)
            self.position[:n] += 1
        return Taken(time.monotonic_ns() - begun, digest(said.T.tolist()))


def _pointer(array: NDArray[Any], kind: Any) -> Any:
    return ctypes.cast(array.ctypes.data, ctypes.POINTER(kind))


def main() -> None:
    loop = BareLoop(msgspec.json.decode(sys.stdin.readline(), type=Setup))
    gc.collect()
    gc.freeze()
    gc.disable()
    print("ready", flush=True)
    for line in sys.stdin:
        taken = loop.run(msgspec.json.decode(line, type=Ask))
        print(msgspec.json.encode(taken).decode(), flush=True)


if __name__ == "__main__":
    main()
