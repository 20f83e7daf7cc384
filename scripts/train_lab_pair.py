"""Train the lab pair from scratch: a small Llama-architecture target, and a smaller draft with the same tokenizer.

The text is the CPython standard library of the interpreter that runs this (PSF licence): code that repeats itself as
code does, which is what prefix caches and drafts live on.

    python scripts/train_lab_pair.py corpus                          corpus.bin, validation.bin, tokenizer.json
    python scripts/train_lab_pair.py train target --seconds 4300     target.pt (--resume continues)
    python scripts/train_lab_pair.py train draft --seconds 1400      draft.pt
    python scripts/train_lab_pair.py export target lab-target-f16.gguf

Everything is read from and written to --folder. Needs torch (CPU will do), numpy, tokenizers and gguf.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import random
import sysconfig
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray
    from torch import Tensor, nn
    from torch.optim import Optimizer

VOCABULARY = 4096
CONTEXT = 2048
SAMPLE_TOKENS = 512
SAMPLES_PER_STEP = 8
HELD_OUT_EVERY = 50
"""One source file in so many is kept for validation."""
BOS, EOS = "<|bos|>", "<|eos|>"


@dataclass(frozen=True)
class Shape:
    """Sizes of one model. The target's rows are multiples of 256, which K-quants need."""

    width: int
    layers: int
    heads: int
    kv_heads: int
    feed_forward: int

    @property
    def head_width(self) -> int:
        return self.width // self.heads


SHAPES = {
    "target": Shape(width=256, layers=6, heads=4, kv_heads=2, feed_forward=768),
    "draft": Shape(width=128, layers=2, heads=2, kv_heads=1, feed_forward=384),
}


def read_sources() -> list[str]:
    """Every distinct source file that is mostly ASCII and of ordinary length, in a fixed random order."""
    library = Path(sysconfig.get_paths()["stdlib"])
    texts: dict[str, str] = {}
    for path in sorted(library.rglob("*.py")):
        is_odd = "site-packages" in path.parts or "encodings" in path.parts or "bad" in path.stem
        if is_odd or not 400 < path.stat().st_size < 250_000:
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:  # the library tests its own handling of such files
            continue
        if sum(ord(character) > 127 for character in text) <= 0.01 * len(text):
            texts.setdefault(hashlib.sha1(text.encode()).hexdigest(), text)
    sources = list(texts.values())
    random.Random(0).shuffle(sources)
    return sources


def build_corpus(folder: Path) -> None:
    """Train the tokenizer and write the texts as 16-bit token ids, each between BOS (0) and EOS (1)."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    sources = read_sources()
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=[BOS, EOS], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(sources, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    parts: dict[str, list[int]] = {"corpus.bin": [], "validation.bin": []}
    for number, text in enumerate(sources):
        name = "validation.bin" if number % HELD_OUT_EVERY == 0 else "corpus.bin"
        parts[name].extend([0, *tokenizer.encode(text).ids, 1])
    for name, tokens in parts.items():
        np.array(tokens, dtype=np.uint16).tofile(folder / name)
        print(f"{name}: {len(tokens):,} tokens")
    print(f"{len(sources):,} files")


def rotation(head_width: int) -> Callable[[Tensor], Tensor]:
    """A function that turns queries and keys by their position, in the interleaved pairs of llama.cpp's `llama`."""
    import torch

    frequencies = 10_000.0 ** -(torch.arange(0, head_width, 2).float() / head_width)
    angles = torch.outer(torch.arange(CONTEXT).float(), frequencies)
    cosines, sines = angles.cos(), angles.sin()

    def rotate(x: Tensor) -> Tensor:  # [batch, heads, positions, head width]
        cosine, sine = cosines[: x.shape[2]], sines[: x.shape[2]]
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), -1).flatten(-2)

    return rotate


def block_class(shape: Shape) -> type[nn.Module]:
    """One layer: attention, then the gated feed-forward, each added to what comes in."""
    import torch.nn.functional as F
    from torch import nn

    rotate = rotation(shape.head_width)

    def linear(inputs: int, outputs: int) -> nn.Linear:
        return nn.Linear(inputs, outputs, bias=False)

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            query_width, kv_width = shape.heads * shape.head_width, shape.kv_heads * shape.head_width
            self.attn_norm = nn.RMSNorm(shape.width, eps=1e-5)
            self.ffn_norm = nn.RMSNorm(shape.width, eps=1e-5)
            self.attn_q = linear(shape.width, query_width)
            self.attn_k = linear(shape.width, kv_width)
            self.attn_v = linear(shape.width, kv_width)
            self.attn_output = linear(query_width, shape.width)
            self.ffn_gate = linear(shape.width, shape.feed_forward)
            self.ffn_up = linear(shape.width, shape.feed_forward)
            self.ffn_down = linear(shape.feed_forward, shape.width)

        def attend(self, x: Tensor) -> Tensor:
            batch, positions, _ = x.shape

            def split(y: Tensor, heads: int) -> Tensor:
                return y.view(batch, positions, heads, shape.head_width).transpose(1, 2)

            mixed = F.scaled_dot_product_attention(
                rotate(split(self.attn_q(x), shape.heads)),
                rotate(split(self.attn_k(x), shape.kv_heads)),
                split(self.attn_v(x), shape.kv_heads),
                is_causal=True,
                enable_gqa=True,
            )
            return self.attn_output(mixed.transpose(1, 2).reshape(batch, positions, -1))

        def forward(self, x: Tensor) -> Tensor:
            x = x + self.attend(self.attn_norm(x))
            h = self.ffn_norm(x)
            return x + self.ffn_down(F.silu(self.ffn_gate(h)) * self.ffn_up(h))

    return Block


def build_model(shape: Shape) -> nn.Module:
    """The network. Its parameters carry the names that llama.cpp gives their tensors, so that export only copies."""
    import torch.nn.functional as F
    from torch import nn

    block = block_class(shape)

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token_embd = nn.Embedding(VOCABULARY, shape.width)
            self.blk = nn.ModuleList(block() for _ in range(shape.layers))
            self.output_norm = nn.RMSNorm(shape.width, eps=1e-5)
            for name, parameter in self.named_parameters():
                if parameter.dim() == 2:
                    deviation = 0.02 if name.startswith("token_embd") else 0.4 / math.sqrt(parameter.shape[1])
                    nn.init.normal_(parameter, std=deviation)

        def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
            """Mean cross-entropy in nats; the head is the embedding, tied."""
            h = self.token_embd(tokens)
            for layer in self.blk:
                h = layer(h)
            logits = F.linear(self.output_norm(h), self.token_embd.weight)
            return F.cross_entropy(logits.view(-1, VOCABULARY), targets.reshape(-1))

    return Network()


def muon(parameters: list[Tensor], learning_rate: float) -> Optimizer:
    """Muon (Jordan et al., 2024) in float32, equal shapes together.

    torch's own iterates in bfloat16, some thirty times slower on CPUs without bfloat16 units.
    """
    import torch

    class Muon(torch.optim.Optimizer):
        def __init__(self) -> None:
            super().__init__(parameters, {"lr": learning_rate})

        @torch.no_grad()
        def step(self) -> None:
            for group in self.param_groups:
                for members in self.by_shape(group["params"]):
                    updates = orthogonal(torch.stack([update for _, update, _ in members]))
                    for (p, _, is_tall), update in zip(members, updates, strict=True):
                        scale = max(1.0, p.shape[0] / p.shape[1]) ** 0.5
                        p.mul_(1 - group["lr"] * 0.01)
                        p.add_(update.T if is_tall else update, alpha=-group["lr"] * scale)

        def by_shape(self, members: list[Tensor]) -> Iterable[list[tuple[Tensor, Tensor, bool]]]:
            groups: dict[tuple[int, ...], list[tuple[Tensor, Tensor, bool]]] = {}
            for p in members:
                momentum = self.state[p].setdefault("momentum", torch.zeros_like(p))
                momentum.mul_(0.95).add_(p.grad)
                update = p.grad.add(momentum, alpha=0.95)
                is_tall = update.shape[0] > update.shape[1]
                wide = update.T if is_tall else update
                groups.setdefault(tuple(wide.shape), []).append((p, wide, is_tall))
            return groups.values()

    def orthogonal(x: Tensor) -> Tensor:
        """Four Newton-Schulz iterations."""
        x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
        for _ in range(4):
            gram = torch.bmm(x, x.transpose(1, 2))
            x = 3.4445 * x + torch.bmm(-4.7750 * gram + 2.0315 * torch.bmm(gram, gram), x)
        return x

    return Muon()


def validation_loss(model: nn.Module, tokens: NDArray[np.uint16]) -> float:
    """Mean loss over the held-out files, in nats per token."""
    import torch

    with torch.no_grad():
        losses = []
        for start in range(0, len(tokens) - SAMPLE_TOKENS - 1, SAMPLE_TOKENS):
            sample = torch.from_numpy(tokens[start : start + SAMPLE_TOKENS + 1].astype(np.int64))[None]
            losses.append(model(sample[:, :-1], sample[:, 1:]).item())
    return float(np.mean(losses))


def learning_rate_factor(done: float, step: int) -> float:
    """Rises over 50 steps, stays for half the time, then falls to a fiftieth."""
    return min(1.0, (step + 1) / 50) * (1.0 if done < 0.5 else max(0.02, 2 * (1 - done)))


def train(folder: Path, name: str, seconds: float, resume: bool) -> None:
    """Train for so many seconds; matrices with Muon, norms and the embedding with AdamW."""
    import torch

    torch.manual_seed(1)
    tokens = np.fromfile(folder / "corpus.bin", dtype=np.uint16)
    model, checkpoint = build_model(SHAPES[name]), folder / f"{name}.pt"
    if resume:
        model.load_state_dict(torch.load(checkpoint))
    named = list(model.named_parameters())
    matrices = [p for key, p in named if p.dim() == 2 and not key.startswith("token_embd")]
    others = [p for key, p in named if p.dim() != 2 or key.startswith("token_embd")]
    optimisers = [
        muon(matrices, 0.02),
        torch.optim.AdamW(others, lr=3e-3, betas=(0.9, 0.95), weight_decay=0.0),
    ]
    peaks = [(group, group["lr"]) for optimiser in optimisers for group in optimiser.param_groups]
    draw = np.random.default_rng(int(time.time()) if resume else 0)
    began, step = time.monotonic(), 0
    while (done := (time.monotonic() - began) / seconds) < 1:
        for group, peak in peaks:
            group["lr"] = peak * learning_rate_factor(done, step)
        starts = draw.integers(0, len(tokens) - SAMPLE_TOKENS - 1, SAMPLES_PER_STEP)
        samples = np.stack([tokens[start : start + SAMPLE_TOKENS + 1] for start in starts]).astype(np.int64)
        batch = torch.from_numpy(samples)
        loss = model(batch[:, :-1], batch[:, 1:])
        for optimiser in optimisers:
            optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimiser in optimisers:
            optimiser.step()
        step += 1
        if step % 50 == 0:
            print(f"{name}, step {step}, {done:.0%} of the time, loss {loss.item():.3f}", flush=True)
            torch.save(model.state_dict(), checkpoint)
    torch.save(model.state_dict(), checkpoint)
    held_out = np.fromfile(folder / "validation.bin", dtype=np.uint16)
    print(f"{name}: {step} steps, held-out loss {validation_loss(model, held_out):.3f} nats per token")


def export(folder: Path, name: str, out: Path) -> None:
    """Write a trained model as GGUF, matrices in F16 and norms in F32."""
    import gguf
    import torch

    shape, state = SHAPES[name], torch.load(folder / f"{name}.pt")
    bpe = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    tokens = sorted(bpe["vocab"], key=bpe["vocab"].get)
    types = [gguf.TokenType.CONTROL if token in (BOS, EOS) else gguf.TokenType.NORMAL for token in tokens]
    writer = gguf.GGUFWriter(str(out), "llama")
    writer.add_name(f"stackscope-lab-{name}")
    writer.add_description("Code completion, trained on the CPython standard library sources.")
    writer.add_license("PSF-2.0")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(shape.head_width)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(VOCABULARY)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([" ".join(merge) if isinstance(merge, list) else merge for merge in bpe["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_add_bos_token(True)
    for key, parameter in state.items():
        values = parameter.float().numpy()
        writer.add_tensor(key, values if "norm" in key else values.astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path())
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("corpus")
    training = verbs.add_parser("train")
    training.add_argument("name", choices=SHAPES)
    training.add_argument("--seconds", type=float, required=True)
    training.add_argument("--resume", action="store_true")
    exporting = verbs.add_parser("export")
    exporting.add_argument("name", choices=SHAPES)
    exporting.add_argument("out", type=Path)
    arguments = parser.parse_args()
    if arguments.verb == "corpus":
        build_corpus(arguments.folder)
    elif arguments.verb == "train":
        train(arguments.folder, arguments.name, arguments.seconds, arguments.resume)
    else:
        export(arguments.folder, arguments.name, arguments.out)


if __name__ == "__main__":
    main()
