"""Who is in the engine: the queue, the running sequences and their slots, and what has ended since the last turn."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from stackscope.engine.turn import Answer, TextDelta

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stackscope.engine.residents import Residents
    from stackscope.engine.sequence import Sequence
    from stackscope.records import FinishReason, RequestRecord
    from stackscope.workload.jobs import Job


def problem_of(job: Job, context_tokens: int, n_vocab: int) -> str | None:
    """Why a job cannot run at all. `None`: it can."""
    if not job.tokens:
        return "The prompt has no tokens."
    if job.max_tokens < 1:
        return f"max_tokens is {job.max_tokens}."
    if len(job.tokens) >= context_tokens:
        return f"The prompt has {len(job.tokens)} tokens; the context holds {context_tokens} per request."
    if min(job.tokens) < 0 or max(job.tokens) >= n_vocab:
        return f"The prompt has a token outside 0..{n_vocab - 1}."
    return None


class Requests:
    """Queue and running list. A request is in exactly one of them until it ends."""

    def __init__(self) -> None:
        self.queue: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        """In the order of admission: the last is the youngest."""
        self.most = 0
        """Most tokens that any request so far could have asked for; what traffic goes by."""
        self.longest = 0
        """Most tokens, prompt and output together, of a request so far, or of those to come in its conversation."""
        self._n_admissions = 0
        self.finished: list[RequestRecord] = []
        """Records of what has ended since the last `take`."""
        self._answers: list[Answer] = []
        self.texts: list[TextDelta] = []

    def __len__(self) -> int:
        return len(self.queue) + len(self.running)

    def __iter__(self) -> Iterator[Sequence]:
        yield from self.running
        yield from self.queue

    def join(self, sequence: Sequence, context_tokens: int) -> None:
        """Queue a new request, of which the context holds so many tokens at most."""
        self.most = max(self.most, context_tokens)
        # Each turn of a conversation is longer than the one before, as far as the context goes.
        self.longest = max(self.longest, sequence.max_n if sequence.job.conversation is None else context_tokens)
        self.queue.append(sequence)

    def find(self, request: int) -> Sequence | None:
        return next((s for s in self if s.job.id == request), None)

    def in_slot(self, slot: int) -> Sequence:
        """The running sequence of a slot."""
        return next(s for s in self.running if s.slot == slot)

    def admit(self, residents: Residents, *, slots: int, n_slots: int, now_ns: int) -> list[Sequence]:
        """Move requests from the queue to free slots, with whatever prefix the cache has of them; which they were.

        `slots` is the limit in force, `n_slots` the number that exist.
        """
        admitted: list[Sequence] = []
        while self.queue and len(self.running) < slots:
            sequence = self.queue[0]
            if not residents.admits(sequence, self.running):
                break
            self.queue.popleft()
            taken = {s.slot for s in self.running}
            sequence.slot = next(slot for slot in range(n_slots) if slot not in taken)
            sequence.order = self._n_admissions
            self._n_admissions += 1
            residents.attach(sequence)
            if sequence.admitted_ns is None:
                sequence.admitted_ns = now_ns
                sequence.hit_tokens = sequence.kv
            self.running.append(sequence)
            admitted.append(sequence)
        return admitted

    def put_back(self, sequence: Sequence, residents: Residents) -> None:
        """Return a running request to the front of the queue; what it generated stays, its KV does not."""
        residents.release(sequence)
        self.running.remove(sequence)
        sequence.put_back()
        self.queue.appendleft(sequence)

    def end(
        self,
        sequence: Sequence,
        reason: FinishReason,
        *,
        at_ns: int,
        residents: Residents,
        error: str | None = None,
    ) -> None:
        """Take a request out, wherever it is; a running one leaves its prefix to the cache."""
        if sequence.slot >= 0:
            residents.remember_all(sequence)
            residents.release(sequence)
            self.running.remove(sequence)
        elif sequence in self.queue:
            self.queue.remove(sequence)
        if reason != "stop" and (tail := sequence.finish_text()):
            self.texts.append(TextDelta(sequence.job.id, tail))
        self.refuse(sequence, reason, at_ns=at_ns, error=error)

    def refuse(self, sequence: Sequence, reason: FinishReason, *, at_ns: int, error: str | None = None) -> None:
        """Hand out the record of a request that is in neither list."""
        sequence.slot = -1
        sequence.is_over = True
        self.finished.append(sequence.record(at_ns=at_ns, reason=reason, error=error))
        self._answers.append(Answer(sequence.job.id, tuple(sequence.tokens[sequence.n_prompt : sequence.n].tolist())))

    def take(self) -> tuple[tuple[RequestRecord, ...], tuple[Answer, ...], tuple[TextDelta, ...]]:
        """What ended and what was said since the last call."""
        if not self.finished and not self.texts:
            return (), (), ()
        taken = tuple(self.finished), tuple(self._answers), tuple(self.texts)
        self.finished, self._answers, self.texts = [], [], []
        return taken
