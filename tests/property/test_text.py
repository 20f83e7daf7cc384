"""However a text is cut into tokens and calls, the same characters come out, and the same stop ends it."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from stackscope.engine.text import Detokeniser, OutputText, StopMatcher

valid = st.text(max_size=30).map(lambda text: text.encode("utf-8", "replace"))
damaged = st.lists(
    st.one_of(
        st.binary(max_size=4), valid, st.sampled_from([b"\xf0\x9f", b"\xe2\x82", b"\xc3", b"\xed\xa0", b"\xf4\x90"])
    ),
    max_size=8,
).map(b"".join)
letters = st.text("ab", max_size=24)
stop_lists = st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=4)


@st.composite
def cut(draw: st.DrawFn, whole: bytes) -> list[list[bytes]]:
    """`whole` as calls of tokens, empty ones among them."""
    n = draw(st.integers(0, 12))
    places = sorted(draw(st.lists(st.integers(0, len(whole)), min_size=n, max_size=n)))
    tokens = [whole[a:b] for a, b in zip([0, *places], [*places, len(whole)], strict=True)]
    calls: list[list[bytes]] = [[]]
    for token in tokens:
        if draw(st.booleans()):
            calls.append([])
        calls[-1].append(token)
    return calls


def numbered(calls: list[list[bytes]]) -> tuple[list[bytes], list[list[int]]]:
    """Pieces by id, and the calls in ids."""
    pieces = [piece for call in calls for piece in call]
    ids = iter(range(len(pieces)))
    return pieces, [[next(ids) for _ in call] for call in calls]


@given(st.one_of(valid, damaged), st.data())
def test_the_parts_joined_are_the_whole_decoded(whole: bytes, data: st.DataObject) -> None:
    pieces, calls = numbered(data.draw(cut(whole)))
    together, each = Detokeniser(pieces.__getitem__), Detokeniser(pieces.__getitem__)
    parts = [together.push(call) for call in calls]
    assert parts == ["".join(each.push_each(call)) for call in calls]
    assert "".join(parts) + together.finish() == whole.decode("utf-8", "replace")


@given(st.text(max_size=30), st.data())
def test_half_a_character_is_never_emitted(text: str, data: st.DataObject) -> None:
    whole = text.encode("utf-8", "replace")
    assume("\ufffd" not in text)
    pieces, calls = numbered(data.draw(cut(whole)))
    made = Detokeniser(pieces.__getitem__)
    fed, out = b"", ""
    for call in calls:
        fed += b"".join(pieces[i] for i in call)
        out += made.push(call)
        # All that is complete, and nothing else: what is missing is less than one character.
        assert out == fed.decode("utf-8", "ignore")
    assert made.finish() == ""


def naive_stop(text: str, stops: list[str]) -> tuple[str, str | None]:
    """Read character by character; the first time the text read ends in stop strings, the longest of them cuts it."""
    for end in range(len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            longest = max(complete, key=len)
            return text[: end - len(longest)], longest
    return text, None


@given(letters, stop_lists, st.data())
def test_stops_equal_a_naive_search_and_nothing_is_held_in_vain(
    text: str, stops: list[str], data: st.DataObject
) -> None:
    calls = [[piece.decode() for piece in call] for call in data.draw(cut(text.encode()))]
    expected_text, expected_stop = naive_stop(text, stops)
    matcher = StopMatcher(stops)
    fed, out, index = "", "", None
    for call in calls:
        fed += "".join(call)
        emitted = matcher.push(call)
        out += emitted.text
        index = emitted.stop
        if index is not None:
            break
        held = fed[len(out) :]
        assert fed.startswith(out)
        assert held == "" or any(stop.startswith(held) and stop != held for stop in stops)
        # Anything longer could not have become a stop: all that could be released has been.
        assert not any(
            stop.startswith(fed[begin:]) for stop in stops for begin in range(max(0, len(fed) - 5), len(out))
        )
    if index is None:
        out += matcher.finish().text
    assert out == expected_text
    assert (None if index is None else stops[index]) == expected_stop


@given(letters, stop_lists, st.data())
def test_tokens_count_by_where_their_text_begins(text: str, stops: list[str], data: st.DataObject) -> None:
    calls = [[piece.decode() for piece in call] for call in data.draw(cut(text.encode()))]
    expected_text, expected_stop = naive_stop(text, stops)
    tokens = [token for call in calls for token in call]
    begins = [sum(map(len, tokens[:i])) for i in range(len(tokens))]
    expected = len(tokens) if expected_stop is None else sum(begin < len(expected_text) for begin in begins)

    matcher = StopMatcher(stops)
    counts = [0]
    for call in calls:
        emitted = matcher.push(call)
        counts.append(emitted.tokens)
        if emitted.stop is not None:
            break
    counts.append(matcher.finish().tokens)
    assert counts == sorted(counts)
    assert counts[-1] == expected


@given(st.text(max_size=20), st.lists(st.text(min_size=1, max_size=3), max_size=2), st.data())
def test_an_output_is_the_decoded_text_up_to_the_stop(text: str, stops: list[str], data: st.DataObject) -> None:
    whole = text.encode("utf-8", "replace")
    pieces, calls = numbered(data.draw(cut(whole)))
    output = OutputText(pieces.__getitem__, stops)
    parts = []
    for call in calls:
        emitted = output.push(call)
        parts.append(emitted.text)
        if emitted.stop is not None:
            break
    emitted = output.finish()
    assert "".join(parts) + emitted.text == naive_stop(whole.decode(), stops)[0]
    assert emitted.tokens <= len(pieces)
