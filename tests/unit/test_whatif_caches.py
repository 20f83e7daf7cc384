"""What another prefix cache would find: of what was simulated, only what holds for its capacity."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from stackscope.analysis.timing.shapes import Shape
from stackscope.analysis.whatif.plans import NOT_SIMULATED, PromptPlan, prompt_plan
from stackscope.analysis.whatif.transforms import Prompts
from stackscope.analysis.whatif.working_point import Chunk, Round
from stackscope.records import PrefixShadow, Ubatch
from tests.unit.whatif_machine import CONFIG, stated_point, weights_only

if TYPE_CHECKING:
    from stackscope.analysis.whatif.working_point import WorkingPoint
    from stackscope.toggles import Setting

CACHED = msgspec.structs.replace(CONFIG, prefix_cache=True)


def shadow(useful: int, capacity: int | None = None) -> PrefixShadow:
    """Of 100 requests, with so many of 1,000 tokens found."""
    return PrefixShadow(
        at_ns=0, epoch=0, requests=100, lookup_tokens=1000, hit_tokens=useful, useful_hit_tokens=useful,
        capacity_tokens=capacity,
    )  # fmt: skip


def point(*shadows: PrefixShadow, limit: int | None = None, remembered: int | None = None) -> WorkingPoint:
    """Half of what is looked up is found, by a cache that holds 2,000 tokens."""
    return stated_point(
        weights_only, msgspec.structs.replace(CACHED, cache_tokens=limit), most_resident=2000, useful_hit_rate=0.5,
        prefix_shadows=shadows, remembered=remembered,
    )  # fmt: skip


def planned(at: WorkingPoint, **changes: Setting) -> PromptPlan:
    found = prompt_plan(at, msgspec.structs.replace(at.config, **changes))
    assert isinstance(found, PromptPlan)
    return found


def test_a_small_cache_finds_no_more_because_one_without_limit_does() -> None:
    at = point(shadow(900), remembered=9000)
    assert prompt_plan(at, msgspec.structs.replace(at.config, cache_tokens=128)) == NOT_SIMULATED


def test_one_that_holds_all_there_is_finds_what_one_without_limit_does() -> None:
    """A tenth is computed instead of half."""
    assert planned(point(shadow(900), limit=1000, remembered=4000), cache_tokens=4096).prompts.factor == pytest.approx(
        0.2
    )


def test_a_larger_one_that_does_not_is_between_now_and_without_limit() -> None:
    """Half is computed now and a tenth without limit: between 1 and 0.2 of it, and nothing else is possible."""
    found = planned(point(shadow(900), limit=1000, remembered=9000), cache_tokens=4096)
    assert found.prompts.factor == pytest.approx(0.2**0.5)
    assert found.error == found.most_error == pytest.approx(0.8047, abs=1e-4)


def test_the_nearest_smaller_one_is_the_least_that_is_found() -> None:
    at = point(shadow(100, 128), shadow(300, 512), shadow(900), remembered=9000)
    assert planned(at, cache_tokens=1024).prompts.factor == pytest.approx(0.7 / 0.5)
    assert planned(at, cache_tokens=256).prompts.factor == pytest.approx(0.9 / 0.5)
    assert prompt_plan(at, msgspec.structs.replace(at.config, cache_tokens=64)) == NOT_SIMULATED


def test_a_smaller_cache_finds_no_more_than_the_one_in_force() -> None:
    assert planned(point(shadow(800, 512)), cache_tokens=1024).prompts.factor == pytest.approx(1.0)


def test_what_few_rounds_show_of_the_hits_is_brought_to_what_all_steps_had() -> None:
    """The one prompt that stands for all had nothing found; of all prompt tokens half were."""
    one = Round(Shape(((0, 100),), 1, (Ubatch(100, 1),)), (), (Chunk(0, 100, 100),))
    at = msgspec.structs.replace(point(), rounds=(one,), computed_per_token=10.0, demanded_per_token=20.0)
    assert planned(at, prefix_cache=False).prompts == Prompts(2.0, takes_back=True)
