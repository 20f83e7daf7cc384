"""The process that compares what models say: the engine's own backend, with a text instead of requests.

Started by `experiments.quality`; it answers with one line for each candidate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

import msgspec
import numpy as np

from stackscope.engine.abort import AbortFlag
from stackscope.engine.backend import Backend
from stackscope.engine.llama import DecodeStatus, start_library
from stackscope.engine.vocabulary import Vocabulary
from stackscope.errors import EngineError
from stackscope.experiments.apart import serve
from stackscope.experiments.quality import Answer, Quality, Task
from stackscope.workload import corpus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from stackscope.toggles import EngineConfig

ROWS: Final = 64
"""Of a forward, each with its logits."""

CELLS: Final = 256
"""A context has a multiple of these."""

CHARACTERS: Final = 6
"""Of the text per token that is asked for: more than any tokenizer puts into one on average."""


def text_tokens(vocabulary: Vocabulary, n: int) -> list[int]:
    """The fixed text: `n` tokens, half of them program, half prose."""
    program = vocabulary.encode(corpus.code_passage(0, 0.25, n * CHARACTERS))[: n // 2]
    prose = vocabulary.encode(corpus.document_text(0, n * CHARACTERS)[0], add_special=False)
    return [*program, *prose[: n - len(program)]]


def for_reading(config: EngineConfig, n: int) -> EngineConfig:
    """The configuration for one sequence of `n` tokens: what changes the answers, and nothing else."""
    return msgspec.structs.replace(
        config,
        draft_model=None,
        speculation="off",
        prefix_cache=False,
        slots=1,
        slots_max=1,
        draft_length=1,
        draft_length_max=ROWS - 1,
        cache_paths=1,
        unified_kv=True,
        token_budget=ROWS,
        context_tokens=-(-(n + ROWS) // CELLS) * CELLS,
    )


def compare(task: Task, say: Callable[[Answer], None]) -> None:
    """Compare each candidate with the reference, and say so one by one. Raises `StackscopeError`."""
    start_library()
    reference = Backend(for_reading(task.reference, task.tokens), AbortFlag(), progress=lambda _path, _done: None)
    n = min(task.tokens, reference.target.n_ctx_seq - 1)
    tokens = text_tokens(Vocabulary(reference.model), n)
    for place, config in enumerate(task.candidates):
        candidate = Backend(for_reading(config, task.tokens), AbortFlag(), progress=lambda _path, _done: None)
        agreement, divergence = compared(reference, candidate, tokens)
        candidate.close()
        say(Quality(place=place, agreement=agreement, divergence=divergence, tokens=len(tokens)))


def compared(reference: Backend, candidate: Backend, tokens: Sequence[int]) -> tuple[float, float]:
    """(share of positions with the same greedy token, mean KL divergence in nats) over a text."""
    n_same, total = 0, 0.0
    for backend in (reference, candidate):
        backend.target.clear()
    for start in range(0, len(tokens), ROWS):
        some = tokens[start : start + ROWS]
        ours, theirs = (_logits(backend, some, start) for backend in (reference, candidate))
        n_same += int((ours.argmax(axis=1) == theirs.argmax(axis=1)).sum())
        total += sum(divergence(one, other) for one, other in zip(ours, theirs, strict=True))
    return n_same / len(tokens), total / len(tokens)


def divergence(reference: NDArray[np.float32], candidate: NDArray[np.float32]) -> float:
    """KL(reference ‖ candidate) of two rows of logits, in nats; never below 0."""
    ours, theirs = (row - row.max() for row in (reference.astype(np.float64), candidate.astype(np.float64)))
    ours -= np.log(np.exp(ours).sum())
    theirs -= np.log(np.exp(theirs).sum())
    return max(float(np.exp(ours) @ (ours - theirs)), 0.0)


def _logits(backend: Backend, tokens: Sequence[int], start: int) -> NDArray[np.float32]:
    """The logits of a piece of the text at its place. A view that dies at the next forward."""
    context, n = backend.target, len(tokens)
    batch = context.batch
    batch.token[:n] = tokens
    batch.position[:n] = np.arange(start, start + n)
    batch.sequence[:n] = 0
    batch.output[:n] = 1
    if context.decode(n) != DecodeStatus.OK:
        raise EngineError("The text could not be read to its end.")
    return context.logits(n)


def main() -> NoReturn:
    serve(__doc__, Task, compare)


if __name__ == "__main__":
    main()
