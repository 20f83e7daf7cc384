"""The engine without its process: `Engine.step` in a loop, with no pipe and no traffic around it.

Run by `benchmarks.arms`, as the bare loop is.
"""

from __future__ import annotations

import gc
import sys
import time
from typing import TYPE_CHECKING

import msgspec

from benchmarks.lockstep import Ask, Setup, Taken, decode_steps, digest, duration, jobs
from stackscope.engine.loop import Engine

if TYPE_CHECKING:
    from stackscope.records import StepRecord


class StepLoop:
    """An engine, and the blocks it is given."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._engine = Engine.open(setup.config, clock=time.monotonic_ns, progress=lambda _path, _done: None)
        self._number = 0
        self._next_id = 0

    def run(self, ask: Ask) -> Taken:
        """One block."""
        engine = self._engine
        block = jobs(ask, self._setup, engine.tokenizer.n_vocab, self._number, self._next_id)
        self._number += 1
        self._next_id += ask.batch
        for job in block:
            engine.submit(job)
        engine.idle()
        steps: list[StepRecord] = []
        outputs: dict[int, tuple[int, ...]] = {}
        while (turn := engine.step()) is not None:
            steps.append(turn.step)
            outputs.update({answer.request: answer.tokens for answer in turn.answers})
        checksum = digest([outputs[job.id] for job in block])
        return Taken(duration(decode_steps(steps, ask)), checksum, tuple(steps))


def main() -> None:
    loop = StepLoop(msgspec.json.decode(sys.stdin.readline(), type=Setup))
    gc.collect()
    gc.freeze()
    gc.disable()  # As the engine's own process does.
    print("ready", flush=True)
    for line in sys.stdin:
        taken = loop.run(msgspec.json.decode(line, type=Ask))
        print(msgspec.json.encode(taken).decode(), flush=True)


if __name__ == "__main__":
    main()
