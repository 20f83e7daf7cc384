"""What holds for every toggle in every situation: it moves to a configuration that can exist, or says why not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import hypothesis.strategies as st
import msgspec
from hypothesis import given, settings

from stackscope.engine.sizing import resolve
from stackscope.engine.wire import applied
from stackscope.model.variants import Variant
from stackscope.toggles import EngineConfig, KvType, Speculation
from stackscope.tui.situation import TRAFFIC, Refused, Situation
from stackscope.tui.toggles import TOGGLES, Choice, Refusal, Toggle, cannot_run, choices, next_choice, state
from tests.unit.record_builders import make_model

if TYPE_CHECKING:
    from stackscope.records import ModelSummary

KV_TYPES: st.SearchStrategy[KvType] = st.sampled_from(get_args(KvType))
SOURCES: st.SearchStrategy[Speculation] = st.sampled_from(["off", "ngram", "draft"])
SIMPLE = {"prefix_cache": False, "speculation": "off", "synthetic_acceptance": None}
"""What every model can do."""


@st.composite
def models(draw: st.DrawFn) -> ModelSummary:
    """Dense, windowed and recurrent ones, some with heads that no quantised cache type fits."""
    model = make_model()
    layer = msgspec.structs.replace(
        model.layers[0],
        key_length=draw(st.sampled_from([64, 80, 128])),
        window=draw(st.sampled_from([None, 512])),
        recurrent_state=draw(st.sampled_from([0, 0, 0, 4096])),
    )
    return msgspec.structs.replace(model, layers=(layer, *model.layers[1:]))


@st.composite
def configurations(draw: st.DrawFn, model: ModelSummary) -> EngineConfig:
    """Such as the engine may have started with."""
    slots = draw(st.integers(1, 40))
    speculation = draw(SOURCES)
    config = EngineConfig(
        model="/models/synthetic-F16.gguf",
        draft_model="/models/draft.gguf" if speculation == "draft" else draw(st.sampled_from([None, "/draft.gguf"])),
        speculation=speculation,
        draft_length=draw(st.integers(1, 8)),
        adaptive_draft=draw(st.booleans()),
        synthetic_acceptance=None if speculation == "off" else draw(st.sampled_from([None, 0.5])),
        prefix_cache=draw(st.booleans()),
        cache_tokens=draw(st.sampled_from([None, 100, 4096])),
        slots=slots,
        slots_max=draw(st.sampled_from([None, max(slots, 16)])),
        token_budget=draw(st.sampled_from([100, 256, 1024])),
        kv_type_k=draw(KV_TYPES),
        kv_type_v=draw(KV_TYPES),
        flash_attention=draw(st.booleans()),
        unified_kv=draw(st.booleans()),
        swa_full=draw(st.booleans()),
        threads=draw(st.sampled_from([None, 1, 3, 4])),
    )
    for softer in ({}, {"kv_type_k": "f16", "kv_type_v": "f16"}, {"prefix_cache": False}, SIMPLE):
        config = msgspec.structs.replace(config, **softer)
        if cannot_run(config, Situation(model=model, draft_model=model)) is None:
            return config
    raise AssertionError(config)


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    """At the start of a session."""
    model = draw(models())
    config = draw(configurations(model))
    rate = draw(st.sampled_from([None, 3.0]))
    concurrency = None if rate is not None else draw(st.sampled_from([None, 5, 8]))
    variants = (Variant(config.model, "F16", 10), Variant("/models/synthetic-Q8_0.gguf", "Q8_0", 5))
    return Situation(
        config=config,
        built=config,
        started={**msgspec.structs.asdict(config), "concurrency": concurrency, "rate": rate},
        model=model,
        draft_model=model,
        rate=rate,
        concurrency=concurrency,
        cores=draw(st.sampled_from([None, 1, 2, 12])),
        variants=draw(st.sampled_from([None, variants[:1], variants])),
        gpus=draw(st.sampled_from([None, (), ("one",), ("one", "two")])),
    )


def after(choice: Choice, now: Situation) -> Situation:
    """The situation in which a choice has come into force."""
    load = {name: value for name, value in choice.changes.items() if name in TRAFFIC}
    changes = {name: value for name, value in choice.changes.items() if name not in TRAFFIC}
    config = now.config if now.config is None else applied(now.config, changes)
    values: dict[str, Any] = {name: getattr(now, name) for name in now.__dataclass_fields__}
    return Situation(**{**values, "config": config, **load})


TOGGLE = st.sampled_from(TOGGLES)
DIRECTION = st.sampled_from([1, -1])


@given(situations(), TOGGLE, DIRECTION)
@settings(max_examples=300)
def test_it_leads_to_a_valid_configuration_that_differs_or_says_why_not(
    now: Situation, toggle: Toggle, direction: Any
) -> None:
    onward = next_choice(toggle, now, direction)
    if isinstance(onward, Refusal):
        assert len(onward.reason.split()) > 3
        assert onward.reason[0].isupper() or onward.reason.startswith(("slots_max", "draft_length"))
        return
    assert onward.changes
    assert now.config is not None
    if toggle.settings == TRAFFIC:
        assert all(now.in_force(name) != value for name, value in onward.changes.items())
        return
    config = applied(now.config, onward.changes)
    assert config != now.config
    assert all(getattr(config, name) == value for name, value in onward.changes.items())
    assert now.model is not None
    resolve(config, now.model, usable_threads=4)  # raises where no context can be made


@given(situations(), TOGGLE, DIRECTION)
@settings(max_examples=300)
def test_going_on_and_back_again_returns(now: Situation, toggle: Toggle, direction: Any) -> None:
    onward = next_choice(toggle, now, direction)
    if isinstance(onward, Refusal):
        return
    there = after(onward, now)
    back = next_choice(toggle, there, -direction)
    assert isinstance(back, Choice), back
    assert state(toggle, after(back, there)) == state(toggle, now)


@given(situations(), TOGGLE)
def test_exactly_one_value_is_the_current_one_and_only_that_changes_nothing(now: Situation, toggle: Toggle) -> None:
    offered = choices(toggle, now)
    assert [choice.is_current for choice in offered].count(True) == (1 if offered else 0)
    for choice in offered:
        assert bool(choice.changes) != choice.is_current or choice.refusal is not None
    assert len({choice.label for choice in offered}) == len(offered)
    assert state(toggle, now) == next((choice.label for choice in offered if choice.is_current), "-")


@given(situations(), TOGGLE, DIRECTION)
def test_what_the_engine_refused_is_passed_over(now: Situation, toggle: Toggle, direction: Any) -> None:
    onward = next_choice(toggle, now, direction)
    if isinstance(onward, Refusal):
        return
    values: dict[str, Any] = {name: getattr(now, name) for name in now.__dataclass_fields__}
    later = Situation(**{**values, "refused": (Refused(onward.changes, "It would not fit."),)})
    again = next_choice(toggle, later, direction)
    assert isinstance(again, Refusal) or again.label != onward.label
    named = {choice.label: choice for choice in choices(toggle, later)}
    assert named[onward.label].refusal == "It would not fit."
    assert named[onward.label].has_been_refused


@given(situations(), TOGGLE, DIRECTION, st.text(min_size=1))
def test_where_nothing_can_be_toggled_every_key_says_so(
    now: Situation, toggle: Toggle, direction: Any, why: str
) -> None:
    values: dict[str, Any] = {name: getattr(now, name) for name in now.__dataclass_fields__}
    assert next_choice(toggle, Situation(**{**values, "unavailable": why}), direction) == Refusal(why)
