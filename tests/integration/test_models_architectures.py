"""What is read from a file against what the library makes of it, for one tiny model of every kind of geometry."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import pytest
from llama_cpp import llama_cpp as low

from stackscope.analysis.kv import sequence_state_bytes
from stackscope.model.spec import load_spec
from stackscope.toggles import EngineConfig
from tests.unit.tiny_models import TINY, write_tiny

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from stackscope.model.spec import ModelSpec

pytestmark = pytest.mark.engine

SILENT = low.llama_log_callback(lambda _level, _text, _user: None)
CONFIG = EngineConfig(swa_full=True)


@pytest.fixture(params=sorted(TINY), scope="module")
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, ModelSpec]]:
    path: Path = write_tiny(tmp_path_factory.mktemp("tiny"), request.param)
    low.llama_log_set(SILENT, ctypes.c_void_p(0))
    low.llama_backend_init()
    model = low.llama_model_load_from_file(str(path).encode(), low.llama_model_default_params())
    assert model is not None, f"llama.cpp does not load the tiny {request.param}"
    yield model, load_spec(path)
    low.llama_model_free(model)


def test_sizes_are_the_library_s(loaded: tuple[Any, ModelSpec]) -> None:
    model, spec = loaded
    assert low.llama_model_size(model) == spec.tensor_bytes
    assert low.llama_model_n_params(model) == spec.parameters
    assert low.llama_model_n_layer(model) == len(spec.layers)
    assert low.llama_model_n_embd(model) == spec.embedding
    assert low.llama_model_n_ctx_train(model) == spec.context
    assert low.llama_vocab_n_tokens(low.llama_model_get_vocab(model)) == spec.vocabulary


def test_windows_and_recurrence_are_the_library_s(loaded: tuple[Any, ModelSpec]) -> None:
    model, spec = loaded
    windows = {layer.window for layer in spec.layers if layer.window is not None}
    assert low.llama_model_n_swa(model) == (windows.pop() if windows else 0)
    assert (low.llama_model_is_recurrent(model) or low.llama_model_is_hybrid(model)) == spec.is_recurrent


@pytest.mark.parametrize("n_tokens", [1, 20, 100])
def test_state_of_a_sequence_follows_from_the_geometry(loaded: tuple[Any, ModelSpec], n_tokens: int) -> None:
    """Beyond every window (16 and 32 tokens), one wrong head, length, window or state element shows as bytes."""
    model, spec = loaded
    params = low.llama_context_default_params()
    params.n_ctx, params.n_threads, params.n_threads_batch = 256, 1, 1
    params.n_batch = params.n_ubatch = 128
    params.flash_attn_type, params.kv_unified, params.swa_full = 1, True, True
    context = low.llama_init_from_model(model, params)
    assert context is not None
    try:
        tokens = (ctypes.c_int32 * n_tokens)(*[2 + i % 200 for i in range(n_tokens)])
        assert low.llama_decode(context, low.llama_batch_get_one(tokens, n_tokens)) == 0
        assert low.llama_state_seq_get_size(context, 0) == sequence_state_bytes(
            spec.summary(), CONFIG, n_tokens, n_seq_max=1
        )
    finally:
        low.llama_free(context)
