"""Whatever happens between them: no job is lost or handed out twice, turns keep their order, content its number."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stackscope.workload.spec import Length, WorkloadSpec
from stackscope.workload.traffic import MOST_AT_ONCE, Traffic
from tests.workload_fakes import ByteTokenizer

if TYPE_CHECKING:
    from stackscope.workload.jobs import Job

SECOND = 10**9
CONTEXT = 4_096


def answer(job: Job) -> list[int]:
    """What a deterministic model would say: it depends on the job alone."""
    return list(f"answer {sum(job.tokens) % 1_000}".encode())


@cache
def alone(spec: WorkloadSpec) -> dict[int, tuple[tuple[int, ...], int]]:
    """Every job's prompt and limit when they run one at a time, nothing ever changed."""
    run = Traffic(spec, ByteTokenizer(), context_tokens=CONTEXT)
    run.set_rate(None)
    run.set_concurrency(1)
    jobs: dict[int, tuple[tuple[int, ...], int]] = {}
    while not run.done:
        for job in run.due(0, 0):
            jobs[job.id] = (job.tokens, job.max_tokens)
            run.finished(job.id, answer(job))
    return jobs


class Loads(RuleBasedStateMachine):
    """An engine that finishes jobs in any order, and a user who turns every knob."""

    @initialize(
        name=st.sampled_from(["chat", "code"]),
        requests=st.sampled_from([1, 7, 40]),
        concurrency=st.integers(1, 6),
        rate=st.none() | st.sampled_from([0.5, 3.0, 50.0]),
        seed=st.integers(0, 2),
    )
    def begin(self, name: str, requests: int, concurrency: int, rate: float | None, seed: int) -> None:
        self.spec = WorkloadSpec(
            name=name,  # type: ignore[arg-type]
            requests=requests,
            concurrency=concurrency,
            rate=rate,
            turns=Length.uniform(1, 5) if name == "chat" else None,
            seed=seed,
        )
        self.run = Traffic(self.spec, ByteTokenizer(), context_tokens=CONTEXT)
        self.now_ns = 0
        self.flying: dict[int, Job] = {}
        self.seen: dict[int, Job] = {}
        self.finished: set[int] = set()
        self.last_turn: dict[int, int] = {}

    @rule(wait_ns=st.integers(0, 3 * SECOND))
    def ask(self, wait_ns: int) -> None:
        self.now_ns += wait_ns
        is_open_loop = self.run.rate is not None
        jobs = self.run.due(self.now_ns, len(self.flying))
        assert len(jobs) <= MOST_AT_ONCE
        for job in jobs:
            assert job.id not in self.seen, "handed out twice"
            assert 0 <= job.arrived_ns <= self.now_ns
            if job.conversation is not None:
                # Turns come in the order of their ids, and only after the one before has finished.
                last = self.last_turn.get(job.conversation)
                assert last is None or (last < job.id and last in self.finished)
                self.last_turn[job.conversation] = job.id
            self.seen[job.id] = self.flying[job.id] = job
        if jobs and not is_open_loop:
            assert len(self.flying) <= self.run.concurrency, "more in flight than asked for"

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        job = self.flying.pop(data.draw(st.sampled_from(sorted(self.flying))))
        self.finished.add(job.id)
        self.run.finished(job.id, answer(job))

    @rule(concurrency=st.integers(0, 8))
    def change_concurrency(self, concurrency: int) -> None:
        self.run.set_concurrency(concurrency)

    @rule(rate=st.none() | st.sampled_from([0.0, 0.5, 3.0, 200.0]), wait_ns=st.integers(0, SECOND))
    def change_rate(self, rate: float | None, wait_ns: int) -> None:
        self.now_ns += wait_ns
        self.run.set_rate(rate, now_ns=self.now_ns)

    @rule(n_jobs=st.integers(0, 50))
    def prepare(self, n_jobs: int) -> None:
        self.run.prepare(n_jobs)

    @invariant()
    def counts_agree(self) -> None:
        if not hasattr(self, "run"):
            return
        assert self.run.issued == len(self.seen)
        assert self.run.in_flight == len(self.flying)
        assert self.run.finished_jobs == len(self.finished)
        if self.run.done:
            assert len(self.seen) == self.spec.requests
            assert self.run.next_arrival_ns() is None
        elif not self.flying and self.run.concurrency > 0 and self.run.rate != 0:
            assert self.run.next_arrival_ns() is not None, "idle for ever with jobs left"

    def teardown(self) -> None:
        """Let it run to its end: just the jobs 0 to n − 1, each as it is when it runs alone."""
        if not hasattr(self, "run"):
            return
        self.run.set_concurrency(3)
        self.run.set_rate(None)
        while not self.run.done or self.flying:
            self.ask(0)
            for job_id in sorted(self.flying, reverse=True):
                self.finished.add(job_id)
                self.run.finished(job_id, answer(self.flying.pop(job_id)))
        expected = alone(self.spec)
        assert self.seen.keys() == expected.keys() == set(range(self.spec.requests or 0))
        for job_id, job in self.seen.items():
            assert (job.tokens, job.max_tokens) == expected[job_id]


TestLoads = Loads.TestCase
TestLoads.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
