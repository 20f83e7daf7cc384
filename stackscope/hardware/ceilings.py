"""The cache of measured ceilings: one file for each set of conditions, written whole or not at all."""

from __future__ import annotations

import hashlib
import os
import platform
import tempfile
from contextlib import suppress
from datetime import datetime
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from stackscope import cgroups
from stackscope.characters import harmless
from stackscope.errors import ModelFileError, StackscopeError
from stackscope.hardware import host
from stackscope.hardware.credible import why_incredible
from stackscope.homes import NoHomeError
from stackscope.model.catalog import cache_folder
from stackscope.model.files import shown
from stackscope.records.ceilings import Ceilings, Conditions, placement

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stackscope.toggles import EngineConfig

FORMAT: Final = 3
"""Changes whenever what is measured, or how, does: older files are then as good as none."""

OLD_NS: Final = 90 * 86_400 * 10**9
"""Kernels, firmware and neighbours change: after three months it is worth measuring again."""


class _File(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    ceilings: Ceilings


class _OldConditions(msgspec.Struct, frozen=True):
    model: str | None = None


class _OldCeilings(msgspec.Struct, frozen=True):
    conditions: _OldConditions = _OldConditions()


class _Head(msgspec.Struct, frozen=True):
    """What files of every version have."""

    format: int
    ceilings: _OldCeilings = _OldCeilings()


class Trouble(NamedTuple):
    """A file that cannot be used."""

    path: Path
    is_read: bool
    """Its content is what is wrong."""
    why: str

    @property
    def sentence(self) -> str:
        """Which file, and what is wrong with it."""
        if not self.is_read:
            return f"The ceilings in {shown(self.path)} cannot be read: {self.why}."
        return f"The file of measured ceilings {shown(self.path)} is damaged and is not used: {self.why}."


class OtherVersion(NamedTuple):
    """A whole file, in which another version of Stackscope keeps what it measured in its way."""

    format: int
    model: str | None
    """Name of the target's file. `None`: it does not say."""

    @property
    def version(self) -> str:
        """Whose it is, in words."""
        age = "an older" if self.format < FORMAT else "a newer"
        return f"{age} version of Stackscope (format {self.format}, here {FORMAT})"


class Found(NamedTuple):
    """What a file of the cache holds, or the cache for some conditions."""

    ceilings: Ceilings | None
    trouble: Trouble | None = None
    other: OtherVersion | None = None

    @property
    def note(self) -> str | None:
        """What whoever wanted these ceilings should know, with the remedy. `None`: nothing."""
        if self.trouble is not None:
            return f"{self.trouble.sentence} Measure anew: stackscope calibrate"
        if self.other is not None:
            return f"The ceilings were measured by {self.other.version} and do not count: stackscope calibrate"
        return None


def folder() -> Path:
    """Where ceilings are kept; it need not exist. Raises as `cache_folder`."""
    return cache_folder() / "ceilings"


def conditions(config: EngineConfig, *, library: str, threads: int, waiting: str) -> Conditions:
    """What ceilings of this configuration depend on, on this machine.

    `library` describes the inference library and its build, `threads` is the number really used and `waiting` says how
    they wait. Raises `ModelFileError` when the model's file cannot be looked at.
    """
    path = Path(config.model)
    try:
        file = path.stat()
    except OSError as error:
        raise ModelFileError(f"{shown(path)} cannot be read: {error.strerror or error}.") from None
    return Conditions(
        machine=machine(),
        library=library,
        model=shown(path.name),
        model_bytes=file.st_size,
        model_mtime_ns=file.st_mtime_ns,
        threads=threads,
        kv_type_k=config.kv_type_k,
        kv_type_v=config.kv_type_v,
        flash_attention=config.flash_attention,
        unified_kv=config.unified_kv,
        swa_full=config.swa_full,
        placement=placement(config),
        waiting=waiting,
    )


def kept_for(config: EngineConfig) -> list[Ceilings]:
    """What is kept for this very file, in this configuration, on this machine; of any build and age."""
    try:
        file = Path(config.model).stat()
    except OSError:
        return []
    here = machine()
    return [
        found.ceilings
        for found in known()
        if found.ceilings is not None
        and (each := found.ceilings.conditions).hold_for(config)
        and (each.machine, each.model_bytes, each.model_mtime_ns) == (here, file.st_size, file.st_mtime_ns)
    ]


def is_measured(config: EngineConfig) -> bool:
    """Whether something is kept for it that counts.

    What was measured while others kept the machine busy does not: it is no ceiling, and only where the time model
    begins, which is the less sure of it.
    """
    return any(not each.is_busy for each in kept_for(config))


def require_place() -> None:
    """Before long work that ends in `store`: raises the `StackscopeError` of a place that cannot be written to."""
    place = folder()
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        raise _no_place(place, error) from None


def _no_place(place: Path, error: OSError) -> StackscopeError:
    return StackscopeError(
        f"The ceilings cannot be kept in {shown(place)}: {error.strerror or error}.",
        remedy="Give another place with STACKSCOPE_CACHE.",
    )


def machine() -> str:
    """Which machine this is: name, processor and usable cores."""
    allowed, quota = host.allowed_cores(), cgroups.cpu_quota()
    cores = os.cpu_count() if allowed is None else len(allowed)
    limit = "" if quota is None else f", time of {quota:g}"
    return f"{platform.node()}; {host.processor_name() or platform.machine()}; {cores} cores{limit}"


def file_of(wanted: Conditions) -> Path:
    """Where ceilings of these conditions are kept."""
    digest = hashlib.sha256(msgspec.json.encode(wanted, order="sorted")).hexdigest()
    return folder() / f"{digest[:24]}.json"


def load(wanted: Conditions) -> Found:
    """The ceilings measured under these conditions; a file that makes no sense is as good as none, and said so."""
    try:
        found = _read(file_of(wanted))
    except NoHomeError:  # Where nothing can be kept, there is nothing.
        return Found(None)
    if found.ceilings is not None and found.ceilings.conditions != wanted:
        return Found(None)
    return found


def _read(path: Path) -> Found:
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return Found(None)
    except OSError as error:
        return Found(None, Trouble(path, is_read=False, why=error.strerror or str(error)))
    try:
        head = msgspec.json.decode(text, type=_Head)
        if head.format != FORMAT:
            return Found(None, other=OtherVersion(head.format, head.ceilings.conditions.model))
        ceilings = msgspec.json.decode(text, type=_File).ceilings
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        return Found(None, Trouble(path, is_read=True, why=harmless(str(error)).rstrip(".")))
    why = why_incredible(ceilings)
    return Found(ceilings) if why is None else Found(None, Trouble(path, is_read=True, why=harmless(why)))


def set_aside() -> dict[Path, Path]:
    """Rename the files that cannot be used, so that they are in nobody's way and nothing of them is lost.

    Answers their old paths and their new ones; those that cannot be renamed stay.
    """
    troubles = [found.trouble for found in known() if found.trouble is not None]
    return {each.path: aside for each in troubles if (aside := _aside(each.path)) is not None}


def _aside(path: Path) -> Path | None:
    numbers = chain([""], (f"-{n}" for n in count(2)))
    names = (path.with_name(f"{path.name}.damaged{number}") for number in numbers)
    free = next(name for name in names if not os.path.lexists(name))
    try:
        path.rename(free)
    except OSError:
        return None
    return free


def store(new: Ceilings) -> bool:
    """Keep ceilings for later; a file is replaced in one go, and one that is damaged is set aside.

    Ceilings from a quiet machine are not replaced by those of a busy one: False. Raises `StackscopeError` when they
    cannot be written.
    """
    path = file_of(new.conditions)
    found = _read(path)
    if found.trouble is not None:
        _aside(path)
    before = found.ceilings
    if before is not None and before.conditions == new.conditions and before.is_quiet and not new.is_quiet:
        return False
    partial = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    text = msgspec.json.format(msgspec.json.encode(_File(format=FORMAT, ceilings=new)), indent=1)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        raise _no_place(path.parent, error) from None
    return True


def known() -> Iterator[Found]:
    """Everything that is kept, in no order; damaged files with what is wrong, and those of other versions."""
    try:
        place = folder()
    except NoHomeError:
        return
    for path in sorted(place.glob("*.json")):
        found = _read(path)
        if found != Found(None):
            yield found


def age_ns(ceilings: Ceilings, now: datetime) -> int:
    """How long ago ceilings were measured; 0 for those of the future, where somebody set a clock."""
    return max(0, round((now - datetime.fromisoformat(ceilings.measured)).total_seconds() * 1e9))


def is_old(ceilings: Ceilings, now: datetime) -> bool:
    """Whether it is time to measure again."""
    return age_ns(ceilings, now) > OLD_NS


def fitting(wanted: Conditions, *, draft: str | None) -> Found:
    """As `load`, for a session with this draft model (the name of its file): what concerns another one is left out."""
    found = load(wanted)
    if found.ceilings is None or found.ceilings.draft == draft:
        return found
    return Found(msgspec.structs.replace(found.ceilings, draft=None, draft_forwards=(), draft_fits_cache=None))
