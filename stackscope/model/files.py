"""Files on disk: opening one with a sentence for every way it can fail, and writing one that is whole or not there."""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from stackscope import units
from stackscope.characters import harmless
from stackscope.errors import ModelFileError, UsageError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Iterator

PARTIAL_SUFFIX: Final = ".partial"
"""Ends the name of a file that is still being written; nothing reads such a file as a model."""

_DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def shown(path: Path | str) -> str:
    """A path as text that does no harm in a line: bytes of its name that are not UTF-8 are replaced too."""
    return harmless(os.fsencode(path).decode("utf-8", "replace"))


def open_model(path: Path) -> BinaryIO:
    """Open a regular file for reading. Raises `ModelFileError` when it is missing, a folder, a device or unreadable."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise ModelFileError(f"{shown(path)} is a folder.", remedy="Name the .gguf file in it.")
        if not stat.S_ISREG(mode):  # opening a pipe would wait for its writer for ever
            raise ModelFileError(f"{shown(path)} is not a regular file.", remedy="Copy the model to a file first.")
        return path.open("rb")
    except FileNotFoundError:
        remedy = "Check the spelling, or see what there is: stackscope models list."
        raise ModelFileError(f"There is no file {shown(path)}.", remedy=remedy) from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ModelFileError(f"{shown(path)} cannot be read: {reason}.") from error


@contextlib.contextmanager
def whole_file(output: Path, *, needs: int) -> Iterator[Path]:
    """Give the name of a temporary file beside `output`, and rename it to `output` when the block ends well.

    On any failure, Ctrl-C included, the temporary file is removed and an earlier `output` is untouched; what a killed
    writer of the same file left behind is removed first. `needs` is the expected size in bytes. Raises `ModelFileError`
    when the folder cannot be written or has not that much room, before anything is written.
    """
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(output)
        require_room(output, needs)
        handle, name = tempfile.mkstemp(prefix=f".{output.name}.", suffix=PARTIAL_SUFFIX, dir=output.parent)
    except OSError as error:
        raise cannot_write(output, error, needs=needs) from error
    temporary = Path(name)
    try:
        _lock(handle)
        yield temporary
        temporary.chmod(0o666 & ~_umask())  # mkstemp makes it private to the user
        temporary.replace(output)
    except OSError as error:
        raise cannot_write(output, error, needs=needs) from error
    finally:
        os.close(handle)
        temporary.unlink(missing_ok=True)


def _lock(handle: int) -> bool:
    """Take the lock that says that a file is being written; it goes with the process. False: another has it."""
    if fcntl is None:  # Windows: an open file cannot be deleted there anyway
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _remove_abandoned(output: Path) -> None:
    """Delete part files of `output` that nobody is writing: a gigabyte each, after a kill."""
    for path in output.parent.glob(f".{glob.escape(output.name)}.*{PARTIAL_SUFFIX}"):
        with contextlib.suppress(OSError):  # somebody else's file, or just gone: it is not in the way
            handle = os.open(path, os.O_RDWR)
            try:
                if _lock(handle):
                    path.unlink(missing_ok=True)
            finally:
                os.close(handle)


def require_room(output: Path, needs: int) -> None:
    """Raise `ModelFileError` when the disk of `output`, whose folder exists, has less than `needs` bytes free."""
    free = shutil.disk_usage(output.parent).free
    if free < needs:
        raise ModelFileError(
            f"{shown(output)} needs {units.data_size(needs)} and the disk has {units.data_size(free)} free.",
            remedy="Free some space, or write it elsewhere (--output, or STACKSCOPE_CACHE for the cache folder).",
        )


def require_new(output: Path, *, source: Path, replace: bool) -> None:
    """Raise `UsageError` when `output` is the source itself, or is there already and may not be replaced."""
    if output.is_dir():
        raise UsageError(f"{shown(output)} is a folder.", remedy="Name the file to write with --output.")
    if not output.exists():
        return
    if output.samefile(source):
        raise UsageError("The output is the source itself.", remedy="Name another file with --output.")
    if not replace:
        raise UsageError(f"{shown(output)} is there already.", remedy="Use it, or write it again with --replace.")


def stopped_short(output: Path, needs: int) -> ModelFileError:
    """What to raise when a library stopped writing `output`, of `needs` bytes, without saying why."""
    free = shutil.disk_usage(output.parent).free
    return ModelFileError(
        f"{shown(output)} could not be written to its end: it needs {units.data_size(needs)}, and the disk has "
        f"{units.data_size(free)} free now. Nothing was kept.",
        remedy="Check the disk, its quota and limits on file size, or write it elsewhere with --output.",
    )


def is_disk_full(error: OSError) -> bool:
    """Whether a write failed for want of room: the disk, a quota, or a limit on the size of a file."""
    return error.errno in _DISK_FULL


def cannot_write(output: Path, error: OSError, *, needs: int) -> ModelFileError:
    """What to raise when writing `output`, of `needs` bytes, failed."""
    if error.errno == errno.EFBIG:
        return ModelFileError(
            f"{shown(output)} ({units.data_size(needs)}) would grow beyond the limit for one file; nothing was kept.",
            remedy="Raise the limit (ulimit -f), or write it to a disk that takes such files with --output.",
        )
    if is_disk_full(error):
        return ModelFileError(
            f"There was no room to write {shown(output)} ({units.data_size(needs)}); nothing was kept.",
            remedy="Free some space, or write it elsewhere (--output, or STACKSCOPE_CACHE for the cache folder).",
        )
    return ModelFileError(
        f"{shown(output)} cannot be written: {error.strerror or error}.", remedy="Choose another place with --output."
    )


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
