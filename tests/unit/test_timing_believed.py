"""What is believed before any step was seen gives way to few steps, and is no surer than what it is from."""

from __future__ import annotations

import msgspec

from stackscope.analysis.timing.shapes import one_row
from tests.unit.ceilings_builders import about, conditions
from tests.unit.test_timing_fit import fitted, truth_ns
from tests.unit.timing_machines import Machine


def test_few_steps_that_agree_are_heard() -> None:
    """Four of one row take three times what the calibration says, beside 200 of four that take what it says."""
    machine = Machine()
    steps = [machine.step(index, ((100, 4),), (4,), noise=1 + index % 7 / 500) for index in range(200)]
    steps += [machine.step(200 + index, ((100, 1),), (1,), noise=3.0) for index in range(4)]
    model = fitted(machine, steps, machine.calibrated())
    heard = model.terms(one_row(100)).forward / machine.rows_ns(1, 100)
    assert 1.5 < heard < 3.1


def test_rates_of_the_cache_are_none_of_memory() -> None:
    """Only rates are known, of weights that were read in the cache six times as fast as these are; and steps of
    four rows, which do not tell reading from multiplying. What one row takes is then wide open."""
    machine = Machine()
    rate = msgspec.structs.replace(
        machine.calibrated().types[0], place="cache", vector_bytes_per_s=about(6 * machine.bytes_per_s)
    )
    ceilings = msgspec.structs.replace(
        machine.calibrated(),
        conditions=conditions(model="other.gguf"),
        types=(rate,),
        cache_bytes=1 << 24,
        reads=(),
    )
    steps = [machine.step(index, ((100, 4),), (4,), noise=1 + index % 7 / 500) for index in range(200)]
    model = fitted(machine, steps, ceilings)
    found = model.interval(one_row(100))
    assert found.low < truth_ns(machine, one_row(100)) < found.high
    assert found.high > 2.0 * found.low
    # One that reads from the same place is as sure as before.
    there = msgspec.structs.replace(ceilings, types=(msgspec.structs.replace(rate, place="memory"),))
    assert fitted(machine, steps, there).interval(one_row(100)).high < found.high
