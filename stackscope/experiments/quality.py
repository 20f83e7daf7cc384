"""Whether a configuration still answers like the reference: agreement and divergence on a fixed text.

Weights and keys and values of fewer bits are faster and say something else. How much else is measured apart from any
traffic, in a process of its own: both configurations read the same text, token by token as it stands, and what each
would say next is compared. Speculation, prefix cache and batching leave the answers as they are, and are left out.
"""

from __future__ import annotations

import os
import select
import tempfile
from typing import TYPE_CHECKING, Final

import msgspec

from stackscope.engine.exits import died
from stackscope.engine.logring import clean
from stackscope.engine.process import child_environment
from stackscope.engine.wire import error_of
from stackscope.experiments import apart
from stackscope.toggles import EngineConfig

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from stackscope.experiments.state import CellRun

WORKER: Final = ("-P", "-m", "stackscope.experiments.quality_worker")

TOKENS: Final = 512
"""Of the text: half of it program, half prose."""

LOOK_S: Final = 0.2
"""How often it is asked whether to stop."""

AGREEMENT, DIVERGENCE = "greedy_agreement", "mean_kl"
"""Names of the figures."""

FIELDS: Final = ("model", "kv_type_k", "kv_type_v", "flash_attention")
"""Settings that change what a model says."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What the process is to compare."""

    reference: EngineConfig
    candidates: tuple[EngineConfig, ...]
    tokens: int = TOKENS


class Quality(msgspec.Struct, frozen=True, kw_only=True, tag="quality"):
    """One candidate beside the reference."""

    place: int
    """Among the candidates."""
    agreement: float
    """Share of the text's positions at which both would say the same next, greedily."""
    divergence: float
    """Mean over positions of KL(reference ‖ candidate), in nats."""
    tokens: int
    """Positions compared."""


Answer = Quality | apart.Refused


class StoppedError(Exception):
    """Somebody asked for the end."""


def differs(config: EngineConfig, reference: EngineConfig) -> bool:
    """Whether a configuration may say something else than the reference."""
    return any(getattr(config, name) != getattr(reference, name) for name in FIELDS)


def judge_all(
    configs: Mapping[int, EngineConfig],
    reference: EngineConfig,
    *,
    is_stopping: Callable[[], bool] = lambda: False,
    judge: Callable[..., Sequence[Quality]] | None = None,
) -> dict[int, dict[str, float]]:
    """Figures of each configuration by its number. Those that say the same by construction are not run.

    `judge` compares candidates, `compare` if it is `None`. Raises as that.
    """
    groups: dict[tuple[object, ...], list[int]] = {}
    found: dict[int, dict[str, float]] = {}
    for cell, config in configs.items():
        if differs(config, reference):
            groups.setdefault(tuple(getattr(config, name) for name in FIELDS), []).append(cell)
        else:
            found[cell] = {AGREEMENT: 1.0, DIVERGENCE: 0.0}
    if groups:
        task = Task(reference=reference, candidates=tuple(configs[cells[0]] for cells in groups.values()))
        judged = (compare if judge is None else judge)(task, is_stopping=is_stopping)
        for cells, one in zip(groups.values(), judged, strict=True):
            found |= {cell: {AGREEMENT: one.agreement, DIVERGENCE: one.divergence} for cell in cells}
    return found


def with_quality(runs: Iterable[CellRun], quality: Mapping[int, Mapping[str, float]]) -> list[CellRun]:
    """The runs with the quality of their configurations among their figures."""
    return [
        msgspec.structs.replace(run, figures={**run.figures, **quality[run.cell]}) if run.cell in quality else run
        for run in runs
    ]


def compare(
    task: Task, *, is_stopping: Callable[[], bool] = lambda: False, worker: Sequence[str] = WORKER
) -> list[Quality]:
    """Each candidate beside the reference, in their order.

    Raises `StoppedError`, and the `StackscopeError` that prevents it.
    """
    with tempfile.TemporaryFile() as said:
        process = apart.start(worker, child_environment(os.environ, task.reference.threads), said, what="comparing")
        try:
            apart.give(process, task)
            answers = list(_answers(process, is_stopping))
        finally:
            process.kill()
            assert process.stdout is not None
            process.stdout.close()
            process.wait()
        for answer in answers:
            if isinstance(answer, apart.Refused):
                raise error_of(answer.failure)
        judged = [answer for answer in answers if isinstance(answer, Quality)]
        if len(judged) != len(task.candidates):
            said.seek(0)
            raise died(process.returncode, [clean(line) for line in said.read().splitlines()])
    return sorted(judged, key=lambda one: one.place)


def _answers(process: subprocess.Popen[bytes], is_stopping: Callable[[], bool]) -> Iterable[Answer]:
    """What the process says, until it ends. Raises `StoppedError`."""
    assert process.stdout is not None
    descriptor = process.stdout.fileno()
    held = b""
    while True:
        if is_stopping():
            raise StoppedError
        if not select.select([descriptor], [], [], LOOK_S)[0]:
            continue
        chunk = os.read(descriptor, 1 << 16)
        if not chunk:
            process.wait()
            return
        *lines, held = (held + chunk).split(b"\n")
        for line in lines:
            yield msgspec.json.decode(line, type=Answer)
