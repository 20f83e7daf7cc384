"""Measures what this machine does at most with a model, in the engine's own kernels and environment."""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import msgspec

from stackscope import __version__, cgroups
from stackscope.engine import openmp
from stackscope.engine.exits import died
from stackscope.engine.logring import clean
from stackscope.engine.process import child_environment
from stackscope.engine.wire import error_of
from stackscope.experiments import apart, protocol
from stackscope.experiments.assembly import Occasion, assemble
from stackscope.hardware import caches, ceilings, host
from stackscope.hardware.quiet import CALM_SHARE, Neighbours
from stackscope.model.files import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import BinaryIO

    from stackscope.records.ceilings import Ceilings
    from stackscope.toggles import EngineConfig

WORKER: Final = ("-P", "-m", "stackscope.experiments.calibration_worker")

MEMORY_SHARE: Final = 8
"""One set of matrices takes no more than this part of the memory that is free; there is one for each storage type."""

UNKNOWN_MEMORY_BYTES: Final = 8 << 30
"""Taken for the free memory where the system does not say."""


def calibrate(
    config: EngineConfig,
    budget: protocol.Budget,
    *,
    progress: Callable[[protocol.Progress], None],
    worker: Sequence[str] = WORKER,
) -> Ceilings:
    """Measure, for the configuration's models, threads and types.

    Others on the machine are watched meanwhile, and what they took is in the result. `worker` are the interpreter's
    arguments that start the measuring process. Raises `StackscopeError` when the engine cannot be had.
    """
    threads = openmp.usable_cores() if config.threads is None else config.threads
    config = msgspec.structs.replace(config, threads=threads)
    cpus = sorted(host.allowed_cores() or ())
    free = cgroups.available_memory() or UNKNOWN_MEMORY_BYTES
    task = protocol.Task(
        config=config, budget=budget, cache_bytes=caches.last_level_bytes(cpus), memory_bytes=free // MEMORY_SHARE
    )
    environment = child_environment(os.environ, threads)
    begun_ns = time.monotonic_ns()
    with _Child(worker, environment) as child:
        findings = child.ask(task, progress)
        foreign = child.foreign_share
    waiting = openmp.described(environment)
    return assemble(
        findings,
        Occasion(
            conditions=ceilings.conditions(config, library=findings.library, threads=findings.threads, waiting=waiting),
            measured=datetime.now().astimezone().isoformat(timespec="seconds"),
            stackscope=__version__,
            is_full=budget.is_full,
            duration_ns=time.monotonic_ns() - begun_ns,
            foreign_share=foreign,
            is_quiet=foreign is not None and foreign < CALM_SHARE,
            cache_bytes=task.cache_bytes,
            draft=None if config.draft_model is None else shown(Path(config.draft_model).name),
        ),
    )


class _Child:
    """The measuring process. A context manager: leaving it ends the process."""

    def __init__(self, worker: Sequence[str], environment: dict[str, str]) -> None:
        self._said: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `__exit__`.
        self._process = apart.start(worker, environment, self._said, what="measuring")
        self._neighbours = Neighbours([self._process.pid])
        self.foreign_share: float | None = None
        """Of one CPU, from the first to the last message. `None`: not known (yet)."""

    def ask(self, task: protocol.Task, progress: Callable[[protocol.Progress], None]) -> protocol.Findings:
        """Have the task done. Raises the `StackscopeError` that prevents it."""
        assert self._process.stdout is not None
        apart.give(self._process, task)
        has_begun = False
        for answer in self._process.stdout:
            message = protocol.decode_message(answer)
            if isinstance(message, protocol.Findings):
                self.foreign_share = self._neighbours.share()
                return message
            if isinstance(message, apart.Refused):
                raise error_of(message.failure)
            if not has_begun:
                has_begun = True
                self._neighbours.begin()
            progress(message)
        self._said.seek(0)
        log = [clean(line) for line in self._said.read().splitlines()]
        raise died(self._process.wait(), log)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):  # It ended before it had taken its task.
                pipe.close()
        self._process.wait()
        self._said.close()
