"""No optimisation changes what the model says: on logits, on greedy text, and on planted faults that must be seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from stackscope.engine import batching
from stackscope.engine.choose import Chooser
from stackscope.engine.memory import Memory
from stackscope.errors import EngineError
from stackscope.toggles import EngineConfig, Sampling
from tests.integration.harness import Forcing, finish, force, job, lab_config, open_engine, run_jobs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from stackscope.engine.batching import Entry, Rows
    from stackscope.engine.llama import Batch
    from stackscope.engine.sequence import Sequence as Running
    from tests.integration.harness import Logits

pytestmark = pytest.mark.engine

NOISE_CAP = 0.03
"""Logits of the F16 lab target are up to about 20; decoding a history again in another sequence moves them by less."""
N_GENERATED = 64

PROMPT = """class Reader:
    def __init__(self, path, mode="r"):
        self.path = path

    def read(self):
        with open(self.path) as handle:
            return handle.read()

def main(argv):
    """

SETTINGS: dict[str, dict[str, object]] = {
    "prefix cache": {"prefix_cache": True},
    "eight slots": {"slots": 8},
    "eight slots and prefix cache": {"slots": 8, "prefix_cache": True},
    "chunked prefill": {"token_budget": 16},
    "chunked prefill of eight": {"token_budget": 24, "slots": 8},
    **{f"n-gram k={k}": {"speculation": "ngram", "draft_length": k} for k in range(1, 9)},
    **{f"draft k={k}": {"speculation": "draft", "draft_length": k} for k in range(1, 9)},
    "n-gram, eight slots, cache, chunks": {
        "speculation": "ngram", "draft_length": 4, "slots": 8, "prefix_cache": True, "token_budget": 48,
    },
    "draft, eight slots, cache, chunks": {
        "speculation": "draft", "draft_length": 4, "slots": 8, "prefix_cache": True, "token_budget": 48,
    },
    "adaptive draft": {"speculation": "draft", "draft_length": 8, "adaptive_draft": True, "slots": 8},
    "split KV": {"slots": 4, "unified_kv": False, "context_tokens": 48 * 256},
}  # fmt: skip


def plain(**settings: object) -> EngineConfig:
    return lab_config(**{"slots": 1, "prefix_cache": False, "token_budget": 512, **settings})


class Bench:
    """Histories sampled once, their logits under the plain configuration, and the noise of doing it again."""

    def __init__(self) -> None:
        engine = open_engine(plain())
        try:
            prompt = engine.tokenizer.encode(PROMPT)
        finally:
            engine.close()
        self.n_prompt = len(prompt)
        sampled = run_jobs(
            plain(slots=4),
            [
                job(i, prompt, N_GENERATED, ignore_eos=True, sampling=Sampling(temperature=0.8, seed=i))
                for i in range(4)
            ],
        )
        self.histories = {i: [*prompt, *sampled.outputs[i]] for i in range(4)}
        self.reference = force(plain(), self.histories, self.n_prompt)
        again = force(plain(slots=2), self.histories, self.n_prompt)
        self.noise = largest_difference(self.reference, again)


def largest_difference(left: Logits, right: Logits) -> float:
    assert left.keys() == right.keys()
    return max(float(np.abs(left[key] - right[key]).max()) for key in left)


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench()


def test_the_noise_of_decoding_again_is_small_and_not_nothing(bench: Bench) -> None:
    assert 0.0 < bench.noise < NOISE_CAP
    assert len(bench.reference) == 4 * N_GENERATED - 4


@pytest.mark.parametrize("name", SETTINGS)
def test_logits_along_one_history_stay_within_three_times_the_noise(bench: Bench, name: str) -> None:
    logits = force(plain(**SETTINGS[name]), bench.histories, bench.n_prompt)
    assert largest_difference(bench.reference, logits) <= min(3 * bench.noise, NOISE_CAP)


# Free-running greedy text

N_FREE = 64
FREE_TOKENS = 24


def free_prompts() -> list[list[int]]:
    """Prompts that share a start and part at different places."""
    engine = open_engine(plain())
    try:
        text = PROMPT * 3
        return [engine.tokenizer.encode(text[: 120 + 7 * i] + f"\n# {i}\ndef part_{i}(") for i in range(N_FREE)]
    finally:
        engine.close()


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    return free_prompts()


@pytest.fixture(scope="module")
def plain_text(prompts: list[list[int]]) -> dict[int, tuple[int, ...]]:
    return run_jobs(plain(), [job(i, p, FREE_TOKENS) for i, p in enumerate(prompts)]).outputs


def differing(left: dict[int, tuple[int, ...]], right: dict[int, tuple[int, ...]]) -> dict[int, int]:
    """Requests whose outputs differ, with the index of the first token that does."""
    found = {}
    for request, tokens in left.items():
        other = right[request]
        if tokens != other:
            pairs = zip(tokens, other, strict=False)
            found[request] = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(tokens), len(other)))
    return found


def gap_at(prompt: Sequence[int], output: Sequence[int], index: int) -> float:
    """Distance of the two largest logits where the plain configuration chose output token `index`."""
    history = [*prompt, *output, 0]
    logits = force(plain(), {0: history}, len(prompt))
    top = np.sort(logits[0, len(prompt) + index - 1])[-2:]
    return float(top[1] - top[0])


@pytest.mark.parametrize("name", [n for n in SETTINGS if "k=" not in n or n[-1] in "138"])
def test_greedy_text_differs_only_at_near_ties(
    bench: Bench, prompts: list[list[int]], plain_text: dict[int, tuple[int, ...]], name: str
) -> None:
    run = run_jobs(plain(**SETTINGS[name]), [job(i, p, FREE_TOKENS) for i, p in enumerate(prompts)])
    different = differing(plain_text, run.outputs)
    assert len(different) <= 0.02 * N_FREE
    for request, index in different.items():
        assert gap_at(prompts[request], plain_text[request], index) <= 3 * bench.noise


# Planted faults: what the tests above look at must show them


def test_one_wrong_kv_position_is_seen(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    right = batching.fill

    def wrong(batch: Batch, decoding: list[Running], prefills: list[tuple[Running, int]]) -> Rows:
        rows = right(batch, decoding, prefills)
        if prefills:
            batch.token[rows.n // 2] = (batch.token[rows.n // 2] + 1) % 4096
        return rows

    monkeypatch.setattr(batching, "fill", wrong)
    logits = force(plain(), bench.histories, bench.n_prompt)
    assert largest_difference(bench.reference, logits) > 3 * bench.noise


def test_a_shifted_position_is_seen(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    right = batching.fill

    def wrong(batch: Batch, decoding: list[Running], prefills: list[tuple[Running, int]]) -> Rows:
        rows = right(batch, decoding, prefills)
        if prefills:
            middle = rows.n // 2
            batch.position[middle], batch.position[middle + 1] = batch.position[middle + 1], batch.position[middle]
        return rows

    monkeypatch.setattr(batching, "fill", wrong)
    try:
        logits = force(plain(), bench.histories, bench.n_prompt)
    except EngineError:
        return
    assert largest_difference(bench.reference, logits) > 3 * bench.noise


@pytest.mark.parametrize("source", ["ngram", "draft"])
def test_a_missed_trim_is_seen(bench: Bench, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    right = Memory.trim

    def wrong(memory: Memory, sequence: int, start: int) -> None:
        right(memory, sequence, start + 1 if start else start)

    monkeypatch.setattr(Memory, "trim", wrong)
    with pytest.raises(EngineError, match="refused the batch"):
        force(plain(speculation=source, draft_length=4), bench.histories, bench.n_prompt)


def test_a_stale_draft_that_is_believed_is_seen(
    monkeypatch: pytest.MonkeyPatch, prompts: list[list[int]], plain_text: dict[int, tuple[int, ...]]
) -> None:
    """Drafts made for the step before, accepted as if they had been verified now."""
    right = Chooser.choose
    stale: dict[int, list[int]] = {}

    def wrong(chooser: Chooser, entries: Sequence[Entry], logits: NDArray[np.float32], synthetic: float | None) -> None:
        right(chooser, entries, logits, synthetic)
        for entry in entries:
            if entry.phase == "verify":
                before = stale.get(entry.sequence.job.id, [])
                stale[entry.sequence.job.id] = list(entry.sequence.draft)
                kept = min(len(before), entry.accepted)
                entry.emitted[:kept] = before[:kept]

    monkeypatch.setattr(Chooser, "choose", wrong)
    run = run_jobs(plain(speculation="draft", draft_length=3), [job(i, p, FREE_TOKENS) for i, p in enumerate(prompts)])
    assert len(differing(plain_text, run.outputs)) > 0.02 * N_FREE


def test_forcing_itself_accepts_and_rejects(bench: Bench) -> None:
    """The comparison above means something only if drafts were both kept and thrown away on the way."""
    engine = open_engine(plain(speculation="draft", draft_length=4))
    try:
        engine._chooser = Forcing(dict(bench.histories))  # type: ignore[assignment]
        for number, history in bench.histories.items():
            engine.submit(job(number, history[: bench.n_prompt], N_GENERATED - 1, ignore_eos=True))
        run = finish(engine)
    finally:
        engine.close()
    drafted = sum(r.drafted for r in run.requests)
    accepted = sum(r.accepted for r in run.requests)
    assert 0 < accepted < drafted
