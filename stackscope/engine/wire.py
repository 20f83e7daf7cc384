"""What the engine process and its parent say to each other, as lines of JSON on two pipes.

A session file is a recorded pipe: record lines on the engine's pipe are exactly the lines of the session. Everything
else that the engine says starts with `CONTROL`, which no JSON object does, so that the parent can hand record lines to
the recorder without decoding them.
"""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec

from stackscope import errors
from stackscope.engine.devices import Device
from stackscope.errors import EngineError, StackscopeError, UsageError
from stackscope.records import ModelSummary
from stackscope.session.format import without_surrogates
from stackscope.toggles import EngineConfig
from stackscope.workload.spec import WorkloadSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CONTROL: Final = b"!"
"""First byte of a line that is no record."""

MAX_COMMAND_BYTES: Final = 1 << 20
"""A command line beyond this is not one of ours."""


class Command(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="command"):
    """Base of what the parent asks for."""


class Start(Command, frozen=True, kw_only=True, omit_defaults=True, tag="start"):
    """First command: load the models. The answer is `Ready` or `Failed`."""

    config: EngineConfig
    workload: WorkloadSpec
    origin_ns: int
    """The session's origin on the system's monotonic clock, in nanoseconds."""
    record_text: bool = False
    """Put prompts and outputs into the request records."""


class Begin(Command, frozen=True, kw_only=True, omit_defaults=True, tag="begin"):
    """Second command: let the traffic begin. The parent has its recording open by now."""


class Reconfigure(Command, frozen=True, kw_only=True, omit_defaults=True, tag="reconfigure"):
    """Change settings at the next step boundary; the answer is a `ConfigEvent`. Made by `reconfigure`."""

    changes: dict[str, object]
    by: Literal["user", "plan"] = "user"


class SetConcurrency(Command, frozen=True, kw_only=True, omit_defaults=True, tag="concurrency"):
    """Offer this many requests at a time; the answer is a `TrafficEvent`."""

    concurrency: int


class SetRate(Command, frozen=True, kw_only=True, omit_defaults=True, tag="rate"):
    """Offer this many requests a second; the answer is a `TrafficEvent`."""

    rate: float


class Cancel(Command, frozen=True, kw_only=True, omit_defaults=True, tag="cancel"):
    """End one request now. A request that is not there (any more) is no error."""

    request: int


class SetMark(Command, frozen=True, kw_only=True, omit_defaults=True, tag="mark"):
    """Put a `Mark` between two steps."""

    label: str


class ShowText(Command, frozen=True, kw_only=True, omit_defaults=True, tag="text"):
    """Send generated text for display, or stop sending it. Off at the start."""

    shown: bool


class Quit(Command, frozen=True, kw_only=True, omit_defaults=True, tag="quit"):
    """End the session: offer nothing more, and finish or cancel what is in flight."""

    drain: bool = False
    """Finish what is in flight. False: cancel it, within a second."""


AnyCommand: TypeAlias = (
    Start | Begin | Reconfigure | SetConcurrency | SetRate | Cancel | SetMark | ShowText | Quit
)  # fmt: skip


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="message"):
    """Base of what the engine says that is no record."""


class Loading(Message, frozen=True, kw_only=True, omit_defaults=True, tag="loading"):
    """How far the engine has got in becoming ready, at the start or in a rebuild."""

    what: str
    """What is being loaded: a path of a model, or words."""
    fraction: float


class Ready(Message, frozen=True, kw_only=True, omit_defaults=True, tag="ready"):
    """The models are loaded; waiting for `Begin`. What the session's header says about the engine."""

    library: str
    """Inference library and build, with the CPU features it uses."""
    model: ModelSummary
    draft: ModelSummary | None
    config: EngineConfig
    """The configuration in force, which may be softer than the one asked for: `note` says why."""
    capabilities: tuple[str, ...]
    context_tokens: int
    """Most tokens, prompt and output together, that one request can have."""
    devices: tuple[Device, ...] = ()
    """What the library can compute on, this machine's processor included."""
    note: str | None = None
    """What the engine switched off because these models cannot have it. `None`: nothing."""


class Text(Message, frozen=True, kw_only=True, omit_defaults=True, tag="text"):
    """Text that requests gained, in order. For display only: it is dropped when the pipe is full."""

    gained: tuple[tuple[int, str], ...]
    """(request, whole characters)."""


class Dropped(Message, frozen=True, kw_only=True, omit_defaults=True, tag="dropped"):
    """How many display items have been dropped so far, because the reader was slow. Records never are."""

    display: int


class Note(Message, frozen=True, kw_only=True, omit_defaults=True, tag="note"):
    """Something about the workload that the user should know; the recording has it as a log line."""

    text: str


class Refused(Message, frozen=True, kw_only=True, omit_defaults=True, tag="refused"):
    """A command could not be obeyed; everything goes on as before."""

    text: str
    remedy: str | None = None


class Failed(Message, frozen=True, kw_only=True, omit_defaults=True, tag="failed"):
    """The engine ends with a `StackscopeError`."""

    error: str
    """Name of its class."""
    text: str
    remedy: str | None = None


class Done(Message, frozen=True, kw_only=True, omit_defaults=True, tag="done"):
    """Last message of a session that ended in order."""

    reason: Literal["done", "interrupted"]
    """`done`: the traffic came to its end. `interrupted`: somebody quit."""


AnyMessage: TypeAlias = Loading | Ready | Text | Dropped | Note | Refused | Failed | Done

_encoder: Final = msgspec.json.Encoder()
_commands: Final[msgspec.json.Decoder[AnyCommand]] = msgspec.json.Decoder(AnyCommand)
_messages: Final[msgspec.json.Decoder[AnyMessage]] = msgspec.json.Decoder(AnyMessage)
_ERRORS: Final = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, StackscopeError)
}  # fmt: skip


def encode_command(command: AnyCommand) -> bytes:
    """A command as one line. Raises `UsageError` for text or a number that JSON cannot carry."""
    line = _encoded(command)
    if not _is_finite(msgspec.to_builtins(command)):
        # JSON would say null: another setting, or one that the engine process cannot read.
        raise UsageError("A setting is not a finite number.")
    return line + b"\n"


def decode_command(line: bytes) -> AnyCommand:
    """The command on a line. Raises `msgspec.DecodeError` when there is none."""
    return _commands.decode(line)


def encode_message(message: AnyMessage) -> bytes:
    """A message as one line, marked as no record."""
    return CONTROL + _encoded(message) + b"\n"


def decode_message(line: bytes) -> AnyMessage:
    """The message on a line that starts with `CONTROL`. Raises `msgspec.DecodeError` when there is none."""
    return _messages.decode(memoryview(line)[len(CONTROL) :])


def not_utf8(value: object) -> UsageError:
    """What to raise for a value that another process is to be given, and that holds a text it cannot be given."""
    found = next(_not_utf8_in(msgspec.to_builtins(value)), "A path or label")
    return UsageError(f"{found} is not valid UTF-8, which another process needs.", remedy="Rename the file.")


def _not_utf8_in(value: Any) -> Iterator[str]:
    if isinstance(value, str) and without_surrogates(value) != value:
        yield value
    elif isinstance(value, dict):
        for part in value.items():
            yield from _not_utf8_in(list(part))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _not_utf8_in(part)


def _encoded(value: AnyCommand | AnyMessage) -> bytes:
    """JSON of a value. Half a surrogate pair, from a path that is not UTF-8, becomes `?` in a message.

    Raises `UsageError` where it stands in a command: the engine would look for another file.
    """
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        if isinstance(value, Command):
            raise not_utf8(value) from None
        return _encoder.encode(without_surrogates(msgspec.to_builtins(value)))


def _is_finite(value: object) -> bool:
    if isinstance(value, float):
        return isfinite(value)
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    return not isinstance(value, list | tuple) or all(map(_is_finite, value))


def reconfigure(changes: Mapping[str, object], *, by: Literal["user", "plan"] = "user") -> Reconfigure:
    """A change of settings, given as `{name: value}`.

    Raises `UsageError` for a name that is no setting or a value that is of the wrong type. Whether the engine can run
    with it is for the engine to say.
    """
    applied(EngineConfig(), changes)
    return Reconfigure(changes=dict(changes), by=by)


def applied(config: EngineConfig, changes: Mapping[str, object]) -> EngineConfig:
    """`config` with changes made. Raises `UsageError` for an unknown name or a value of the wrong type."""
    unknown = sorted(changes.keys() - set(EngineConfig.__struct_fields__))
    if unknown:
        raise UsageError(f"There is no setting {', '.join(unknown)}.")
    try:
        return msgspec.convert({**msgspec.structs.asdict(config), **changes}, EngineConfig)
    except msgspec.ValidationError as error:
        raise UsageError(f"A setting is not what it can be: {error}.") from None


def failure_of(error: StackscopeError) -> Failed:
    """An error as a message."""
    return Failed(error=type(error).__name__, text=error.message, remedy=error.remedy)


def error_of(failed: Failed) -> StackscopeError:
    """The error that a message stands for, of its own class."""
    kind = _ERRORS.get(failed.error, EngineError)
    return kind(failed.text, remedy=failed.remedy)


class LineSplitter:
    """Cuts a stream into stretches of whole record lines, and single control lines, in their order.

    Record lines are neither decoded nor separated: a stretch goes to the recorder as it is.
    """

    def __init__(self) -> None:
        self._tail = b""

    @property
    def partial(self) -> bytes:
        """Bytes that no newline has ended yet: after the end of the stream, a line that was cut off."""
        return self._tail

    def feed(self, chunk: bytes) -> list[bytes]:
        """The stretches that these bytes complete. Each ends in a newline."""
        cut = chunk.rfind(b"\n") + 1
        if cut == 0:
            self._tail += chunk
            return []
        whole = self._tail + chunk[:cut]
        self._tail = chunk[cut:]
        return split(whole)


def split(whole: bytes) -> list[bytes]:
    """Whole lines, as stretches of record lines and single control lines."""
    stretches = []
    start = 0
    while start < len(whole):
        if whole.startswith(CONTROL, start):
            stop = whole.index(b"\n", start) + 1
        else:
            # JSON escapes newlines in strings, so that one followed by CONTROL can only be the beginning of a line.
            found = whole.find(b"\n" + CONTROL, start)
            stop = len(whole) if found < 0 else found + 1
        stretches.append(whole[start:stop])
        start = stop
    return stretches
