"""Short rounds of reading and products, spread over the whole of a calibration.

Neighbours that nobody sees can hold the memory's bandwidth back for seconds, and a hypervisor may move the machine to
other cores: many looks far apart find what it can do at most, where as many in one go find what it does at the moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from stackscope.experiments.measurements import Measurement, Sampler
    from stackscope.experiments.protocol import Item, Kind
    from stackscope.experiments.stages import Log

KINDS: Final[frozenset[Kind]] = frozenset({"read", "product"})
"""What is measured in rounds."""

PAUSE: Final = 5.0
"""Time between two rounds, in lengths of one: they take a sixth of all."""


class Rounds:
    """Some measurements, again and again. There are none at first."""

    def __init__(self, sampler: Sampler, log: Log) -> None:
        self._sampler = sampler
        self._log = log
        self._measurements: list[Measurement] = []
        self._round_ns = 0.0
        """What a round takes."""
        self._next_ns = 0.0

    @property
    def share(self) -> float:
        """Of the time that goes by, what they take."""
        return 1.0 / (1.0 + PAUSE) if self._measurements else 0.0

    @staticmethod
    def takes(item: Item) -> bool:
        """Whether something is to be measured in rounds."""
        return item.kind in KINDS

    def join(self, measurement: Measurement, taken_ns: float) -> None:
        """Have something measured from the next round on. Its first sample took so long, and it stays open until
        `close`."""
        self._measurements.append(measurement)
        self._round_ns += taken_ns
        self._next_ns = self._sampler.now() + PAUSE * self._round_ns

    def maybe(self) -> None:
        """A round, if the last one was a while ago."""
        begun_ns = self._sampler.now()
        if not self._measurements or begun_ns < self._next_ns:
            return
        for measurement in self._measurements:
            cost_ns = self._log.cost_ns(measurement.item)
            assert cost_ns is not None
            take = self._sampler.best if measurement.item.kind == "read" else self._sampler.take
            self._log.add(measurement.item, take(measurement.run, cost_ns))
        ended_ns = self._sampler.now()
        self._round_ns = ended_ns - begun_ns
        self._next_ns = ended_ns + PAUSE * self._round_ns

    def close(self) -> None:
        """No more of them: what they measure can be closed."""
        self._measurements.clear()
