"""What the draft's context holds of slots and cached paths, against a model of its KV: their own tokens, each once."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple, cast

import pytest

from stackscope.engine.memory import Memory
from stackscope.engine.prefix_cache import Copy, CopyWhole
from stackscope.engine.residents import Residents
from stackscope.engine.sequence import Sequence
from stackscope.toggles import EngineConfig
from stackscope.workload.jobs import Job
from tests.property.kv_model import KvModel

if TYPE_CHECKING:
    from stackscope.engine.backend import Backend
    from stackscope.engine.memory import Cells
    from stackscope.engine.sizing import ContextSize

N_SLOTS, N_PATHS, MOST_TOKENS = 4, 3, 60
DOCUMENTS = ([1] * 30, [1] * 12 + [2] * 18, [2, 1] * 15)


class Range(NamedTuple):
    first: int
    last: int


class ModelCells:
    """A context's memory that checks every operation."""

    def __init__(self, size: ContextSize) -> None:
        self.size = size
        self.kv = KvModel(unified=size.is_unified)

    def remove(self, sequence: int, start: int, stop: int = -1) -> bool:
        assert stop == -1
        self.kv.trim(sequence, start)
        return True

    def copy(self, source: int, target: int, start: int, stop: int) -> None:
        owned = frozenset((source, target))
        if self.size.is_unified:
            self.kv.apply([Copy(source, target, start, stop)], owned=owned)
        else:
            assert (start, stop) == (-1, -1)
            self.kv.apply([CopyWhole(source, target, len(self.kv.held(source)))], owned=owned)

    def range_of(self, sequence: int) -> Range:
        held = [cell.position for cell in self.kv.cells if sequence in cell.tags]
        return Range(min(held, default=-1), max(held, default=-1))


class Bench:
    """Slots whose requests prefill, draft, decode and end, in both contexts."""

    def __init__(self, *, unified: bool, guarded: bool, block: int, capacity: int | None) -> None:
        n_ids = N_SLOTS + N_PATHS * (2 if guarded else 1)
        size = SimpleNamespace(
            n_seq_max=n_ids,
            n_ctx=10_000,
            is_unified=unified,
            path_ids=range(N_SLOTS, N_SLOTS + N_PATHS),
            guard_ids=range(N_SLOTS + N_PATHS, n_ids),
            has_guards=guarded,
        )
        sized = cast("ContextSize", size)
        self.target, self.draft = ModelCells(sized), ModelCells(sized)
        self.memory = Memory(cast("Cells", self.target), cast("Cells", self.draft), kv_cell_bytes=1, draft_cell_bytes=1)
        spec = SimpleNamespace(layers=[SimpleNamespace(window=8 if guarded else None)])
        backend = SimpleNamespace(memory=self.memory, size=size, spec=spec)
        self.config = EngineConfig(block_tokens=block, cache_tokens=capacity)
        self.residents = Residents(cast("Backend", backend), self.config)
        self.size = sized
        self.running: dict[int, Sequence] = {}
        self.n_computed = 0
        """Tokens that the draft's context was fed."""

    def admit(self, tokens: list[int]) -> Sequence:
        slot = next(slot for slot in range(N_SLOTS) if slot not in self.running)
        job = Job(id=0, tokens=tuple(tokens), max_tokens=MOST_TOKENS, arrived_ns=0)
        sequence = Sequence(job, max_context=1_000, piece=lambda _: b"", keep_text=False)
        sequence.slot = slot
        self.residents.attach(sequence)
        self.running[slot] = sequence
        return sequence

    def prefill(self, sequence: Sequence, n: int) -> None:
        new = sequence.tokens[sequence.kv : min(sequence.kv + n, sequence.n)].tolist()
        self.target.kv.write(sequence.slot, new)
        sequence.kv += len(new)
        self.memory.length[sequence.slot] = sequence.kv

    def decode(self, sequence: Sequence, token: int) -> None:
        self.prefill(sequence, MOST_TOKENS)
        if sequence.n < sequence.max_n:
            sequence.tokens[sequence.n] = token
            sequence.n += 1

    def catch_up(self, sequence: Sequence, n: int) -> None:
        """As the draft model does it: borrow, compute what is missing, lend."""
        self.residents.borrow_draft(sequence)
        held = self.memory.draft_length[sequence.slot]
        new = sequence.tokens[held : min(held + n, sequence.kv)].tolist()
        self.draft.kv.write(sequence.slot, new)
        self.memory.draft_length[sequence.slot] += len(new)
        self.n_computed += len(new)
        self.residents.lend_draft(sequence)

    def end(self, sequence: Sequence) -> None:
        self.residents.remember_all(sequence)
        self.residents.release(sequence)
        del self.running[sequence.slot]

    def expected(self) -> dict[int, list[int]]:
        """The tokens that each id stands for."""
        cache = self.residents.cache
        found = {path: cache.path(path).tolist() for path in self.size.path_ids}
        found |= {guard: found[path] for path in self.size.path_ids if (guard := cache.guard(path)) is not None}
        return found | {slot: s.tokens[: s.kv].tolist() for slot, s in self.running.items()}

    def check(self) -> None:
        for sequence, tokens in self.expected().items():
            held = self.draft.kv.held(sequence)
            assert self.target.kv.held(sequence) == tokens
            assert held == tokens[: self.memory.draft_length[sequence]]
            assert len(held) == self.memory.draft_length[sequence]
        lengths = self.memory.draft_length
        pairs = zip(self.size.path_ids, self.size.guard_ids, strict=False)
        assert all(lengths[path] == lengths[guard] for path, guard in pairs)


def random_step(bench: Bench, rng: random.Random) -> None:
    kinds = ("admit", "prefill", "decode", "catch_up", "remember", "end", "evict", "room", "off")
    kind = rng.choices(kinds, (6, 4, 6, 10, 5, 3, 2, 0.5, 0.3))[0]
    residents = bench.residents
    if kind == "admit":
        if len(bench.running) < N_SLOTS:
            bench.admit(rng.choice(DOCUMENTS)[: rng.randint(1, 30)] + rng.choices((1, 2), k=rng.randint(1, 6)))
    elif kind == "evict":
        residents.evict(rng.randint(1, 20))
    elif kind == "room":
        residents.make_draft_room(list(bench.running.values()))
    elif kind == "off":
        residents.reconfigure(EngineConfig(prefix_cache=False))
        residents.reconfigure(bench.config)
    elif bench.running:
        sequence = rng.choice(list(bench.running.values()))
        if kind == "prefill":
            bench.prefill(sequence, rng.randint(1, 20))
        elif kind == "decode":
            bench.decode(sequence, rng.choice((1, 2)))
        elif kind == "catch_up":
            bench.catch_up(sequence, rng.randint(0, 40))
        elif kind == "remember":
            residents.remember_all(sequence)
        else:
            bench.end(sequence)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("kind", ["unified", "guarded", "split"])
def test_every_id_has_its_own_tokens_whatever_was_lent_and_borrowed(kind: str, seed: int) -> None:
    rng = random.Random(seed)
    bench = Bench(
        unified=kind != "split",
        guarded=kind == "guarded",
        block=rng.randint(1, 4),
        capacity=rng.choice((None, rng.randint(0, 60))),
    )
    for _ in range(150):
        random_step(bench, rng)
        bench.check()


@pytest.mark.parametrize("unified", [True, False])
def test_a_prefix_that_was_cached_before_drafting_is_computed_once(unified: bool) -> None:
    """Requests share in the target what the draft's context lacks: the first one computes it, the others borrow."""
    bench = Bench(unified=unified, guarded=False, block=2, capacity=None)
    first = bench.admit([*DOCUMENTS[0], 5])
    bench.prefill(first, MOST_TOKENS)
    bench.end(first)
    requests = [bench.admit([*DOCUMENTS[0], token, token]) for token in (6, 7, 8)]
    for sequence in requests:
        bench.prefill(sequence, MOST_TOKENS)
        bench.catch_up(sequence, MOST_TOKENS)
    bench.check()
    assert bench.n_computed == 30 + 3 * 2
    if unified:
        assert len(bench.draft.kv.cells) == len(bench.target.kv.cells)
    for sequence in requests:
        bench.end(sequence)
    # What they lent stays: the next request finds it.
    later = bench.admit([*DOCUMENTS[0], 9])
    assert bench.memory.draft_length[later.slot] == 30


def test_making_room_keeps_what_running_requests_hold() -> None:
    bench = Bench(unified=True, guarded=True, block=2, capacity=None)
    for document in DOCUMENTS[1:]:
        gone = bench.admit([*document, 5])
        bench.prefill(gone, MOST_TOKENS)
        bench.catch_up(gone, MOST_TOKENS)
        bench.end(gone)
    running = bench.admit([*DOCUMENTS[1], 5])
    bench.prefill(running, MOST_TOKENS)
    bench.catch_up(running, MOST_TOKENS)
    assert len(bench.draft.kv.cells) == 61
    bench.residents.make_draft_room([running])
    bench.check()
    assert len(bench.draft.kv.cells) == 31
    assert sorted(n for n in bench.memory.draft_length if n > 0) == [30, 30, 31]  # a path, its guard and the slot


def test_what_a_window_has_lost_is_not_borrowed() -> None:
    """A draft model with a window of 8 tokens: its context has given away the beginning of a path."""
    bench = Bench(unified=True, guarded=False, block=2, capacity=None)
    draft = bench.draft
    memory = Memory(
        cast("Cells", bench.target), cast("Cells", draft), kv_cell_bytes=1, draft_cell_bytes=1, draft_window=8
    )
    draft.kv.write(N_SLOTS, range(20))
    memory.draft_length[N_SLOTS] = 20
    draft.kv.cells = [cell for cell in draft.kv.cells if cell.position >= 6]
    assert [memory.usable_draft(N_SLOTS, stop) for stop in (30, 20, 14, 13, 0)] == [20, 20, 14, 0, 0]
    memory.extend_draft(N_SLOTS, 0, 13)
    assert memory.draft_length[0] == 0
