"""Colours as people see them: lightness and distance in CIELAB, and what the colour-blind make of them."""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np

Triple: TypeAlias = tuple[float, float, float]

DEFICIENCIES: Final[dict[str, tuple[Triple, ...]]] = {
    "none": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
"""On linear RGB, at full severity: Machado, Oliveira and Fernandes, 2009."""
_XYZ: Final = np.array(((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505)))
_WHITE: Final = np.array((0.95047, 1.0, 1.08883))


def lab(colour: str, deficiency: str = "none") -> Triple:
    """L*, a* and b* of a `#rrggbb` colour, D65, as somebody with that deficiency sees it."""
    channels = np.array([int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)])
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(DEFICIENCIES[deficiency]) @ linear, 0, 1)
    ratios = _XYZ @ seen / _WHITE
    f = np.where(ratios > 216 / 24389, np.cbrt(ratios), (24389 / 27 * ratios + 16) / 116)
    return float(116 * f[1] - 16), float(500 * (f[0] - f[1])), float(200 * (f[1] - f[2]))


def distance(one: str, other: str, deficiency: str = "none") -> float:
    """CIE76 distance; about 2 is the least that is noticed side by side."""
    return float(np.linalg.norm(np.subtract(lab(one, deficiency), lab(other, deficiency))))
