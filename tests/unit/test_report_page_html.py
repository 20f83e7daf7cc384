"""The page: it opens anywhere, says what the summary says, and takes nothing for markup."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree

import msgspec
import pytest

from stackscope import units
from stackscope.analysis.metrics import latency, load
from stackscope.analysis.metrics.base import ServiceLimits
from stackscope.analysis.metrics.catalogue import METRICS
from stackscope.records import ConfigEvent, Emission, HardwareSample, Mark
from stackscope.report.page.gather import gather
from stackscope.report.page.html import page
from stackscope.report.page.markdown import markdown, plain
from stackscope.report.page.style import DARK, INK, LIGHT, PARTS
from stackscope.report.page.tables import FIGURES
from stackscope.session.reader import SessionReader
from stackscope.session.writer import SessionWriter
from stackscope.tui.theme import contrast
from tests.unit.page_checker import SVG, check, data_of
from tests.unit.record_builders import make_footer, make_header, make_model, make_request, make_step
from tests.unit.report_sessions import header as report_header
from tests.unit.report_sessions import request as report_request
from tests.unit.report_sessions import steps as report_steps

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stackscope.records import AnyRecord, Header
    from stackscope.report.page.gather import SessionFigures

PROFILES: Final = Path(__file__).parents[2] / "profiles"
NAMES: Final = ("story", "chat", "copy-ngram", "code-q8")
HOSTILE: Final = "<script>alert(1)</script>&\"'`|*_[x](http://e.example)</title>\x00\x1b[31m\ud800 @team #1"


def figures_of(*names: str, limits: ServiceLimits | None = None) -> list[SessionFigures]:
    return [gather(SessionReader(PROFILES / f"{name}.jsonl.zst"), limits or ServiceLimits()) for name in names]


def made(tmp_path: Path, records: Iterable[AnyRecord], header: Header | None = None, name: str = "s") -> SessionFigures:
    path = tmp_path / f"{name}.jsonl.zst"
    with SessionWriter(path, make_header() if header is None else header) as writer:
        for record in records:
            writer.write(record)
    return gather(SessionReader(path), ServiceLimits())


def words(root: ElementTree.Element) -> str:
    return " ".join(" ".join(root.itertext()).split())


@pytest.fixture(scope="module")
def story() -> str:
    return page(figures_of("story"))


@pytest.fixture(scope="module")
def all_four() -> str:
    return page(figures_of(*NAMES))


def test_recorded_sessions_make_sound_pages(story: str, all_four: str) -> None:
    for text in (story, all_four):
        check(text)
    assert len(story) < 400_000
    assert len(all_four) < 1_000_000


def test_every_chart_of_the_story_has_data(story: str) -> None:
    root = check(story)
    pictures = list(root.iter(f"{SVG}svg"))
    figures = [figure for figure in root.iter("figure") if "chart" in (figure.get("class") or "")]
    assert len(pictures) == len(figures) == 11  # 1 throughput, 2 anatomy, 4 latency, 2 speculation, bandwidth, load
    assert all(data_of(picture) for picture in pictures)
    titles = [figure.find("./figcaption/strong") for figure in figures]
    assert {"Tokens per second", "A step in parts", "TTFT", "step gap", "TPOT", "E2E", "Acceptance by position"} <= {
        title.text for title in titles if title is not None
    }


def test_toggles_stand_on_every_chart_over_time(story: str) -> None:
    marks = {
        figure.get("id"): [text.text for text in figure.iter(f"{SVG}text") if text.get("class") == "mark-label"]
        for figure in check(story).iter("figure")
    }
    for name in ("throughput-0", "anatomy-1", "bandwidth-0", "load-0"):
        assert marks[name] == [
            "baseline", "speculation on", "spec draft", "batch 8", "load 8", "speculation off", "spec off",
            "KV quantised", "KV q8_0",
        ]  # fmt: skip
    assert marks["latency-0"] == []


def test_sessions_stand_side_by_side_with_one_vertical_axis(all_four: str) -> None:
    root = check(all_four)
    panels = [figure for figure in root.iter("figure") if (figure.get("id") or "").startswith("throughput-")]
    assert len(panels) == 4
    axes = [
        [text.text for text in panel.iter(f"{SVG}text") if text.get("text-anchor") == "end" and text.get("x") == "50"]
        for panel in panels
    ]
    assert len(axes[0]) > 2
    assert axes[1:] == axes[:1] * 3
    head = [cell.text for cell in next(root.iter("table")).iter("th")][:5]
    assert head == ["metric", "A", "B", "C", "D"]


def rows_of(root: ElementTree.Element) -> dict[str, list[str]]:
    """First row of each name, over all tables."""
    rows: dict[str, list[str]] = {}
    for row in root.iter("tr"):
        first, *rest = ["".join(cell.itertext()) for cell in row]
        rows.setdefault(first, rest)
    return rows


def test_figures_are_those_of_the_summary(story: str) -> None:
    rows = rows_of(check(story))
    result = figures_of("story")[0].result
    ttft = result[latency.TimeToFirstToken]
    assert ttft is not None
    assert rows["tokens/s out"] == [units.token_rate(result[load.OutputRate])]
    assert rows["TTFT p95"] == [f"{units.duration(ttft.p95)} (n {units.count(ttft.n)})"]
    assert rows["TTFT"][-1] == units.count(ttft.n)
    assert rows["TTFT"][3] == f"{units.duration(ttft.p99)}*"  # of under 100 values the p99 is the maximum
    cells = {"".join(cell.itertext()) for cell in check(story).iter("td")}
    found = [event.effect.tokens for event in figures_of("story")[0].events if event.effect is not None]
    measured = {units.ratio(ratio.value, ratio.low, ratio.high) for ratio in found if ratio is not None}
    assert measured  # the story changes settings and measures what each bought
    assert measured <= cells
    assert {metric.formula for metric in METRICS} <= cells


def test_every_figure_and_metric_is_there(story: str) -> None:
    rows = rows_of(check(story))
    for metric, which, clearer in FIGURES:
        if metric is not latency.Goodput:
            assert f"{clearer or metric.header} {which}".strip() in rows
    assert {metric.header for metric in METRICS} <= set(rows)


def test_limits_bring_goodput() -> None:
    sessions = figures_of("chat", limits=ServiceLimits(ttft_ns=10**12))
    assert rows_of(check(page(sessions)))["goodput"] == [units.request_rate(sessions[0].result[latency.Goodput])]
    assert "| goodput |" in markdown(sessions)
    assert rows_of(check(page(figures_of("chat"))))["goodput"][0] == "–"  # among all metrics only, as unknown


# The checker itself

BREAKAGES: Final = {
    "a script": ("</body>", "<script>1</script></body>"),
    "a picture from elsewhere": ("</main>", '<p><img src="http://e.example/x.png"/></p></main>'),
    "a link to elsewhere": ('href="#figures"', 'href="http://e.example"'),
    "a link to nowhere": ('href="#figures"', 'href="#nowhere"'),
    "a font from elsewhere": ("</style>", "p { background: url(x.png) }</style>"),
    "an import": ("</style>", "@import 'x.css';</style>"),
    "no policy": ("default-src &#x27;none&#x27;", "default-src *"),
    "an element left open": ("</figcaption>", ""),
    "an element closed twice": ("</main>", "</main></main>"),
    "an entity that is none": ("Stackscope report", "Stackscope & report"),
    "an id twice": ('id="figures"', 'id="latency"'),
    "a head without scope": (' scope="col"', ""),
    "a chart without words": ('id="throughput-0-desc"', 'id="other"'),
    "a chart without data": ('class="line c0"', 'class="nothing"'),
    "a handler": ("<main>", '<main onclick="x()">'),
    "a style of its own": ("<main>", '<main style="color: red">'),
    "no doctype": ("<!DOCTYPE html>", ""),
}


@pytest.mark.parametrize("name", BREAKAGES)
def test_the_checker_sees_what_is_wrong(name: str, story: str) -> None:
    old, new = BREAKAGES[name]
    assert old in story
    broken = story.replace(old, new)
    if name == "a chart without data":
        broken = broken.replace('class="area c0"', 'class="nothing"').replace('class="dot c0"', 'class="nothing"')
    with pytest.raises((AssertionError, ElementTree.ParseError)):
        check(broken)


# What is not known


def odd_sessions(tmp_path: Path) -> dict[str, SessionFigures]:
    """Sessions that lack nearly everything, or are strange."""
    blind = make_header(source="attach", capabilities=("slots",), model=None, config=None, library=None, workload={})
    late = make_step(5, start_ns=10**12)
    long = [make_step(n, start_ns=n * 3 * 10**9) for n in range(4)]
    return {
        "empty": made(tmp_path, [], name="empty"),
        "one step": made(tmp_path, [make_step()], name="one"),
        "blind": made(tmp_path, [make_step(n) for n in range(5)], blind, name="blind"),
        "gap": made(tmp_path, [make_step(0), late], name="gap"),
        "idle": made(tmp_path, long, name="idle"),
        "killed": made(tmp_path, [*report_steps(40), report_request(0)], report_header(), name="killed"),
        "one instant": made(tmp_path, [make_request(emissions=(Emission(0, 0, 1),), arrived_ns=0, admitted_ns=0,
                                                    finished_ns=0)], name="instant"),
        "measured": made(
            tmp_path,
            [*report_steps(400), *(HardwareSample(at_ns=n * 10**9, dram_bytes_per_s=3e9) for n in range(4))],
            report_header(), name="measured",
        ),
    }  # fmt: skip


def test_odd_sessions_make_sound_pages_alone_and_together(tmp_path: Path) -> None:
    sessions = odd_sessions(tmp_path)
    for session in sessions.values():
        check(page([session]))
        markdown([session])
    check(page(list(sessions.values())))
    markdown(list(sessions.values()))


def test_unknown_is_a_dash_and_zero_is_zero(tmp_path: Path) -> None:
    sessions = odd_sessions(tmp_path)
    blind, empty = (rows_of(check(page([sessions[name]]))) for name in ("blind", "empty"))
    for name in ("drafted tokens accepted", "prompt tokens spared", "bytes per token, modelled", "TTFT p50", "model"):
        assert blind[name] == ["–"], name
    assert empty["tokens/s out"] == ["–"]
    assert empty["pre-emptions"] == ["0"]
    assert "This source does not say where the time goes." in words(check(page([sessions["blind"]])))
    for session in sessions.values():
        cells = [cell for row in rows_of(check(page([session]))).values() for cell in row]
        assert not [cell for cell in cells if re.search(r"^-$|\bnan\b|\bNone\b|\binf\b", cell)]


def test_what_the_hardware_measured_is_a_line_of_its_own(tmp_path: Path) -> None:
    text = words(check(page([odd_sessions(tmp_path)["measured"]])))
    assert "measured by the processor's counters, whole machine" in text


def test_a_recording_that_was_cut_off_says_so(tmp_path: Path) -> None:
    cut = tmp_path / "cut.jsonl.zst"
    cut.write_bytes((PROFILES / "chat.jsonl.zst").read_bytes()[:15_000])
    session = gather(SessionReader(cut), ServiceLimits())
    assert session.truncated is not None
    assert session.truncated in words(check(page([session])))
    assert plain(session.truncated) in markdown([session])


# What somebody else may have written


def hostile(tmp_path: Path) -> SessionFigures:
    config = report_header().config
    assert config is not None
    header = msgspec.structs.replace(
        report_header(), model=make_model(name=HOSTILE), draft_model=make_model(name=HOSTILE), device=HOSTILE,
        host=HOSTILE, library=HOSTILE, workload={HOSTILE: HOSTILE, "text": HOSTILE}, stackscope=HOSTILE,
        started=HOSTILE,
    )  # fmt: skip
    changed = msgspec.structs.replace(config, model=HOSTILE)
    return made(
        tmp_path,
        [
            *report_steps(200),
            Mark(at_ns=10**9, label=HOSTILE),
            ConfigEvent(at_ns=1_800_000_000, epoch=1, kind="rebuild", changes={"model": (config.model, HOSTILE)},
                        config=changed, duration_ns=5),
            *report_steps(200, first=201, epoch=1),
            ConfigEvent(at_ns=3_700_000_000, epoch=1, kind="refused", reason=HOSTILE),
            report_request(0),
            make_footer(),
        ],
        header,
        name="<b>hostile&",
    )  # fmt: skip


def test_nothing_is_taken_for_markup(tmp_path: Path) -> None:
    session = hostile(tmp_path)
    other = odd_sessions(tmp_path)["killed"]
    for sessions in ([session], [session, other]):
        root = check(page(sessions))
        assert HOSTILE.replace("\x00", "\ufffd").replace("\x1b", "\ufffd").split("\ufffd")[0] in words(root)
    assert "&lt;script&gt;alert(1)" in page([session])


def test_markdown_takes_nothing_for_markup_either(tmp_path: Path) -> None:
    text = markdown([hostile(tmp_path), odd_sessions(tmp_path)["killed"]])
    assert re.findall(r"(?<!\\)<(/?\w+)", text) == ["details", "summary", "/summary", "/details"] * 2
    assert not re.search(r"https?://", text)
    assert not re.search(r"@team|(?<!\\)\[x\]|#1", text)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\ud800-\udfff]", text)


def test_every_row_of_a_markdown_table_has_the_same_cells(tmp_path: Path) -> None:
    for sessions in (figures_of("story"), figures_of(*NAMES), [hostile(tmp_path)]):
        lines = markdown(sessions).split("\n")
        n_tables = 0
        for before, line in zip(["", *lines], lines, strict=False):
            if line.startswith("|"):
                n_cells = len(re.findall(r"(?<!\\)\|", line))
                if before.startswith("|"):
                    assert n_cells == len(re.findall(r"(?<!\\)\|", before)), line
                else:
                    n_tables += 1
                    assert before == ""  # a table needs an empty line before it
        assert n_tables >= 10


# Colours


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_words_and_lines_stand_out(palette: dict[str, str]) -> None:
    for ground in ("background", "surface", "raised"):
        for ink in ("text", "strong", "muted", "accent", "warning"):
            assert contrast(palette[ink], palette[ground]) >= 4.5, (ink, ground)
    for place in range(8):
        assert contrast(palette[f"c{place}"], palette["surface"]) >= 2.2, place
    kind = "light" if palette is LIGHT else "dark"
    for part in PARTS:
        assert contrast(INK[kind][part], palette[part]) >= 4.2, part
    assert set(LIGHT) == set(DARK)


# In a browser

CHROMIUM: Final = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
LOOK: Final = """
<script>
const found = [...document.querySelectorAll("figure.chart svg")].map(svg => {
  const box = svg.getBoundingClientRect();
  const shapes = [...svg.querySelectorAll(".line, .area, .bar, .part, .dot")].map(s => s.getBoundingClientRect());
  return {id: svg.parentElement.id, width: box.width, height: box.height,
    drawn: shapes.filter(s => s.width + s.height > 0).length,
    outside: [...svg.querySelectorAll("*")].map(s => [s, s.getBoundingClientRect()])
      .filter(([s, r]) => s.tagName === "text" && (r.right > box.right + 14 || r.left < box.left - 14))
      .map(([s]) => s.textContent)};
});
const cut = [...document.querySelectorAll(".scroll")].filter(t => t.scrollWidth > t.clientWidth + 1);
document.body.textContent = JSON.stringify({charts: found, wide: document.documentElement.scrollWidth,
  cut: cut.map(t => t.getAttribute("aria-label")),
  requests: performance.getEntriesByType("resource").map(e => e.name)});
</script>
"""


def opened(text: str, tmp_path: Path, *, width: int) -> tuple[Any, str]:
    """What a browser makes of a page, and what it complains of."""
    probed = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    assert probed != text
    path = tmp_path / "probed.html"
    path.write_text(probed.replace("</body>", f"{LOOK}</body>"), encoding="utf-8")
    assert CHROMIUM is not None
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},1200", "--dump-dom",
        "--enable-logging=stderr", f"--user-data-dir={tmp_path / 'browser'}", path.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    body = ElementTree.fromstring(re.sub(r"^<!DOCTYPE[^>]*>", "", re.sub(r"(?s)<head>.*</head>", "", done.stdout)))
    return json.loads("".join(body.itertext())), "\n".join(re.findall(r".*CONSOLE.*", done.stderr))


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")
@pytest.mark.parametrize("width", [1200, 500])
def test_a_browser_draws_every_chart_without_complaint(width: int, story: str, all_four: str, tmp_path: Path) -> None:
    for name, text, n_charts in (("story", story, 11), ("all", all_four, 22)):
        folder = tmp_path / name
        folder.mkdir()
        found, complaints = opened(text, folder, width=width)
        assert complaints == ""
        assert found["requests"] == []
        assert len(found["charts"]) >= n_charts
        for chart in found["charts"]:
            assert chart["width"] > 200, chart
            assert chart["drawn"] > 0, chart
            assert chart["outside"] == [], chart
        assert found["wide"] <= width  # only tables scroll sideways, and inside their own frames,
        assert name != "story" or width < 1200 or found["cut"] == []  # and with room for one session, not even they
