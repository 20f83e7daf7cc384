"""The trace: by the rules of its format, and true to the session."""

from __future__ import annotations

import copy
import gzip
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest

import generate_export_doc
from stackscope.records import ConfigEvent, HardwareSample, Mark, Phases, RequestRecord, StepRecord, TrafficEvent
from stackscope.report.export import perfetto
from stackscope.report.export.export import export
from stackscope.report.export.perfetto import CHANGES_TRACK, ENGINE, REQUESTS, SLOTS, STEPS_TRACK, Level, Tracer
from stackscope.session.reader import SessionReader, read_session
from tests.unit.record_builders import make_header, make_request, make_step
from tests.unit.report_sessions import steps as report_steps
from tests.unit.trace_checker import check, nanoseconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from stackscope.records import AnyRecord, Header

PROFILES: Final = Path(__file__).parents[2] / "profiles"
NAMES: Final = ("story", "chat", "copy-ngram", "code-q8")


def events_of(*records: AnyRecord, header: Header | None = None) -> list[Any]:
    events: list[Any] = []
    tracer = Tracer(make_header() if header is None else header, events.append)
    for record in records:
        tracer.write(record)
    tracer.end()
    events = json.loads(msgspec.json.encode(events))
    check({"displayTimeUnit": "ms", "otherData": {}, "traceEvents": events})
    return events


def exported(name: str, tmp_path: Path, suffix: str = ".json") -> Any:
    path = tmp_path / f"{name}{suffix}"
    export(SessionReader(PROFILES / f"{name}.jsonl.zst"), "perfetto", path)
    return json.loads(gzip.decompress(path.read_bytes()) if suffix.endswith(".gz") else path.read_bytes())


@pytest.mark.parametrize("name", NAMES)
def test_recorded_sessions_keep_the_rules(name: str, tmp_path: Path) -> None:
    document = exported(name, tmp_path)
    check(document)
    assert document == exported(name, tmp_path, ".json.gz")
    assert document["otherData"]["stackscope"] == "0.1.0"


@pytest.mark.parametrize("name", NAMES)
def test_steps_phases_and_requests_are_all_there(name: str, tmp_path: Path) -> None:
    session = read_session(PROFILES / f"{name}.jsonl.zst")
    events = exported(name, tmp_path)["traceEvents"]
    on_steps = [e for e in events if e["ph"] == "X" and (e["pid"], e["tid"]) == (ENGINE, STEPS_TRACK)]
    slices = [e for e in on_steps if e["name"].startswith("step")]
    assert [(nanoseconds(e["ts"]), nanoseconds(e["dur"])) for e in slices] == [
        (step.start_ns, step.duration_ns) for step in session.steps
    ]
    spent = Counter(dict.fromkeys(Phases.__struct_fields__, 0))
    for event in on_steps:
        if event["name"] in spent:
            spent[event["name"]] += nanoseconds(event["dur"])
    assert spent == {
        phase: sum(getattr(step.phases, phase) for step in session.steps) for phase in Phases.__struct_fields__
    }
    begun = [e for e in events if e["ph"] == "b" and e["pid"] == REQUESTS and e["name"] == "request"]
    assert [e["args"]["id"] for e in begun] == [request.id for request in session.requests]
    in_slots = [e for e in events if e["ph"] == "X" and e["pid"] == SLOTS and "request" in e.get("args", {})]
    assert {e["args"]["request"] for e in in_slots} >= {r.id for r in session.requests if r.emissions}


def test_toggles_loads_and_marks_are_instants(tmp_path: Path) -> None:
    session = read_session(PROFILES / "story.jsonl.zst")
    events = exported("story", tmp_path)["traceEvents"]
    instants = {nanoseconds(e["ts"]): e["name"] for e in events if e["ph"] == "i"}
    happened = {record.at_ns for records in (session.configs, session.traffic, session.marks) for record in records}
    assert set(instants) == happened
    assert set(instants.values()) >= {"spec draft", "spec off", "KV q8_0", "load: concurrency 8", "mark: batch 8"}
    rebuild = next(e for e in events if e["name"] == "rebuild")
    assert nanoseconds(rebuild["dur"]) == next(c.duration_ns for c in session.configs if c.kind == "rebuild")


def counters(events: list[Any], name: str) -> list[tuple[int, dict[str, float]]]:
    return [(nanoseconds(e["ts"]), e["args"]) for e in events if e["ph"] == "C" and e["name"] == name]


def levels(events: list[Any], level: Level) -> list[tuple[int, float]]:
    return [(at_ns, values[level.series]) for at_ns, values in counters(events, level.name)]


def test_counters_say_what_the_steps_were() -> None:
    first, second = report_steps(2)
    second = msgspec.structs.replace(second, queue=3, kv_cells=2_400)
    header = make_header(capabilities=("phases", "slots", "acceptance"))
    events = events_of(first, second, header=header)
    assert counters(events, perfetto.DRAFTS) == [
        (first.start_ns, {"accepted": 8, "rejected": 4}),  # four sequences, of three drafted two accepted each
        (second.start_ns, {"accepted": 0, "rejected": 12}),
    ]
    assert levels(events, perfetto.ACCEPTANCE) == [
        (first.start_ns, pytest.approx(100 * 8 / 12)), (second.start_ns, 0.0),
    ]  # fmt: skip
    assert levels(events, perfetto.QUEUE) == [(first.start_ns, 0), (second.start_ns, 3)]
    assert levels(events, perfetto.KV_CELLS) == [(first.end_ns, 2_345), (second.end_ns, 2_400)]


def test_modelled_bandwidth_is_the_ledger_s_bytes_over_the_forward_and_falls_while_idle() -> None:
    from stackscope.analysis.ledger import Ledger

    header = make_header()
    assert header.model is not None
    step = make_step(0)
    later = make_step(1, start_ns=step.end_ns + 1_000)
    found = levels(events_of(step, later, header=header), perfetto.BANDWIDTH)
    expected = Ledger(header.model).account(step).total_bytes / step.phases.decode  # bytes per ns are GB/s
    assert found[0][0] == step.start_ns
    assert found[0][1] == pytest.approx(expected)
    assert found[1] == (step.end_ns, 0.0)
    assert len(found) == 3


def test_what_is_not_known_has_no_counter() -> None:
    header = make_header(model=None, source="attach", capabilities=("phases",))
    names = {e["name"] for e in events_of(*report_steps(3), header=header) if e["ph"] == "C"}
    assert names == {perfetto.KV_CELLS.name}
    blind = make_header(source="attach", capabilities=("slots",))
    slices = {e["name"] for e in events_of(make_step(), header=blind) if e["ph"] == "X" and e["pid"] == ENGINE}
    assert slices == {"step"}


def test_nothing_drafted_has_no_acceptance() -> None:
    events = events_of(make_step(0), make_step(1))
    assert counters(events, perfetto.ACCEPTANCE.name) == counters(events, perfetto.DRAFTS) == []


def test_the_life_of_a_request() -> None:
    request = make_request()
    parts = [(e["ph"], e["name"], nanoseconds(e["ts"]) - request.arrived_ns) for e in events_of(request)
             if e["pid"] == REQUESTS and e["ph"] in "be"]  # fmt: skip
    ms = 1_000_000
    assert parts == [
        ("b", "request", 0),
        ("b", "queue", 0), ("e", "queue", 5 * ms),
        ("b", "prefill", 5 * ms), ("e", "prefill", 50 * ms),
        ("b", "decode", 50 * ms), ("e", "decode", 53 * ms),
        ("e", "request", 53 * ms),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"admitted_ns": None, "emissions": (), "finish_reason": "cancelled"}, ["request", "queue"]),
        ({"emissions": (), "finish_reason": "error", "error": "no"}, ["request", "queue", "prefill"]),
    ],
)
def test_a_request_that_never_got_so_far(changes: dict[str, Any], names: list[str]) -> None:
    events = events_of(make_request(**changes))
    assert [e["name"] for e in events if e["ph"] == "b"] == names


def test_a_stay_in_a_slot_holds_its_prefill_and_its_decoding() -> None:
    def step(n: int, phase: str, request: int, new: int, emitted: int) -> StepRecord:
        made = make_step(n)
        work = msgspec.structs.replace(made.work[0], request=request, phase=phase, new=new, emitted=emitted, slot=5)
        return msgspec.structs.replace(made, work=(work,))

    records = [
        step(0, "prefill", 1, 100, 0), step(1, "prefill", 1, 20, 1), step(2, "decode", 1, 1, 1),
        step(3, "verify", 1, 4, 3), step(4, "prefill", 2, 50, 1),
    ]  # fmt: skip
    events = events_of(*records)
    stays = [(e["name"], e["args"], nanoseconds(e["ts"]), nanoseconds(e["dur"])) for e in events
             if e["ph"] == "X" and e["pid"] == SLOTS]  # fmt: skip
    start, ms = records[0].start_ns, 1_000_000
    assert stays == [
        ("request 1", {"request": 1}, start, 4 * ms),
        ("prefill", {"rows": 120, "emitted": 1, "steps": 2}, start, 2 * ms),
        ("decode", {"rows": 5, "emitted": 4, "steps": 2}, start + 2 * ms, 2 * ms),
        ("request 2", {"request": 2}, start + 4 * ms, ms),
        ("prefill", {"rows": 50, "emitted": 1, "steps": 1}, start + 4 * ms, ms),
    ]
    assert [e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == SLOTS] == ["slot 5"]


def test_odd_sessions_keep_the_rules() -> None:
    """Refusals, loads without values, steps without phases, samples of everything."""
    events_of(
        HardwareSample(at_ns=0, cpu_percent=12.5, rss_bytes=5),
        ConfigEvent(at_ns=1, epoch=0, kind="live"),  # says what was in force when a recording began
        ConfigEvent(at_ns=2, epoch=0, kind="refused", reason="no"),
        TrafficEvent(at_ns=3),
        Mark(at_ns=4, label=""),
        make_step(0, phases=Phases(), work=()),
        make_step(5, aborted=True),
        RequestRecord(id=2**40, arrived_ns=0, finished_ns=0, finish_reason="error", prompt_tokens=0),
    )


# The checker itself


def _first(events: list[Any], ph: str) -> Any:
    return next(event for event in events if event["ph"] == ph)


BREAKAGES: Final[dict[str, Callable[[list[Any]], Any]]] = {
    "no ts": lambda events: _first(events, "X").pop("ts"),
    "negative ts": lambda events: _first(events, "X").update(ts=-1),
    "negative dur": lambda events: _first(events, "X").update(dur=-1),
    "ts as text": lambda events: _first(events, "X").update(ts="1"),
    "dur not finite": lambda events: _first(events, "X").update(dur=float("inf")),
    "unknown phase": lambda events: _first(events, "X").update(ph="Q"),
    "unknown field": lambda events: _first(events, "X").update(color="red"),
    "no name": lambda events: _first(events, "X").update(name=""),
    "counter as text": lambda events: _first(events, "C").update(args={"value": "3"}),
    "counter as flag": lambda events: _first(events, "C").update(args={"value": True}),
    "counter without value": lambda events: _first(events, "C").update(args={}),
    "unknown scope": lambda events: _first(events, "i").update(s="x"),
    "unknown metadata": lambda events: _first(events, "M").update(name="colour"),
    "unnamed track": lambda events: _first(events, "X").update(tid=99),
    "unnamed group": lambda events: _first(events, "C").update(pid=99),
    "number of another group": lambda events: _first(events, "C").update(tid=11, pid=4),
    "named twice": lambda events: events.append(_first(events, "M")),
    "overlap": lambda events: _first(events, "X").update(dur=1_500),
    "never ends": lambda events: events.remove(_first(events, "e")),
    "ends before it begins": lambda events: events.insert(0, events.pop(events.index(_first(events, "e")))),
}  # fmt: skip


@pytest.mark.parametrize("name", BREAKAGES)
def test_the_checker_sees_what_is_wrong(name: str) -> None:
    sound = events_of(make_step(0), make_step(1), make_request(), Mark(at_ns=1, label="here"))
    broken = copy.deepcopy(sound)
    BREAKAGES[name](broken)
    with pytest.raises(AssertionError):
        check({"displayTimeUnit": "ms", "otherData": {}, "traceEvents": broken})


def test_changes_have_a_track_of_their_own() -> None:
    mark = next(e for e in events_of(Mark(at_ns=1, label="here")) if e["ph"] == "i")
    assert (mark["pid"], mark["tid"]) == (ENGINE, CHANGES_TRACK)


def test_every_argument_of_an_event_is_documented(tmp_path: Path) -> None:
    events = [event for name in NAMES for event in exported(name, tmp_path)["traceEvents"]]
    events += events_of(
        TrafficEvent(at_ns=3, concurrency=2, rate=1.5),
        ConfigEvent(at_ns=4, epoch=0, kind="refused", reason="no"),
        msgspec.structs.replace(make_step(0), settling=True),
        make_request(finish_reason="error", error="no"),
    )
    documented = {name for _, names, _ in generate_export_doc.ARGUMENTS for name in names.split(", ")}
    carried = {name for event in events if event["ph"] in "Xibe" for name in event.get("args", {})}
    assert carried == documented
    counted = {event["name"] for event in events if event["ph"] == "C"}
    assert counted <= {name for name, *_ in generate_export_doc.COUNTERS}
