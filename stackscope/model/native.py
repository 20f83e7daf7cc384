"""Asking the native library about a model file, in a short-lived process of its own.

The library prints its errors on fd 2 and aborts on some malformed files; neither may reach a process with a screen. An
abort here is one sentence.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from stackscope.errors import LibraryError, ModelFileError
from stackscope.model import native_worker
from stackscope.model.files import shown

if TYPE_CHECKING:
    from collections.abc import Callable

READ_TIMEOUT_S: Final = 120
"""Reading a header takes 0.1 s from a local disk; a network file system may be slow, but not that slow."""

KEPT_LINES: Final = 12
"""Last lines of the library's log that are kept for the sentence about a failure."""


class NativeHeader(msgspec.Struct, frozen=True, kw_only=True):
    """A GGUF header as the library's own reader sees it."""

    version: int
    alignment: int
    data_offset: int
    metadata: dict[str, object]
    """Arrays of texts, and those longer than `native_worker.FULL_ARRAY`, are None; `KEY#n` is an array's length."""
    tensors: tuple[tuple[str, str, tuple[int, ...], int, int], ...]
    """Name, type, shape (four dimensions, 1 where there is none), offset in the tensor section, bytes."""


def library_folder() -> Path:
    """Folder of the native libraries that llama-cpp-python brought, found without importing it.

    `LLAMA_CPP_LIB_PATH` overrides it, as it does for the binding. Raises `LibraryError` when there is none.
    """
    named = os.environ.get("LLAMA_CPP_LIB_PATH", "")
    if named:
        folder = Path(named)
    else:
        spec = importlib.util.find_spec("llama_cpp")
        if spec is None or spec.origin is None:
            raise LibraryError("llama-cpp-python is not installed.", remedy="Run: pip install llama-cpp-python.")
        folder = Path(spec.origin).parent / "lib"
    if native_worker.find(folder, "ggml-base") is None:
        remedy = "Install llama-cpp-python again; if LLAMA_CPP_LIB_PATH is set, it names the folder of the libraries."
        raise LibraryError(f"There is no libggml-base in {shown(folder)}.", remedy=remedy)
    return folder


def read(path: Path) -> NativeHeader:
    """Read a header with `gguf_init_from_file`. Raises `ModelFileError` when the library refuses or aborts on it."""
    command = worker_command("read", str(path.absolute()))
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, env=worker_environment(), timeout=READ_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise ModelFileError(f"Reading the header of {shown(path)} did not end in {READ_TIMEOUT_S} s.") from None
    if done.returncode != 0:
        log = done.stderr.decode("utf-8", "replace").splitlines()
        raise failure(f"The inference library cannot read {shown(path)}", done.returncode, log)
    return msgspec.json.decode(done.stdout, type=NativeHeader)


def storage_types() -> list[tuple[int, str, int, int]]:
    """Number, name, elements and bytes per block of every storage type of the installed library."""
    done = subprocess.run(
        worker_command("types"), stdin=subprocess.DEVNULL, capture_output=True, env=worker_environment(), check=True
    )
    return [tuple(row) for row in json.loads(done.stdout)]


def quantise(
    source: Path,
    output: Path,
    *,
    ftype: int,
    n_threads: int,
    requantise: bool,
    dry_run: bool,
    on_line: Callable[[str], None],
) -> None:
    """Run `llama_model_quantize` and hand every line of its log to `on_line` as it occurs.

    The child is stopped when the caller is interrupted or `on_line` raises. Raises `ModelFileError` when the library
    refuses, fails or aborts; what was written of `output` is then the caller's to remove.
    """
    flags = ["1" if requantise else "0", "1" if dry_run else "0"]
    command = worker_command(
        "quantise", str(source.absolute()), str(output.absolute()), str(ftype), str(n_threads), *flags
    )
    kept: list[str] = []
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=worker_environment(),
        start_new_session=True,  # Ctrl-C reaches the parent only, which then stops the child
    ) as child:
        try:
            assert child.stderr is not None
            for raw in child.stderr:
                line = raw.decode("utf-8", "replace").rstrip()
                kept = [*kept[1 - KEPT_LINES :], line]
                on_line(line)
        except BaseException:
            child.kill()
            raise
    if child.returncode != 0:
        remedy = "Choose another type; if the model should be damaged, get it again."
        raise failure(f"Quantising {shown(source)} failed", child.returncode, kept, remedy=remedy)


def failure(what: str, return_code: int, log: list[str], *, remedy: str | None = None) -> ModelFileError:
    """The sentence for a child that ended badly: the signal that killed it, or the library's own last complaint."""
    remedy = _DAMAGED if remedy is None else remedy
    lines = [line.strip() for line in log if line.strip()]
    if return_code < 0:
        known = {s.value: s.name for s in signal.Signals}
        name = known.get(-return_code, f"signal {-return_code}")
        detail = next((line for line in lines if "GGML_ASSERT" in line or "abort" in line.lower()), None)
        return ModelFileError(f"{what}: it ended with {name}{f' ({detail})' if detail else ''}.", remedy=remedy)
    complaints = [line for line in lines if "failed" in line or "error" in line.lower()]
    detail = _FUNCTION.sub("", (complaints or lines[-1:] or ["it gave no reason"])[0])
    return ModelFileError(f"{what}: {detail.rstrip('.')}.", remedy=remedy)


_FUNCTION: Final = re.compile(r"^.*\b(llama|gguf|ggml)_\w+: ")
"""What the library puts in front of a complaint: its function's name, behind whatever it had begun to say."""

_DAMAGED: Final = "The file is damaged, or made for another version of llama.cpp: get it again, or convert it anew."


def worker_command(verb: str, *arguments: str) -> list[str]:
    """Isolated and without site-packages: starting takes 30 ms instead of 150."""
    return [sys.executable, "-I", "-S", native_worker.__file__, verb, str(library_folder()), *arguments]


def worker_environment() -> dict[str, str]:
    """The parent's environment, and no debugger forked by the library when it aborts."""
    return {**os.environ, "GGML_NO_BACKTRACE": "1"}
