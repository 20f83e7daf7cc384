"""Traffic in two waves: requests that warm up, then, when all of them have ended, those that are measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stackscope.experiments.plan import warmup_requests
from stackscope.workload.traffic import Traffic

if TYPE_CHECKING:
    from stackscope.workload.jobs import Job, Tokenizer
    from stackscope.workload.spec import WorkloadSpec


class TwoWaves(Traffic):
    """The same jobs in the same order, with a rest of the closed loop after the first of them.

    So every cell is measured on exactly the same requests, from an empty batch to an empty batch, whatever it makes of
    the first ones. An open loop goes on without a rest: its arrivals have their times.
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
        super().__init__(spec, tokenizer, context_tokens=context_tokens, start_ns=start_ns, keep_text=keep_text)
        self._n_first = 0 if spec.is_open_loop else warmup_requests(spec)

    @property
    def _rests(self) -> bool:
        return self.issued >= self._n_first > self.finished_jobs

    def due(self, now_ns: int, in_flight: int) -> list[Job]:
        if self._rests:
            return []
        left = self._n_first - self.issued
        if left > 0:
            in_flight = max(in_flight, self.concurrency - left)
        return super().due(now_ns, in_flight)

    def next_arrival_ns(self) -> int | None:
        return None if self._rests else super().next_arrival_ns()
