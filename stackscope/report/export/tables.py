"""From the records of a session to the rows of its tables, one record at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from stackscope.analysis.account import NOTHING
from stackscope.analysis.live.standing import Standing
from stackscope.analysis.metrics.base import unknown_needs
from stackscope.records import (
    ConfigEvent,
    DraftShadow,
    Footer,
    HardwareSample,
    Log,
    Mark,
    Prediction,
    PrefixShadow,
    Probe,
    RequestRecord,
    StepRecord,
    TrafficEvent,
)
from stackscope.report.export.explaining_tables import (
    DRAFT_SHADOWS,
    PREDICTIONS,
    PREFIX_SHADOWS,
    PROBES,
    ShadowRow,
)
from stackscope.report.export.machine_tables import GPUS, HARDWARE, GpuRow
from stackscope.report.export.request_tables import EMISSIONS, REQUESTS, EmissionRow
from stackscope.report.export.session_tables import EVENTS, SESSION, SessionRow
from stackscope.report.export.step_tables import STEPS, WORK, StepRow, WorkRow

if TYPE_CHECKING:
    from stackscope.analysis.account import Account
    from stackscope.records import AnyRecord, Header
    from stackscope.report.export.columns import Row, Table

TABLES: Final = (
    SESSION,
    STEPS,
    WORK,
    REQUESTS,
    EMISSIONS,
    HARDWARE,
    GPUS,
    EVENTS,
    PREDICTIONS,
    PROBES,
    DRAFT_SHADOWS,
    PREFIX_SHADOWS,
)


class TableWriter(Protocol):
    """Takes rows of several tables, in the order in which they come."""

    def put(self, table: Table, row: Row) -> None: ...

    def close(self) -> None: ...


class Priced:
    """What steps cost, as far as header and changes tell."""

    def __init__(self, header: Header) -> None:
        self._standing = Standing(header)

    def change(self, event: ConfigEvent) -> None:
        """Take a change of the configuration, or the refusal of one."""
        if event.kind != "refused":
            self._standing.change(event)

    def target(self, step: StepRecord) -> Account | None:
        """Of the target's forward. `None`: not known, or it was cut short."""
        if not step.work:
            return NOTHING
        ledger = self._standing.pricing(step.epoch).target
        return None if ledger is None or step.aborted else ledger.account(step)

    def draft(self, step: StepRecord) -> Account | None:
        """Of the draft model's forwards. `None`: not known."""
        if not step.draft:
            return NOTHING
        ledger = self._standing.pricing(step.epoch).draft
        return None if ledger is None else ledger.account_draft(step.draft)


class Extractor:
    """A sink that writes the rows of each record. Keeps nothing but the last step."""

    def __init__(self, header: Header, writer: TableWriter) -> None:
        self._header = header
        self._writer = writer
        self._unknown = unknown_needs(header)
        self._priced = Priced(header)
        self._previous: tuple[int, int] | None = None
        """Number of the last step, and when it ended."""
        self._ended: str | None = None
        self.counts = {table.name: 0 for table in TABLES}
        """Rows so far."""

    def write(self, record: AnyRecord) -> None:
        """Take the next record of the session."""
        match record:
            case StepRecord():
                self._step(record)
            case RequestRecord():
                self._put(REQUESTS, record)
                for emission in record.emissions:
                    self._put(EMISSIONS, EmissionRow(record.id, emission))
            case HardwareSample():
                self._put(HARDWARE, record)
                for gpu in record.gpus or ():
                    self._put(GPUS, GpuRow(record.at_ns, gpu))
            case ConfigEvent():
                self._priced.change(record)
                self._put(EVENTS, record)
            case TrafficEvent() | Mark() | Log():
                self._put(EVENTS, record)
            case Prediction():
                self._put(PREDICTIONS, record)
            case Probe():
                self._put(PROBES, record)
            case DraftShadow():
                for counts in record.lengths:
                    self._put(DRAFT_SHADOWS, ShadowRow(record, counts))
            case PrefixShadow():
                self._put(PREFIX_SHADOWS, record)
            case Footer():
                self._ended = record.reason

    def end(self, truncated: str | None) -> None:
        """The recording is read: write what is only known now. `truncated` says why it ended early."""
        self._put(SESSION, SessionRow(self._header, self._ended, truncated))

    def _step(self, step: StepRecord) -> None:
        previous, self._previous = self._previous, (step.n, step.end_ns)
        follows = previous is not None and previous[0] + 1 == step.n
        idle_ns = max(step.start_ns - previous[1], 0) if follows and previous is not None else None
        self._put(STEPS, StepRow(step, idle_ns, self._priced.target(step), self._priced.draft(step)))
        for work in step.work:
            self._put(WORK, WorkRow(step.n, work))

    def _put(self, table: Table, source: object) -> None:
        self.counts[table.name] += 1
        self._writer.put(table, table.row(source, self._unknown))
