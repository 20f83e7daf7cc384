"""Built-in workloads of messages: `chat` grows by its own answers under one system prompt, `rag` shares documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackscope.workload import corpus
from stackscope.workload.draws import Purpose, draw, stream
from stackscope.workload.entries import Message
from stackscope.workload.script import History, Room, Single, Turn, too_small, without_middle
from stackscope.workload.spec import Length

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from stackscope.workload.template import ChatFormat

CHAT_OUTPUT: Final = Length.lognormal(64, 0.5)
CHAT_TURNS: Final = Length.uniform(2, 6)
CHAT_LEAST_CONTEXT: Final = 256

RAG_OUTPUT: Final = Length.lognormal(32, 0.4)
RAG_DOCUMENTS: Final = 4
RAG_LEAST_CONTEXT: Final = 128
_RAG_TASK: Final = "Answer the question from the document, in one or two sentences."

# Text that lengthens a message or a document is cut from this many characters per token.
_CHARS_PER_TOKEN: Final = 8


class ChatScript:
    """Customers who write to a help desk: one system prompt, each conversation with its own name, place and topic.

    A system prompt may take a quarter of the context and is cut at its end to fit; a conversation that outgrows the
    context forgets its oldest turns.
    """

    def __init__(self, room: Room, form: ChatFormat) -> None:
        self.room = room
        self.form = form
        if room.context_tokens < CHAT_LEAST_CONTEXT:
            raise too_small(room, CHAT_LEAST_CONTEXT)
        self.output = room.spec.output_tokens or CHAT_OUTPUT
        self.most_output = room.most_output(self.output)
        self._turns = room.spec.turns or CHAT_TURNS
        self.system = Message("system", self._system_prompt())

    @property
    def notes(self) -> tuple[str, ...]:
        return (*self.room.notes, *self.form.notes)

    @property
    def lap(self) -> None:
        return None

    def n_turns(self, number: int) -> int:
        return draw(self._turns, stream(self.room.spec.seed, Purpose.TURNS, number))

    def open(self, number: int) -> ChatConversation:
        return ChatConversation(self, number)

    def _system_prompt(self) -> str:
        text = corpus.chats().system.strip()
        wanted = self.room.spec.shared_tokens
        if wanted is None:
            wanted = self.room.encoded_length(text)
        most = self.room.context_tokens // 4
        if wanted > most:
            self.room.note(f"The system prompt was cut from {wanted:,} to {most:,} tokens to fit the context.")
            wanted = most
        filler, _ = corpus.document_text(0, wanted * _CHARS_PER_TOKEN)
        return self.room.sized(text, wanted, f"\n\nBackground. {filler}")


class ChatConversation:
    """One customer."""

    def __init__(self, script: ChatScript, number: int) -> None:
        self._script = script
        self._rng = stream(script.room.spec.seed, Purpose.CONVERSATION, number)
        chats = corpus.chats()
        self._topic = chats.topic[int(self._rng.integers(len(chats.topic)))]
        name = chats.names[int(self._rng.integers(len(chats.names)))]
        place = chats.places[int(self._rng.integers(len(chats.places)))]
        self._greeting = f"Hello, this is {name} from {place}. "
        self._history = History(script.form, (script.system,))
        self._n_asked = 0
        self._question: Message | None = None

    def ask(self) -> Turn:
        script, room = self._script, self._script.room
        self._question = Message("user", self._said())
        max_tokens = min(draw(script.output, self._rng), script.most_output)
        limit = room.context_tokens - max_tokens
        tokens = self._history.encode(self._question, limit)
        if self._history.n_forgotten > 0:
            room.note("Conversations that outgrew the context forgot their oldest turns.")
        if len(tokens) > limit:
            room.note("Messages lost their middle to fit the context.")
        self._n_asked += 1
        return room.turn(without_middle(tokens, limit), max_tokens, stop=script.form.stop)

    def answered(self, output: Sequence[int]) -> None:
        assert self._question is not None, "an answer comes after a question"
        self._history.append(self._question, Message("assistant", self._script.form.answer(output)))
        self._question = None

    def _said(self) -> str:
        """The next line of the topic, or one that continues any, at the length that the workload asks for."""
        turns = self._topic.turns
        follow_ups = corpus.chats().follow_ups
        text = (
            turns[self._n_asked] if self._n_asked < len(turns) else follow_ups[int(self._rng.integers(len(follow_ups)))]
        )
        if self._n_asked == 0:
            text = self._greeting + text
        room = self._script.room
        wanted = room.spec.prompt_tokens
        return text if wanted is None else _lengthened(room, text, draw(wanted, self._rng), self._rng)


class RagScript:
    """Short questions about a few documents, each document in front of its question, so that it is a shared prefix.

    Documents that do not fit the context together with the longest question and output are cut at their end, all
    requests alike.
    """

    def __init__(self, room: Room, form: ChatFormat) -> None:
        self._room = room
        self._form = form
        if room.context_tokens < RAG_LEAST_CONTEXT:
            raise too_small(room, RAG_LEAST_CONTEXT)
        self._output = room.spec.output_tokens or RAG_OUTPUT
        self._most_output = room.most_output(self._output)
        self._n_documents = RAG_DOCUMENTS if room.spec.documents is None else room.spec.documents
        self._limit = self._document_limit()
        self._documents: dict[int, tuple[str, corpus.Document]] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        return (*self._room.notes, *self._form.notes)

    @property
    def lap(self) -> None:
        return None

    def n_turns(self, number: int) -> int:  # noqa: ARG002 - part of the protocol
        return 1

    def open(self, number: int) -> Single:
        rng = stream(self._room.spec.seed, Purpose.JOB, number)
        text, document = self._document(int(rng.integers(self._n_documents)))
        question = document.questions[int(rng.integers(len(document.questions)))]
        if self._room.spec.prompt_tokens is not None:
            question = _lengthened(self._room, question, draw(self._room.spec.prompt_tokens, rng), rng)
        max_tokens = min(draw(self._output, rng), self._most_output)
        limit = self._room.context_tokens - max_tokens
        tokens = self._form.encode((Message("user", _rag_prompt(text, question)),))
        if len(tokens) > limit:
            self._room.note("Prompts lost their middle to fit the context.")
        return Single(self._room.turn(without_middle(tokens, limit), max_tokens, stop=self._form.stop))

    def _document(self, number: int) -> tuple[str, corpus.Document]:
        if number not in self._documents:
            wanted = self._room.spec.shared_tokens
            text, document = corpus.document_text(number, 0 if wanted is None else wanted * _CHARS_PER_TOKEN)
            length = self._room.encoded_length(text) if wanted is None else wanted
            if length > self._limit:
                self._room.note(f"Documents were cut at {self._limit:,} tokens to fit the context.")
            self._documents[number] = (self._room.cut(text, min(length, self._limit)), document)
        return self._documents[number]

    def _document_limit(self) -> int:
        """What the context leaves to a document beside the longest question, the longest output and the template."""
        frame = len(self._form.encode((Message("user", _rag_prompt("", "")),)))
        longest = self._room.spec.prompt_tokens
        question = (
            max(self._room.encoded_length(one) for document in corpus.documents() for one in document.questions)
            if longest is None
            else longest.most
        )
        # Texts join a token more or less; eight of them keep the end of the document in front of the question.
        limit = self._room.context_tokens - self._most_output - frame - question - 8
        if limit < 16:
            raise too_small(self._room, self._room.context_tokens - limit + 16)
        return limit


def _rag_prompt(document: str, question: str) -> str:
    return f"{document}\n\n{_RAG_TASK}\n\nQuestion: {question}"


def _lengthened(room: Room, text: str, n_tokens: int, rng: np.random.Generator) -> str:
    """A message cut to a length, or lengthened to it by what its writer pasted: a piece of a document."""
    library = corpus.documents()
    first = int(rng.integers(len(library)))
    pasted, _ = corpus.document_text(first, n_tokens * _CHARS_PER_TOKEN)
    return room.sized(text, n_tokens, f"\n\nThis is what I have in front of me. {pasted}")
