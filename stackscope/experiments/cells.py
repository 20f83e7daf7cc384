"""The cells of an ablation: settings that are on or off, and the configurations that they make together."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Final

import msgspec

from stackscope.config import engine_settings
from stackscope.errors import UsageError
from stackscope.model.ftypes import canonical
from stackscope.toggles import EngineConfig, Setting

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

MOST_FACTORS: Final = 10
MOST_OF_FULL: Final = 5
"""Of a whole factorial: 32 cells are hours on most machines."""

WEIGHTS: Final = "weights"
"""The setting whose value is a type of weights; a file is found or made for it."""

BASELINE: Final = "baseline"

Fields = dict[str, Setting]


class Factor(msgspec.Struct, frozen=True, kw_only=True):
    """One optimisation: the settings that it changes, off and on."""

    name: str
    """What is changed, for people: `speculation`."""
    label: str
    """As it was asked for: `speculation=draft`."""
    off: Fields
    on: Fields


def parse_factors(texts: Sequence[str], base: EngineConfig, weights_of: Callable[[str], str]) -> tuple[Factor, ...]:
    """The factors that texts describe: `speculation=draft`, `draft_length=3:7`, `kv_type=q8_0+flash_attention=on`.

    Before a colon stands the value off; without one, it is `off` for speculation and switches that are turned on, and
    otherwise what the configuration has. `weights_of` gives the file for a type of weights. Raises `UsageError`.
    """
    factors = tuple(_factor(text.strip(), base, weights_of) for text in texts if text.strip())
    if not factors:
        raise UsageError("There is nothing to switch on and off.", remedy="Give --factors speculation=draft,….")
    if len(factors) > MOST_FACTORS:
        raise UsageError(f"{len(factors)} settings are too many.", remedy=f"Give {MOST_FACTORS} at most.")
    for one, other in combinations(factors, 2):
        common = sorted(one.on.keys() & other.on.keys())
        if common:
            raise UsageError(f"{one.label} and {other.label} both change {', '.join(common)}.", remedy="Leave one out.")
    return factors


def _factor(text: str, base: EngineConfig, weights_of: Callable[[str], str]) -> Factor:
    off: Fields = {}
    on: Fields = {}
    names = []
    for part in text.split("+"):
        name, equals, values = part.strip().partition("=")
        name = name.strip().removeprefix("--").replace("-", "_")
        if not equals or not values:
            raise UsageError(f"{part!r} is no setting with a value.", remedy="Write it like speculation=draft.")
        names.append(name)
        before, after = _values(name, values.strip(), base, weights_of)
        off |= before
        on |= after
    changed = {key for key in on if on[key] != off[key]}
    if not changed:
        raise UsageError(f"{text} changes nothing: the baseline has it.", remedy="Give the value off too, as in 3:7.")
    return Factor(name="+".join(names), label=text, off=off, on=on)


def _values(name: str, values: str, base: EngineConfig, weights_of: Callable[[str], str]) -> tuple[Fields, Fields]:
    """The fields that one setting changes, off and on."""
    before, colon, after = values.partition(":")
    if not colon:
        before, after = "", values
    if name == WEIGHTS:
        off_file = weights_of(before) if before else base.model
        return {"model": off_file}, {"model": weights_of(after)}
    origin = f"{name}={values}"
    on = _fields(name, after, origin)
    if before:
        return _fields(name, before, origin), on
    off: Fields = {}
    for key, value in on.items():
        if isinstance(value, bool):
            off[key] = not value
        else:
            off[key] = "off" if key == "speculation" else getattr(base, key)
    return off, on


def fields_of(name: str, text: str, weights_of: Callable[[str], str]) -> Fields:
    """The fields of the configuration that a setting with a value means. Raises `UsageError`."""
    if name == WEIGHTS:
        return {"model": weights_of(text)}
    return _fields(name, text, f"{name}={text}")


def _fields(name: str, text: str, origin: str) -> Fields:
    return msgspec.convert(engine_settings(name, text, origin=origin), Fields)


def masks(n_factors: int, *, is_full: bool) -> tuple[int, ...]:
    """The cells: the baseline, each factor alone, all together; or every combination. Raises `UsageError`."""
    if not is_full:
        return tuple(dict.fromkeys([0, *(1 << i for i in range(n_factors)), (1 << n_factors) - 1]))
    if n_factors > MOST_OF_FULL:
        raise UsageError(
            f"All combinations of {n_factors} settings are {1 << n_factors} cells.",
            remedy=f"Give {MOST_OF_FULL} settings at most with --full.",
        )
    return tuple(range(1 << n_factors))


def config_of(base: EngineConfig, factors: Sequence[Factor], cell: int) -> EngineConfig:
    """The configuration of a cell."""
    fields: Fields = {}
    for index, factor in enumerate(factors):
        fields |= factor.on if cell >> index & 1 else factor.off
    return msgspec.structs.replace(base, **fields)


def label_of(factors: Sequence[Factor], cell: int) -> str:
    """A cell for people: what is on in it."""
    on = [factor.label for index, factor in enumerate(factors) if cell >> index & 1]
    return ", ".join(on) or BASELINE


def names_of(factors: Sequence[Factor], cell: int) -> str:
    """The settings that are on in a cell, as a product: `speculation × weights`."""
    return " × ".join(factor.name for index, factor in enumerate(factors) if cell >> index & 1)


def weights_file(source: Path, type_name: str) -> tuple[Path, bool]:
    """Where a model's weights of another type are, and whether they are there already and newer than their source.

    A type of which the source is itself, by its name, is the source. Raises `UsageError` for a type there is not.
    """
    from stackscope.model.ftypes import split_type
    from stackscope.model.quantise import default_output

    kind = canonical(type_name)
    _, own = split_type(source.stem)
    if own.strip("-._").lower() == kind.lower():
        return source, True
    path = default_output(source, kind)
    is_there = path.is_file() and source.is_file() and path.stat().st_mtime_ns >= source.stat().st_mtime_ns
    return path, is_there
