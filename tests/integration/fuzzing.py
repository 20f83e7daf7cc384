"""Drives the engine at random, and checks after every step what must hold whatever came before."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
from llama_cpp import llama_cpp as low

from stackscope.engine import sizing
from stackscope.engine.llama import Context, DecodeStatus
from stackscope.toggles import Sampling
from stackscope.workload import corpus
from tests.integration.harness import job, lab_config, open_engine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from stackscope.engine.batching import Entry
    from stackscope.engine.loop import Engine
    from stackscope.engine.turn import Turn
    from stackscope.records import ConfigEvent, ModelSummary, RequestRecord, StepRecord
    from stackscope.toggles import EngineConfig
    from stackscope.workload.jobs import Job

N_PROMPTS: Final = 24
N_TOKENS: Final = 40
TIE: Final = 0.06
"""Two best logits closer than this may change places: twice the cap on the noise of computing a history again."""

OFTEN: Final[dict[str, tuple[object, ...]]] = {
    "speculation": ("off", "ngram", "draft", "draft"),
    "draft_length": (1, 2, 3, 8),
    "adaptive_draft": (False, True),
    "ngram_min": (1, 2),
    "ngram_max": (2, 4, 6),
    "synthetic_acceptance": (None, None, None, 0.5),
    "prefix_cache": (True, True, False),
    "cache_tokens": (None, None, 0, 16, 64, 300),
    "slots": (1, 2, 3, 6),
    "token_budget": (1, 2, 3, 8, 40, 256),
    "seed": (0, 1),
}
"""What is switched often, and to what: it takes no time."""

SELDOM: Final[dict[str, tuple[object, ...]]] = {
    "unified_kv": (True, False),
    "context_tokens": (256, 512, 1024, 2048),
    "kv_type_k": ("f16", "f16", "f16", "q8_0"),
    "kv_type_v": ("f16", "f16", "f16", "q8_0"),
    "flash_attention": (True, False),
    "block_tokens": (1, 7, 16, 64),
    "cache_paths": (1, 2, 4, 12),
    "slots_max": (6, 7),
    "draft_length": (12,),
    "threads": (1, 1, 1, 2),
}
"""What is switched seldom: most of it takes a rebuild."""


def prompts(engine: Engine, rng: random.Random) -> list[tuple[int, ...]]:
    """Prompts of 1 to 400 tokens, many of which begin alike."""
    texts = [engine.tokenizer.encode(corpus.code_passage(module, 0.2, 6000)) for module in range(3)]
    made = []
    for _ in range(N_PROMPTS):
        shared, own = rng.sample(texts, 2)
        n_shared, start = rng.choice((0, 1, 15, 64, 100, 200, 300)), rng.randrange(1000)
        made.append(tuple(shared[:n_shared] + own[start : start + rng.choice((1, 2, 16, 50, 100))]))
    return made


class Plain:
    """What the model says to each prompt with every optimisation off, and how sure it is of each token."""

    def __init__(self, seed: int) -> None:
        engine = open_engine(lab_config(slots=1, prefix_cache=False, draft_model=None, threads=1))
        try:
            self.prompts = prompts(engine, random.Random(seed))
            self.gaps: dict[tuple[int, int], float] = {}
            self._chooser = engine._chooser
            engine._chooser = self  # type: ignore[assignment]
            for number, prompt in enumerate(self.prompts):
                engine.submit(job(number, prompt, N_TOKENS, ignore_eos=True))
            self.outputs: dict[int, tuple[int, ...]] = {}
            while (turn := engine.step()) is not None:
                self.outputs.update({answer.request: answer.tokens for answer in turn.answers})
        finally:
            engine.close()

    def choose(self, entries: Sequence[Entry], logits: NDArray[np.float32], synthetic: float | None) -> None:
        for entry in entries:
            if entry.outputs == 1:
                second, first = np.partition(logits[entry.first_output], -2)[-2:]
                self.gaps[entry.sequence.job.id, entry.sequence.generated] = float(first - second)
        self._chooser.choose(entries, logits, synthetic)

    def is_equal(self, number: int, output: Sequence[int]) -> bool:
        """Whether an output is what the model says, up to where two tokens are as good as each other."""
        pairs = zip(output, self.outputs[number], strict=False)
        parted = next((i for i, (left, right) in enumerate(pairs) if left != right), None)
        return parted is None or self.gaps[number, parted] < TIE


class Cells:
    """Counts the cells that a context really occupies, by the size of its whole state."""

    def __init__(self, context: Context, config: EngineConfig, model: ModelSummary) -> None:
        self._context = context
        self._cell = sizing.kv_bytes_per_cell(config, model) + 8  # position and number of tags
        self._stream = 8 + 24 * len(model.layers)
        self._rest: int | None = None

    def used(self, lengths: list[int]) -> int:
        """Occupied cells, where the sequences hold `lengths` tokens."""
        n_streams = 1 if self._context.size.is_unified else sum(n > 0 for n in lengths)
        size = int(low.llama_state_seq_get_size(self._context.handle, -1)) - 4 * sum(lengths)
        if not any(lengths):
            return 0 if self._rest is None else (size - self._rest) // self._cell
        size -= n_streams * self._stream
        if self._rest is None:
            self._rest = size % self._cell
        cells, rest = divmod(size - self._rest, self._cell)
        assert rest == 0
        return cells


class Fuzz:
    """One engine, what was asked of it, and what it has said so far."""

    def __init__(
        self,
        plain: Plain,
        seed: int,
        *,
        draft: str | None = None,
        fixed: Mapping[str, object] | None = None,
        favourite: str | None = None,
    ) -> None:
        """`draft` is the draft model, the bundled one if not given; `fixed` are settings that stay as they are, and
        `favourite` is one that is switched more often than the others."""
        self.rng = random.Random(seed)
        self.plain = plain
        self.draft = draft or lab_config().draft_model
        self.fixed = fixed or {}
        self.favourite = favourite
        self.rejections: Counter[bool] = Counter()
        """Whether drafts of the draft model were rejected, forward by forward of each greedy request."""
        self.engine = open_engine(self.random_config())
        self.jobs: dict[int, Job] = {}
        self.finished: dict[int, RequestRecord] = {}
        self.outputs: dict[int, tuple[int, ...]] = {}
        self.texts: dict[int, str] = {}
        self.emitted: Counter[int] = Counter()
        self.drafted: Counter[int] = Counter()
        self.accepted: Counter[int] = Counter()
        self.tainted: set[int] = set()
        """Requests of which some step ran with a KV cache of less precision, or with acceptance that was synthetic."""
        self.corrupted: set[int] = set()
        """Requests of which drafts were accepted synthetically."""
        self.prompt_of: dict[int, int] = {}
        self.end_ns: int | None = None
        self.kinds: Counter[str] = Counter()
        self.n_steps = 0
        self._watch_cells()

    def random_config(self) -> EngineConfig:
        settings = {name: self.rng.choice(values) for name, values in (OFTEN | SELDOM).items()}
        settings |= {"draft_length": 3, "slots_max": 6, "draft_model": self.draft}
        return lab_config(**self.possible(settings))

    def possible(self, settings: dict[str, object]) -> dict[str, object]:
        """The settings without those that must stay or cannot be."""
        settings |= {name: value for name, value in self.fixed.items() if name in settings}
        if settings.get("kv_type_v") == "q8_0":
            settings["flash_attention"] = True
        return settings

    def _watch_cells(self) -> None:
        backend = self.engine.backend
        self.target_cells = Cells(backend.target, self.engine.config, backend.spec)

    # What may happen between two steps

    def act(self) -> None:
        rng, engine = self.rng, self.engine
        if engine.in_flight < 10 and rng.random() < 0.3:
            self.submit()
        if rng.random() < 0.02 and self.jobs:
            engine.cancel(rng.choice(list(self.jobs)))
        if rng.random() < 0.03:
            engine.interrupt()
        if rng.random() < 0.02:
            engine.idle()
            self.end_ns = None
        if rng.random() < 0.15:
            name = rng.choice(list(OFTEN))
            self.change(self.possible({name: rng.choice(OFTEN[name])}))
        if self.favourite is not None and rng.random() < 0.1:
            self.change({self.favourite: rng.choice(OFTEN[self.favourite])})
        if rng.random() < 0.01:
            settings = {name: rng.choice(SELDOM[name]) for name in rng.sample(list(SELDOM), 2)}
            if rng.random() < 0.1:
                settings["draft_model"] = rng.choice((None, self.draft))
            self.change(self.possible(settings))

    def submit(self) -> None:
        rng, number = self.rng, len(self.jobs)
        prompt = rng.randrange(N_PROMPTS)
        sampling = Sampling(temperature=rng.choice((0.0, 0.0, 0.0, 1.0)), seed=1)
        self.prompt_of[number] = prompt
        self.jobs[number] = job(
            number,
            self.plain.prompts[prompt],
            rng.choice((1, 2, 10, N_TOKENS)),
            sampling=sampling,
            stop=rng.choice(((), (), ("\n\n",), ("return", "é"))),
            ignore_eos=rng.random() < 0.7,
        )
        self.engine.submit(self.jobs[number])

    def change(self, settings: dict[str, object]) -> ConfigEvent:
        engine, before = self.engine, self.engine.config
        wanted = msgspec.structs.replace(before, **settings)
        in_flight = {s.job.id for s in engine._requests}
        event = engine.reconfigure(wanted)
        self.kinds[event.kind] += 1
        assert engine.config == (before if event.kind == "refused" else wanted), event
        assert event.epoch == engine.epoch == self.kinds["live"] + self.kinds["rebuild"]
        ended = {record.id for record in engine._requests.finished}
        assert {s.job.id for s in engine._requests} | ended >= in_flight
        if event.kind == "rebuild" or engine.backend.target is not self.target_cells._context:
            self._watch_cells()
            self.end_ns = None  # What a rebuild takes belongs to no step.
            assert not engine._requests.running
        return event

    # What must hold after every step

    def step(self) -> bool:
        """Act, take one step and check it. False: there was nothing to do."""
        self.act()
        turn = self.engine.step()
        if turn is None:
            assert self.engine.in_flight == 0
            self.end_ns = None
        else:
            self.n_steps += 1
            self.check_turn(turn)
        self.check_memory()
        return turn is not None

    def check_turn(self, turn: Turn) -> None:
        engine, step = self.engine, turn.step
        assert step.end_ns == engine._watch.last_ns
        assert self.end_ns in (None, step.start_ns)
        self.end_ns = step.end_ns
        config = engine.config
        assert step.rows <= config.token_budget
        assert len(step.work) == step.slots_busy <= step.slots == config.slots
        assert step.epoch == engine.epoch
        assert step.invalid_output == (config.synthetic_acceptance is not None)
        is_coarse = (config.kv_type_k, config.kv_type_v) != ("f16", "f16")
        for work in step.work:
            self.emitted[work.request] += work.emitted
            self.drafted[work.request] += work.drafted
            self.accepted[work.request] += work.accepted
            assert work.accepted <= min(work.drafted, work.emitted)
            assert work.phase != "verify" or work.emitted in (work.accepted, work.accepted + 1)
            if config.synthetic_acceptance is not None and work.drafted > 0:
                self.corrupted.add(work.request)
            elif config.speculation == "draft" and work.drafted > 0 and self.jobs[work.request].sampling.is_greedy:
                has_ended = work.request in {record.id for record in turn.finished}
                self.rejections[work.accepted < work.drafted and not has_ended] += 1
            if is_coarse:
                self.tainted.add(work.request)
        self.check_drafts(step)
        self.check_counters(step)
        for delta in turn.texts:
            self.texts[delta.request] = self.texts.get(delta.request, "") + delta.text
        for record in turn.finished:
            assert record.id not in self.finished
            self.finished[record.id] = record
        for answer in turn.answers:
            self.outputs[answer.request] = answer.tokens
        for record in turn.finished:
            self.check_finished(record, self.outputs[record.id])

    def check_drafts(self, step: StepRecord) -> None:
        for index, forward in enumerate(step.draft):
            rows = sum(new for _, new in forward.spans)
            assert 0 < rows <= self.engine.backend.size.n_batch
            assert index > 0 or rows <= self.engine.config.token_budget

    def check_counters(self, step: StepRecord) -> None:
        residents, counted = self.engine._residents, step.cache
        cache = residents.cache
        assert step.kv_cells == residents.cells_used(self.engine._requests.running)
        assert (counted.resident_blocks, counted.resident_paths) == (cache.resident_blocks, cache.paths)
        assert counted.shared_blocks == cache.shared_blocks <= counted.resident_blocks
        assert counted.useful_hit_tokens <= counted.hit_tokens <= counted.lookup_tokens
        assert counted.lookups > 0 or (counted.lookup_tokens, counted.missed_at) == (0, None)
        assert counted.missed_at is None or counted.missed_at >= 0
        assert counted.copied_bytes == 0 or not self.engine.backend.size.is_unified

    def check_finished(self, record: RequestRecord, output: tuple[int, ...]) -> None:
        wanted = self.jobs[record.id]
        assert record.output_tokens == len(output) == self.emitted[record.id]
        assert (record.drafted, record.accepted) == (self.drafted[record.id], self.accepted[record.id])
        assert record.hit_tokens < max(record.prompt_tokens, 1)
        assert record.invalid_output == (record.id in self.corrupted), record
        tokenizer = self.engine.vocabulary
        text = b"".join(map(tokenizer.piece, output)).decode("utf-8", "replace")
        if record.finish_reason == "length":
            assert len(output) == wanted.max_tokens
        elif record.finish_reason == "eos":
            assert tokenizer.is_end(output[-1])
            assert not wanted.ignore_eos
        elif record.finish_reason == "stop":
            assert any(stop in text for stop in wanted.stop)
        else:
            assert record.finish_reason in ("cancelled", "context", "error"), record
        if record.finish_reason == "error":
            assert record.error is not None
            assert "the context holds" in record.error
        assert record.output == self.texts.get(record.id, "")
        assert record.output == (text if record.finish_reason != "stop" else text[: len(record.output)])
        if wanted.sampling.is_greedy and record.id not in self.tainted | self.corrupted:
            assert self.plain.is_equal(self.prompt_of[record.id], output), (record, self.engine.config)

    def check_memory(self) -> None:
        engine = self.engine
        residents, backend, memory = engine._residents, engine.backend, engine.backend.memory
        cache = residents.cache
        cache.check_integrity()
        lengths = [0] * backend.size.n_seq_max
        for sequence in engine._requests.running:
            lengths[sequence.slot] = sequence.kv
            assert 0 <= sequence.kv < sequence.n <= sequence.max_n
            assert memory.draft_length[sequence.slot] <= sequence.n
        for path in backend.size.path_ids:
            lengths[path] = len(cache.path(path))
        assert memory.length == lengths
        for sequence_id, length in enumerate(lengths):
            assert backend.target.range_of(sequence_id).last == length - 1
            if backend.draft is not None:
                held = memory.draft_length[sequence_id]
                assert backend.draft.range_of(sequence_id).last == held - 1
        for queued in engine._requests.queue:
            assert (queued.slot, queued.kv) == (-1, 0)
        order = [s.job.id for s in engine._requests]
        assert order == sorted(order), "somebody overtook"
        used = residents.cells_used(engine._requests.running)
        assert used == self.target_cells.used(lengths) <= backend.size.n_ctx

    def finish(self) -> None:
        """Let what is in flight come to its end, and account for every request."""
        for _ in range(20_000):
            turn = self.engine.step()
            if turn is None:
                break
            self.check_turn(turn)
            self.check_memory()
        assert self.engine.in_flight == 0
        assert self.finished.keys() == self.jobs.keys() == self.outputs.keys()


def troubled(rng: random.Random) -> Callable[[Context, int], int]:
    """`Context.decode` that is now and then cut short, or finds no room."""
    right = Context.decode

    def decode(context: Context, n_rows: int) -> int:
        chance = rng.random()
        if chance < 0.01:
            context._abort.raise_()
        elif chance < 0.02:
            return DecodeStatus.NO_ROOM
        return right(context, n_rows)

    return decode
