"""Quantised variants of a model, made by llama.cpp's own quantiser in a process of its own."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from stackscope.errors import ModelFileError, UsageError
from stackscope.model import native
from stackscope.model.catalog import folder_of
from stackscope.model.files import require_new, shown, stopped_short, whole_file
from stackscope.model.ftypes import FILE_TYPES, canonical, split_type
from stackscope.model.ggml_types import BY_NAME
from stackscope.model.header import Header, read_header
from stackscope.model.suitability import require_text_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MARGIN_BYTES: Final = 1 << 20
"""What the metadata may grow by; the quantiser's own forecast counts tensors only."""

_STEP: Final = re.compile(r"^\[ *(\d+)/ *(\d+)\] +(\S+)")
_FALLBACK: Final = re.compile(
    r"^warning: (\S+) +- ncols +(\d+) not divisible by +(\d+) \(required for type +(\S+)\).*falling back to +(\S+)"
)
_FORECAST: Final = re.compile(r"quant size += +([0-9.]+) MiB")


class Fallback(NamedTuple):
    """A tensor whose rows are no multiple of the block of its type, and that another type holds instead."""

    tensor: str
    row: int
    """Elements per row."""
    wanted: str
    used: str


class Quantised(NamedTuple):
    """A finished variant."""

    path: Path
    type: str
    source_bytes: int
    bytes: int
    fallbacks: tuple[Fallback, ...]


class Progress(NamedTuple):
    """How far the quantiser is: which tensor it works on."""

    tensor: str
    done: int
    total: int


def default_output(source: Path, type_name: str) -> Path:
    """Where a variant goes when no place is named: the cache folder, the type in the name instead of the source's."""
    stem, _ = split_type(source.stem)
    return folder_of("quantised") / f"{stem}-{type_name.lower()}.gguf"


def quantise(
    source: Path,
    type_name: str,
    *,
    output: Path | None = None,
    requantise: bool = False,
    replace: bool = False,
    n_threads: int | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Quantised:
    """Write a variant of `source` with its weights as `type_name` (case does not matter) and say what came out.

    The file appears under its name only when it is whole. `requantise` allows a source that is quantised already;
    `replace` overwrites an earlier variant. `n_threads`: `None` is every core that this process may use. Raises
    `UsageError` for a type that cannot be made, `ModelFileError` when the source, the disk or the library refuses.
    """
    kind = canonical(type_name)
    header = read_header(source)
    require_text_model(header)
    _require_float(header, kind, requantise=requantise)
    target = default_output(source, kind) if output is None else output
    require_new(target, source=header.path, replace=replace)
    run = _Run(header.path, FILE_TYPES[kind], _cores() if n_threads is None else n_threads, requantise, on_progress)
    needs = run.forecast(kind, target) + header.data_offset + MARGIN_BYTES
    with whole_file(target, needs=needs) as temporary:
        run.write(temporary, target, needs)
        written = read_header(temporary)  # the library reports success; the file must say so too
    return Quantised(target, kind, header.file_bytes, written.file_bytes, tuple(run.fallbacks))


def require_quantisable(source: Path, type_name: str) -> None:
    """Raise at once what `quantise` would for the source and the type, which takes no time to see."""
    header = read_header(source)
    require_text_model(header)
    _require_float(header, canonical(type_name), requantise=False)


class _Run:
    """One quantisation: a forecast, then the real thing, reading the quantiser's log."""

    def __init__(
        self,
        source: Path,
        ftype: int,
        n_threads: int,
        requantise: bool,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        self.source = source
        self.ftype = ftype
        self.n_threads = n_threads
        self.requantise = requantise
        self.on_progress = on_progress
        self.fallbacks: list[Fallback] = []
        self._forecast_bytes: int | None = None
        self._needs_matrix = False
        self._write_failed = False

    def forecast(self, kind: str, output: Path) -> int:
        """Bytes of the tensors to be written. Raises `UsageError` when a tensor would need an importance matrix."""
        self._call(output, dry_run=True, on_line=self._forecast_line)
        if self._needs_matrix:
            raise UsageError(
                f"{kind} of {shown(self.source)} needs an importance matrix.",
                remedy="Choose another type, such as Q4_K_M.",
            )
        if self._forecast_bytes is None:
            raise ModelFileError(f"The quantiser said nothing about the size of {shown(output)}.")
        return self._forecast_bytes

    def write(self, temporary: Path, output: Path, needs: int) -> None:
        """Quantise into a temporary file. Raises `ModelFileError`; a disk that took no more is told apart."""
        try:
            self._call(temporary, dry_run=False, on_line=self._line)
        except ModelFileError as error:
            if not self._write_failed:
                raise
            raise stopped_short(output, needs) from error

    def _call(self, output: Path, *, dry_run: bool, on_line: Callable[[str], None]) -> None:
        native.quantise(
            self.source,
            output,
            ftype=self.ftype,
            n_threads=self.n_threads,
            requantise=self.requantise,
            dry_run=dry_run,
            on_line=on_line,
        )

    def _forecast_line(self, line: str) -> None:
        self._needs_matrix = self._needs_matrix or "will require an imatrix" in line
        if found := _FORECAST.search(line):
            self._forecast_bytes = int(float(found[1]) * (1 << 20))

    def _line(self, line: str) -> None:
        if found := _FALLBACK.match(line):
            self.fallbacks.append(Fallback(found[1], int(found[2]), found[4], found[5]))
        if "iostream error" in line:  # all that std::ofstream says of a full disk
            self._write_failed = True
        if self.on_progress is not None and (found := _STEP.match(line)):
            self.on_progress(Progress(found[3], int(found[1]), int(found[2])))


def _cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    counted = os.cpu_count()
    return 1 if counted is None else counted


def _require_float(header: Header, kind: str, *, requantise: bool) -> None:
    """Refuse to quantise what is quantised: the error of the first type stays, and the second adds its own."""
    found = sorted({t.type for t in header.tensors if BY_NAME[t.type.lower()].is_quantized})
    if found and not requantise:
        types = ", ".join(found)
        raise UsageError(
            f"{shown(header.path)} is quantised already ({types}): {kind} of that loses more than {kind} alone.",
            remedy="Name the F16, BF16 or F32 file, or allow it with --requantise.",
        )
