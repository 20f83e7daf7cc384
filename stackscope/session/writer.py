"""Writing a recording that can be read at any moment, also after a kill, at a cost that its run does not notice.

Data is handed to the operating system as soon as its oldest record has waited `FLUSH_NS`: there it survives the death
of the process. It is forced to the disk (fsync) once, on closing: a disk that stalls may take seconds over it, and
during the run that would hold up whoever drains the engine. A power cut can therefore cost what the kernel had not yet
written.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import msgspec
import zstandard

from stackscope.errors import SessionFileError
from stackscope.session.format import encode, encode_all
from stackscope.session.paths import ELSEWHERE, numbered

if TYPE_CHECKING:
    from collections.abc import Callable
    from io import FileIO
    from types import TracebackType

    from stackscope.records import AnyRecord, Footer, Header
    from stackscope.session.paths import Destination

FLUSH_NS: Final = 400_000_000
"""Oldest that unwritten data may be. With the engine's batches (50 ms) and a `tick` every 100 ms, a kill costs less
than the last second, also on a machine with so much to do that each of them is late."""

FRAME_NS: Final = 60_000_000_000
"""Age at which a zstd frame is closed: its checksum can then be verified, and tools can skip whole minutes."""

LEVEL: Final = 1
WINDOW_LOG: Final = 17
"""Chosen by `benchmarks/session_size.py`: steps repeat what stood a line before, so near matches are the short ones.
Level 1 in 128 KiB takes 53 bytes and 0.7 µs a step at batch 1; zstd's default level in 2 MiB takes 63 bytes and 1.6 µs,
level 9 saves 4 bytes for 6 µs."""

_BUFFER_BYTES: Final = 1 << 18
"""Plain bytes gathered before zstd sees them, when a flush does not come first."""

_PENDING_RECORDS: Final = 256
"""Records encoded at once: cheaper than one by one, and their CPU time is then worth measuring (0.3 µs a look)."""


class SessionWriter:
    """Writes one recording. The header is on disk when the constructor returns.

    Call `tick` every 100 ms or so from the thread that drains the source, so that data reaches the disk when no record
    arrives; `write` and `write_line` look at the clock as well. Methods may be called from several threads.

    When the disk is full, the folder gone or the file deleted, the method that meets it raises `SessionFileError`,
    once; from then on records are counted in `n_lost` and otherwise ignored, so that a run can go on without its
    recording. What was written until then stays readable.
    """

    def __init__(
        self,
        path: Path | str,
        header: Header,
        *,
        overwrite: bool = False,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Create the file; an existing recording is replaced only with `overwrite`, once the new header is written.

        `clock` gives monotonic nanoseconds. Raises `SessionFileError` when the file cannot be created.
        """
        self.path: Final = Path(path)
        self.failure: SessionFileError | None = None
        """Why recording stopped. `None`: it goes on, or was closed in order."""
        self.cpu_ns = 0
        """CPU time spent in encoding, compressing and writing."""
        self.bytes_written = 0
        """Size of the file, so far."""
        self.n_lost = 0
        """Records that are not in the file: those that arrived after the failure or after closing, and those that had
        not been flushed when it failed (some of which may have reached the disk)."""
        self._clock = clock
        self._lock = threading.Lock()
        self._pending: list[AnyRecord] = []
        self._buffer = bytearray()
        self._n_unflushed = 0
        self._oldest_ns: int | None = None
        self._is_closed = False
        parameters = zstandard.ZstdCompressionParameters.from_level(LEVEL, window_log=WINDOW_LOG, write_checksum=True)
        self._compressor = zstandard.ZstdCompressor(compression_params=parameters)
        self._frame = self._compressor.compressobj()
        self._frame_opened_ns = clock()
        started_ns = time.thread_time_ns()
        self._file = self._create(header, overwrite=overwrite)
        # A deleted file has no link left; where the file system never counts links there is no telling.
        self._counts_links = os.fstat(self._file.fileno()).st_nlink > 0
        self.cpu_ns += time.thread_time_ns() - started_ns

    def write(self, record: AnyRecord) -> None:
        """Take one record. Raises `SessionFileError` when recording stops with it."""
        with self._lock:
            if self._is_closed:
                self.n_lost += 1
                return
            self._n_unflushed += 1
            self._pending.append(record)
            if len(self._pending) >= _PENDING_RECORDS:
                self._measured(self._compress)
            self._flush_if_due()

    def write_line(self, raw: bytes) -> None:
        """Take one encoded record, or several: whole lines that end in a newline. As `write` otherwise."""
        if not raw.endswith(b"\n"):
            raise ValueError("a line ends in a newline")
        with self._lock:
            if self._is_closed:
                self.n_lost += raw.count(b"\n")
                return
            if self._pending:
                self._measured(self._encode_pending)
            self._n_unflushed += raw.count(b"\n")
            self._buffer += raw
            if len(self._buffer) >= _BUFFER_BYTES:
                self._measured(self._compress)
            self._flush_if_due()

    def tick(self, rest_ns: int = 0) -> None:
        """Bring to disk what has waited long enough, or will have in `rest_ns`: the next call comes no sooner.

        Raises `SessionFileError` when recording stops with it.
        """
        with self._lock:
            if not self._is_closed and self._oldest_ns is not None:
                self._flush_if_due(rest_ns)

    def close(self, footer: Footer | None = None) -> None:
        """Write what is left and the footer, force the file to disk and close it. Closing twice is closing once.

        A footer that does not say what recording cost gets `cpu_ns`. `None`: the footer has been written as a record,
        or the session did not end in order. Raises `SessionFileError` when something did not reach the disk.
        """
        with self._lock:
            if self._is_closed:
                return
            if footer is not None:
                if footer.recorder_cpu_ns is None:
                    footer = msgspec.structs.replace(footer, recorder_cpu_ns=self.cpu_ns)
                self._n_unflushed += 1
                self._pending.append(footer)
            self._measured(self._finish)

    def __enter__(self) -> SessionWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _flush_if_due(self, rest_ns: int = 0) -> None:
        now = self._clock()
        if self._oldest_ns is None:
            self._oldest_ns = now
        elif now - self._oldest_ns + rest_ns >= FLUSH_NS:
            self._measured(self._flush)

    def _measured(self, work: Callable[[], None]) -> None:
        started_ns = time.thread_time_ns()
        try:
            work()
        except OSError as error:
            self._fail(error)
        finally:
            self.cpu_ns += time.thread_time_ns() - started_ns

    def _encode_pending(self) -> None:
        records, self._pending = self._pending, []
        self._buffer += encode_all(records)

    def _take_compressed(self) -> bytes:
        self._encode_pending()
        data = self._frame.compress(self._buffer)
        self._buffer.clear()
        return data

    def _compress(self) -> None:
        self._put(self._file, self._take_compressed())

    def _flush(self) -> None:
        data = self._take_compressed()
        self._oldest_ns = None
        if self._clock() - self._frame_opened_ns < FRAME_NS:
            data += self._frame.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        else:
            data += self._frame.flush(zstandard.COMPRESSOBJ_FLUSH_FINISH)
            self._frame = self._compressor.compressobj()
            self._frame_opened_ns = self._clock()
        self._put(self._file, data)
        if self._counts_links and os.fstat(self._file.fileno()).st_nlink == 0:
            raise FileNotFoundError(errno.ENOENT, "it was deleted while it was being written")
        self._n_unflushed = 0

    def _finish(self) -> None:
        self._put(self._file, self._take_compressed() + self._frame.flush(zstandard.COMPRESSOBJ_FLUSH_FINISH))
        os.fsync(self._file.fileno())
        self._is_closed = True
        self._file.close()

    def _put(self, file: FileIO, data: bytes) -> None:
        view = memoryview(data)
        while view:
            n_written = os.write(file.fileno(), view)
            self.bytes_written += n_written
            view = view[n_written:]

    def _create(self, header: Header, *, overwrite: bool) -> FileIO:
        """The open file with the header in it. A failure leaves nothing behind, and an older recording untouched."""
        is_replacing = overwrite and self.path.exists()
        target = self.path.with_name(f".{self.path.name}.{os.getpid()}") if is_replacing else self.path
        try:
            if is_replacing and not stat.S_ISREG(self.path.stat().st_mode):
                raise OSError(errno.EINVAL, "it is not a file")
            file = target.open("xb", buffering=0)
        except OSError as error:
            raise _cannot_start(self.path, error) from error
        try:
            self._put(file, self._frame.compress(encode(header)))
            self._put(file, self._frame.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK))
            if is_replacing:
                target.replace(self.path)
        except BaseException as error:
            with suppress(OSError):  # What failed first is what to report.
                file.close()
                target.unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise _cannot_start(self.path, error) from error
            raise
        return file

    def _fail(self, error: OSError) -> NoReturn:
        self._is_closed = True
        self.n_lost += self._n_unflushed
        self._pending.clear()
        self._buffer.clear()
        with suppress(OSError):  # A full disk can refuse the closing as well; the reason is already known.
            self._file.close()
        self.failure = SessionFileError(
            f"Recording to {self.path} stopped: {_reason(error)}.",
            remedy=f"{_remedy(error)} What was recorded until then can be read.",
        )
        raise self.failure from error


def check_destination(where: Destination) -> None:
    """Make the folder, and refuse what `open_recording` would refuse, before anything heavy has started.

    Raises `SessionFileError`.
    """
    try:
        _make_folder(where.path.parent)
        if where.is_chosen and where.path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        if not os.access(where.path.parent, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise _cannot_start(where.path, error) from error


def open_recording(
    where: Destination, header: Header, *, clock: Callable[[], int] = time.monotonic_ns
) -> SessionWriter:
    """Start a recording, its folder made if need be; of runs that start in one second each gets a file of its own.

    Raises `SessionFileError` when it cannot be written, or when the user chose a file that exists.
    """
    try:
        _make_folder(where.path.parent)
    except OSError as error:
        raise _cannot_start(where.path, error) from error
    for path in numbered(where.path):
        try:
            return SessionWriter(path, header, clock=clock)
        except SessionFileError as error:
            if where.is_chosen or not isinstance(error.__cause__, FileExistsError):
                raise
    raise AssertionError("there is always a next number")


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None


def _cannot_start(path: Path, error: OSError) -> SessionFileError:
    if isinstance(error, FileExistsError) and path.exists():
        return SessionFileError(
            f"{path} exists already, and a recording is not overwritten.",
            remedy="Give another name, or delete it first.",
        )
    return SessionFileError(f"Cannot record to {path}: {_reason(error)}.", remedy=_remedy(error))


def _reason(error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return "the disk is full"
    if error.errno == errno.EDQUOT:
        return "your disk quota is used up"
    if error.errno == errno.EFBIG:
        return "the file would grow beyond the limit for one file"
    reason = error.strerror or str(error)
    return reason[:1].lower() + reason[1:]


def _remedy(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"Free some space, or record elsewhere with {ELSEWHERE}."
    if error.errno == errno.EFBIG:
        return f"Raise the limit (ulimit -f), or record elsewhere with {ELSEWHERE}."
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"Record where you may write, with {ELSEWHERE}, or do without with --no-record."
    if error.errno == errno.ENOENT:
        return f"Leave the file and its folder in place, or record elsewhere with {ELSEWHERE}."
    return f"Record elsewhere with {ELSEWHERE}, or do without with --no-record."
