"""What the engine process needs of the engine and of the traffic that it serves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stackscope.engine.devices import Device
    from stackscope.engine.turn import Turn
    from stackscope.records import AnyRecord, ConfigEvent, FinishReason, ModelSummary
    from stackscope.toggles import EngineConfig
    from stackscope.workload.jobs import Job, Tokenizer


class EngineLike(Protocol):
    """What this process needs of the engine. One thread calls it, except for `interrupt`."""

    library: str
    devices: tuple[Device, ...]
    softened: str | None
    config: EngineConfig

    @classmethod
    def open(
        cls,
        config: EngineConfig,
        *,
        clock: Callable[[], int],
        progress: Callable[[str, float], None],
        keep_text: bool = False,
    ) -> EngineLike: ...

    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def model(self) -> ModelSummary: ...
    @property
    def draft(self) -> ModelSummary | None: ...
    @property
    def capabilities(self) -> tuple[str, ...]: ...
    @property
    def context_tokens(self) -> int: ...

    text_is_read: bool
    """Somebody wants the turns' texts; otherwise the engine need not make them."""

    @property
    def in_flight(self) -> int: ...
    def submit(self, job: Job) -> None: ...
    def cancel(self, request: int) -> None: ...
    def step(self) -> Turn | None: ...
    def idle(self) -> None: ...
    def reconfigure(self, config: EngineConfig, by: str = "user") -> ConfigEvent: ...
    def interrupt(self) -> None: ...
    def drain(self, reason: FinishReason = "cancelled") -> Sequence[AnyRecord]: ...


class TrafficLike(Protocol):
    """What this process needs of the traffic. Times are nanoseconds on the session's clock."""

    def start(self, now_ns: int) -> None:
        """Count arrivals from here: what it takes to prepare the traffic delays none of them."""

    def prepare(self, n_jobs: int) -> None: ...
    @property
    def notes(self) -> tuple[str, ...]: ...
    @property
    def done(self) -> bool: ...
    def due(self, now_ns: int, in_flight: int) -> Sequence[Job]: ...
    def finished(self, job_id: int, output: Sequence[int], *, now_ns: int | None = None) -> None: ...
    def next_arrival_ns(self) -> int | None: ...
    def set_concurrency(self, concurrency: int) -> None: ...
    def set_rate(self, rate: float | None, *, now_ns: int | None = None) -> None: ...
