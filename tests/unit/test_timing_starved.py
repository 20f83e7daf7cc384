"""What a change brings is told apart from cores that the engine's threads lacked before it, or lack now."""

from __future__ import annotations

import msgspec
import pytest

from stackscope.analysis.timing.fit import Fit
from tests.unit.test_timing_under import ROWS_8, said, spread
from tests.unit.timing_machines import CONFIG, Machine


@pytest.mark.parametrize("has_ceilings", [True, False])
def test_what_cores_were_lacking_then_and_now_is_no_part_of_a_change(has_ceilings: bool) -> None:
    """Fused or not, this machine takes as long. With a third of its cores it took twice that, with a fifth five times:
    the way back is no 2.5 times faster."""
    machine = Machine()
    other = msgspec.structs.replace(CONFIG, flash_attention=False)
    fit = Fit(machine.calibrated() if has_ceilings else None)
    for config, times, share in ((CONFIG, 2, 0.33), (other, 5, 0.2)):
        fit.begin(config, machine.pricing)
        fit.add([
            msgspec.structs.replace(
                step, phases=msgspec.structs.replace(step.phases, decode=times * step.phases.decode),
                cpu_ns=round(2 * share * times * step.phases.decode),
            )
            for step in machine.traffic(300, noise=0.01)
        ])  # fmt: skip
    model = fit.model()
    assert model is not None
    back = said(model, CONFIG, machine.pricing)
    mean, sd = spread(model, ROWS_8, back)
    assert abs(mean) < 0.25
    assert sd > abs(mean)
