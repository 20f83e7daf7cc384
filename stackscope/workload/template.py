"""Messages to text: by the model's own chat template as Hugging Face renders it, or as plain text where it has none."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal

from stackscope.errors import WorkloadError
from stackscope.workload.entries import Message
from stackscope.workload.sandbox import BudgetError, TemplateSandbox

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.workload.jobs import Tokenizer

# A template that prints today's date would make every day's prompts different; a run must be repeatable.
TEMPLATE_DATE: Final = datetime(2025, 1, 1)

_REMEDY: Final = "Use plain text instead (template = plain), or a model file with a working template."
_PROBE: Final = "Zq7"


class ChatFormat:
    """How the messages of a conversation become the text of a prompt.

    Plain text, where there is no template, is the system prompt and an empty line, then `User:` and `Assistant:` lines,
    the last one open; a line that begins with `User:` ends an answer.

    Messages that the template refuses are changed as little as will do: empty ones become `...` and neighbours of one
    role are joined; failing that, the system prompt goes in front of the first user message, as it does when the
    template would silently drop it.
    """

    def __init__(self, tokenizer: Tokenizer, *, template: Literal["model", "plain"] = "model") -> None:
        """Compile and try the template. Raises WorkloadError when it cannot render even one user message."""
        self._tokenizer = tokenizer
        self._source = tokenizer.chat_template if template == "model" else None
        self._notes: dict[str, None] = {}
        if self._source is None:
            if template == "model":
                self._note("The model has no chat template: messages are plain text.")
            return
        self._sandbox = TemplateSandbox(date=TEMPLATE_DATE.strftime)
        try:
            self._template = self._sandbox.compiled(self._source)
        # Jinja's compiler can fail with anything that Python's can: nesting too deep, a number too long.
        except Exception as error:
            raise WorkloadError(f"The model's chat template is broken: {_reason(error)}.", remedy=_REMEDY) from error
        self._has_parts: bool = False
        self._tools: tuple[()] | None = None
        self._find_form()
        self._keeps_system = self._tries((Message("system", _PROBE), Message("user", "?")), expect=_PROBE)
        self._closing = self._find_closing()

    @property
    def is_plain(self) -> bool:
        return self._source is None

    @property
    def stop(self) -> tuple[str, ...]:
        """Strings that end an answer."""
        return ("\nUser:",) if self._source is None else ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What was changed or missing, in sentences."""
        return tuple(self._notes)

    def text(self, messages: Sequence[Message]) -> str:
        """The prompt that asks for the next answer. Raises WorkloadError when the template refuses the messages."""
        if self._source is None:
            return _plain(messages)
        if not self._keeps_system and any(message.role == "system" for message in messages):
            self._note("The chat template knows no system role: it was put in front of the first user message.")
            return self._render(_without_system(messages))
        try:
            return self._render(messages)
        except WorkloadError:
            joined = _joined(_filled(messages))
            for changed in (joined, _without_system(joined)):
                if self._tries(changed):
                    self._note("The chat template refused some messages as they were: they were joined or filled up.")
                    return self._render(changed)
            raise

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """The prompt's tokens, with one beginning-of-sequence token where the model wants one."""
        text = self.text(messages)
        bos = self._tokenizer.bos_text
        has_bos = bool(bos) and text.startswith(bos)
        return self._tokenizer.encode(text, add_special=not has_bos, parse_special=not self.is_plain)

    def answer(self, output: Sequence[int]) -> str:
        """The text of a generated answer, as it goes back into the conversation: without what closes it."""
        text = self._tokenizer.decode(output)
        if self._source is None:
            return text.removesuffix(self._tokenizer.eos_text).strip()
        for closing in (self._closing, self._tokenizer.eos_text):
            text = text.removesuffix(closing)
        return text

    def _find_form(self) -> None:
        """What the template wants: content as a string or (image models) as parts, no tools as none or as a list."""
        user = (Message("user", _PROBE),)
        for self._has_parts, self._tools in ((False, None), (False, ()), (True, None), (True, ())):
            if self._tries(user, expect=_PROBE):
                return
        self._has_parts, self._tools = False, None
        self._render(user)  # says why, where it fails
        raise WorkloadError("The model's chat template leaves out what the user says.", remedy=_REMEDY)

    def _find_closing(self) -> str:
        """What the template writes after an answer, e.g. `<|im_end|>`: a generated answer may end with it."""
        answered = (Message("user", "?"), Message("assistant", _PROBE))
        if not self._tries(answered):
            return ""
        return self._render(answered, ask=False).rpartition(_PROBE)[2].strip()

    def _tries(self, messages: Sequence[Message], expect: str = "") -> bool:
        try:
            return expect in self._render(messages)
        except WorkloadError as error:
            if isinstance(error.__cause__, BudgetError):
                raise
            return False

    def _render(self, messages: Sequence[Message], *, ask: bool = True) -> str:
        variables = {
            "messages": [{"role": message.role, "content": self._content(message)} for message in messages],
            "add_generation_prompt": ask,
            "bos_token": self._tokenizer.bos_text,
            "eos_token": self._tokenizer.eos_text,
            "tools": self._tools,
            "documents": None,
        }
        try:
            return self._sandbox.rendered(self._template, variables)
        # The template's own code can raise anything that Python's operators do.
        except Exception as error:
            raise WorkloadError(
                f"The model's chat template refused a prompt: {_reason(error)}.", remedy=_REMEDY
            ) from error

    def _content(self, message: Message) -> str | list[dict[str, str]]:
        return [{"type": "text", "text": message.content}] if self._has_parts else message.content

    def _note(self, sentence: str) -> None:
        self._notes[sentence] = None


def _plain(messages: Sequence[Message]) -> str:
    system = "\n\n".join(message.content.strip() for message in messages if message.role == "system")
    lines = [
        f"{'User' if message.role == 'user' else 'Assistant'}: {message.content.strip()}"
        for message in messages
        if message.role != "system"
    ]
    return "\n".join(([f"{system}\n"] if system else []) + [*lines, "Assistant:"])


def _joined(messages: Sequence[Message]) -> list[Message]:
    """Neighbours of one role made into one message."""
    joined: list[Message] = []
    for message in messages:
        if joined and joined[-1].role == message.role:
            joined[-1] = Message(message.role, f"{joined[-1].content}\n\n{message.content}")
        else:
            joined.append(message)
    return joined


def _filled(messages: Sequence[Message]) -> list[Message]:
    """Empty messages, which some templates refuse, made visible."""
    return [message if message.content.strip() else Message(message.role, "...") for message in messages]


def _without_system(messages: Sequence[Message]) -> list[Message]:
    """System prompts moved in front of the first user message, which is made when there is none at the beginning."""
    system = "\n\n".join(message.content for message in messages if message.role == "system")
    rest = [message for message in messages if message.role != "system"]
    if not system:
        return rest
    if rest and rest[0].role == "user":
        return [Message("user", f"{system}\n\n{rest[0].content}"), *rest[1:]]
    return [Message("user", system), *rest]


def _reason(error: BaseException) -> str:
    """An error of a template in one line of bounded length."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text[:300].rstrip(".")
