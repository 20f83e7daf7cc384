"""What differs between sessions: settings and traffic that are in force, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.compare_sessions import Run
from tests.unit.test_compare_verdicts import barriers, notes, versus


@pytest.mark.parametrize(
    ("both", "a", "b"),
    [
        ({"shadows": False}, {"shadow_share": 0.008}, {"shadow_share": 0.02}),
        ({"speculation": "off"}, {"draft_length": 3}, {"draft_length": 5}),
        ({"speculation": "off"}, {"adaptive_draft": False}, {"adaptive_draft": True}),
        ({"speculation": "off", "shadows": False}, {"ngram_max": 4}, {"ngram_max": 6}),
        ({"prefix_cache": False, "shadows": False}, {"block_tokens": 16}, {"block_tokens": 32}),
    ],
)
def test_settings_that_are_not_in_force_are_no_differences(
    both: dict[str, Any], a: dict[str, Any], b: dict[str, Any]
) -> None:
    found = versus(Run(noise=2, config={**both, **b}), Run(config={**both, **a}))
    assert (found.differences, notes(found)) == ((), [])


@pytest.mark.parametrize(
    ("a", "b", "names"),
    [
        ({"shadows": True, "shadow_share": 0.008}, {"shadows": True, "shadow_share": 0.02}, ["shadow_share"]),
        ({"shadows": False, "shadow_share": 0.02}, {"shadow_share": 0.008}, ["shadows", "shadow_share"]),
        ({"speculation": "ngram"}, {"speculation": "ngram", "draft_length": 5}, ["draft_length"]),
        ({}, {"draft_length": 12}, ["draft_length"]),  # which the context is sized for
    ],
)
def test_settings_that_are_in_force_in_one_are_differences(
    a: dict[str, Any], b: dict[str, Any], names: list[str]
) -> None:
    found = versus(Run(noise=2, config=b), Run(config=a))
    assert sorted(one.name for one in found.differences) == sorted(names)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ({"sampling": {}}, {"sampling": {"top_k": 5, "seed": 3}}),
        ({"arrivals": "poisson", "burstiness": 1.0}, {"arrivals": "gamma", "burstiness": 0.5}),
    ],
)
def test_what_a_workload_has_no_use_for_does_not_make_it_another(a: dict[str, Any], b: dict[str, Any]) -> None:
    assert versus(Run(noise=2, workload=b), Run(workload=a)).differences == ()


def test_sampling_of_a_temperature_is_part_of_the_workload() -> None:
    drawn = {"sampling": {"temperature": 1.0}}
    found = versus(Run(noise=2, workload={"sampling": {"temperature": 1.0, "top_k": 5}}), Run(workload=drawn))
    assert barriers(found) == ["workload"]
