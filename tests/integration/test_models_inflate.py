"""Wider copies: the same logits at the size asked for, whatever the type, quantised afterwards or not."""

from __future__ import annotations

import ctypes
import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from llama_cpp import llama_cpp as low

from stackscope.errors import ModelFileError, UsageError
from stackscope.model.catalog import bundled_draft, bundled_target, folder_of
from stackscope.model.header import read_header
from stackscope.model.inflate import LARGEST, SMALLEST, STEP, inflate, plan
from stackscope.model.quantise import quantise
from stackscope.model.spec import load_spec, tokenizer_difference
from tests.unit.gguf_builder import write_gguf
from tests.unit.test_model_files import largest_file
from tests.unit.tiny_models import llama, weight, write_tiny

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

pytestmark = pytest.mark.engine

SILENT = low.llama_log_callback(lambda _level, _text, _user: None)
TOKENS = [0, 317, 43, 1290, 77, 2048, 9, 4000, 512, 33, 1, 620]

F16_NOISE = 4e-3
"""Largest difference of a logit (they reach 20) that the other order of summing F16 products makes; 1.4e-3 was seen."""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STACKSCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@contextmanager
def loaded(path: Path) -> Iterator[Any]:
    low.llama_log_set(SILENT, ctypes.c_void_p(0))
    low.llama_backend_init()
    model = low.llama_model_load_from_file(str(path).encode(), low.llama_model_default_params())
    assert model is not None
    yield model
    low.llama_model_free(model)


def logits(path: Path, tokens: list[int]) -> NDArray[np.float32]:
    """Logits behind every token of a prompt, shape (tokens, vocabulary)."""
    with loaded(path) as model:
        params = low.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch, params.n_threads, params.n_threads_batch = 256, 128, 128, 2, 2
        context = low.llama_init_from_model(model, params)
        batch = low.llama_batch_init(len(tokens), 0, 1)
        try:
            for i, token in enumerate(tokens):
                batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, i, 1, 1
                batch.seq_id[i][0] = 0
            batch.n_tokens = len(tokens)
            assert low.llama_decode(context, batch) == 0
            n_vocab = low.llama_vocab_n_tokens(low.llama_model_get_vocab(model))
            rows = low.llama_get_logits(context)
            return np.ctypeslib.as_array(rows, shape=(len(tokens), n_vocab)).copy()
        finally:
            low.llama_batch_free(batch)
            low.llama_free(context)


@pytest.mark.parametrize(("megabytes", "width"), [(30, 2816), (200, 21248)])
def test_the_target_inflated_answers_the_same(megabytes: int, width: int) -> None:
    """A step takes 6 layers × 3 matrices × 256 rows × 256 × 2 bytes = 2.36 MB; the size is met within half of one."""
    done = inflate(bundled_target(), megabytes)
    assert done.plan.width == width
    assert abs(done.plan.bytes - megabytes * 1e6) <= 6 * 3 * 256 * 256 * 2 / 2
    assert done.path.stat().st_size == done.plan.bytes
    before, after = logits(bundled_target(), TOKENS), logits(done.path, TOKENS)
    assert np.abs(before).max() > 5
    assert np.abs(after - before).max() < F16_NOISE
    assert (after.argmax(axis=1) == before.argmax(axis=1)).all()


def test_bytes_and_metadata_are_as_predicted() -> None:
    done = inflate(bundled_target(), 30)
    old, new = load_spec(bundled_target()), load_spec(done.path)
    added = done.plan.width - 768
    assert new.parameters - old.parameters == 6 * 3 * 256 * added
    assert new.tensor_bytes - old.tensor_bytes == 2 * 6 * 3 * 256 * added
    assert new.tensor_bytes + new.padding_bytes == new.section_bytes
    assert new.name == "stackscope-lab-target inflated to 30 MB"
    assert new.layers == old.layers
    assert tokenizer_difference(old, new) is None
    before, after = read_header(bundled_target()).metadata, read_header(done.path).metadata
    scalars = {key for key, value in before.items() if not isinstance(value, tuple)}
    changed = {key for key in scalars if before[key] != after[key]}
    assert changed == {"general.name", "llama.feed_forward_length"}
    assert list(before) == list(after)


def test_the_draft_s_odd_width_becomes_a_multiple_of_the_step() -> None:
    done = inflate(bundled_draft(), 6)
    assert done.plan.width_before == 384
    assert done.plan.width % STEP == 0
    before, after = logits(bundled_draft(), TOKENS), logits(done.path, TOKENS)
    assert np.abs(after - before).max() < F16_NOISE


@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_other_float_types(kind: str) -> None:
    source = quantise(bundled_target(), kind).path
    done = inflate(source, 60)
    assert {t.type for t in read_header(done.path).tensors} == {"f32", kind}
    assert np.abs(logits(done.path, TOKENS) - logits(source, TOKENS)).max() < (1e-4 if kind == "f32" else 0.15)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_K_M", "Q4_0"])
def test_quantised_afterwards_it_is_the_quantised_original(kind: str) -> None:
    """Trained rows fill whole blocks, so they quantise as they did, and the zeros behind them stay zeros."""
    wide = quantise(inflate(bundled_target(), 30).path, kind)
    narrow = quantise(bundled_target(), kind)
    assert wide.fallbacks == ()
    types = {t.name: t.type for t in read_header(wide.path).tensors}
    assert types == {t.name: t.type for t in read_header(narrow.path).tensors}
    before, after = logits(narrow.path, TOKENS), logits(wide.path, TOKENS)
    assert np.abs(after - before).max() < 0.1  # activations are requantised per block; 0.02 was seen


def test_the_added_weights_are_ordinary_numbers() -> None:
    done = inflate(bundled_draft(), 6)
    header = read_header(done.path)
    raw = done.path.read_bytes()
    tensors = {t.name: t for t in header.tensors}

    def values(name: str) -> NDArray[np.float16]:
        tensor = tensors[name]
        start = header.data_offset + tensor.offset
        return np.frombuffer(raw[start : start + tensor.bytes], np.float16).reshape(tensor.shape[::-1])

    added = np.abs(values("blk.0.ffn_gate.weight")[384:].astype(np.float32))
    assert added.min() >= SMALLEST * 0.999
    assert added.max() <= LARGEST * 1.001
    assert 0.45 < float((values("blk.1.ffn_up.weight")[384:] > 0).mean()) < 0.55
    assert not values("blk.0.ffn_down.weight")[:, 384:].any()
    assert values("blk.0.ffn_down.weight")[:, :384].any(axis=1).all()
    assert len(np.unique(values("blk.1.ffn_up.weight")[384:])) > 1000


def test_the_same_call_writes_the_same_file(tmp_path: Path) -> None:
    one = inflate(bundled_draft(), 4, output=tmp_path / "a.gguf").path.read_bytes()
    assert inflate(bundled_draft(), 4, output=tmp_path / "b.gguf").path.read_bytes() == one
    assert inflate(bundled_draft(), 4, output=tmp_path / "c.gguf", seed=1).path.read_bytes() != one


def test_progress_ends_with_the_whole_file() -> None:
    seen: list[tuple[int, int]] = []
    done = inflate(bundled_draft(), 4, on_progress=lambda written, total: seen.append((written, total)))
    assert [written for written, _ in seen] == sorted(written for written, _ in seen)
    assert {total for _, total in seen} == {done.plan.bytes}
    assert done.plan.bytes - 32 < seen[-1][0] <= done.plan.bytes


@pytest.mark.parametrize("megabytes", [0, -5, math.nan, math.inf, 1, 11.7, 1e12])
def test_sizes_that_make_no_sense(megabytes: float) -> None:
    with pytest.raises(UsageError):
        plan(read_header(bundled_target()), megabytes)


def test_names_and_what_is_in_the_way() -> None:
    done = inflate(bundled_draft(), 4)
    assert done.path == folder_of("inflated") / "lab-draft-4mb-f16.gguf"
    with pytest.raises(UsageError, match="there already"):
        inflate(bundled_draft(), 4)


def test_models_that_cannot_be_widened_say_why(tmp_path: Path) -> None:
    quantised = quantise(bundled_target(), "Q8_0").path
    with pytest.raises(ModelFileError, match=r"quantised \(q8_0\)"):
        inflate(quantised, 100)
    with pytest.raises(ModelFileError, match="architecture qwen3moe"):
        inflate(write_tiny(tmp_path, "qwen3moe"), 100)
    with pytest.raises(ModelFileError, match="architecture mamba"):
        inflate(write_tiny(tmp_path, "mamba"), 100)
    made = llama()
    moe = [t._replace(name=t.name.replace("ffn_gate.", "ffn_gate_exps.")) for t in made.tensors]
    with pytest.raises(ModelFileError, match="without ffn_gate"):
        inflate(write_gguf(tmp_path / "moe.gguf", made.metadata, moe), 100)
    odd = [*made.tensors, weight("blk.0.ffn_sub_norm.weight", 128)]
    with pytest.raises(ModelFileError, match="ffn_sub_norm"):
        inflate(write_gguf(tmp_path / "odd.gguf", made.metadata, odd), 100)
    uneven = made.metadata | {"llama.feed_forward_length": [128, 128]}
    with pytest.raises(ModelFileError, match="one feed-forward width"):
        inflate(write_gguf(tmp_path / "uneven.gguf", uneven, made.tensors), 100)
    wrong = made.metadata | {"llama.feed_forward_length": 64}
    with pytest.raises(ModelFileError, match="unexpected shape"):
        inflate(write_gguf(tmp_path / "wrong.gguf", wrong, made.tensors), 100)


def test_windows_and_biases_survive(tmp_path: Path) -> None:
    """A gemma3 with its own head width, and a llama with feed-forward biases."""
    source = write_tiny(tmp_path, "gemma3")
    done = inflate(source, 5)
    assert load_spec(done.path).layers == load_spec(source).layers
    assert np.abs(logits(done.path, [2, 9, 77]) - logits(source, [2, 9, 77])).max() < 1e-4
    made = llama()
    biases = [
        weight(f"blk.{il}.ffn_{part}.bias", 64 if part == "down" else 128)
        for il in (0, 1)
        for part in ("gate", "up", "down")
    ]
    biased = write_gguf(tmp_path / "biased-f32.gguf", made.metadata, [*made.tensors, *biases])
    wider = inflate(biased, 5)
    assert np.abs(logits(wider.path, [2, 9, 77]) - logits(biased, [2, 9, 77])).max() < 1e-4


def test_the_alignment_of_the_file_is_kept(tmp_path: Path) -> None:
    """At 512 bytes, every norm of 64 floats is followed by padding."""
    made = llama()
    metadata = made.metadata | {"general.alignment": 512}
    source = write_gguf(tmp_path / "m-f32.gguf", metadata, made.tensors, alignment=512)
    spec = load_spec(inflate(source, 5).path)
    assert spec.alignment == 512
    assert spec.padding_bytes > 0
    assert spec.tensor_bytes + spec.padding_bytes == spec.section_bytes
    assert np.abs(logits(spec.path, [2, 9, 77]) - logits(source, [2, 9, 77])).max() < 1e-4


def test_nothing_is_left_where_the_file_may_not_be_written_to_its_end(cache: Path) -> None:
    with pytest.raises(ModelFileError, match="limit for one file"), largest_file(3_000_000):
        inflate(bundled_draft(), 20)
    assert list((cache / "inflated").iterdir()) == []
    with pytest.raises(ModelFileError, match=r"needs 10\.0 TB"):
        inflate(bundled_target(), 10_000_000)
