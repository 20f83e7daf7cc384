"""How a name that stands is shown while others lead, and when it goes."""

from __future__ import annotations

import pytest

from stackscope.analysis.diagnosis.naming import Namer
from tests.unit.test_diagnosis_naming import follow, window


def test_a_name_on_its_way_out_shows_the_figures_of_now() -> None:
    namer = Namer()
    follow(namer, [window(at, weights=6.0, compute=2.0, commit=2.0) for at in range(10, 16)])
    held = namer.update(window(16, weights=3.6, compute=4.6, commit=1.8))
    assert held.name == "weight bandwidth"
    assert held.share == pytest.approx(0.36)
    assert sum((held.share or 0.0, *[one.share or 0.0 for one in held.rejected if one.claim])) <= 1.0 + 1e-9


def test_a_name_goes_where_now_this_and_now_that_would_be_named_instead() -> None:
    namer = Namer()
    follow(namer, [window(at, weights=6.0, compute=2.0, commit=2.0) for at in range(10, 16)])
    other, another = {"compute": 5.0, "attention": 2.0}, {"attention": 5.0, "compute": 2.0}
    later = [window(16 + n, weights=2.0, commit=1.0, **(another if n % 2 else other)) for n in range(8)]
    names = [one.name for one in follow(namer, later)]
    assert names[:4] == ["weight bandwidth"] * 4
    assert "weight bandwidth" not in names[4:]
