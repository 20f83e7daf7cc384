"""What stands on a line of its own in a session file."""

from __future__ import annotations

import msgspec


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """Base of everything that stands on a line of its own in a session file.

    Defaults are left out of the file, so changing one changes the meaning of files that exist: it takes a new schema.
    """
