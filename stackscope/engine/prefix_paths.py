"""Which sequence id holds which path of the prefix tree, and which path goes first when ids or tokens run short."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from stackscope.engine.prefix_hash import START, Remembered, chain
from stackscope.engine.prefix_tree import TOKEN_BYTES, law

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.engine.prefix_tree import Node, PrefixTree

REMEMBERED_BLOCKS: Final = 16_384
"""Evicted blocks remembered at most (at least half as many), at some 60 bytes each."""

MOST_WAITING: Final = 16
"""Cut paths that wait to be hashed at most, at four bytes a token each."""

_by_last_use = attrgetter("used")


class Copy(NamedTuple):
    """Tag `source`'s cells at positions `start` ≤ p < `stop` with `target` too. Unified KV only; moves no data."""

    source: int
    target: int
    start: int
    stop: int


class CopyWhole(NamedTuple):
    """Replace all that `target` holds by a real copy of all that `source` holds, then keep `length` positions of it."""

    source: int
    target: int
    length: int


class Trim(NamedTuple):
    """Forget positions ≥ `start` of a sequence; 0 empties it."""

    sequence: int
    start: int


SeqOp: TypeAlias = Copy | CopyWhole | Trim


class EvictionMemory:
    """The blocks that left the tree lately, each known by a hash of its whole prefix: "evicted" is not "never seen".

    A full cache is cut at every step of a prefill, mostly the same path again. So cuts wait before they are hashed, and
    those that follow one another down a path are hashed once.
    """

    def __init__(self, block_bytes: int) -> None:
        self._block_bytes = block_bytes
        self._waiting: list[tuple[bytes, int]] = []
        """Paths as they were, and the byte from which on their blocks are gone; not hashed yet."""
        self._hashes = Remembered(REMEMBERED_BLOCKS)

    def remember(self, key: bytes, start: int) -> None:
        """Note that the blocks of this path from byte `start` on are going."""
        waiting = self._waiting
        if waiting:
            whole, begun = waiting[-1]
            if begun == len(key) and whole.startswith(key):
                waiting[-1] = (whole, start)
                return
            if len(waiting) == MOST_WAITING:
                self._hash_waiting()
        waiting.append((key, start))

    def __contains__(self, key: bytes) -> bool:
        """Whether the last block of this prefix, which has at least one, was evicted."""
        for whole, start in self._waiting:
            if len(key) > start and whole.startswith(key):
                return True
        if self._hashes.is_empty:
            return False
        value = START
        for value in chain(key, self._block_bytes):  # noqa: B007 - the last one is wanted.
            pass
        return value in self._hashes

    def clear(self) -> None:
        self._waiting.clear()
        self._hashes.clear()

    def _hash_waiting(self) -> None:
        size = self._block_bytes
        for key, start in self._waiting:
            self._hashes.update(list(chain(key, size))[start // size :])
        self._waiting.clear()


class Paths:
    """The leaves of a tree and the ids they own, with what they cost and the memory of those that went."""

    def __init__(self, tree: PrefixTree, sequence_ids: Sequence[int], *, is_shared: bool) -> None:
        self.leaves: dict[int, Node] = {}
        """By the id whose sequence holds the path to them."""
        self.free = list(reversed(sequence_ids))
        self.resident = 0
        """Tokens that the ids hold: each cell once when shared, each path in full when not."""
        self.blocks_written = 0
        self.blocks_evicted = 0
        self._tree = tree
        self._is_shared = is_shared
        self.evicted = EvictionMemory(tree.block_bytes)

    def holder(self, node: Node) -> int:
        """The id of a path through `node`, which is not the empty root."""
        while node.sequence is None:
            node = next(iter(node.children.values()))
        return node.sequence

    def repeated(self, at: int, *, is_longer: bool) -> int:
        """Tokens that a path must hold a second time: with split KV, all that a new one has in common with others."""
        return 0 if self._is_shared or is_longer else at

    def extend(self, node: Node, key: bytes, slot: int) -> list[SeqOp]:
        """Let the tokens of `key`, which the slot's sequence holds, follow those of `node`.

        Lengthens the path that ends at `node`; where none does, takes a free id (there must be one).
        """
        at = node.stop
        stop = at + len(key) // TOKEN_BYTES
        is_longer = node.sequence is not None
        sequence = node.sequence if node.sequence is not None else self.free.pop()
        ops: list[SeqOp] = []
        if not self._is_shared:
            ops.append(CopyWhole(slot, sequence, stop))
        else:
            if at > 0 and not is_longer:
                ops.append(Copy(self.holder(node), sequence, 0, at))
            ops.append(Copy(slot, sequence, at, stop))
        end = self._tree.grow(node, key, slot if self._is_shared else None)
        node.sequence = None
        end.sequence = sequence
        self.leaves[sequence] = end
        self.resident += stop - at + self.repeated(at, is_longer=is_longer)
        self.blocks_written += len(key) // self._tree.block_bytes
        return ops

    def shrink(self, target: int, *, keep: Node | None = None, pinned: bool = False) -> list[SeqOp]:
        """Cut leaves until at most `target` tokens are resident or none is left that may be cut.

        `keep` is never cut. It was touched last, so it is not merged with a child either, and stays the node it is.
        """
        target = max(target, 0)
        block_tokens = self._tree.block_bytes // TOKEN_BYTES
        trims: dict[int, SeqOp] = {}
        while self.resident > target:
            leaves = [n for n in self.leaves.values() if n is not keep and (pinned or not n.pins)]
            if not leaves:
                break
            leaf = min(leaves, key=_by_last_use)
            n_blocks = -(-(self.resident - target) // block_tokens)
            trim = self._cut(leaf, max(leaf.start, leaf.stop - n_blocks * block_tokens))
            trims[trim.sequence] = trim
        return list(trims.values())

    def free_an_id(self, keep: Node) -> list[SeqOp] | None:
        """Cut the path away whose own nodes were all used longest ago: its id becomes free, or ends at `keep`.

        `None`: every path has a pinned node of its own.
        """
        candidates = [(top, leaf) for leaf in self.leaves.values() if (top := _own_top(leaf, keep)) is not None]
        if not candidates:
            return None
        top, leaf = min(candidates, key=lambda pair: pair[0].used)
        while leaf is not top:
            parent = leaf.parent
            assert parent is not None
            self._cut(leaf, leaf.start)
            leaf = parent
        return [self._cut(top, top.start)]

    def forget(self, sequence: int) -> list[SeqOp]:
        """Cut away what only this path holds, pinned or not."""
        trims: list[SeqOp] = []
        while (leaf := self.leaves.get(sequence)) is not None:
            trims = [self._cut(leaf, leaf.start)]
        return trims

    def _cut(self, leaf: Node, start: int) -> Trim:
        """Take a leaf's blocks from `start` on out of the tree; the id goes back if other paths cover what remains."""
        sequence = leaf.sequence
        assert sequence is not None
        self.evicted.remember(self._tree.prefix_key(leaf), start * TOKEN_BYTES)
        if start > leaf.start:
            self._tree.split(leaf, start)
        parent = self._tree.remove(leaf)
        leaf.sequence = None
        self.blocks_evicted += len(leaf.key) // self._tree.block_bytes
        self.resident -= leaf.n_tokens
        if parent is not self._tree.root and not parent.children:
            parent.sequence = sequence
            self.leaves[sequence] = parent
            return Trim(sequence, start)
        del self.leaves[sequence]
        self.free.append(sequence)
        self.resident -= self.repeated(start, is_longer=False)
        for child in list(parent.children.values()):
            self._tree.merge_with_parent(child)
        return Trim(sequence, 0)

    def check_integrity(self, sequence_ids: frozenset[int]) -> None:
        """Raise `AssertionError` where a law of the ids does not hold."""
        tree = self._tree
        tree.check_integrity()
        law(sequence_ids == {*self.free, *self.leaves}, "every id is free or a path's")
        law(len(sequence_ids) == len(self.free) + len(self.leaves), "no id is both free and a path's")
        law(all(leaf.sequence == i for i, leaf in self.leaves.items()), "a path knows its id")
        ends = {id(node) for node in tree.nodes() if node.sequence is not None}
        law(ends == {id(node) for node in self.leaves.values()}, "paths are the tree's leaves")
        held = tree.n_tokens if self._is_shared else sum(leaf.stop for leaf in self.leaves.values())
        law(self.resident == held, "resident tokens sum over nodes when shared, over paths when not")
        resident_bytes = (self.blocks_written - self.blocks_evicted) * tree.block_bytes
        law(resident_bytes == tree.n_tokens * TOKEN_BYTES, "blocks written are in the tree or evicted")
        law(self._is_shared or tree.n_shared_tokens == 0, "slots pin nothing in a split KV cache")


def _own_top(leaf: Node, keep: Node) -> Node | None:
    """The first node that only this leaf's path holds, short of `keep`. `None`: a slot pins one of them."""
    node = leaf
    while not node.pins:
        parent = node.parent
        assert parent is not None
        if parent.parent is None or parent is keep or len(parent.children) > 1:
            return node
        node = parent
    return None
