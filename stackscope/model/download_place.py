"""The place of a download: its folders, left as they were by a failure, and the lock that keeps it to one process."""

from __future__ import annotations

import errno
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Final

from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]

from stackscope.errors import DownloadError
from stackscope.model.files import is_disk_full, shown

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOCK_WAIT_S: Final = 0.2


@contextmanager
def folders_of(place: Path) -> Iterator[None]:
    """Make the folders of a file; those that are left with nothing in them are taken back when the block fails."""
    folder = place.parent
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        with suppress(OSError):  # A folder that is not empty stays, and so do those above it.
            if made and [path.name for path in folder.iterdir()] == [_lock_of(place).name]:
                _lock_of(place).unlink()
            for each in made:
                each.rmdir()
        raise


@contextmanager
def alone(place: Path) -> Iterator[None]:
    """Hold the lock of a file; two processes appending to one part file would spoil it. Raises `DownloadError`."""
    with ExitStack() as stack:
        try:
            stack.enter_context(WeakFileLock(_lock_of(place), timeout=LOCK_WAIT_S))
        except TimeoutError:
            raise DownloadError(
                f"Another process is downloading {shown(place.name)}.", remedy="Wait for it to end."
            ) from None
        yield


def cannot_store(place: Path, error: OSError) -> DownloadError:
    """What to raise when a file, its part or its folders cannot be written."""
    if error.errno == errno.EFBIG:
        remedy = "Raise the limit (ulimit -f): the next try continues where this one stopped."
        return DownloadError(f"{shown(place)} would grow beyond the limit for one file.", remedy=remedy)
    if is_disk_full(error):
        remedy = "Free some space: the next try continues where this one stopped."
        return DownloadError(f"There was no room left for {shown(place)}.", remedy=remedy)
    remedy = "Choose another cache folder with STACKSCOPE_CACHE."
    return DownloadError(f"{shown(place)} cannot be written: {error.strerror or error}.", remedy=remedy)


def _lock_of(place: Path) -> Path:
    return place.with_name(f".{place.name}.lock")
