"""The prefix cache against a model of the KV cache: whatever happens, sequences hold what the tree says they hold."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stackscope.engine.prefix_cache import Divergence, PrefixCache
from tests.property.kv_model import KvModel

if TYPE_CHECKING:
    from stackscope.engine.prefix_cache import SeqOp

SLOTS = (0, 1, 2, 3)
DOCUMENTS = ([0] * 20, [0] * 10 + [1] * 10, [1, 0] * 10)
prompts = st.builds(
    lambda document, cut, tail: document[:cut] + tail,
    st.sampled_from(DOCUMENTS),
    st.integers(0, 20),
    st.lists(st.integers(0, 1), max_size=8),
)
"""Two tokens only, and beginnings that recur, so that prompts share prefixes of every length."""


def common(left: tuple[int, ...], right: tuple[int, ...]) -> int:
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False)))


class CacheMachine(RuleBasedStateMachine):
    """Slots that are admitted, prefilled, decode, hand their tokens in and end, in any order."""

    unified = True
    guarded = False

    @initialize(block=st.integers(1, 4), n_ids=st.integers(0, 4), capacity=st.none() | st.integers(0, 60))
    def start(self, block: int, n_ids: int, capacity: int | None) -> None:
        self.block = block
        self.ids = frozenset(range(len(SLOTS), len(SLOTS) + n_ids))
        self.guards = {i: i + n_ids for i in self.ids} if self.guarded else {}
        self.owned = self.ids | frozenset(self.guards.values())
        self.capacity = capacity
        self.cache = PrefixCache(
            sorted(self.ids),
            block_tokens=block,
            capacity_tokens=capacity,
            shared=self.unified,
            guard_ids=sorted(self.guards.values()),
        )
        self.kv = KvModel(unified=self.unified)
        self.slots: dict[int, tuple[list[int], list[int]]] = {}
        """Per busy slot, the tokens in the KV cache and those still to be fed."""
        self.once: set[tuple[int, ...]] = set()
        """Every prefix of whole blocks that was cached since the last clear."""
        self.lookups = self.asked = self.hits = self.read = 0
        self.missed_at: int | None = None

    # --- what the machine knows ---------------------------------------------------------------------------------

    def paths(self) -> dict[int, tuple[int, ...]]:
        found = {i: tuple(self.cache.path(i).tolist()) for i in sorted(self.ids)}
        return {i: path for i, path in found.items() if path}

    def whole(self, tokens: list[int], limit: int | None = None) -> tuple[int, ...]:
        n = len(tokens) if limit is None else max(0, min(len(tokens), limit))
        return tuple(tokens[: n // self.block * self.block])

    def cached_prefixes(self) -> set[tuple[int, ...]]:
        return {p[:n] for p in self.paths().values() for n in range(self.block, len(p) + 1, self.block)}

    def expected_hit(self, key: tuple[int, ...]) -> int:
        return max(
            (n for n in range(self.block, len(key) + 1, self.block) if key[:n] in self.cached_prefixes()), default=0
        )

    def pinned(self) -> dict[int, int]:
        return {slot: self.cache.shared_tokens(slot) for slot in self.slots}

    def check_still_pinned(self, before: dict[int, int]) -> None:
        """Making room never takes what a running slot uses."""
        assert all(self.cache.shared_tokens(slot) >= tokens for slot, tokens in before.items())

    def execute(self, ops: list[SeqOp], slot: int | None = None) -> None:
        self.kv.apply(ops, owned=self.owned, slot=slot)
        self.once |= self.cached_prefixes()

    def expected_divergence(self, key: tuple[int, ...], at: int) -> Divergence | None:
        if at == len(key):
            return None
        if key[: at + self.block] in self.once:
            return Divergence(at, "evicted")
        going_on = [p for p in self.paths().values() if p[:at] == key[:at] and len(p) > at]
        if going_on:
            return Divergence(max(common(p, key) for p in going_on), "differs")
        return Divergence(at, "uncached")

    # --- what may happen ----------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.slots) < len(SLOTS))
    @rule(prompt=prompts, limit=st.none() | st.integers(0, 24), as_array=st.booleans(), attached=st.booleans())
    def admit(self, prompt: list[int], limit: int | None, as_array: bool, attached: bool) -> None:
        self.admit_to_slot(prompt, limit, as_array, attached)

    def admit_to_slot(self, prompt: list[int], limit: int | None, as_array: bool, attached: bool) -> int:
        slot = min(set(SLOTS) - self.slots.keys())
        tokens = np.array(prompt, np.int32) if as_array else tuple(prompt)
        key = self.whole(prompt, limit)
        expected = self.expected_hit(key)
        divergence = self.expected_divergence(key, expected)
        assert self.cache.peek(tokens, limit=limit) == expected
        overlaps = {i: common(self.whole(prompt), p) // self.block * self.block for i, p in self.paths().items()}
        found = self.cache.overlaps(tokens)
        assert found == {i: n for i, n in overlaps.items() if n > 0}
        assert list(found.values()) == sorted(found.values(), reverse=True)
        match = self.cache.match(tokens, limit=limit)
        assert match.tokens == expected
        assert match.divergence == self.cache.last_divergence == divergence
        self.lookups, self.asked, self.hits = self.lookups + 1, self.asked + len(key), self.hits + expected
        self.missed_at = None if divergence is None else divergence.position
        if expected:
            assert match.sequence is not None
            assert self.kv.held(match.sequence)[:expected] == prompt[:expected]
        else:
            assert match.sequence is None
        if attached:
            self.execute(self.cache.attach(match, slot), slot)
            self.read += expected // self.block
            self.slots[slot] = (prompt[:expected], prompt[expected:])
        else:
            self.slots[slot] = ([], list(prompt))
        return slot

    @precondition(lambda self: len(self.slots) < len(SLOTS))
    @rule(prompt=prompts, attached=st.booleans(), n_generated=st.integers(0, 5), goes_on=st.booleans())
    def serve(self, prompt: list[int], attached: bool, n_generated: int, goes_on: bool) -> None:
        """The usual life of a request in one go: its prompt is handed in when it is there, all of it at the end."""
        slot = self.admit_to_slot(prompt, max(0, len(prompt) - 1), True, attached)
        held, ahead = self.slots[slot]
        self.feed_slot(slot, len(ahead), [])
        self.insert_tokens(held, slot)
        self.feed_slot(slot, 0, [1] * n_generated)
        if not goes_on:
            self.finish_slot(slot, handed_in=True)

    @precondition(lambda self: self.slots)
    @rule(data=st.data(), n=st.integers(1, 9), generated=st.lists(st.integers(0, 1), min_size=1, max_size=4))
    def feed(self, data: st.DataObject, n: int, generated: list[int]) -> None:
        self.feed_slot(data.draw(st.sampled_from(sorted(self.slots))), n, generated)

    def feed_slot(self, slot: int, n: int, generated: list[int]) -> None:
        """A prefill chunk of at most `n` tokens or, once the prompt is in, generated ones."""
        held, ahead = self.slots[slot]
        new = ahead[:n] or generated
        del ahead[:n]
        self.kv.write(slot, new)
        held += new

    @precondition(lambda self: self.slots)
    @rule(data=st.data(), short=st.integers(0, 3))
    def insert(self, data: st.DataObject, short: int) -> None:
        slot = data.draw(st.sampled_from(sorted(self.slots)))
        held, _ = self.slots[slot]
        self.insert_tokens(held[: len(held) - short] if short else held, slot)

    def insert_tokens(self, tokens: list[int], slot: int) -> None:
        pinned = self.pinned()
        before, declined, written = self.cached_prefixes(), self.cache.declined, self.cache.blocks_written
        ops = self.cache.insert(np.array(tokens, np.int32), slot)
        key = self.whole(tokens)
        self.execute(ops, slot)
        self.check_still_pinned(pinned)
        n_new = self.cache.blocks_written - written
        old = max((n for n in range(self.block, len(key) + 1, self.block) if key[:n] in before), default=0)
        assert self.expected_hit(key) == old + n_new * self.block
        if ops:
            assert n_new > 0
            assert self.cache.declined == declined
        else:
            assert before == self.cached_prefixes()
            assert (self.cache.declined == declined) == (old == len(key))

    @precondition(lambda self: self.slots)
    @rule(data=st.data(), handed_in=st.booleans())
    def finish(self, data: st.DataObject, handed_in: bool) -> None:
        self.finish_slot(data.draw(st.sampled_from(sorted(self.slots))), handed_in)

    def finish_slot(self, slot: int, handed_in: bool) -> None:
        if handed_in:
            self.insert_tokens(self.slots[slot][0], slot)
        self.kv.trim(slot, 0)
        self.cache.release(slot)
        del self.slots[slot]

    @rule(cells=st.integers(0, 40))
    def evict(self, cells: int) -> None:
        pinned = self.pinned()
        before, prefixes = len(self.kv.cells), self.cached_prefixes()
        ops, freed = self.cache.evict(cells)
        self.execute(ops)
        self.check_still_pinned(pinned)
        assert before - len(self.kv.cells) == freed
        if freed < cells:
            assert not any(self.is_evictable(leaf) for leaf in self.paths()), "an idle block was left"
        elif self.unified:
            assert freed < cells + self.block, "more was evicted than asked"
        assert self.cached_prefixes() <= prefixes

    def is_evictable(self, path_id: int) -> bool:
        """Whether the last block of a path occupies cells that nobody else uses."""
        length = len(self.cache.path(path_id))
        last = [c for c in self.kv.cells if path_id in c.tags and c.position >= length - self.block]
        return all(c.tags <= {path_id, self.guards.get(path_id)} for c in last)

    @rule(data=st.data(), kind=st.sampled_from(["capacity", "capacity", "clear", "forget"]))
    def disturb(self, data: st.DataObject, kind: str) -> None:
        if kind == "capacity":
            self.change_capacity(data.draw(st.none() | st.integers(0, 60)))
        elif kind == "clear":
            self.clear()
        elif self.paths():
            self.forget(data.draw(st.sampled_from(sorted(self.paths()))))

    def change_capacity(self, capacity: int | None) -> None:
        self.capacity = capacity
        self.execute(self.cache.set_capacity(capacity))

    def clear(self) -> None:
        self.execute(self.cache.clear())
        assert self.paths() == {}
        self.once.clear()

    def forget(self, path_id: int) -> None:
        self.execute(self.cache.forget(path_id))
        assert path_id not in self.paths()

    # --- what always holds --------------------------------------------------------------------------------------

    @invariant()
    def check_everything(self) -> None:
        self.cache.check_integrity()
        self.sequences_hold_what_they_should()
        self.levels_are_true()
        self.counters_are_true()

    def sequences_hold_what_they_should(self) -> None:
        expected = {i: list(path) for i, path in self.paths().items()}
        expected |= {self.guards[i]: held for i, held in expected.items() if i in self.guards}
        expected |= {slot: held for slot, (held, _) in self.slots.items() if held}
        assert {i: self.kv.held(i) for i in self.kv.sequences()} == expected
        assert self.cache.paths == len(self.paths())
        assert self.cache.free_ids == len(self.ids) - len(self.paths())
        assert all(len(path) % self.block == 0 for path in self.paths().values())

    def levels_are_true(self) -> None:
        assert self.cache.resident_tokens == self.kv.tagged_by(self.ids)
        assert self.cache.cells_exclusive() == self.kv.tagged_only_by(self.owned)
        if self.guarded:
            assert all(len(cell.tags) > 1 for cell in self.kv.cells if cell.tags & self.ids)
        assert self.cache.used_cells(sum(len(held) for held, _ in self.slots.values())) == len(self.kv.cells)
        shared = sum(self.cache.shared_tokens(slot) for slot in self.slots)
        assert self.cache.used_cells(0) == self.cache.cells_held - shared
        if self.capacity is not None:
            assert self.cache.resident_tokens <= self.capacity

    def counters_are_true(self) -> None:
        taken = self.cache.take_counters()
        assert (taken.lookups, taken.lookup_tokens, taken.hit_tokens) == (self.lookups, self.asked, self.hits)
        assert taken.blocks_read == self.read
        assert taken.resident_blocks * self.block == self.cache.resident_tokens
        assert (taken.shared_blocks, taken.missed_at) == (self.expected_shared_blocks(), self.missed_at)
        quiet = self.cache.take_counters()
        assert (quiet.lookups, quiet.missed_at) == (0, None)
        assert (quiet.resident_blocks, quiet.shared_blocks) == (taken.resident_blocks, taken.shared_blocks)
        self.lookups = self.asked = self.hits = self.read = 0
        self.missed_at = None

    def expected_shared_blocks(self) -> int:
        """Distinct beginnings of paths, block by block, that two or more paths have."""
        if not self.unified:
            return 0
        beginnings = Counter(p[:n] for p in self.paths().values() for n in range(self.block, len(p) + 1, self.block))
        return sum(1 for n_paths in beginnings.values() if n_paths > 1)


class GuardedCacheMachine(CacheMachine):
    """The same for a model with sliding windows: every cell of the tree has two tags or more."""

    guarded = True


class SplitCacheMachine(CacheMachine):
    """The same with a stream per sequence: whole copies, nothing shared."""

    unified = False


TestShared = CacheMachine.TestCase
TestShared.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
TestGuarded = GuardedCacheMachine.TestCase
TestGuarded.settings = settings(max_examples=20, stateful_step_count=30, deadline=None)
TestSplit = SplitCacheMachine.TestCase
TestSplit.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)


def random_prompt(rng: random.Random) -> list[int]:
    return rng.choice(DOCUMENTS)[: rng.randint(0, 20)] + [rng.randint(0, 1) for _ in range(rng.randint(0, 8))]


def random_step(machine: CacheMachine, rng: random.Random) -> None:
    """One step of a busy engine: mostly requests, sometimes an operator's hand."""
    busy = sorted(machine.slots)
    kind = rng.choices(("serve", "admit", "feed", "insert", "finish", "evict", "disturb"), (8, 3, 4, 5, 4, 2, 1))[0]
    if kind == "evict":
        machine.evict(rng.randint(0, 20))
    elif kind == "disturb":
        paths = sorted(machine.paths())
        hand = rng.choice(("capacity", "capacity", "clear", "forget"))
        if hand == "capacity":
            machine.change_capacity(rng.choice((None, rng.randint(0, 60))))
        elif hand == "clear":
            machine.clear()
        elif paths:
            machine.forget(rng.choice(paths))
    elif kind in ("serve", "admit"):
        if len(busy) < len(SLOTS):
            prompt, attached = random_prompt(rng), rng.random() < 0.7
            if kind == "serve":
                machine.serve(prompt, attached, rng.randint(0, 5), rng.random() < 0.4)
            else:
                machine.admit_to_slot(prompt, rng.choice((None, rng.randint(0, 24))), rng.random() < 0.5, attached)
    elif busy:
        slot = rng.choice(busy)
        if kind == "feed":
            machine.feed_slot(slot, rng.randint(1, 9), [rng.randint(0, 1) for _ in range(rng.randint(1, 4))])
        elif kind == "insert":
            machine.insert_tokens(machine.slots[slot][0][: rng.randint(0, 40)], slot)
        else:
            machine.finish_slot(slot, rng.random() < 0.7)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("kind", [CacheMachine, GuardedCacheMachine, SplitCacheMachine])
def test_long_lives(kind: type[CacheMachine], seed: int) -> None:
    """The same machine without the generator between its steps, which is ten times as many of them in a second."""
    rng = random.Random(seed)
    machine = kind()
    machine.start(rng.randint(1, 4), rng.randint(1, 4), rng.choice((None, rng.randint(0, 60))))
    for _ in range(120):
        random_step(machine, rng)
        machine.check_everything()
