"""Things that went wrong for others, a test for each, by their numbers in the list: speculation and the KV cache."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from stackscope.analysis.metrics.speculation import AcceptanceRate, Coverage, TokensPerForward
from stackscope.analysis.summary import RunSummary
from stackscope.engine.backend import Backend
from stackscope.engine.llama import Context, DecodeStatus, SequenceRange
from stackscope.errors import EngineError, ToggleRefusedError
from stackscope.records import Header
from stackscope.report.text import RunReport, summary
from tests.analysis_builders import MS, decode, lab_target, step, verify
from tests.integration.cli_support import ROOT, run
from tests.integration.harness import Forcing, finish, job, lab_config, open_engine, run_jobs, turns
from tests.unit.gguf_builder import write_gguf
from tests.unit.tiny_models import N_TOKENS, TINY, tokenizer, write_tiny

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from stackscope.analysis.summary import RunResult
    from stackscope.engine.loop import Engine
    from stackscope.records import ConfigEvent, StepRecord

pytestmark = pytest.mark.engine


@pytest.fixture
def engine() -> Iterator[Engine]:
    opened = open_engine(lab_config(slots=2))
    yield opened
    opened.close()


def change(engine: Engine, **settings: object) -> ConfigEvent:
    return engine.reconfigure(msgspec.structs.replace(engine.config, **settings))


def summed(steps: Sequence[StepRecord]) -> RunResult:
    run = RunSummary()
    run.write(Header(stackscope="0", started="", host="", device="", model=lab_target()))
    for record in steps:
        run.write(record)
    return run.result()


def shown(result: RunResult) -> str:
    return summary(RunReport(result=result, header=None, workload="", recording=None), 100).plain


# Speculation


def test_case_01_a_window_too_long_shows_as_what_it_is() -> None:
    """1,378 drafted in windows of at most 64, of which 96 are accepted: 6.97 %, and nearly every row wasted."""
    # 21 windows of 64 with 4 accepted, and one of 34 with 12: 21 × 64 + 34 = 1,378 and 21 × 4 + 12 = 96.
    windows = [(64, 4)] * 21 + [(34, 12)]
    result = summed([
        step(verify(0, cached=9, drafted=k, accepted=a), n=i, start_ns=i * MS) for i, (k, a) in enumerate(windows)
    ])  # fmt: skip
    assert result[AcceptanceRate] == 96 / 1378
    assert "6.97 % of 1,378 drafted tokens accepted" in shown(result)
    assert "58.3 rows wasted per verification" in shown(result)  # (1,378 − 96) ÷ 22


def test_case_04_full_acceptance_of_hardly_any_drafts_is_shown_with_its_coverage() -> None:
    """Three drafts of one token in 500 steps: 100 % accepted, 0.6 % of the forwards covered, A = 1.006."""
    steps = [
        step(verify(0, cached=9, drafted=1, accepted=1) if i < 3 else decode(0, cached=9), n=i, start_ns=i * MS)
        for i in range(500)
    ]
    result = summed(steps)
    assert (result[AcceptanceRate], result[Coverage], result[TokensPerForward]) == (1.0, 3 / 500, 503 / 500)
    text = shown(result)
    assert "A = 1.01 tokens per forward · 100 % of 3 drafted tokens accepted" in text
    assert "0.60 % of forwards covered" in text


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("token", "Token 100 is"),
        ("size", f"The target's vocabulary has {N_TOKENS} tokens, the draft's {N_TOKENS + 200}"),
    ],
)
def test_case_05_a_draft_of_another_vocabulary_is_refused_before_any_weights_load(
    tmp_path: Path, change: str, says: str
) -> None:
    target = write_tiny(tmp_path, "llama")
    made = TINY["llama"]()
    tokens = [str(token) for token in tokenizer()["tokenizer.ggml.tokens"]]  # type: ignore[union-attr]
    tokens = [*tokens, *(f"more{i}" for i in range(200))] if change == "size" else tokens
    if change == "token":
        tokens[100] = "other"
    draft = write_gguf(tmp_path / "draft.gguf", made.metadata | tokenizer(tokens), made.tensors)
    loaded: list[str] = []
    config = lab_config(model=str(target), draft_model=str(draft), speculation="draft")
    with pytest.raises(ToggleRefusedError, match=f"draft.gguf cannot draft for tiny-llama.gguf: {says}"):
        Backend(config, None, progress=lambda path, _: loaded.append(path))  # type: ignore[arg-type]
    assert loaded == []


@pytest.mark.parametrize("architecture", ["mamba", "lfm2"])
def test_case_06_a_memory_that_cannot_go_back_refuses_what_would_have_to(tmp_path: Path, architecture: str) -> None:
    """Refused at the start and as a toggle, with the reason; requests run, and a forward cut short is made up for."""
    config = lab_config(model=str(write_tiny(tmp_path, architecture)), draft_model=None, slots=3, context_tokens=1024)
    config = msgspec.structs.replace(config, token_budget=64)
    with pytest.raises(ToggleRefusedError, match=r"take back rejected tokens, but its memory is .*recur"):
        open_engine(msgspec.structs.replace(config, speculation="ngram"))
    jobs = [job(i, [2 + (7 * i + j) % 200 for j in range(90)], 20, ignore_eos=True) for i in range(4)]
    plain = run_jobs(config, jobs)
    engine = open_engine(config)
    try:
        assert "single positions cannot be removed" in str(engine.softened)
        assert not engine.config.prefix_cache
        for name, value in (("speculation", "ngram"), ("prefix_cache", True)):
            event = change(engine, **{name: value})
            assert event.kind == "refused"
            assert "cannot be removed" in str(event.reason)
        for each in jobs:
            engine.submit(each)
        outputs: dict[int, tuple[int, ...]] = {}
        aborted = 0
        for n, turn in enumerate(turns(engine)):
            outputs.update({answer.request: answer.tokens for answer in turn.answers})
            aborted += turn.step.aborted
            if n in (1, 4, 9, 12):
                engine.interrupt()
    finally:
        engine.close()
    assert aborted == 4
    assert outputs == plain.outputs


@pytest.mark.parametrize("answer", [False, True], ids=["says no", "says yes and keeps it"])
def test_case_06_a_memory_that_will_not_remove_is_found_out_at_the_start(
    answer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Context, "remove", lambda *_: answer)
    with pytest.raises(ToggleRefusedError, match="its memory cannot remove single positions"):
        open_engine(lab_config(speculation="ngram"))


def test_case_06_a_removal_that_fails_later_is_an_error_and_not_a_wrong_text(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(engine, speculation="draft", draft_length=6)
    engine.submit(job(0, range(10, 60), 60, ignore_eos=True))
    for _ in range(2):
        engine.step()
    monkeypatch.setattr(engine.backend.target, "remove", lambda *_: False)
    with pytest.raises(EngineError, match="memory cannot forget a part of sequence 0"):
        finish(engine)


@pytest.mark.parametrize(("limit", "stop", "expected"), [(4, (), 4), (40, ("return",), None)])
def test_case_08_only_what_is_committed_is_counted(limit: int, stop: tuple[str, ...], expected: int | None) -> None:
    """Drafts that run past a limit or a stop string: neither emitted nor accepted beyond it."""
    engine = open_engine(lab_config(slots=1, speculation="ngram", draft_length=8, ngram_min=1))
    try:
        tokens = engine.tokenizer.encode("def area(w, h):\n    size = w * h\n    return size\n\n\n" * 3)
        n_prompt = len(tokens) - len(tokens) // 3 - 2  # One round is still to come, and look-up drafts it.
        engine._chooser = _forced_and_clipped(engine, tokens)
        engine.submit(job(0, tokens[:n_prompt], limit, stop=stop, ignore_eos=True))
        run = finish(engine)
    finally:
        engine.close()
    record = run.requests[0]
    emitted = sum(w.emitted for s in run.steps for w in s.work)
    assert record.output_tokens == emitted == len(run.outputs[0])
    assert record.accepted <= record.output_tokens
    blocks = [(w.drafted, w.emitted) for s in run.steps for w in s.work if w.phase == "verify"]
    if expected is not None:
        assert (record.finish_reason, emitted) == ("length", expected)
        assert blocks == [(2, 3)]  # One token comes of the prefill, and of 8 wished for only 2 can still be won.
    else:
        assert record.finish_reason == "stop"
        assert any(drafted >= emitted > 1 for drafted, emitted in blocks)  # A block was cut.
        assert "return" not in str(record.output)
        assert engine.vocabulary.decode(run.outputs[0]).rstrip().endswith("return")


def _forced_and_clipped(engine: Engine, tokens: list[int]) -> Any:
    """Chooses along a text, and cuts as the engine's own chooser does."""
    forced, real = Forcing({0: tokens}), engine._chooser

    class Both:
        def choose(self, entries: Any, logits: Any, _: object) -> None:
            forced.choose(entries, logits, None)
            for entry in entries:
                if entry.outputs:
                    real._clip(entry)

    return Both()


def test_case_10_look_up_survives_the_end_of_the_context_and_shorter_prompts() -> None:
    """400 tokens asked of a context of 256; then prompts that are shorter than the one before."""
    prompt = list(range(300, 340)) * 3
    jobs = [job(0, prompt, 400, ignore_eos=True)]
    jobs += [job(i, prompt[: 100 - 30 * i], 30, ignore_eos=True) for i in range(1, 4)]
    config = lab_config(slots=1, context_tokens=256)
    drafted = run_jobs(msgspec.structs.replace(config, speculation="ngram", draft_length=8), jobs)
    plain = run_jobs(config, jobs)
    assert [r.finish_reason for r in drafted.requests] == ["context", "length", "length", "length"]
    assert drafted.outputs == plain.outputs
    assert sum(w.drafted for s in drafted.steps for w in s.work) > 0


# KV cache and contexts


def test_case_12_windows_refuse_the_prefix_cache_with_what_keeping_them_costs(tmp_path: Path) -> None:
    path = write_tiny(tmp_path, "gemma3")
    small = lab_config(model=str(path), draft_model=None, slots=1, swa_full=False, context_tokens=512)
    prompt = [2 + j % 200 for j in range(150)]  # Far beyond the window of 32.
    jobs = [job(i, prompt, 10, ignore_eos=True) for i in range(2)]
    engine = open_engine(small)
    try:
        said = "keep only the last 32 tokens; --swa-full keeps them, at 1.79 kB per cell"
        assert said in str(engine.softened)  # 7 layers × 1 head × (64 + 64) × 2 bytes = 1,792 B
        event = change(engine, prefix_cache=True)
        assert event.kind == "refused"
        assert said in str(event.reason)
        for each in jobs:
            engine.submit(each)
        windowed = finish(engine)
    finally:
        engine.close()
    kept = run_jobs(msgspec.structs.replace(small, swa_full=True), jobs)
    assert [r.hit_tokens for r in windowed.requests] == [0, 0]
    assert [r.hit_tokens for r in kept.requests] == [0, 144]  # 149 can hit, in blocks of 16
    assert set(kept.outputs.values()) == set(windowed.outputs.values())
    assert len(set(kept.outputs.values())) == 1


@pytest.mark.gemma
def test_case_12_a_windowed_model_hits_when_a_prompt_comes_again(gemma: Path) -> None:
    config = lab_config(model=str(gemma), draft_model=None, slots=1)
    engine = open_engine(config)
    tokens = engine.tokenizer.encode("The workshop opens at nine, and the saw needs a new chain. " * 50)[:700]
    engine.close()
    run = run_jobs(config, [job(i, tokens, 8, ignore_eos=True) for i in range(2)])  # Beyond the window of 512.
    assert [r.hit_tokens for r in run.requests] == [0, 688]  # 699 can hit, in blocks of 16


def test_case_16_part_of_a_sequence_is_never_copied_between_split_caches() -> None:
    config = lab_config(slots=2, unified_kv=False, context_tokens=48 * 256)
    engine = open_engine(config)
    try:
        with pytest.raises(EngineError, match="only a whole sequence can be copied"):
            engine.backend.target.copy(0, 1, 0, 8)
        engine.backend.target.copy(0, 1, -1, -1)
        with pytest.raises(EngineError, match=r"Sequence id 48 is outside 0\.\.47"):
            engine.backend.target.copy(0, 48, -1, -1)
    finally:
        engine.close()


def fed(context: Context, n: int, *, start: int = 0, sequence: int = 0) -> int:
    """Feed `n` rows to a sequence; what decode answers."""
    batch = context.batch
    batch.token[:n] = 5
    batch.position[:n] = range(start, start + n)
    batch.sequence[:n] = sequence
    batch.output[:n] = 0
    batch.output[n - 1] = 1
    return context.decode(n)


def test_case_18_every_answer_of_decode_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = open_engine(lab_config(slots=1, context_tokens=256))
    try:
        target = engine.backend.target
        assert fed(target, 200) == DecodeStatus.OK
        assert fed(target, 100, sequence=1) == DecodeStatus.NO_ROOM
        assert target.range_of(0) == SequenceRange(0, 199)  # As before the attempt.
        assert target.range_of(1) == SequenceRange(-1, -1)
        with pytest.raises(EngineError, match=r"refused the batch as invalid \(code -1\)"):
            fed(target, 1, start=250)  # Positions have to follow each other.
        engine.interrupt()
        assert fed(target, 8, start=200) == DecodeStatus.ABORTED
        engine.backend.abort.lower()
        assert target.range_of(0) == SequenceRange(0, 199)
        assert fed(target, 8, start=200) == DecodeStatus.OK
        monkeypatch.setattr("stackscope.engine.llama._decode", lambda *_: -3)
        with pytest.raises(EngineError, match=r"failed inside a forward \(code -3\)"):
            fed(target, 1, start=208)
    finally:
        engine.close()


def test_case_18_a_full_cache_is_no_crash() -> None:
    """256 cells and 300 tokens of prompt between two requests: one waits or gives way, and both finish."""
    prompts = [[300 + i, *range(10, 149)] for i in range(2)]
    run = run_jobs(
        lab_config(slots=2, context_tokens=256), [job(i, p, 60, ignore_eos=True) for i, p in enumerate(prompts)]
    )
    assert {r.finish_reason for r in run.requests} == {"length"}
    assert max(s.kv_cells for s in run.steps) <= 256


def test_case_20_a_quantised_v_cache_asks_for_flash_attention(engine: Engine) -> None:
    refused = change(engine, kv_type_v="q8_0", flash_attention=False)
    assert (refused.kind, refused.config) == ("refused", None)
    assert "needs flash attention, which is off. Switch flash attention on" in str(refused.reason)
    assert change(engine, flash_attention=False).kind == "rebuild"
    assert change(engine, kv_type_v="q8_0").kind == "refused"
    together = change(engine, kv_type_v="q8_0", flash_attention=True)
    assert together.kind == "rebuild"
    engine.submit(job(0, range(10, 30), 4, ignore_eos=True))
    assert finish(engine).requests[0].finish_reason == "length"
    with pytest.raises(ToggleRefusedError, match="needs flash attention"):
        open_engine(lab_config(kv_type_v="q4_0", flash_attention=False))


@pytest.mark.parametrize("budget", [0, -1, 2**31])
def test_case_21_no_number_reaches_native_code_unchecked(engine: Engine, budget: int) -> None:
    event = change(engine, token_budget=budget)
    assert event.kind == "refused"
    assert f"token_budget is {budget}. Choose 1 to 8192." in str(event.reason)
    with pytest.raises(ToggleRefusedError, match="token_budget"):
        open_engine(lab_config(token_budget=budget))
    for rows in (0, -1, engine.backend.target.batch.capacity + 1):
        with pytest.raises(EngineError, match="does not fit"):
            engine.backend.target.decode(rows)


def test_case_21_a_prompt_longer_than_the_batch_is_fed_in_pieces() -> None:
    run = run_jobs(lab_config(slots=1, token_budget=512), [job(0, list(range(10, 610)), 4, ignore_eos=True)])
    assert run.requests[0].finish_reason == "length"
    assert [s.rows for s in run.steps[:2]] == [512, 88]


SHORT_OF_MEMORY = """
import resource, tests.integration.conftest
from tests.integration.harness import finish, job, lab_config, open_engine
import msgspec
engine = open_engine(lab_config(slots=2))
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**29, used + 2**29))
engine.submit(job(0, range(10, 60), 12, ignore_eos=True))
engine.step()
for cells in (2**30, 2**20):
    event = engine.reconfigure(msgspec.structs.replace(engine.config, context_tokens=cells))
    print(event.kind, "|", event.reason)
print(finish(engine).requests[0].finish_reason)
"""


def test_case_22_a_context_that_memory_does_not_hold_is_refused_and_the_old_one_goes_on() -> None:
    """2³⁰ cells are refused by the estimate; 2²⁰ (3.2 GB) pass it, and fail in the library under a limit of 0.5 GB."""
    command = [sys.executable, "-c", SHORT_OF_MEMORY]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stderr[-2_000:]
    estimated, failed, finished = done.stdout.splitlines()
    assert estimated.startswith("refused | The context would take ")
    assert "GB are free" in estimated
    assert failed.startswith("refused | llama.cpp could not create a context of 1048576 cells")
    assert failed.endswith("The configuration before it goes on.")
    assert finished == "length"


def test_case_22_at_the_start_it_is_one_sentence() -> None:
    done = run("--context", str(2**30), "--requests", "1", "--no-record")
    assert done.returncode == 5
    assert done.stderr.startswith("stackscope: The context would take 3298.5 GB and ")
    assert done.stderr.count("\n") == 1
