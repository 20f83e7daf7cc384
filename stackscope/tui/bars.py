"""The single lines of the live screen: what runs, which page is shown, how far a recording is, which keys there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackscope import units
from stackscope.tui.layout import SHORT_NAMES
from stackscope.tui.lines import Line, Span, cells, fitted, printable, spelled, spread, width

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from stackscope.analysis.live.snapshot import Snapshot
    from stackscope.tui.bindings import Keymap
    from stackscope.tui.look import Look
    from stackscope.tui.source import Playing, Status

_METER: Final = 24
"""Cells of the bar of a recording's position at most."""
_LEAST_NAME: Final = 12
"""Cells of the name of a recording, of which fewer would not tell it from others."""


def header(snapshot: Snapshot, status: Status, room: int, look: Look, *, is_paused: bool) -> Line:
    """The program, what runs, where, under which load; at the right, whether it is recorded, paused, loading or played.

    Where there is no room for all, it does without the library, and then without the device; the name of a recording
    that is played comes before these, and is cut where the model and the load leave it too little.
    """
    state = _state(snapshot, status, look, is_paused=is_paused)
    lines = [spelled((Span(" stackscope  ", "title"), *running), look) for running in _running(snapshot, status, look)]
    shortest = lines[-1]
    name = "" if status.playing is None or status.loading is not None else look.spelled(printable(status.playing.name))
    spare = room - width(shortest) - width(state) - 4
    if name and spare >= min(cells(name), _LEAST_NAME):
        state = (*state, Span(" "), *fitted((Span(name, "label"),), min(spare, cells(name)), look.ellipsis))
    right = spelled((Span(" "), *state, Span(" ")), look)
    left = next((line for line in lines if width(line) + width(right) <= room), shortest)
    return spread(left, right, room, look.ellipsis)


def _running(snapshot: Snapshot, status: Status, look: Look) -> tuple[Line, ...]:
    """What runs, from the fullest wording to the shortest."""
    if snapshot.header is None:
        return ((),)
    models = [snapshot.model_name or ""]
    draft, config = snapshot.header.draft_model, snapshot.config
    if draft is not None and config is not None and config.draft_model is not None:
        models.append(draft.name)
    model, load = " + ".join(name for name in models if name), _load(snapshot, look)
    device = snapshot.header.device
    library = "" if status.playing is not None else (snapshot.header.library or "").partition(" | ")[0]
    return tuple(
        _dotted(map(printable, filter(None, parts)), look)
        for parts in ((model, device, library, load), (model, device, load), (model, load))
    )


def _dotted(texts: Iterable[str], look: Look) -> Line:
    """Texts with dots between them; the first stands out."""
    spans: list[Span] = []
    for text in texts:
        spans += [Span(f" {look.dot} ", "unit"), Span(text, "label")] if spans else [Span(text, "value")]
    return tuple(spans)


def _load(snapshot: Snapshot, look: Look) -> str:
    assert snapshot.header is not None
    workload = snapshot.header.workload
    name = str(workload.get("name") or str(workload.get("path") or "").rpartition("/")[2])
    if snapshot.rate is not None:
        return f"{name} {units.request_rate(snapshot.rate)}"
    return f"{name} {look.times}{units.count(snapshot.concurrency)}" if snapshot.concurrency is not None else name


def _state(snapshot: Snapshot, status: Status, look: Look, *, is_paused: bool) -> Line:
    if status.loading is not None:
        fraction = "" if status.loading.fraction is None else f" {units.count(int(100 * status.loading.fraction))} %"
        return (Span(f"{printable(status.loading.what)}{fraction}", "warning"),)
    if status.failure is not None:
        return (Span(f"{look.cross} the engine has ended", "bad"),)
    parts: list[Span] = []
    if is_paused:
        parts.append(Span(f"{look.paused} paused", "warning"))
    if status.playing is not None:
        parts.append(Span("replay end" if status.playing.is_at_end else "replay", "accent"))
    elif status.recording is not None:
        parts.append(Span(f"{look.recording} rec {units.clock(status.recorded_ns)}", "bad"))
    elif status.has_recording_failed:
        parts.append(Span(f"{look.cross} recording failed", "bad"))
    elif status.is_over:
        parts.append(Span("finished", "accent"))
    elif snapshot.header is not None:
        parts.append(Span("not recording", "label"))
    return tuple(span for part in parts for span in (part, Span("  ")))[:-1]


def pages(names: Sequence[Sequence[str]], shown: int, room: int, look: Look, *, keys: str) -> Line:
    """The pages by their panes, the one that is shown stands out; at the right, the keys that turn them."""
    right: Line = (Span(keys, "key"), Span(" page ", "label"))
    full = [" ".join(SHORT_NAMES[pane] for pane in panes) for panes in names]
    short = [panes if n == shown else panes.partition(" ")[0] for n, panes in enumerate(full)]
    for texts in (full, short):
        left = _tabs(texts, shown, look)
        if width(left) + width(right) <= room:
            return spread(left, right, room)
    return spread(_tabs([short[shown]], 0, look), right, room, look.ellipsis)


def _tabs(texts: Sequence[str], shown: int, look: Look) -> Line:
    spans = [Span(" ")]
    for n, text in enumerate(texts):
        pointer = look.pointer if n == shown else " "
        spans.append(Span(f"{pointer}{text} ", "selected" if n == shown else "label"))
    return tuple(spans)


def transport(playing: Playing, room: int, look: Look, *, keys: Iterable[tuple[str, str]]) -> Line:
    """Where a recording stands, how fast it is played, the keys for that, and what is missing of it."""
    sign = "end" if playing.is_at_end else "playing" if playing.is_playing else "paused"
    share = playing.position_ns / playing.end_ns if playing.end_ns else 1.0
    meter = max(min(_METER, room // 5), 6)
    full = min(int(share * meter + 1e-9), meter)
    line: Line = (
        Span(f" {sign:<8}", "accent"),
        Span(units.clock(playing.position_ns), "value"),
        Span(f" of {units.clock(playing.end_ns)} ", "label"),
        Span(look.eighths[-1] * full, "chart"),
        Span(look.track * (meter - full), "track"),
        Span(f"  {look.times}{_speed(playing.speed)}   ", "value"),
    )
    if playing.truncated is None:
        return fitted(spelled(_with_keys(line, keys, room), look), room, look.ellipsis)
    # That something is missing matters more than which keys there are.
    whole = spelled((*line, Span(printable(playing.truncated), "warning")), look)
    if width(whole) <= room:
        return fitted(spelled(_with_keys((*whole, Span("  ")), keys, room), look), room, look.ellipsis)
    return fitted(spelled((*line, Span("something is missing", "warning")), look), room, look.ellipsis)


def _speed(speed: float) -> str:
    return units.count(int(speed)) if speed == int(speed) else units.number(speed)


_PLAYING: Final = (
    ("play_step_back", "play_step", "step"),
    ("play_slower", "play_faster", "speed"),
    ("play_back", "play_forward", "10 s"),
    ("play_start", "play_end", "start, end"),
)


def transport_keys(keymap: Keymap) -> list[tuple[str, str]]:
    """(key, what it does) of playing a recording."""
    pairs = [(keymap.shown("pause"), "play or pause")]
    for back, on, label in _PLAYING:
        keys = keymap.shown(back) if on is None else f"{keymap.shown(back)} {keymap.shown(on)}"
        pairs.append((keys, label))
    return pairs


def footer(keys: Sequence[tuple[str, str]], room: int, look: Look, *, own_share: float | None) -> Line:
    """The keys, as many as fit and the last two anyway; at the right what the program costs, as a share of one core."""
    style = "unknown" if own_share is None else "value"
    cost: Line = (Span("own ", "label"), Span(units.percent(own_share), style), Span(" "))
    last = _with_keys((), keys[-2:], room)
    left_over = room - width(last) - 1
    left = _with_keys((Span(" "),), keys[:-2], left_over - width(cost))
    if own_share is None:  # That it is not known is worth no key.
        left = _with_keys((Span(" "),), keys[:-2], left_over)
        cost = cost if width(left) + width(cost) <= left_over else ()
    return spread(spelled((*left, *last), look), spelled(cost, look), room, look.ellipsis)


def _with_keys(line: Line, keys: Iterable[tuple[str, str]], room: int) -> Line:
    left = room - width(line)
    spans = list(line)
    for key, label in keys:
        size = cells(key) + cells(label) + 3
        if size > left:
            break
        spans += [Span(key, "key"), Span(f" {label}  ", "label")]
        left -= size
    return tuple(spans)
