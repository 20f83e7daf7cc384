"""Take the pictures of the live screen that README and guide show, from recorded sessions: `make screenshots`.

Each picture of `screenshots/pictures.toml` is the real application on a recording of `profiles/`, held at an instant:
an SVG, and a PNG beside it where CairoSVG is installed. The same recording gives the same bytes of SVG anywhere, and
of PNG where the fonts are the same.

    python scripts/screenshots.py
    python scripts/screenshots.py steps explain --profiles /tmp/recordings --output /tmp/pictures
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from contextlib import chdir
from datetime import datetime
from io import BytesIO
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple
from xml.etree import ElementTree

import msgspec

from stackscope import units
from stackscope.analysis.explainer import Explainer
from stackscope.analysis.live.view import LiveView
from stackscope.engine.allowances import Allowances
from stackscope.engine.openmp import usable_cores
from stackscope.errors import StackscopeError, UsageError
from stackscope.pipeline import time_ns
from stackscope.records import Mark, StepRecord
from stackscope.session.format import SUFFIX
from stackscope.session.paths import Folder
from stackscope.session.reader import SessionReader
from stackscope.tui.app import StackscopeApp
from stackscope.tui.governor import Governor
from stackscope.tui.look import UNICODE, chosen
from stackscope.tui.modes import OTHERS
from stackscope.tui.panes import events
from stackscope.tui.player import Player
from stackscope.tui.screens.live import LiveScreen
from stackscope.tui.screens.sessions import SessionsScreen
from stackscope.tui.theme import Kind
from terminal_svg import redrawn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from textual.screen import Screen as TextualScreen

    from stackscope.analysis.live.snapshot import Snapshot
    from stackscope.tui.feed import Frame

ROOT: Final = Path(__file__).resolve().parents[1]
PROFILES: Final = ROOT / "profiles"
PICTURES: Final = ROOT / "screenshots" / "pictures.toml"
PATIENCE_S: Final = 120.0
"""A recording that has not been read by then never will be."""
WIDE: Final = 1_200
"""Pixels of an SVG beyond which its PNG is as large; up to which it is twice as large, as for a dense screen."""
PNG_COLOURS: Final = 160
"""The most frequent ones. The themes have fewer; the rest are edges of letters."""

MOST_CELLS: Final = 400
"""A line in which everything has room."""

ShownScreen = Literal["live", "steps", "explain", "sessions", "toggles"]


class Picture(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One picture, as its table in `pictures.toml` has it."""

    name: str
    """Of its files, without a suffix."""
    caption: str
    recording: str | None = None
    """Its name in the folder of recordings, without a suffix. `None`: it is made up, see `synthetic`."""
    synthetic: str | None = None
    """Name of a state of `tests/tui/sessions.py`, whose numbers nobody measured. The header of the picture says so."""
    mark: str | None = None
    """The instant is so far from this mark."""
    offset_s: float | None = None
    """Seconds from the mark; without one from the beginning, or where negative from the end. `None`: the end."""
    screen: ShownScreen = "live"
    keys: tuple[str, ...] = ()
    """Pressed once the screen is there, in Textual's names."""
    size: tuple[int, int] = (120, 40)
    """Columns and rows."""
    theme: Kind = "dark"
    ascii: bool = False


def read_pictures(path: Path) -> tuple[Picture, ...]:
    """The pictures that a file declares. Raises `UsageError` for one that makes no sense."""
    try:
        declared = msgspec.toml.decode(path.read_bytes(), type=dict[Literal["picture"], tuple[Picture, ...]])
    except msgspec.MsgspecError as error:
        raise UsageError(f"{path.name}: {error}.") from error
    pictures = declared.get("picture", ())
    for picture in pictures:
        complaint = _complaint(picture, [other.name for other in pictures])
        if complaint is not None:
            raise UsageError(f"{path.name}: {picture.name} {complaint}.")
    return pictures


def _complaint(picture: Picture, names: list[str]) -> str | None:
    if names.count(picture.name) > 1:
        return "is declared more than once"
    if not picture.caption.strip():
        return "has no caption"
    if (picture.recording is None) is (picture.synthetic is None):
        return "needs either a recording or a synthetic state"
    if picture.synthetic is not None and "synthetic" not in picture.caption.lower():
        return "does not say in its caption that it is synthetic"
    if picture.mark is not None and picture.offset_s is None:
        return "has a mark and no offset_s from it"
    return None


# Taking


class Taken(NamedTuple):
    """A picture, and what was shown on it."""

    svg: str
    snapshot: Snapshot


class PosingApp(StackscopeApp):
    """The application, which says when it shows what it was asked for, and looks for recordings where it is told."""

    MODES: ClassVar[dict[str, str | Callable[[], TextualScreen[Any]]]] = {
        "live": LiveScreen,
        **OTHERS,
        "sessions": lambda: SessionsScreen([Folder(Path("profiles"), is_shipped=True)]),
    }

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.has_arrived = asyncio.Event()

    def take(self, frame: Frame) -> None:
        """Show a frame."""
        super().take(frame)
        if frame.status.loading is None:
            self.has_arrived.set()


class Unmeasured(Governor):
    """What a picture costs to draw depends on who draws it: it is not shown."""

    @property
    def share(self) -> float | None:
        return None


def take(picture: Picture, profiles: Path) -> Taken:
    """Take a picture. Raises `StackscopeError` where its recording is not what it should be."""
    app = _app(picture, profiles)
    with chdir(profiles.parent):
        exported = asyncio.run(_exported(app, picture))
    app.end_feed()
    if app.fault is not None:
        raise app.fault
    return Taken(redrawn(exported), app.frame.snapshot)


def _app(picture: Picture, profiles: Path) -> PosingApp:
    n_colours = {"mono": 0, "ansi": 16}.get(picture.theme, 1 << 24)
    look: dict[str, Any] = {
        "kind": picture.theme,
        "look": chosen(is_ascii=picture.ascii, n_colours=n_colours),
        "governor": Unmeasured(),
    }
    if picture.synthetic is not None:
        return _synthetic(picture.synthetic, look)
    path = profiles / f"{picture.recording}{SUFFIX}"
    if not path.exists():
        raise UsageError(
            f"{picture.name} is to be taken from {path}, which is not there.",
            remedy="scripts/record_story.py records the story." if picture.recording == "story" else None,
        )
    # Time stands still for it: it goes where it is told, and no further.
    player = Player(path, clock=lambda: 0)
    player.pause()
    player.seek(instant_ns(picture, path))
    return PosingApp(player, player, playback=player, make_view=explaining_view, **look)


def explaining_view() -> LiveView:
    """The present of a session as `stackscope replay` keeps it."""
    return LiveView(explainer=Explainer(rules=Allowances(usable_cores())))


def _synthetic(state: str, look: Mapping[str, Any]) -> PosingApp:
    from tests.tui.controls import FakeControl
    from tests.tui.feeds import FakeSource
    from tests.tui.live_apps import StillView
    from tests.tui.sessions import SESSIONS

    snapshot = SESSIONS[state]()
    assert snapshot.header is not None
    header = msgspec.structs.replace(snapshot.header, device=f"SYNTHETIC numbers, as of {snapshot.header.device}")
    view = StillView(msgspec.structs.replace(snapshot, header=header))
    source = FakeSource()
    source.is_moving = False
    return PosingApp(source, FakeControl(), make_view=lambda: view, **look)


def instant_ns(picture: Picture, path: Path) -> int:
    """The time of the session at which a picture is taken."""
    start_ns = mark_ns = None
    end_ns = 0
    for record in SessionReader(path):
        if start_ns is None and isinstance(record, StepRecord):
            start_ns = record.start_ns
        if isinstance(record, Mark) and record.label == picture.mark:
            mark_ns = record.at_ns
        end_ns = max(end_ns, time_ns(record) or 0)
    if picture.mark is not None and mark_ns is None:
        raise UsageError(f"{picture.name} is to be taken at the mark {picture.mark!r}, which {path.name} has not.")
    if picture.offset_s is None:
        return end_ns
    if mark_ns is None:
        mark_ns = end_ns if picture.offset_s < 0 else start_ns or 0
    return mark_ns + round(picture.offset_s * 1e9)


async def _exported(app: PosingApp, picture: Picture) -> str:
    """The screen as Textual exports it, once it shows what it should."""
    async with asyncio.timeout(PATIENCE_S), app.run_test(size=picture.size) as pilot:
        await app.has_arrived.wait()
        if picture.screen == "toggles":
            app.open_toggles()
        else:
            app.action_show(picture.screen)
        await pilot.pause()
        await app.workers.wait_for_complete()
        await pilot.pause()
        await pilot.press(*picture.keys)
        await pilot.pause()
        await app.workers.wait_for_complete()  # A comparison takes seconds, and so may what else a key begins.
        await pilot.pause()
        return app.export_screenshot(simplify=True)


# Writing


def to_png(svg: str) -> bytes | None:
    """The picture as PNG. `None`: CairoSVG is not installed, or finds no cairo."""
    try:
        import cairosvg
        from PIL import Image  # which CairoSVG needs
    except (ImportError, OSError):
        return None
    drawn = Image.open(BytesIO(cairosvg.svg2png(bytestring=svg.encode(), scale=1 if _width(svg) > WIDE else 2)))
    paper = Image.new("RGBA", drawn.size, "#ffffff")  # behind the corners, which are round
    flat = Image.alpha_composite(paper, drawn.convert("RGBA")).convert("RGB")
    written = BytesIO()
    _with_few_colours(flat).save(written, "png", optimize=True)
    return written.getvalue()


def _with_few_colours(image: Any) -> Any:
    """The same with a palette of the most frequent colours; each of the others becomes the one next to it."""
    import numpy as np
    from PIL import Image

    pixels = np.asarray(image, np.int32) @ (1 << 16, 1 << 8, 1)
    packed, places, counts = np.unique(pixels, return_inverse=True, return_counts=True)
    colours = packed[:, None] >> (16, 8, 0) & 0xFF
    palette = colours[np.argsort(-counts, kind="stable")[:PNG_COLOURS]]
    distances = ((colours[:, None, :] - palette[None, :, :]) ** 2).sum(axis=2)
    nearest = distances.argmin(axis=1).astype(np.uint8)
    few = Image.fromarray(nearest[places].reshape(pixels.shape))
    few.putpalette(palette.astype(np.uint8).tobytes())
    return few


def _width(svg: str) -> float:
    return float(ElementTree.fromstring(svg).attrib["width"])


def gathered(profiles: Path, folder: Path) -> Path:
    """Copies of the recordings in a folder of their own, as old as they say: a checkout does not keep files' times."""
    copies = folder / "profiles"
    copies.mkdir()
    for path in sorted(profiles.glob(f"*{SUFFIX}")):
        copy = copies / path.name
        copyfile(path, copy)
        began_s = datetime.fromisoformat(SessionReader(path).header.started).timestamp()
        os.utime(copy, (began_s, began_s))
    return copies


def write(pictures: Iterable[Picture], profiles: Path, output: Path) -> dict[str, Snapshot]:
    """Take pictures, and write them; what was shown on each, by name."""
    output.mkdir(parents=True, exist_ok=True)
    has_png = True
    shown = {}
    with TemporaryDirectory() as folder:
        copies = gathered(profiles, Path(folder))
        for picture in pictures:
            svg, shown[picture.name] = take(picture, copies)
            (output / f"{picture.name}.svg").write_text(svg, encoding="utf-8")
            png = to_png(svg)
            if png is not None:
                (output / f"{picture.name}.png").write_bytes(png)
            has_png = has_png and png is not None
            print(f"{picture.name}: {len(svg) / 1e3:.0f} kB{'' if png is None else f', PNG {len(png) / 1e3:.0f} kB'}")
    if not has_png:
        print(
            "There are no PNGs: CairoSVG is missing (.venv/bin/pip install cairosvg), or the library cairo.",
            file=sys.stderr,
        )
    return shown


def page(pictures: Iterable[Picture], shown: Mapping[str, Snapshot]) -> str:
    """All pictures with their captions, and with what was measured at their instants."""
    parts = ["# Pictures\n\nTaken by `make screenshots`, as `pictures.toml` says; do not edit.\n"]
    for one in pictures:
        has_figures = one.synthetic is None and one.screen in ("live", "explain")
        told = f" {measured(shown[one.name])}" if has_figures else ""
        parts.append(f"## {one.name}\n\n{one.caption}{told}\n\n![{one.caption}]({one.name}.svg)\n")
    return "\n".join(parts)


def measured(snapshot: Snapshot) -> str:
    """The figures of an instant, and what the newest change came to, in words."""
    now = snapshot.now
    figures = (
        f"At {units.clock(snapshot.at_ns)} of the recording: {units.token_rate(now.tokens_per_s)},"
        f" {units.number(now.tokens_per_forward)} tokens per forward; {snapshot.verdict.sentence}."
    )
    changes = [event for event in snapshot.events if event.effect is not None]
    if not changes:
        return figures
    text = " ".join("".join(span.text for span in line) for line in events.told(changes[0], MOST_CELLS, UNICODE))
    return f"{figures} The newest change: {' '.join(text.split())}."


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="of the pictures to take; all by default")
    parser.add_argument("--profiles", type=Path, default=PROFILES, help="where the recordings are")
    parser.add_argument("--output", type=Path, default=PICTURES.parent, help="where the pictures go")
    args = parser.parse_args()
    # What the surroundings would change of a picture.
    os.environ.pop("NO_COLOR", None)
    os.environ["TZ"] = "UTC"
    time.tzset()
    try:
        pictures = read_pictures(PICTURES)
        unknown = set(args.names) - {picture.name for picture in pictures}
        if unknown:
            raise UsageError(f"There is no picture {', '.join(sorted(unknown))} in {PICTURES.name}.")
        shown = write([one for one in pictures if not args.names or one.name in args.names], args.profiles, args.output)
        if not args.names:
            (args.output / "README.md").write_text(page(pictures, shown), encoding="utf-8")
    except StackscopeError as error:
        print(f"screenshots: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
