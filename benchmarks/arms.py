"""The sides of a comparison: each a process of its own in the engine's environment, so that they can take turns."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Any, Protocol, Self

import msgspec

from benchmarks.lockstep import NOTE, Ask, Setup, Taken, decode_steps, duration
from stackscope.analysis.summary import RunSummary
from stackscope.engine import sizing, wire
from stackscope.engine.openmp import usable_cores
from stackscope.engine.process import EngineProcess, child_environment
from stackscope.errors import EngineError
from stackscope.model.ggml_types import BY_NAME
from stackscope.model.spec import load_spec
from stackscope.records import Log, RequestRecord, StepRecord
from stackscope.session.writer import SessionWriter
from stackscope.toggles import EngineConfig
from stackscope.workload.spec import Length, WorkloadSpec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

    from stackscope.engine.pump import Recorder
    from stackscope.records import Header

PROMPT_TOKENS = 32
SLOTS = 16
BUDGET = SLOTS * PROMPT_TOKENS
"""Rows of a forward at most, so that every block is prefilled in one."""


class Arm(Protocol):
    """One side of a comparison."""

    name: str

    @property
    def pid(self) -> int: ...
    def run(self, ask: Ask) -> Taken: ...


def config_for(model: Path, *, threads: int | None = None, **settings: object) -> EngineConfig:
    """What `stackscope run` would use, but for the slots, and with 256 cells for each."""
    changed: dict[str, Any] = {"slots": SLOTS, "token_budget": BUDGET, "context_tokens": SLOTS * 256, **settings}
    return EngineConfig(model=str(model), threads=usable_cores() if threads is None else threads, **changed)


def context_parameters(config: EngineConfig) -> dict[str, int]:
    """Parameters of the engine's own context, by the library's names for them."""
    size = sizing.resolve(config, load_spec(config.model).summary(), usable_threads=usable_cores())
    return {
        "n_ctx": size.n_ctx,
        "n_batch": size.n_batch,
        "n_ubatch": size.n_ubatch,
        "n_seq_max": size.n_seq_max,
        "n_outputs_max": size.n_outputs_max,
        "n_threads": size.threads,
        "n_threads_batch": size.threads,
        "type_k": BY_NAME[config.kv_type_k].id,
        "type_v": BY_NAME[config.kv_type_v].id,
        "flash_attn_type": int(config.flash_attention),
        "swa_full": int(config.swa_full),
        "kv_unified": int(config.unified_kv),
        "no_perf": 1,
    }


class LoopArm:
    """A loop in a process that answers one line for each that it is given."""

    def __init__(self, name: str, module: str, setup: Setup) -> None:
        """Start it and wait until its model is loaded. Raises `SystemExit` with what it said when it ends before."""
        self.name = name
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`.
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-m", module],
            env=child_environment(os.environ, setup.config.threads),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
        )
        try:
            self._answer(setup)
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        return self._child.pid

    def run(self, ask: Ask) -> Taken:
        return msgspec.json.decode(self._answer(ask), type=Taken)

    def _answer(self, question: Setup | Ask) -> bytes:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        try:
            self._child.stdin.write(msgspec.json.encode(question) + b"\n")
            self._child.stdin.flush()
        except BrokenPipeError:
            line = b""
        else:
            line = self._child.stdout.readline()
        if not line:
            self._said.seek(0)
            raise SystemExit(f"{self.name} ended:\n{self._said.read().decode(errors='replace')[-2000:]}")
        return line

    def close(self) -> None:
        self._child.kill()
        for pipe in (self._child.stdin, self._child.stdout):
            assert pipe is not None
            pipe.close()
        self._child.wait()
        self._said.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class EngineArm:
    """The engine as `stackscope run` has it: a process whose records leave it, are summed up here, and recorded.

    What is not here is the progress bar, which a run without a terminal has not either.
    """

    def __init__(
        self,
        name: str,
        config: EngineConfig,
        *,
        is_repeating: bool,
        open_recorder: Callable[[Header], Recorder | None],
        prompt_tokens: int = PROMPT_TOKENS,
    ) -> None:
        self.name = name
        spec = WorkloadSpec(
            name="copy" if is_repeating else "unique",
            concurrency=1,
            prompt_tokens=Length.fixed(prompt_tokens),
            ignore_eos=True,
        )
        self._process = EngineProcess.start(config, spec, traffic="benchmarks.lockstep:Lockstep")
        self._summary = RunSummary()
        self._n_steps: int | None = None
        self._digests: list[int] = []
        try:
            self._process.wait_ready()
            header = self._process.compose_header(host="benchmark", device="benchmark")
            self._summary.write(header)
            self._process.begin(header, open_recorder(header))
        except BaseException:
            self._process.stop()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def process(self) -> EngineProcess:
        """The engine's process and its session."""
        return self._process

    @property
    def digests(self) -> tuple[int, ...]:
        """Checksums of the blocks so far, but for the last: it comes with the next one's records."""
        return tuple(self._digests)

    def set(self, **settings: object) -> None:
        """Switch settings at once."""
        self._process.send(wire.Reconfigure(changes=settings))

    def run(self, ask: Ask) -> Taken:
        """One block."""
        if ask.steps != self._n_steps:
            self._process.send(wire.SetRate(rate=float(ask.steps)))
            self._n_steps = ask.steps
        self._process.send(wire.SetConcurrency(concurrency=ask.batch))
        steps: list[StepRecord] = []
        n_left = ask.batch
        while n_left > 0:
            item = self._process.next_item()
            if item is None:
                raise EngineError("The engine process ended in the middle of a block.")
            if isinstance(item, wire.Refused):
                raise EngineError(item.text)
            if isinstance(item, wire.Message):
                continue
            self._summary.write(item)
            if isinstance(item, StepRecord):
                steps.append(item)
            elif isinstance(item, RequestRecord):
                n_left -= 1
            elif isinstance(item, Log) and item.text.startswith(f"{NOTE} "):
                self._digests.append(int(item.text.split()[2]))
        return Taken(duration(decode_steps(steps, ask)), None, tuple(steps))

    def close(self) -> None:
        self._process.stop()
        # How it ended, and whether the recording is whole, shows only when all has been read.
        for _ in self._process.items():
            pass
        if self._process.recording_failure is not None:
            raise self._process.recording_failure

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._process.stop()


def bare_arm(config: EngineConfig, *, is_repeating: bool = True) -> LoopArm:
    """The loop over the library, with the context that the engine would have."""
    setup = Setup(
        config=config,
        prompt_tokens=PROMPT_TOKENS,
        is_repeating=is_repeating,
        context=context_parameters(config),
    )
    return LoopArm("bare loop", "benchmarks.bare_loop", setup)


def step_arm(config: EngineConfig, *, is_repeating: bool) -> LoopArm:
    """The engine's loop alone."""
    setup = Setup(config=config, prompt_tokens=PROMPT_TOKENS, is_repeating=is_repeating)
    return LoopArm("engine loop", "benchmarks.step_loop", setup)


def recorded_in(folder: Path) -> Callable[[Header], Recorder]:
    """Makes the recorder of a run, in a file of its own."""

    def open_recorder(header: Header) -> Recorder:
        number = sum(1 for _ in folder.iterdir())
        return SessionWriter(folder / f"{number}.jsonl.zst", header)

    return open_recorder
