"""Help, evidence and palette: made from the same tables as the keys themselves, and complete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from stackscope.analysis.explainer import Explanation
from stackscope.analysis.live.snapshot import PARTS, Verdict
from stackscope.records import StepRecord
from stackscope.toggles import EngineConfig
from stackscope.tui.bindings import ALL, KEYS, Keymap
from stackscope.tui.evidence import DEFINITIONS, NO_EXPLAINER, counted, evidence
from stackscope.tui.help_lines import help_lines, pane_lines
from stackscope.tui.lines import plain, spelled, width
from stackscope.tui.look import ASCII, UNICODE
from stackscope.tui.palette import commands
from stackscope.tui.panes import PANES
from stackscope.tui.screens.explain import ExplainScreen
from stackscope.tui.screens.help import HelpScreen, PaneHelpScreen
from stackscope.tui.toggles import TOGGLES
from stackscope.tui.toggling import Toggling
from tests.tui import sessions
from tests.tui.apps import TinyApp, driven, text_of
from tests.tui.controls import FakeControl
from tests.tui.live_apps import Screen
from tests.unit.record_builders import SyntheticEngine, make_header, make_model, make_step

if TYPE_CHECKING:
    from textual.pilot import Pilot

    from stackscope.analysis.live.snapshot import Snapshot
    from stackscope.tui.look import Look


def text(lines: Any) -> str:
    return "\n".join(plain(line).rstrip() for line in lines)


# Help


def test_the_help_names_every_action_with_the_keys_it_has_now() -> None:
    own = Keymap({"mark": "f9", "speculation": "z"})
    shown = text(help_lines(own, PANES.values(), 110))
    for action in ALL:
        if action.back_of is None:
            assert f" {action.id} " in shown, action.id
    lines = shown.split("\n")
    assert any(line.split()[:2] == ["F9", "mark"] for line in lines)
    assert any(line.split()[:3] == ["z", "S", "speculation"] for line in lines)
    for pane in PANES.values():
        assert pane.title in lines


@pytest.mark.parametrize(("look", "sign"), [(UNICODE, "✗"), (ASCII, "!")])
def test_the_help_explains_the_sign_of_a_refusal_as_it_is_drawn(look: Look, sign: str) -> None:
    lines = help_lines(Keymap(), tuple(PANES.values()), 118)
    told = "\n".join(plain(spelled(line, look)) for line in lines)
    assert f"A toggle with {sign} behind its state cannot be switched now: the list of all, o, says why." in told


def test_the_help_begins_with_what_matters_where_it_was_asked_for() -> None:
    shown = text(help_lines(Keymap(), (), 80, first=("sessions",)))
    assert shown.index("On the screen of sessions") < shown.index("Everywhere")


@pytest.mark.parametrize("room", [50, 72, 116])
def test_help_keeps_to_the_room(room: int) -> None:
    assert max(map(width, help_lines(Keymap(), PANES.values(), room))) <= room
    for pane in PANES.values():
        assert max(map(width, pane_lines(pane.help, room))) <= room


def test_help_scrolls_and_closes() -> None:
    async def act(pilot: Pilot[None]) -> None:
        await pilot.pause()
        assert "Every key can be changed" in text_of(pilot.app)
        await pilot.press("end")
        await pilot.pause()
        assert "Every key can be changed" not in text_of(pilot.app)
        await pilot.press("escape")
        await pilot.pause()
        assert not isinstance(pilot.app.screen, HelpScreen)

    driven(TinyApp(lambda: HelpScreen(tuple(PANES.values()))), act, (80, 24))


# Evidence


def evident(snapshot: Snapshot, room: int = 110, steps: int = 0) -> str:
    made = [r for r in SyntheticEngine(draft_length=2).records(steps) if isinstance(r, StepRecord)]
    return text(evidence(snapshot, counted(snapshot, made), room, UNICODE))


def test_evidence_before_the_first_step_is_awaited_and_not_called_untold() -> None:
    awaited = "the parts of its time show here once the first is done"
    assert awaited in evident(sessions.loading())
    assert "This source does not tell the phases of a step." in evident(sessions.attached())


@pytest.mark.parametrize("room", [40, 78, 132])
@pytest.mark.parametrize("name", sorted(sessions.SESSIONS))
def test_evidence_keeps_to_the_room_in_every_state(name: str, room: int) -> None:
    snapshot = sessions.SESSIONS[name]()
    for look in (UNICODE, ASCII):
        lines = evidence(snapshot, None, room, look)
        assert max(map(width, lines)) <= room
    assert "What is not known" in text(lines)


def test_phase_shares_say_that_they_name_no_cause() -> None:
    assert NO_EXPLAINER in " ".join(evident(sessions.running()).split())
    explained = msgspec.structs.replace(sessions.running(), verdict=Verdict(basis="explainer", name="Weight bandwidth"))
    assert "explainer" not in evident(explained)


def test_evidence_tells_what_a_busy_machine_said_from_what_was_not_measured() -> None:
    explanation = Explanation(residual=0.03, is_calibrated=True)
    busy = msgspec.structs.replace(sessions.running_after_a_busy_calibration(), explanation=explanation)
    shown = evident(busy)
    assert "Time model  calibrated on a busy machine" in shown
    assert "What this machine can do at most was measured on a busy machine: stackscope calibrate." in shown
    assert "20 s, when it is quiet" in shown
    assert "have not been measured" not in shown
    shown = evident(msgspec.structs.replace(sessions.running(), explanation=explanation))
    assert "Time model  calibrated on this machine" in shown
    assert "its bandwidth and compute have not been measured." in shown
    assert "busy machine" not in shown


def test_every_part_of_a_step_is_defined() -> None:
    assert tuple(DEFINITIONS) == PARTS
    shown = evident(sessions.running())
    assert all(f" {part} " in shown for part in PARTS)


def test_bytes_and_operations_are_those_of_the_ledger() -> None:
    config = EngineConfig(model="/models/synthetic-F16.gguf")
    header = make_header(config=config, model=make_model())
    snapshot = msgspec.structs.replace(sessions.running(), header=header, config=config)
    found = counted(snapshot, [make_step(n) for n in range(40)])
    assert found is not None
    shown = text(evidence(snapshot, found, 110, UNICODE))
    model = make_model()
    ffn = sum(tensor.bytes for tensor in model.tensors if tensor.role == "ffn")
    assert found.target.exact.ffn_weights == found.n_steps * ffn  # once per step: every step is one pass
    assert "feed-forward weights" in shown
    assert "18.9 MB" in shown  # 4 layers × 3 matrices × 512 × 1536 × 2 bytes
    assert "counted over the newest 40 steps" in shown


def test_exchanged_weights_are_not_priced_by_the_old_ones() -> None:
    snapshot = msgspec.structs.replace(sessions.running(), config=EngineConfig(model="/models/other.gguf"))
    made = [r for r in SyntheticEngine().records(5) if isinstance(r, StepRecord)]
    assert counted(snapshot, made) is None
    assert "the weights were exchanged" in evident(snapshot, steps=5)


def test_the_screen_scrolls_in_place() -> None:
    async def act(pilot: Pilot[None]) -> None:
        app = pilot.app
        assert isinstance(app, TinyApp)
        await pilot.pause()
        assert "Decode forward" in text_of(app)
        await pilot.press("end")
        await pilot.pause()
        before = text_of(app)
        assert "What is not known" in before
        app.take(app.frame)
        await pilot.pause()
        assert text_of(app) == before
        await pilot.press("f1")
        await pilot.pause()
        assert isinstance(app.screen, PaneHelpScreen)

    driven(TinyApp(ExplainScreen), act, (80, 24))


# Palette


def named(screen: str = "live", **how: Any) -> dict[str, str]:
    made = Toggling(FakeControl(), cores=2)
    made.see(sessions.running())
    return {c.name: c.help for c in commands(made.situation, Keymap(), screen, **{"is_replay": False, **how})}


def test_the_palette_has_every_toggle_with_each_of_its_values() -> None:
    found = named()
    assert "KV cache type: q8_0 (rebuild)" in found
    assert "Speculation: draft (in force)" in found
    assert found["Speculation: MTP (refused)"].startswith("Multi-token prediction needs")
    assert "Slots: 8 (live)" in found
    for toggle in TOGGLES:
        assert any(name.startswith(f"{toggle.name}: ") for name in found), toggle.id


def test_the_palette_has_what_can_be_done_on_that_screen() -> None:
    assert {"Screen: steps", "Mark this moment", "Quit", "Next theme"} <= named().keys()
    assert "Mark this moment" not in named("sessions")
    assert "Compare two recordings" in named("sessions")
    assert "Play faster" not in named()
    assert "Play faster" in named(is_replay=True)
    assert {"Mark this moment", "Start or end a recording", "Restart the engine"}.isdisjoint(named(is_replay=True))
    assert "Play the recording, or pause" in named(is_replay=True)
    assert all(told == told.strip() for told in named(is_replay=True).values())
    assert named()["Mark this moment"].endswith("Key: m")


# All of it in the application


def asked(screen: Screen) -> list[dict[str, Any]]:
    """What was asked of the engine, but for text to show."""
    return [what for what in screen.control.asked if "show_text" not in what]


def test_keys_lead_to_every_screen_and_back() -> None:
    async def act(screen: Screen) -> None:
        for key, words in (
            ("2", "single steps"),
            ("3", "Where the time goes"),
            ("4", "Sessions"),
            ("1", "Step anatomy"),
        ):
            await screen.press(key)
            if key == "4":
                await screen.app.workers.wait_for_complete()
            await screen.until(lambda words=words: words in screen.text)  # type: ignore[misc]

    Screen().run(act)


def test_help_and_pane_help_open_over_any_screen() -> None:
    async def act(screen: Screen) -> None:
        for key, kind in (("question_mark", HelpScreen), ("f1", PaneHelpScreen)):
            for mode in ("1", "2", "3"):
                await screen.press(mode, key)
                await screen.until(lambda kind=kind: isinstance(screen.app.screen, kind))  # type: ignore[misc]
                await screen.press("escape")

    Screen().run(act)


def test_the_palette_finds_a_value_and_chooses_it() -> None:
    async def act(screen: Screen) -> None:
        await screen.press("ctrl+p")
        await screen.press(*"kvq8")
        await screen.until(lambda: "KV cache type: q8_0 (rebuild)" in screen.text)
        await screen.press("down", "enter")
        await screen.until(lambda: asked(screen))
        assert asked(screen) == [{"kv_type_k": "q8_0", "kv_type_v": "q8_0"}]

    Screen().run(act)


def test_a_remapped_key_toggles_and_the_bar_shows_it() -> None:
    async def act(screen: Screen) -> None:
        assert " z spec draft" in screen.text
        await screen.press("z")
        assert asked(screen) == [{"speculation": "off"}]
        await screen.until(lambda: "z spec draft→off" in screen.text)

    Screen(keys=Keymap({"speculation": "z"})).run(act)


def test_footers_and_help_come_from_one_table() -> None:
    async def act(screen: Screen) -> None:
        shown = [key for key in KEYS if key.is_shown and key.scope in ("live", "running")]
        assert all(key.label in screen.lines[-1] for key in shown)

    Screen().run(act, (200, 60))


@pytest.mark.parametrize("mode", ["steps", "explain", "sessions"])
def test_a_terminal_that_is_too_small_says_so_on_every_screen(mode: str) -> None:
    async def look(screen: Screen) -> None:
        screen.app.action_show(mode)
        await screen.until(lambda: "help" in screen.lines[-1])
        for size in ((59, 15), (20, 4), (60, 15)):
            await screen.pilot.resize_terminal(*size)
            await screen.until(lambda: "oo small" in screen.text)
            assert "help" not in screen.text
        await screen.pilot.resize_terminal(120, 40)
        await screen.until(lambda: "help" in screen.lines[-1])
        assert "oo small" not in screen.text

    Screen().run(look, (120, 40))


def test_the_help_names_the_ways_back_too() -> None:
    shown = "\n".join(plain(line) for line in help_lines(Keymap(), tuple(PANES.values()), 116))
    for key in ALL:
        assert key.id in shown, key.id
