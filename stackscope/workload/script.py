"""The seam between what is asked and when: a script is a sequence of conversations, most of them one turn long."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from stackscope.errors import WorkloadError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.toggles import Sampling
    from stackscope.workload.entries import Message
    from stackscope.workload.jobs import Tokenizer
    from stackscope.workload.spec import Length, WorkloadSpec
    from stackscope.workload.template import ChatFormat


class Turn(NamedTuple):
    """One request, before it has a number and a time of arrival."""

    tokens: tuple[int, ...]
    max_tokens: int
    sampling: Sampling
    stop: tuple[str, ...]
    ignore_eos: bool


class Conversation(Protocol):
    """Turns that follow each other: `ask`, `answered`, `ask`, ..."""

    def ask(self) -> Turn:
        """The next request. Raises WorkloadError when it does not fit the context and may not be shortened."""

    def answered(self, output: Sequence[int]) -> None:
        """Take what was generated, possibly nothing, into the conversation."""


class Script(Protocol):
    """Conversations by number, from 0 without end. What number n says depends on nothing but the workload and n."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What was shortened, joined or missing so far, in sentences."""

    @property
    def lap(self) -> int | None:
        """Conversations after which the same come again. `None`: they never do."""

    def n_turns(self, number: int) -> int: ...

    def open(self, number: int) -> Conversation: ...


class Single:
    """A conversation of one turn."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn

    def ask(self) -> Turn:
        return self._turn

    def answered(self, output: Sequence[int]) -> None:
        """Nothing follows."""


class Room:
    """The model's side of a workload: its tokenizer, and how much fits."""

    def __init__(self, spec: WorkloadSpec, tokenizer: Tokenizer, context_tokens: int) -> None:
        self.spec = spec
        self.tokenizer = tokenizer
        self.context_tokens = context_tokens
        self._notes: dict[str, None] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(self._notes)

    def note(self, sentence: str) -> None:
        self._notes[sentence] = None

    def most_output(self, length: Length) -> int:
        """Upper bound of what a request may generate: three quarters of the context at most, so that a prompt fits."""
        cap = length.most if self.spec.max_tokens is None else min(length.most, self.spec.max_tokens)
        return max(1, min(cap, self.context_tokens * 3 // 4))

    def turn(self, tokens: Sequence[int], max_tokens: int, *, stop: tuple[str, ...] = ()) -> Turn:
        """A request as the workload itself asks for it."""
        return Turn(tuple(tokens), max_tokens, self.spec.sampling, stop, self.spec.ignore_eos)

    def encoded_length(self, text: str) -> int:
        """Tokens of a text by itself, without what the model wants in front of a prompt."""
        return len(self.tokenizer.encode(text, add_special=False))

    def cut(self, text: str, n_tokens: int) -> str:
        """The beginning of a text, so much that it is about `n_tokens` long (a token more or less: texts join)."""
        tokens = self.tokenizer.encode(text, add_special=False)
        if len(tokens) <= n_tokens:
            return text
        return self.tokenizer.decode(tokens[:n_tokens]).rstrip("\ufffd")

    def sized(self, text: str, n_tokens: int, filler: str) -> str:
        """A text cut to `n_tokens`, or lengthened to it by the beginning of `filler`."""
        missing = n_tokens - self.encoded_length(text)
        return self.cut(text, n_tokens) if missing <= 0 else text + self.cut(filler, missing)


def without_middle(tokens: Sequence[int], limit: int) -> list[int]:
    """The first and the last half of `limit` tokens: the beginning holds what is shared, the end what is asked."""
    if len(tokens) <= limit:
        return list(tokens)
    n_head = (limit + 1) // 2
    n_tail = limit - n_head
    return [*tokens[:n_head], *tokens[len(tokens) - n_tail :]]


class History:
    """The messages of one conversation, which forgets its oldest turns rather than outgrow the context."""

    def __init__(self, form: ChatFormat, head: tuple[Message, ...]) -> None:
        """`head` stays for ever: the system prompt."""
        self._form = form
        self._head = head
        self._turns: list[tuple[Message, Message]] = []
        self.n_forgotten = 0

    def encode(self, message: Message, limit: int) -> list[int]:
        """The prompt that ends with `message`; longer than `limit` tokens only when it has nothing left to forget.

        It forgets down to half of the limit: forgetting one turn each time would move every later prompt's beginning,
        and no prefix would ever be shared again.
        """
        tokens = self._encoded(message)
        while len(tokens) > limit and self._turns:
            goal = limit // 2
            while len(tokens) > goal and self._turns:
                del self._turns[0]
                self.n_forgotten += 1
                tokens = self._encoded(message)
        return tokens

    def append(self, question: Message, answer: Message) -> None:
        self._turns.append((question, answer))

    def _encoded(self, message: Message) -> list[int]:
        past = [part for turn in self._turns for part in turn]
        return self._form.encode([*self._head, *past, message])


def too_small(room: Room, needed: int) -> WorkloadError:
    return WorkloadError(
        f"The context of {room.context_tokens:,} tokens is too small for the workload {room.spec.name}, "
        f"which needs {needed:,}.",
        remedy="Use a larger context, or ask for shorter prompts and outputs.",
    )
