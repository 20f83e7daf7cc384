"""What of the user's own keys cannot be used, said where no screen will say it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from stackscope.characters import harmless

if TYPE_CHECKING:
    from stackscope.config import RunOptions


def tell_wrong_keys(options: RunOptions) -> None:
    """Say it on standard error, with the file that they stand in."""
    if options.keys:
        from stackscope.tui.bindings import keymap  # Which keys there are, Textual knows, whose import takes a while.

        for complaint in keymap(options.keys).complaints:
            print("stackscope:", harmless(f"{options.keys_file}: {complaint}"), file=sys.stderr)
