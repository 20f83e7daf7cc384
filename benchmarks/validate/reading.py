"""A staged recording as the scores see it: blocks of steps, what changed at their beginning, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from stackscope.analysis.ledgers import UNPRICED, Ledgers, Pricing
from stackscope.analysis.speculating import Curves
from stackscope.analysis.timing.fit import Fit
from stackscope.records import AnyRecord, ConfigEvent, Header, Mark, RequestRecord, StepRecord
from stackscope.session.reader import SessionReader
from stackscope.toggles import EngineConfig, Setting

if TYPE_CHECKING:
    from pathlib import Path

MARK: Final = "block"
"""First word of the mark that begins a block."""
WARM_UP_NS: Final = 1_000_000_000
"""Left out after a change."""


class Stretch(msgspec.Struct):
    """What happened in one block, its warm-up left out of the steps."""

    number: int
    begins_ns: int
    ends_ns: int = 0
    changes: dict[str, Setting] = {}
    """Settings that changed at its beginning, with what they became."""
    config: EngineConfig | None = None
    """In force."""
    pricing: Pricing = UNPRICED
    warm_up: list[StepRecord] = []
    steps: list[StepRecord] = []
    requests: list[RequestRecord] = []

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens emitted per second after the warm-up, idle time included. `None`: hardly anything ran."""
        if len(self.steps) < 2:
            return None
        wall = self.steps[-1].end_ns - self.steps[0].start_ns
        return sum(step.emitted for step in self.steps) / wall * 1e9 if wall > 0 else None


class Recording(msgspec.Struct):
    """A recording, read once."""

    header: Header
    records: list[AnyRecord]
    stretches: list[Stretch]


def read(path: Path) -> Recording:
    """Read a recording into blocks. Raises `SessionFileError` when it is none."""
    reader = SessionReader(path)
    return divided(list(reader))


def divided(records: list[AnyRecord]) -> Recording:
    """Records in the order in which they came, the header first, divided by the marks of their blocks."""
    header = records[0]
    assert isinstance(header, Header)
    ledgers = Ledgers()
    pricing, config = ledgers.begin(header), header.config
    stretches: list[Stretch] = []
    settled_ns = 0
    for record in records:
        if isinstance(record, Mark) and record.label.startswith(f"{MARK} "):
            if stretches:
                stretches[-1].ends_ns = record.at_ns
            stretches.append(Stretch(len(stretches), record.at_ns, config=config, pricing=pricing))
            settled_ns = record.at_ns + WARM_UP_NS
        elif isinstance(record, ConfigEvent) and record.kind != "refused":
            pricing, config = ledgers.change(record), record.config
            settled_ns = max(settled_ns, record.at_ns + (record.duration_ns or 0) + WARM_UP_NS)
            if stretches:
                stretches[-1].changes |= {name: after for name, (_, after) in record.changes.items()}
                stretches[-1].config, stretches[-1].pricing = config, pricing
        elif stretches and isinstance(record, StepRecord):
            is_settled = record.start_ns >= settled_ns and not record.settling and not record.aborted
            (stretches[-1].steps if is_settled else stretches[-1].warm_up).append(record)
        elif stretches and isinstance(record, RequestRecord):
            stretches[-1].requests.append(record)
    if stretches and stretches[-1].steps:
        stretches[-1].ends_ns = stretches[-1].steps[-1].end_ns
    return Recording(header, records, stretches)


class Knowledge:
    """What the time model and the acceptance curves know at any point of a session, from its records up to there."""

    def __init__(self, header: Header) -> None:
        self._ledgers = Ledgers()
        self.fit = Fit(header.ceilings, header.other_ceilings)
        self.curves = Curves()
        self.pricing = self._ledgers.begin(header)
        self.fit.begin(header.config, self.pricing)
        self.curves.write(header)

    def write(self, record: AnyRecord) -> None:
        """Take the next record."""
        self.curves.write(record)
        if isinstance(record, StepRecord):
            self.fit.add((record,))
        elif isinstance(record, ConfigEvent) and record.kind != "refused":
            self.pricing = self._ledgers.change(record)
            self.fit.begin(record.config, self.pricing)
