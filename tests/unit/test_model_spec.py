"""A model as its file describes it: tensors and bytes, roles, KV bytes, what the ledger gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stackscope.errors import LibraryError, ModelFileError
from stackscope.model import native
from stackscope.model.catalog import bundled_draft, bundled_target
from stackscope.model.header import ArrayInFile, TensorInfo, read_header
from stackscope.model.roles import is_matrix, layer_of, role_of
from stackscope.model.spec import kv_bytes_per_token, load_spec
from stackscope.records import LayerSummary
from tests.unit.gguf_builder import Tensor, write_gguf
from tests.unit.tiny_models import N_TOKENS, TINY, WIDTH, llama, write_tiny

if TYPE_CHECKING:
    from pathlib import Path

    from stackscope.model.spec import ModelSpec


@pytest.mark.parametrize("path", [bundled_target(), bundled_draft()], ids=["target", "draft"])
def test_tensors_and_padding_make_up_the_tensor_section(path: Path) -> None:
    spec = load_spec(path)
    assert spec.tensor_bytes + spec.padding_bytes == spec.section_bytes == spec.file_bytes - spec.data_offset
    assert sum(t.bytes for t in spec.tensor_classes) == spec.tensor_bytes
    assert sum(t.elements for t in spec.tensor_classes) == spec.parameters


def test_the_lab_target_is_what_its_card_says() -> None:
    """Embedding 4096 × 256; per layer q 256², k and v 256 × 128, output 256², three of 256 × 768, two norms of 256."""
    spec = load_spec(bundled_target())
    per_layer = 2 * 256 * 256 + 2 * 256 * 128 + 3 * 256 * 768 + 2 * 256
    assert spec.parameters == 4096 * 256 + 6 * per_layer + 256 == 5_770_496
    assert (spec.architecture, len(spec.layers), spec.embedding, spec.vocabulary) == ("llama", 6, 256, 4096)
    assert (spec.context, spec.experts, spec.experts_used, spec.tokenizer) == (2048, 0, 0, "gpt2")
    assert spec.has_tied_head
    assert spec.layers[0] == LayerSummary(heads=4, kv_heads=2, key_length=64, value_length=64)
    assert spec.not_modelled == ()
    assert not spec.is_recurrent


def test_the_summary_carries_what_the_ledger_needs() -> None:
    spec = load_spec(bundled_draft())
    summary = spec.summary(sha256="abc")
    assert (summary.tensor_bytes, summary.parameters) == (spec.tensor_bytes, spec.parameters)
    assert summary.layers == spec.layers
    assert summary.tied_head
    assert summary.sha256 == "abc"
    roles = {t.role: t for t in summary.tensors if t.layer == 1}
    assert roles["attention"].elements == 2 * 128 * 128 + 2 * 128 * 64
    assert roles["attention"].bytes == 2 * roles["attention"].elements  # F16
    assert roles["ffn"].elements == 3 * 128 * 384
    assert roles["norm"].bytes == 2 * 128 * 4  # F32
    assert not roles["norm"].is_matrix


@pytest.mark.parametrize("architecture", sorted(TINY))
def test_every_tensor_of_every_kind_of_model_is_counted_once(tmp_path: Path, architecture: str) -> None:
    spec = load_spec(write_tiny(tmp_path, architecture))
    assert sum(t.bytes for t in spec.tensor_classes) == spec.tensor_bytes
    assert spec.tensor_bytes + spec.padding_bytes == spec.section_bytes
    assert spec.vocabulary == N_TOKENS
    assert not [t for t in spec.tensor_classes if t.role == "other"]


def test_padding_is_what_lies_between_tensors(tmp_path: Path) -> None:
    """3 floats take 12 bytes of 32, 9 floats 36 of 64: 20 and 28 bytes of padding."""
    made = llama()
    extra = [Tensor("blk.0.attn_q.bias", (3,)), Tensor("blk.1.attn_q.bias", (9,))]
    spec = load_spec(write_gguf(tmp_path / "m.gguf", made.metadata, [*made.tensors, *extra]))
    assert spec.padding_bytes == 20 + 28
    assert spec.tensor_bytes + spec.padding_bytes == spec.section_bytes


def test_experts_are_apart_from_their_router_and_shared_ones(tmp_path: Path) -> None:
    spec = load_spec(write_tiny(tmp_path, "qwen3moe"))
    assert (spec.experts, spec.experts_used) == (8, 2)
    sums = {(t.role, t.layer): t.elements for t in spec.tensor_classes}
    assert sums["expert", 0] == 3 * WIDTH * 64 * 8
    assert sums["ffn", 0] == WIDTH * 8  # the router
    assert not spec.has_tied_head
    assert sums["head", None] == WIDTH * N_TOKENS


def test_prediction_layers_are_in_the_file_and_not_in_what_a_forward_reads(tmp_path: Path) -> None:
    made = llama()
    metadata = made.metadata | {"llama.block_count": 3, "llama.nextn_predict_layers": 1}
    extra = [Tensor("blk.2.attn_q.weight", (WIDTH, WIDTH)), Tensor("blk.2.nextn.eh_proj.weight", (2 * WIDTH, WIDTH))]
    spec = load_spec(write_gguf(tmp_path / "m.gguf", metadata, [*made.tensors, *extra]))
    assert (len(spec.layers), spec.prediction_layers) == (2, 1)
    left_out = 4 * (WIDTH * WIDTH + 2 * WIDTH * WIDTH)
    assert sum(t.bytes for t in spec.tensor_classes) == spec.tensor_bytes - left_out


@pytest.mark.parametrize(
    ("name", "role", "layer"),
    [
        ("token_embd.weight", "embedding", None),
        ("per_layer_token_embd.weight", "embedding", None),
        ("position_embd.weight", "embedding", None),
        ("token_embd_norm.weight", "norm", None),
        ("output.weight", "head", None),
        ("output_norm.weight", "norm", None),
        ("rope_freqs.weight", "other", None),
        ("blk.0.attn_q.weight", "attention", 0),
        ("blk.12.attn_kv_a_mqa.weight", "attention", 12),
        ("blk.3.attn_sinks.weight", "attention", 3),
        ("blk.3.attn_q_norm.weight", "norm", 3),
        ("blk.3.post_attention_norm.weight", "norm", 3),
        ("blk.3.ffn_gate.weight", "ffn", 3),
        ("blk.3.ffn_gate_inp.weight", "ffn", 3),
        ("blk.3.ffn_gate_shexp.weight", "ffn", 3),
        ("blk.3.exp_probs_b.bias", "ffn", 3),
        ("blk.3.ffn_gate_exps.weight", "expert", 3),
        ("blk.3.ffn_gate_up_exps.weight", "expert", 3),
        ("blk.3.ffn_down_chexps.weight", "expert", 3),
        ("blk.3.ffn_up.7.weight", "expert", 3),
        ("blk.3.ssm_in.weight", "recurrent", 3),
        ("blk.3.ssm_norm.weight", "norm", 3),
        ("blk.3.time_mix_key.weight", "recurrent", 3),
        ("blk.3.channel_mix_key.weight", "ffn", 3),
        ("blk.3.shortconv.in_proj.weight", "recurrent", 3),
        ("blk.3.inp_gate.weight", "other", 3),
    ],
)
def test_roles(name: str, role: str, layer: int | None) -> None:
    assert role_of(name) == role
    assert layer_of(name) == layer


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("blk.0.attn_q.weight", (64, 64), True),
        ("blk.0.ffn_gate_exps.weight", (64, 32, 8), True),
        ("output.weight", (64, 100), True),
        ("token_embd.weight", (64, 100), False),
        ("blk.0.attn_norm.weight", (64,), False),
        ("blk.0.attn_q.bias", (64,), False),
        ("blk.0.ssm_a", (8, 128), False),
        ("blk.0.time_mix_first.weight", (64, 4), False),
        ("blk.0.time_mix_lerp_w.weight", (64, 1, 1), False),
    ],
)
def test_what_multiplies_activations(name: str, shape: tuple[int, ...], expected: bool) -> None:
    assert is_matrix(TensorInfo(name, "f32", shape, 0, 0)) is expected


def test_kv_bytes_of_a_token() -> None:
    """2 KV heads × 64 elements: 256 bytes of keys at f16, 4 blocks of 34 bytes of values at q8_0."""
    layer = LayerSummary(heads=4, kv_heads=2, key_length=64, value_length=64)
    assert kv_bytes_per_token(layer, "f16", "f16") == 512
    assert kv_bytes_per_token(layer, "f16", "q8_0") == 256 + 4 * 34
    assert load_spec(bundled_target()).kv_bytes_per_token() == 6 * 512


def test_kv_bytes_where_nothing_or_only_keys_are_stored() -> None:
    latent = LayerSummary(heads=16, kv_heads=1, key_length=576, value_length=512, mla_rank=576)
    sharing = LayerSummary(heads=4, kv_heads=2, key_length=64, value_length=64, shares_kv=True)
    recurrent = LayerSummary(heads=0, kv_heads=0, key_length=0, value_length=0, recurrent_state=9)
    assert kv_bytes_per_token(latent, "f16", "f16") == 2 * 576
    assert kv_bytes_per_token(sharing, "f16", "f16") == 0
    assert kv_bytes_per_token(recurrent, "f16", "f16") == 0


def test_a_cache_type_that_the_rows_do_not_fit() -> None:
    layer = LayerSummary(heads=1, kv_heads=1, key_length=80, value_length=80)
    with pytest.raises(ValueError, match="multiple of 32"):
        kv_bytes_per_token(layer, "q8_0", "f16")


def test_the_name_of_a_nameless_model_is_its_file_s(tmp_path: Path) -> None:
    assert load_spec(write_tiny(tmp_path, "llama")).name == "tiny-llama"


def test_the_chat_template_comes_along(tmp_path: Path) -> None:
    made = llama()
    template = "{% for m in messages %}{{ m.content }} 🙂{% endfor %}" * 100
    spec = load_spec(
        write_gguf(tmp_path / "m.gguf", made.metadata | {"tokenizer.chat_template": template}, made.tensors)
    )
    assert spec.chat_template == template


def test_a_header_that_only_the_library_refuses_is_one_sentence(tmp_path: Path) -> None:
    """The library limits names of tensors by bytes with their terminator, and metadata keys not at all."""
    path = write_tiny(tmp_path, "llama")
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b"general.architecture", b"general.architecturf", 1))
    with pytest.raises(ModelFileError, match="what architecture"):
        load_spec(path)
    with pytest.raises(ModelFileError, match="cannot read") as caught:
        native.read(tmp_path / "missing.gguf")
    assert "\n" not in str(caught.value)


def test_a_missing_library_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", str(tmp_path))
    with pytest.raises(LibraryError, match="libggml-base"):
        load_spec(bundled_draft())


def test_a_child_that_aborts_is_one_sentence() -> None:
    error = native.failure("Reading m.gguf failed", -6, ["loading", "ggml.c:12: GGML_ASSERT(x > 0) failed", ""])
    assert error.message == "Reading m.gguf failed: it ended with SIGABRT (ggml.c:12: GGML_ASSERT(x > 0) failed)."
    assert native.failure("It", -9, []).message == "It: it ended with SIGKILL."
    assert native.failure("It", 1, []).message == "It: it gave no reason."
    assert native.failure("It", 1, ["a", "b: failed to open", "c failed"]).message == "It: b: failed to open."
    assert native.failure("It", 1, ["loading", "not as tested"]).message == "It: not as tested."
    assert native.failure("It", -40, []).message == "It: it ended with signal 40."


@pytest.mark.parametrize("architecture", sorted(TINY))
def test_python_and_the_library_read_the_same(tmp_path: Path, architecture: str) -> None:
    path = write_tiny(tmp_path, architecture)
    ours, theirs = read_header(path), native.read(path)
    assert (ours.version, ours.alignment, ours.data_offset) == (theirs.version, theirs.alignment, theirs.data_offset)
    assert [(t.name, t.type, t.offset, t.bytes) for t in ours.tensors] == [(t[0], t[1], *t[3:]) for t in theirs.tensors]
    assert len(ours.metadata) > 10
    for key, value in ours.metadata.items():
        if isinstance(value, ArrayInFile):
            assert theirs.metadata[f"{key}#n"] == value.n_elements
        else:
            assert theirs.metadata[key] == value


def specs() -> list[ModelSpec]:
    return [load_spec(bundled_target()), load_spec(bundled_draft())]


def test_specs_are_values() -> None:
    assert specs() == specs()
