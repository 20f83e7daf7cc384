"""Possible machines: parameters drawn from what is believed of them, always the same ones for the same names."""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from stackscope.analysis.timing.products import multiplied

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.analysis.timing.curves import Floats


@lru_cache(maxsize=2048)
def latent(name: str, n: int, seed: int) -> Floats:
    """`n` standard normal numbers that depend on nothing but name and seed: what two models call by one name is one
    unknown, and leaves their ratio."""
    made = np.random.default_rng((seed, zlib.crc32(name.encode()))).standard_normal(n)
    made.flags.writeable = False
    return made


class Load(NamedTuple):
    """How much the parameters depend on something that is not known."""

    name: str
    sd: Floats
    """(parameters,) standard deviation of the logarithm of each that comes with it."""


class Belief(NamedTuple):
    """What is believed of the parameters of one block."""

    names: tuple[str, ...]
    mean: Floats
    root: Floats
    """Its product with standard normal numbers is a draw's deviation from the mean, before the loads."""
    loads: tuple[Load, ...] = ()
    origin: str = ""
    """Beliefs of the same origin have the same errors."""

    def draws(self, n: int, seed: int) -> Floats:
        """(n, parameters) possible values, none of them negative."""
        used = np.flatnonzero(np.any(self.root != 0.0, axis=0))
        drawn = np.tile(self.mean, (n, 1))
        if len(used):
            names = (*self.names, "level", "cold")
            normal = np.stack([latent(f"{self.origin} {names[index]}", n, seed) for index in used], axis=1)
            drawn = np.maximum(drawn + multiplied(normal, self.root[:, used].T), 0.0)
        for load in self.loads:
            drawn = drawn * np.exp(np.outer(latent(load.name, n, seed), load.sd))
        return drawn

    def times(self, factors: Floats, loads: Sequence[Load]) -> Belief:
        """With every parameter multiplied by a factor, and what that factor may be off by."""
        return self._replace(mean=self.mean * factors, root=self.root * factors[:, None], loads=(*self.loads, *loads))

    @property
    def sd(self) -> Floats:
        """Standard deviation of each parameter, loads included."""
        variance = np.sum(self.root**2, axis=1)
        for load in self.loads:
            variance = variance + (self.mean * load.sd) ** 2
        sd: Floats = np.sqrt(variance)
        return sd
