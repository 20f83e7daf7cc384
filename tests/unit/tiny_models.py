"""Random models of a few thousand weights in many architectures, complete enough for llama.cpp to load and run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tests.unit.gguf_builder import I32, Tensor, Typed, Value, keys, write_gguf

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WIDTH: Final = 64
CONTEXT: Final = 256
EXTRA_TOKENS: Final = ("<|bos|>", "<|eos|>")


class Tiny(NamedTuple):
    metadata: dict[str, Value]
    tensors: list[Tensor]


def byte_alphabet() -> list[str]:
    """GPT-2's printable stand-ins for the 256 bytes, in the order of the bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def tokenizer(tokens: list[str] | None = None, **changes: Value) -> dict[str, Value]:
    """A byte-level BPE vocabulary: the bytes, beginning and end of a sequence."""
    listed = [*EXTRA_TOKENS, *byte_alphabet()] if tokens is None else tokens
    made: dict[str, Value] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": listed,
        "tokenizer.ggml.token_type": [Typed(I32, 3 if token in EXTRA_TOKENS else 1) for token in listed],
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
    }
    return made | {f"tokenizer.ggml.{key}": value for key, value in changes.items()}


N_TOKENS: Final = len(EXTRA_TOKENS) + 256


def weight(name: str, *shape: int, type: str = "f32") -> Tensor:
    """Small random weights; norms are ones."""
    random = np.random.default_rng(abs(hash_of(name)))
    values = np.ones(shape[::-1]) if "norm" in name else random.normal(0, 0.05, shape[::-1])
    if name.endswith("ssm_a"):
        values = -np.abs(values) - 0.1
    stored = values.astype(np.float16 if type == "f16" else np.float32)
    return Tensor(name, shape, type, stored.tobytes())


def hash_of(name: str) -> int:
    return sum((i + 1) * ord(c) for i, c in enumerate(name))


def frame(*, head: bool = False, norm: str = "output_norm") -> list[Tensor]:
    tensors = [weight("token_embd.weight", WIDTH, N_TOKENS), weight(f"{norm}.weight", WIDTH)]
    return [*tensors, weight("output.weight", WIDTH, N_TOKENS)] if head else tensors


def attention(il: int, heads: int, kv_heads: int, key: int, value: int | None = None) -> list[Tensor]:
    value = key if value is None else value
    return [
        weight(f"blk.{il}.attn_norm.weight", WIDTH),
        weight(f"blk.{il}.attn_q.weight", WIDTH, heads * key),
        weight(f"blk.{il}.attn_k.weight", WIDTH, kv_heads * key),
        weight(f"blk.{il}.attn_v.weight", WIDTH, kv_heads * value),
        weight(f"blk.{il}.attn_output.weight", heads * key, WIDTH),
    ]


def feed_forward(il: int, width: int, type: str = "f32") -> list[Tensor]:
    return [
        weight(f"blk.{il}.ffn_norm.weight", WIDTH),
        weight(f"blk.{il}.ffn_gate.weight", WIDTH, width, type=type),
        weight(f"blk.{il}.ffn_up.weight", WIDTH, width, type=type),
        weight(f"blk.{il}.ffn_down.weight", width, WIDTH, type=type),
    ]


def experts(il: int, width: int, count: int) -> list[Tensor]:
    return [
        weight(f"blk.{il}.ffn_norm.weight", WIDTH),
        weight(f"blk.{il}.ffn_gate_inp.weight", WIDTH, count),
        weight(f"blk.{il}.ffn_gate_exps.weight", WIDTH, width, count),
        weight(f"blk.{il}.ffn_up_exps.weight", WIDTH, width, count),
        weight(f"blk.{il}.ffn_down_exps.weight", width, WIDTH, count),
    ]


def common(architecture: str, layers: int, **more: Value) -> dict[str, Value]:
    base: dict[str, Value] = {
        "context_length": CONTEXT,
        "embedding_length": WIDTH,
        "block_count": layers,
        "attention__layer_norm_rms_epsilon": 1e-5,
    }
    return keys(architecture, **(base | more)) | tokenizer()


def llama() -> Tiny:
    """Grouped queries: 4 heads on 2 KV heads."""
    metadata = common("llama", 2, feed_forward_length=128, attention__head_count=4, attention__head_count_kv=2)
    tensors = [t for il in range(2) for t in (*attention(il, 4, 2, 16), *feed_forward(il, 128))]
    return Tiny(metadata, [*frame(), *tensors])


def gemma2() -> Tiny:
    """Alternating windows of 32 tokens, full attention in odd layers; keys wider than the width allows for."""
    metadata = common(
        "gemma2", 3, feed_forward_length=128, attention__head_count=2, attention__head_count_kv=1,
        attention__key_length=64, attention__value_length=64, attention__sliding_window=32,
    )  # fmt: skip
    return Tiny(metadata, [*frame(), *(t for il in range(3) for t in gemma_block(il, 2, 1, 64))])


def gemma3() -> Tiny:
    """Seven layers: five windowed, one full, one windowed."""
    metadata = common(
        "gemma3", 7, feed_forward_length=128, attention__head_count=2, attention__head_count_kv=1,
        attention__key_length=64, attention__value_length=64, attention__sliding_window=32,
    )  # fmt: skip
    norms = [weight(f"blk.{il}.attn_{part}_norm.weight", 64) for il in range(7) for part in "qk"]
    return Tiny(metadata, [*frame(), *norms, *(t for il in range(7) for t in gemma_block(il, 2, 1, 64))])


def gemma_block(il: int, heads: int, kv_heads: int, key: int) -> list[Tensor]:
    post = [weight(f"blk.{il}.post_attention_norm.weight", WIDTH), weight(f"blk.{il}.post_ffw_norm.weight", WIDTH)]
    return [*attention(il, heads, kv_heads, key), *feed_forward(il, 128), *post]


def qwen3moe() -> Tiny:
    """Two of eight experts."""
    metadata = common(
        "qwen3moe", 2, feed_forward_length=128, attention__head_count=4, attention__head_count_kv=2,
        attention__key_length=32, attention__value_length=32, expert_count=8, expert_used_count=2,
        expert_feed_forward_length=64,
    )  # fmt: skip
    norms = [weight(f"blk.{il}.attn_{part}_norm.weight", 32) for il in range(2) for part in "qk"]
    blocks = [t for il in range(2) for t in (*attention(il, 4, 2, 32), *experts(il, 64, 8))]
    return Tiny(metadata, [*frame(head=True), *norms, *blocks])


def gpt_oss() -> Tiny:
    """Windows in even layers, attention sinks, experts with biases."""
    metadata = common(
        "gpt-oss", 4, attention__head_count=4, attention__head_count_kv=2, attention__key_length=32,
        attention__value_length=32, attention__sliding_window=16, expert_count=4, expert_used_count=2,
        expert_feed_forward_length=64,
    )  # fmt: skip
    tensors = frame(head=True)
    for il in range(4):
        tensors += [*attention(il, 4, 2, 32), *experts(il, 64, 4)[1:]]
        tensors += [
            weight(f"blk.{il}.post_attention_norm.weight", WIDTH),
            weight(f"blk.{il}.attn_sinks.weight", 4),
            weight(f"blk.{il}.attn_output.bias", WIDTH),
            weight(f"blk.{il}.ffn_gate_inp.bias", 4),
            weight(f"blk.{il}.ffn_gate_exps.bias", 64, 4),
            weight(f"blk.{il}.ffn_up_exps.bias", 64, 4),
            weight(f"blk.{il}.ffn_down_exps.bias", WIDTH, 4),
        ]
    return Tiny(metadata, tensors)


def deepseek2() -> Tiny:
    """Latent attention: keys of rank 32 + 16 rotated elements, shared by 4 heads; no values are stored."""
    metadata = common(
        "deepseek2", 2, feed_forward_length=128, attention__head_count=4, attention__head_count_kv=1,
        attention__key_length=48, attention__value_length=32, attention__key_length_mla=32,
        attention__value_length_mla=16, attention__kv_lora_rank=32, attention__q_lora_rank=24, rope__dimension_count=16,
        leading_dense_block_count=2, expert_count=2, expert_used_count=1, expert_feed_forward_length=64,
        expert_shared_count=1, expert_weights_scale=1.0, expert_gating_func=1, vocab_size=N_TOKENS,
    )  # fmt: skip
    tensors = frame()
    for il in range(2):
        tensors += [
            weight(f"blk.{il}.attn_norm.weight", WIDTH),
            weight(f"blk.{il}.attn_q_a.weight", WIDTH, 24),
            weight(f"blk.{il}.attn_q_a_norm.weight", 24),
            weight(f"blk.{il}.attn_q_b.weight", 24, 4 * 32),
            weight(f"blk.{il}.attn_kv_a_norm.weight", 32),
            weight(f"blk.{il}.attn_kv_a_mqa.weight", WIDTH, 32 + 16),
            weight(f"blk.{il}.attn_k_b.weight", 16, 32, 4),
            weight(f"blk.{il}.attn_v_b.weight", 32, 16, 4),
            weight(f"blk.{il}.attn_output.weight", 4 * 16, WIDTH),
            *feed_forward(il, 128),
        ]
    return Tiny(metadata, tensors)


def mamba() -> Tiny:
    """Recurrent through and through; no attention."""
    inner, state, rank, kernel = 2 * WIDTH, 8, 4, 4
    metadata = common(
        "mamba", 2, feed_forward_length=0, attention__head_count=0, ssm__conv_kernel=kernel, ssm__inner_size=inner,
        ssm__state_size=state, ssm__time_step_rank=rank,
    )  # fmt: skip
    tensors = frame()
    for il in range(2):
        tensors += [
            weight(f"blk.{il}.attn_norm.weight", WIDTH),
            weight(f"blk.{il}.ssm_in.weight", WIDTH, 2 * inner),
            weight(f"blk.{il}.ssm_conv1d.weight", kernel, inner),
            weight(f"blk.{il}.ssm_conv1d.bias", inner),
            weight(f"blk.{il}.ssm_x.weight", inner, rank + 2 * state),
            weight(f"blk.{il}.ssm_dt.weight", rank, inner),
            weight(f"blk.{il}.ssm_dt.bias", inner),
            weight(f"blk.{il}.ssm_a", state, inner),
            weight(f"blk.{il}.ssm_d", inner),
            weight(f"blk.{il}.ssm_out.weight", inner, WIDTH),
        ]
    return Tiny(metadata, tensors)


def lfm2() -> Tiny:
    """A hybrid: short convolutions in layers 0 and 2, attention in layer 1."""
    metadata = common(
        "lfm2", 3, feed_forward_length=128, attention__head_count=4, attention__head_count_kv=[0, 2, 0],
        shortconv__l_cache=3,
    )  # fmt: skip
    tensors = frame(norm="token_embd_norm")
    for il in range(3):
        tensors += feed_forward(il, 128)
        if il == 1:
            norms = [weight(f"blk.{il}.attn_{part}_norm.weight", 16) for part in "qk"]
            tensors += [*attention(il, 4, 2, 16), *norms]
        else:
            tensors += [
                weight(f"blk.{il}.attn_norm.weight", WIDTH),
                weight(f"blk.{il}.shortconv.conv.weight", 3, WIDTH),
                weight(f"blk.{il}.shortconv.in_proj.weight", WIDTH, 3 * WIDTH),
                weight(f"blk.{il}.shortconv.out_proj.weight", WIDTH, WIDTH),
            ]
    return Tiny(metadata, tensors)


TINY: Final[dict[str, Callable[[], Tiny]]] = {
    "llama": llama,
    "gemma2": gemma2,
    "gemma3": gemma3,
    "qwen3moe": qwen3moe,
    "gpt-oss": gpt_oss,
    "deepseek2": deepseek2,
    "mamba": mamba,
    "lfm2": lfm2,
}


def write_tiny(folder: Path, architecture: str) -> Path:
    """Write the tiny model of an architecture as `FOLDER/tiny-ARCHITECTURE.gguf`."""
    made = TINY[architecture]()
    return write_gguf(folder / f"tiny-{architecture}.gguf", made.metadata, made.tensors)
