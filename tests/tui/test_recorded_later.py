"""Recordings that begin in the middle of a session: their headers are of what is in force then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stackscope.options import OutputOptions
from stackscope.records import Header
from stackscope.session.reader import read_session
from stackscope.toggles import EngineConfig
from stackscope.tui.recorded import Recorded
from stackscope.workload.spec import WorkloadSpec, describe

if TYPE_CHECKING:
    from pathlib import Path


def test_the_words_for_a_load_that_was_changed_are_of_that_load(tmp_path: Path) -> None:
    spec = WorkloadSpec(concurrency=8)
    header = Header(
        stackscope="0", started="2026-01-01T00:00:00+00:00", host="lab", device="cpu", config=EngineConfig(),
        workload={"name": "code", "concurrency": 4, "text": describe(spec)},
    )  # fmt: skip
    recorder = Recorded(OutputOptions(record_path=str(tmp_path / "later"))).open(header, spec, EngineConfig())
    assert recorder is not None
    recorder.close()
    kept = read_session(recorder.path).header
    assert kept is not None
    assert "4 in flight" in str(kept.workload["text"])
    assert kept.workload["concurrency"] == 4
