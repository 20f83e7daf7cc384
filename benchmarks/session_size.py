"""What recording costs: bytes on disk and CPU time per step, and how fast a session is read back.

The steps are synthetic (every duration varies in all its digits, as measured ones do) or those of a recording. They are
written as the engine's parent does it: encoded lines in batches of 50 ms, a tick every 100 ms, on the steps' own clock.
CPU times are of the thread that writes; rates are records per CPU second.

    python -m benchmarks.session_size                      the writer as it is, over several loads
    python -m benchmarks.session_size --sweep              other levels, windows and flush intervals of zstd
    python -m benchmarks.session_size --session FILE       the steps of a real recording
    python -m benchmarks.session_size --records 1000000    read a long session
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import zstandard

from stackscope.records import Header, StepRecord
from stackscope.session.format import encode
from stackscope.session.reader import SessionReader, read_session
from stackscope.session.replay import Replay
from stackscope.session.writer import FLUSH_NS, FRAME_NS, LEVEL, WINDOW_LOG, SessionWriter
from tests.unit.record_builders import SyntheticEngine, make_footer, make_header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from stackscope.records import AnyRecord

BATCH_NS = 50_000_000
STEPS_PER_SECOND = 1_200
"""The fastest loop that recording must not slow down: the lab target at batch 1."""

LOADS = {
    "batch 1, 1,200 steps/s": {"decode_ns": 750_000},
    "batch 1, 20 steps/s": {"decode_ns": 49_000_000},
    "batch 1, drafts of 3": {"decode_ns": 1_000_000, "draft_length": 3},
    "batch 8, 300 steps/s": {"decode_ns": 3_000_000, "slots": 8},
    "batch 32, drafts of 3, 50 steps/s": {"decode_ns": 18_000_000, "slots": 32, "draft_length": 3},
}


@dataclass(frozen=True)
class Batch:
    """What the engine sends at once."""

    at_ns: int
    lines: bytes
    records: tuple[AnyRecord, ...]


@dataclass(frozen=True)
class Cost:
    """What one way of writing cost."""

    n_steps: int
    n_bytes: int
    cpu_ns: int
    wall_ns: int
    """Time that the steps took when they ran."""

    def __str__(self) -> str:
        share = self.cpu_ns / self.wall_ns
        each = self.cpu_ns / self.n_steps
        at_full_speed = each * STEPS_PER_SECOND / 1e9
        return (
            f"{self.n_bytes / self.n_steps:6.1f} B/step  {each / 1e3:5.2f} µs/step  {share:7.3%} of wall"
            f"  ({at_full_speed:.3%} at {STEPS_PER_SECOND:,} steps/s)"
        )


def batches(records: Iterable[AnyRecord]) -> list[Batch]:
    """The records in the batches in which the engine would send them."""
    done: list[Batch] = []
    gathered: list[AnyRecord] = []
    first_ns: int | None = None
    for record in records:
        gathered.append(record)
        if isinstance(record, StepRecord):
            first_ns = record.start_ns if first_ns is None else first_ns
            if record.end_ns - first_ns >= BATCH_NS:
                done.append(Batch(record.end_ns, b"".join(map(encode, gathered)), tuple(gathered)))
                gathered, first_ns = [], None
    steps = [record for record in gathered if isinstance(record, StepRecord)]
    if steps:
        done.append(Batch(steps[-1].end_ns, b"".join(map(encode, gathered)), tuple(gathered)))
    return done


def measured(write: Callable[[Batch], None], stream: Sequence[Batch]) -> int:
    """CPU nanoseconds that `write` takes for all batches."""
    started_ns = time.thread_time_ns()
    for batch in stream:
        write(batch)
    return time.thread_time_ns() - started_ns


def written(folder: Path, stream: Sequence[Batch], *, as_lines: bool) -> Cost:
    """The cost of the real writer, everything from taking a line to closing the file."""
    path = folder / "session.jsonl.zst"
    path.unlink(missing_ok=True)
    now_ns = 0
    writer = SessionWriter(path, make_header(), clock=lambda: now_ns)

    def write(batch: Batch) -> None:
        nonlocal now_ns
        now_ns = batch.at_ns
        if as_lines:
            writer.write_line(batch.lines)
        else:
            for record in batch.records:
                writer.write(record)
        writer.tick()

    cpu_ns = measured(write, stream)
    started_ns = time.thread_time_ns()
    writer.close(make_footer())
    cpu_ns += time.thread_time_ns() - started_ns
    n_steps = sum(isinstance(r, StepRecord) for batch in stream for r in batch.records)
    return Cost(n_steps, path.stat().st_size, cpu_ns, stream[-1].at_ns - stream[0].at_ns)


def compressed(stream: Sequence[Batch], *, level: int, window_log: int, flush_ns: int) -> Cost:
    """The cost of zstd alone with other settings."""
    parameters = zstandard.ZstdCompressionParameters.from_level(level, window_log=window_log, write_checksum=True)
    compressor = zstandard.ZstdCompressor(compression_params=parameters)
    frame, n_bytes = compressor.compressobj(), 0
    flushed_ns = opened_ns = stream[0].at_ns

    def write(batch: Batch) -> None:
        nonlocal frame, n_bytes, flushed_ns, opened_ns
        n_bytes += len(frame.compress(batch.lines))
        if batch.at_ns - opened_ns >= FRAME_NS:
            n_bytes += len(frame.flush(zstandard.COMPRESSOBJ_FLUSH_FINISH))
            frame, flushed_ns, opened_ns = compressor.compressobj(), batch.at_ns, batch.at_ns
        elif batch.at_ns - flushed_ns >= flush_ns:
            n_bytes += len(frame.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK))
            flushed_ns = batch.at_ns

    cpu_ns = measured(write, stream)
    n_steps = sum(isinstance(r, StepRecord) for batch in stream for r in batch.records)
    return Cost(n_steps, n_bytes, cpu_ns, stream[-1].at_ns - stream[0].at_ns)


def show_costs(name: str, stream: Sequence[Batch]) -> None:
    with TemporaryDirectory() as folder:
        for as_lines in (True, False):
            best = min((written(Path(folder), stream, as_lines=as_lines) for _ in range(3)), key=lambda c: c.cpu_ns)
            print(f"{name:34} {'lines  ' if as_lines else 'records'} {best}")


def show_sweep(name: str, stream: Sequence[Batch]) -> None:
    print(f"\n{name}: zstd alone; the writer uses level {LEVEL}, window 2^{WINDOW_LOG}, {FLUSH_NS / 1e9} s")
    for level in (-3, 1, 2, 3, 6, 9):
        for window_log in (13, 15, 16, 17, 21):
            cost = compressed(stream, level=level, window_log=window_log, flush_ns=FLUSH_NS)
            print(f"  level {level:2}  window 2^{window_log}  {cost}")
    for flush_ns in (50_000_000, 200_000_000, 800_000_000, 3_000_000_000):
        cost = compressed(stream, level=LEVEL, window_log=WINDOW_LOG, flush_ns=flush_ns)
        print(f"  flush every {flush_ns / 1e9:4.2f} s   {cost}")


def show_reading(n_records: int) -> None:
    with TemporaryDirectory() as folder:
        path, now_ns = Path(folder) / "session.jsonl.zst", 0
        with SessionWriter(path, make_header(), clock=lambda: now_ns) as writer:
            for record in SyntheticEngine(decode_ns=750_000).records(n_records):
                now_ns = record.end_ns if isinstance(record, StepRecord) else now_ns
                writer.write(record)
            writer.close(make_footer())
        ways: dict[str, Callable[[], int]] = {
            "stream": lambda: sum(1 for _ in SessionReader(path)),
            "in order of time": lambda: sum(1 for _ in Replay(path).records()),
            "into memory": lambda: len(read_session(path).steps),
        }
        for name, read in ways.items():
            started_ns = time.process_time_ns()
            n_read = read()
            seconds = (time.process_time_ns() - started_ns) / 1e9
            print(f"read {n_read:,} records, {name:17} {seconds:5.2f} s  {n_read / seconds:10,.0f} /s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--session", type=Path, help="a recording whose steps to write again")
    parser.add_argument("--steps", type=int, default=60_000, help="steps of each synthetic load")
    parser.add_argument("--records", type=int, default=200_000, help="steps to read back; 0 leaves it out")
    parser.add_argument("--sweep", action="store_true", help="other settings of zstd")
    options = parser.parse_args()
    loads: dict[str, list[AnyRecord]]
    if options.session is not None:
        loads = {options.session.name: [r for r in SessionReader(options.session) if not isinstance(r, Header)]}
    else:
        # A slow load needs fewer steps for as many flushes.
        loads = {
            name: list(SyntheticEngine(**load).records(min(options.steps, 120_000_000_000 // load["decode_ns"])))
            for name, load in LOADS.items()
        }
    for name, records in loads.items():
        stream = batches(records)
        if len(stream) < 2:
            parser.error(f"{name} is too short: it needs steps of more than {BATCH_NS / 1e9} s")
        show_costs(name, stream)
        if options.sweep:
            show_sweep(name, stream)
    if options.records > 0:
        show_reading(options.records)


if __name__ == "__main__":
    main()
