"""What stands on a line of its own in a session file."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

Natural: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
"""A count, or nanoseconds since the session's origin. Whatever reads a record refuses another number, which would be a
measurement of something that cannot be, or too large to be summed up."""

Rows: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1 << 20)]
"""Rows or tokens of one sequence in one forward: a hundred times as many as any forward here takes. What reads a record
goes through them one by one, and would never come to the end of a damaged number."""


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """Base of everything that stands on a line of its own in a session file.

    Defaults are left out of the file, so changing one changes the meaning of files that exist: it takes a new schema.
    """
