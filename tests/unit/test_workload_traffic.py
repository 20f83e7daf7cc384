"""When jobs are handed out: closed loop, open loop, conversations, limits, and changes on the way."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from stackscope.errors import WorkloadError
from stackscope.workload.spec import Length, WorkloadSpec
from stackscope.workload.traffic import MOST_AT_ONCE, Traffic
from tests.workload_fakes import ByteTokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from stackscope.workload.jobs import Job

SECOND = 10**9
TINY = Length.fixed(20)


def traffic(**options: object) -> Traffic:
    fields: dict[str, object] = {"name": "code", "prompt_tokens": TINY, "output_tokens": TINY} | options
    return Traffic(WorkloadSpec(**fields), ByteTokenizer(), context_tokens=4096)  # type: ignore[arg-type]


def chat(**options: object) -> Traffic:
    return traffic(name="chat", turns=Length.fixed(3), prompt_tokens=None, **options)


def ids(jobs: Sequence[Job]) -> list[int]:
    return [job.id for job in jobs]


def test_a_closed_loop_keeps_its_jobs_in_flight() -> None:
    run = traffic(concurrency=3, requests=5)
    assert ids(run.due(10, 0)) == [0, 1, 2]
    assert run.due(11, 3) == []
    assert run.next_arrival_ns() is None
    run.finished(1, [])
    (job,) = run.due(12, 2)
    assert (job.id, job.arrived_ns) == (3, 12)
    run.finished(0, [])
    run.finished(2, [])
    assert ids(run.due(13, 1)) == [4]
    assert run.done
    assert (run.issued, run.finished_jobs, run.in_flight, run.total) == (5, 3, 2, 5)
    assert run.due(14, 0) == []


def test_a_closed_loop_counts_what_the_engine_holds() -> None:
    run = traffic(concurrency=3)
    # Two that the traffic knows nothing of leave room for one.
    assert len(run.due(0, 2)) == 1


def test_concurrency_changes_on_the_way() -> None:
    run = traffic(concurrency=2)
    first = run.due(0, 0)
    run.set_concurrency(4)
    assert run.next_arrival_ns() == 0
    assert len(run.due(1, 2)) == 2
    run.set_concurrency(1)
    for job in first:
        run.finished(job.id, [])
    assert run.due(2, 2) == []
    run.set_concurrency(0)
    assert run.next_arrival_ns() is None
    assert not run.done
    for wrong in (-1, 10**9):
        with pytest.raises(WorkloadError):
            run.set_concurrency(wrong)


def test_an_open_loop_stamps_the_scheduled_arrival() -> None:
    run = traffic(rate=4.0, arrivals="uniform", requests=6)
    assert run.due(0, 0) == []
    assert run.next_arrival_ns() == SECOND // 4
    # Noticed late, and whatever is in flight: three have come.
    assert [job.arrived_ns for job in run.due(800_000_000, 99)] == [250_000_000, 500_000_000, 750_000_000]
    run.set_rate(8.0, now_ns=900_000_000)
    # 0.15 s of the gap of 0.25 are over; the other 0.4 gaps take 0.05 s at 8 per second.
    assert run.next_arrival_ns() == 950_000_000
    assert run.rate == 8.0
    assert len(run.due(60 * SECOND, 0)) == 3
    assert run.done
    assert run.next_arrival_ns() is None


def test_loops_change_into_each_other() -> None:
    run = traffic(concurrency=2)
    assert ids(run.due(0, 0)) == [0, 1]
    run.set_rate(1.0)
    assert run.due(1, 2) == []
    assert run.next_arrival_ns() is not None
    run.set_rate(0)
    assert run.next_arrival_ns() is None
    assert run.due(99 * SECOND, 2) == []
    run.set_rate(None)
    run.finished(0, [])
    assert ids(run.due(100 * SECOND, 1)) == [2]
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(WorkloadError):
            run.set_rate(wrong)


def test_a_burst_is_handed_out_in_portions() -> None:
    run = traffic(rate=1_000.0, arrivals="uniform")
    for n in range(3):
        portion = run.due(SECOND, n * MOST_AT_ONCE)
        assert len(portion) == MOST_AT_ONCE
        assert portion[0].arrived_ns == (n * MOST_AT_ONCE + 1) * 1_000_000
        upcoming = run.next_arrival_ns()
        assert upcoming is not None
        assert upcoming <= SECOND  # due again at once
    closed = traffic(concurrency=2 * MOST_AT_ONCE)
    assert len(closed.due(0, 0)) == MOST_AT_ONCE
    assert closed.next_arrival_ns() == 0
    assert len(closed.due(0, MOST_AT_ONCE)) == MOST_AT_ONCE
    assert closed.next_arrival_ns() is None


def test_a_duration_ends_the_offer() -> None:
    run = traffic(concurrency=1, duration_s=2.0)
    run.start(10 * SECOND)
    assert ids(run.due(10 * SECOND, 0)) == [0]
    assert not run.done
    run.finished(0, [])
    assert run.due(12 * SECOND, 0) == []
    assert run.done
    assert run.next_arrival_ns() is None


def test_an_idle_open_loop_wakes_up_at_its_end() -> None:
    run = traffic(rate=0.001, arrivals="uniform", duration_s=2.0)
    assert run.next_arrival_ns() == 2 * SECOND
    assert run.due(2 * SECOND, 0) == []
    assert run.done


def test_arrivals_before_the_end_are_offered_even_when_noticed_after_it() -> None:
    run = traffic(rate=10.0, arrivals="uniform", duration_s=1.05)
    assert not run.done
    jobs = run.due(60 * SECOND, 0)
    assert [job.arrived_ns for job in jobs] == [n * SECOND // 10 for n in range(1, 11)]
    assert run.done


def test_a_run_past_its_end_is_done_only_when_all_that_arrived_is_handed_out() -> None:
    run = traffic(rate=1_000.0, arrivals="uniform", duration_s=0.1)
    n = 0
    while not run.done:
        jobs = run.due(60 * SECOND, 0)
        assert jobs
        n += len(jobs)
    assert n == 99  # one each millisecond, the hundredth at the end and no more


def test_a_turn_that_could_be_asked_only_after_the_end_is_not() -> None:
    run = chat(rate=1.0, arrivals="uniform", concurrency=1, requests=3, duration_s=2.5)
    assert ids(run.due(1 * SECOND, 0)) == [0]
    # The arrival at 2 s waits for the first answer, which comes too late.
    assert run.due(2 * SECOND, 1) == []
    assert not run.done
    assert run.next_arrival_ns() == 2_500_000_000
    assert run.due(3 * SECOND, 1) == []
    assert run.done
    run.finished(0, [65])
    assert run.done
    assert run.due(4 * SECOND, 0) == []


def test_the_turns_of_a_group_of_conversations_are_numbered_in_rounds() -> None:
    run = chat(concurrency=2, requests=9)
    # Two conversations of three turns: ids 0, 2, 4 and 1, 3, 5; the next two begin at 6.
    assert [(job.id, job.conversation) for job in run.due(0, 0)] == [(0, 0), (1, 1)]
    run.finished(1, [65])
    # Conversation 1 goes on before conversation 2 begins.
    assert [(job.id, job.conversation) for job in run.due(1, 1)] == [(3, 1)]
    run.finished(3, [65])
    run.finished(0, [65])
    assert ids(run.due(2, 0)) == [5, 2]
    run.finished(5, [65])
    assert [(job.id, job.conversation) for job in run.due(3, 1)] == [(6, 2)]


def test_a_short_run_has_as_many_conversations_as_are_to_be_in_flight() -> None:
    run = chat(concurrency=6, requests=8)
    assert ids(run.due(0, 0)) == [0, 1, 2, 3, 4, 5]
    run.finished(4, [65])
    # Two second turns are left, those of the first two conversations; the fifth has none below the limit.
    assert run.due(1, 5) == []
    run.finished(1, [65])
    assert [(job.id, job.conversation) for job in run.due(1, 4)] == [(7, 1)]


def test_the_limit_cuts_conversations_so_that_just_the_first_ids_run() -> None:
    for concurrency in (1, 4, 7, 300):
        run = chat(concurrency=concurrency, requests=17)
        seen: list[int] = []
        while not run.done:
            for job in run.due(0, 0):
                seen.append(job.id)
                run.finished(job.id, [65])
        assert sorted(seen) == list(range(17))


def test_a_pass_over_a_file_is_each_of_its_turns_once(tmp_path: Path) -> None:
    path = tmp_path / "w.jsonl"
    counts = [3, 1, 2, 4, 1]
    talks = [[{"from": "human", "value": f"{n}.{turn}"} for turn in range(count)] for n, count in enumerate(counts)]
    for talk in talks:  # an answer after each, or the questions would be one
        talk[:] = [one for question in talk for one in (question, {"from": "gpt", "value": "a"})]
    path.write_text("\n".join(json.dumps({"conversations": talk}) for talk in talks), encoding="utf-8")
    for concurrency in (1, 2, 3, 8, 300):
        spec = WorkloadSpec(path=str(path), concurrency=concurrency, requests=2 * sum(counts))
        run = Traffic(spec, ByteTokenizer(), context_tokens=4096)
        asked: list[tuple[int, str]] = []
        while not run.done:
            for job in run.due(0, 0):
                question = ByteTokenizer().decode(job.tokens).rpartition("User: ")[2].removesuffix("\nAssistant:")
                asked.append((job.id // sum(counts), question))
                run.finished(job.id, [65])
        once = [f"{n}.{turn}" for n, count in enumerate(counts) for turn in range(count)]
        assert sorted(asked) == [(lap, question) for lap in (0, 1) for question in once]


def test_an_arrival_waits_for_the_only_turns_that_are_left() -> None:
    run = chat(rate=1.0, arrivals="uniform", concurrency=1, requests=3)
    assert [job.arrived_ns for job in run.due(1 * SECOND, 0)] == [1 * SECOND]
    # Turn 2 arrives at 2 s, but turn 1 is still being answered.
    assert run.due(2 * SECOND, 1) == []
    assert run.next_arrival_ns() is None
    assert not run.done
    run.due(5 * SECOND, 1)
    run.finished(0, [65])
    # It could not arrive before it was there to be asked.
    (job,) = run.due(5 * SECOND, 0)
    assert (job.id, job.arrived_ns) == (1, 5 * SECOND)


def test_a_turn_arrives_no_sooner_than_the_answer_before_it() -> None:
    run = chat(rate=1.0, arrivals="uniform", concurrency=1, requests=3)
    run.due(1 * SECOND, 0)
    run.finished(0, [65], now_ns=4 * SECOND)  # Nobody had asked for jobs meanwhile.
    (job,) = run.due(5 * SECOND, 0)
    assert job.arrived_ns == 4 * SECOND


def test_an_open_loop_keeps_as_many_conversations_open_as_it_is_told() -> None:
    run = chat(rate=1.0, arrivals="uniform", concurrency=2)
    order = []
    for second in range(1, 9):
        for job in run.due(second * SECOND, 0):
            order.append(job.conversation)
            run.finished(job.id, [65])
    # Two take turns. When one is over the next begins, and so there are two again.
    assert order == [0, 1, 0, 1, 0, 2, 1, 3]
    # All busy: a new one begins rather than have an arrival wait.
    busy = chat(rate=1.0, arrivals="uniform", concurrency=2)
    assert [job.conversation for job in busy.due(4 * SECOND, 0)] == [0, 1, 2, 3]


def test_only_jobs_in_flight_can_finish_and_once() -> None:
    run = traffic(concurrency=1)
    run.due(0, 0)
    run.finished(0, [])
    for wrong in (0, 1, -1):
        with pytest.raises(ValueError, match="is not in flight"):
            run.finished(wrong, [])


def test_jobs_can_be_made_beforehand() -> None:
    plain, prepared = traffic(requests=20, concurrency=20), traffic(requests=20, concurrency=20)
    prepared.prepare(12)
    assert prepared.due(0, 0) == plain.due(0, 0)
    tokenizer = ByteTokenizer()
    spec = WorkloadSpec(name="unique", requests=5, concurrency=5)
    early = Traffic(spec, tokenizer, context_tokens=2048)
    early.prepare(1_000)
    n_encoded = tokenizer.n_encoded
    assert len(early.due(0, 0)) == 5
    assert tokenizer.n_encoded == n_encoded


def test_the_text_is_kept_on_request() -> None:
    spec = WorkloadSpec(name="code", prompt_tokens=TINY)
    for keep in (True, False):
        job = Traffic(spec, ByteTokenizer(), context_tokens=512, keep_text=keep).due(0, 0)[0]
        assert job.prompt_text == (ByteTokenizer().decode(job.tokens) if keep else None)


def test_jobs_before_a_bad_line_are_handed_out_before_it_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "w.jsonl"
    lines = [{"prompt": "fine"}] * 1_001 + [{"prompt": "x" * 300}]
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    spec = WorkloadSpec(path=str(path), concurrency=2_000, max_tokens=10)
    # Beyond the first thousand, lines are checked as they come up.
    run = Traffic(spec, ByteTokenizer(), context_tokens=200)
    seen: list[int] = []
    while len(seen) < 1_001:
        seen += ids(run.due(0, 0))
    assert seen == list(range(1_001))
    for _ in range(2):
        assert run.next_arrival_ns() is not None
        with pytest.raises(WorkloadError, match=r"w\.jsonl:1002: the prompt of 301 tokens"):
            run.due(1, 0)
