"""An engine without a model, for the process around it: as fast, slow, noisy or deadly as `config.model` says.

`fake:step_us=200,die=abort,die_at=50` is an engine whose forwards take 200 µs and that aborts in the 50th.
"""

from __future__ import annotations

import ctypes
import os
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from stackscope.engine.devices import Device
from stackscope.engine.turn import Answer, TextDelta, Turn
from stackscope.errors import EngineError, ModelFileError, WorkloadError
from stackscope.records import (
    ConfigEvent,
    Emission,
    LayerSummary,
    ModelSummary,
    Phases,
    RequestRecord,
    SlotWork,
    StepRecord,
    TensorClass,
)
from stackscope.toggles import EngineConfig, ToggleKind, changed_fields, kind_of_change
from stackscope.workload.jobs import Job

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stackscope.records import FinishReason
    from stackscope.workload.spec import WorkloadSpec

ENGINE: Final = "tests.unit.fake_engine:FakeEngine"
TRAFFIC: Final = "tests.unit.fake_engine:FakeTraffic"

Death = Literal["abort", "native_abort", "ggml_abort", "segv", "exit", "kill", "raise", "error"]


class Behaviour(msgspec.Struct, frozen=True):
    """What the fake does, each number counted from its start."""

    step_us: int = 0
    """How long a forward takes, in which it can be interrupted."""
    deaf_us: int = 0
    """How long a forward takes after that, in which it cannot."""
    load_ms: int = 0
    """How long loading takes, in native code that cannot be interrupted."""
    refuse: bool = False
    """The model cannot be loaded."""
    die: Death | None = None
    die_at: int = 0
    """The step in which it dies."""
    noise: int = 0
    """Log lines per step."""
    load_noise: int = 0
    """Lines on standard output and on standard error while it loads."""
    text: int = 0
    """Characters of text for display per step and request."""
    gpu: str = ""
    """PCI id of the GPU that it says it computes on; none by default."""
    jammed: bool = False
    """Holds its requests and runs none."""


def behaviour_of(model: str) -> Behaviour:
    """Read `fake:name=value,...`."""
    _, _, options = model.partition(":")
    pairs = [option.partition("=") for option in options.split(",") if option]
    return msgspec.convert({name: value for name, _, value in pairs}, Behaviour, strict=False)


SUMMARY: Final = ModelSummary(
    name="fake",
    path="fake.gguf",
    architecture="llama",
    file_bytes=100,
    tensor_bytes=64,
    parameters=32,
    vocabulary=16,
    context=512,
    embedding=4,
    layers=(LayerSummary(heads=1, kv_heads=1, key_length=4, value_length=4),),
    tensors=(TensorClass(role="head", type="F16", elements=32, bytes=64),),
)


class FakeEngine:
    """One token per running request and step."""

    @classmethod
    def open(
        cls,
        config: EngineConfig,
        *,
        clock: Callable[[], int],
        progress: Callable[[str, float], None],
        keep_text: bool = False,
    ) -> FakeEngine:
        behaviour = behaviour_of(config.model)
        for percent in range(0, 101, 10):
            progress("fake.gguf", percent / 100)
        for line in range(behaviour.load_noise):
            os.write(1, f"load line {line}\n".encode())
            os.write(2, f"load line {line}\n".encode())
        _native_sleep(behaviour.load_ms * 1_000)
        if behaviour.refuse:
            raise ModelFileError("fake.gguf is no model.", remedy="Give another file.")
        return cls(config, behaviour, clock, keep_text=keep_text)

    def __init__(
        self, config: EngineConfig, behaviour: Behaviour, clock: Callable[[], int], *, keep_text: bool
    ) -> None:
        self.config = config
        self._keep_text = keep_text
        self.library = "fake 1.0"
        self.devices: tuple[Device, ...] = ()
        if behaviour.gpu:
            self.devices = (Device(name="CUDA0", description="A GPU", type="gpu", pci_id=behaviour.gpu),)
        self.softened = None
        self.capabilities = ("phases",)
        self.context_tokens = 512
        self.model = SUMMARY
        self.draft = None
        self.tokenizer = None
        """The fake traffic needs none."""
        self._does = behaviour
        self._now = clock
        self._queue: list[Job] = []
        self._emitted: dict[int, list[Emission]] = {}
        self._finished: list[RequestRecord] = []
        self._interrupted = threading.Event()
        self._epoch = 0
        self._n_steps = 0
        self._end_ns: int | None = None

    text_is_read = True

    @property
    def in_flight(self) -> int:
        return len(self._queue)

    def submit(self, job: Job) -> None:
        self._queue.append(job)
        self._emitted[job.id] = []

    def cancel(self, request: int) -> None:
        for job in [job for job in self._queue if job.id == request]:
            self._end(job, "cancelled")

    def idle(self) -> None:
        self._end_ns = None

    def interrupt(self) -> None:
        self._interrupted.set()

    def drain(self, reason: FinishReason = "cancelled") -> list[RequestRecord]:
        for job in list(self._queue):
            self._end(job, reason)
        finished, self._finished = self._finished, []
        return finished

    def reconfigure(self, config: EngineConfig, by: Literal["user", "plan", "engine"] = "user") -> ConfigEvent:
        changes = changed_fields(self.config, config)
        at_ns = self._now()
        if config.slots < 1:
            return ConfigEvent(
                at_ns=at_ns, epoch=self._epoch, kind="refused", by=by, changes=changes, reason="no slots"
            )
        is_live = kind_of_change(self.config, config) is ToggleKind.LIVE
        self.config = config
        self._epoch += 1
        return ConfigEvent(
            at_ns=at_ns,
            epoch=self._epoch,
            kind="live" if is_live else "rebuild",
            by=by,
            changes=changes,
            config=config,
        )

    def step(self) -> Turn | None:
        if self._does.jammed or not (self._queue or self._finished):
            return None
        running = self._queue[: self.config.slots]
        start_ns = self._now() if self._end_ns is None else self._end_ns
        aborted = self._forward()
        now = self._now()
        work = []
        for index, job in enumerate([] if aborted else running):
            emissions = self._emitted[job.id]
            emissions.append(Emission(self._n_steps, now, 1))
            work.append(
                SlotWork(request=job.id, slot=index, phase="decode", new=1, cached=len(emissions), emitted=1, outputs=1)
            )
            if len(emissions) >= job.max_tokens:
                self._end(job, "length")
        step = StepRecord(
            n=self._n_steps,
            start_ns=start_ns,
            phases=Phases(decode=now - start_ns),
            work=tuple(work),
            aborted=aborted,
            slots=self.config.slots,
            epoch=self._epoch,
        )
        self._n_steps += 1
        self._end_ns = now
        finished, self._finished = tuple(self._finished), []
        answers = tuple(Answer(record.id, (1,) * record.output_tokens) for record in finished)
        texts = tuple(TextDelta(w.request, "é" * self._does.text) for w in work if self._does.text)
        return Turn(step, finished, answers, texts)

    def _forward(self) -> bool:
        """True: it was interrupted."""
        for line in range(self._does.noise):
            os.write(2, f"step {self._n_steps} line {line}\n".encode())
        if self._does.die is not None and self._n_steps == self._does.die_at:
            _die(self._does.die)
        interrupted = self._interrupted.wait(self._does.step_us / 1e6)
        self._interrupted.clear()
        _native_sleep(self._does.deaf_us)
        return interrupted

    def _end(self, job: Job, reason: FinishReason) -> None:
        self._queue.remove(job)
        self._finished.append(
            RequestRecord(
                id=job.id,
                arrived_ns=job.arrived_ns,
                finished_ns=self._now(),
                finish_reason=reason,
                prompt_tokens=len(job.tokens),
                emissions=tuple(self._emitted.pop(job.id)),
                prompt=job.prompt_text,
                output="fake" if self._keep_text else None,
            )
        )


def _native_sleep(us: int) -> None:
    if us > 0:
        ctypes.CDLL(None).usleep(us)


def _ggml_base() -> ctypes.CDLL:
    spec = find_spec("llama_cpp")
    assert spec is not None
    assert spec.origin is not None
    return ctypes.CDLL(str(next((Path(spec.origin).parent / "lib").glob("*ggml-base.*"))))


def _die(how: Death) -> None:
    if how in {"abort", "native_abort"}:
        os.write(2, b"ggml.c:123: GGML_ASSERT(false) failed\n")
    match how:
        case "abort":
            os.abort()
        case "native_abort":
            ctypes.CDLL(None).abort()
        case "ggml_abort":
            _ggml_base().ggml_abort(b"ops.cpp", 7, b"GGML_ASSERT(%s) failed", b"rows > 0")
        case "segv":
            ctypes.string_at(0)
        case "exit":
            os._exit(0)
        case "kill":
            os.kill(os.getpid(), 9)
        case "raise":
            raise RuntimeError("a bug")
        case "error":
            raise EngineError("The forward failed with -3.", remedy="Use a smaller batch.")


class FakeTraffic:
    """A closed loop, or arrivals at equal distances; every request has one prompt token."""

    def __init__(self, spec: WorkloadSpec, _tokenizer: object, *, context_tokens: int, keep_text: bool = False) -> None:
        if spec.path is not None:
            raise WorkloadError(f"{spec.path}, line 3: this is no prompt.")
        self._spec = spec
        self._max_tokens = min(context_tokens, spec.max_tokens or 8)
        self._keep_text = keep_text
        self._concurrency = spec.concurrency
        self._rate = spec.rate
        self._n_offered = 0
        self._due_ns = 0
        self._open: set[int] = set()

    def start(self, now_ns: int) -> None:
        self._due_ns = now_ns

    @property
    def done(self) -> bool:
        return self._is_spent and not self._open

    @property
    def _is_spent(self) -> bool:
        return self._spec.requests is not None and self._n_offered >= self._spec.requests

    def due(self, now_ns: int, in_flight: int) -> Sequence[Job]:
        jobs: list[Job] = []
        while not self._is_spent and self._is_due(now_ns, in_flight + len(jobs)):
            jobs.append(self._job(now_ns if self._rate is None else self._due_ns))
            if self._rate is not None:
                self._due_ns += round(1e9 / self._rate)
        return jobs

    def _is_due(self, now_ns: int, in_flight: int) -> bool:
        return in_flight < self._concurrency if self._rate is None else self._due_ns <= now_ns

    def _job(self, arrived_ns: int) -> Job:
        job = Job(
            id=self._n_offered,
            tokens=(1,),
            max_tokens=self._max_tokens,
            arrived_ns=arrived_ns,
            prompt_text="prompt" if self._keep_text else None,
        )
        self._n_offered += 1
        self._open.add(job.id)
        return job

    def prepare(self, n_jobs: int) -> None:
        assert 1 <= n_jobs <= 64

    @property
    def notes(self) -> tuple[str, ...]:
        """With `truncate`, one about each of the first two jobs."""
        return tuple(f"Job {n} was shortened." for n in range(min(self._n_offered, 2)) if self._spec.truncate)

    def finished(self, job_id: int, output: Sequence[int], *, now_ns: int | None = None) -> None:
        assert len(output) <= self._max_tokens
        assert now_ns is not None
        self._open.remove(job_id)

    def next_arrival_ns(self) -> int | None:
        return None if self._rate is None or self._is_spent else self._due_ns

    def set_concurrency(self, concurrency: int) -> None:
        self._concurrency = concurrency

    def set_rate(self, rate: float | None, *, now_ns: int | None = None) -> None:
        assert now_ns is not None
        if self._rate is None:
            raise WorkloadError("A closed loop has no rate.", remedy="Set its concurrency.")
        self._rate = rate
