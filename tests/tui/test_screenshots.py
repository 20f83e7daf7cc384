"""Pictures: declared so that they can be taken, taken from recordings to the byte, and drawn so that lines join."""

from __future__ import annotations

import io
import os
import re
import sys
import time
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest
from rich.console import Console
from rich.style import Style
from rich.text import Text

from screenshots import (
    PICTURES,
    PROFILES,
    ROOT,
    Picture,
    gathered,
    instant_ns,
    measured,
    page,
    read_pictures,
    take,
    to_png,
)
from stackscope.errors import UsageError
from stackscope.records import Mark
from stackscope.session.writer import SessionWriter
from stackscope.tui.layout import LEAST_HEIGHT, LEAST_WIDTH
from terminal_svg import HEIGHT, MARGIN, WIDTH, redrawn
from tests.tui.sessions import SESSIONS, running
from tests.unit.record_builders import ORIGIN_NS, SyntheticEngine, make_footer, make_header

if TYPE_CHECKING:
    from pathlib import Path

MOST_BYTES = 150_000
STEPS = 1_600


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    """A folder with one recording, marked after a second."""
    folder = tmp_path / "profiles"
    folder.mkdir()
    with SessionWriter(folder / "tiny.jsonl.zst", make_header(device="synthetic")) as writer:
        is_marked = False
        for record in SyntheticEngine(seed=3, draft_length=3).records(STEPS):
            at_ns = getattr(record, "start_ns", 0)
            if at_ns > ORIGIN_NS + 1_000_000_000 and not is_marked:
                writer.write(Mark(at_ns=at_ns, label="halfway"))
                is_marked = True
            writer.write(record)
        assert is_marked
        writer.write(make_footer(steps=STEPS))
    return folder


# Declared


def test_every_picture_can_be_taken() -> None:
    pictures = read_pictures(PICTURES)
    assert [picture.name for picture in pictures][:4] == [
        f"story-{n}" for n in ("1-baseline", "2-speculation", "3-batch", "4-kv")
    ]
    for picture in pictures:
        assert re.fullmatch(r"[a-z0-9-]+", picture.name)
        assert picture.size >= (LEAST_WIDTH, LEAST_HEIGHT)
        assert picture.size[1] >= LEAST_HEIGHT
        assert picture.caption.endswith(".")
        assert picture.synthetic is None or picture.synthetic in SESSIONS


def test_pictures_are_those_that_are_declared_and_not_large() -> None:
    names = {picture.name for picture in read_pictures(PICTURES)}
    files = [path for path in PICTURES.parent.iterdir() if path != PICTURES and path.is_file()]
    assert {path.name: path.stat().st_size for path in files if path.stat().st_size > MOST_BYTES} == {}
    assert {path.stem for path in files} - {"README"} <= names
    if (PROFILES / "story.jsonl.zst").exists():
        expected = {f"{name}.{kind}" for name in names for kind in ("svg", "png")}
        assert {path.name for path in files} == {*expected, "README.md"}


@pytest.mark.parametrize("page", ["README.md", "docs/guide.md"])
def test_pages_show_pictures_that_are_declared(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    shown = re.findall(r"!\[[^\]]+\]\((?:\.\./)?screenshots/([\w-]+)\.svg\)", text)
    assert shown
    assert len(shown) == len(re.findall(r"\.(?:svg|png)\b", text))
    assert set(shown) <= {picture.name for picture in read_pictures(PICTURES)}


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ('name = "a"\ncaption = "A."', "needs either a recording or a synthetic state"),
        ('name = "a"\ncaption = "A."\nrecording = "r"\nsynthetic = "gpu"', "needs either"),
        ('name = "a"\ncaption = "A."\nsynthetic = "gpu"', "does not say in its caption that it is synthetic"),
        ('name = "a"\ncaption = " "\nrecording = "r"', "has no caption"),
        ('name = "a"\ncaption = "A."\nrecording = "r"\nmark = "m"', "has a mark and no offset_s"),
        ('name = "a"\ncaption = "A."\nrecording = "r"\nscreen = "other"', "Invalid enum value 'other'"),
        ('name = "a"\ncaption = "A."\nrecordings = "r"', "unknown field `recordings`"),
        ('name = "a"\ncaption = "A."\nrecording = "r"\n[[picture]]\nname = "a"\ncaption = "B."\nrecording = "r"',
         "declared more than once"),
    ],
)  # fmt: skip
def test_a_picture_that_makes_no_sense_is_refused(tmp_path: Path, table: str, complaint: str) -> None:
    path = tmp_path / "pictures.toml"
    path.write_text(f"[[picture]]\n{table}\n", encoding="utf-8")
    with pytest.raises(UsageError, match=re.escape(complaint)):
        read_pictures(path)


# Taken


def picture(**how: object) -> Picture:
    return Picture(**({"name": "one", "caption": "One.", "recording": "tiny", "size": (100, 30)} | how))  # type: ignore[arg-type]


def words(svg: str) -> str:
    return " ".join(
        "".join(text.itertext()) for text in ElementTree.fromstring(svg).iter() if text.tag.endswith("text")
    )


def svg_of(wanted: Picture, profiles: Path) -> str:
    return take(wanted, profiles).svg


def test_the_same_recording_gives_the_same_picture(profiles: Path) -> None:
    first = take(picture(), profiles)
    assert take(picture(), profiles) == first
    shown = words(first.svg)
    for word in ("stackscope", "Verdict", "Step anatomy", "Acceptance", "replay end", "quit"):
        assert word in shown
    assert not re.search(r"own \d", shown), "what a picture costs depends on who draws it"


def test_a_picture_names_no_place(profiles: Path) -> None:
    svg = svg_of(picture(), profiles)
    assert re.findall(r"\w+://[^\"]+", svg) == ["http://www.w3.org/2000/svg"]
    assert "font-face" not in svg


def test_the_instant_is_that_of_the_mark(profiles: Path) -> None:
    recording = profiles / "tiny.jsonl.zst"
    marked = instant_ns(picture(mark="halfway", offset_s=0.0), recording)
    assert ORIGIN_NS + 1_000_000_000 < marked < ORIGIN_NS + 1_100_000_000
    assert instant_ns(picture(mark="halfway", offset_s=-0.25), recording) == marked - 250_000_000
    assert instant_ns(picture(offset_s=0.5), recording) == ORIGIN_NS + 500_000_000
    assert instant_ns(picture(), recording) > marked
    early = words(svg_of(picture(mark="halfway", offset_s=-0.25), profiles))
    assert "paused" in early
    assert "replay end" not in early


def test_a_mark_that_is_not_there_and_a_recording_that_is_not_there_are_told(profiles: Path) -> None:
    with pytest.raises(UsageError, match=r"the mark 'nowhere', which tiny\.jsonl\.zst has not"):
        take(picture(mark="nowhere", offset_s=0.0), profiles)
    with pytest.raises(UsageError, match="which is not there"):
        take(picture(recording="absent"), profiles)


@pytest.mark.parametrize(
    ("screen", "expected"),
    [
        ("steps", "following"),
        ("explain", "What takes the time"),
        ("sessions", "profiles/tiny.jsonl.zst"),
        ("toggles", "Speculation"),
    ],
)
def test_every_screen_can_be_shown(profiles: Path, tmp_path: Path, screen: str, expected: str) -> None:
    copies = tmp_path / "elsewhere"
    copies.mkdir()
    assert expected in words(svg_of(picture(screen=screen), gathered(profiles, copies)))


def test_keys_are_pressed(profiles: Path) -> None:
    assert "Bandwidth" not in words(svg_of(picture(size=(80, 24)), profiles))
    pages = [words(svg_of(picture(size=(80, 24), keys=("n",) * n), profiles)) for n in range(1, 5)]
    assert any("Bandwidth" in page for page in pages)


def test_a_synthetic_picture_says_so() -> None:
    svg = svg_of(picture(recording=None, synthetic="gpu", size=(120, 40)), PROFILES)
    assert "SYNTHETIC" in words(svg)
    assert "GPU0" in words(svg)


def test_the_page_says_what_was_measured(profiles: Path) -> None:
    one, other = picture(), picture(name="other", recording=None, synthetic="gpu", caption="Synthetic.")
    text = page((one, other), {"one": take(one, profiles).snapshot, "other": running()})
    recorded, made_up = text.split("## other")
    assert re.search(r"One. At 0:04 of the recording: [\d,.]+ tok/s, [\d.]+ tokens per forward; \w", recorded)
    assert "![One.](one.svg)" in recorded
    assert "tok/s" not in made_up


def test_a_change_is_told_with_what_it_came_to() -> None:
    change = "speculation off → draft model, draft length 3 → 5"
    came = "predicted +92 % [71, 113] measured +121 % [115, 127] above"
    assert measured(running()).endswith(f" The newest change: 1:40 {change} {came}.")


def test_recordings_are_as_old_as_they_say(profiles: Path, tmp_path: Path) -> None:
    os.utime(profiles / "tiny.jsonl.zst", (0, 0))
    folder = tmp_path / "copies"
    folder.mkdir()
    (copy,) = gathered(profiles, folder).iterdir()
    assert time.gmtime(copy.stat().st_mtime)[:5] == (2026, 11, 29, 19, 15)


# Drawn


def drawn(*parts: tuple[str, str]) -> str:
    """A line of (text, style) as a terminal of 20 columns shows it."""
    console = Console(width=20, record=True, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.assemble(*((text, Style.parse(style)) for text, style in parts)), end="")
    return redrawn(console.export_svg())


def paths(svg: str) -> dict[str, str]:
    """Their shapes by their colour."""
    found: dict[str, str] = {}
    for path in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}path"):
        colour = path.get("stroke") or path.attrib["fill"]
        found[colour + path.attrib.get("fill-opacity", "")] = path.attrib["d"]
    return found


def test_letters_stand_in_their_cells() -> None:
    svg = drawn(("ab  cd e", "bold #112233"), ("│", "#445566"), ("ü<", "#112233"))
    texts = [element for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("text")]
    assert [(text.text, text.get("x"), text.get("textLength")) for text in texts] == [
        ("ab", "0", f"{2 * WIDTH}"), ("cd e", f"{4 * WIDTH}", f"{4 * WIDTH}"), ("ü<", f"{9 * WIDTH}", f"{2 * WIDTH}")
    ]  # fmt: skip
    assert "fill:#112233;font-weight:bold" in svg


def test_lines_reach_from_edge_to_edge() -> None:
    strokes = paths(drawn(("╭──┤", "#445566")))["#445566"]
    assert strokes == f"M4 16V12Q4 8 8 8M{WIDTH} 8H{3 * WIDTH}M{3 * WIDTH + 4} 0V{HEIGHT}M{3 * WIDTH + 4} 8H{3 * WIDTH}"


def test_blocks_fill_their_part_of_the_cell() -> None:
    found = paths(drawn(("██▌", "#112233"), ("▂▞", "#445566"), ("░", "#778899")))
    assert found["#112233"] == "M0 0h16v16h-16zM16 0h4v16h-4z"
    assert found["#445566"] == "M24 12h8v4h-8zM36 0h4v8h-4zM32 8h4v8h-4z"
    assert found["#7788990.25"] == "M40 0h8v16h-8z"


def test_a_background_is_one_shape_for_all_its_cells() -> None:
    found = paths(drawn(("x", "#000000 on #ffffff"), ("a ", "#112233 on #445566"), ("b", "#778899 on #445566")))
    assert found == {"#445566": "M8 0h24v16h-24z"}


def test_frames_join_in_the_png() -> None:
    pytest.importorskip("cairosvg", reason="PNGs are taken with CairoSVG")
    from PIL import Image

    console = Console(width=6, record=True, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text("╭────╮\n│    │\n│    │\n╰────╯", "#ffffff on #000000"), end="")
    png = to_png(redrawn(console.export_svg()))
    assert png is not None
    image = Image.open(io.BytesIO(png)).convert("L")
    scale = image.width // (6 * WIDTH + 2 * MARGIN)
    left, top = scale * (MARGIN + 4) - 1, scale * (MARGIN + 8) - 1
    down = [image.getpixel((left, y)) for y in range(scale * (MARGIN + HEIGHT), scale * (MARGIN + 3 * HEIGHT))]
    across = [image.getpixel((x, top)) for x in range(scale * (MARGIN + WIDTH), scale * (MARGIN + 5 * WIDTH))]
    assert set(down) == set(across) == {255}


def test_without_cairosvg_there_is_no_png(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cairosvg", None)
    assert to_png("<svg/>") is None
