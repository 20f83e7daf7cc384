"""Who holds which cells of the KV cache: slots and cached prefixes, the room that is left, and how room is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackscope.engine.prefix_cache import Divergence, PrefixCache
from stackscope.engine.scheduler import Plan, SlotView, admissions, plan_step
from stackscope.engine.sequence import are_plain
from stackscope.engine.sizing import smallest_window

if TYPE_CHECKING:
    from collections.abc import Sequence as Many

    from stackscope.engine.backend import Backend
    from stackscope.engine.sequence import Sequence
    from stackscope.records import CacheCounters
    from stackscope.toggles import EngineConfig

EVICTED_SHARE: Final = 16
"""Cells are evicted by this part of the context at least: with a full cache every step would have to choose what goes,
which takes 50 µs. The library's own work, 0.2 µs a cell, is the same in one go or many."""


class Residents:
    """The prefix cache joined to the memory that it rules.

    With a unified cache all sequences draw on the same cells. With split KV each sequence has a stream of its own, of
    `n_ctx_seq` cells, and room is never short below a request's own limit.
    """

    def __init__(self, backend: Backend, config: EngineConfig) -> None:
        self._memory = backend.memory
        self._size = backend.size
        self._is_on = config.prefix_cache
        self._useful_hit_tokens = 0
        self._copied_seen = 0
        self.cache = PrefixCache(
            list(backend.size.path_ids),
            block_tokens=config.block_tokens,
            capacity_tokens=config.cache_tokens,
            shared=backend.size.is_unified,
            guard_ids=list(backend.size.guard_ids),
        )
        self._window = smallest_window(backend.spec) if backend.size.has_guards else None
        """The library may give away a slot's cells that lie this far back, until the cache shares them."""

    def reconfigure(self, config: EngineConfig) -> None:
        """Follow the live settings: switched off, the cache gives back everything it holds."""
        self._is_on = config.prefix_cache
        if not config.prefix_cache:
            self._memory.apply(self.cache.clear())
        self._memory.apply(self.cache.set_capacity(config.cache_tokens))

    @property
    def last_divergence(self) -> Divergence | None:
        """Where the last prompt left what was cached."""
        return self.cache.last_divergence

    @property
    def is_windowed(self) -> bool:
        """Running requests are to be offered to the cache as they grow (`remember_progress`)."""
        return self._window is not None

    # Room

    def cells_used(self, running: Many[Sequence]) -> int:
        """Occupied cells, cached prefixes included."""
        held = sum([s.kv for s in running])
        if not self._size.is_unified:
            return held + self.cache.resident_tokens
        return self.cache.used_cells(held)

    def free_cells(self, running: Many[Sequence]) -> int | None:
        """Cells that nobody holds. `None`: room is not shared (split KV), so it cannot run short."""
        return self._size.n_ctx - self.cells_used(running) if self._size.is_unified else None

    def evict(self, cells: int) -> int:
        """Give up cached prefixes until `cells` more are free, or none is left; how many became free."""
        ops, freed = self.cache.evict(cells)
        self._memory.apply(ops)
        return freed

    def admits(self, sequence: Sequence, running: Many[Sequence]) -> bool:
        """Whether there is room for all of a request's tokens so far, counting what the cache could give up.

        The first is always admitted: nothing else would make room for it.
        """
        free = self.free_cells(running)
        if free is None or not running:
            return True
        prompt = sequence.tokens[: sequence.n - 1]
        hit = self.cache.peek(prompt) if self._is_on else 0
        owed = sum([s.n - s.kv for s in running if not s.is_decoding])
        # What is hit cannot be evicted to make room for the rest.
        free += self.cache.cells_exclusive() - (self.cache.idle_part(prompt) if hit > 0 else 0)
        need = sequence.n + 1 - hit
        return admissions([need], free_slots=1, free_cells=free, n_running=len(running), owed_cells=owed) == 1

    def plan(self, running: list[Sequence], token_budget: int, cursor: int) -> tuple[Plan, int | None]:
        """The next forward's rows, after evicting what it needs room for, and the slot that must give way, if any.

        A lone sequence that must give way has filled the context.
        """
        free = self.free_cells(running)
        n = len(running)
        if n <= token_budget and (free is None or n <= free) and are_plain(running):
            # One row for each: most steps are like that, and this is what `plan_step` answers, in a third of the time.
            return Plan([(s.slot, 0) for s in running], [], cursor=cursor), None
        if n == 1 and not running[0].is_decoding:
            # So do those in the middle of a lone prompt.
            chunk = min(running[0].pending, token_budget)
            if free is None or chunk <= free:
                return Plan([], [(running[0].slot, chunk)], cursor=cursor), None
        views = [
            SlotView(s.slot, s.order, s.n - s.kv, True, s.want)
            if s.is_decoding
            else SlotView(s.slot, s.order, s.n - s.kv, False)
            for s in running
        ]
        while True:
            plan = plan_step(views, token_budget=token_budget, free_cells=self.free_cells(running), cursor=cursor)
            if plan.need_cells == 0:
                return plan, None
            # In one go for the prompts in work, whose cells will be needed anyway.
            lacking = sum([s.n - s.kv for s in running if not s.is_decoding]) - (free or 0)
            if self.evict(max(plan.need_cells, lacking, self._size.n_ctx // EVICTED_SHARE)) == 0:
                return plan, running[0].slot if plan.is_stuck else plan.preempt

    # Prefixes

    def attach(self, sequence: Sequence) -> None:
        """Start a slot with the longest cached prefix; the last token is always computed, its logits are needed."""
        if not self._is_on:
            return
        match = self.cache.match(sequence.tokens[: sequence.n], limit=sequence.n - 1)
        while match.sequence is not None and not self._is_whole(match.sequence, match.tokens):
            self._memory.apply(self.cache.forget(match.sequence))
            match = self.cache.match(sequence.tokens[: sequence.n], limit=sequence.n - 1)
        self._memory.apply(self.cache.attach(match, sequence.slot))
        sequence.kv = sequence.remembered = match.tokens
        self._useful_hit_tokens += max(0, match.tokens - sequence.prefilled)

    def _is_whole(self, path: int, tokens: int) -> bool:
        """Whether the window layers still have what comes after `tokens` tokens of a path would look back to."""
        return self._window is None or self._memory.first_position(path) <= max(0, tokens - self._window)

    def remember_progress(self, sequence: Sequence, *, is_prefilled: bool) -> None:
        """Offer what a running request holds, when it has just prefilled its prompt: others can then share it.

        Window layers need it oftener, before the library takes cells for itself that only the slot holds. With split
        KV it would cost a real copy, so there only finished requests are kept.
        """
        if not self._is_on or not self._size.is_unified:
            return
        is_due = self._window is not None and sequence.kv - sequence.remembered >= self._window // 2
        if is_prefilled or is_due:
            self.remember_all(sequence)

    def remember_all(self, sequence: Sequence) -> None:
        """Offer everything that a request holds."""
        if self._is_on and sequence.kv > 0:
            self._memory.apply(self.cache.insert(sequence.tokens[: sequence.kv], sequence.slot))
            sequence.remembered = sequence.kv
            self.lend_draft(sequence)

    # What the draft model's context has of prefixes. It may be less than the target's: of what was cached before
    # drafting began, it has nothing. So whoever computes it lends it to the cache, from which others borrow.

    def lend_draft(self, sequence: Sequence) -> None:
        """Let the cached path that is most like a sequence have what the draft's context holds of it."""
        if self._memory.draft_length[sequence.slot] == 0:
            return
        path, common = next(iter(self.cache.overlaps(sequence.tokens[: sequence.kv]).items()), (None, 0))
        if path is None:
            return
        self._memory.extend_draft(sequence.slot, path, common)
        guard = self.cache.guard(path)
        if guard is not None:
            self._memory.extend_draft(sequence.slot, guard, common)

    def borrow_draft(self, sequence: Sequence) -> None:
        """Take over what the draft's context holds of the cached path that has most of a sequence's beginning."""
        usable = self._memory.usable_draft
        overlaps = self.cache.overlaps(sequence.tokens[: sequence.kv])
        if overlaps:
            path = max(overlaps, key=lambda path: usable(path, overlaps[path]))
            self._memory.extend_draft(path, sequence.slot, overlaps[path])

    def lends_beyond(self, sequence: Sequence, held: int) -> bool:
        """Whether the cache has a path through which a sequence could borrow more than its first `held` tokens."""
        return self.cache.peek(sequence.tokens[: sequence.kv]) > held

    def make_draft_room(self, running: Many[Sequence]) -> None:
        """Have the draft's context keep of cached paths only what running requests hold as well."""
        self._memory.forget_cached_drafts()
        for sequence in running:
            self.lend_draft(sequence)

    def release(self, sequence: Sequence) -> None:
        """Empty a slot; cells that the cache shares stay."""
        self._memory.trim(sequence.slot, 0)
        self.cache.release(sequence.slot)

    def take_counters(self) -> CacheCounters:
        """What the cache did since the last call."""
        copied = self._memory.copied_bytes - self._copied_seen
        self._copied_seen += copied
        useful, self._useful_hit_tokens = self._useful_hit_tokens, 0
        return self.cache.take_counters(useful_hit_tokens=useful, copied_bytes=copied)
