"""What one turn of the engine loop hands out."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from stackscope.records import AnyRecord, RequestRecord, StepRecord


class TextDelta(NamedTuple):
    """Text that one request gained, whole characters only."""

    request: int
    text: str


class Answer(NamedTuple):
    """The output of a request that finished, for conversations that go on from it."""

    request: int
    tokens: tuple[int, ...]


class Turn(NamedTuple):
    """One step: its record, what finished in it, and the text it produced."""

    step: StepRecord
    finished: tuple[RequestRecord, ...]
    answers: tuple[Answer, ...]
    texts: tuple[TextDelta, ...]
    aside: tuple[AnyRecord, ...] = ()
    """What was found out beside the step."""
