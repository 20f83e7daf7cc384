"""Recordings on disk, made up: whole, cut off, damaged, and no recordings at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from stackscope.session.writer import SessionWriter
from tests.unit.record_builders import SyntheticEngine, make_footer, make_header

if TYPE_CHECKING:
    from pathlib import Path


def write(path: Path, *, steps: int = 200, draft_length: int = 0, seed: int = 1, **header: Any) -> Path:
    """A whole recording of a synthetic engine."""
    path.parent.mkdir(parents=True, exist_ok=True)
    head = make_header(**header)
    if head.config is not None and draft_length:
        config = msgspec.structs.replace(head.config, speculation="ngram", draft_length=draft_length)
        head = msgspec.structs.replace(head, config=config)
    with SessionWriter(path, head) as writer:
        for record in SyntheticEngine(seed=seed, draft_length=draft_length).records(steps):
            writer.write(record)
        writer.write(make_footer(steps=steps))
    return path


def cut_off(path: Path, **how: Any) -> Path:
    """A recording whose writer was killed."""
    content = write(path, **how).read_bytes()
    path.write_bytes(content[: len(content) // 2])
    return path


def damaged(path: Path) -> Path:
    """A file with the name of a recording, and nothing of one in it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x28\xb5\x2f\xfd" + bytes(range(200)))
    return path
