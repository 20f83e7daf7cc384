"""The tables of what happened to a session, and of the session itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from stackscope.report.export.columns import Column, Kind, Table, as_json, field, json_or_unknown

if TYPE_CHECKING:
    from stackscope.records import Header


class SessionRow(NamedTuple):
    """What the row of `session` is made from."""

    header: Header
    ended: str | None
    truncated: str | None


def _maybe(name: str, kind: Kind, unit: str, meaning: str) -> Column:
    """A column that only some of the records of a table have."""
    return Column(name, kind, unit, meaning, lambda row: getattr(row, name, None))


def _event_kind(event: Any) -> str:
    tag = str(type(event).__struct_config__.tag)
    return str(event.kind) if tag == "config" else tag


def _event_text(event: Any) -> str | None:
    found = next((getattr(event, name) for name in ("label", "text", "reason") if hasattr(event, name)), None)
    return None if found is None else str(found)


EVENTS: Final = Table(
    "events",
    "A change of the configuration or of the load, the refusal of one, a mark, or a line that the engine wrote.",
    (
        field("at_ns", "int", "ns", "When it happened."),
        Column("kind", "text", "", "`live`, `rebuild`, `refused` (configuration), `traffic`, `mark` or `log`.",
               _event_kind),
        _maybe("epoch", "int", "", "The epoch that begins with it."),
        _maybe("by", "text", "", "`user`, `plan` or `engine`."),
        Column("changes", "text", "", "Each setting with its value before and after, as JSON.",
               lambda row: json_or_unknown(getattr(row, "changes", None))),
        Column("text", "text", "", "A mark's name, the line that was written, why it was refused or took a rebuild.",
               _event_text),
        _maybe("duration_ns", "int", "ns", "How long the rebuild took."),
        _maybe("requeued", "int", "requests", "Requests that the rebuild put back."),
        _maybe("concurrency", "int", "requests", "Requests offered at a time from then on."),
        _maybe("rate", "float", "1/s", "Requests offered per second from then on."),
        Column("config", "text", "", "The whole configuration in force afterwards, as JSON.",
               lambda row: json_or_unknown(getattr(row, "config", None))),
    ),
)  # fmt: skip


SESSION: Final = Table(
    "session",
    "The session itself: one row.",
    (
        field("started", "text", "", "Wall-clock time of the origin of the session's clock.", of="header.started"),
        field("stackscope", "text", "", "Version that recorded it.", of="header.stackscope"),
        field("schema", "int", "", "Version of the recording's format.", of="header.schema"),
        field("cost_model", "int", "", "Version of the equations of the ledger.", of="header.cost_model"),
        field("source", "text", "", "`engine`, `attach` or `replay`.", of="header.source"),
        field("host", "text", "", "Name of the machine.", of="header.host"),
        field("device", "text", "", "What computed.", of="header.device"),
        field("library", "text", "", "Inference library and build.", of="header.library"),
        Column("model", "text", "", "The target.", lambda row: _name_of(row.header.model)),
        Column("draft_model", "text", "", "The draft model.", lambda row: _name_of(row.header.draft_model)),
        Column("workload", "text", "", "What was asked of the traffic generator, as JSON.",
               lambda row: as_json(row.header.workload)),
        Column("config", "text", "", "The configuration at the start, as JSON.",
               lambda row: json_or_unknown(row.header.config)),
        Column("capabilities", "text", "", "What the source can know, as a JSON list.",
               lambda row: as_json(row.header.capabilities)),
        field("ended", "text", "", "How it ended; unknown: it was killed, or goes on."),
        field("truncated", "text", "", "Why reading it ended early; unknown: it did not."),
    ),
)  # fmt: skip


def _name_of(model: Any) -> str | None:
    return None if model is None else str(model.name)
