"""What speaks against recommending anything, whatever it is predicted to bring."""

from __future__ import annotations

import pytest

from stackscope.analysis.diagnosis.evidence import Evidence, Stall, Times
from stackscope.analysis.diagnosis.naming import Naming
from stackscope.analysis.doubts import has_moved, is_unexplained

SECOND = 1_000_000_000
STALLED = (Stall(n=1, duration_ns=4 * SECOND, usual_ns=1e6),)


@pytest.mark.parametrize(
    ("naming", "stalls", "expected"),
    [
        (Naming(unexplained=0.45), (), True),
        (Naming(unexplained=0.05), (), False),
        (Naming(), (), False),
        (Naming(name="queueing", unexplained=0.45), (), False),  # Its share is none of the wall time.
        (Naming(unexplained=0.45), STALLED, False),
    ],
)
def test_what_is_not_explained_is_not_predicted_either(
    naming: Naming, stalls: tuple[Stall, ...], *, expected: bool
) -> None:
    evidence = Evidence(times=Times(forward=10.0 * SECOND), stalls=stalls)
    assert is_unexplained(naming, evidence) is expected
    assert not is_unexplained(naming, None)


def test_traffic_has_moved_when_prompts_take_another_share() -> None:
    assert has_moved(0.6, 0.1)
    assert not has_moved(0.2, 0.1)
    assert not has_moved(None, 0.1)
