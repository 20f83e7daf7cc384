"""The engine on the real lab pair: how requests end, what happens when room is short, and what cannot hurt them."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from stackscope.engine.stopwatch import EVERY
from stackscope.records import RequestRecord
from tests.integration.harness import Forcing, finish, job, lab_config, open_engine, run_jobs, turns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stackscope.engine.loop import Engine
    from stackscope.records import StepRecord
    from stackscope.toggles import EngineConfig

pytestmark = pytest.mark.engine

CODE = "import os\nimport sys\n\n\ndef main(argv):\n    for name in argv:\n        print(name)\n\n\nclass Thing:\n    "
BOS, EOS = 0, 1


@pytest.fixture
def engine() -> Iterator[Engine]:
    opened = open_engine(lab_config(slots=4))
    yield opened
    opened.close()


def prompt_of(engine: Engine, n_tokens: int, start: str = "") -> list[int]:
    tokens = engine.tokenizer.encode(start + CODE * (n_tokens // 10 + 1))
    assert len(tokens) >= n_tokens
    return tokens[:n_tokens]


# How requests end


def test_a_request_ends_at_its_limit(engine: Engine) -> None:
    engine.submit(job(0, prompt_of(engine, 20), 7, ignore_eos=True))
    run = finish(engine)
    record = run.requests[0]
    assert record.finish_reason == "length"
    assert record.output_tokens == 7 == len(run.outputs[0])
    assert record.first_token_ns is not None
    assert record.arrived_ns <= (record.admitted_ns or 0) <= record.first_token_ns <= record.finished_ns


@pytest.mark.parametrize("speculation", ["off", "ngram", "draft"])
def test_tokens_past_the_end_token_are_neither_emitted_nor_counted(speculation: str) -> None:
    engine = open_engine(lab_config(slots=1, speculation=speculation, draft_length=6))
    try:
        prompt = prompt_of(engine, 40)
        # The history repeats itself, so that a look-up drafts right through the end token.
        tail = [300, 301, 302, 303, EOS, 304, 305, 306]
        history = [*prompt, *tail, *tail, 307, 308]
        engine._chooser = Forcing({0: history})  # type: ignore[assignment]
        engine.submit(job(0, history[: len(prompt) + len(tail)], 9, ignore_eos=True))
        run = finish(engine)
        assert run.outputs[0] == (*tail, 307)
    finally:
        engine.close()
    engine = open_engine(lab_config(slots=1, speculation=speculation, draft_length=6))
    try:
        forced = Forcing({0: history})
        real = engine._chooser

        class Both:
            """Forces the history, then cuts as the engine's own chooser does."""

            def choose(self, entries: list, logits: object, _synthetic: object) -> None:  # type: ignore[type-arg]
                forced.choose(entries, logits, None)  # type: ignore[arg-type]
                for entry in entries:
                    if entry.outputs:
                        real._clip(entry)

        engine._chooser = Both()  # type: ignore[assignment]
        engine.submit(job(0, history[: len(prompt) + len(tail)], 9))
        run = finish(engine)
        record = run.requests[0]
        assert record.finish_reason == "eos"
        assert run.outputs[0] == (300, 301, 302, 303, EOS)
        assert record.output_tokens == 5
        assert record.accepted <= 5
    finally:
        engine.close()


def test_a_request_ends_where_its_context_does() -> None:
    config = lab_config(slots=1, context_tokens=256, speculation="ngram", draft_length=8)
    engine = open_engine(config)
    try:
        engine.submit(job(0, prompt_of(engine, 100), 400, ignore_eos=True))
        run = finish(engine)
    finally:
        engine.close()
    assert run.requests[0].finish_reason == "context"
    assert run.requests[0].output_tokens == 156


def test_a_stop_string_ends_the_text_before_it_and_across_tokens(engine: Engine) -> None:
    engine.submit(job(0, prompt_of(engine, 60), 40, ignore_eos=True))
    free = finish(engine)
    text = free.requests[0].output
    assert text is not None
    stop = text[12:17]
    engine.submit(job(1, prompt_of(engine, 60), 40, ignore_eos=True, stop=(stop,)))
    stopped = finish(engine)
    record = stopped.requests[0]
    assert record.finish_reason == "stop"
    assert record.output == text[: text.index(stop)]
    assert stopped.outputs[1] == free.outputs[0][: len(stopped.outputs[1])]


def test_cancelling_ends_running_and_waiting_requests(engine: Engine) -> None:
    for i in range(6):
        engine.submit(job(i, prompt_of(engine, 30 + i), 50, ignore_eos=True))
    engine.step()
    engine.step()
    engine.cancel(2)
    engine.cancel(5)
    engine.cancel(99)  # not there: no error
    run = finish(engine)
    reasons = {r.id: r.finish_reason for r in run.requests}
    assert reasons == {0: "length", 1: "length", 2: "cancelled", 3: "length", 4: "length", 5: "cancelled"}


@pytest.mark.parametrize(
    ("tokens", "max_tokens", "message"),
    [
        ((), 5, "no tokens"),
        ((5,) * 2048, 5, "holds 2048 per request"),
        ((4096,), 5, r"outside 0\.\.4095"),
        ((-1,), 5, r"outside 0\.\.4095"),
        ((5,), 0, "max_tokens is 0"),
    ],
)
def test_a_request_that_cannot_run_ends_with_a_sentence(
    engine: Engine, tokens: tuple[int, ...], max_tokens: int, message: str
) -> None:
    engine.submit(job(0, tokens, max_tokens))
    engine.submit(job(1, prompt_of(engine, 20), 3))
    run = finish(engine)
    failed = next(r for r in run.requests if r.id == 0)
    assert failed.finish_reason == "error"
    assert failed.error is not None
    assert re.search(message, failed.error), failed.error
    assert next(r for r in run.requests if r.id == 1).finish_reason == "length"


# Books


def test_every_token_is_in_exactly_one_step_and_the_steps_tile_the_time(engine: Engine) -> None:
    for i in range(6):
        engine.submit(job(i, prompt_of(engine, 100 + 17 * i), 20, ignore_eos=True))
    run = finish(engine)
    assert sum(s.emitted for s in run.steps) == 6 * 20 == sum(r.output_tokens for r in run.requests)
    prefilled = sum(w.new for s in run.steps for w in s.work if w.phase == "prefill")
    hits = sum(r.hit_tokens for r in run.requests)
    assert prefilled + hits == sum(r.prompt_tokens for r in run.requests)
    assert [s.n for s in run.steps] == list(range(len(run.steps)))
    for before, after in pairwise(run.steps):
        assert after.start_ns == before.end_ns
    for step in run.steps:
        assert step.rows <= 256
        assert step.phases.total == step.duration_ns
    is_read = [step.cpu_ns is not None for step in run.steps]
    assert all(any(is_read[i : i + EVERY]) for i in range(len(is_read) - EVERY))


def test_logit_rows_are_asked_for_only_where_they_are_needed() -> None:
    engine = open_engine(lab_config(slots=2, speculation="draft", draft_length=3, token_budget=64))
    try:
        for i in range(2):
            engine.submit(job(i, prompt_of(engine, 150 + i), 20, ignore_eos=True))
        run = finish(engine)
    finally:
        engine.close()
    for step in run.steps:
        for work in step.work:
            if work.phase == "prefill":
                assert work.outputs in (0, 1)
            else:
                assert work.outputs == work.new == work.drafted + 1
    assert any(w.phase == "verify" for s in run.steps for w in s.work)


def test_phases_are_explicit_and_never_inferred_from_row_counts(engine: Engine) -> None:
    engine.submit(job(0, prompt_of(engine, 1), 3, ignore_eos=True))
    run = finish(engine)
    phases = [w.phase for s in run.steps for w in s.work]
    assert phases == ["prefill", "decode", "decode"]  # a prompt of one token is a prefill of one row


# Room


def outputs_of(config: EngineConfig, prompts: list[list[int]], n: int) -> dict[int, tuple[int, ...]]:
    return run_jobs(config, [job(i, p, n, ignore_eos=True) for i, p in enumerate(prompts)]).outputs


def test_short_room_evicts_and_preempts_but_loses_nothing(engine: Engine) -> None:
    prompts = [prompt_of(engine, 180 + i, start=f"# {i} {'x' * i}\n") for i in range(6)]
    ample = outputs_of(lab_config(slots=4, context_tokens=8192), prompts, 60)
    tight = run_jobs(
        lab_config(slots=4, context_tokens=512), [job(i, p, 60, ignore_eos=True) for i, p in enumerate(prompts)]
    )
    assert {r.finish_reason for r in tight.requests} == {"length"}
    assert tight.outputs == ample
    assert sum(s.cache.blocks_evicted for s in tight.steps) > 0
    assert max(s.kv_cells for s in tight.steps) <= 512


def test_preempted_work_is_not_counted_as_a_useful_hit(engine: Engine) -> None:
    prompts = [prompt_of(engine, 200, start=f"{i}\n") for i in range(3)]
    run = run_jobs(
        lab_config(slots=3, context_tokens=512, cache_tokens=None),
        [job(i, p, 120, ignore_eos=True) for i, p in enumerate(prompts)],
    )
    preempted = sum(r.preemptions for r in run.requests)
    assert preempted == sum(s.preempted for s in run.steps)
    useful = sum(s.cache.useful_hit_tokens for s in run.steps)
    hits = sum(s.cache.hit_tokens for s in run.steps)
    assert useful <= hits
    assert sum(r.hit_tokens for r in run.requests) == useful


def test_split_kv_reuses_prefixes_by_real_copies(engine: Engine) -> None:
    prompts = [prompt_of(engine, 150)] * 3
    config = lab_config(slots=1, unified_kv=False, context_tokens=48 * 512)
    run = run_jobs(config, [job(i, p, 10, ignore_eos=True) for i, p in enumerate(prompts)])
    assert sum(s.cache.copied_bytes for s in run.steps) > 0
    assert [r.hit_tokens for r in sorted(run.requests, key=lambda r: r.id)] == [0, 144, 144]
    assert len(set(run.outputs.values())) == 1


# Interruptions


def test_an_interrupted_forward_is_redone_and_nothing_is_lost(engine: Engine) -> None:
    prompt = prompt_of(engine, 300)
    plain = outputs_of(lab_config(slots=1), [prompt], 12)
    engine.submit(job(0, prompt, 12, ignore_eos=True))
    steps: list[StepRecord] = []
    outputs: dict[int, tuple[int, ...]] = {}
    for turn in turns(engine):
        steps.append(turn.step)
        outputs.update({a.request: a.tokens for a in turn.answers})
        if len(steps) in (1, 3, 5):
            engine.interrupt()
    assert sum(s.aborted for s in steps) == 3
    assert all(s.emitted == 0 and not s.work for s in steps if s.aborted)
    assert outputs == plain


@pytest.mark.parametrize("speculation", ["ngram", "draft"])
def test_an_interrupted_verification_leaves_no_rows_behind(speculation: str) -> None:
    engine = open_engine(lab_config(slots=2, speculation=speculation, draft_length=4))
    try:
        prompts = [prompt_of(engine, 90), prompt_of(engine, 70, start="x = 1\n")]
        plain = outputs_of(lab_config(slots=2), prompts, 30)
        for i, prompt in enumerate(prompts):
            engine.submit(job(i, prompt, 30, ignore_eos=True))
        outputs: dict[int, tuple[int, ...]] = {}
        aborted = 0
        for count, turn in enumerate(turns(engine)):
            aborted += turn.step.aborted
            outputs.update({a.request: a.tokens for a in turn.answers})
            if count % 3 == 1:
                engine.interrupt()
    finally:
        engine.close()
    assert aborted >= 3
    assert outputs == plain


def test_draining_ends_everything_with_its_tokens(engine: Engine) -> None:
    for i in range(6):
        engine.submit(job(i, prompt_of(engine, 30 + i), 50, ignore_eos=True))
    engine.step()
    engine.step()
    records = [record for record in engine.drain("cancelled") if isinstance(record, RequestRecord)]
    assert sorted(r.id for r in records) == list(range(6))
    assert {r.finish_reason for r in records} == {"cancelled"}
    assert engine.in_flight == 0
    assert engine.step() is None


def test_text_nobody_reads_is_made_only_where_a_request_needs_it() -> None:
    engine = open_engine(lab_config(slots=3), keep_text=False)
    try:
        prompt = prompt_of(engine, 60)
        engine.submit(job(0, prompt, 20, ignore_eos=True))
        read = [t.text for turn in turns(engine) for t in turn.texts]
        stop = "".join(read)[10:14]
        engine.text_is_read = False
        engine.submit(job(1, prompt, 20, ignore_eos=True))
        engine.submit(job(2, prompt, 20, ignore_eos=True, stop=(stop,)))
        run = finish(engine)
        assert {r.id: r.finish_reason for r in run.requests} == {1: "length", 2: "stop"}
        assert len(run.outputs[1]) == 20
        engine.submit(job(3, prompt, 20, ignore_eos=True))
        assert not [t for turn in turns(engine) for t in turn.texts]
    finally:
        engine.close()
