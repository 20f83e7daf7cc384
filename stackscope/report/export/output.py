"""Files that are there whole or not at all: written beside their place, and moved there when they are finished."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from stackscope.errors import StackscopeError, UsageError

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator
    from pathlib import Path


def refuse_own_sources(path: Path, sources: Iterable[Path]) -> None:
    """Raises `UsageError` where what is made would take the place of what it is made from."""
    for source in sources:
        if path.exists() and source.exists() and path.samefile(source):
            raise UsageError(f"{path} is the recording itself.", remedy="Give another name for what is made of it.")


def require_writable(path: Path, *, replace: bool) -> None:
    """Before long work that ends in `whole_file`: raises what that would. Makes the folder above if need be."""
    unfinished = _begun(path, replace=replace)
    with _telling(path):
        unfinished.touch()
        unfinished.unlink()


@contextmanager
def whole_file(path: Path, *, replace: bool) -> Iterator[Path]:
    """A path to write to, which becomes `path` when the block ends, and goes when it fails.

    Raises `UsageError` when something is there and may not be replaced, `StackscopeError` when it cannot be written.
    """
    unfinished = _begun(path, replace=replace)
    with _telling(path):
        try:
            yield unfinished
            with unfinished.open("rb") as written:
                os.fsync(written.fileno())
            _refuse_existing(path, replace=replace)
            unfinished.replace(path)
        finally:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: Path, *, replace: bool, ours: Container[str]) -> Iterator[Path]:
    """A new folder to write files to, which becomes `path` when the block ends, and goes when it fails.

    Only a folder in which every name is one of `ours` is replaced. Raises as `whole_file`.
    """
    _refuse_existing(path, replace=replace)
    if _is_there(path) and not (path.is_dir() and all(entry.name in ours for entry in path.iterdir())):
        raise UsageError(
            f"{path} holds more than an export of this kind, and is not written over.", remedy="Give another name."
        )
    unfinished = _beside(path)
    with _telling(path):
        try:
            unfinished.mkdir()
            yield unfinished
            for written in unfinished.iterdir():
                with written.open("rb") as file:
                    os.fsync(file.fileno())
            _refuse_existing(path, replace=replace)
            _take_place(unfinished, path)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)


def _take_place(new: Path, path: Path) -> None:
    """Put a folder where another one may be: that is moved aside first, and comes back should this fail."""
    if not _is_there(path):
        new.rename(path)
        return
    old = new.with_name(f"{new.name}.old")
    path.rename(old)
    try:
        new.rename(path)
    except OSError:
        old.rename(path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _begun(path: Path, *, replace: bool) -> Path:
    """Where to write what becomes the file `path`, if it may."""
    _refuse_existing(path, replace=replace)
    if _is_there(path) and not stat.S_ISREG(path.stat().st_mode):
        raise UsageError(f"{path} is no file, and is not written over.", remedy="Give another name.")
    return _beside(path)


def _beside(path: Path) -> Path:
    """Where to write first: the same folder, so that moving is renaming. Makes the folder above if need be."""
    if path.name in ("", ".", ".."):
        raise UsageError(f"{path} is no name for a file.", remedy="Give the name of one that is to be made.")
    with _telling(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    return path.with_name(f".{path.name}.{os.getpid()}.part")


def _refuse_existing(path: Path, *, replace: bool) -> None:
    if not replace and _is_there(path):
        raise UsageError(f"{path} exists already.", remedy="Give another name, or --replace to write over it.")


def _is_there(path: Path) -> bool:
    """Also when it is a link to nowhere, which would be replaced as well."""
    return path.exists() or path.is_symlink()


@contextmanager
def _telling(path: Path) -> Iterator[None]:
    """Say in a sentence why a file could not be written."""
    try:
        yield
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise StackscopeError(f"{path} could not be written: {_reason(error)}.", remedy=_remedy(error)) from error


def _reason(error: OSError) -> str:
    told = {
        errno.ENOSPC: "the disk is full",
        errno.EDQUOT: "your disk quota is used up",
        errno.EFBIG: "it would grow beyond the limit for one file",
    }
    reason = told.get(error.errno or 0) or error.strerror or str(error)
    return reason[:1].lower() + reason[1:]


def _remedy(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "Free some space, or write elsewhere. Nothing was left behind."
    if error.errno == errno.EFBIG:
        return "Raise the limit (ulimit -f), or write elsewhere. Nothing was left behind."
    return "Write where you may, and where the path exists."
