"""The real engine in its process: one whole run, commands through the pipe, and sudden ends on either side."""

from __future__ import annotations

import os
import random
import signal
import time
from typing import TYPE_CHECKING, Final

import pytest

from stackscope.engine import wire
from stackscope.engine.openmp import usable_cores
from stackscope.engine.process import EngineProcess
from stackscope.errors import EngineDiedError
from stackscope.model.catalog import bundled_target
from stackscope.records import ConfigEvent, Footer, RequestRecord, StepRecord
from stackscope.session.reader import SessionReader
from stackscope.workload.spec import Length, WorkloadSpec
from tests.integration.harness import lab_config
from tests.integration.worker_support import Parent, begin, is_gone_within, rest_of, until_step, wait_ms

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from stackscope.records import AnyRecord

pytestmark = pytest.mark.engine

KILLS: Final = 20
LAST_SECOND_NS: Final = 1_000_000_000


def start(requests: int | None, *, max_tokens: int = 24, **settings: object) -> EngineProcess:
    prompt = Length.fixed(96)
    spec = WorkloadSpec(name="unique", requests=requests, concurrency=6, prompt_tokens=prompt, max_tokens=max_tokens)
    return EngineProcess.start(lab_config(**settings), spec)


def requests_of(items: Iterable[object]) -> dict[int, RequestRecord]:
    """Requests by id; one that is reported twice fails."""
    requests = [item for item in items if isinstance(item, RequestRecord)]
    found = {request.id: request for request in requests}
    assert len(found) == len(requests)
    return found


def steps_of(records: Iterable[object]) -> list[StepRecord]:
    steps = [record for record in records if isinstance(record, StepRecord)]
    assert [step.n for step in steps] == list(range(len(steps)))
    return steps


def test_a_whole_run_is_recorded_as_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl.zst"
    with start(20, speculation="ngram") as engine:
        ready = engine.wait_ready()
        assert ready.model.name == "stackscope-lab-target"
        assert ready.config.threads in {2, usable_cores()}
        begin(engine, path)
        live: list[AnyRecord] = list(engine.records())
    assert list(SessionReader(path))[:-1] == live[:-1]
    requests = requests_of(live)
    assert sorted(requests) == list(range(20))
    assert {r.finish_reason for r in requests.values()} <= {"eos", "length", "stop"}
    steps = steps_of(live)
    assert sum(s.emitted for s in steps) == sum(r.output_tokens for r in requests.values())
    assert isinstance(live[-1], Footer)
    assert (live[-1].reason, live[-1].steps, live[-1].requests) == ("done", len(steps), 20)


def test_toggles_through_the_pipe_lose_no_request() -> None:
    changes: list[dict[str, object]] = [
        {"speculation": "draft"},
        {"slots": 2},
        {"kv_type_k": "q8_0"},
        {"prefix_cache": False},
        {"kv_type_k": "f16", "slots": 6},
        {"speculation": "off"},
        {"speculation": "mtp"},
    ]
    items: list[object] = []
    with start(40) as engine:
        begin(engine)
        for item in engine.items():
            items.append(item)
            if isinstance(item, StepRecord) and item.n % 8 == 4 and changes:
                engine.send(wire.reconfigure(changes.pop(0)))
    kinds = [item.kind for item in items if isinstance(item, ConfigEvent)]
    assert kinds == ["live", "live", "rebuild", "live", "rebuild", "live", "refused"]
    assert sorted(requests_of(items)) == list(range(40))
    steps_of(items)


def test_quitting_at_once_inside_a_prefill_takes_less_than_a_second() -> None:
    spec = WorkloadSpec(name="unique", concurrency=8, prompt_tokens=Length.fixed(1_500), max_tokens=400)
    config = lab_config(token_budget=2_048, context_tokens=16_384)
    with EngineProcess.start(config, spec) as engine:
        begin(engine)
        until_step(engine, 0)  # The second forward, of another 2,048 rows, has begun.
        asked = time.monotonic()
        engine.send(wire.Quit())
        requests = requests_of(rest_of(engine))
        assert time.monotonic() - asked < 1.0
    assert {r.finish_reason for r in requests.values()} == {"cancelled"}
    assert len(requests) == 8


@pytest.mark.parametrize("seed", range(KILLS))
def test_a_parent_killed_at_any_moment_takes_the_engine_along(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    path = tmp_path / "session.jsonl.zst"
    parent = Parent(path, str(bundled_target()))
    wait_ms(draw.uniform(0, 2_000))
    killed_ns = parent.signal(signal.SIGKILL)
    assert is_gone_within(parent.engine_pid, 1.0)
    assert parent.wait() == (-signal.SIGKILL, "")
    if parent.began_ns is None:
        return
    steps = steps_of(SessionReader(path))
    # A step that was running for longer than that has no record yet.
    assert killed_ns - (steps[-1].end_ns if steps else parent.began_ns) < LAST_SECOND_NS + most_ns(steps)


def most_ns(steps: list[StepRecord]) -> int:
    return max((s.duration_ns for s in steps), default=LAST_SECOND_NS)


@pytest.mark.parametrize("seed", range(KILLS))
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT])
def test_an_engine_that_dies_at_any_moment_is_reported_with_the_recording_closed(
    seed: int, number: signal.Signals, tmp_path: Path
) -> None:
    draw = random.Random(seed)
    path = tmp_path / "session.jsonl.zst"
    with start(None, max_tokens=200, speculation=draw.choice(["off", "ngram", "draft"])) as engine:
        begin(engine, path)
        wait_ms(draw.uniform(0, 300))
        os.kill(engine.pid, number)
        killed = time.monotonic()
        with pytest.raises(EngineDiedError, match=number.name) as caught:
            rest_of(engine)
        assert time.monotonic() - killed < 1.0
    assert caught.value.last_lines
    *records, footer = SessionReader(path)
    assert isinstance(footer, Footer)
    assert (footer.reason, footer.steps) == ("engine-died", len(steps_of(records)))
