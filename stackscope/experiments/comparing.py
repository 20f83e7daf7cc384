"""Reading sessions to compare them: each in a process of its own where they are large."""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stackscope.analysis.comparing.collecting import Collector
from stackscope.analysis.comparing.comparison import compare_digests
from stackscope.engine.worker import die_with
from stackscope.session.reader import SessionReader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.analysis.comparing.comparison import Comparison
    from stackscope.analysis.comparing.digest import Digest

WORTH_A_PROCESS: Final = 4 << 20
"""Bytes of a recording from which on reading it takes longer than starting a process does (0.4 s)."""


def compare(paths: Sequence[Path | str], *, warmup_ns: int = 0, anyway: bool = False) -> Comparison:
    """Compare two or more recordings, each with the first.

    What began in the first `warmup_ns` of each session is left out. `anyway`: give a verdict on what is not comparable.
    Raises `SessionFileError` for a file that holds no session, `ValueError` for fewer than two.
    """
    return compare_digests(digests(paths, warmup_ns=warmup_ns), anyway=anyway)


def digests(paths: Sequence[Path | str], *, warmup_ns: int = 0) -> list[Digest]:
    """Every recording summed up, in their order. Large ones are read at the same time. Raises `SessionFileError`."""
    for path in paths:
        SessionReader(path)  # What cannot be read at all shows at once.
    large = [path for path in dict.fromkeys(paths) if Path(path).stat().st_size >= WORTH_A_PROCESS]
    others = large[1:]
    if not others:
        return [digest(path, warmup_ns=warmup_ns) for path in paths]
    workers = min(len(others), max(1, multiprocessing.cpu_count() - 1))
    with reading_processes(workers) as pool:
        futures = {path: pool.submit(digest, path, warmup_ns=warmup_ns) for path in others}
        # One of the large ones is this process's own share.
        mine = {path: digest(path, warmup_ns=warmup_ns) for path in paths if path not in futures}
        try:
            return [mine[path] if path in mine else futures[path].result() for path in paths]
        except BrokenProcessPool:
            # Memory ran out, or someone killed it: one after the other needs less.
            return [mine[path] if path in mine else digest(path, warmup_ns=warmup_ns) for path in paths]


def reading_processes(n: int) -> ProcessPoolExecutor:
    """Processes that end with the thread that gives them work, however it ends: what they read is for nobody else."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(n, mp_context=context, initializer=die_with, initargs=(os.getpid(),))


def digest(path: Path | str, *, warmup_ns: int = 0) -> Digest:
    """One recording, summed up. Raises `SessionFileError`."""
    reader = SessionReader(path)
    collector = Collector(Path(path).name, warmup_ns=warmup_ns)
    for records in reader.batches():
        collector.take_batch(records)
    return collector.digest(truncated=reader.truncated, left_out=reader.left_out)
