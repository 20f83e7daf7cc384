"""The files that a screen's runs are recorded to, one after the other."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

from stackscope.launch import place_of_recording
from stackscope.session.paths import Destination

if TYPE_CHECKING:
    from pathlib import Path

    from stackscope.options import OutputOptions
    from stackscope.records import Header
    from stackscope.session.writer import SessionWriter
    from stackscope.toggles import EngineConfig
    from stackscope.workload.spec import WorkloadSpec


class Recorded:
    """Finds a place for each recording."""

    def __init__(self, output: OutputOptions) -> None:
        self._output = msgspec.structs.replace(output, record=True)
        self.paths: Final[list[Path]] = []
        """Files that were written, oldest first."""

    def check(self, workload: WorkloadSpec, config: EngineConfig) -> None:
        """Raises `SessionFileError` when nothing could be written there."""
        from stackscope.session.writer import check_destination

        where = self._destination(workload, config)
        if where is not None:
            check_destination(where)

    def open(self, header: Header, workload: WorkloadSpec, config: EngineConfig) -> SessionWriter | None:
        """Begin a recording. `None`: there is no place for one. Raises `SessionFileError`."""
        from stackscope.session.writer import open_recording

        where = self._destination(workload, config)
        if where is None:
            return None
        recorder = open_recording(where, _with_load(header, workload))
        self.paths.append(recorder.path)
        return recorder

    def _destination(self, workload: WorkloadSpec, config: EngineConfig) -> Destination | None:
        where = place_of_recording(self._output, workload, config, started=datetime.now().astimezone())
        if where is not None and self.paths:
            # A file of the user's choice is the first one; those after it get a number.
            return Destination(path=where.path, is_chosen=False)
        return where


def _with_load(header: Header, workload: WorkloadSpec) -> Header:
    """A header whose words for the workload are of the load that it states, which may have been changed since."""
    from stackscope.workload.spec import describe

    stated = {name: header.workload[name] for name in ("concurrency", "rate") if header.workload.get(name) is not None}
    text = describe(msgspec.structs.replace(workload, **stated))
    return msgspec.structs.replace(header, workload={**header.workload, "text": text})
