"""Two recordings beside each other: at once what they say themselves, then what comparing them finds."""

from __future__ import annotations

import os
import select
import signal
from threading import Event
from typing import TYPE_CHECKING, Final

import msgspec
import pytest

from stackscope.analysis.comparing import wording
from stackscope.analysis.comparing.comparison import compare_digests
from stackscope.errors import SessionFileError
from stackscope.experiments import comparing
from stackscope.experiments.comparing_apart import compare_apart
from stackscope.records import ConfigEvent
from stackscope.session.format import encode_all
from stackscope.toggles import EngineConfig
from stackscope.tui.comparison import IN_PROGRESS, comparison
from stackscope.tui.lines import plain, width
from stackscope.tui.look import ASCII, UNICODE
from stackscope.tui.screens.session_dialogs import Compare, ComparisonScreen
from tests.tui.apps import TinyApp, driven, text_of
from tests.tui.recordings import cut_off, damaged, write
from tests.tui.stored import check
from tests.tui.test_library import digest_of, entry_of
from tests.unit.compare_sessions import Run
from tests.unit.test_compare_command import RUNS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from textual.pilot import Pilot

    from stackscope.analysis.comparing.comparison import Comparison
    from stackscope.tui.library import Digest, Entry


DEADLINE_S: Final = 20.0
ROOMS: Final = {80: 71, 120: 110}
"""Cells of a line in the dialog, by the width of the terminal."""


def stored(folder: Path, *runs: Run) -> list[Path]:
    paths = []
    for name, run in zip("ab", runs, strict=True):
        path = folder / f"{name}.jsonl"
        path.write_bytes(encode_all(run.records()))
        paths.append(path)
    return paths


def known(paths: Sequence[Path]) -> list[tuple[Entry, Digest]]:
    return [(entry_of(path), digest_of(path)) for path in paths]


def text(paths: Sequence[Path], found: Comparison | str | None, room: int = 96) -> str:
    one, other = known(paths)
    for look in (UNICODE, ASCII):
        assert max(map(width, comparison(one, other, found, room, look))) <= room
    return "\n".join(plain(line).rstrip() for line in comparison(one, other, found, room, UNICODE))


# At once


def test_two_recordings_stand_side_by_side_with_what_differs(tmp_path: Path) -> None:
    one = write(tmp_path / "one.jsonl.zst", steps=300)
    other = write(tmp_path / "other.jsonl.zst", steps=300, draft_length=4, seed=2, workload={"name": "chat", "seed": 1})
    told = text((one, other), None)
    assert "A  one.jsonl.zst" in told
    rows = {line[:28].strip(): line[28:].split() for line in told.split("\n")}
    assert rows["A, tokens per forward"][0] == "1.00"
    a, b, ratio = (float(cell.rstrip("×")) for cell in rows["A, tokens per forward"])
    assert ratio == pytest.approx(b / a, rel=0.01)
    assert rows["speculation"] == ["off", "→", "n-gram"]
    assert rows["name"] == ["synthetic", "→", "chat"]
    assert "seed" not in rows
    assert "Machine  the same" in told
    assert IN_PROGRESS in told


def test_the_same_one_twice_differs_in_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "one.jsonl.zst", steps=300)
    told = text((path, path), None, 60)
    assert "Configuration at the start  the same" in told
    ratios = [line.split()[-1] for line in told.split("\n") if line.endswith("×")]
    assert set(ratios) == {"1.00×"}


def test_damage_is_told_instead_of_numbers(tmp_path: Path) -> None:
    paths = damaged(tmp_path / "a.jsonl.zst"), cut_off(tmp_path / "b.jsonl.zst", steps=900)
    told = text(paths, "They cannot be compared.")
    assert "damaged header" in told
    assert "no end mark" in told
    assert "They cannot be compared." in told
    assert IN_PROGRESS not in told


# What comparing finds


@pytest.mark.parametrize("columns", ROOMS)
@pytest.mark.parametrize("name", RUNS)
def test_it_looks_as_stored(name: str, columns: int, tmp_path: Path) -> None:
    runs = RUNS[name][:2]
    paths = stored(tmp_path, *runs)
    found = compare_digests([run.digest(path.name) for run, path in zip(runs, paths, strict=True)])
    shown = text(paths, found, ROOMS[columns]) + "\n"
    check(f"comparison-{name}-{columns}.txt", shown)


def test_what_comparing_says_of_a_recording_is_not_said_above_it_as_well(tmp_path: Path) -> None:
    """Before, its own line says it."""
    whole, part = write(tmp_path / "a.jsonl.zst", steps=300), cut_off(tmp_path / "b.jsonl.zst", steps=900)
    config = EngineConfig(model="/models/synthetic-F16.gguf", slots=2)
    change = ConfigEvent(at_ns=0, epoch=1, kind="live", config=config)
    several = tmp_path / "c.jsonl"
    records = list(Run().records())
    half = len(records) // 2
    later = [msgspec.structs.replace(r, epoch=1) if hasattr(r, "epoch") else r for r in records[half:]]
    several.write_bytes(encode_all([*records[:half], change, *later]))
    for other, words in ((part, "It has no end mark"), (several, "B ran under 2 configurations")):
        for found in (None, comparing.compare([whole, other])):
            assert " ".join(text((whole, other), found).split()).count(words) == 1


@pytest.mark.parametrize("room", [24, 46, 64, 71, 95, 110])
@pytest.mark.parametrize("name", RUNS)
def test_lines_keep_to_the_room_and_the_interval_stays(name: str, room: int, tmp_path: Path) -> None:
    runs = RUNS[name][:2]
    paths = stored(tmp_path, *runs)
    found = compare_digests([run.digest(path.name) for run, path in zip(runs, paths, strict=True)])
    told = text(paths, found, room)
    (step,) = [one for one in found.versus[0].figures if one.header == "step, mean"]
    assert (wording.cells(step).change in told) == (room >= 46)


def test_both_anatomies_are_drawn_to_one_scale(tmp_path: Path) -> None:
    runs = Run(), Run(base_ns=15e6)
    found = compare_digests([run.digest() for run in runs])
    lines = text(stored(tmp_path, *runs), found, 110).split("\n")
    title = next(place for place, line in enumerate(lines) if line.startswith("Step anatomy"))
    bars = lines[title + 1 : title + 3]
    times = [sum((facts.anatomy_ns or {}).values()) for facts in found.sessions]
    lengths = [len(line) - 14 for line in bars]
    assert lengths[1] == 110 - 14
    assert lengths[0] / lengths[1] == pytest.approx(times[0] / times[1], abs=0.02)


@pytest.mark.parametrize(
    "run", [Run(requests=0), Run(header={"capabilities": ("slots",)})], ids=["no step", "no phases"]
)
def test_without_steps_or_phases_it_says_that_the_anatomy_is_not_known(run: Run, tmp_path: Path) -> None:
    paths = stored(tmp_path, Run(), run)
    found = compare_digests([Run().digest(), run.digest()])
    assert "B: where the time of a step goes is not known." in text(paths, found)


# In a process of its own


def always() -> bool:
    return True


def test_apart_it_finds_the_same(tmp_path: Path) -> None:
    paths = stored(tmp_path, *RUNS["few"])
    apart = compare_apart(paths, always)
    assert apart is not None
    assert msgspec.to_builtins(apart) == msgspec.to_builtins(comparing.compare(paths))


def test_apart_it_says_what_it_cannot_read(tmp_path: Path) -> None:
    (path, _) = stored(tmp_path, *RUNS["few"])
    with pytest.raises(SessionFileError, match="damaged header"):
        compare_apart([path, damaged(tmp_path / "broken.jsonl.zst")], always)


@pytest.mark.parametrize(
    ("code", "why"),
    [("import sys; sys.exit('No luck')", "No luck"), ("import os; os.kill(os.getpid(), 9)", "status -9")],
)
def test_apart_an_end_without_an_answer_is_one_sentence(code: str, why: str) -> None:
    with pytest.raises(SessionFileError, match=f"^They could not be compared: .*{why}.$") as raised:
        compare_apart([], always, worker=("-c", code))
    assert "\n" not in str(raised.value)


@pytest.mark.skipif(not hasattr(signal, "pause"), reason="nothing to wait with")
def test_apart_it_ends_with_its_children_once_nobody_wants_it(tmp_path: Path) -> None:
    noted = tmp_path / "ids"
    code = (
        "import os, pathlib, signal, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n"
        f"part = pathlib.Path({str(noted)!r} + '.part')\n"
        "part.write_text(f'{os.getpid()} {child.pid}')\n"
        f"part.rename({str(noted)!r})\n"
        "signal.pause()\n"
    )
    assert compare_apart([], lambda: not noted.exists(), worker=("-c", code)) is None
    own, child = map(int, noted.read_text().split())
    with pytest.raises(ProcessLookupError):
        os.kill(own, 0)
    assert _has_ended(child)


def _has_ended(pid: int) -> bool:
    """Whether a process that was killed is gone: the kernel may take a moment over it."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], DEADLINE_S)[0])
    finally:
        os.close(descriptor)


# The dialog


class _Dialog(TinyApp):
    """Shows the comparison of two recordings."""

    def __init__(self, paths: Sequence[Path], compare: Compare | None = None) -> None:
        one, other = known(paths)
        super().__init__(lambda: ComparisonScreen(one, other, compare=compare))


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_the_verdict_comes_to_the_open_dialog(size: tuple[int, int], tmp_path: Path) -> None:
    paths = stored(tmp_path, *RUNS["slower"])
    app = _Dialog(paths)

    async def act(pilot: Pilot[None]) -> None:
        await app.workers.wait_for_complete()
        await pilot.pause()
        shown = text_of(app)
        assert "B is slower than A: tokens/s out" in shown
        assert "Step anatomy" in shown
        assert max(map(len, shown.split("\n"))) <= size[0]
        await pilot.press("end")
        await pilot.pause()
        assert "repeated runs." in text_of(app)

    driven(app, act, size)


def test_what_cannot_be_compared_is_told_in_a_sentence(tmp_path: Path) -> None:
    def failing(*_: object) -> Comparison | None:
        raise SessionFileError("It went away.", remedy="Look again.")

    app = _Dialog(stored(tmp_path, *RUNS["few"]), failing)

    async def act(pilot: Pilot[None]) -> None:
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert "It went away. Look again." in text_of(app)
        assert "tokens out" in text_of(app)  # The numbers that are known stay.

    driven(app, act)


def test_what_is_damaged_is_not_compared(tmp_path: Path) -> None:
    def never(*_: object) -> Comparison | None:
        raise AssertionError("asked for")

    app = _Dialog([write(tmp_path / "a.jsonl.zst", steps=20), damaged(tmp_path / "b.jsonl.zst")], never)

    async def act(pilot: Pilot[None]) -> None:
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert "What cannot be read is not compared." in text_of(app)

    driven(app, act)


def test_figures_show_before_the_verdict_and_closing_gives_it_up(tmp_path: Path) -> None:
    begun, ended = Event(), Event()

    def patient(_: Sequence[Path], is_wanted: Callable[[], bool]) -> Comparison | None:
        begun.set()
        while is_wanted():
            ended.wait(0.01)
        ended.set()
        return None

    app = _Dialog(stored(tmp_path, *RUNS["few"]), patient)

    async def act(pilot: Pilot[None]) -> None:
        await pilot.pause()
        shown = text_of(app)
        assert IN_PROGRESS in " ".join(shown.split())
        assert "tokens out" in shown
        assert begun.wait(10)
        assert not ended.is_set()
        await pilot.press("escape")
        await app.workers.wait_for_complete()
        assert ended.is_set()

    driven(app, act)
