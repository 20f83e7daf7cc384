"""The look of the page: one sheet, two palettes, of which the reader's system chooses one.

The colours are those of the live screen. The parts of a step are derived from the palette of Okabe and Ito (Color
Universal Design, 2008); nothing is told by colour alone.
"""

from __future__ import annotations

from typing import Final

LIGHT: Final = {
    "background": "#fcfcfa", "surface": "#ffffff", "raised": "#f3f4f4", "text": "#2b323b", "strong": "#0c1118",
    "muted": "#5a6471", "border": "#dde2e7", "grid": "#e6eaee", "axis": "#8b95a1", "accent": "#875400",
    "mark": "#b07100", "warning": "#8f4a00",
    "c0": "#1f568f", "c1": "#bf5a12", "c2": "#2a9d7f", "c3": "#8c2a68", "c4": "#55addf", "c5": "#8a7a10",
    "c6": "#d678b4", "c7": "#78808c",
    "prefill": "#2a9d7f", "decode": "#1f568f", "verify": "#55addf", "draft": "#bf5a12", "sample": "#d678b4",
    "schedule": "#8f3420", "emit": "#bfab28", "shadow": "#8c2a68", "idle": "#cfd5dc", "unexplained": "#78808c",
}  # fmt: skip
DARK: Final = {
    "background": "#0f1318", "surface": "#161b22", "raised": "#1d242d", "text": "#c6ced8", "strong": "#f3f6fa",
    "muted": "#94a0b0", "border": "#2a323d", "grid": "#222a34", "axis": "#5b6676", "accent": "#ffc861",
    "mark": "#ffc861", "warning": "#f2a65a",
    "c0": "#6ea3d8", "c1": "#f0934a", "c2": "#4cc9a0", "c3": "#d58ad2", "c4": "#9ad4f5", "c5": "#f0e087",
    "c6": "#f6c6e2", "c7": "#8f97a3",
    "prefill": "#2fae86", "decode": "#2a66b8", "verify": "#7cc6f2", "draft": "#dd7a24", "sample": "#f6c6e2",
    "schedule": "#a8432c", "emit": "#f0e087", "shadow": "#8f3f8c", "idle": "#394453", "unexplained": "#8f97a3",
}  # fmt: skip

PARTS: Final = (
    "prefill", "decode", "verify", "draft", "sample", "schedule", "emit", "shadow", "idle", "unexplained",
)  # fmt: skip
LINES: Final = tuple(f"c{place}" for place in range(8))

INK: Final = {
    "light": {"prefill": "#000000", "decode": "#ffffff", "verify": "#000000", "draft": "#ffffff", "sample": "#000000",
              "schedule": "#ffffff", "emit": "#000000", "shadow": "#ffffff", "idle": "#000000",
              "unexplained": "#000000"},
    "dark": {"prefill": "#000000", "decode": "#ffffff", "verify": "#000000", "draft": "#000000", "sample": "#000000",
             "schedule": "#ffffff", "emit": "#000000", "shadow": "#ffffff", "idle": "#ffffff",
             "unexplained": "#000000"},
}  # fmt: skip
"""Colour of words upon a part: black or white, whichever stands out more."""

_SHEET: Final = """
*, *::before, *::after { box-sizing: border-box }
html { -webkit-text-size-adjust: 100% }
body { margin: 0; background: var(--background); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif }
main, header.top, footer { max-width: 1080px; margin: 0 auto; padding: 0 24px }
header.top { padding-top: 36px }
h1 { margin: 0; font-size: 26px; line-height: 1.25; color: var(--strong); letter-spacing: -0.01em;
  overflow-wrap: anywhere }
h2 { margin: 44px 0 12px; font-size: 19px; color: var(--strong); letter-spacing: -0.005em }
h3 { margin: 26px 0 8px; font-size: 15px; color: var(--strong) }
p { margin: 6px 0 } .muted, .note { color: var(--muted) } .note { font-size: 13px; margin: 6px 0 0 }
a { color: var(--accent) }
nav { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 16px 0 0; padding: 10px 0; font-size: 14px;
  border-top: 1px solid var(--border); border-bottom: 1px solid var(--border) }
nav a { text-decoration: none } nav a:hover { text-decoration: underline }
ul.warnings { margin: 16px 0 0; padding: 10px 14px 10px 32px; border-left: 3px solid var(--mark);
  background: var(--raised); border-radius: 0 6px 6px 0 }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(200px, 1fr)); gap: 12px; margin: 22px 0 16px;
  padding: 0; list-style: none }
.cards li { padding: 12px 14px; background: var(--surface); border: 1px solid var(--border); border-radius: 8px }
.cards b { display: block; font-size: 21px; line-height: 1.3; color: var(--strong); font-weight: 600;
  font-variant-numeric: tabular-nums; white-space: nowrap }
.cards span { font-size: 13px; color: var(--muted) }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 430px), 1fr)); gap: 16px }
figure.chart { margin: 0; padding: 14px 14px 8px; background: var(--surface); border: 1px solid var(--border);
  border-radius: 8px; min-width: 0 }
figure.chart.wide { grid-column: 1 / -1 } figure.empty { padding-bottom: 14px }
figcaption { font-size: 13px; color: var(--muted); margin: 0 0 6px } figcaption strong { color: var(--strong);
  font-size: 14px; margin-right: 6px }
figure svg { display: block; width: 100%; height: auto; overflow: visible }
svg text { font-size: 12px; fill: var(--muted); font-variant-numeric: tabular-nums }
svg text.strong { fill: var(--text) } svg text.mark-label { fill: var(--accent) }
svg text.limit-label { fill: var(--warning) }
svg text.on-part, svg text.on-bar { font-size: 11.5px } svg text.on-bar { fill: var(--background); font-size: 11px }
.axis { stroke: var(--axis); stroke-width: 1 } .grid { stroke: var(--grid); stroke-width: 1 }
.over { stroke: #ffffff; stroke-opacity: 0.28; stroke-width: 1 } .dashed { stroke-dasharray: 5 4 }
.mark { stroke: var(--mark); stroke-width: 1.25; stroke-dasharray: 2 3 }
.limit { stroke: var(--warning); stroke-width: 1.25; stroke-dasharray: 7 4 }
.line { fill: none; stroke-width: 1.75; stroke-linejoin: round; stroke-linecap: round; stroke: currentColor }
.area { stroke: none; fill: currentColor; fill-opacity: 0.13 } .bar, .dot { fill: currentColor }
.ring { fill: var(--surface); stroke: currentColor; stroke-width: 2 }
.swatch { display: inline-block; width: 11px; height: 11px; border-radius: 2px; margin-right: 6px;
  background: currentColor; vertical-align: -1px }
ul.key { display: flex; flex-wrap: wrap; gap: 2px 16px; margin: 0 0 6px; padding: 0; list-style: none;
  font-size: 13px; color: var(--text) }
.pair { display: grid; grid-template-columns: minmax(0, 5fr) minmax(0, 7fr); gap: 16px; align-items: start }
@media (max-width: 860px) { .pair { grid-template-columns: 1fr } tbody th { white-space: normal } }
.narrow { max-width: 460px } .pair > div > .scroll { max-width: none }
.scroll { overflow-x: auto; background: var(--surface); border: 1px solid var(--border); border-radius: 8px }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums }
caption { text-align: left; padding: 10px 14px; font-weight: 600; color: var(--strong) }
th, td { padding: 6px 14px; text-align: right; vertical-align: top; border-top: 1px solid var(--border) }
thead th { border-top: 0; color: var(--muted); font-weight: 500; white-space: nowrap; background: var(--raised) }
tbody th { font-weight: 500 } th:first-child { text-align: left }
td.words { text-align: left; min-width: 12em } table.text td, table.text th, th.words { text-align: left }
table.text td { overflow-wrap: anywhere } tbody th { white-space: nowrap }
td { white-space: nowrap } td.words, td.many, table.text td { white-space: normal } .scroll + .pair { margin-top: 16px }
table.dense { font-size: 13px } table.dense :is(th, td) { padding: 6px 8px } table.dense td.words { min-width: 9em }
table.dense thead th { white-space: normal } table.dense tbody th { white-space: normal; min-width: 11em }
tbody:first-child tr:first-child > * { border-top: 0 }
details { margin: 14px 0; background: var(--surface); border: 1px solid var(--border); border-radius: 8px }
summary { padding: 10px 14px; cursor: pointer; font-weight: 600; color: var(--strong) }
details > div { padding: 0 14px 14px }
dl { margin: 0; display: grid; grid-template-columns: minmax(120px, 180px) 1fr; gap: 6px 18px; font-size: 14px }
dt { font-weight: 600; color: var(--strong) } dd { margin: 0 } code { font-size: 13px; color: var(--muted) }
footer { margin-top: 48px; padding-top: 14px; padding-bottom: 40px; color: var(--muted); font-size: 13px }
a:focus-visible, summary:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px }
@media (max-width: 560px) { main, header.top, footer { padding: 0 14px } dl { grid-template-columns: 1fr; gap: 0 }
  dd { margin-bottom: 8px } }
@media print { nav { display: none } body { font-size: 11px } figure.chart, .scroll, tr { break-inside: avoid }
  details > div { display: block } .scroll { overflow: visible } }
"""


def sheet() -> str:
    """The whole style sheet."""
    return "\n".join(
        [
            f":root {{ color-scheme: light dark; {_variables(LIGHT)} }}",
            f"@media (prefers-color-scheme: dark) {{ :root {{ {_variables(DARK)} }} }}",
            _SHEET.strip(),
            *[f".{line} {{ color: var(--{line}) }}" for line in LINES],
            *[f".part.{part} {{ fill: var(--{part}) }} .swatch.{part} {{ color: var(--{part}) }}" for part in PARTS],
            *[f"svg text.on-{part} {{ fill: {ink} }}" for part, ink in INK["light"].items()],
            "@media (prefers-color-scheme: dark) {",
            *[f"svg text.on-{part} {{ fill: {ink} }}" for part, ink in INK["dark"].items()],
            "}",
        ]
    )


def _variables(palette: dict[str, str]) -> str:
    return "; ".join(f"--{name}: {colour}" for name, colour in palette.items())
