"""One request inside the engine: its tokens, how much of them the KV cache holds, and the life it has had so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stackscope.engine.sampling import request_rng
from stackscope.engine.text import Detokeniser, StopMatcher
from stackscope.records import Emission, FinishReason, RequestRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from stackscope.engine.adaptive import AdaptiveLength
    from stackscope.engine.ngram import NgramDrafter
    from stackscope.engine.sampling import Distribution
    from stackscope.workload.jobs import Job


class Sequence:
    """Mutable state of one request. `tokens[:n]` is the prompt and what was generated; `kv` of them are in the cache.

    The newest generated token is not in the cache yet, so a decoding sequence has `n - kv == 1`; more means that it
    has a prompt, or work thrown away, to prefill.
    """

    __slots__ = (
        "adaptive", "admitted_ns", "detokeniser", "draft", "draft_q", "emissions", "generated_text", "hit_tokens",
        "is_invalid", "is_over", "job", "kv", "max_n", "n", "n_accepted", "n_drafted", "n_preempted", "n_prompt",
        "n_requeued", "needs_text", "ngram", "ngram_n", "order", "prefilled", "remembered", "rng", "slot", "stops",
        "tokens", "want",
    )  # fmt: skip

    def __init__(self, job: Job, *, max_context: int, piece: Callable[[int], bytes], keep_text: bool) -> None:
        self.job = job
        self.n_prompt = len(job.tokens)
        self.max_n = min(self.n_prompt + job.max_tokens, max_context)
        """Length at which the sequence must end: its token limit or its context, whichever comes first."""
        self.tokens: NDArray[np.int32] = np.zeros(max(self.max_n, self.n_prompt) + 1, np.int32)
        self.tokens[: self.n_prompt] = job.tokens
        self.n = self.n_prompt
        self.kv = 0
        self.slot = -1
        self.order = -1
        """Counts admissions: the greatest is the youngest."""
        self.draft: list[int] = []
        self.draft_q: list[Distribution | None] = []
        self.want = 0
        """Tokens to draft for it in this step, at most."""
        self.rng: np.random.Generator | None = (
            None if job.sampling.is_greedy else request_rng(job.sampling.seed, job.id)
        )
        self.ngram: NgramDrafter | None = None
        self.ngram_n = 0
        self.adaptive: AdaptiveLength | None = None
        self.detokeniser = Detokeniser(piece)
        self.stops = StopMatcher(job.stop) if job.stop else None
        self.generated_text: list[str] | None = [] if keep_text else None
        self.needs_text = keep_text or self.stops is not None
        """Its text matters even if nobody looks: stop strings are found in it, or it is recorded."""
        self.admitted_ns: int | None = None
        self.hit_tokens = 0
        self.is_invalid = False
        """Some of its drafts were accepted whatever they were: it is no longer what the model says."""
        self.is_over = False
        """It has ended, and nothing will be added to its tokens."""
        self.prefilled = 0
        """Most positions ever prefilled, or held when it was put back: a hit below it only spares work thrown away."""
        self.remembered = 0
        """Positions held when the prefix cache was last offered them."""
        self.emissions: list[Emission] = []
        self.n_drafted = 0
        self.n_accepted = 0
        self.n_preempted = 0
        self.n_requeued = 0

    @property
    def pending(self) -> int:
        """Tokens that must still be fed before the next one can be known."""
        return self.n - self.kv

    @property
    def is_decoding(self) -> bool:
        return self.n - self.kv == 1 and self.n > self.n_prompt

    @property
    def generated(self) -> int:
        return self.n - self.n_prompt

    def fit(self, max_context: int) -> bool:
        """Adapt to a context of another size. False: what there is already fills it, and the sequence must end."""
        self.max_n = min(self.n_prompt + self.job.max_tokens, max_context)
        if self.max_n >= len(self.tokens):
            grown = np.zeros(self.max_n + 1, np.int32)
            grown[: self.n] = self.tokens[: self.n]
            self.tokens = grown
        return self.n < self.max_n

    def put_back(self) -> None:
        """Leave the slot; everything must be prefilled again."""
        self.prefilled = max(self.prefilled, self.kv)
        self.slot = -1
        self.kv = self.remembered = 0
        self.clear_draft()

    def forget_ngrams(self) -> None:
        self.ngram = None
        self.ngram_n = 0

    def clear_draft(self) -> None:
        self.draft, self.draft_q = [], []

    def push_text(self, emitted: list[int]) -> tuple[str, bool]:
        """Text of new tokens, and whether a stop string ended it; tokens after the one completing it are dropped."""
        stops = self.stops
        if stops is None:
            text, is_stopped = self.detokeniser.push(emitted), False
        else:
            parts: list[str] = []
            is_stopped = False
            for index, piece in enumerate(self.detokeniser.push_each(emitted)):
                released = stops.push([piece])
                parts.append(released.text)
                if released.stop is not None:
                    is_stopped = True
                    del emitted[index + 1 :]
                    break
            text = "".join(parts)
        if self.generated_text is not None and text:
            self.generated_text.append(text)
        return text, is_stopped

    def finish_text(self) -> str:
        """What was held back, now that the output ends without a stop string."""
        tail = self.detokeniser.finish()
        text = tail if self.stops is None else self.stops.finish(tail).text
        if self.generated_text is not None and text:
            self.generated_text.append(text)
        return text

    def record(self, *, at_ns: int, reason: FinishReason, error: str | None = None) -> RequestRecord:
        """The request's record, now that it has ended."""
        text = self.generated_text
        return RequestRecord(
            id=self.job.id,
            arrived_ns=self.job.arrived_ns,
            admitted_ns=self.admitted_ns,
            finished_ns=at_ns,
            finish_reason=reason,
            prompt_tokens=self.n_prompt,
            hit_tokens=self.hit_tokens,
            emissions=tuple(self.emissions),
            drafted=self.n_drafted,
            accepted=self.n_accepted,
            preemptions=self.n_preempted,
            requeues=self.n_requeued,
            invalid_output=self.is_invalid,
            error=error,
            prompt=self.job.prompt_text if text is not None else None,
            output="".join(text) if text is not None else None,
        )


def are_plain(sequences: list[Sequence]) -> bool:
    """Whether all of them decode (as `is_decoding` has it) and none wants drafts; without a call for each."""
    for s in sequences:  # noqa: SIM110 - a generator's frame takes as long as one more sequence.
        if s.n - s.kv != 1 or s.n <= s.n_prompt or s.want != 0:
            return False
    return True
