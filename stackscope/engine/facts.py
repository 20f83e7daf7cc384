"""What the inference library can do on this machine, printed as JSON by a process of its own.

Asking the library loads native code that may write to fd 2 or abort, so nobody asks it from a process with a screen.
"""

from __future__ import annotations

import json
import sys

import llama_cpp
import msgspec
from llama_cpp import llama_cpp as low

from stackscope.engine.llama import check_binding, devices, library_folder


def facts() -> dict[str, object]:
    """Library version, build, devices and limits. Raises `LibraryError` for an untested binding."""
    check_binding()
    low.llama_backend_init()
    return {
        "library_version": llama_cpp.__version__,
        "llama_version": low.llama_version().decode(),
        "system_info": low.llama_print_system_info().decode(errors="replace").strip(),
        "gpu_offload": bool(low.llama_supports_gpu_offload()),
        "devices": msgspec.to_builtins(devices()),
        "max_sequences": int(low.llama_max_parallel_sequences()),
        "max_devices": int(low.llama_max_devices()),
        "mmap": bool(low.llama_supports_mmap()),
        "mlock": bool(low.llama_supports_mlock()),
        "rpc": bool(low.llama_supports_rpc()),
        "build_dir": str(library_folder()),
    }


if __name__ == "__main__":
    json.dump(facts(), sys.stdout)
