"""The child process that touches the native library for a model file: it reads headers, and quantises.

Run by path, isolated, with only the standard library, so that it starts in 30 ms:

    python -I -S native_worker.py read      LIBRARIES PATH
    python -I -S native_worker.py types     LIBRARIES
    python -I -S native_worker.py quantise  LIBRARIES SOURCE OUTPUT FTYPE N_THREADS REQUANTISE DRY_RUN

The result is JSON on fd 1. The library writes its log, and its last words when it aborts, to fd 2. Exit code 1 with
nothing on fd 1: the library refused, and its log says why.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import signal
import sys
from pathlib import Path

FULL_ARRAY = 1024
"""Arrays up to this length are given whole: per-layer ones are (llama.cpp has at most 512 layers), vocabularies not."""

SCALAR_GETTERS = {
    0: ("u8", ctypes.c_uint8),
    1: ("i8", ctypes.c_int8),
    2: ("u16", ctypes.c_uint16),
    3: ("i16", ctypes.c_int16),
    4: ("u32", ctypes.c_uint32),
    5: ("i32", ctypes.c_int32),
    6: ("f32", ctypes.c_float),
    7: ("bool", ctypes.c_bool),
    10: ("u64", ctypes.c_uint64),
    11: ("i64", ctypes.c_int64),
    12: ("f64", ctypes.c_double),
}
STRING, ARRAY, BOOL = 8, 9, 7


class InitParams(ctypes.Structure):
    """`struct gguf_init_params`."""

    _fields_ = (("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p))


class QuantizeParams(ctypes.Structure):
    """`struct llama_model_quantize_params` of the tested library; `main` checks its defaults before using it."""

    _fields_ = (
        ("nthread", ctypes.c_int32),
        ("ftype", ctypes.c_int),
        ("output_tensor_type", ctypes.c_int),
        ("token_embedding_type", ctypes.c_int),
        ("allow_requantize", ctypes.c_bool),
        ("quantize_output_tensor", ctypes.c_bool),
        ("only_copy", ctypes.c_bool),
        ("pure", ctypes.c_bool),
        ("keep_split", ctypes.c_bool),
        ("dry_run", ctypes.c_bool),
        ("imatrix", ctypes.c_void_p),
        ("kv_overrides", ctypes.c_void_p),
        ("tt_overrides", ctypes.c_void_p),
        ("prune_layers", ctypes.c_void_p),
        ("max_buf_size", ctypes.c_size_t),
    )


def find(folder: Path, name: str) -> Path | None:
    """`libNAME` in the folder of the binding, whatever the platform calls it. `None`: it is not there."""
    names = (f"lib{name}.so", f"lib{name}.dylib", f"{name}.dll", f"lib{name}.dll")
    return next((folder / file_name for file_name in names if (folder / file_name).exists()), None)


def load(folder: Path, name: str) -> ctypes.CDLL:
    """Load `libNAME`."""
    if sys.platform == "win32":
        os.add_dll_directory(str(folder))
    found = find(folder, name)
    if found is None:
        raise SystemExit(f"there is no lib{name} in {folder}")
    return ctypes.CDLL(str(found))


def read(folder: Path, path: str) -> dict[str, object] | None:
    """Header of a GGUF file by `gguf_init_from_file`: metadata, and name, type, shape, offset and bytes per tensor."""
    lib = load(folder, "ggml-base")
    lib.gguf_init_from_file.restype = ctypes.c_void_p
    lib.gguf_init_from_file.argtypes = [ctypes.c_char_p, InitParams]
    context = lib.gguf_init_from_file(os.fsencode(path), InitParams(no_alloc=True, ctx=None))
    if context is None:
        return None
    gguf = ctypes.c_void_p(context)
    for name in ("gguf_get_n_kv", "gguf_get_n_tensors"):
        getattr(lib, name).restype = ctypes.c_int64
    for name in ("gguf_get_alignment", "gguf_get_data_offset"):
        getattr(lib, name).restype = ctypes.c_size_t
    return {
        "version": lib.gguf_get_version(gguf),
        "alignment": lib.gguf_get_alignment(gguf),
        "data_offset": lib.gguf_get_data_offset(gguf),
        "metadata": metadata(lib, gguf),
        "tensors": tensors(lib, gguf),
    }


def metadata(lib: ctypes.CDLL, gguf: ctypes.c_void_p) -> dict[str, object]:
    """Every key with its value; a long array, or one of texts, is None. The length of an array stands under KEY#n."""
    lib.gguf_get_key.restype = ctypes.c_char_p
    lib.gguf_get_arr_n.restype = ctypes.c_size_t
    lib.gguf_get_arr_data.restype = ctypes.c_void_p
    lib.gguf_get_val_str.restype = ctypes.c_char_p
    found: dict[str, object] = {}
    for index in range(lib.gguf_get_n_kv(gguf)):
        number = ctypes.c_int64(index)
        key = lib.gguf_get_key(gguf, number).decode("utf-8", "replace")
        kind = lib.gguf_get_kv_type(gguf, number)
        if kind == STRING:
            found[key] = lib.gguf_get_val_str(gguf, number).decode("utf-8", "replace")
        elif kind == ARRAY:
            found[key] = array(lib, gguf, number)
            found[f"{key}#n"] = lib.gguf_get_arr_n(gguf, number)
        else:
            name, c_type = SCALAR_GETTERS[kind]
            getter = getattr(lib, f"gguf_get_val_{name}")
            getter.restype = c_type
            found[key] = finite(getter(gguf, number))
    return found


def array(lib: ctypes.CDLL, gguf: ctypes.c_void_p, number: ctypes.c_int64) -> list[object] | None:
    """The elements of a short numeric array; bools are bytes in the library on every platform."""
    kind, count = lib.gguf_get_arr_type(gguf, number), lib.gguf_get_arr_n(gguf, number)
    if kind not in SCALAR_GETTERS or count > FULL_ARRAY:
        return None
    if count == 0:
        return []
    c_type = ctypes.c_int8 if kind == BOOL else SCALAR_GETTERS[kind][1]
    elements = (c_type * count).from_address(lib.gguf_get_arr_data(gguf, number))
    return [element != 0 if kind == BOOL else finite(element) for element in elements]


def finite(value: object) -> object:
    """JSON has no NaN and no infinity: such a value is not known."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def tensors(lib: ctypes.CDLL, gguf: ctypes.c_void_p) -> list[list[object]]:
    """Name, type's name, shape, offset in the tensor section and bytes of every tensor, in the order of the file."""
    lib.gguf_get_tensor_name.restype = ctypes.c_char_p
    lib.gguf_get_tensor_ne.restype = ctypes.POINTER(ctypes.c_int64)
    lib.gguf_get_tensor_offset.restype = ctypes.c_size_t
    lib.gguf_get_tensor_size.restype = ctypes.c_size_t
    lib.ggml_type_name.restype = ctypes.c_char_p
    table: list[list[object]] = []
    for index in range(lib.gguf_get_n_tensors(gguf)):
        number = ctypes.c_int64(index)
        shape = lib.gguf_get_tensor_ne(gguf, number)[:4]
        table.append(
            [
                lib.gguf_get_tensor_name(gguf, number).decode("utf-8", "replace"),
                lib.ggml_type_name(lib.gguf_get_tensor_type(gguf, number)).decode(),
                shape,
                lib.gguf_get_tensor_offset(gguf, number),
                lib.gguf_get_tensor_size(gguf, number),
            ]
        )
    return table


def types(folder: Path) -> list[list[object]]:
    """Number, name, elements and bytes per block of every storage type that the library knows and still reads."""
    lib = load(folder, "ggml-base")
    lib.ggml_type_name.restype = ctypes.c_char_p
    lib.ggml_blck_size.restype = ctypes.c_int64
    lib.ggml_type_size.restype = ctypes.c_size_t
    count = 43  # GGML_TYPE_COUNT of the tested library; ggml_type_name asserts nothing beyond it
    return [
        [number, lib.ggml_type_name(number).decode(), lib.ggml_blck_size(number), lib.ggml_type_size(number)]
        for number in range(count)
        if lib.ggml_blck_size(number) > 0
    ]


def quantise(folder: Path, source: str, output: str, ftype: int, n_threads: int, flags: tuple[bool, bool]) -> int:
    """`llama_model_quantize`; `flags` are whether to requantise, and whether only to say what would come out.

    Answers the library's result, 0 when it worked.
    """
    lib = load(folder, "llama")
    lib.llama_backend_init.restype = None
    lib.llama_backend_init()
    lib.llama_model_quantize_default_params.restype = QuantizeParams
    params = lib.llama_model_quantize_default_params()
    if (params.ftype, params.output_tensor_type, params.quantize_output_tensor, params.max_buf_size) != (
        7,
        43,
        True,
        1 << 33,
    ):
        raise SystemExit("the quantiser's settings are not laid out as in the tested version of llama-cpp-python")
    params.nthread, params.ftype = n_threads, ftype
    params.allow_requantize, params.dry_run = flags
    params.max_buf_size = 1 << 28  # keeps a large expert tensor from being held whole as F32
    lib.llama_model_quantize.restype = ctypes.c_uint32
    lib.llama_model_quantize.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(QuantizeParams)]
    return int(lib.llama_model_quantize(os.fsencode(source), os.fsencode(output), ctypes.byref(params)))


def end_with_parent() -> None:
    """Do not go on alone when the parent is killed: end at once on Linux, elsewhere at the next line of log."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def main(arguments: list[str]) -> int:
    end_with_parent()
    verb, folder = arguments[0], Path(arguments[1])
    result: object
    if verb == "read":
        result = read(folder, arguments[2])
        if result is None:
            return 1
    elif verb == "types":
        result = types(folder)
    elif verb == "quantise":
        source, output, ftype, n_threads, requantise, dry_run = arguments[2:]
        flags = (requantise == "1", dry_run == "1")
        if quantise(folder, source, output, int(ftype), int(n_threads), flags) != 0:
            return 1
        result = "done"
    else:
        raise SystemExit(f"unknown verb {verb}")
    json.dump(result, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
