"""The requests of a file as a script: conversations continue with the model's own answers, lengths are the file's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from stackscope.errors import WorkloadError
from stackscope.workload.blocks import BlockTokens
from stackscope.workload.draws import Purpose, draw, stream
from stackscope.workload.entries import Blocks, Entry, Message, WorkloadFile
from stackscope.workload.numbering import Numbering
from stackscope.workload.rows import bad_line
from stackscope.workload.script import History, Room, Turn, without_middle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.workload.template import ChatFormat

DEFAULT_OUTPUT: Final = 128
"""Tokens to generate where neither the file nor the workload says; fewer where the context leaves fewer."""

MOST_CHECKED: Final = 1_000
"""Requests that are checked against the context before the first one runs; later ones as they come up."""

_TOKENS_AROUND: Final = 8
"""A text has at most as many tokens as bytes, and these around it."""


class Limit(NamedTuple):
    """How much to generate."""

    tokens: int
    is_default: bool
    """Nobody asked for just that many: fewer will do where the context leaves fewer."""


class FileScript:
    """Entry n of the file is conversation n; after the last the first comes again.

    Raises WorkloadError, naming the line, when one of the first entries does not fit the context and the workload does
    not allow truncation, or when the chat template refuses it.
    """

    def __init__(self, room: Room, form: ChatFormat, file: WorkloadFile) -> None:
        self.room = room
        self.form = form
        self.file = file
        has_blocks = any(isinstance(entry.prompt, Blocks) for entry in file.entries)
        self.blocks = BlockTokens.of(room, file) if has_blocks else None
        self._check_ahead()

    @property
    def notes(self) -> tuple[str, ...]:
        return (*self.file.notes, *self.room.notes, *self.form.notes)

    @property
    def lap(self) -> int:
        return len(self.file.entries)

    def n_turns(self, number: int) -> int:
        return self._entry(number).n_turns

    def open(self, number: int) -> FileConversation:
        if number >= self.lap:
            self.room.note("The file was begun again after its last request, so its prompts repeat.")
        return FileConversation(self, self._entry(number), number)

    def limit(self, entry: Entry, number: int, turn: int) -> Limit:
        """How much to generate: what the workload says, else the entry, else as much as was recorded."""
        spec = self.room.spec
        is_default = False
        if spec.output_tokens is not None:
            tokens = draw(spec.output_tokens, stream(spec.seed, Purpose.JOB, number, turn))
        elif isinstance(entry.prompt, Blocks) and entry.max_tokens is not None:
            tokens = max(1, round(entry.max_tokens * spec.token_scale))
        elif entry.max_tokens is not None:
            tokens = entry.max_tokens
        elif (reference := _reference(entry, turn)) is not None:
            tokens = max(1, self.room.encoded_length(reference))
        else:
            tokens, is_default = DEFAULT_OUTPUT, True
        if spec.max_tokens is not None:
            tokens = min(tokens, spec.max_tokens)
        return Limit(tokens, is_default)

    def fitted(self, tokens: list[int], limit: Limit, entry: Entry) -> tuple[list[int], int]:
        """Prompt and output limit that fit the context together.

        With truncation an output limit may claim half of the context, or what the prompt leaves if that is more; a
        prompt that is still too long loses its middle.
        """
        context = self.room.context_tokens
        if len(tokens) + limit.tokens <= context:
            return tokens, limit.tokens
        if limit.is_default and len(tokens) < context:
            return tokens, context - len(tokens)
        self._refuse_unless_fitting(len(tokens), limit, entry)
        self.room.note("Prompts that did not fit the context lost their middle, or their output limit was lowered.")
        most = min(limit.tokens, max(context // 2, context - len(tokens)))
        return without_middle(tokens, context - most), most

    def prompt_room(self, limit: Limit) -> int:
        """How long a prompt may be before its conversation has to forget something."""
        context = self.room.context_tokens
        may_shrink = limit.is_default or self.room.spec.truncate
        return max(1, context - (min(limit.tokens, context // 2) if may_shrink else limit.tokens))

    def encode(self, entry: Entry) -> list[int]:
        """The tokens of a prompt that is not made of messages."""
        if isinstance(entry.prompt, str):
            bos = self.room.tokenizer.bos_text
            has_bos = bool(bos) and entry.prompt.startswith(bos)
            return self.room.tokenizer.encode(entry.prompt, add_special=not has_bos, parse_special=True)
        if isinstance(entry.prompt, Blocks):
            assert self.blocks is not None
            return self.blocks.tokens(entry.prompt)
        tokens = [token for token in entry.prompt if isinstance(token, int)]
        if max(tokens) >= self.room.tokenizer.n_vocab:
            raise bad_line(
                self.file.path,
                entry.line,
                f"token {max(tokens):,} is outside the model's vocabulary of {self.room.tokenizer.n_vocab:,}",
            )
        return tokens

    def refused(self, error: WorkloadError, entry: Entry) -> WorkloadError:
        """The chat template's complaint, with the line it is about."""
        return bad_line(self.file.path, entry.line, error.message.rstrip("."), remedy=error.remedy)

    def _entry(self, number: int) -> Entry:
        return self.file.entries[number % len(self.file.entries)]

    def _refuse_unless_fitting(self, n_tokens: int, limit: Limit, entry: Entry) -> None:
        context = self.room.context_tokens
        is_fitting = n_tokens + (1 if limit.is_default else limit.tokens) <= context
        if not is_fitting and not self.room.spec.truncate:
            raise bad_line(
                self.file.path,
                entry.line,
                f"the prompt of {n_tokens:,} tokens and {limit.tokens:,} to generate do not fit the context of "
                f"{context:,}",
                remedy="Allow truncation (truncate = true), lower max_tokens, or use a larger context.",
            )

    def _check_ahead(self) -> None:
        spec = self.room.spec
        limit = min(
            MOST_CHECKED, self.file.n_requests, self.file.n_requests if spec.requests is None else spec.requests
        )
        numbering = Numbering(self, group=spec.concurrency, limit=limit)
        while not numbering.is_exhausted:
            number, ids = numbering.take()
            for turn in range(len(ids)):
                self._check(self._entry(number), number, turn)

    def _check(self, entry: Entry, number: int, turn: int) -> None:
        """That one turn by itself fits. Encoding costs 1 to 3 µs a token, so what fits by its bytes is not encoded."""
        if isinstance(entry.prompt, Blocks):
            assert self.blocks is not None
            self._refuse_unless_fitting(self.blocks.length(entry.prompt), self.limit(entry, number, turn), entry)
            return
        if isinstance(entry.prompt, str):
            text = entry.prompt
        elif entry.messages:
            try:
                text = self.form.text(_messages_alone(entry, turn))
            except WorkloadError as error:
                raise self.refused(error, entry) from error
        else:
            self._refuse_unless_fitting(len(self.encode(entry)), self.limit(entry, number, turn), entry)
            return
        most_tokens = len(text.encode()) + _TOKENS_AROUND + self._most_output(entry, turn)
        if most_tokens > self.room.context_tokens and not self.room.spec.truncate:
            self.open(number).ask_alone(turn)

    def _most_output(self, entry: Entry, turn: int) -> int:
        """Upper bound of what a turn may generate."""
        spec = self.room.spec
        reference = _reference(entry, turn)
        if spec.output_tokens is not None:
            most = spec.output_tokens.most
        elif entry.max_tokens is not None:
            most = entry.max_tokens
        else:
            most = DEFAULT_OUTPUT if reference is None else len(reference.encode()) + 1
        return most if spec.max_tokens is None else min(most, spec.max_tokens)


class FileConversation:
    """One entry while it runs."""

    def __init__(self, script: FileScript, entry: Entry, number: int) -> None:
        self._script = script
        self._entry = entry
        self._number = number
        self._n_asked = 0
        head, self._first = _head_and_first(entry)
        self._history = History(script.form, head)
        self._question: Message | None = None

    def ask(self) -> Turn:
        turn = self._n_asked
        self._n_asked += 1
        return self._turn(turn)

    def ask_alone(self, turn: int) -> Turn:
        """Any turn without those before it, to see whether it fits."""
        return self._turn(turn)

    def answered(self, output: Sequence[int]) -> None:
        if self._question is not None:
            self._history.append(self._question, Message("assistant", self._script.form.answer(output)))
            self._question = None

    def _turn(self, turn: int) -> Turn:
        script, entry = self._script, self._entry
        limit = script.limit(entry, self._number, turn)
        if self._first is None:
            tokens, stop = script.encode(entry), entry.stop
        else:
            tokens, stop = self._encoded(turn, limit), (*script.form.stop, *entry.stop)
        fitted, max_tokens = script.fitted(tokens, limit, entry)
        spec = script.room.spec
        return Turn(
            tuple(fitted),
            max_tokens,
            entry.overrides.applied(spec.sampling),
            stop,
            spec.ignore_eos if entry.ignore_eos is None else entry.ignore_eos,
        )

    def _encoded(self, turn: int, limit: Limit) -> list[int]:
        assert self._first is not None
        self._question = self._first if turn == 0 else Message("user", self._entry.later[turn - 1])
        script, room = self._script, self._script.room
        try:
            tokens = self._history.encode(self._question, script.prompt_room(limit))
        except WorkloadError as error:
            raise script.refused(error, self._entry) from error
        if self._history.n_forgotten > 0:
            room.note("Conversations that outgrew the context forgot their oldest turns.")
        return tokens


def _head_and_first(entry: Entry) -> tuple[tuple[Message, ...], Message | None]:
    """What stays in front of a conversation for ever, and the message that opens it (`None`: it has no messages)."""
    messages = entry.messages
    return (messages[:-1], messages[-1]) if messages else ((), None)


def _messages_alone(entry: Entry, turn: int) -> tuple[Message, ...]:
    messages = entry.messages
    return messages if turn == 0 else (*messages[:-1], Message("user", entry.later[turn - 1]))


def _reference(entry: Entry, turn: int) -> str | None:
    return entry.references[turn] if turn < len(entry.references) else None
