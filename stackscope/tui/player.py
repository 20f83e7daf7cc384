"""A recording as the screen's source and its control: played at any speed, step by step, from any moment."""

from __future__ import annotations

import sys
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stackscope.errors import SessionFileError
from stackscope.pipeline import time_ns
from stackscope.records import Header, StepRecord
from stackscope.session.format import SUFFIX
from stackscope.session.reader import SessionReader
from stackscope.tui.control import SPEEDS
from stackscope.tui.source import Loading, Playing, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    from stackscope.records import AnyRecord
    from stackscope.session.reader import Extent
    from stackscope.toggles import Setting

PATIENCE_NS: Final = 150_000_000
"""Longest that the feed is held up at a time: what takes longer is seen to progress."""
_LOOK_EVERY: Final = 256
"""Records between two looks at the clock."""

_FIXED: Final = "A recording cannot be changed, only played."


class Player:
    """Plays the recording at `path`. See `Source` and `Playback` for what the methods are for.

    Memory does not grow with the file: to go back is to read it again from its beginning.
    """

    def __init__(self, path: Path | str, *, clock: Callable[[], int] = time.monotonic_ns) -> None:
        """Raises `SessionFileError` when there is no session to play."""
        self._path = Path(path)
        self._reader = SessionReader(self._path)
        self._clock = clock
        self._extent: Extent | None = None
        """`None`: nobody has looked yet."""
        self._n_bytes = 0
        """Size of the file when somebody looked."""
        self._notices: list[str] = []
        self._records: Iterator[AnyRecord] = iter(())
        self._next: AnyRecord | None = None
        """The first record that has not been played. `None`: all have."""
        self._next_ns = 0
        """Its time."""
        self._position_ns = 0
        self._n_steps = 0
        """Steps played so far."""
        self._goal_ns: int | None = None
        self._goal_steps: int | None = None
        """Where to go as fast as possible. `None`: nowhere."""
        self._is_stale = False
        """The records have been read to an end that is none any more."""
        self._looked_ns = 0
        self._is_playing = True
        self._speed = 1.0
        self._wishes: deque[Callable[[], None]] = deque()
        self.wake: Callable[[], None] = lambda: None
        """Called when there is a wish. Set by whoever owns the feed."""

    # The source: for the feed's thread

    def open(self) -> None:
        pass

    def take(self) -> Iterator[AnyRecord]:
        now_ns = self._clock()
        elapsed_ns, self._looked_ns = now_ns - self._looked_ns, now_ns
        if self._extent is None:
            self._extent = self._measured()
            self._goal_ns = self._extent.start_ns
            yield self._restarted()
        try:
            while self._wishes:
                self._wishes.popleft()()
            if self._has_to_go_back:
                yield self._restarted()
        except SessionFileError as error:
            # It was there when it was opened: what has been read of it stays, and can be played to its end.
            self._goal_ns = self._goal_steps = None
            self._notices.append(str(error))
        yield from self._advanced(elapsed_ns, now_ns + PATIENCE_NS)

    def status(self) -> Status:
        loading = None
        if self._extent is None:
            loading = Loading(what=f"reading {self._path.name}", fraction=None)
        elif self._goal_ns:
            loading = Loading(what="seeking", fraction=min(1.0, self._position_ns / self._goal_ns))
        elif self._goal_steps:
            loading = Loading(what="seeking", fraction=min(1.0, self._n_steps / self._goal_steps))
        playing = Playing(
            position_ns=self._position_ns,
            end_ns=self.end_ns,
            speed=self._speed,
            is_playing=self._is_playing,
            is_at_end=self._is_at_end,
            name=self._path.name.removesuffix(SUFFIX),
            # Damage in the middle is met when it is played.
            truncated=None if self._extent is None else self._missing(self._extent),
        )
        notices, self._notices = tuple(self._notices), []
        return Status(loading=loading, is_over=self._is_at_end, playing=playing, notices=notices)

    def _missing(self, extent: Extent) -> str | None:
        told = (extent.truncated or self._reader.truncated, self._reader.left_out)
        return " ".join(one for one in told if one is not None) or None

    def now_ns(self) -> int:
        return self._position_ns

    @property
    def is_moving(self) -> bool:
        return self._is_playing

    @property
    def patience_s(self) -> float | None:
        is_going = self._extent is None or self._goal_ns is not None or self._goal_steps is not None
        return 0.0 if is_going else None

    @property
    def has_news(self) -> bool:
        return bool(self._notices)

    def close(self) -> None:
        self._is_playing = False
        self._records, self._next = iter(()), None
        self._goal_ns = self._goal_steps = None
        self._wishes.clear()

    # The control: for the screen's thread

    @property
    def is_live(self) -> bool:
        return False

    @property
    def recording(self) -> Path | None:
        return None

    @property
    def is_recording_asked(self) -> bool:
        return False

    @property
    def is_playing(self) -> bool:
        return self._is_playing

    @property
    def speed(self) -> float:
        return self._speed

    @property
    def position_ns(self) -> int:
        return self._position_ns

    @property
    def end_ns(self) -> int:
        # A file that is still being written goes on beyond what it held when somebody looked.
        return 0 if self._extent is None else max(self._extent.end_ns, self._position_ns)

    @property
    def cores(self) -> int | None:
        return self._reader.header.cores

    def play(self) -> None:
        self._wish(self._play)

    def pause(self) -> None:
        self._wish(self._pause)

    def step(self, n: int = 1) -> None:
        self._wish(lambda: self._step(n))

    def set_speed(self, speed: float) -> None:
        self._speed = min(max(speed, SPEEDS[0]), SPEEDS[-1])
        self.wake()

    def seek(self, at_ns: int) -> None:
        self._wish(lambda: self._seek(at_ns))

    def reconfigure(self, changes: Mapping[str, Setting]) -> str | None:  # noqa: ARG002 - as in `Control`
        return _FIXED

    def set_concurrency(self, concurrency: int) -> str | None:  # noqa: ARG002
        return _FIXED

    def set_rate(self, rate: float) -> str | None:  # noqa: ARG002
        return _FIXED

    def mark(self, label: str) -> str | None:  # noqa: ARG002
        return _FIXED

    def cancel(self, request: int) -> str | None:  # noqa: ARG002
        return _FIXED

    def record(self, *, is_wanted: bool) -> str | None:  # noqa: ARG002
        return "A recording is being played: there is nothing to record."

    def show_text(self, *, is_wanted: bool) -> str | None:  # noqa: ARG002
        return "A recording has the text of requests only as a whole, once they have finished, and only when asked to."

    def restart(self) -> str | None:
        return "A recording has no engine that could be started."

    def _wish(self, wish: Callable[[], None]) -> None:
        self._wishes.append(wish)
        self.wake()

    # The feed's thread

    def _play(self) -> None:
        if self._is_at_end and not self._has_grown():
            self._goal_ns = self._start_ns
        self._is_playing = True

    def _pause(self) -> None:
        self._is_playing = False

    def _step(self, n: int) -> None:
        base = self._n_steps if self._goal_steps is None else self._goal_steps
        self._is_playing = False
        self._goal_ns, self._goal_steps = None, max(base + n, 0)

    def _seek(self, at_ns: int) -> None:
        if at_ns >= self.end_ns:
            self._has_grown()
        self._goal_ns, self._goal_steps = min(max(at_ns, self._start_ns or 0), self.end_ns), None

    def _measured(self) -> Extent:
        """From when to when the session goes now."""
        extent = self._reader.extent()
        self._n_bytes = self._reader.n_bytes
        return extent

    def _has_grown(self) -> bool:
        """Whether somebody still writes the file: it is then read again up to here, to go on from here."""
        if self._extent is None or self._reader.n_bytes == self._n_bytes:
            return False
        self._extent = self._measured()
        if self._next is None:
            self._goal_ns, self._is_stale = self._position_ns, True
        return True

    @property
    def _is_at_end(self) -> bool:
        return self._next is None and self.patience_s is None

    @property
    def _start_ns(self) -> int | None:
        return None if self._extent is None else self._extent.start_ns

    @property
    def _has_to_go_back(self) -> bool:
        return (
            self._is_stale
            or (self._goal_ns is not None and self._goal_ns < self._position_ns)
            or (self._goal_steps is not None and self._goal_steps < self._n_steps)
        )

    def _restarted(self) -> AnyRecord:
        """Begin again; the header."""
        # In the order of the file, in which the records came: so the screen shows what it showed when they did.
        self._is_stale = False
        records = iter(self._reader)
        header = next(records)
        assert type(header) is Header
        self._records = records
        self._position_ns = self._n_steps = 0
        self._fetch()
        return header

    def _fetch(self) -> None:
        """Look at the next record."""
        self._next = record = next(self._records, None)
        if type(record) is StepRecord:
            self._next_ns = record.end_ns
        elif record is not None:
            self._next_ns = time_ns(record) or 0

    def _advanced(self, elapsed_ns: int, deadline_ns: int) -> Iterator[AnyRecord]:
        """What is due: on the way to a goal, or by the time that has passed."""
        if self._goal_steps is not None:
            is_reached = yield from self._played(sys.maxsize, self._goal_steps, deadline_ns)
            if is_reached:
                self._goal_steps = None
            return
        if self._goal_ns is None and not self._is_playing:
            return
        goal_ns = self._goal_ns
        if goal_ns is None:
            goal_ns = self._position_ns + round(elapsed_ns * self._speed)
        is_reached = yield from self._played(goal_ns, sys.maxsize, deadline_ns)
        if is_reached:
            self._position_ns = max(self._position_ns, goal_ns if self._next is not None else min(goal_ns, self.end_ns))
            self._goal_ns = None
        if self._next is None:
            self._is_playing = False

    def _played(self, until_ns: int, n_steps: int, deadline_ns: int) -> Generator[AnyRecord, None, bool]:
        """Play the records up to a time and a number of steps. False: it takes too long to do it at once."""
        n = 0
        while (record := self._next) is not None and self._next_ns <= until_ns:
            if type(record) is StepRecord:
                if self._n_steps >= n_steps:
                    break
                self._n_steps += 1
            if self._next_ns > self._position_ns:
                self._position_ns = self._next_ns
            self._fetch()
            yield record
            n += 1
            if n % _LOOK_EVERY == 0 and self._clock() > deadline_ns:
                return False
        return True
