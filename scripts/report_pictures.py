"""Take the pictures of the HTML report that README and guide show, in headless Chromium, from recorded sessions.

    python scripts/report_pictures.py
    python scripts/report_pictures.py --output /tmp/pictures

Chromium (Debian's package `chromium`, or any on PATH) draws them; where Pillow is installed they are made smaller.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from stackscope.analysis.metrics.base import ServiceLimits
from stackscope.report.page.gather import gather
from stackscope.report.page.html import page
from stackscope.session.format import SUFFIX
from stackscope.session.reader import SessionReader

ROOT: Final = Path(__file__).resolve().parents[1]
PROFILES: Final = ROOT / "profiles"
WIDTH: Final = 1_140
COLOURS: Final = 256
"""The page has fewer; the rest are edges of letters."""


INTRODUCTION: Final = """\
# Pictures of the report

Taken by `scripts/report_pictures.py` in headless Chromium, from the recordings in `profiles/`; do not edit.
"""


class Picture(NamedTuple):
    """One picture of a page."""

    name: str
    recordings: tuple[str, ...]
    section: str
    """Where the picture begins. Empty: where the page does."""
    height: int
    is_dark: bool
    caption: str


PICTURES: Final = (
    Picture("top", ("story",), "", 1_500, is_dark=False, caption="The beginning of the report of one session."),
    Picture("changes", ("story",), "throughput", 1_330, is_dark=True,
            caption="Throughput with the changes on it, what each did, and a step in parts, on a dark screen."),
    Picture("latency", ("story",), "latency", 1_480, is_dark=False,
            caption="Latencies, acceptance and bandwidth of the same session."),
    Picture("beside", ("chat", "copy-ngram"), "anatomy", 1_480, is_dark=False,
            caption="Two sessions side by side: different workloads, so that nothing follows from their difference."),
)  # fmt: skip


def main() -> int:
    """Take every picture; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, default=ROOT / "screenshots" / "report", help="folder for the pictures")
    output: Path = parser.parse_args().output
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        print("There is no Chromium on PATH. Install Debian's package chromium, for instance.", file=sys.stderr)
        return 1
    output.mkdir(parents=True, exist_ok=True)
    for picture in PICTURES:
        path = output / f"{picture.name}.png"
        with TemporaryDirectory() as folder:
            take(picture, path, browser, Path(folder))
        shrink(path)
        print(f"{path}: {path.stat().st_size:,} bytes")
    told = [f"## {picture.name}\n\n![{picture.caption}]({picture.name}.png)\n" for picture in PICTURES]
    (output / "README.md").write_text("\n".join([INTRODUCTION, *told]), encoding="utf-8")
    return 0


def take(picture: Picture, path: Path, browser: str, folder: Path) -> None:
    """Make a page and have it drawn."""
    sessions = [gather(SessionReader(PROFILES / f"{name}{SUFFIX}"), ServiceLimits()) for name in picture.recordings]
    made = folder / "report.html"
    made.write_text(from_section(page(sessions), picture.section), encoding="utf-8")
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
        f"--window-size={WIDTH},{picture.height}", f"--user-data-dir={folder / 'browser'}",
        f"--blink-settings=preferredColorScheme={0 if picture.is_dark else 1}", f"--screenshot={path.resolve()}",
        made.as_uri(),
    ]  # fmt: skip
    subprocess.run(command, capture_output=True, timeout=120, check=True)


def from_section(text: str, section: str) -> str:
    """A page without what stands before a section: headless Chromium does not draw what it scrolled to."""
    if not section:
        return text
    begin = text.rindex("<h2", 0, text.index(f'id="{section}"'))
    return f"{text[: text.index('<header')]}<main>{text[begin:]}"


def shrink(path: Path) -> None:
    """Write a picture anew with few colours, where Pillow is there."""
    try:
        from PIL import Image
    except ImportError:
        return
    with Image.open(path) as picture:
        reduced = picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    reduced.save(path, optimize=True)


if __name__ == "__main__":
    sys.exit(main())
