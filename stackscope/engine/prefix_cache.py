"""The prefix cache: which prompts' KV is kept, under which sequence id, and what goes first when room is short.

Pure policy. It never touches the inference library: every change comes back as sequence operations, to be executed in
order (on the draft model's context too) before the next forward.

The sharing law, for a unified KV cache. A cell holds one token at one position and is tagged with sequence ids; a cell
without a tag is free. Every path of the tree from the root to a leaf owns one id, and that id's sequence holds exactly
the path's tokens at positions 0, 1, 2, …. So the cells of a node are tagged with the ids of all paths through it, and
besides with those of the slots that pin it: slots that attached to it, and the one whose own cells it took over. No
operation tags a cell with an id twice, and no id ever holds a position twice. Hence

    used cells = tokens in all slots + `cells_held` − `shared_tokens` summed over the slots

which `used_cells` computes. A slot's tokens are counted in it from the moment they are in the KV cache.

With split KV every id is a stream of its own: nothing is shared, a path is copied whole to or from a slot, each path
pays for all of its tokens, and slots pin nothing.

Models with sliding windows need guards. llama.cpp gives a cell of a windowed layer away, even while others are free,
once it has a single tag and lies outside that sequence's window: a path that its slot has left would lose all but its
last window without a word. A guard is a second id with its path's tags, so that no cell of the tree has just one.

The same object with no KV cache behind it, its operations thrown away, tells what a cache that is off would have hit.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import numpy as np

from stackscope.engine.prefix_paths import Copy, CopyWhole, Paths, SeqOp, Trim
from stackscope.engine.prefix_tree import TOKEN_BYTES, PrefixTree, law
from stackscope.records import CacheCounters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from stackscope.engine.prefix_tree import Node

    Tokens: TypeAlias = NDArray[np.int32] | Sequence[int]

__all__ = ["Copy", "CopyWhole", "Divergence", "Match", "PrefixCache", "SeqOp", "Trim"]


class Divergence(NamedTuple):
    """Where and why a prompt left what is cached."""

    position: int
    """Of the first token that differs, or of the first block that is not there. Below the block size with `differs`:
    what is shared is too short to be cached."""
    reason: Literal["uncached", "differs", "evicted"]
    """`uncached`: nothing longer is known. `differs`: what is cached goes on with other tokens. `evicted`: the block
    that comes next was cached once."""


class Match(NamedTuple):
    """The longest cached prefix of a prompt."""

    tokens: int
    """Its length, in whole blocks."""
    sequence: int | None
    """A path id that holds it. `None`: no prefix is cached."""
    divergence: Divergence | None
    """`None`: every whole block that was asked for is cached."""
    key: bytes
    """The bytes of its tokens."""


class PrefixCache:
    """A radix tree over token blocks whose paths own sequence ids; least recently used leaves go first."""

    def __init__(
        self,
        sequence_ids: Sequence[int],
        *,
        block_tokens: int = 16,
        capacity_tokens: int | None = None,
        shared: bool = True,
        guard_ids: Sequence[int] = (),
    ) -> None:
        """`sequence_ids` are the cache's alone and hold nothing; `capacity_tokens` as in `set_capacity`.

        `shared` says that the KV cache is unified. `guard_ids`: as many further ids, where it is and the model has
        sliding windows; else none. Raises `ValueError` for numbers that make no sense.
        """
        if block_tokens < 1:
            raise ValueError(f"a block has at least one token, not {block_tokens}")
        owned = (*sequence_ids, *guard_ids)
        if len(set(owned)) != len(owned) or any(i < 0 for i in owned):
            raise ValueError("sequence ids are distinct and not negative")
        if guard_ids and (not shared or len(guard_ids) != len(sequence_ids)):
            raise ValueError("guards go with a unified KV cache, one for each path id")
        self._block_tokens = block_tokens
        self._ids = frozenset(sequence_ids)
        self._guards = dict(zip(sequence_ids, guard_ids, strict=False))
        self._is_shared = shared
        self._capacity = _checked_capacity(capacity_tokens)
        self._tree = PrefixTree(block_tokens)
        self._paths = Paths(self._tree, sequence_ids, is_shared=shared)
        self.last_divergence: Divergence | None = None
        """Of the last `match`. `None`: every whole block that was asked for was cached, or there was no match yet."""
        self.lookups = 0
        self.lookup_tokens = 0
        """Tokens, in whole blocks, that `match` was asked for."""
        self.hit_tokens = 0
        """Tokens that `match` found."""
        self.blocks_read = 0
        """Blocks that slots attached to."""
        self.declined = 0
        """Inserts of something new that found no room for a block."""
        self._taken, self._n_events = self._counts(), 0
        self._quiet: CacheCounters | None = None

    # --- levels and counts ------------------------------------------------------------------------------------------

    @property
    def blocks_written(self) -> int:
        """Blocks that entered the tree so far."""
        return self._paths.blocks_written

    @property
    def blocks_evicted(self) -> int:
        """Blocks that left the tree so far, for whatever reason."""
        return self._paths.blocks_evicted

    @property
    def paths(self) -> int:
        return len(self._paths.leaves)

    @property
    def free_ids(self) -> int:
        return len(self._paths.free)

    @property
    def resident_tokens(self) -> int:
        """Tokens that the path ids hold: each cell once when shared, each path in full when not."""
        return self._paths.resident

    @property
    def resident_blocks(self) -> int:
        return self._paths.resident // self._block_tokens

    @property
    def shared_blocks(self) -> int:
        """Of the resident blocks, those that more than one path runs through; none where each path has its own copy."""
        return self._tree.n_common_tokens // self._block_tokens if self._is_shared else 0

    @property
    def cells_held(self) -> int:
        """Cells with a path's tag, and those that left the tree while several slots go on using them."""
        return self._paths.resident + self._tree.n_orphan_tokens

    def cells_exclusive(self) -> int:
        """Resident tokens that no slot pins: the cells that come free when the whole tree is dropped."""
        return self._tree.n_idle_tokens if self._is_shared else self._paths.resident

    def shared_tokens(self, slot_sequence: int) -> int:
        """Tokens of a slot that lie in cells counted in `cells_held`."""
        return self._tree.shared_tokens(slot_sequence)

    def used_cells(self, slot_tokens: int) -> int:
        """Occupied cells of a unified KV cache whose slots hold `slot_tokens` tokens altogether."""
        return slot_tokens + self._paths.resident + self._tree.n_orphan_tokens - self._tree.n_shared_tokens

    def take_counters(self, *, useful_hit_tokens: int = 0, copied_bytes: int = 0) -> CacheCounters:
        """What was counted since the last call, and the levels now; the engine adds what only it can know."""
        paths = self._paths
        # None of them ever falls, and the others change with them.
        n_events = self.lookups + self.blocks_read + paths.blocks_written + paths.blocks_evicted
        if n_events == self._n_events and useful_hit_tokens == 0 and copied_bytes == 0:
            # Most steps leave the cache alone: they share one record.
            if self._quiet is None:
                self._quiet = CacheCounters(
                    resident_blocks=self.resident_blocks, resident_paths=self.paths, shared_blocks=self.shared_blocks
                )
            return self._quiet
        self._n_events = n_events
        counts = self._counts()
        lookups, lookup_tokens, hits, read, written, evicted = (a - b for a, b in zip(counts, self._taken, strict=True))
        self._taken, self._quiet = counts, None
        return CacheCounters(
            lookups=lookups,
            lookup_tokens=lookup_tokens,
            hit_tokens=hits,
            useful_hit_tokens=useful_hit_tokens,
            blocks_read=read,
            blocks_written=written,
            blocks_evicted=evicted,
            resident_blocks=self.resident_blocks,
            resident_paths=self.paths,
            shared_blocks=self.shared_blocks,
            missed_at=self.last_divergence.position if lookups > 0 and self.last_divergence is not None else None,
            copied_bytes=copied_bytes,
        )

    def _counts(self) -> tuple[int, ...]:
        counts = self.lookups, self.lookup_tokens, self.hit_tokens, self.blocks_read
        return (*counts, self._paths.blocks_written, self._paths.blocks_evicted)

    # --- finding ----------------------------------------------------------------------------------------------------

    def peek(self, tokens: Tokens, *, limit: int | None = None) -> int:
        """Length of the longest cached prefix, in whole blocks. Counts nothing and touches nothing."""
        return self._tree.walk(self._whole_blocks(tokens, limit))[1]

    def idle_part(self, tokens: Tokens) -> int:
        """Cells of the longest cached prefix that no slot pins: of `cells_exclusive`, those that hold it."""
        node, at = self._tree.walk(self._whole_blocks(tokens, None))
        return sum(min(each.stop, at) - each.start for each in node.path() if not each.pins)

    def match(self, tokens: Tokens, *, limit: int | None = None) -> Match:
        """The longest cached prefix of at most `limit` tokens. Touches it, but does not pin it: see `attach`."""
        key = self._whole_blocks(tokens, limit)
        node, at = self._tree.walk(key)
        self.last_divergence = divergence = self._diverged(node, at, key)
        node = self._ending_at(node, at)
        self._tree.touch(node)
        self.lookups += 1
        self.lookup_tokens += len(key) // TOKEN_BYTES
        self.hit_tokens += at
        return Match(at, self._paths.holder(node) if at > 0 else None, divergence, key[: at * TOKEN_BYTES])

    def overlaps(self, tokens: Tokens) -> dict[int, int]:
        """The paths that begin as `tokens` do: how many tokens each has in common with them, those with most first."""
        node, at = self._tree.walk(self._whole_blocks(tokens, None))
        found: dict[int, int] = {}
        for each in node.path():
            for path in self._tree.ends_below(each):
                found.setdefault(path, min(at, each.stop))
        return found

    def guard(self, path: int) -> int | None:
        """The second id of a path. `None`: it needs none."""
        return self._guards.get(path)

    def path(self, sequence: int) -> NDArray[np.int32]:
        """The tokens that a path id holds; none for an id that is free."""
        leaf = self._paths.leaves.get(sequence)
        return np.frombuffer(b"" if leaf is None else self._tree.prefix_key(leaf), np.int32)

    def _diverged(self, node: Node, at: int, key: bytes) -> Divergence | None:
        if at * TOKEN_BYTES == len(key):
            return None
        if key[: (at + self._block_tokens) * TOKEN_BYTES] in self._paths.evicted:
            return Divergence(at, "evicted")
        position = self._tree.parting(node, at, key)
        return Divergence(at, "uncached") if position is None else Divergence(position, "differs")

    def _ending_at(self, node: Node, at: int) -> Node:
        """The node that ends at `at` once `node`, as `walk` gave it, has been split there if need be."""
        return node if at == node.stop else self._tree.split(node, at)

    def _whole_blocks(self, tokens: Tokens, limit: int | None) -> bytes:
        n_tokens = len(tokens) if limit is None else max(0, min(len(tokens), limit))
        whole = tokens[: n_tokens // self._block_tokens * self._block_tokens]
        if isinstance(whole, np.ndarray):
            return whole.astype(np.int32, copy=False).tobytes()
        return array("i", whole).tobytes()

    # --- slots ------------------------------------------------------------------------------------------------------

    def attach(self, match: Match, slot_sequence: int) -> list[SeqOp]:
        """Give a slot, whose sequence is empty, the prefix that was found, and pin it until `release`.

        Attach before anything that may evict (`evict`, `insert`, `set_capacity`, `clear`, `forget`). Raises
        `ValueError` when the prefix has gone since, or when the slot was not released.
        """
        self._check_slot(slot_sequence)
        if self._tree.is_pinning(slot_sequence):
            raise ValueError(f"slot sequence {slot_sequence} was not released")
        if match.tokens == 0:
            return []
        node, at = self._tree.walk(match.key)
        if at != match.tokens:
            raise ValueError(f"{match.tokens - at} tokens of the match were evicted before it was attached")
        node = self._ending_at(node, at)
        self.blocks_read += at // self._block_tokens
        if not self._is_shared:
            return [CopyWhole(self._paths.holder(node), slot_sequence, at)]
        self._tree.pin(node, slot_sequence)
        return [Copy(self._paths.holder(node), slot_sequence, 0, at)]

    def release(self, slot_sequence: int) -> None:
        """A slot's sequence was emptied by the engine: what it shared is the tree's alone again."""
        self._tree.unpin(slot_sequence)

    def insert(self, tokens: Tokens, slot_sequence: int) -> list[SeqOp]:
        """Keep the whole blocks of `tokens`, all of which the slot's sequence holds from position 0 on.

        What the tree has already stays as it is; the slot's own cells serve for the rest. A path that ends where the
        new tokens begin is lengthened; otherwise they take a free id or, when there is none, that of the path whose
        own part was used longest ago, if no slot pins it. What exceeds the capacity is left out. `[]` when there is
        nothing new, and when not one block finds room, which counts as declined.
        """
        self._check_slot(slot_sequence)
        key = self._whole_blocks(tokens, None)
        node, at = self._tree.walk(key)
        node = self._ending_at(node, at)
        self._tree.touch(node)
        total = len(key) // TOKEN_BYTES
        if at == total:
            return []
        room = self._room_for(node, at, total, slot_sequence)
        if room is None:
            self.declined += 1
            return []
        trims, stop = room
        tail = key[at * TOKEN_BYTES : stop * TOKEN_BYTES]
        return self._guarded(trims + self._paths.extend(node, tail, slot_sequence))

    def _room_for(self, node: Node, at: int, total: int, slot: int) -> tuple[list[SeqOp], int] | None:
        """Make room for tokens `at` to `total` after `node`: the operations, and the position up to which they fit.

        `None`: not one block fits, and nothing was evicted.
        """
        paths, capacity, block = self._paths, self._capacity, self._block_tokens
        # Cells that left the tree with several users have no owner who could hand them in again.
        if self._tree.has_orphans(slot):
            return None
        trims: list[SeqOp] = []
        if node.sequence is None and not paths.free:
            freed = paths.free_an_id(node)
            if freed is None:
                return None
            trims += freed
        if capacity is None:
            return trims, total
        repeated = paths.repeated(at, is_longer=node.sequence is not None)
        trims += paths.shrink(capacity - (total - at) - repeated, keep=node)
        # The last path beyond `node` may have gone just now, and its id ends here.
        repeated = paths.repeated(at, is_longer=node.sequence is not None)
        fits = (capacity - paths.resident - repeated) // block * block
        if fits > 0:
            return trims, min(total, at + fits)
        assert not trims
        return None

    def _check_slot(self, sequence: int) -> None:
        if sequence in self._ids or sequence in self._guards.values():
            raise ValueError(f"sequence {sequence} belongs to the cache, not to a slot")

    # --- giving up --------------------------------------------------------------------------------------------------

    def evict(self, cells: int) -> tuple[list[SeqOp], int]:
        """Free at least `cells` cells if that can be, from the tail of the least recently used unpinned leaf first.

        Returns the operations and how many cells become free. With split KV they are free in their own streams only.
        """
        before = self._paths.resident
        trims = self._paths.shrink(before - cells)
        return self._guarded(trims), before - self._paths.resident

    def set_capacity(self, tokens: int | None) -> list[SeqOp]:
        """Hold at most this many tokens from now on, pinned ones included; `None` leaves the limit to `evict`.

        Idle prefixes go first. If pinned ones are still too many they leave the tree too: their slots keep the cells.
        """
        self._capacity = _checked_capacity(tokens)
        if self._capacity is None:
            return []
        return self._guarded(self._paths.shrink(self._capacity) + self._paths.shrink(self._capacity, pinned=True))

    def clear(self) -> list[SeqOp]:
        """Drop every path, and the memory of evictions. Slots go on with the cells they have."""
        trims = self._paths.shrink(0) + self._paths.shrink(0, pinned=True)
        self._paths.evicted.clear()
        return self._guarded(trims)

    def forget(self, sequence: int) -> list[SeqOp]:
        """Drop what only this path holds, pinned or not: for a path whose KV turns out to be incomplete."""
        return self._guarded(self._paths.forget(sequence))

    def _guarded(self, ops: list[SeqOp]) -> list[SeqOp]:
        """The operations, each followed by the same on the guard of the path it changes."""
        if not self._guards:
            return ops
        both: list[SeqOp] = []
        for op in ops:
            both.append(op)
            if isinstance(op, Trim):
                both.append(Trim(self._guards[op.sequence], op.start))
            else:
                both.append(op._replace(target=self._guards[op.target]))
        return both

    def check_integrity(self) -> None:
        """Raise `AssertionError` where a conservation law does not hold. For tests, and when the engine is idle."""
        self._paths.check_integrity(self._ids)
        law(self._capacity is None or self._paths.resident <= self._capacity, "the capacity is kept")


def _checked_capacity(tokens: int | None) -> int | None:
    if tokens is not None and tokens < 0:
        raise ValueError(f"a capacity is not negative: {tokens}")
    return tokens
