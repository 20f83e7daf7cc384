"""What the inference library can do on this machine, printed as JSON by a process of its own.

Asking the library loads native code that may write to fd 2 or abort, so nobody asks it from a process with a screen.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path
from typing import Any

import llama_cpp
from llama_cpp import llama_cpp as low

from stackscope.engine.llama import check_binding

DEVICE_TYPES = {0: "cpu", 1: "gpu", 2: "integrated gpu", 3: "accelerator"}


def facts() -> dict[str, object]:
    """Library version, build, devices and limits. Raises `LibraryError` for an untested binding."""
    check_binding()
    low.llama_backend_init()
    return {
        "library_version": llama_cpp.__version__,
        "llama_version": low.llama_version().decode(),
        "system_info": low.llama_print_system_info().decode(errors="replace").strip(),
        "gpu_offload": bool(low.llama_supports_gpu_offload()),
        "devices": devices(),
        "max_sequences": int(low.llama_max_parallel_sequences()),
        "max_devices": int(low.llama_max_devices()),
        "mmap": bool(low.llama_supports_mmap()),
        "mlock": bool(low.llama_supports_mlock()),
        "rpc": bool(low.llama_supports_rpc()),
        "build_dir": str(Path(low._lib._name).parent),
    }


def devices() -> list[dict[str, object]]:
    """Every backend device that ggml registered: name, description, kind, memory in bytes (None: not told)."""
    folder = Path(low._lib._name).parent
    # The registry lives in libggml, the accessors of a device in libggml-base.
    names = [
        str(p)
        for p in sorted(folder.iterdir())
        if p.name.startswith(("libggml.", "ggml.", "libggml-base.", "ggml-base."))
    ]
    libraries = [ctypes.CDLL(name) for name in names]

    def function(name: str, restype: object, argtypes: list[object]) -> Any:
        for library in libraries:
            if hasattr(library, name):
                found: Any = getattr(library, name)
                found.restype, found.argtypes = restype, argtypes
                return found
        raise LookupError(name)

    count = function("ggml_backend_dev_count", ctypes.c_size_t, [])
    get = function("ggml_backend_dev_get", ctypes.c_void_p, [ctypes.c_size_t])
    name_of = function("ggml_backend_dev_name", ctypes.c_char_p, [ctypes.c_void_p])
    description_of = function("ggml_backend_dev_description", ctypes.c_char_p, [ctypes.c_void_p])
    type_of = function("ggml_backend_dev_type", ctypes.c_int, [ctypes.c_void_p])
    size_p = ctypes.POINTER(ctypes.c_size_t)
    memory_of = function("ggml_backend_dev_memory", None, [ctypes.c_void_p, size_p, size_p])
    found: list[dict[str, object]] = []
    for index in range(count()):
        device = get(index)
        free, total = ctypes.c_size_t(0), ctypes.c_size_t(0)
        memory_of(device, ctypes.byref(free), ctypes.byref(total))
        found.append(
            {
                "name": name_of(device).decode(errors="replace"),
                "description": description_of(device).decode(errors="replace"),
                "type": DEVICE_TYPES.get(type_of(device), "unknown"),
                "memory_free": free.value if total.value else None,
                "memory_total": total.value if total.value else None,
            }
        )
    return found


if __name__ == "__main__":
    json.dump(facts(), sys.stdout)
