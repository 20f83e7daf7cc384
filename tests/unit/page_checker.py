"""What a page must be to open anywhere: well-formed, closed in itself, and readable without eyes."""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser
from typing import Final
from xml.etree import ElementTree

SVG: Final = "{http://www.w3.org/2000/svg}"
VOID: Final = frozenset({"meta"})
ALLOWED: Final = frozenset(
    {
        "html", "head", "meta", "title", "style", "body", "header", "main", "footer", "nav", "h1", "h2", "h3", "p", "a",
        "ul", "li", "b", "i", "span", "strong", "div", "figure", "figcaption", "table", "thead", "tbody", "tr", "th",
        "td", "details", "summary", "dl", "dt", "dd", "svg", "desc", "g", "path", "line", "rect", "circle", "text",
    }
)  # fmt: skip
ATTRIBUTES: Final = frozenset(
    {
        "lang", "charset", "http-equiv", "content", "name", "class", "id", "href", "scope", "role", "aria-label",
        "aria-labelledby", "tabindex", "xmlns", "viewbox", "x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "d",
        "width", "height", "text-anchor",
    }
)  # fmt: skip
MOST_BYTES: Final = 5_000_000
_NUMBERS: Final = re.compile(r"-?\d+(?:\.\d+)?")


class _Strict(HTMLParser):
    """An HTML parser that forgives nothing: every element is known, closed, and in its place."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: Counter[str] = Counter()
        self.links: list[str] = []
        self.labels: list[str] = []
        self.doctype = ""

    def handle_decl(self, decl: str) -> None:
        self.doctype = decl

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._look(tag, attrs)
        assert tag in VOID or "svg" in self.open, f"{tag} closes itself, which HTML does not know"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._look(tag, attrs)
        assert tag not in VOID
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"{tag} was never opened"
        assert self.open.pop() == tag

    def _look(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ALLOWED, tag
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"{tag} has an attribute twice"
        assert set(names) <= ATTRIBUTES, f"{tag}: {set(names) - ATTRIBUTES}"
        given = dict(attrs)
        if "id" in given:
            self.ids[given["id"] or ""] += 1
        if "href" in given:
            self.links.append(given["href"] or "")
        self.labels += (given.get("aria-labelledby") or "").split()


def check(page: str) -> ElementTree.Element:
    """Raises `AssertionError`, or `ParseError` where an XML parser cannot read it; else its root."""
    assert len(page.encode()) <= MOST_BYTES
    parser = _Strict()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    assert parser.doctype.lower() == "doctype html"
    assert [name for name, n in parser.ids.items() if n > 1] == []
    assert all(link.startswith("#") and link[1:] in parser.ids for link in parser.links), parser.links
    assert all(label in parser.ids for label in parser.labels)
    root = ElementTree.fromstring(page)
    _check_alone(page, root)
    _check_tables(root)
    for picture in root.iter(f"{SVG}svg"):
        _check_picture(picture)
    return root


def _check_alone(page: str, root: ElementTree.Element) -> None:
    """Nothing is fetched from anywhere, and nothing runs."""
    elsewhere = re.sub(r'xmlns="http://www\.w3\.org/2000/svg"', "", page)
    assert not re.search(r"(?i)<(script|iframe|object|embed|link|img|base|form|use|image|foreignObject)\b", page)
    sheet = "".join(style.text or "" for style in root.iter("style"))
    assert not re.search(r"(?i)url\(|@import|@font-face|expression\(", sheet)
    assert not re.search(r'(?i)\s(on\w+|src|srcset|action|style|xlink:href)\s*=\s*"', elsewhere)
    policy = [meta.get("content") or "" for meta in root.iter("meta") if "http-equiv" in meta.attrib]
    assert len(policy) == 1
    assert "default-src 'none'" in policy[0]
    assert "prefers-color-scheme: dark" in sheet


def _check_tables(root: ElementTree.Element) -> None:
    for table in root.iter("table"):
        head = table.findall("./thead/tr/th")
        assert head or table.get("class") == "text"
        assert all(cell.get("scope") == "col" for cell in head)
        for row in table.findall("./tbody/tr"):
            first, *rest = list(row)
            assert first.tag == "th"
            assert first.get("scope") == "row"
            assert {cell.tag for cell in rest} <= {"td"}
            assert len(rest) + 1 == (len(head) or 2)


def _check_picture(picture: ElementTree.Element) -> None:
    """It has words for who does not see it, data, and nothing far outside its frame."""
    assert picture.get("role") == "img"
    title, desc = picture.find(f"{SVG}title"), picture.find(f"{SVG}desc")
    assert title is not None
    assert title.text
    assert desc is not None
    assert desc.text
    assert len(data_of(picture)) > 0
    left, top, width, height = map(float, (picture.get("viewBox") or "").split())
    assert (left, top) == (0, 0)
    for shape in picture.iter():
        for name, most in (("x", width), ("x1", width), ("x2", width), ("cx", width), ("y", height), ("y1", height),
                           ("y2", height), ("cy", height)):  # fmt: skip
            if name in shape.attrib:
                assert -1 <= float(shape.attrib[name]) <= most + 1, (shape.tag, shape.attrib)
        numbers = [float(number) for number in _NUMBERS.findall(shape.get("d", ""))]
        assert all(-1 <= x <= width + 1 for x in numbers[::2])
        assert all(-1 <= y <= height + 1 for y in numbers[1::2])
        assert "NaN" not in str(shape.attrib)
        assert "inf" not in str(shape.attrib.get("d", ""))


def data_of(picture: ElementTree.Element) -> list[ElementTree.Element]:
    """The shapes of a chart that stand for data."""
    kinds = {"line", "area", "bar", "part", "dot"}
    shapes = [shape for shape in picture.iter() if shape.tag in (f"{SVG}path", f"{SVG}rect", f"{SVG}circle")]
    return [shape for shape in shapes if kinds & set((shape.get("class") or "").split())]
