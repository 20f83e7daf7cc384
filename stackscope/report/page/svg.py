"""The smallest part of SVG and HTML that the page needs: elements as text, everything in them escaped."""

from __future__ import annotations

import html

from stackscope.characters import harmless


def escaped(text: str) -> str:
    """Text that stands for itself, in content and in attributes, without what HTML and XML may not hold."""
    return html.escape(harmless(text, keep="\t\n\r"), quote=True)


def element(tag: str, /, *content: str, **attributes: str | float | None) -> str:
    """An element around content that is markup already. Attributes that are `None` are left out.

    An underscore in an attribute's name is a dash (`text_anchor`), a trailing one is dropped (`class_`).
    """
    told = "".join(
        [
            f' {attribute.rstrip("_").replace("_", "-")}="{_value(value)}"'
            for attribute, value in attributes.items()
            if value is not None
        ]
    )
    return f"<{tag}{told}>{''.join(content)}</{tag}>" if content else f"<{tag}{told}/>"


def text(content: str, x: float, y: float, **attributes: str | float | None) -> str:
    """Words in a picture."""
    return element("text", escaped(content), x=x, y=y, **attributes)


def _value(value: str | float) -> str:
    return escaped(value) if isinstance(value, str) else coordinate(value)


def coordinate(value: float) -> str:
    """A length in pixels, to a hundredth, as short as it goes."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def path(points: list[tuple[float, float]], *, is_closed: bool = False) -> str:
    """The `d` of a line through points."""
    steps = [f"{'M' if index == 0 else 'L'}{coordinate(x)} {coordinate(y)}" for index, (x, y) in enumerate(points)]
    return "".join(steps) + ("Z" if is_closed else "")
