"""Scheduler and prefix cache in a simulated engine: whatever arrives, every request ends, whole and in order."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stackscope.engine.prefix_cache import PrefixCache
from stackscope.engine.scheduler import FORWARD_LIMIT_NS, BudgetGovernor, SlotView, admissions, plan_step
from tests.property.kv_model import KvModel

if TYPE_CHECKING:
    from stackscope.engine.scheduler import Plan


@dataclass(eq=False)
class Request:
    """A prompt, and the output that the model would give: tokens[:kv] are in the KV cache."""

    tokens: list[int]
    output: deque[int]
    emitted: list[int] = field(default_factory=list)
    kv: int = 0
    slot: int = -1
    order: int = -1
    hungry: int = 0
    """Steps in a row in which it decoded and got no row though cells were there."""

    @property
    def is_decoding(self) -> bool:
        return bool(self.emitted) and len(self.tokens) - self.kv == 1


@dataclass
class Setting:
    n_slots: int
    n_ctx: int
    budget: int
    n_ids: int
    block: int
    max_drafts: int
    whole: int | None
    seed: int


class Engine:
    """Executes plans on the KV model. Every forward is checked against what the plan promised."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.rng = random.Random(setting.seed)
        self.ids = frozenset(range(setting.n_slots, setting.n_slots + setting.n_ids))
        self.cache = PrefixCache(sorted(self.ids), block_tokens=setting.block)
        self.kv = KvModel(unified=True)
        self.queue: deque[Request] = deque()
        self.running: list[Request] = []
        self.done: list[tuple[Request, str]] = []
        self.n_admissions = 0
        self.cursor = -1
        self.without_prefill = 0
        """Steps in a row in which a prefill waited and none got a row though cells were there."""

    @property
    def free_cells(self) -> int:
        used = self.cache.used_cells(sum(r.kv for r in self.running))
        assert used == len(self.kv.cells)
        return self.setting.n_ctx - used

    def admit(self) -> None:
        count = admissions(
            [len(r.tokens) for r in self.queue],
            free_slots=self.setting.n_slots - len(self.running),
            free_cells=self.free_cells + self.cache.cells_exclusive(),
            n_running=len(self.running),
            owed_cells=sum(len(r.tokens) - r.kv for r in self.running),
        )
        for _ in range(count):
            request = self.queue.popleft()
            request.slot = min(set(range(self.setting.n_slots)) - {r.slot for r in self.running})
            request.order = self.n_admissions
            self.n_admissions += 1
            match = self.cache.match(request.tokens, limit=len(request.tokens) - 1)
            self.kv.apply(self.cache.attach(match, request.slot), owned=self.ids, slot=request.slot)
            request.kv = match.tokens
            self.running.append(request)

    def leave(self, request: Request) -> None:
        self.kv.trim(request.slot, 0)
        self.cache.release(request.slot)
        self.running.remove(request)
        request.kv, request.slot, request.hungry = 0, -1, 0

    def keep(self, request: Request) -> None:
        tokens = np.array(request.tokens[: request.kv], np.int32)
        self.kv.apply(self.cache.insert(tokens, request.slot), owned=self.ids, slot=request.slot)

    def view(self, request: Request) -> SlotView:
        drafts = self.rng.randint(0, self.setting.max_drafts) if request.is_decoding else 0
        return SlotView(request.slot, request.order, len(request.tokens) - request.kv, request.is_decoding, drafts)

    def plan(self) -> Plan:
        while True:
            views = [self.view(r) for r in self.running]
            self.rng.shuffle(views)
            free = self.free_cells
            plan = plan_step(
                views,
                token_budget=self.setting.budget,
                free_cells=free,
                whole_prefill_rows=self.setting.whole,
                cursor=self.cursor,
            )
            self.check(plan, {view.index: view for view in views}, free)
            if plan.need_cells:
                ops, freed = self.cache.evict(plan.need_cells)
                self.kv.apply(ops, owned=self.ids)
                if freed:
                    continue
            if plan.preempt is None:
                self.cursor = plan.cursor
                return plan
            victim = next(r for r in self.running if r.slot == plan.preempt)
            assert victim.order == max(r.order for r in self.running) > min(r.order for r in self.running)
            self.leave(victim)
            self.queue.appendleft(victim)

    def check(self, plan: Plan, views: dict[int, SlotView], free: int) -> None:
        limit = self.setting.budget if self.setting.whole is None else max(self.setting.budget, self.setting.whole)
        assert plan.rows <= min(limit, free)
        assert len(plan.decode) + sum(n for _, n in plan.decode) <= self.setting.budget
        indices = [i for i, _ in plan.decode] + [i for i, _ in plan.prefill]
        assert len(indices) == len(set(indices))
        assert all(views[i].is_decoding and 0 <= n <= views[i].drafts for i, n in plan.decode)
        assert all(not views[i].is_decoding and 0 < n <= views[i].remaining for i, n in plan.prefill)
        for part in (plan.decode, plan.prefill):
            orders = [views[i].order for i, _ in part]
            assert orders == sorted(orders)
        by_age = sorted((v for v in views.values() if not v.is_decoding), key=lambda v: v.order)
        assert [i for i, _ in plan.prefill] == [v.index for v in by_age[: len(plan.prefill)]]
        assert all(n == views[i].remaining for i, n in plan.prefill[:-1]), "a younger prompt overtook an older one"
        is_decoding_all = len(plan.decode) == sum(1 for v in views.values() if v.is_decoding)
        if any(n > 0 for _, n in plan.decode):
            assert is_decoding_all, "someone drafts while another has no row"
        if self.setting.whole is not None:
            assert all(n == views[i].remaining for i, n in plan.prefill[1:]), "a prompt was cut for no need"

    def execute(self, plan: Plan) -> None:
        by_slot = {r.slot: r for r in self.running}
        cells_were_there = plan.need_cells == 0
        served = {i for i, _ in plan.decode}
        for request in self.running:
            waits = cells_were_there and request.is_decoding and request.slot not in served
            request.hungry = request.hungry + 1 if waits else 0
            assert request.hungry <= 2 * self.setting.n_slots, "a decoding slot starves"
        prefill_waits = any(not r.is_decoding for r in self.running)
        self.without_prefill = (
            self.without_prefill + 1 if cells_were_there and prefill_waits and not plan.prefill else 0
        )
        assert self.without_prefill <= 2 * self.setting.n_slots, "prefill starves"
        for slot, n_drafts in plan.decode:
            self.decode(by_slot[slot], n_drafts)
        for slot, n in plan.prefill:
            request = by_slot[slot]
            self.kv.write(slot, request.tokens[request.kv : request.kv + n])
            request.kv += n
            if request.kv == len(request.tokens):
                self.emit(request, 1)
                if request.slot >= 0 and self.rng.random() < 0.7:
                    self.keep(request)

    def decode(self, request: Request, n_drafts: int) -> None:
        """One row and the drafts, of which the model's own tokens are kept."""
        n_accepted = self.rng.randint(0, min(n_drafts, len(request.output) - 1))
        drafts = [request.output[i] for i in range(n_accepted)] + [7] * (n_drafts - n_accepted)
        self.kv.write(request.slot, [request.tokens[request.kv], *drafts])
        request.kv += 1 + n_accepted
        self.kv.trim(request.slot, request.kv)
        self.emit(request, 1 + n_accepted)

    def emit(self, request: Request, n: int) -> None:
        new = [request.output.popleft() for _ in range(n)]
        request.emitted += new
        request.tokens += new
        if not request.output:
            self.finish(request, "length")

    def finish(self, request: Request, reason: str) -> None:
        self.keep(request)
        self.leave(request)
        self.done.append((request, reason))

    def step(self) -> None:
        self.admit()
        plan = self.plan()
        if plan.is_stuck:
            (alone,) = self.running
            assert alone.kv == self.setting.n_ctx, "a request was ended with cells to be had"
            self.finish(alone, "context")
        self.execute(plan)
        self.cache.check_integrity()


settings_of_an_engine = st.builds(
    Setting,
    n_slots=st.integers(1, 6),
    n_ctx=st.integers(12, 64),
    budget=st.integers(1, 24),
    n_ids=st.integers(0, 4),
    block=st.integers(1, 4),
    max_drafts=st.integers(0, 4),
    whole=st.none() | st.integers(1, 64),
    seed=st.integers(0, 2**32),
)


@given(
    setting=settings_of_an_engine,
    n_requests=st.integers(1, 12),
    arrivals=st.floats(0.05, 1.0),
    is_budget_moving=st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_every_request_ends_with_all_of_its_tokens(
    setting: Setting, n_requests: int, arrivals: float, is_budget_moving: bool
) -> None:
    engine = Engine(setting)
    rng = engine.rng
    expected: dict[Request, tuple[list[int], list[int]]] = {}
    for _ in range(20_000):
        if len(expected) < n_requests and rng.random() < arrivals:
            prompt = [0] * rng.randint(0, 8) + [rng.randint(0, 1) for _ in range(rng.randint(1, setting.n_ctx - 9))]
            output = [rng.randint(2, 5) for _ in range(rng.randint(1, 12))]
            request = Request(list(prompt), deque(output))
            expected[request] = (prompt, output)
            engine.queue.append(request)
        if is_budget_moving:
            setting.budget = rng.randint(1, 24)
        engine.step()
        if len(engine.done) == n_requests:
            break
    assert len(engine.done) == n_requests, "a request never ended"
    assert len({id(r) for r, _ in engine.done}) == n_requests
    for request, reason in engine.done:
        prompt, output = expected[request]
        assert request.tokens == prompt + request.emitted
        assert request.emitted == output[: len(request.emitted)]
        if reason == "length":
            assert request.emitted == output
        else:
            assert len(request.tokens) == setting.n_ctx + 1
    assert not engine.running
    assert not engine.queue
    assert len(engine.kv.cells) == engine.cache.resident_tokens == engine.cache.cells_exclusive()


@given(
    base_ms=st.floats(0, 180),
    row_ms=st.floats(0.001, 5),
    noise=st.floats(0, 0.1),
    chunks=st.integers(1, 40),
    seed=st.integers(0, 2**32),
)
def test_the_governor_keeps_forwards_short(base_ms: float, row_ms: float, noise: float, chunks: int, seed: int) -> None:
    """A machine with a steady cost per row and up to ±10 % of noise, whose rows get 2 % dearer with every chunk."""
    rng = random.Random(seed)
    governor = BudgetGovernor()

    def forward(rows: int, chunk: int) -> int:
        cost = base_ms + rows * row_ms * (1 + 0.02 * chunk)
        return int(cost * 1e6 * rng.uniform(1 - noise, 1 + noise))

    for _ in range(4):
        governor.observe(forward(0, 0), prefill_rows=0)
    for chunk in range(chunks):
        rows = governor.budget(4096, decode_rows=0)
        duration = forward(rows, chunk)
        if chunk > 0 and rows > 1:
            assert duration <= FORWARD_LIMIT_NS
        governor.observe(duration, prefill_rows=rows)
