"""Built-in workloads without turns: `code` shares file prefixes, `copy` repeats its prompt, `unique` shares nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackscope.workload import corpus
from stackscope.workload.draws import Purpose, draw, stream
from stackscope.workload.entries import Message
from stackscope.workload.script import Room, Single, Turn, too_small, without_middle
from stackscope.workload.spec import Length

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from stackscope.workload.template import ChatFormat

LEAST_CONTEXT: Final = 64
"""A built-in workload refuses a context below: nothing that it stands for would be left."""

CODE_PROMPT: Final = Length.uniform(192, 1_024)
CODE_OUTPUT: Final = Length.lognormal(64, 0.4)
CODE_FILES: Final = 6
CURSORS_PER_FILE: Final = 4

UNIQUE_PROMPT: Final = Length.uniform(192, 768)
UNIQUE_OUTPUT: Final = Length.lognormal(64, 0.4)

COPY_PASSAGE: Final = Length.uniform(96, 256)

# A first guess for cutting text before encoding it; what turns out too short is doubled.
_CHARS_PER_TOKEN: Final = 5
# A text cut in the middle of a word ends in tokens that the whole text does not have there.
_MARGIN_TOKENS: Final = 16


class CodeScript:
    """Completions at a few cursor positions of a few files: prompts of one file are prefixes of one another.

    A prompt is hit in full where a longer or equal one of its file came before, in part where only shorter ones did.
    Positions that do not fit the context are moved to the last one that does.
    """

    def __init__(self, room: Room) -> None:
        self._room = room
        self._seed = room.spec.seed
        self._output = room.spec.output_tokens or CODE_OUTPUT
        self._prompt = room.spec.prompt_tokens or CODE_PROMPT
        self._n_files = CODE_FILES if room.spec.documents is None else room.spec.documents
        self._most_output = room.most_output(self._output)
        self._limit = _prompt_limit(room, self._most_output, self._prompt)
        order = stream(self._seed, Purpose.LIBRARY).permutation(len(corpus.modules()))
        self._order = tuple(int(place) for place in order)
        self._files: dict[int, list[int]] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        return self._room.notes

    @property
    def lap(self) -> None:
        return None

    def n_turns(self, number: int) -> int:  # noqa: ARG002 - part of the protocol
        return 1

    def open(self, number: int) -> Single:
        rng = stream(self._seed, Purpose.JOB, number)
        file = int(rng.integers(self._n_files))
        cursor = int(rng.integers(CURSORS_PER_FILE))
        max_tokens = min(draw(self._output, rng), self._most_output)
        tokens = self._file(file)[: self._cursors(file)[cursor]]
        return Single(self._room.turn(tokens, max_tokens))

    def _cursors(self, file: int) -> list[int]:
        rng = stream(self._seed, Purpose.CURSORS, file)
        return [min(draw(self._prompt, rng), self._limit) for _ in range(CURSORS_PER_FILE)]

    def _file(self, file: int) -> list[int]:
        """The file's tokens as far as its last cursor: encoded once, since one file takes 5 to 50 ms."""
        if file not in self._files:
            needed = max(self._cursors(file))
            self._files[file] = _at_least(
                self._room, needed, lambda n_chars: corpus.code_file(file, n_chars, self._order)
            )[:needed]
        return self._files[file]


class UniqueScript:
    """Prompts that differ from their first tokens on: each begins with a word and a number that no other has."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._seed = room.spec.seed
        self._output = room.spec.output_tokens or UNIQUE_OUTPUT
        self._prompt = room.spec.prompt_tokens or UNIQUE_PROMPT
        self._most_output = room.most_output(self._output)
        self._limit = _prompt_limit(room, self._most_output, self._prompt)

    @property
    def notes(self) -> tuple[str, ...]:
        return self._room.notes

    @property
    def lap(self) -> None:
        return None

    def n_turns(self, number: int) -> int:  # noqa: ARG002 - part of the protocol
        return 1

    def open(self, number: int) -> Single:
        rng = stream(self._seed, Purpose.JOB, number)
        n_tokens = min(draw(self._prompt, rng), self._limit)
        max_tokens = min(draw(self._output, rng), self._most_output)
        module, place = _somewhere(rng)
        words = corpus.words()
        lap, word = divmod(number, len(words))
        heading = f"{words[word]}-{lap}: a note on the following\n\n"
        tokens = _at_least(self._room, n_tokens, lambda n_chars: heading + corpus.code_passage(module, place, n_chars))
        return Single(self._room.turn(tokens[:n_tokens], max_tokens))


class CopyScript:
    """A passage, and the request to repeat it: answers that n-gram drafting can take from the prompt.

    With a chat template the request is put in words. Without one the passage stands twice, the second time only its
    beginning: a model that can copies on, and one that cannot falls into loops, which n-grams foresee as well.
    """

    def __init__(self, room: Room, form: ChatFormat) -> None:
        self._room = room
        self._form = form
        self._seed = room.spec.seed
        self._passage = room.spec.prompt_tokens or COPY_PASSAGE
        # Passage, its repeated beginning and the answer: a third of the context each fits with what stands between.
        self._limit = room.context_tokens // 3
        if room.context_tokens < LEAST_CONTEXT:
            raise too_small(room, LEAST_CONTEXT)
        if self._passage.most > self._limit:
            room.note(f"Passages to copy were shortened to {self._limit:,} tokens to fit the context.")

    @property
    def notes(self) -> tuple[str, ...]:
        return (*self._room.notes, *self._form.notes)

    @property
    def lap(self) -> None:
        return None

    def n_turns(self, number: int) -> int:  # noqa: ARG002 - part of the protocol
        return 1

    def open(self, number: int) -> Single:
        rng = stream(self._seed, Purpose.JOB, number)
        n_tokens = min(draw(self._passage, rng), self._limit)
        module, place = _somewhere(rng)
        text = corpus.code_passage(module, place, n_tokens * _CHARS_PER_TOKEN)
        while self._room.encoded_length(text) < n_tokens:
            text = corpus.code_passage(module, place, 2 * len(text))
        passage = self._room.cut(text, n_tokens)
        lead = self._room.cut(passage, max(1, n_tokens // 4))
        if self._form.is_plain:
            prompt = self._room.tokenizer.encode(f"{passage}\n\n\n{lead}")
            length = n_tokens - n_tokens // 4
        else:
            question = f"Repeat the text below exactly as it is, without any comment.\n\n{passage}"
            prompt = self._form.encode((Message("user", question),))
            length = n_tokens
        return Single(self._turn(prompt, length, rng))

    def _turn(self, prompt: list[int], length: int, rng: np.random.Generator) -> Turn:
        """As many tokens as are left to copy, unless the workload says otherwise."""
        wanted = length if self._room.spec.output_tokens is None else draw(self._room.spec.output_tokens, rng)
        most = self._room.most_output(Length.fixed(max(1, wanted)))
        limit = self._room.context_tokens - most
        if len(prompt) > limit:
            self._room.note("Prompts lost their middle to leave room for the outputs asked for.")
        return self._room.turn(without_middle(prompt, limit), most)


def _prompt_limit(room: Room, most_output: int, wanted: Length) -> int:
    """The longest prompt that leaves room for the longest output; says so when that is less than wanted."""
    if room.context_tokens < LEAST_CONTEXT:
        raise too_small(room, LEAST_CONTEXT)
    limit = room.context_tokens - most_output
    if wanted.most > limit:
        room.note(f"Prompts were cut at {limit:,} tokens, where {wanted.most:,} were wanted, to fit the context.")
    return limit


def _at_least(room: Room, n_tokens: int, text_of: Callable[[int], str]) -> list[int]:
    """Tokens of a text that is asked for by its number of characters, at least `n_tokens` and true up to there."""
    n_chars = n_tokens * _CHARS_PER_TOKEN + 64
    while True:
        tokens = room.tokenizer.encode(text_of(n_chars)[:n_chars])
        if len(tokens) >= n_tokens + _MARGIN_TOKENS:
            return tokens
        n_chars *= 2


def _somewhere(rng: np.random.Generator) -> tuple[int, float]:
    """A module, and how far into it."""
    return int(rng.integers(len(corpus.modules()))), float(rng.random())
