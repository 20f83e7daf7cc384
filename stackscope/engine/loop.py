"""The engine loop: admits requests, drafts, runs one forward, verifies, and accounts for every nanosecond of it.

Policy lives in `scheduler` and `prefix_cache`, native handles in `backend`; this file is the order of events. It is
single-threaded: only `interrupt` may be called from elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from stackscope.engine import batching, changes, outcome, stopwatch
from stackscope.engine.abort import AbortFlag
from stackscope.engine.aside import Aside
from stackscope.engine.backend import Backend
from stackscope.engine.batching import Rows
from stackscope.engine.choose import Chooser
from stackscope.engine.delays import Delays
from stackscope.engine.drafts import NOT_DRAFTED, ask, draft_source, wish
from stackscope.engine.llama import DecodeStatus, devices, library_description, start_library
from stackscope.engine.openmp import usable_cores
from stackscope.engine.requests import Requests, problem_of
from stackscope.engine.residents import Residents
from stackscope.engine.scheduler import BudgetGovernor
from stackscope.engine.sequence import Sequence
from stackscope.engine.stopwatch import CpuMeter, Stopwatch
from stackscope.engine.turn import Turn
from stackscope.engine.vocabulary import Vocabulary
from stackscope.records import StepRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from stackscope.engine.drafts import Drafted
    from stackscope.engine.scheduler import Plan
    from stackscope.records import AnyRecord, ConfigEvent, FinishReason, ModelSummary
    from stackscope.toggles import EngineConfig
    from stackscope.workload.jobs import Job, Tokenizer


class Engine:
    """Continuous batching over one target and, when given, one draft model."""

    @classmethod
    def open(
        cls,
        config: EngineConfig,
        *,
        clock: Callable[[], int],
        progress: Callable[[str, float], None],
        keep_text: bool = False,
    ) -> Engine:
        """Start the library, load the models and create the contexts. Raises `StackscopeError`."""
        if config.threads is None:
            config = msgspec.structs.replace(config, threads=usable_cores())
        start_library()
        abort = AbortFlag()
        backend = Backend(config, abort, progress=progress)
        try:
            config, softened = changes.soften(config, backend)
        except BaseException:
            backend.close()
            raise
        return cls(backend, config, clock=clock, progress=progress, keep_text=keep_text, softened=softened)

    def __init__(
        self,
        backend: Backend,
        config: EngineConfig,
        *,
        clock: Callable[[], int],
        progress: Callable[[str, float], None],
        keep_text: bool = False,
        softened: str | None = None,
    ) -> None:
        self.now = clock
        self.progress = progress
        self.softened = softened
        """What the engine switched off at the start, because these models cannot have it."""
        self.text_is_read = True
        """Somebody wants the turns' texts."""
        self.devices = devices()
        self.library = library_description(self.devices)
        self.epoch = 0
        self._keep_text = keep_text
        self._watch = Stopwatch(clock)
        self._cpu = CpuMeter()
        self._resume_ns: int | None = None
        self._n_steps = 0
        self._requests = Requests()
        self._aside = Aside(clock)
        self._delays = Delays()
        self.vocabulary = Vocabulary(backend.model)
        self.install(backend, config)

    # What others may ask

    @property
    def tokenizer(self) -> Tokenizer:
        return self.vocabulary

    @property
    def model(self) -> ModelSummary:
        return self.backend.spec

    @property
    def draft(self) -> ModelSummary | None:
        return self.backend.draft_spec

    @property
    def context_tokens(self) -> int:
        """Most tokens, prompt and output together, that one request can have."""
        return self.backend.size.n_ctx_seq

    @property
    def longest_requests(self) -> tuple[int, int, int]:
        """Most tokens, with output: that one could have, of all so far and what follows them, of those in flight."""
        return self._requests.most, self._requests.longest, max((one.max_n for one in self._requests), default=0)

    @property
    def capabilities(self) -> tuple[str, ...]:
        """What the records of this source can know."""
        return ("phases", "cpu", "slots", "prefix_cache", "acceptance", "ledger")

    @property
    def in_flight(self) -> int:
        return len(self._requests)

    # Requests in, requests out

    def submit(self, job: Job) -> None:
        """Queue a request. One that cannot run at all ends with an error record in the next turn."""
        sequence = Sequence(
            job, max_context=self.context_tokens, piece=self.vocabulary.piece, keep_text=self._keep_text
        )
        problem = problem_of(job, self.context_tokens, self.vocabulary.n_vocab)
        if problem is None:
            self._requests.join(sequence, self.context_tokens)
        else:
            self._requests.refuse(sequence, "error", at_ns=self.now(), error=problem)

    def cancel(self, request: int) -> None:
        """End a request now, if it is still here."""
        sequence = self._requests.find(request)
        if sequence is not None:
            self._end(sequence, "cancelled")

    def drain(self, reason: FinishReason = "cancelled") -> list[AnyRecord]:
        """End everything in flight and hand out the last records."""
        for sequence in list(self._requests):
            self._end(sequence, reason)
        finished, _, _ = self._requests.take()
        return [*finished, *self._aside.take(self.epoch)]

    def interrupt(self) -> None:
        """Cut short the forward in progress, from any thread; its rows are redone in the next step."""
        self.backend.abort.raise_()

    def idle(self) -> None:
        """The caller is about to wait: the time until the next step belongs to no step."""
        self._resume_ns = None

    def _end(self, sequence: Sequence, reason: FinishReason, error: str | None = None) -> None:
        self._requests.end(sequence, reason, at_ns=self.now(), residents=self._residents, error=error)

    # Configuration

    def reconfigure(self, config: EngineConfig, by: changes.By = "user") -> ConfigEvent:
        """Bring a configuration into force at this step boundary; a refusal is an event too."""
        return changes.reconfigure(self, config, by)

    def next_epoch(self) -> int:
        self.epoch += 1
        return self.epoch

    def install(self, backend: Backend, config: EngineConfig) -> None:
        """Start using a backend; nothing is running."""
        self.backend = backend
        self.config = config
        self.vocabulary.attach(backend.model)
        self._residents = Residents(backend, config)
        self._chooser = Chooser(self.vocabulary.is_end, config.seed)
        self._source = draft_source(config, backend, self._residents)
        self._aside.install(backend, config)
        self._delays.switch(self._watch, is_on=config.causal_probes)
        self._governor = None if backend.can_abort else BudgetGovernor()
        self._cursor = -1
        for sequence in list(self._requests):
            if not sequence.fit(self.context_tokens):
                self._end(sequence, "context")

    def release_backend(self) -> None:
        """Stop using the backend and free its contexts; its models stay loaded."""
        self._aside.release(self.epoch)
        self.backend.close_contexts()

    def apply_live(self, config: EngineConfig) -> None:
        """Bring a configuration into force that differs in live settings only."""
        before, self.config = self.config, config
        self._aside.reconfigure(config, self.epoch)
        self._delays.switch(self._watch, is_on=config.causal_probes)
        if config.threads != before.threads:
            self.backend.set_threads(config.threads)
        if config.seed != before.seed:
            self._chooser = Chooser(self.vocabulary.is_end, config.seed)
        self._residents.reconfigure(config)
        is_other_lookup = (config.ngram_min, config.ngram_max) != (before.ngram_min, before.ngram_max)
        for sequence in self._requests:
            sequence.clear_draft()
            sequence.want = 0
            if is_other_lookup:
                sequence.forget_ngrams()
            if not config.adaptive_draft:
                sequence.adaptive = None
        self._source = draft_source(config, self.backend, self._residents)
        for sequence in self._requests.running[config.slots :]:
            # What it holds goes to the prefix cache first, so that taking it up again costs little.
            self._residents.remember_all(sequence)
        self._put_back(config.slots)

    def put_back_all(self) -> int:
        """Return every running request to the front of the queue, oldest first; how many there were."""
        return self._put_back(0)

    def _put_back(self, first: int) -> int:
        """Return running requests from the `first` on, and say how many; the youngest goes first, to stand behind."""
        surplus = self._requests.running[first:]
        for sequence in reversed(surplus):
            sequence.n_requeued += 1
            self._requests.put_back(sequence, self._residents)
        return len(surplus)

    def close(self) -> None:
        """Free everything native, in order."""
        self._aside.release(self.epoch)
        self.backend.close()

    # The step

    def step(self) -> Turn | None:
        """Run one step. `None`: there was nothing to do. Raises `EngineError` when the library failed."""
        watch = self._watch
        watch.begin(self._resume_ns)
        requests = self._requests
        if self._delays.is_on:
            self._delays.arm(watch, is_drafting=self._source is not None)
        if requests.queue:
            self._admit()
        if requests.finished:  # Cancelled or refused: said before a forward, which may take seconds.
            return self._turn(Rows(), NOT_DRAFTED, 0, None)
        if not requests.running:
            self._resume_ns = None
            return None
        plan, preempted = self._plan()
        drafted = NOT_DRAFTED
        if self._source is not None:
            watch.lap(stopwatch.BUILD)
            drafted = ask(self._source, plan, requests.running, self.config.token_budget)
            watch.lap(stopwatch.DRAFT)
        if drafted.aborted:
            self.backend.abort.lower()
            return self._turn(Rows(), drafted, preempted, None, aborted=True)
        rows = batching.fill_plan(self.backend.target.batch, requests.running, plan)
        watch.lap(stopwatch.BUILD)
        if rows.n == 0:
            return self._turn(rows, drafted, preempted, None)
        status, cpu_ns = self._forward(rows)
        watch.lap(stopwatch.DECODE)
        if self._governor is not None and status == DecodeStatus.OK:
            n_prefill = sum([n for _, n in plan.prefill])
            self._governor.observe(watch.spent(stopwatch.DECODE), prefill_rows=n_prefill)
        if status != DecodeStatus.OK:
            preempted += self._undo(rows, status)
            return self._turn(Rows(), drafted, preempted, cpu_ns, aborted=True)
        if rows.n_outputs:
            logits = self.backend.target.logits(rows.n_outputs)
            self._chooser.choose(rows.entries, logits, self.config.synthetic_acceptance)
        watch.lap(stopwatch.SAMPLE)
        ends = outcome.emit(
            rows, self.vocabulary, requests.texts, is_read=self.text_is_read, step=self._n_steps, at_ns=watch.last_ns
        )
        watch.lap(stopwatch.EMIT)
        self._commit(rows, ends)
        watch.lap(stopwatch.COMMIT)
        return self._turn(rows, drafted, preempted, cpu_ns)

    def _admit(self) -> None:
        watch = self._watch
        admitted = self._requests.admit(
            self._residents, slots=self.config.slots, n_slots=self.backend.size.slots_max, now_ns=watch.last_ns
        )
        if admitted:
            self._aside.admitted(admitted)
        watch.lap(stopwatch.ADMIT)

    def _plan(self) -> tuple[Plan, int]:
        """What each running sequence may feed, after making room for it; pre-empts the youngest where none is left."""
        preempted = 0
        running = self._requests.running
        if self._source is not None:
            wish(running, self.config)
        budget = self.config.token_budget
        if self._governor is not None:
            rows = sum([1 + s.want for s in running if s.is_decoding])
            budget = self._governor.budget(budget, decode_rows=rows)
        while True:
            plan, victim = self._residents.plan(running, budget, self._cursor)
            if victim is None:
                self._cursor = plan.cursor
                return plan, preempted
            sequence = self._requests.in_slot(victim)
            if len(running) == 1:
                self._end(sequence, "context")
                return plan.nothing(), preempted
            self._preempt(sequence)
            preempted += 1

    def _preempt(self, victim: Sequence) -> None:
        victim.n_preempted += 1
        self._requests.put_back(victim, self._residents)

    def _forward(self, rows: Rows) -> tuple[int, int | None]:
        """(status, CPU time of the process) of the forward; makes room once if the cache says there is none."""
        target = self.backend.target
        self._cpu.begin(self._watch.last_decode_ns)
        status = target.decode(rows.n)
        if status == DecodeStatus.NO_ROOM and self._residents.evict(rows.n) > 0:
            status = target.decode(rows.n)
        return status, self._cpu.end()

    def _undo(self, rows: Rows, status: int) -> int:
        """Forget what an incomplete forward left in the memory; how many were pre-empted because there was no room."""
        memory = self.backend.memory
        for entry in rows.entries:
            sequence = entry.sequence
            if not memory.forget_unrecorded(sequence.slot, sequence.kv):
                # A running state that has moved on cannot be taken back: the whole sequence is computed again.
                memory.trim(sequence.slot, 0)
                sequence.kv = 0
            memory.trim_draft(sequence.slot, sequence.n)
            sequence.clear_draft()
        if status == DecodeStatus.ABORTED:
            self.backend.abort.lower()
            return 0
        youngest = self._requests.running[-1]
        if len(self._requests.running) == 1:
            self._end(youngest, "context")
            return 0
        self._preempt(youngest)
        return 1

    def _commit(self, rows: Rows, ends: list[FinishReason | None]) -> None:
        residents = self._residents
        outcome.commit(rows.entries, self.backend.memory)
        if rows.ends_prefill or residents.is_windowed or any(ends):
            for entry, end in zip(rows.entries, ends, strict=True):
                if end is not None:
                    self._end(entry.sequence, end)
                else:
                    residents.remember_progress(entry.sequence, is_prefilled=entry.ends_prefill)

    def _turn(self, rows: Rows, drafted: Drafted, preempted: int, cpu_ns: int | None, *, aborted: bool = False) -> Turn:
        """Close the step: its record, and everything it produced."""
        watch = self._watch
        size = self.backend.size
        work = rows.work()
        ubatches = batching.passes(rows, self.backend.target.batch, size.n_ubatch, is_unified=size.is_unified)
        cache = self._residents.take_counters()
        kv_cells = self._residents.cells_used(self._requests.running)
        aside: tuple[AnyRecord, ...] = ()
        has_ended = preempted > 0 or len(self._requests.finished) > 0
        if self._aside.is_due(rows, watch.last_ns, has_ended=has_ended):
            watch.lap(stopwatch.OTHER)
            aside = self._aside.observe(rows, self._requests.running, has_ended=has_ended, epoch=self.epoch)
            watch.lap(stopwatch.SHADOW)
        step = StepRecord(
            n=self._n_steps,
            start_ns=watch.start_ns,
            phases=watch.phases(),
            work=work,
            ubatches=ubatches,
            draft=drafted.forwards,
            queue=len(self._requests.queue),
            slots_busy=len(work),
            slots=self.config.slots,
            cache=cache,
            kv_cells=kv_cells,
            cpu_ns=cpu_ns,
            preempted=preempted,
            aborted=aborted,
            settling=drafted.settling,
            invalid_output=self.config.synthetic_acceptance is not None,
            delay=self._delays.take(watch, work) if self._delays.is_on else None,
            epoch=self.epoch,
        )
        self._n_steps += 1
        self._resume_ns = watch.last_ns
        return Turn(step, *self._requests.take(), aside)
