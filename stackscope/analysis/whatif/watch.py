"""A sink that keeps what a working point is made of: the last steps of the configuration in force, and a few sums."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import msgspec

from stackscope.analysis.live.standing import Standing
from stackscope.analysis.lives import Life
from stackscope.analysis.whatif.lookups import Lookups
from stackscope.analysis.whatif.sampling import sample
from stackscope.analysis.whatif.working_point import Round, WorkingPoint
from stackscope.records import (
    ConfigEvent,
    HardwareSample,
    Header,
    PrefixShadow,
    RequestRecord,
    StepRecord,
    TrafficEvent,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from stackscope.analysis.whatif.contracts import AcceptanceCurve, Rules, StepTimes
    from stackscope.records import AnyRecord, DraftKind, ModelSummary
    from stackscope.toggles import EngineConfig

MOST_STEPS: Final = 512
"""Newest steps that are kept: a minute of a slow engine, a second of a fast one."""
MOST_REQUESTS: Final = 64
"""Newest finished requests that waits and first tokens are averaged over."""
LEAST_REQUESTS: Final = 8
"""Finished requests whose prompts say more than those of the last steps."""
MOST_CORRECTION: Final = 3.0
"""Factor that the weight of prompts is corrected by at most."""
MOST_CAPACITIES: Final = 8
"""Capacities of simulated prefix caches that are told apart."""
LEAST_STEPS: Final = 8
"""Regular ones, before anything is said of them: with a forward that ran to its end, and did not stall; no change was
settling, no probe delayed it, and it did not make up for a rebuild."""


class Watch:
    """Follows a session. Bounded memory; taking a record costs next to nothing, making a point some milliseconds."""

    def __init__(self) -> None:
        self._begin(None)

    def _begin(self, header: Header | None) -> None:
        self._standing = Standing(header)
        self._built = self.config
        """What the context was made for: live changes leave its size as it is."""
        self._free_bytes: int | None = None
        self._steps: deque[StepRecord] = deque(maxlen=MOST_STEPS)
        self._requests: deque[Life] = deque(maxlen=MOST_REQUESTS)
        self._shadows: dict[int | None, PrefixShadow] = {}
        self._lookups, self._lookups_since = Lookups(), Lookups()
        """Of all steps, and of those since the last change but what a rebuild has looked up again."""
        self._outputs = 0
        """Tokens of requests that ended beside a prefix cache, which keeps them."""
        self._longest = 0
        """Most tokens, prompt and output together, that a request of the session took."""
        self._since_ns = 0
        self._last: StepRecord | None = None
        self._put_back: set[int] = set()
        """Requests that a rebuild interrupted, and that have not ended since."""

    @property
    def config(self) -> EngineConfig | None:
        """The configuration in force. `None`: not known."""
        return self._standing.config

    @property
    def prompt_share(self) -> float | None:
        """Of the time of the steps that a working point would be of, that of steps with a prompt. `None`: no step."""
        whole = sum([step.duration_ns for step in self._steps])
        mixed = [step.duration_ns for step in self._steps if any(work.phase == "prefill" for work in step.work)]
        return sum(mixed) / whole if whole > 0 else None

    def write(self, record: AnyRecord) -> None:
        """Take the next record of the session, in the order of their time. A header begins a session anew."""
        match record:
            case StepRecord():
                self._last = record
                if record.cache.lookup_tokens > 0:
                    self._look_up(record)
                if not record.aborted and not record.settling and not self._makes_up(record):
                    self._steps.append(record)
            case RequestRecord():
                self._put_back.discard(record.id)
                if self.config is not None and self.config.prefix_cache:
                    self._outputs += record.output_tokens
                self._longest = max(self._longest, record.prompt_tokens + record.output_tokens)
                if record.arrived_ns >= self._since_ns:
                    self._requests.append(Life.of(record))
            case ConfigEvent():
                self._change(record)
            case TrafficEvent():
                if self._standing.change_load(record):
                    self._forget(record.at_ns)
            case PrefixShadow():
                self._add_shadow(record)
            case HardwareSample():
                self._free_bytes = record.memory_available_bytes
            case Header():
                self._begin(record)
            case _:
                pass

    def close(self) -> None:
        """Nothing is held that needs releasing."""

    def point(
        self,
        times: StepTimes | None,
        *,
        curves: Mapping[DraftKind, AcceptanceCurve] | None = None,
        variants: Mapping[str, ModelSummary] | None = None,
        rules: Rules | None = None,
    ) -> WorkingPoint | str:
        """The working point now; or why there is none yet, as a sentence."""
        standing, config = self._standing, self.config
        if config is None:
            return "This source does not say how it is configured."
        drawn = sample(self._steps, config.block_tokens)
        if drawn.n_forwards < LEAST_STEPS:
            few = f"{drawn.n_forwards} of {LEAST_STEPS}"
            return f"Too few regular steps have run under this configuration to predict from: {few}."
        model, draft = standing.model, standing.draft_model
        if rules is not None:
            recent = max((one.prompt_tokens + one.output_tokens for one in self._requests), default=0)
            rules = rules.holding(self._built or config, longest=self._longest, in_flight=recent, free=self._free_bytes)
        memory = None if rules is None or model is None else rules.memory_bytes(config, model, draft)
        waits = [r.admitted_ns - r.arrived_ns for r in self._requests if r.admitted_ns is not None]
        firsts = [r.first_token_ns - r.arrived_ns for r in self._requests if r.first_token_ns is not None]
        outputs = [r.output_tokens for r in self._requests if r.output_tokens > 0]
        figures = drawn.figures
        figures["rounds"] = _as_in_the_long_run(figures["rounds"], figures["computed_per_token"], self._requests)
        return WorkingPoint(
            config=config,
            pricing=standing.pricing(standing.epoch),
            times=times,
            **figures,
            useful_hit_rate=self._lookups_since.useful_rate(self._last),
            minute_hit_rate=self._lookups.useful_rate(self._last),
            concurrency=standing.closed_loop,
            rate=standing.rate,
            wait_ns=sum(waits) / len(waits) if waits else None,
            ttft_ns=sum(firsts) / len(firsts) if firsts else None,
            tokens_per_request=sum(outputs) / len(outputs) if outputs else None,
            curves=curves or {},
            prefix_shadows=tuple(self._shadows.values()),
            remembered=self._remembered(),
            model=model,
            draft_model=draft,
            variants=variants or {},
            rules=rules,
            memory_bytes=memory,
        )

    def _remembered(self) -> int | None:
        shadow = self._shadows.get(None)
        return None if shadow is None else shadow.lookup_tokens - shadow.hit_tokens + self._outputs

    def _look_up(self, step: StepRecord) -> None:
        self._lookups.add(step)
        if not self._makes_up(step):
            self._lookups_since.add(step)

    def _makes_up(self, step: StepRecord) -> bool:
        """It computes again what a rebuild threw away: the price of the change, and no work that goes on."""
        put_back = self._put_back
        return bool(put_back) and any(work.phase == "prefill" and work.request in put_back for work in step.work)

    def _change(self, event: ConfigEvent) -> None:
        if event.kind == "refused":
            return
        self._standing.change(event)
        if event.kind == "rebuild":
            self._built = self.config
        if event.kind == "rebuild" and self._last is not None:
            self._put_back |= {work.request for work in self._last.work}
        if event.changes:
            self._forget(event.at_ns + (event.duration_ns or 0))

    def _forget(self, at_ns: int) -> None:
        """What came before is of another kind. What shadows found of the traffic stays true."""
        self._steps.clear()
        self._requests.clear()
        self._lookups_since.clear()
        self._since_ns = at_ns

    def _add_shadow(self, shadow: PrefixShadow) -> None:
        known = self._shadows.get(shadow.capacity_tokens)
        if known is None:
            if len(self._shadows) < MOST_CAPACITIES:
                self._shadows[shadow.capacity_tokens] = shadow
            return
        self._shadows[shadow.capacity_tokens] = msgspec.structs.replace(
            shadow,
            requests=known.requests + shadow.requests,
            lookup_tokens=known.lookup_tokens + shadow.lookup_tokens,
            hit_tokens=known.hit_tokens + shadow.hit_tokens,
            useful_hit_tokens=known.useful_hit_tokens + shadow.useful_hit_tokens,
            evicted_blocks=known.evicted_blocks + shadow.evicted_blocks,
        )


def _as_in_the_long_run(
    rounds: tuple[Round, ...], computed_per_token: float | None, requests: Collection[Life]
) -> tuple[Round, ...]:
    """Rounds whose prompts weigh as much as over the last requests: few begin within some hundred steps."""
    tokens = sum(request.output_tokens for request in requests)
    computed = sum(request.prompt_tokens - request.hit_tokens for request in requests)
    if len(requests) < LEAST_REQUESTS or tokens <= 0 or computed <= 0 or not computed_per_token:
        return rounds
    factor = min(max(computed / tokens / computed_per_token, 1 / MOST_CORRECTION), MOST_CORRECTION)
    return tuple(msgspec.structs.replace(one, chunk_weight=one.chunk_weight * factor) for one in rounds)
