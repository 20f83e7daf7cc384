"""The work that every side of a comparison is given: blocks of sequences that start together and end together."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final
from zlib import crc32

import msgspec
import numpy as np

from stackscope.records import StepRecord
from stackscope.toggles import EngineConfig
from stackscope.workload.jobs import Job

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.workload.jobs import Tokenizer
    from stackscope.workload.spec import WorkloadSpec

NOTE: Final = "block"
"""First word of the note that says what a block's output was."""


class Ask(msgspec.Struct, frozen=True):
    """One block: `batch` sequences are prefilled in one forward, then decoded together for `steps` forwards."""

    batch: int
    steps: int


class Taken(msgspec.Struct, frozen=True):
    """What a block took."""

    ns: int
    """Wall time of its decode steps, in nanoseconds: from the end of the prefill to the end of the last step."""
    digest: int | None = None
    """Checksum of the tokens that came out. `None`: not known yet."""
    steps: tuple[StepRecord, ...] = ()
    """Every step of it, the prefill included; empty for the bare loop."""


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """What a side of the comparison runs on."""

    config: EngineConfig
    prompt_tokens: int
    is_repeating: bool
    """Every block has the prompts of the first; otherwise no prompt comes twice."""
    context: dict[str, int] = {}
    """Parameters of the context by the library's own names; for the bare loop."""


def prompts(n: int, length: int, n_vocab: int, number: int) -> list[list[int]]:
    """Set `number` of `n` prompts of `length` tokens, the same wherever it is made, free of control tokens."""
    rng = np.random.default_rng(number)
    made: list[list[int]] = rng.integers(n_vocab // 8, n_vocab // 2, size=(n, length)).tolist()
    return made


def digest(outputs: Sequence[Sequence[int]]) -> int:
    """Checksum of the tokens that each sequence of a block brought, the first sequence's first."""
    return crc32(np.asarray(outputs, np.int32).tobytes())


def jobs(ask: Ask, setup: Setup, n_vocab: int, number: int, first_id: int) -> list[Job]:
    """The requests of block `number`."""
    number = 0 if setup.is_repeating else number
    # The prefill brings the first token of each.
    return [
        Job(id=first_id + i, tokens=tuple(tokens), max_tokens=ask.steps + 1, arrived_ns=0, ignore_eos=True)
        for i, tokens in enumerate(prompts(ask.batch, setup.prompt_tokens, n_vocab, number))
    ]


def decode_steps(steps: Sequence[StepRecord], ask: Ask) -> list[StepRecord]:
    """The steps of a block in which every sequence decoded. Raises `ValueError` when it did not go as planned."""
    decoding = [s for s in steps if len(s.work) == ask.batch and all(w.phase == "decode" for w in s.work)]
    if len(decoding) != ask.steps or sum(s.emitted for s in steps) != ask.batch * (ask.steps + 1):
        raise ValueError(f"{len(decoding)} of {ask.steps} steps decoded {ask.batch} sequences together")
    return decoding


def duration(decoding: Sequence[StepRecord]) -> int:
    """Nanoseconds from the beginning of the first step to the end of the last, which must follow one another."""
    for before, after in pairwise(decoding):
        if after.start_ns != before.end_ns:
            raise ValueError(f"the engine waited between steps {before.n} and {after.n}")
    return decoding[-1].end_ns - decoding[0].start_ns


class Lockstep:
    """Traffic of the engine process that offers one block whenever it is told to.

    A workload named `copy` repeats the prompts of the first block, any other never repeats one. What the parent can
    set while it runs stands for the block: the rate is its number of steps, the concurrency its batch, and setting the
    concurrency starts it. When all its requests have finished, a note says what their output was.
    """

    def __init__(self, spec: WorkloadSpec, tokenizer: Tokenizer, **_: object) -> None:
        length = spec.prompt_tokens
        assert length is not None
        assert length.mean is not None
        self._setup = Setup(config=EngineConfig(), prompt_tokens=round(length.mean), is_repeating=spec.name == "copy")
        self._n_vocab = tokenizer.n_vocab
        self._ask = Ask(0, 0)
        self._number = 0
        self._next_id = 0
        self._waiting: list[Job] = []
        self._outputs: dict[int, Sequence[int]] = {}
        self.notes: tuple[str, ...] = ()

    def start(self, now_ns: int) -> None:
        pass

    def prepare(self, n_jobs: int) -> None:
        pass

    @property
    def done(self) -> bool:
        return False

    def set_rate(self, rate: float | None, **_: object) -> None:
        assert rate is not None
        self._ask = Ask(self._ask.batch, round(rate))

    def set_concurrency(self, concurrency: int) -> None:
        self._ask = Ask(concurrency, self._ask.steps)
        self._waiting = jobs(self._ask, self._setup, self._n_vocab, self._number, self._next_id)
        self._number += 1
        self._next_id += concurrency
        self._outputs.clear()

    def due(self, *_: int) -> Sequence[Job]:
        offered, self._waiting = self._waiting, []
        return offered

    def finished(self, job_id: int, output: Sequence[int], **_: object) -> None:
        self._outputs[job_id] = output
        if len(self._outputs) == self._ask.batch:
            checksum = digest([self._outputs[job] for job in sorted(self._outputs)])
            self.notes += (f"{NOTE} {self._number - 1} {checksum}",)

    def next_arrival_ns(self) -> int | None:
        return None
