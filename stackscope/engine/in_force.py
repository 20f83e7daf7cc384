"""What the records that went by say is in force: with it, a recording can begin in the middle of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from stackscope.records import ConfigEvent, TrafficEvent
from stackscope.session.format import LineDecoder

if TYPE_CHECKING:
    from stackscope.engine import wire
    from stackscope.records import AnyRecord, Header, ModelSummary
    from stackscope.toggles import EngineConfig

_MARKERS: Final = (b'{"type":"config"', b'{"type":"traffic"')
"""How the lines begin that are looked at; JSON escapes the quotes in any text, so they stand nowhere else."""


class InForce:
    """Follows record lines as they are handed to the recorder. Not for several threads at once."""

    def __init__(self) -> None:
        self._config: EngineConfig | None = None
        self._model: ModelSummary | None = None
        self._draft: ModelSummary | None = None
        self._epoch = 0
        self._load: dict[str, float] = {}
        """Concurrency and rate, as far as they were changed."""
        self._told_load: dict[str, float] = {}
        """The same when a header was last composed."""

    @property
    def config(self) -> EngineConfig | None:
        """The configuration. `None`: the engine is not ready."""
        return self._config

    @property
    def epoch(self) -> int:
        return self._epoch

    def start(self, ready: wire.Ready) -> None:
        """Take what the engine starts with."""
        self._config, self._model, self._draft = ready.config, ready.model, ready.draft

    def feed(self, lines: bytes) -> None:
        """Take whole record lines."""
        if not any(marker in lines for marker in _MARKERS):
            return
        wanted = [line for line in lines.splitlines(keepends=True) if line.startswith(_MARKERS)]
        for record in LineDecoder().feed(b"".join(wanted)):
            if isinstance(record, ConfigEvent):
                self._change(record)
            elif isinstance(record, TrafficEvent):
                offered = {"concurrency": record.concurrency, "rate": record.rate}
                self._load.update({name: value for name, value in offered.items() if value is not None})

    def _change(self, event: ConfigEvent) -> None:
        if event.config is None:
            return
        self._epoch, self._config = event.epoch, event.config
        if event.model is not None:
            self._model = event.model
        if "draft_model" in event.changes:
            self._draft = event.draft_model

    def amend(self, header: Header) -> Header:
        """The header of a recording that begins now, given that of the session."""
        self._told_load = dict(self._load)
        return msgspec.structs.replace(
            header,
            model=self._model,
            draft_model=self._draft,
            config=self._config,
            workload={**header.workload, **self._load},
        )

    def opening(self, at_ns: int) -> list[AnyRecord]:
        """What follows that header: the epoch of the steps to come, and what has changed since it was composed."""
        opening: list[AnyRecord] = [
            ConfigEvent(
                at_ns=at_ns, epoch=self._epoch, kind="live", by="engine", config=self._config, model=self._model
            )
        ]
        if self._load != self._told_load:
            rate, concurrency = self._load.get("rate"), self._load.get("concurrency")
            whole = None if concurrency is None else int(concurrency)
            opening.append(TrafficEvent(at_ns=at_ns, concurrency=whole, rate=rate))
        return opening
