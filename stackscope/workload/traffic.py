"""Offers the requests of a workload to the engine: which, in what order, and when. Runs beside the tokenizer."""

from __future__ import annotations

import itertools
from collections import deque
from typing import TYPE_CHECKING, Final

from stackscope.errors import WorkloadError
from stackscope.workload.arrivals import ArrivalTimes, PacedArrivals, TraceArrivals, unit_gaps
from stackscope.workload.builtin_chat import ChatScript, RagScript
from stackscope.workload.builtin_text import CodeScript, CopyScript, UniqueScript
from stackscope.workload.check import validate_arrivals
from stackscope.workload.files import read_file
from stackscope.workload.jobs import Job
from stackscope.workload.numbering import Numbering
from stackscope.workload.recorded import FileScript
from stackscope.workload.script import Room, Single
from stackscope.workload.spec import MOST_CONCURRENCY, MOST_RATE, validate
from stackscope.workload.template import ChatFormat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.workload.jobs import Tokenizer
    from stackscope.workload.script import Conversation, Script
    from stackscope.workload.spec import WorkloadSpec

MOST_AT_ONCE: Final = 32
"""Jobs handed out by one call: making one takes up to 10 ms, and the engine is not to stand still for long."""


class _Open:
    """A conversation that has begun and has turns left."""

    def __init__(self, number: int, ids: list[int], conversation: Conversation, *, is_single: bool) -> None:
        self.number = number
        self.conversation = conversation
        self.ids = deque(ids)
        """Of the turns that are left."""
        self.is_single = is_single
        self.ready_ns = 0
        """When its next turn could first be asked."""


class Traffic:
    """Jobs in numbered order of content, handed out when the load asks for them.

    The turns of a conversation have their job ids beforehand, so job i is the same whatever the timing and however the
    load is changed on the way; with a limit of n requests exactly the jobs 0 to n − 1 are handed out, each once, if not
    in this order. A conversation's next turn is due only when the last one has finished.

    Closed loop: conversations that wait go on before new ones begin, and no more than `concurrency` jobs are in flight.
    Open loop: each arrival takes the conversation that has waited longest, or begins one while fewer than `concurrency`
    are open or all of them are busy.
    """

    def __init__(
        self,
        spec: WorkloadSpec,
        tokenizer: Tokenizer,
        *,
        context_tokens: int,
        start_ns: int = 0,
        keep_text: bool = False,
    ) -> None:
        """`context_tokens`: what a request may occupy, prompt and output. `keep_text`: jobs carry their prompt as text.

        Raises WorkloadError when the description, the file or the chat template cannot be used with this model.
        """
        validate(spec)
        self._spec = spec
        self._tokenizer = tokenizer
        self._keep_text = keep_text
        self._script, self._times_ns = _script(spec, Room(spec, tokenizer, context_tokens))
        self._concurrency = spec.concurrency
        self.start(start_ns)

        self._numbering = Numbering(self._script, group=spec.concurrency, limit=spec.requests)
        self._waiting: deque[_Open] = deque()
        self._busy: dict[int, _Open] = {}
        """By the job that is in flight."""
        self._prepared: dict[int, Single] = {}
        self._failure: WorkloadError | None = None
        self._n_issued = 0
        self._n_finished = 0

    def start(self, now_ns: int) -> None:
        """Count arrivals and the duration from here. To be called before the first `due`, if at all."""
        spec = self._spec
        self._now_ns = now_ns
        self._end_ns = None if spec.duration_s is None else now_ns + round(spec.duration_s * 1e9)
        self._gaps = unit_gaps(spec.arrivals, spec.burstiness, spec.seed)
        self._arrivals: ArrivalTimes | None = None
        if spec.arrivals == "trace":
            self._arrivals = TraceArrivals(self._times_ns, start_ns=now_ns, time_scale=spec.time_scale)
        elif spec.rate is not None:
            self._arrivals = PacedArrivals(self._gaps, start_ns=now_ns, rate=spec.rate)

    @property
    def total(self) -> int | None:
        """Jobs that there will be. `None`: not known beforehand."""
        return self._spec.requests

    @property
    def issued(self) -> int:
        """Jobs handed out so far."""
        return self._n_issued

    @property
    def finished_jobs(self) -> int:
        return self._n_finished

    @property
    def in_flight(self) -> int:
        """Jobs handed out and not yet finished."""
        return len(self._busy)

    @property
    def concurrency(self) -> int:
        return self._concurrency

    @property
    def rate(self) -> float | None:
        """Requests per second of the open loop. `None`: a closed loop, or a trace."""
        return self._arrivals.rate if isinstance(self._arrivals, PacedArrivals) else None

    @property
    def notes(self) -> tuple[str, ...]:
        """What was shortened, joined or missing so far, in sentences for the header or the log."""
        return self._script.notes

    @property
    def done(self) -> bool:
        """Whether no further job will be due, whatever finishes. Jobs may still be in flight."""
        if self._end_ns is not None and self._is_over:
            upcoming_ns = None if self._arrivals is None else self._arrivals.next_ns
            return upcoming_ns is None or upcoming_ns >= self._end_ns or not self._can_take
        return not self._can_take and not any(one.ids for one in self._busy.values())

    def due(self, now_ns: int, in_flight: int) -> list[Job]:
        """Jobs to submit now, `MOST_AT_ONCE` at most; what is left over is due again at once.

        `in_flight`: jobs that the engine holds, queued or running; a closed loop fills up to its concurrency. Raises
        WorkloadError when the next prompt of a file does not fit.
        """
        self._now_ns = max(self._now_ns, now_ns)
        if self._failure is not None:
            raise self._failure
        jobs: list[Job] = []
        try:
            while len(jobs) < MOST_AT_ONCE and (job := self._next(in_flight + len(jobs))) is not None:
                jobs.append(job)
        except WorkloadError as error:
            self._failure = error
            if not jobs:  # else they are handed out first: none is to be lost
                raise
        return jobs

    def finished(self, job_id: int, output: Sequence[int], *, now_ns: int | None = None) -> None:
        """Take note of a finished job and its answer, of whatever length; cancelled and failed ones too.

        Each job that `due` handed out must be reported once. `now_ns`: when it finished; `None`: at the last `due`.
        Raises ValueError for any other.
        """
        self._now_ns = max(self._now_ns, self._now_ns if now_ns is None else now_ns)
        one = self._busy.pop(job_id, None)
        if one is None:
            raise ValueError(f"job {job_id} is not in flight")
        self._n_finished += 1
        if one.ids and not self._is_over:
            one.conversation.answered(output)
            one.ready_ns = self._now_ns
            self._waiting.append(one)

    def next_arrival_ns(self) -> int | None:
        """When to call `due` again if nothing finishes before. `None`: only a finished job can bring the next."""
        if self.done:
            return None
        upcoming_ns: int | None = None
        if self._failure is not None:
            upcoming_ns = self._now_ns
        elif self._can_take and self._arrivals is not None:
            upcoming_ns = self._arrivals.next_ns
        elif self._can_take and len(self._busy) < self._concurrency:
            upcoming_ns = self._now_ns
        if self._end_ns is not None:
            return self._end_ns if upcoming_ns is None else min(upcoming_ns, self._end_ns)
        return upcoming_ns

    def prepare(self, n_jobs: int) -> None:
        """Make the first jobs before the first `due`, as far as they do not depend on answers.

        Encoding a prompt takes milliseconds that would otherwise fall between two steps of the engine.
        """
        n_made = 0
        most = n_jobs if self._spec.requests is None else min(n_jobs, self._spec.requests)
        for number in itertools.count():
            n_made += self._script.n_turns(number)
            if n_made > most:
                return
            if self._script.n_turns(number) == 1 and number not in self._prepared:
                self._prepared[number] = Single(self._script.open(number).ask())

    def set_concurrency(self, concurrency: int) -> None:
        """Change the closed loop's jobs in flight, or the open loop's conversations; 0 holds a closed loop.

        Raises WorkloadError for a number out of range.
        """
        if not 0 <= concurrency <= MOST_CONCURRENCY:
            raise WorkloadError(f"A concurrency of {concurrency} is out of range.")
        self._concurrency = concurrency

    def set_rate(self, rate: float | None, *, now_ns: int | None = None) -> None:
        """Change to an open loop at `rate` requests per second (0 holds it), or with `None` to a closed loop.

        A trace that is given a rate leaves its arrival times for good. `now_ns`: since when; `None`: the last `due`.
        Raises WorkloadError for a number out of range.
        """
        if rate is not None and not 0 <= rate <= MOST_RATE:
            raise WorkloadError(f"A rate of {rate} requests/s is out of range.")
        self._now_ns = max(self._now_ns, self._now_ns if now_ns is None else now_ns)
        if rate is None:
            self._arrivals = None
        elif isinstance(self._arrivals, PacedArrivals):
            self._arrivals.set_rate(rate, now_ns=self._now_ns)
        else:
            self._arrivals = PacedArrivals(self._gaps, start_ns=self._now_ns, rate=rate)

    @property
    def _is_over(self) -> bool:
        return self._end_ns is not None and self._now_ns >= self._end_ns

    @property
    def _can_begin(self) -> bool:
        return not self._numbering.is_exhausted

    @property
    def _can_take(self) -> bool:
        """Whether there is a job for the load to ask for, before anything else finishes."""
        return bool(self._waiting) or self._can_begin

    def _next(self, in_flight: int) -> Job | None:
        """The next job that is due. `None`: none is."""
        if self._arrivals is None:
            is_full = max(in_flight, len(self._busy)) >= self._concurrency
            return None if is_full or self._is_over else self._take(self._now_ns)
        at_ns = self._arrivals.next_ns
        if at_ns is None or at_ns > self._now_ns or (self._end_ns is not None and at_ns >= self._end_ns):
            return None
        job = self._take(at_ns)
        if job is not None:  # else the arrival waits for a turn to finish
            self._arrivals.advance()
        return job

    def _take(self, at_ns: int) -> Job | None:
        """The job for an arrival. `None`: there is none before another one finishes, or at all."""
        one = self._chosen()
        if one is None:
            return None
        turn = one.conversation.ask()
        job_id = one.ids.popleft()
        self._busy[job_id] = one
        self._n_issued += 1
        return Job(
            id=job_id,
            tokens=turn.tokens,
            max_tokens=turn.max_tokens,
            arrived_ns=max(at_ns, one.ready_ns),
            sampling=turn.sampling,
            stop=turn.stop,
            ignore_eos=turn.ignore_eos,
            conversation=None if one.is_single else one.number,
            prompt_text=self._tokenizer.decode(turn.tokens) if self._keep_text else None,
        )

    def _chosen(self) -> _Open | None:
        """The conversation whose turn it is."""
        n_open = len(self._waiting) + len(self._busy)
        wants_more = self._arrivals is not None and n_open < self._concurrency
        if self._waiting and not (wants_more and self._can_begin):
            return self._waiting.popleft()
        return self._begin() if self._can_begin else None

    def _begin(self) -> _Open:
        number, ids = self._numbering.take()
        conversation: Conversation | None = self._prepared.pop(number, None)
        if conversation is None:
            conversation = self._script.open(number)
        return _Open(number, ids, conversation, is_single=self._script.n_turns(number) == 1)


def _script(spec: WorkloadSpec, room: Room) -> tuple[Script, list[int]]:
    """What the workload says, and the arrival times of a trace (empty without)."""
    match spec.name:
        case "code":
            return CodeScript(room), []
        case "unique":
            return UniqueScript(room), []
        case "copy":
            return CopyScript(room, ChatFormat(room.tokenizer, template=spec.template)), []
        case "chat":
            return ChatScript(room, ChatFormat(room.tokenizer, template=spec.template)), []
        case "rag":
            return RagScript(room, ChatFormat(room.tokenizer, template=spec.template)), []
        case None:
            assert spec.path is not None
            file = read_file(spec.path, spec.format)
            validate_arrivals(spec, file)
            # A template is neither tried nor complained about where there are no messages for it.
            form = ChatFormat(room.tokenizer, template=spec.template if file.has_messages else "plain")
            times_ns = [entry.arrival_ns for entry in file.entries if entry.arrival_ns is not None]
            return FileScript(room, form, file), times_ns if spec.arrivals == "trace" else []
