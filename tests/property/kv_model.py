"""A model of the inference library's KV cache, as strict as its debug build: executes sequence operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stackscope.engine.prefix_cache import Copy, CopyWhole, SeqOp, Trim

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Cell:
    """One token at one position, tagged with the sequences that hold it."""

    def __init__(self, position: int, token: int, tag: int) -> None:
        self.position = position
        self.token = token
        self.tags = {tag}


class KvModel:
    """Unified: cells with several tags. Split: no cell may ever have more than one."""

    def __init__(self, *, unified: bool) -> None:
        self.unified = unified
        self.cells: list[Cell] = []

    def write(self, sequence: int, tokens: Iterable[int]) -> None:
        """A forward: new cells after those that the sequence has."""
        start = len(self.held(sequence))
        self.cells += [Cell(start + i, token, sequence) for i, token in enumerate(tokens)]

    def apply(self, ops: Sequence[SeqOp], *, owned: frozenset[int], slot: int | None = None) -> None:
        """Execute operations that may name the ids in `owned` and the slot they were made for, and write no other."""
        allowed = owned if slot is None else owned | {slot}
        for op in ops:
            if isinstance(op, Trim):
                assert op.sequence in owned, f"{op} trims what is not the cache's"
                self.trim(op.sequence, op.start)
                continue
            assert {op.source, op.target} <= allowed, f"{op} names a foreign sequence"
            assert op.source != op.target
            if isinstance(op, Copy):
                self._share(op)
            else:
                self._copy(op)

    def trim(self, sequence: int, start: int) -> None:
        for cell in self.cells:
            if sequence in cell.tags and cell.position >= start:
                cell.tags.discard(sequence)
        self.cells = [cell for cell in self.cells if cell.tags]

    def _share(self, op: Copy) -> None:
        assert self.unified, "a partial copy between streams aborts the process"
        chosen = [c for c in self.cells if op.source in c.tags and op.start <= c.position < op.stop]
        assert len(chosen) == op.stop - op.start > 0, f"{op.source} does not hold all of {op}"
        assert len(self.held(op.target)) == op.start, f"{op} leaves a gap or doubles a position"
        for cell in chosen:
            assert op.target not in cell.tags, "a cell is tagged twice"
            cell.tags.add(op.target)

    def _copy(self, op: CopyWhole) -> None:
        assert not self.unified, "a real copy where sharing is free"
        held = self.held(op.source)
        assert 0 < op.length <= len(held)
        self.trim(op.target, 0)
        self.write(op.target, held[: op.length])

    def held(self, sequence: int) -> list[int]:
        """The tokens of a sequence in order; every position exactly once."""
        cells = sorted((c for c in self.cells if sequence in c.tags), key=lambda c: c.position)
        assert [c.position for c in cells] == list(range(len(cells)))
        return [c.token for c in cells]

    def sequences(self) -> set[int]:
        return {tag for cell in self.cells for tag in cell.tags}

    def tagged_by(self, ids: frozenset[int]) -> int:
        """Cells with a tag among `ids`."""
        return sum(1 for cell in self.cells if cell.tags & ids)

    def tagged_only_by(self, ids: frozenset[int]) -> int:
        """Cells with no tag but those among `ids`."""
        return sum(1 for cell in self.cells if cell.tags <= ids)
