"""Bytes per second in words: whose they are."""

from __future__ import annotations

import msgspec

from tests.tui.pane_words import words
from tests.tui.sessions import make_config, running


def test_where_a_draft_model_runs_forwards_are_the_targets_only() -> None:
    """What is modelled has the bytes of both, and the forwards have the target's: they are not told as the same."""
    for room, drafting, plain in ((38, "target only 14.1", "in forwards 14.1"), (20, "target 14.1", "forwards 14.1")):
        assert drafting in words("bandwidth", running(), room)
        for source in ("off", "ngram"):
            other = msgspec.structs.replace(running(), config=make_config(speculation=source))
            assert plain in words("bandwidth", other, room)
