"""Keep the last seconds of a recording, as if recording had begun then: for sessions that take long to get where they
show something. Every record that stays is as it was; the configuration must not have changed before.

    python scripts/cut_recording.py long.jsonl.zst short.jsonl.zst --seconds 10
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from stackscope.pipeline import time_ns
from stackscope.records import ConfigEvent, Header
from stackscope.session.reader import SessionReader
from stackscope.session.writer import SessionWriter


def cut(source: Path, target: Path, seconds: float) -> int:
    """Write the last seconds; how many records stayed. Raises `ValueError` where what is left out would be missed."""
    reader = SessionReader(source)
    records = [(record, time_ns(record)) for record in reader if not isinstance(record, Header)]
    begin_ns = max(at_ns for _, at_ns in records if at_ns is not None) - round(seconds * 1e9)
    kept = [record for record, at_ns in records if at_ns is None or at_ns >= begin_ns]
    if any(isinstance(record, ConfigEvent) and (at_ns or 0) < begin_ns for record, at_ns in records):
        raise ValueError(f"{source} changes its configuration before its last {seconds:g} seconds")
    with SessionWriter(target, reader.header) as writer:
        for record in kept:
            writer.write(record)
    return len(kept)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--seconds", type=float, required=True)
    args = parser.parse_args(arguments)
    print(f"{cut(args.source, args.target, args.seconds):,} records")
    return 0


if __name__ == "__main__":
    sys.exit(main())
