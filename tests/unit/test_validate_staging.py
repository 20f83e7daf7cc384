"""The validation's scenarios, and its folder: what is staged, and how a run is taken up again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.validate import measuring, naming
from benchmarks.validate.__main__ import EVERY, chosen
from benchmarks.validate.scenarios import Block, visits
from benchmarks.validate.state import Folder, Staged

if TYPE_CHECKING:
    from pathlib import Path


def test_names_are_unique_and_what_is_staged_can_be() -> None:
    assert len({one.name for one in EVERY}) == len(EVERY)
    placebos = [one for one in naming.SCENARIOS if one.is_placebo]
    assert len(placebos) >= 0.2 * len(naming.SCENARIOS)
    for family in {one.family for one in naming.SCENARIOS if not one.is_placebo}:
        doses = [one for one in naming.SCENARIOS if one.family == family]
        assert len(doses) >= 3
        assert len({one.cause for one in doses}) == 1
        assert sum(one.is_quick for one in doses) == 1
    assert sum(one.seconds for one in EVERY if one.goal != "tau") < 31.5 * 60
    quick = [one for one in chosen(is_quick=True, names=()) if one.goal != "tau"]
    assert sum(one.seconds for one in quick) < 6 * 60
    with pytest.raises(SystemExit, match="There is no scenario nonsense"):
        chosen(is_quick=False, names=["nonsense"])


def test_every_toggle_has_neighbours_without_it() -> None:
    blocks = visits(({"threads": 1}, {"slots": 2}), 1.0)
    settings = [block.settings for block in blocks]
    assert settings == [{}, {"threads": 1}, {}, {"slots": 2}, {}, {"slots": 2}, {}, {"threads": 1}, {}]
    assert all(isinstance(block, Block) for block in blocks)
    for one in measuring.SCENARIOS:
        assert one.goal != "toggles" or all(block.settings == {} for block in one.blocks[::2])


def test_pairs_are_enough_and_most_of_them_conflict() -> None:
    """A pair is made of toggles that its session tries alone; what drafts and prefixes bring depends on the rest."""
    n_pairs = n_conflicting = 0
    for one in measuring.SCENARIOS:
        if one.goal == "toggles":
            tried = {frozenset((name, str(value)) for name, value in block.settings.items()) for block in one.blocks}
            pairs = [
                both for both in tried if any(a | b == both for a in tried for b in tried if a and b and a < both > b)
            ]
            n_pairs += len(pairs)
            conflicting = {"speculation", "draft_length", "prefix_cache"}
            n_conflicting += sum(
                bool(conflicting & {name for name, _ in both}) and ("threads", "1") not in both for both in pairs
            )
    assert n_pairs >= 16
    assert n_conflicting >= 9


def test_a_run_is_taken_up_where_it_stopped(tmp_path: Path) -> None:
    folder = Folder(tmp_path, machine="made up")
    order = [one.name for one in folder.left(EVERY)]
    assert sorted(order) == sorted(one.name for one in EVERY)
    assert order != [one.name for one in EVERY]
    first = folder.left(EVERY)[0]
    path = folder.place(first, EVERY)
    assert first.name not in path.name
    path.write_bytes(b"half of a recording")
    assert folder.recording(first.name) is None
    assert folder.place(first, EVERY) == path
    assert not path.exists()  # what a run that was killed has left
    path.write_bytes(b"all of it")
    folder.keep(first, Staged(path.name, 0.01))
    again = Folder(tmp_path)
    assert [one.name for one in again.left(EVERY)] == order[1:]
    assert again.recording(first.name) == path
    assert again.state.machine == "made up"
    path.unlink()
    assert again.recording(first.name) is None


def test_a_folder_of_another_kind_is_refused(tmp_path: Path) -> None:
    Folder(tmp_path).keep(EVERY[0], Staged("000.jsonl.zst", None))
    with pytest.raises(SystemExit, match="another kind"):
        Folder(tmp_path, is_quick=True)
    (tmp_path / "state.json").write_text("{")
    with pytest.raises(SystemExit, match="damaged"):
        Folder(tmp_path)


def test_recordings_have_distinct_numbers_that_say_nothing(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    places = [folder.place(one, EVERY).name for one in EVERY]
    assert len(set(places)) == len(EVERY)
    assert places != sorted(places)
