"""A tokenizer without a model: one token per byte, and special tokens that only `parse_special` sees."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

BOS, EOS = "<s>", "</s>"

CHATML = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


class ByteTokenizer:
    """256 bytes, then the special tokens; a prompt gets a beginning-of-sequence token."""

    specials = (BOS, EOS, "<|im_start|>", "<|im_end|>")

    def __init__(self, chat_template: str | None = None) -> None:
        self._chat_template = chat_template
        self.n_encoded = 0
        """Characters encoded so far."""

    @property
    def n_vocab(self) -> int:
        return 256 + len(self.specials)

    @property
    def chat_template(self) -> str | None:
        return self._chat_template

    @property
    def bos_text(self) -> str:
        return BOS

    @property
    def eos_text(self) -> str:
        return EOS

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        self.n_encoded += len(text)
        tokens = [256] if add_special else []
        pattern = "(" + "|".join(map(re.escape, self.specials)) + ")"
        for piece in re.split(pattern, text) if parse_special else [text]:
            if parse_special and piece in self.specials:
                tokens.append(256 + self.specials.index(piece))
            else:
                tokens += piece.encode("utf-8")
        return tokens

    def decode(self, tokens: Sequence[int]) -> str:
        pieces = [bytes([token]) if token < 256 else self.specials[token - 256].encode() for token in tokens]
        return b"".join(pieces).decode("utf-8", "replace")


class WordTokenizer(ByteTokenizer):
    """Words with the space in front of them, learned as they come, as in a model with a large vocabulary."""

    def __init__(self, chat_template: str | None = None) -> None:
        super().__init__(chat_template)
        self._words: dict[str, int] = {}

    @property
    def n_vocab(self) -> int:
        return 1_000_000

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        tokens = [256] if add_special else []
        pattern = (
            "|".join(map(re.escape, self.specials)) + r"|\s?\w+|\s+|[^\w\s]" if parse_special else r"\s?\w+|\s+|[^\w\s]"
        )
        for piece in re.findall(pattern, text):
            if parse_special and piece in self.specials:
                tokens.append(256 + self.specials.index(piece))
            else:
                tokens.append(self._words.setdefault(piece, 300 + len(self._words)))
        return tokens

    def decode(self, tokens: Sequence[int]) -> str:
        texts = {number: word for word, number in self._words.items()}
        return "".join(self.specials[token - 256] if 256 <= token < 300 else texts.get(token, "�") for token in tokens)
