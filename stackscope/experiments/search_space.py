"""The configurations of a sweep: every combination of the values of its axes that means something of its own."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Final

import msgspec

from stackscope.errors import UsageError
from stackscope.experiments.cells import Fields, fields_of
from stackscope.toggles import EngineConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

MOST_CONFIGURATIONS: Final = 20_000
"""Beyond, choosing among them takes longer than running one."""

OF_DRAFTS: Final = frozenset({"draft_length", "adaptive_draft", "ngram_min", "ngram_max", "synthetic_acceptance"})
"""Settings without effect while nothing is drafted."""


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """One value of an axis."""

    text: str
    fields: Fields
    """What it sets."""


class Axis(msgspec.Struct, frozen=True, kw_only=True):
    """One setting with the values that it is to have."""

    name: str
    values: tuple[Value, ...]
    """The first is the one to compare with."""


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """One point of the space."""

    places: tuple[int, ...]
    """Of its value on each axis. Axes without effect on it stand at their first."""
    label: str
    config: EngineConfig


def parse_axes(texts: Mapping[str, Sequence[object]], weights_of: Callable[[str], str]) -> tuple[Axis, ...]:
    """Axes by the names of their settings: `{"weights": ["Q8_0", "Q4_K_M"], "kv_type": ["f16", "q8_0"]}`.

    `weights_of` gives the file for a type of weights. Raises `UsageError`.
    """
    axes = []
    for name, values in texts.items():
        plain = name.strip().removeprefix("--").replace("-", "_")
        made = [Value(text=_text(value), fields=fields_of(plain, _text(value), weights_of)) for value in values]
        if not made:
            raise UsageError(f"{name} has no values.", remedy="Write it like kv_type=f16,q8_0.")
        if len({value.text for value in made}) < len(made):
            raise UsageError(f"{name} has a value twice.", remedy="Leave one out.")
        axes.append(Axis(name=plain, values=tuple(made)))
    if not axes:
        raise UsageError("There is nothing to sweep over.", remedy="Give --over 'kv_type=f16,q8_0; slots=1,4'.")
    keys = [key for axis in axes for key in axis.values[0].fields]
    twice = sorted({key for key in keys if keys.count(key) > 1})
    if twice:
        raise UsageError(f"Two axes both set {', '.join(twice)}.", remedy="Leave one out.")
    return tuple(axes)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value).strip()


def split_axes(text: str) -> dict[str, list[object]]:
    """Axes as they are typed: `weights=Q8_0,Q4_K_M; kv_type=f16,q8_0`. Raises `UsageError`."""
    found: dict[str, list[object]] = {}
    for part in text.split(";"):
        if not part.strip():
            continue
        name, equals, values = part.partition("=")
        if not equals:
            raise UsageError(f"{part.strip()!r} has no values.", remedy="Write it like kv_type=f16,q8_0.")
        found[name.strip()] = [value.strip() for value in values.split(",") if value.strip()]
    return found


def configurations(base: EngineConfig, axes: Sequence[Axis]) -> tuple[Configuration, ...]:
    """Every combination once, the first values first. What nothing is drafted for has no draft length of its own.

    Raises `UsageError` when there are too many, or only one.
    """
    n = 1
    for axis in axes:
        n *= len(axis.values)
    if n > MOST_CONFIGURATIONS:
        raise UsageError(f"{n:,} configurations are too many.", remedy="Give fewer values.")
    found: dict[EngineConfig, Configuration] = {}
    for places in product(*(range(len(axis.values)) for axis in axes)):
        one = configuration_at(base, axes, places)
        found.setdefault(one.config, one)
    if len(found) < 2:
        raise UsageError("There is only one configuration.", remedy="Give an axis with two values.")
    return tuple(found.values())


def configuration_at(base: EngineConfig, axes: Sequence[Axis], places: tuple[int, ...]) -> Configuration:
    """The configuration with these values; its own places are those of the axes that have an effect on it."""
    fields: Fields = {}
    for axis, place in zip(axes, places, strict=True):
        fields |= axis.values[place].fields
    drafts = fields.get("speculation", base.speculation) != "off"
    kept = tuple(
        place if drafts or not OF_DRAFTS.issuperset(axis.values[place].fields) else 0
        for axis, place in zip(axes, places, strict=True)
    )
    if kept != places:
        return configuration_at(base, axes, kept)
    texts = [
        f"{axis.name}={axis.values[place].text}"
        for axis, place in zip(axes, places, strict=True)
        if drafts or not OF_DRAFTS.issuperset(axis.values[place].fields)
    ]
    return Configuration(places=places, label=" ".join(texts), config=msgspec.structs.replace(base, **fields))
