"""Writes recordings in processes that come to a bad end, and reports on each as a line of JSON.

`python -m tests.unit.doomed_writer killed FOLDER N SEED` kills N writers at random moments;
`python -m tests.unit.doomed_writer limited FOLDER BYTES` writes until the file may grow no further.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sys
from itertools import count
from pathlib import Path

from stackscope.errors import SessionFileError
from stackscope.session.writer import SessionWriter
from tests.unit.record_builders import make_header, make_step

ACKNOWLEDGED = b"."


def write_until_killed(path: Path, acknowledgements: int) -> None:
    """Write numbered steps, one an injected millisecond, and acknowledge each."""
    now = count(step=1_000_000)
    writer = SessionWriter(path, make_header(), clock=lambda: next(now))
    for n in count():
        writer.write(make_step(n))
        os.write(acknowledgements, ACKNOWLEDGED)


def kill_one(path: Path, n_before: int) -> int:
    """Kill a writer once it has acknowledged `n_before` steps; return how many it had acknowledged when it died."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        write_until_killed(path, writing)
    os.close(writing)
    n_acknowledged = 0
    while n_acknowledged < n_before:
        n_acknowledged += len(os.read(reading, 256))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while rest := os.read(reading, 1 << 16):
        n_acknowledged += len(rest)
    os.close(reading)
    return n_acknowledged


def killed(folder: Path, n_writers: int, seed: int) -> None:
    moments = random.Random(seed)
    for index in range(n_writers):
        path = folder / f"{index}.jsonl.zst"
        print(json.dumps({"path": str(path), "acknowledged": kill_one(path, moments.randint(1, 4_000))}))  # noqa: T201


def limited(folder: Path, n_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, n_bytes))
    now = count(step=100_000_000)
    path = folder / "limited.jsonl.zst"
    writer = SessionWriter(path, make_header(), clock=lambda: next(now))
    messages: list[str] = []
    for n in range(5_000):
        try:
            writer.write(make_step(n))
        except SessionFileError as error:
            messages.append(str(error))
    writer.close()
    print(json.dumps({"path": str(path), "messages": messages, "lost": writer.n_lost}))  # noqa: T201


if __name__ == "__main__":
    verb, where, *numbers = sys.argv[1:]
    if verb == "killed":
        killed(Path(where), int(numbers[0]), seed=int(numbers[1]))
    else:
        limited(Path(where), int(numbers[0]))
