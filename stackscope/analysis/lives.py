"""What is remembered of requests that have ended: figures, without the hundreds of emissions that a record holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from stackscope.records import RequestRecord


class Life(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request; the fields are those of its record."""

    id: int
    arrived_ns: int
    admitted_ns: int | None
    first_token_ns: int | None
    finished_ns: int
    prompt_tokens: int
    hit_tokens: int
    output_tokens: int

    @classmethod
    def of(cls, request: RequestRecord) -> Life:
        """Of a record, which is not kept."""
        return cls(
            id=request.id,
            arrived_ns=request.arrived_ns,
            admitted_ns=request.admitted_ns,
            first_token_ns=request.first_token_ns,
            finished_ns=request.finished_ns,
            prompt_tokens=request.prompt_tokens,
            hit_tokens=request.hit_tokens,
            output_tokens=request.output_tokens,
        )
