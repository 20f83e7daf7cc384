"""The tokenizer of whichever model is loaded: it outlives the models, whose weights may be exchanged under it."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from llama_cpp import llama_cpp as low

from stackscope.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.engine.llama import Model


class Vocabulary:
    """A tokenizer, as `workload.jobs.Tokenizer` asks for it.

    Requests in flight and the traffic hold on to it while a rebuild frees the model that it came from: `attach` gives
    it the next one, which has the same vocabulary (a rebuild is refused otherwise).
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._pieces: list[bytes | None] = [None] * model.n_vocab
        self._ends: list[bool | None] = [None] * model.n_vocab
        self._buffer = ctypes.create_string_buffer(256)

    def attach(self, model: Model) -> None:
        """Ask this model from now on."""
        assert model.n_vocab == self.n_vocab, "the vocabulary is another"
        self._model = model

    @property
    def n_vocab(self) -> int:
        return len(self._pieces)

    @property
    def chat_template(self) -> str | None:
        template = low.llama_model_chat_template(self._model.handle, None)
        return None if template is None else template.decode(errors="replace")

    @property
    def bos_text(self) -> str:
        return self._special_text(low.llama_vocab_bos(self._model.vocab))

    @property
    def eos_text(self) -> str:
        return self._special_text(low.llama_vocab_eos(self._model.vocab))

    def _special_text(self, token: int) -> str:
        if token < 0:
            return ""
        text = low.llama_vocab_get_text(self._model.vocab, token)
        return "" if text is None else text.decode(errors="replace")

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """Token ids of a text."""
        raw = text.encode()
        room = len(raw) + 8
        while True:
            tokens = (low.llama_token * room)()
            n = low.llama_tokenize(self._model.vocab, raw, len(raw), tokens, room, add_special, parse_special)
            if n >= 0:
                return list(tokens[:n])
            if n == -(2**31):
                raise EngineError("The text is too long for the tokenizer.", remedy="Split the prompt.")
            room = -n

    def piece(self, token: int) -> bytes:
        """The bytes that a token adds to a text; control tokens add none."""
        known = self._pieces[token]
        if known is not None:
            return known
        n = low.llama_token_to_piece(self._model.vocab, token, self._buffer, len(self._buffer), 0, False)
        if n < 0:
            self._buffer = ctypes.create_string_buffer(-n)
            n = low.llama_token_to_piece(self._model.vocab, token, self._buffer, len(self._buffer), 0, False)
        piece = self._buffer.raw[:n]
        self._pieces[token] = piece
        return piece

    def is_end(self, token: int) -> bool:
        """Whether the token ends a generation (end of sequence, end of turn)."""
        known = self._ends[token]
        if known is None:
            known = self._ends[token] = bool(low.llama_vocab_is_eog(self._model.vocab, token))
        return known

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of tokens, invalid UTF-8 replaced."""
        return b"".join(self.piece(t) for t in tokens).decode(errors="replace")
