"""Toggles by example: what their keys lead to, what is said when there is no way, and what is awaited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from stackscope.analysis.live.snapshot import Effect, Event
from stackscope.model.catalog import bundled_draft, bundled_target
from stackscope.model.variants import Variant, find_variants
from stackscope.toggles import EngineConfig, ToggleKind
from stackscope.tui.situation import Refused, Situation, built_for, remembered
from stackscope.tui.toggles import BY_ID, TOGGLES, Choice, Refusal, awaited, choices, is_settling, next_choice, state
from stackscope.tui.toggling import ENDED, LOADING, PATIENCE_STEPS, RECORDED, Said, Toggling
from stackscope.tui.wording import spelled
from tests.tui import sessions
from tests.tui.controls import FakeControl
from tests.unit.record_builders import make_model

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from stackscope.analysis.live.snapshot import Snapshot

F16 = "/models/synthetic-F16.gguf"


def situation(config: EngineConfig | None = None, **changes: Any) -> Situation:
    """On a machine of two cores without a GPU."""
    config = EngineConfig(model=F16) if config is None else config
    values: dict[str, Any] = {"config": config, "built": config, "model": make_model(), "cores": 2, "gpus": ()}
    return Situation(**values | changes)


def onward(toggle: str, now: Situation, direction: Any = 1) -> Choice:
    """Where a key leads, which must be somewhere."""
    found = next_choice(BY_ID[toggle], now, direction)
    assert isinstance(found, Choice), found
    return found


def why_not(toggle: str, now: Situation, direction: Any = 1) -> str:
    """What a key says that leads nowhere."""
    found = next_choice(BY_ID[toggle], now, direction)
    assert isinstance(found, Refusal), found
    return found.reason


def reason(toggle: str, label: str, now: Situation) -> str | None:
    """Why a value cannot be chosen."""
    return next(choice.refusal for choice in choices(BY_ID[toggle], now) if choice.label == label)


def test_ids_and_keys_are_used_once() -> None:
    assert len(BY_ID) == len(TOGGLES)
    keys = [key for toggle in TOGGLES for key in (toggle.key, toggle.back) if key is not None]
    assert len(set(keys)) == len(keys)


def test_speculation_goes_round_what_there_is() -> None:
    now = situation()
    assert onward("speculation", now).changes == {"speculation": "ngram"}
    now = situation(EngineConfig(model=F16, speculation="ngram"))
    assert onward("speculation", now).changes == {"speculation": "off"}  # no draft model, no MTP
    assert reason("speculation", "draft", now) == (
        "Speculation by draft model needs a draft model: give one with --draft."
    )
    assert (reason("speculation", "MTP", now) or "").startswith("Multi-token prediction needs a model with MTP heads")
    now = situation(EngineConfig(model=F16, speculation="ngram", draft_model="/models/d.gguf"))
    assert onward("speculation", now).changes == {"speculation": "draft"}


def test_a_quantised_cache_brings_flash_attention_with_it_and_says_so() -> None:
    now = situation(EngineConfig(model=F16, flash_attention=False))
    choice = onward("kv_type", now)
    assert choice.changes == {"kv_type_k": "q8_0", "kv_type_v": "q8_0", "flash_attention": True}
    assert choice.note == "Flash attention is switched on with it: a quantised V cache needs it."
    assert choice.kind is ToggleKind.REBUILD
    now = situation(EngineConfig(model=F16, kv_type_k="q8_0", kv_type_v="q8_0"))
    choice = onward("flash", now)
    assert choice.changes == {"kv_type_k": "f16", "kv_type_v": "f16", "flash_attention": False}
    assert "q8_0" in (choice.note or "")


def test_every_kv_type_is_in_the_menu_and_a_pair_of_one_s_own_stays() -> None:
    config = EngineConfig(model=F16, kv_type_k="q8_0", kv_type_v="q4_0")
    now = situation(config, started=msgspec.structs.asdict(config))
    labels = {choice.label for choice in choices(BY_ID["kv_type"], now)}
    assert labels == {"f16", "q8_0", "q5_0", "q4_0", "q8_0/q4_0", "f32", "bf16", "q5_1", "q4_1", "iq4_nl"}
    assert state(BY_ID["kv_type"], now) == "q8_0/q4_0"
    assert onward("kv_type", now).label == "f16"


def test_heads_that_fit_no_block_are_refused_with_their_size() -> None:
    model = make_model()
    layer = msgspec.structs.replace(model.layers[0], key_length=80, value_length=80)
    now = situation(model=msgspec.structs.replace(model, layers=(layer,)))
    assert "multiples of 32; this model has 80" in why_not("kv_type", now)


def test_slots_beyond_the_context_are_a_rebuild_and_take_a_stated_size_along() -> None:
    config = EngineConfig(model=F16, slots=16)
    choice = onward("slots", situation(config))
    assert (choice.changes, choice.kind) == ({"slots": 32}, ToggleKind.REBUILD)
    assert choice.note == "It needs a rebuild: the context is sized for 16 slots."
    assert onward("slots", situation(config), -1).kind is ToggleKind.LIVE
    choice = onward("slots", situation(EngineConfig(model=F16, slots=16, slots_max=16)))
    assert choice.changes == {"slots": 32, "slots_max": 32}


def test_a_scale_ends_and_says_so() -> None:
    assert why_not("draft_length", situation(EngineConfig(model=F16, draft_length=1)), -1) == (
        "Draft length: 1 is the least that is offered."
    )
    assert why_not("threads", situation(), 1) == "Threads: auto 2 is the most that is offered."
    assert onward("threads", situation(), -1).changes == {"threads": 1}
    assert onward("slots", situation(EngineConfig(model=F16, slots=5))).changes == {"slots": 8}


def test_windows_come_back_whole_with_the_prefix_cache() -> None:
    model = make_model()
    layer = msgspec.structs.replace(model.layers[0], window=512)
    config = EngineConfig(model=F16, prefix_cache=False, swa_full=False)
    choice = onward("prefix_cache", situation(config, model=msgspec.structs.replace(model, layers=(layer,))))
    assert choice.changes == {"prefix_cache": True, "swa_full": True}
    assert choice.kind is ToggleKind.REBUILD


def test_a_recurrent_model_can_neither_speculate_nor_reuse() -> None:
    model = make_model()
    layer = msgspec.structs.replace(model.layers[0], recurrent_state=1024)
    now = situation(EngineConfig(model=F16, prefix_cache=False), model=msgspec.structs.replace(model, layers=(layer,)))
    assert why_not("prefix_cache", now).startswith("The prefix cache reuses parts of a sequence, but its memory is hyb")
    assert why_not("speculation", now).startswith("Speculation must take back rejected tokens, but its memory is hyb")


def test_weights_offer_what_is_there_or_how_to_make_it() -> None:
    now = situation(variants=(Variant(F16, "F16", 2_000), Variant("/models/s-Q8_0.gguf", "Q8_0", 1_063)))
    choice = onward("weights", now)
    assert choice.changes == {"model": "/models/s-Q8_0.gguf"}
    assert (choice.note, choice.detail) == (None, "1.06 kB on disk.")
    alone = situation(variants=(Variant(F16, "F16", 2_000),))
    assert why_not("weights", alone) == (
        "There is no other variant of this model here. Make one: "
        "stackscope models quantise /models/synthetic-F16.gguf Q8_0"
    )
    assert state(BY_ID["weights"], alone) == "F16"
    assert "not known yet" in why_not("weights", situation())
    bundled = situation(EngineConfig(model=str(bundled_target())), variants=())
    assert why_not("weights", bundled).endswith("stackscope models quantise lab-target-f16 Q8_0")


@pytest.mark.parametrize(
    ("gpus", "start"),
    [
        (None, "No GPU is known here"),
        ((), "No GPU is known here"),
        (("NVIDIA T4",), "There is one GPU here"),
    ],
)
def test_there_is_nothing_to_split_over_one_device(gpus: tuple[str, ...] | None, start: str) -> None:
    assert why_not("split", situation(gpus=gpus)).startswith(start)
    assert state(BY_ID["split"], situation(gpus=gpus)) == "off"


def test_over_two_devices_there_is() -> None:
    now = situation(gpus=("a", "b"))
    assert state(BY_ID["split"], now) == "by layer"
    assert onward("split", now).changes == {"split_mode": "row"}


def test_load_is_requests_in_flight_or_a_rate() -> None:
    assert onward("load", situation(concurrency=8)).changes == {"concurrency": 16}
    assert onward("load", situation(concurrency=5), -1).changes == {"concurrency": 4}
    assert onward("load", situation(concurrency=8, rate=1.5)).changes == {"rate": 2.0}
    assert why_not("load", situation()) == "This source does not say what load it is offered."
    assert state(BY_ID["load"], situation(rate=1.5)) == "1.50/s"


def test_synthetic_acceptance_needs_drafts_and_says_what_it_does_to_the_text() -> None:
    assert why_not("synthetic", situation()) == "Synthetic acceptance needs drafts: switch speculation on first."
    choice = onward("synthetic", situation(EngineConfig(model=F16, speculation="ngram")))
    assert choice.changes == {"synthetic_acceptance": 0.0}
    assert "text is then invalid" in (choice.note or "")


def test_disaggregation_says_what_is_missing() -> None:
    assert "one context" in why_not("disaggregation", situation())


def test_a_source_without_configuration_shows_unknown_and_refuses() -> None:
    now = Situation()
    for toggle in TOGGLES:
        assert state(toggle, now) == "-", toggle.id
        assert isinstance(next_choice(toggle, now), Refusal)


def event(kind: Any, at_ns: int = 0, label: str = "", **changes: Any) -> Event:
    return Event(at_ns=at_ns, kind=kind, changes=changes, label=label)


@pytest.mark.parametrize("name", EngineConfig.__struct_fields__)
def test_a_source_that_stops_saying_how_it_is_configured_awaits_nothing(name: str) -> None:
    now = Situation(pending={name: getattr(EngineConfig(), name)})
    assert [awaited(toggle, now) for toggle in TOGGLES] == [None] * len(TOGGLES)


def test_a_refusal_is_remembered_until_something_could_have_lifted_it() -> None:
    refused = event("refused", label="It does not fit.", model=(F16, "/b.gguf"))
    memory = (Refused({"model": "/b.gguf"}, "It does not fit."),)
    assert remembered([refused]) == memory
    assert remembered([event("live", speculation=("off", "ngram")), event("mark"), refused]) == memory
    assert remembered([event("live", slots=(8, 4)), refused]) == ()
    assert remembered([event("rebuild", kv_type_k=("f16", "q8_0")), refused]) == ()


def test_the_context_is_that_of_the_last_rebuild() -> None:
    now = EngineConfig(model=F16, slots=4, speculation="ngram")
    events = [
        event("live", slots=(32, 4)), event("refused", slots=(32, 400)), event("live", speculation=("off", "ngram")),
        event("rebuild", slots=(16, 32)),
    ]  # fmt: skip
    built = built_for(now, events)
    assert built is not None
    assert (built.slots, built.speculation) == (32, "off")
    assert onward("slots", situation(now, built=built)).kind is ToggleKind.LIVE


# Over time


def running(**changes: Any) -> Snapshot:
    return msgspec.structs.replace(sessions.running(), events=(), config=EngineConfig(model=F16), **changes)


def toggling(snapshot: Snapshot | None = None, **control: Any) -> tuple[Toggling, FakeControl]:
    fake = FakeControl(**control)
    made = Toggling(fake, cores=2)
    made.see(running() if snapshot is None else snapshot)
    return made, fake


def test_what_was_asked_for_is_awaited_until_it_is_in_force() -> None:
    made, control = toggling()
    assert made.press("speculation") is None
    assert control.asked == [{"speculation": "ngram"}]
    speculation = BY_ID["speculation"]
    assert (state(speculation, made.situation), awaited(speculation, made.situation)) == ("off", "n-gram")
    made.see(running(n_steps=10_000))
    assert awaited(speculation, made.situation) == "n-gram"
    config = EngineConfig(model=F16, speculation="ngram")
    made.see(msgspec.structs.replace(running(), config=config))
    assert (state(speculation, made.situation), awaited(speculation, made.situation)) == ("n-gram", None)


def test_a_second_press_goes_on_from_what_is_awaited() -> None:
    made, control = toggling()
    for _ in range(3):
        made.press("slots")
    assert control.asked == [{"slots": 16}, {"slots": 32}, {"slots": 64}]
    made.press("slots", -1)
    assert control.asked[-1] == {"slots": 32}


def test_what_the_engine_refuses_is_awaited_no_longer_and_passed_over_from_then_on() -> None:
    made, control = toggling()
    made.variants = (Variant(F16, "F16", 3), Variant("/b.gguf", "Q8_0", 2), Variant("/c.gguf", "Q4_0", 1))
    made.see(running())
    made.press("weights")
    later = running().at_ns + 1
    refused = event("refused", later, "The file is damaged.", model=(F16, "/b.gguf"))
    made.see(msgspec.structs.replace(running(at_ns=later), events=(refused,)))
    assert awaited(BY_ID["weights"], made.situation) is None
    assert reason("weights", "Q8_0", made.situation) == "The file is damaged."
    made.press("weights")
    assert control.asked == [{"model": "/b.gguf"}, {"model": "/c.gguf"}]
    made.forget()
    assert made.choose("weights", "Q8_0") is None  # asked for again, on purpose
    assert control.asked[-1] == {"model": "/b.gguf"}


def test_a_change_that_was_lost_is_not_awaited_for_ever() -> None:
    made, _ = toggling()
    made.press("adaptive")
    start = running()
    moments: Sequence[tuple[int, int]] = [(2, 2_000), (4, 2_100), (5, 2_100 + PATIENCE_STEPS - 1)]
    for seconds, steps in moments:
        made.see(running(at_ns=start.at_ns + seconds * 10**9, n_steps=start.n_steps + steps))
        assert made.situation.pending
    made.see(running(at_ns=start.at_ns + 6 * 10**9, n_steps=start.n_steps + 2_100 + PATIENCE_STEPS))
    assert not made.situation.pending


def test_what_cannot_be_asked_is_said() -> None:
    made, control = toggling()
    control.refusal = "The engine has gone."
    assert made.press("adaptive") == Said("The engine has gone.", is_refusal=True)
    assert not made.situation.pending
    assert made.choose("adaptive", "sometimes") == Said("There is no sometimes to choose here any more.", True)
    assert made.choose("adaptive", "off") is None


def test_recordings_and_ends_refuse_every_key() -> None:
    assert toggling(is_live=False)[0].press("slots") == Said(RECORDED, is_refusal=True)
    assert toggling(sessions.dead())[0].press("slots") == Said(ENDED, is_refusal=True)
    assert toggling(sessions.starting())[0].press("slots") == Said(LOADING, is_refusal=True)


def test_settling_shows_at_what_was_changed() -> None:
    switch = Event(at_ns=1, kind="rebuild", changes={"kv_type_k": ("f16", "q8_0")}, effect=Effect(state="settling"))
    made, _ = toggling(msgspec.structs.replace(running(), events=(switch,)))
    assert [toggle.id for toggle in TOGGLES if is_settling(toggle, made.situation)] == ["kv_type"]


def test_the_situation_stays_the_same_object_while_nothing_matters() -> None:
    made, _ = toggling()
    first = made.situation
    made.see(running(n_steps=99_999, at_ns=running().at_ns + 10**9))
    assert made.situation is first


# Files


def test_variants_are_files_of_the_same_geometry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STACKSCOPE_CACHE", str(tmp_path / "cache"))
    assert [variant.label for variant in find_variants(bundled_target())] == ["F16"]
    copy = tmp_path / "copy-of-it.gguf"
    copy.write_bytes(bundled_target().read_bytes())
    (tmp_path / "draft.gguf").write_bytes(bundled_draft().read_bytes())
    (tmp_path / "broken.gguf").write_bytes(b"GGUF")
    (tmp_path / "readme.txt").write_text("no model")
    found = find_variants(copy)
    assert {variant.path for variant in found} == {str(bundled_target()), str(copy)}
    assert {variant.label for variant in found} == {"lab-target-f16", "copy-of-it"}  # of one type: told apart by name
    assert find_variants(tmp_path / "broken.gguf") == ()


@pytest.mark.parametrize(
    ("name", "setting", "text"),
    [
        ("synthetic_acceptance", None, "off"),
        ("synthetic_acceptance", 0.0, "0 %"),
        ("synthetic_acceptance", 0.75, "75 %"),
        ("cache_tokens", None, "none"),
        ("cache_tokens", 8192, "8,192"),
        ("speculation", "ngram", "n-gram"),
    ],
)
def test_events_spell_values_as_the_toggles_do(name: str, setting: Any, text: str) -> None:
    assert spelled(name, setting) == text
