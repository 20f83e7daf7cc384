"""Every toggle on the real engine: live at a step boundary, by rebuild with nothing lost, or refused with a reason."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from stackscope.errors import StackscopeError, ToggleRefusedError
from stackscope.model.catalog import bundled_draft
from stackscope.toggles import Sampling
from tests.integration.harness import finish, job, lab_config, open_engine, run_jobs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stackscope.engine.loop import Engine
    from stackscope.records import ConfigEvent

pytestmark = pytest.mark.engine

CODE = "import os\nimport sys\n\n\ndef main(argv):\n    for name in argv:\n        print(name)\n\n\nclass Thing:\n    "
N_TOKENS = 24
LONG_SPLIT: dict[str, object] = {"tensor_split": (1.0,) * 100}
"""More devices than the library knows."""

LIVE: list[dict[str, object]] = [
    {"speculation": "ngram"},
    {"speculation": "draft"},
    {"draft_length": 2},
    {"draft_length": 8, "adaptive_draft": True},
    {"ngram_min": 1, "ngram_max": 3},
    {"speculation": "off"},
    {"prefix_cache": False},
    {"prefix_cache": True, "cache_tokens": 64},
    {"cache_tokens": None},
    {"slots": 2},
    {"slots": 6},
    {"token_budget": 32},
    {"token_budget": 512},
    {"threads": 1},
    {"threads": 2},
]
REBUILD: list[dict[str, object]] = [
    {"kv_type_k": "q8_0"},
    {"kv_type_k": "f16", "flash_attention": False},
    {"flash_attention": True, "kv_type_k": "q8_0", "kv_type_v": "q8_0"},
    {"unified_kv": False, "context_tokens": 48 * 256},
    {"unified_kv": True, "context_tokens": 4096, "kv_type_k": "f16", "kv_type_v": "f16"},
    {"slots": 20},
    {"slots": 4},
]


@pytest.fixture
def engine() -> Iterator[Engine]:
    opened = open_engine(lab_config(slots=4))
    yield opened
    opened.close()


def change(engine: Engine, settings: dict[str, object]) -> ConfigEvent:
    return engine.reconfigure(msgspec.structs.replace(engine.config, **settings))


def submit_some(engine: Engine, n: int, first: int = 0) -> None:
    for i in range(first, first + n):
        prompt = engine.tokenizer.encode(CODE * 2 + f"\n# {i}\n")
        engine.submit(job(i, prompt, N_TOKENS, ignore_eos=True))


@pytest.fixture(scope="module")
def plain() -> dict[int, tuple[int, ...]]:
    engine = open_engine(lab_config(slots=1, prefix_cache=False))
    try:
        submit_some(engine, 40)
        return finish(engine).outputs
    finally:
        engine.close()


def test_live_toggles_switch_at_the_next_step_and_leave_the_text_alone(
    engine: Engine, plain: dict[int, tuple[int, ...]]
) -> None:
    submit_some(engine, 40)
    outputs: dict[int, tuple[int, ...]] = {}
    epochs: list[int] = []
    pending = list(LIVE)
    while (turn := engine.step()) is not None:
        outputs.update({a.request: a.tokens for a in turn.answers})
        epochs.append(turn.step.epoch)
        assert turn.step.slots == engine.config.slots
        if pending and len(epochs) % 5 == 4:
            event = change(engine, pending.pop(0))
            assert event.kind == "live", event
            assert event.epoch == epochs[-1] + 1
            assert event.config == engine.config
    assert not pending
    assert epochs == sorted(epochs)
    assert epochs[-1] == len(LIVE)
    assert outputs == plain


def anonymous_memory() -> int:
    """Bytes of anonymous resident memory of this process."""
    gc.collect()
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    pytest.skip("this system does not tell anonymous memory")


def test_twenty_rebuilds_lose_nothing_and_leak_nothing(engine: Engine) -> None:
    submit_some(engine, 60)
    finished: list[int] = []
    tokens = 0
    rebuilds = 0
    requeued = 0
    n_steps = 0
    memory: list[int] = []
    while (turn := engine.step()) is not None:
        finished += [r.id for r in turn.finished]
        tokens += turn.step.emitted
        n_steps += 1
        if rebuilds < 22 and n_steps % 8 == 0:
            event = change(engine, REBUILD[rebuilds % len(REBUILD)])
            if rebuilds % len(REBUILD) == 6:
                assert event.kind == "live"  # back to 4 slots fits the larger context
                change(engine, {"slots_max": 16})
                change(engine, {"slots_max": None})
            else:
                assert event.kind == "rebuild", event
                assert event.duration_ns is not None
                requeued += event.requeued
            rebuilds += 1
            if rebuilds % len(REBUILD) == 1:
                memory.append(anonymous_memory())  # always under the same configuration
            assert engine._residents.cells_used(engine._requests.running) == 0
    assert rebuilds == 22
    assert requeued > 0
    assert sorted(finished) == list(range(60))
    assert tokens == 60 * N_TOKENS
    assert len(memory) == 4
    assert memory[-1] - memory[0] < 30e6, memory


def test_a_live_change_beyond_the_context_becomes_a_rebuild_and_says_so(engine: Engine) -> None:
    event = change(engine, {"slots": 17})
    assert event.kind == "rebuild"
    assert event.reason == "the context is sized for 16 slots"
    assert engine.backend.size.slots_max == 17


def test_what_a_rebuild_takes_belongs_to_no_step(engine: Engine) -> None:
    submit_some(engine, 2)
    for _ in range(4):
        engine.step()
    event = change(engine, {"kv_type_k": "q8_0"})
    assert event.duration_ns is not None
    turn = engine.step()
    assert turn is not None
    assert turn.step.start_ns >= event.at_ns + event.duration_ns


def test_a_live_change_leaves_no_gap(engine: Engine) -> None:
    submit_some(engine, 2)
    before = [turn.step for _ in range(4) if (turn := engine.step()) is not None][-1]
    change(engine, {"draft_length": 2})
    turn = engine.step()
    assert turn is not None
    assert turn.step.start_ns == before.end_ns


def test_changing_the_weights_reloads_them_and_keeps_the_requests(engine: Engine) -> None:
    """The draft model as the target: another file with the same tokenizer."""
    submit_some(engine, 3)
    engine.step()
    event = change(engine, {"model": str(bundled_draft()), "draft_model": None})
    assert event.kind == "rebuild"
    assert event.model is not None
    assert len(event.model.layers) == 2
    assert event.requeued == 3
    run = finish(engine)
    assert sorted(r.id for r in run.requests) == [0, 1, 2]
    assert {r.finish_reason for r in run.requests} == {"length"}
    assert {r.requeues for r in run.requests} == {1}


def test_what_a_request_had_decoded_is_no_useful_hit_when_it_comes_again(engine: Engine) -> None:
    for number in range(4):
        engine.submit(job(number, range(500 + 40 * number, 540 + 40 * number), 150, ignore_eos=True))
    steps = [turn.step for _ in range(80) if (turn := engine.step()) is not None]
    change(engine, {"slots": 1})
    run = finish(engine)
    steps += run.steps
    assert sorted(r.requeues for r in run.requests) == [0, 1, 1, 1]
    hits, useful = (sum(getattr(s.cache, name) for s in steps) for name in ("hit_tokens", "useful_hit_tokens"))
    assert useful == sum(r.hit_tokens for r in run.requests)
    assert hits > useful


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"speculation": "mtp"}, "MTP heads"),
        ({"kv_type_v": "q8_0", "flash_attention": False}, "needs flash attention"),
        ({"slots": 300}, "slots is 300"),
        ({"token_budget": 0}, "token_budget is 0"),
        ({"model": "/nowhere/model.gguf"}, "nowhere"),
        ({"draft_model": None, "speculation": "draft"}, "needs a draft model"),
        ({"context_tokens": 2**30}, "GB are free"),
    ],
)
def test_a_refused_toggle_says_why_and_everything_goes_on(
    engine: Engine, settings: dict[str, object], reason: str, plain: dict[int, tuple[int, ...]]
) -> None:
    submit_some(engine, 6)
    engine.step()
    before = engine.config
    event = change(engine, settings)
    assert event.kind == "refused"
    assert event.reason is not None
    assert reason in event.reason
    assert event.config is None
    assert engine.config == before
    assert engine.epoch == 0
    outputs = finish(engine).outputs
    assert outputs == {i: plain[i] for i in range(6)}


def test_a_start_that_cannot_run_is_refused() -> None:
    with pytest.raises(ToggleRefusedError, match="needs a draft model"):
        open_engine(lab_config(draft_model=None, speculation="draft"))


def test_switching_a_draft_model_on_catches_up_under_the_budget(engine: Engine) -> None:
    """Long histories enter the draft's context in pieces, as draft time of steps that say they are settling."""
    change(engine, {"token_budget": 32})
    prompt = engine.tokenizer.encode(CODE * 30)[:300]
    engine.submit(job(0, prompt, 60, ignore_eos=True))
    for _ in range(12):
        engine.step()
    change(engine, {"speculation": "draft"})
    run = finish(engine)
    settling = [s for s in run.steps if s.settling]
    assert len(settling) >= 300 // 32 - 1
    for step in settling:
        assert sum(new for f in step.draft for _, new in f.spans) <= 32
        assert step.phases.draft > 0
        assert all(w.phase != "verify" for w in step.work)
    assert not run.steps[-1].settling
    assert sum(w.accepted for s in run.steps for w in s.work) > 0


def test_synthetic_acceptance_follows_its_rate_and_is_marked() -> None:
    engine = open_engine(lab_config(slots=4, speculation="draft", draft_length=4, synthetic_acceptance=0.8))
    try:
        submit_some(engine, 24)
        run = finish(engine)
    finally:
        engine.close()
    assert all(s.invalid_output for s in run.steps)
    assert all(r.invalid_output for r in run.requests)
    verified = [w for s in run.steps for w in s.work if w.phase == "verify" and w.drafted == 4]
    first = sum(w.accepted >= 1 for w in verified) / len(verified)
    assert abs(first - 0.8) < 4 * (0.8 * 0.2 / len(verified)) ** 0.5


def test_no_configuration_error_is_a_traceback() -> None:
    for settings in ({"slots": 0}, {"kv_type_v": "q4_0", "flash_attention": False}, {"model": __file__}, LONG_SPLIT):
        with pytest.raises(StackscopeError) as caught:
            open_engine(lab_config(**settings))
        assert caught.value.message.endswith(".")


def test_run_jobs_is_reproducible() -> None:
    jobs = [job(i, range(10, 60), 10, ignore_eos=True) for i in range(3)]
    assert run_jobs(lab_config(), jobs).outputs == run_jobs(lab_config(), jobs).outputs


def test_a_draft_forward_cut_short_leaves_no_drafts_behind(engine: Engine) -> None:
    """The third draft forward of a round is aborted: what the second was fed must leave the draft's context too."""
    change(engine, {"speculation": "draft", "draft_length": 4})
    submit_some(engine, 1)
    for _ in range(3):
        engine.step()
    draft = engine.backend.draft
    assert draft is not None
    decode = draft.decode
    calls = 0

    def cut_short(n_rows: int) -> int:
        nonlocal calls
        calls += 1
        if calls == 3:
            engine.interrupt()
        return decode(n_rows)

    draft.decode = cut_short  # type: ignore[method-assign]
    turn = engine.step()
    assert turn is not None
    assert turn.step.aborted
    sequence = engine._requests.running[0]
    assert engine.backend.memory.draft_length[sequence.slot] <= sequence.n
    assert draft.range_of(sequence.slot).last < sequence.n
    run = finish(engine)
    assert sum(w.accepted for s in run.steps for w in s.work) > 0


def test_fewer_slots_put_the_youngest_back_behind_the_older(engine: Engine) -> None:
    submit_some(engine, 6)
    engine.step()
    change(engine, {"slots": 1})
    assert [s.job.id for s in engine._requests] == [0, 1, 2, 3, 4, 5]


def test_output_is_invalid_once_acceptance_was_synthetic_and_only_then(engine: Engine) -> None:
    change(engine, {"speculation": "ngram", "synthetic_acceptance": 1.0})
    submit_some(engine, 4)
    corrupted: set[int] = set()
    while not corrupted:
        turn = engine.step()
        assert turn is not None
        assert not turn.finished
        corrupted = {work.request for work in turn.step.work if work.drafted > 0}
    change(engine, {"synthetic_acceptance": None})
    submit_some(engine, 1, first=4)
    records = finish(engine).requests
    assert len(records) == 5
    assert {record.id for record in records if record.invalid_output} == corrupted


def test_without_drafts_synthetic_acceptance_leaves_sampling_alone() -> None:
    jobs = [job(0, range(10, 60), 10, ignore_eos=True, sampling=Sampling(temperature=1.0, seed=3))]
    plain_output = run_jobs(lab_config(), jobs).outputs
    assert run_jobs(lab_config(synthetic_acceptance=0.5), jobs).outputs == plain_output


def test_a_new_seed_starts_synthetic_acceptance_anew(engine: Engine) -> None:
    accepted = []
    for seed in (5, 6, 5):
        change(engine, {"speculation": "draft", "synthetic_acceptance": 0.5, "seed": seed, "prefix_cache": False})
        submit_some(engine, 1)
        accepted.append([w.accepted for s in finish(engine).steps for w in s.work])
    assert accepted[0] == accepted[2] != accepted[1]


def test_hits_are_those_of_the_first_admission(engine: Engine) -> None:
    """One that began with the cache off, and comes back to a cache that holds its prompt and what it said."""
    change(engine, {"prefix_cache": False})
    submit_some(engine, 2)
    for _ in range(20):
        engine.step()
    change(engine, {"prefix_cache": True})
    change(engine, {"slots": 1})
    run = finish(engine)
    assert sum(s.cache.hit_tokens for s in run.steps) > 0
    assert [r.hit_tokens for r in run.requests] == [0, 0]


def test_what_was_held_back_is_said_when_a_request_is_cut_off(engine: Engine) -> None:
    """The whole output is the beginning of a stop string that never comes."""
    submit_some(engine, 1)
    said = finish(engine).requests[0].output
    assert said is not None
    prompt = engine.tokenizer.encode(CODE * 2 + "\n# 0\n")
    engine.submit(job(1, prompt, N_TOKENS, ignore_eos=True, stop=(said + "§",)))
    texts: list[object] = []
    for _ in range(5):
        turn = engine.step()
        assert turn is not None
        texts += turn.texts
    assert not texts
    engine.cancel(1)
    turn = engine.step()
    assert turn is not None
    (record,), (delta,) = turn.finished, turn.texts
    assert record.output
    assert said.startswith(record.output)
    assert delta.text == record.output
