"""What a workload hands to the engine, and what it needs from the engine's tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from stackscope.toggles import Sampling

if TYPE_CHECKING:
    from collections.abc import Sequence


class Tokenizer(Protocol):
    """The target's tokenizer, as the workload sees it."""

    @property
    def n_vocab(self) -> int: ...

    @property
    def chat_template(self) -> str | None:
        """The model's own Jinja template. `None`: messages are rendered as plain text."""

    @property
    def bos_text(self) -> str: ...

    @property
    def eos_text(self) -> str: ...

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """Token ids of a text; `add_special` prepends what the model wants in front of a prompt."""

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of tokens, invalid UTF-8 replaced."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One request, ready to run: tokens, not text."""

    id: int
    tokens: tuple[int, ...]
    max_tokens: int
    arrived_ns: int
    """When it arrived, on the session's clock (open loop: the scheduled arrival, even if it is noticed later)."""
    sampling: Sampling = Sampling()
    stop: tuple[str, ...] = ()
    """Strings that end the output; they are not part of it."""
    ignore_eos: bool = False
    conversation: int | None = None
    """Jobs of one conversation run one after the other, each prompt growing by the last answer."""
    prompt_text: str | None = None
    """Kept only when the session records text."""
