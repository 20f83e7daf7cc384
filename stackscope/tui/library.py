"""Recordings on disk: which there are, and the headline numbers of each, read once per version of a file."""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from stackscope.analysis.metrics import counts
from stackscope.analysis.summary import RunSummary
from stackscope.errors import SessionFileError
from stackscope.records import ConfigEvent, Header
from stackscope.session.format import SUFFIX
from stackscope.session.reader import SessionReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from stackscope.analysis.summary import RunResult
    from stackscope.records import AnyRecord
    from stackscope.session.paths import Folder

SUFFIXES: Final = (SUFFIX, ".jsonl")
OPENING: Final = 2
"""Records that tell when a recording was begun, at most: the header, and what was in force."""
LOOK_EVERY: Final = 256
"""Records between two looks whether anybody still wants the numbers."""


@dataclass(frozen=True)
class Entry:
    """A file that looks like a recording."""

    path: Path
    bytes: int
    modified_ns: int
    is_shipped: bool = False

    @property
    def version(self) -> tuple[Path, int, int]:
        """Changes whenever the file does."""
        return (self.path, self.modified_ns, self.bytes)


@dataclass(frozen=True)
class Digest:
    """What is known of a recording."""

    header: Header | None = None
    """`None`: it could not be read at all, and `damage` says why."""
    result: RunResult | None = None
    """`None`: not summed up yet."""
    truncated: str | None = None
    """Why it ends early, as a sentence. `None`: it does not, as far as is known."""
    left_out: str | None = None
    """What in it could not be read, as a sentence. `None`: nothing, as far as is known."""
    damage: str | None = None
    """Why nothing in it can be read, as a sentence."""
    since_ns: int = 0
    """How long the session had been going on when the recording was begun."""

    @property
    def duration_ns(self) -> int | None:
        """From the first step to the end of the last."""
        return None if self.result is None else self.result[counts.WallTime]


def begun(entry: Entry, known: Digest) -> datetime | None:
    """When it was begun, by the clock where it was recorded; where nothing can be read, when the file was changed.

    `None`: the recording tells no time that could be understood.
    """
    if known.header is None:
        return datetime.fromtimestamp(entry.modified_ns / 1e9).astimezone()
    try:
        return datetime.fromisoformat(known.header.started) + timedelta(microseconds=known.since_ns / 1e3)
    except (ValueError, OverflowError):
        return None


def find_recordings(folders: Iterable[Folder]) -> tuple[Entry, ...]:
    """Recordings in these folders, those that were changed last first.

    Folders that are not there, or may not be read, are empty.
    """
    found: dict[Path, Entry] = {}
    for folder in folders:
        try:
            paths = list(folder.path.iterdir())
        except OSError:
            continue
        for path in paths:
            if not path.name.endswith(SUFFIXES) or path.name.startswith("."):
                continue
            try:
                status = path.stat()
                resolved = path.resolve()
            except OSError:
                continue  # It was deleted between the two.
            if path.is_file():
                entry = Entry(path, status.st_size, status.st_mtime_ns, folder.is_shipped)
                found.setdefault(resolved, entry)
    return tuple(sorted(found.values(), key=lambda entry: (-entry.modified_ns, entry.path)))


def read_header(entry: Entry) -> Digest:
    """What a recording begins with. Never raises for a file that is no session: it is damaged then."""
    try:
        reader = SessionReader(entry.path)
        return Digest(header=reader.header, since_ns=_since(itertools.islice(reader, OPENING)))
    except SessionFileError as error:
        return Digest(damage=str(error))


def _since(records: Iterable[AnyRecord]) -> int:
    """When a recording was begun, by the session's clock: it then opens with what is in force. 0: with the session."""
    first = next((record for record in records if not isinstance(record, Header)), None)
    return first.at_ns if isinstance(first, ConfigEvent) and first.by == "engine" and not first.changes else 0


def digest(entry: Entry, is_wanted: Callable[[], bool]) -> Digest | None:
    """The numbers of a whole recording: seconds for a million steps. `None`: they were wanted no longer."""
    try:
        reader = SessionReader(entry.path)
        summary = RunSummary()
        opening: list[AnyRecord] = []
        for index, record in enumerate(reader):
            if index < OPENING:
                opening.append(record)
            summary.write(record)
            if index % LOOK_EVERY == 0 and not is_wanted():
                return None
        result = summary.result()
    except SessionFileError as error:
        return Digest(damage=str(error))
    except (ValueError, KeyError, ArithmeticError) as error:
        # Every line is a record, and yet they contradict each other: no writer of ours makes such a file.
        return Digest(damage=f"Its records do not fit together ({type(error).__name__}: {error}).")
    return Digest(
        header=reader.header,
        result=result,
        truncated=reader.truncated,
        left_out=reader.left_out,
        since_ns=_since(opening),
    )


class Library:
    """Recordings and what is known of them; filled by a thread, read by the screen."""

    def __init__(self, folders: Sequence[Folder]) -> None:
        self.folders = folders
        self._lock = threading.Lock()
        self._known: dict[tuple[Path, int, int], Digest] = {}
        self._entries: tuple[Entry, ...] = ()
        self._first: tuple[Entry, ...] = ()

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The recordings as of the last look, the newest first: by when they were begun, as far as that is known."""
        with self._lock:
            return self._entries

    def known(self, entry: Entry) -> Digest:
        """What is known of a recording so far."""
        with self._lock:
            return self._known.get(entry.version, Digest())

    def wish(self, entries: Sequence[Entry]) -> None:
        """Have these read before all others."""
        with self._lock:
            self._first = tuple(entries)

    def look(self) -> None:
        """See what recordings there are. May take long in a large folder."""
        found = find_recordings(self.folders)
        with self._lock:
            versions = {entry.version for entry in found}
            self._known = {version: known for version, known in self._known.items() if version in versions}
            self._entries = self._ordered(found)

    def fill(self, is_wanted: Callable[[], bool], announce: Callable[[], object]) -> None:
        """Read what is not known, headers first, for as long as it is wanted. `announce` tells of each that is."""
        for entry in self.entries:
            if not is_wanted():
                return
            if self.known(entry) == Digest():
                self._learn(entry, read_header(entry))
        with self._lock:
            self._entries = self._ordered(self._entries)
        announce()
        while is_wanted():
            entry_wanted = self._next()
            if entry_wanted is None:
                return
            found = digest(entry_wanted, is_wanted)
            if found is None:
                return
            self._learn(entry_wanted, found)
            announce()

    def forget(self, entry: Entry) -> None:
        """The file is gone."""
        with self._lock:
            self._entries = tuple(other for other in self._entries if other != entry)
            self._known.pop(entry.version, None)

    def _ordered(self, entries: Iterable[Entry]) -> tuple[Entry, ...]:
        moments = {one: begun(one, self._known.get(one.version, Digest())) for one in entries}
        # Those without a time that could be understood come last.
        return tuple(sorted(moments, key=lambda one: -moment.timestamp() if (moment := moments[one]) else 0.0))

    def _next(self) -> Entry | None:
        with self._lock:
            for entry in (*self._first, *self._entries):
                known = self._known.get(entry.version)
                if known is not None and known.result is None and known.damage is None:
                    return entry
        return None

    def _learn(self, entry: Entry, found: Digest) -> None:
        with self._lock:
            self._known[entry.version] = found
