"""A load that was changed while a session ran is looked at, as is what its header says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from stackscope.analysis.comparing.collecting import Collector
from stackscope.analysis.comparing.comparison import Versus, compare_digests
from stackscope.analysis.comparing.loads import Load, LoadsSeen, described, told
from stackscope.records import Header, StepRecord, TrafficEvent
from stackscope.report.compare import difference
from tests.unit.compare_sessions import Run

if TYPE_CHECKING:
    from stackscope.analysis.comparing.digest import Digest

A = Run()


def changed(*loads: dict[str, Any], at: int | None = None, run: Run | None = None, **options: Any) -> Digest:
    """A session whose load is set before its step `at`, or half-way; of several, one after every ten steps."""
    records = list((run or Run(noise=2)).records())
    steps = [index for index, record in enumerate(records) if isinstance(record, StepRecord)]
    first = len(steps) // 2 if at is None else at
    for n, load in reversed(list(enumerate(loads))):
        where = steps[first + 10 * n]
        step = records[where]
        assert isinstance(step, StepRecord)
        records.insert(where, TrafficEvent(at_ns=step.start_ns, **load))
    collector = Collector("x", **options)
    collector.take(records)
    return collector.digest()


def versus(b: Digest, a: Digest | None = None, **options: Any) -> Versus:
    return compare_digests([A.digest() if a is None else a, b], **options).versus[0]


def barriers(found: Versus) -> list[str]:
    return [one.kind for one in found.concerns if one.is_barrier]


def workload(found: Versus) -> list[tuple[str, object, object]]:
    return [(one.name, one.a, one.b) for one in found.differences if one.area == "workload"]


def test_loads_that_were_changed_differently_forbid_a_verdict() -> None:
    """Both headers say 4 in flight."""
    found = versus(changed({"rate": 152.0}), changed({"rate": 20.0}))
    assert found.verdict == "not comparable"
    assert barriers(found) == ["load changed", "load changed"]
    assert found.sentence.endswith("The load changed during A: 4 in flight, then 20 requests/s.")
    assert "The load changed during B: 4 in flight, then 152 requests/s." in [one.text for one in found.concerns]
    assert workload(found) == [("load", "4 in flight, then 20 requests/s", "4 in flight, then 152 requests/s")]
    assert not found.is_same_work
    line = "load 4 in flight, then 20 requests/s → 4 in flight, then 152 requests/s"
    assert [difference(one, found.letters) for one in found.differences if one.area == "workload"] == [line]


def test_a_load_that_was_changed_in_one_alone_differs() -> None:
    found = versus(changed({"concurrency": 8}))
    assert barriers(found) == ["load changed"]
    assert workload(found) == [("load", "4 in flight", "4 in flight, then 8 in flight")]


def test_the_same_changes_in_both_still_mix_two_loads() -> None:
    found = versus(changed({"rate": 20.0}), changed({"rate": 20.0}))
    assert (barriers(found), workload(found)) == (["load changed", "load changed"], [])


def test_a_verdict_can_be_had_anyway_and_is_of_latency_where_requests_arrive() -> None:
    found = versus(changed({"rate": 20.0}), anyway=True)
    assert found.verdict not in ("not comparable", "unknown")
    assert found.headline == "e2e_p50"


@pytest.mark.parametrize("load", [{"concurrency": 4}, {}])
def test_an_event_that_changes_nothing_is_no_change(load: dict[str, Any]) -> None:
    found = versus(changed(load))
    assert (barriers(found), workload(found)) == ([], [])


def test_a_load_that_is_set_before_the_first_step_is_the_only_one() -> None:
    found = versus(changed({"concurrency": 8}, at=0), Run(workload={"concurrency": 8}).digest())
    assert (barriers(found), workload(found)) == ([], [])
    other = versus(changed({"concurrency": 8}, at=0))
    assert (barriers(other), workload(other)) == (["workload"], [("concurrency", 4, 8)])


def test_a_change_in_the_warm_up_leaves_one_load_in_what_is_measured() -> None:
    early = changed({"concurrency": 8}, at=5)
    assert [span.load.concurrency for span in early.loads] == [4, 8]
    late = changed({"concurrency": 8}, at=5, warmup_ns=1_300_000_000)
    assert late.warmup_steps > 5
    assert [(span.load.concurrency, span.steps > 0) for span in late.loads] == [(8, True)]
    found = versus(late, A.digest(warmup_ns=1_300_000_000))
    assert workload(found) == [("concurrency", 4, 8)]
    assert barriers(found) == ["workload"]


def test_a_load_under_which_no_step_ran_is_none() -> None:
    digest = changed({"concurrency": 6}, {"concurrency": 4})
    assert [span.load.concurrency for span in digest.loads] == [4, 6, 4]
    assert sum(span.steps for span in digest.loads) == digest.total("steps")
    last = Collector("x")
    last.take([*Run(noise=2, footer=None).records(), TrafficEvent(at_ns=10**12, concurrency=0)])
    assert barriers(versus(last.digest())) == []


def test_what_was_offered_stands_beside_the_workload() -> None:
    facts = compare_digests([A.digest(), changed({"rate": 20.0})]).sessions
    assert facts[0].workload == "chat · closed loop, 4 in flight · 60 requests · seed 0"
    assert facts[1].workload == f"{facts[0].workload} · load changed to 20 requests/s"


def test_a_stream_of_records_tells_its_loads_as_a_comparison_does() -> None:
    """Only those under which steps ran, and nothing of one that never changed."""
    header, *records = Run(noise=2).records()
    assert isinstance(header, Header)
    seen = LoadsSeen(header)
    for record in records:
        seen.write(record)
    assert described(header, seen.loads) == header.workload["text"]
    changed_at = [n for n, record in enumerate(records) if isinstance(record, StepRecord)][20]
    seen = LoadsSeen(header)
    events = [TrafficEvent(at_ns=1, concurrency=6), TrafficEvent(at_ns=1, rate=20.0)]
    for record in [*records[:changed_at], *events, *records[changed_at:]]:
        seen.write(record)
    assert described(header, seen.loads) == f"{header.workload['text']} · load changed to 20 requests/s"


def test_loads_are_spelled() -> None:
    trace = Load(4, None, is_trace=True)
    paced = trace.changed(TrafficEvent(at_ns=0, rate=2.5))
    wider = paced.changed(TrafficEvent(at_ns=0, concurrency=9))
    assert told([trace, paced, wider]) == (
        "the trace's arrivals, then 2.5 requests/s, then 2.5 requests/s with at most 9 conversations"
    )
    assert told([Load(None, None)]) == "not recorded"
    assert told([Load(n, None) for n in range(6)]) == "0 in flight, then 4 others, then 5 in flight"
