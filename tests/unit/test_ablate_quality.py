"""Holding weights and KV types against a reference: known divergences, who is compared, and the real library."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest

from stackscope.errors import ModelFileError, StackscopeError
from stackscope.experiments import quality
from stackscope.experiments.quality import AGREEMENT, DIVERGENCE, Quality, Task, judge_all, with_quality
from stackscope.experiments.quality_worker import ROWS, divergence, for_reading
from stackscope.toggles import EngineConfig
from tests.unit.ablate_builders import run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

BASE = EngineConfig(model="f16.gguf", draft_model="draft.gguf")


def changed(**fields: object) -> EngineConfig:
    return msgspec.structs.replace(BASE, **fields)


def test_divergence_by_hand() -> None:
    """(½, ½) from (¾, ¼): ½ ln(½ ÷ ¾) + ½ ln(½ ÷ ¼) = ½ ln(4 ÷ 3)."""
    ours, theirs = np.log([0.5, 0.5]), np.log([0.75, 0.25])
    expected = 0.5 * math.log(4 / 3)
    assert divergence(ours.astype(np.float32), theirs.astype(np.float32)) == pytest.approx(expected, rel=1e-5)
    # Logits are known but for a constant.
    shifted = divergence((ours + 300).astype(np.float32), (theirs - 7).astype(np.float32))
    assert shifted == pytest.approx(expected, rel=1e-3)
    assert divergence(theirs.astype(np.float32), theirs.astype(np.float32)) == 0.0


def test_only_what_may_answer_otherwise_is_compared_and_each_once() -> None:
    asked: list[Task] = []

    def judge(task: Task, **_: object) -> Sequence[Quality]:
        asked.append(task)
        return [Quality(place=i, agreement=0.9 - i / 10, divergence=0.1 + i, tokens=512) for i in range(2)]

    configs = {
        0: BASE,
        1: changed(speculation="draft", slots=2),
        2: changed(model="q8_0.gguf"),
        3: changed(model="q8_0.gguf", prefix_cache=False),
        4: changed(kv_type_k="q8_0", kv_type_v="q8_0"),
    }
    found = judge_all(configs, BASE, judge=judge)
    assert found == {
        0: {AGREEMENT: 1.0, DIVERGENCE: 0.0},
        1: {AGREEMENT: 1.0, DIVERGENCE: 0.0},
        2: {AGREEMENT: 0.9, DIVERGENCE: 0.1},
        3: {AGREEMENT: 0.9, DIVERGENCE: 0.1},
        4: {AGREEMENT: 0.8, DIVERGENCE: 1.1},
    }
    assert [one.model for one in asked[0].candidates] == ["q8_0.gguf", "f16.gguf"]


def test_nothing_is_started_where_all_say_the_same() -> None:
    def judge(*_: object, **__: object) -> Sequence[Quality]:
        raise AssertionError("there is nothing to compare")

    assert judge_all({1: changed(speculation="ngram")}, BASE, judge=judge) == {1: {AGREEMENT: 1.0, DIVERGENCE: 0.0}}


def test_quality_stands_among_the_figures_of_a_run() -> None:
    runs = with_quality([run(0, 0, 10.0), run(0, 1, 20.0)], {1: {AGREEMENT: 0.5, DIVERGENCE: 0.25}})
    assert AGREEMENT not in runs[0].figures
    assert (runs[1].figures[AGREEMENT], runs[1].figures["tokens_per_s"]) == (0.5, 20.0)


def test_a_text_is_read_with_what_changes_the_answers_and_nothing_else() -> None:
    one = for_reading(changed(model="q8_0.gguf", kv_type_k="q8_0", speculation="draft", flash_attention=False), 512)
    assert (one.model, one.kv_type_k, one.flash_attention) == ("q8_0.gguf", "q8_0", False)
    assert (one.draft_model, one.speculation, one.prefix_cache, one.slots) == (None, "off", False, 1)
    assert one.context_tokens is not None
    assert one.context_tokens >= 512 + ROWS


@pytest.mark.engine
def test_fewer_bits_say_something_else_and_the_same_weights_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stackscope.model.catalog import bundled_target
    from stackscope.model.quantise import quantise

    monkeypatch.setenv("STACKSCOPE_CACHE", str(tmp_path))
    reference = EngineConfig(model=str(bundled_target()), threads=1)
    files = [str(quantise(bundled_target(), kind).path) for kind in ("Q8_0", "Q2_K")]
    candidates = (
        reference,
        *(msgspec.structs.replace(reference, model=file) for file in files),
        msgspec.structs.replace(reference, kv_type_k="q4_0", kv_type_v="q4_0"),
    )
    same, q8, q2, kv4 = quality.compare(Task(reference=reference, candidates=candidates, tokens=256))
    assert (same.agreement, same.tokens) == (1.0, 256)
    assert same.divergence < 1e-6
    assert 0.97 < q8.agreement <= 1.0
    assert 0 < q8.divergence < 0.002 < q2.divergence
    assert q2.agreement < q8.agreement
    assert 0 < kv4.divergence < q2.divergence


@pytest.mark.engine
def test_a_model_that_is_not_there_is_a_sentence() -> None:
    from stackscope.model.catalog import bundled_target

    reference = EngineConfig(model=str(bundled_target()), threads=1)
    missing = msgspec.structs.replace(reference, model="nowhere.gguf")
    with pytest.raises(ModelFileError, match=r"nowhere\.gguf"):
        quality.compare(Task(reference=reference, candidates=(missing,)))


def test_a_process_that_dies_is_told_with_its_last_words() -> None:
    worker = ("-c", "import sys, os; sys.stderr.write('out of luck\\n'); sys.stderr.flush(); os._exit(3)")
    with pytest.raises(StackscopeError, match="out of luck"):
        quality.compare(Task(reference=BASE, candidates=(BASE,)), worker=worker)


def test_a_comparison_can_be_stopped() -> None:
    worker = ("-c", "import signal; signal.pause()")
    with pytest.raises(quality.StoppedError):
        quality.compare(Task(reference=BASE, candidates=(BASE,)), is_stopping=lambda: True, worker=worker)
