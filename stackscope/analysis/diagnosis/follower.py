"""A whole diagnosis of a session as it goes by: learns the time model, gathers evidence, and names what limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackscope.analysis.diagnosis.gather import Gatherer
from stackscope.analysis.diagnosis.naming import Namer, Naming
from stackscope.analysis.ledgers import UNPRICED, Ledgers
from stackscope.analysis.timing.fit import Fit
from stackscope.pipeline import time_ns
from stackscope.records import ConfigEvent, Header, StepRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from stackscope.analysis.diagnosis.evidence import Evidence
    from stackscope.analysis.timing.model import TimeModel
    from stackscope.records import AnyRecord

EVERY_NS: Final = 1_000_000_000
"""Between two looks, which take some milliseconds each."""
MOST_PENDING: Final = 64


class Follower:
    """A sink. For one thread at a time."""

    def __init__(self) -> None:
        self.gatherer = Gatherer()
        self.namer = Namer()
        self.fit = Fit(None)
        self.evidence: Evidence | None = None
        """What the last naming was of."""
        self._model: TimeModel | None = None
        self._ledgers = Ledgers()
        self._pending: list[StepRecord] = []
        self._has_begun = False
        """The first step of the session has come."""

    def write(self, record: AnyRecord) -> None:
        """Take the next record of the session, in the order of their time."""
        if isinstance(record, StepRecord):
            if not self._has_begun:
                self._has_begun = True
                self.namer.begin(record.start_ns)
            self._pending.append(record)
            if len(self._pending) >= MOST_PENDING:
                self._learn()
        elif isinstance(record, Header):
            self._pending, self._ledgers, self.namer = [], Ledgers(), Namer()
            self._has_begun = False
            self._model = None
            self.fit = Fit.of(record)
            self.fit.begin(record.config, self._ledgers.begin(record))
        elif isinstance(record, ConfigEvent) and record.kind != "refused":
            self._learn()
            self._model = None
            self.fit.begin(record.config, self._ledgers.change(record) if record.config is not None else UNPRICED)
        self.gatherer.write(record)

    def close(self) -> None:
        """Nothing is held that needs releasing."""

    def _learn(self) -> None:
        steps, self._pending = self._pending, []
        self.fit.add(steps)

    @property
    def model(self) -> TimeModel | None:
        """The time model that was named by last. To ask for a newer one may make one, and what is learned would depend
        on who asks when. `None`: nothing was ever timed."""
        if self._model is None:
            self._model = self.fit.model()
        return self._model

    def name(self, now_ns: int, *, is_over: bool = False) -> Naming:
        """What limits now. Costs some milliseconds: once a second is often enough. `is_over`: no more will come."""
        self._learn()
        self._model = self.fit.model()
        self.evidence = self.gatherer.evidence(now_ns, self._model)
        return self.namer.update(self.evidence, is_over=is_over)


def namings(records: Iterable[AnyRecord], every_ns: int = EVERY_NS) -> Iterator[Naming]:
    """What is named while a session goes by, once in so long; the last one is of its end."""
    follower = Follower()
    next_ns: int | None = None
    last_ns: int | None = None
    named_ns: int | None = None
    for record in records:
        follower.write(record)
        at_ns = time_ns(record)
        if at_ns is None:
            continue
        last_ns = at_ns if last_ns is None else max(last_ns, at_ns)
        if next_ns is None:
            next_ns = last_ns + every_ns
        if last_ns >= next_ns:
            yield follower.name(last_ns)
            named_ns, next_ns = last_ns, last_ns + every_ns
    if last_ns is not None and last_ns != named_ns:
        yield follower.name(last_ns)
