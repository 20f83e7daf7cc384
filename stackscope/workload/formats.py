"""The lines of each file format, and how one becomes an entry."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from stackscope.workload.entries import Blocks, Entry, Message, Overrides, Role
from stackscope.workload.spec import MOST_TOKENS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MOONCAKE_BLOCK: Final = 512
"""Tokens that one hash id of a Mooncake trace stands for."""
_MOST_COPIES: Final = 128
_LONGEST_TRACE_S: Final = 10 * 365 * 86_400


class BadEntryError(Exception):
    """What is wrong with an entry; the reader adds its file and line."""


class Options(msgspec.Struct, kw_only=True):
    """What an entry of any format may say about its own generation, under OpenAI's and llama.cpp's names."""

    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    n_predict: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: str | tuple[str, ...] | None = None
    ignore_eos: bool | None = None
    n: int | None = None


class Part(msgspec.Struct):
    type: str = "text"
    text: str | None = None


class WireMessage(msgspec.Struct):
    role: str
    content: str | tuple[Part, ...] | None = None
    tool_calls: object = None


class PromptLine(Options):
    """JSON Lines of one's own: `{"prompt": ...}` or `{"messages": ...}`."""

    prompt: str | tuple[int, ...] | None = None
    messages: tuple[WireMessage, ...] | None = None
    arrival: float | None = None
    """Seconds."""


class BatchBody(Options):
    messages: tuple[WireMessage, ...] | None = None
    prompt: str | tuple[int | str | tuple[int, ...], ...] | None = None


class BatchLine(msgspec.Struct):
    """A line of an OpenAI batch file."""

    custom_id: str
    url: str
    body: BatchBody
    method: str = "POST"


class Utterance(msgspec.Struct):
    """A turn of a ShareGPT conversation, in either of the spellings in use."""

    speaker: str | None = msgspec.field(name="from", default=None)
    value: str | None = None
    role: str | None = None
    content: str | None = None


class ShareGptLine(msgspec.Struct):
    conversations: tuple[Utterance, ...]


class MooncakeLine(msgspec.Struct):
    timestamp: float
    """Milliseconds."""
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...]


_SPEAKERS: Final[dict[str, Role]] = {
    "system": "system", "developer": "system",
    "human": "user", "user": "user",
    "gpt": "assistant", "assistant": "assistant", "chatgpt": "assistant", "bing": "assistant", "bard": "assistant",
}  # fmt: skip
_ROLES: Final = {name: _SPEAKERS[name] for name in ("system", "developer", "user", "assistant")}


class Format(Protocol):
    """A file format: the type of a line, and the entries that one makes."""

    name: str
    keys: frozenset[str]
    """Any of these in the first line means this format."""
    line_type: Any

    def entries(self, value: Any, line: int) -> Sequence[Entry]:
        """Of one decoded line; none for a line that is whole but has nothing to ask. Raises BadEntryError."""


class Jsonl:
    name = "jsonl"
    keys = frozenset({"prompt", "messages"})
    line_type: Any = str | PromptLine

    def entries(self, value: str | PromptLine, line: int) -> Sequence[Entry]:
        if isinstance(value, str):
            return (Entry(line=line, prompt=_text(value)),)
        if (value.prompt is None) == (value.messages is None):
            raise BadEntryError("it needs either `prompt` or `messages`")
        arrival_ns = None if value.arrival is None else _time_ns("arrival", value.arrival, 1e9)
        if value.messages is not None:
            return _chat_entries(value.messages, value, line, arrival_ns=arrival_ns)
        prompt = _text(value.prompt) if isinstance(value.prompt, str) else _token_ids(value.prompt or ())
        return _copies(Entry(line=line, prompt=prompt, arrival_ns=arrival_ns, **_settings(value)), value)


class OpenAiBatch:
    name = "openai-batch"
    keys = frozenset({"custom_id", "body"})
    line_type: Any = BatchLine

    def __init__(self) -> None:
        self._lines_by_id: dict[str, int] = {}

    def entries(self, value: BatchLine, line: int) -> Sequence[Entry]:
        first = self._lines_by_id.setdefault(value.custom_id, line)
        if first != line:
            raise BadEntryError(f"`custom_id` {value.custom_id!r} was on line {first} before")
        if value.method.upper() != "POST":
            raise BadEntryError(f"`method` {value.method!r} is not supported, only POST")
        match value.url:
            case "/v1/chat/completions":
                if value.body.messages is None:
                    raise BadEntryError("`body` needs `messages`")
                return _chat_entries(value.body.messages, value.body, line)
            case "/v1/completions":
                return self._completions(value.body, line)
        raise BadEntryError(f"`url` {value.url!r} is not supported, only /v1/chat/completions and /v1/completions")

    def _completions(self, body: BatchBody, line: int) -> Sequence[Entry]:
        """One entry for each prompt: a text, a list of texts, tokens, or a list of lists of tokens."""
        prompt = body.prompt
        if prompt is None or prompt == ():
            raise BadEntryError("`body` needs `prompt`")
        prompts: list[str | tuple[int, ...]]
        if isinstance(prompt, str):
            prompts = [_text(prompt)]
        elif all(isinstance(part, int) for part in prompt):
            prompts = [_token_ids(prompt)]
        elif any(isinstance(part, int) for part in prompt):
            raise BadEntryError("`prompt` mixes tokens with texts")
        else:
            prompts = [_text(part) if isinstance(part, str) else _token_ids(part) for part in prompt]  # type: ignore[arg-type]
        settings = _settings(body)
        return [entry for one in prompts for entry in _copies(Entry(line=line, prompt=one, **settings), body)]


class ShareGpt:
    name = "sharegpt"
    keys = frozenset({"conversations"})
    line_type: Any = ShareGptLine

    def entries(self, value: ShareGptLine, line: int) -> Sequence[Entry]:
        """The user's side of a conversation; answers before the first question are left out, empty questions too.

        Questions in a row are one question. What was answered only bounds the length of what will be.
        """
        system: list[str] = []
        asked: list[str] = []
        answered: list[str | None] = []
        for utterance in value.conversations:
            role, text = _spoken(utterance)
            match role:
                case "system":
                    system.append(text)
                case "user" if text.strip() and len(asked) > len(answered):
                    asked[-1] = f"{asked[-1]}\n\n{text}"
                case "user" if text.strip():
                    asked.append(text)
                case "assistant" if len(asked) > len(answered):
                    answered.append(text)
        if not asked:
            return ()
        answered += [None] * (len(asked) - len(answered))
        head = (Message("system", "\n\n".join(system)),) if any(part.strip() for part in system) else ()
        prompt = (*head, Message("user", asked[0]))
        return (Entry(line=line, prompt=prompt, later=tuple(asked[1:]), references=tuple(answered)),)


class Mooncake:
    name = "mooncake"
    keys = frozenset({"hash_ids", "input_length"})
    line_type: Any = MooncakeLine

    def entries(self, value: MooncakeLine, line: int) -> Sequence[Entry]:
        _within("input_length", value.input_length, 1, MOST_TOKENS)
        _within("output_length", value.output_length, 1, MOST_TOKENS)
        needed = math.ceil(value.input_length / MOONCAKE_BLOCK)
        if len(value.hash_ids) != needed:
            raise BadEntryError(
                f"`hash_ids` has {len(value.hash_ids)} ids, but {value.input_length} tokens are {needed} blocks of "
                f"{MOONCAKE_BLOCK}"
            )
        for hash_id in value.hash_ids:
            _within("hash_ids", hash_id, 0, 2**64 - 1)
        entry = Entry(
            line=line,
            prompt=Blocks(value.hash_ids, value.input_length),
            max_tokens=value.output_length,
            ignore_eos=True,  # the trace says how long the answer was
            arrival_ns=_time_ns("timestamp", value.timestamp, 1e6),
        )
        return (entry,)


FORMATS: Final[tuple[type[Format], ...]] = (Jsonl, OpenAiBatch, ShareGpt, Mooncake)
"""Made anew for each file: one may remember what it has seen."""


def _chat_entries(
    wire: Sequence[WireMessage], options: Options, line: int, *, arrival_ns: int | None = None
) -> Sequence[Entry]:
    """One request with its history; a final answer is taken for the reference, and bounds the generated one."""
    messages = [_message(index, message) for index, message in enumerate(wire)]
    reference = None
    while messages and messages[-1].role == "assistant":
        reference = messages.pop().content
    if not any(message.role == "user" for message in messages):
        raise BadEntryError("`messages` has none from the user")
    return _copies(
        Entry(
            line=line,
            prompt=tuple(messages),
            references=() if reference is None else (reference,),
            arrival_ns=arrival_ns,
            **_settings(options),
        ),
        options,
    )


def _message(index: int, wire: WireMessage) -> Message:
    where = f"`messages[{index}]`"
    if wire.role not in _ROLES:
        raise BadEntryError(f"{where}: the role {wire.role!r} is not supported")
    if wire.tool_calls not in (None, []):
        raise BadEntryError(f"{where}: tool calls are not supported")
    if wire.content is None:
        raise BadEntryError(f"{where}: it has no content")
    if isinstance(wire.content, str):
        return Message(_ROLES[wire.role], wire.content)
    for part in wire.content:
        if part.type != "text" or part.text is None:
            raise BadEntryError(f"{where}: content of type {part.type!r} is not supported, only text")
    return Message(_ROLES[wire.role], "\n".join(part.text or "" for part in wire.content))


def _spoken(utterance: Utterance) -> tuple[Role, str]:
    speaker = utterance.speaker if utterance.speaker is not None else utterance.role
    text = utterance.value if utterance.value is not None else utterance.content
    if speaker is None or text is None:
        raise BadEntryError("a turn of `conversations` needs `from` and `value`")
    if speaker not in _SPEAKERS:
        raise BadEntryError(f"the speaker {speaker!r} is not supported")
    return _SPEAKERS[speaker], text


def _settings(options: Options) -> dict[str, Any]:
    """The fields of an entry that its options give, in bounds."""
    limits = [
        value for value in (options.max_tokens, options.max_completion_tokens, options.n_predict) if value is not None
    ]
    for limit in limits:
        _within("max_tokens", limit, 1, MOST_TOKENS)
    if len(set(limits)) > 1:
        raise BadEntryError(f"it gives different limits of tokens: {', '.join(map(str, limits))}")
    # -1 keeps all, as in vLLM; Stackscope's word for that is 0.
    top_k = 0 if options.top_k == -1 else options.top_k
    for name, value, most in (
        ("temperature", options.temperature, 100),
        ("top_k", top_k, 2**31 - 1),
        ("top_p", options.top_p, 1),
        ("min_p", options.min_p, 1),
        ("seed", options.seed, 2**63 - 1),
    ):
        if value is not None:
            _within(name, value, 0, most)
    stop = (options.stop,) if isinstance(options.stop, str) else options.stop or ()
    if "" in stop:
        raise BadEntryError("`stop` has an empty text")
    return {
        "max_tokens": limits[0] if limits else None,
        "overrides": Overrides(
            temperature=options.temperature, top_k=top_k, top_p=options.top_p, min_p=options.min_p, seed=options.seed
        ),
        "stop": tuple(stop),
        "ignore_eos": options.ignore_eos,
    }


def _copies(entry: Entry, options: Options) -> Sequence[Entry]:
    """`n` answers to one prompt are `n` requests."""
    n = 1 if options.n is None else options.n
    _within("n", n, 1, _MOST_COPIES)
    return (entry,) * n


def _text(text: str) -> str:
    if not text:
        raise BadEntryError("the prompt is empty")
    return text


def _token_ids(tokens: Iterable[object]) -> tuple[int, ...]:
    ids = tuple(token for token in tokens if isinstance(token, int))
    if not ids:
        raise BadEntryError("the prompt is empty")
    if min(ids) < 0 or max(ids) >= 2**31:
        raise BadEntryError("a token is out of range")
    return ids


def _time_ns(name: str, value: float, unit_ns: float) -> int:
    _within(name, value, 0, _LONGEST_TRACE_S * 1e9 / unit_ns)
    return round(value * unit_ns)


def _within(name: str, value: float, low: float, high: float) -> None:
    # Written so that NaN fails too.
    if not low <= value <= high:
        raise BadEntryError(f"`{name}` is {value}, which is not between {low:g} and {high:g}")
