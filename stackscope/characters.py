"""Characters that nobody sees and that change what is seen: they come with names, prompts and marks of other people.

Control characters move and colour a terminal. Marks of direction turn the text behind them around, so that a name reads
as another one (U+202E, *Trojan Source*, Boucher and Anderson, 2021). Others have no width, or none that programs agree
on, and break columns. What joins letters and emoji (U+200C, U+200D) and what chooses between their forms stays.

Whatever shows a text that is not our own passes it through here: the terminal (`report.output`), HTML
(`report.page.svg`), Markdown (`report.page.markdown`), traces (`report.export.trace_events`). The screen has its own,
stricter rule (`tui.lines.printable`), because it counts cells. Tables that are exported as data hold texts as recorded.
"""

from __future__ import annotations

import re
from typing import Final

REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"

_UNSEEN: Final = re.compile(
    "["
    "\x00-\x1f\x7f-\x9f"  # controls
    "\xad\u034f\u115f\u1160\u17b4\u17b5\u180e\u3164\uffa0"  # letters, hyphens and fillers without a shape
    "\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"  # directions, lines, no width
    "\ufeff\ufff0-\ufffb\ufffe\uffff\ufdd0-\ufdef\ud800-\udfff"  # marks of bytes, what is no character
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"  # formats of notations, tags
    "]"
)


def harmless(text: str, *, keep: str = "") -> str:
    """The text, as long as it was, each such character replaced by U+FFFD, but for those in `keep`."""
    return _UNSEEN.sub(lambda found: found[0] if found[0] in keep else REPLACEMENT, text)


def harmless_json(text: str) -> str:
    """JSON that says the same with such characters as escapes; newlines and tabs may stand between its values."""
    return _UNSEEN.sub(lambda found: found[0] if found[0] in "\n\t" else _escape(found[0]), text)


def _escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
