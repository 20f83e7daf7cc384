"""Tokens to text as they come: whole UTF-8 characters only, and an end where a stop string begins."""

from __future__ import annotations

from bisect import bisect_left
from codecs import utf_8_decode
from typing import TYPE_CHECKING, NamedTuple

from stackscope.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Detokeniser:
    """The text of one request, token by token.

    A token may end inside a character: its bytes wait for the rest. Bytes that can no longer become a character are
    replaced by U+FFFD at once, so that the parts joined are `bytes.decode(errors="replace")` of the whole.
    """

    def __init__(self, pieces: Callable[[int], bytes]) -> None:
        self._pieces = pieces
        """Bytes of a token in the middle of a text, leading space and all."""
        self._tail = b""
        """The beginning of a character, 3 bytes at most."""

    def push(self, tokens: Sequence[int]) -> str:
        """The characters that these tokens complete."""
        return self._decode(b"".join(map(self._pieces, tokens)))

    def push_each(self, tokens: Sequence[int]) -> list[str]:
        """The characters that each of these tokens completes."""
        return [self._decode(self._pieces(token)) for token in tokens]

    def finish(self) -> str:
        """U+FFFD where the output ended inside a character, else nothing; the next text begins afresh."""
        text, _ = utf_8_decode(self._tail, "replace", True)
        self._tail = b""
        return text

    def _decode(self, data: bytes) -> str:
        if self._tail:
            data = self._tail + data
        text, n_used = utf_8_decode(data, "replace", False)
        self._tail = data[n_used:]
        return text


class Emitted(NamedTuple):
    """What one call releases."""

    text: str
    stop: int | None
    """Index of the stop string that ended the text. `None`: none has."""
    tokens: int
    """Tokens that count, from the first of the request on: those of which some text has been released."""


class StopMatcher:
    """Ends a text where a stop string begins, holding back what may yet become one.

    The stop string that is complete first wins, the longest of those complete together; so the result does not depend
    on how the text was cut. A token counts when the text before it, which is where its own begins, ends before the
    stop begins: one that the stop's beginning falls into counts.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if "" in stops:
            raise UsageError("A stop string is empty.", remedy="Leave it out to stop at the end of the answer only.")
        self._stops = tuple(stops)
        self._held = ""
        self._n_released = 0
        """Characters released."""
        self._n_counted = 0
        """Tokens of which some text has been released."""
        self._begins: list[int] = []
        """Where the text of each token after those begins, in characters."""
        self._is_over = False

    def push(self, token_texts: Sequence[str]) -> Emitted:
        """Text released by the next tokens, given as the text that each of them completes ("" for none).

        Raises ValueError after a stop or the end.
        """
        if self._is_over:
            raise ValueError("a text that has ended takes no more tokens")
        n_seen = self._n_released + len(self._held)
        for text in token_texts:
            self._begins.append(n_seen)
            n_seen += len(text)
        pending = self._held + "".join(token_texts)
        match = self._first_match(pending)
        if match is not None:
            index, begin = match
            self._is_over = True
            return self._release(pending, begin, index)
        return self._release(pending, self._hold_from(pending), None)

    def finish(self, tail: str = "") -> Emitted:
        """All that is left, when the output ends of itself; `tail` is what its last tokens make of their last bytes."""
        if self._is_over:
            return Emitted("", None, self._n_counted)
        self._is_over = True
        pending = self._held + tail
        match = self._first_match(pending)
        if match is not None:
            index, begin = match
            return self._release(pending, begin, index)
        emitted = self._release(pending, len(pending), None)
        self._n_counted += len(self._begins)
        self._begins.clear()
        return emitted._replace(tokens=self._n_counted)

    def _release(self, pending: str, n_characters: int, stop: int | None) -> Emitted:
        self._held = pending[n_characters:]
        self._n_released += n_characters
        n_tokens = bisect_left(self._begins, self._n_released)
        del self._begins[:n_tokens]
        self._n_counted += n_tokens
        return Emitted(pending[:n_characters], stop, self._n_counted)

    def _first_match(self, pending: str) -> tuple[int, int] | None:
        """Index and begin of the stop string that ends first, the longest of those that end together."""
        best: tuple[int, int, int] | None = None
        for index, stop in enumerate(self._stops):
            begin = pending.find(stop)
            if begin >= 0 and (best is None or (begin + len(stop), begin) < best[:2]):
                best = (begin + len(stop), begin, index)
        return None if best is None else (best[2], best[1])

    def _hold_from(self, pending: str) -> int:
        """Where the longest suffix begins that is the beginning of a stop string; the end when there is none."""
        hold = len(pending)
        for stop in self._stops:
            begin = pending.find(stop[0], max(0, len(pending) - len(stop) + 1), hold)
            while begin >= 0:
                if stop.startswith(pending[begin:]):
                    hold = begin
                    break
                begin = pending.find(stop[0], begin + 1, hold)
        return hold


class OutputText:
    """The output of one request: detokenised, and ended by its stop strings if it has any."""

    def __init__(self, pieces: Callable[[int], bytes], stops: Sequence[str] = ()) -> None:
        self._detokeniser = Detokeniser(pieces)
        self._matcher = StopMatcher(stops) if stops else None
        self._n_tokens = 0

    def push(self, tokens: Sequence[int]) -> Emitted:
        """Text released by the next tokens. Without stop strings nothing is held back but parts of a character."""
        if self._matcher is not None:
            return self._matcher.push(self._detokeniser.push_each(tokens))
        self._n_tokens += len(tokens)
        return Emitted(self._detokeniser.push(tokens), None, self._n_tokens)

    def finish(self) -> Emitted:
        """What is left when the output ends for another reason than a stop string; it may still complete one."""
        tail = self._detokeniser.finish()
        if self._matcher is not None:
            return self._matcher.finish(tail)
        return Emitted(tail, None, self._n_tokens)
