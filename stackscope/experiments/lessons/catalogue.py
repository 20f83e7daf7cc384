"""All lessons by their numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackscope.errors import UsageError
from stackscope.experiments.lessons import choosing, combining, lengths, searching, serving, speculating
from stackscope.experiments.lessons.contracts import Waiting

if TYPE_CHECKING:
    from stackscope.experiments.lessons.contracts import Lesson

WAITING: Final = (
    Waiting(
        number=7,
        title="KV quantisation and disaggregation help each other",
        claim="Where one machine computes prompts and another one generates, the KV of each request has to be handed "
        "over. A KV cache of fewer bits is less to hand over, so that each of the two makes the other cheaper.",
        waits_for="It needs prefill and decoding in two engines, which Stackscope cannot run yet.",
    ),
    Waiting(
        number=11,
        title="Routing and disaggregation need scale",
        claim="Sending requests to the replica that knows their prefix, or splitting prefill from decoding, pays only "
        "from some number of replicas on: with two, the choice is small and the queues are short.",
        waits_for="It needs several engines behind one router, which Stackscope cannot run yet.",
    ),
)

_ALL: Final[tuple[Lesson | Waiting, ...]] = (
    *combining.LESSONS,
    *speculating.LESSONS,
    *lengths.LESSONS,
    *serving.LESSONS,
    *choosing.LESSONS,
    *searching.LESSONS,
    *WAITING,
)

CATALOGUE: Final = {lesson.number: lesson for lesson in sorted(_ALL, key=lambda lesson: lesson.number)}


def lesson_of(number: int) -> Lesson | Waiting:
    """A lesson. Raises `UsageError` for a number there is none of."""
    if number not in CATALOGUE:
        raise UsageError(f"There is no lesson {number}.", remedy=f"Choose one from 1 to {max(CATALOGUE)}.")
    return CATALOGUE[number]
