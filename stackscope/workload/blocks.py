"""Synthetic tokens for traces that tell only which blocks of a prompt are the same: equal ids, equal tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stackscope.errors import WorkloadError
from stackscope.workload import corpus
from stackscope.workload.draws import Purpose, stream
from stackscope.workload.entries import Blocks
from stackscope.workload.formats import MOONCAKE_BLOCK

if TYPE_CHECKING:
    from stackscope.workload.entries import WorkloadFile
    from stackscope.workload.script import Room

_SAMPLE_CHARACTERS = 200_000


class BlockTokens:
    """A block per hash id: the id itself, written in tokens, then random ones.

    The written id makes blocks of different ids different, not just probably so, and from their first tokens on. A last
    block that is not full is the beginning of its block; two ids can share one only if it is shorter than a written id.
    """

    def __init__(self, vocabulary: np.ndarray, *, block: int, n_digits: int, seed: int, scale: float) -> None:
        """`vocabulary`: token ids to use, none of them special; `n_digits`: tokens that write an id."""
        self._vocabulary = vocabulary
        self._block = block
        self._n_digits = n_digits
        self._seed = seed
        self._scale = scale

    @classmethod
    def of(cls, room: Room, file: WorkloadFile) -> BlockTokens:
        """Blocks for a trace and a model. Raises WorkloadError when scaled blocks are too short to differ."""
        scale = room.spec.token_scale
        block = max(1, round(MOONCAKE_BLOCK * scale))
        vocabulary = ordinary_tokens(room)
        largest = max(
            (max(entry.prompt.hash_ids) for entry in file.entries if isinstance(entry.prompt, Blocks)), default=0
        )
        n_digits = 1
        while len(vocabulary) ** n_digits <= largest:
            n_digits += 1
        if n_digits > block:
            raise WorkloadError(
                f"At token_scale {scale:g} a block has {block} tokens, too few to tell {largest:,} blocks apart.",
                remedy=f"Use at least {n_digits / MOONCAKE_BLOCK:.4f}.",
            )
        return cls(vocabulary, block=block, n_digits=n_digits, seed=room.spec.seed, scale=scale)

    def tokens(self, prompt: Blocks) -> list[int]:
        """The prompt's tokens: full blocks, and of the last one as much as is left of its length."""
        *full, last = prompt.hash_ids
        tokens = [token for hash_id in full for token in self.block(hash_id)]
        return tokens + self.block(last)[: self.length(prompt) - len(tokens)]

    def length(self, prompt: Blocks) -> int:
        """Tokens of the prompt, without making them."""
        n_full = len(prompt.hash_ids) - 1
        n_left = prompt.tokens - MOONCAKE_BLOCK * n_full
        return self._block * n_full + min(self._block, max(1, round(n_left * self._scale)))

    def block(self, hash_id: int) -> list[int]:
        base = len(self._vocabulary)
        digits = [hash_id // base**place % base for place in range(self._n_digits)]
        rng = stream(self._seed, Purpose.BLOCK, hash_id)
        drawn = rng.integers(base, size=self._block - self._n_digits)
        tokens: list[int] = self._vocabulary[np.concatenate((np.array(digits, dtype=np.int64), drawn))].tolist()
        return tokens


def ordinary_tokens(room: Room) -> np.ndarray:
    """Tokens that text consists of, ascending: those of the bundled code. None is special, whatever the model."""
    sample = "\n".join(corpus.modules())[:_SAMPLE_CHARACTERS]
    tokens = np.unique(np.array(room.tokenizer.encode(sample, add_special=False), dtype=np.int64))
    if len(tokens) < 2:
        raise WorkloadError("The model's tokenizer makes the same token of every text.")
    return tokens
