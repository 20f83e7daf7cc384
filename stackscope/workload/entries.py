"""What every workload file is turned into: entries that say what to ask, for how long, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

if TYPE_CHECKING:
    from stackscope.toggles import Sampling

Role: TypeAlias = Literal["system", "user", "assistant"]


class Message(msgspec.Struct, frozen=True):
    """One turn of a conversation."""

    role: Role
    content: str


class Blocks(msgspec.Struct, frozen=True):
    """A prompt of which only the length is known and which of its blocks of 512 tokens are whose."""

    hash_ids: tuple[int, ...]
    tokens: int


Prompt: TypeAlias = str | tuple[int, ...] | tuple[Message, ...] | Blocks


class Overrides(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an entry says about sampling; `None` leaves the workload's own."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int | None = None

    def applied(self, sampling: Sampling) -> Sampling:
        changes = {name: getattr(self, name) for name in self.__struct_fields__ if getattr(self, name) is not None}
        return msgspec.structs.replace(sampling, **changes) if changes else sampling


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One request, or one conversation of several, from a file."""

    line: int
    prompt: Prompt
    """Text, tokens, blocks, or the messages up to the first answer."""
    later: tuple[str, ...] = ()
    """What the user says after each answer; the conversation has one turn more than these."""
    references: tuple[str | None, ...] = ()
    """Recorded answer of each turn, whose length bounds the generated one. `None`, or none at all: unknown."""
    max_tokens: int | None = None
    """`None`: the entry does not say."""
    overrides: Overrides = Overrides()
    stop: tuple[str, ...] = ()
    ignore_eos: bool | None = None
    arrival_ns: int | None = None
    """On the trace's own clock. `None`: the entry does not say."""

    @property
    def messages(self) -> tuple[Message, ...]:
        """Up to the first answer; none where the prompt is text or tokens."""
        if not isinstance(self.prompt, tuple):
            return ()
        return tuple(part for part in self.prompt if isinstance(part, Message))

    @property
    def n_turns(self) -> int:
        return 1 + len(self.later)


class WorkloadFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file, read and checked as a whole."""

    path: str
    format: str
    entries: tuple[Entry, ...]
    """In the order in which they are offered: by arrival where they have one."""
    notes: tuple[str, ...] = ()
    sha256: str

    @property
    def n_requests(self) -> int:
        return sum(entry.n_turns for entry in self.entries)

    @property
    def has_messages(self) -> bool:
        return any(entry.messages for entry in self.entries)

    @property
    def has_arrivals(self) -> bool:
        return all(entry.arrival_ns is not None for entry in self.entries)
