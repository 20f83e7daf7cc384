"""What becomes of kept ceilings that are damaged, cannot be, or are of another version."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from stackscope.cli import app
from stackscope.commands import calibrate as verb
from stackscope.commands import kept_ceilings
from stackscope.commands.examined_ceilings import of_ceilings
from stackscope.hardware import ceilings as cache
from stackscope.hardware.credible import why_incredible
from stackscope.model.catalog import bundled_target
from stackscope.records.ceilings import ReadRate
from tests.unit.ceilings_builders import about, ceilings, conditions
from tests.unit.test_doctor import FACTS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NOW = datetime(2026, 10, 1, 14, 5, tzinfo=UTC)
HUGE = 1e30
OLDER = f"an older version of Stackscope (format 2, here {cache.FORMAT})"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STACKSCOPE_CACHE", str(tmp_path / "cache"))


def edited(edit: Callable[[dict[str, Any]], object], name: str = "") -> Path:
    """A file of ceilings that somebody edited; `name` is another than that of its conditions."""
    cache.store(ceilings())
    path = cache.file_of(conditions())
    document = json.loads(path.read_text())
    edit(document)
    text = json.dumps(document)
    if name:
        path.unlink()
    path = path.with_name(name or path.name)
    path.write_text(text)
    return path


def put(*keys: str | int, value: object) -> Callable[[dict[str, Any]], None]:
    """Sets what stands under these keys of the ceilings."""

    def edit(document: dict[str, Any]) -> None:
        inside: Any = document["ceilings"]
        for key in keys[:-1]:
            inside = inside[key]
        inside[keys[-1]] = value

    return edit


NONSENSE: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "negative": (put("reads", 0, "bytes_per_s", "value", value=-1.5e10), "reading memory comes at -1.5e+10 B/s"),
    "zero": (put("bandwidth", "value", value=0.0), "bandwidth is 0 B/s"),
    "absurd": (put("bandwidth", "value", value=HUGE), "bandwidth is 1e+30 B/s"),
    "absurd rate": (put("types", 0, "vector_bytes_per_s", "value", value=HUGE), "f16 matrices × 1 comes at 1e+30 B/s"),
    "absurd compute": (put("compute", "value", value=HUGE), "compute is 1e+30 FLOP/s"),
    "years": (put("forwards", 0, "ns", "value", value=1e20), "forwards of 1 takes 1e+20 ns"),
    "negative time": (put("forwards", 2, "ns", "value", value=-1.0), "forwards of 3 takes -1 ns"),
    "negative spread": (put("forwards", 2, "ns", "spread", value=-0.1), "the spread of forwards of 3 is -0.1"),
    "no samples": (put("load_ns", "n", value=0), "loading the target was measured 0 times"),
    "slope": (put("context_ns_per_token", "value", value=-100.0), "a cached token takes -100 ns"),
    "fixed": (put("fixed_ns", value=-1.0), "the fixed cost is -1 ns"),
    "handed over": (put("handoff", "tokens", value=0), "a state of 0 tokens has 3157008 B"),
    "shape": (put("forwards", 1, "sequences", value=0), "an impossible shape: 2 rows over 0 sequences"),
    "no curve": (put("forwards", value=[]), "the forwards of 1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 64, 128, 512 rows"),
    "gap": (lambda all_: all_["ceilings"]["forwards"].pop(2), "the forwards of 3 rows are missing, without a reason"),
    "twice": (lambda all_: all_["ceilings"]["forwards"].append(all_["ceilings"]["forwards"][0]), "are there twice"),
    "threads": (put("conditions", "threads", value=0), "0 threads measured it"),
    "kv type": (put("conditions", "kv_type_k", value="f17"), "there is no such type of KV cache"),
    "no zone": (put("measured", value="2026-10-01T12:00:00"), "it does not say when it was measured"),
    "no time": (put("measured", value="yesterday"), "it does not say when it was measured"),
    "others": (put("foreign_share", value=-0.5), "others took -0.5 of a CPU"),
    # What JSON does not have, and what it has where a number is expected.
    "NaN": (put("bandwidth", "value", value=float("nan")), "JSON is malformed"),
    "infinite": (put("bandwidth", "value", value=float("inf")), "JSON is malformed"),
    "text": (put("bandwidth", "value", value="fast"), "Expected `float`, got `str`"),
    "nothing": (put("bandwidth", "value", value=None), "Expected `float`, got `null`"),
    "list": (put("conditions", value=[]), "Expected `object`, got `array`"),
}


@pytest.mark.parametrize("what", NONSENSE)
def test_what_cannot_have_been_measured_is_named_and_not_believed(what: str) -> None:
    edit, why = NONSENSE[what]
    path = edited(edit)
    found = cache.load(conditions())
    assert found.ceilings is None
    assert found.trouble is not None
    assert why in found.trouble.why
    assert found.note == f"{found.trouble.sentence} Measure anew: stackscope calibrate"
    assert str(path) in found.trouble.sentence
    assert list(cache.known()) == [found]
    [check, _] = of_ceilings(bundled_target(), FACTS, named=None, now=NOW)
    assert (check.holds, check.name) == (False, "Damaged files")
    assert why in check.value
    assert "stackscope calibrate" in (check.remedy or "")


@pytest.mark.parametrize("text", ['{"format": 3, "ceilings": ' + "[" * 100_000, '{"format": 1e999}', "\0", "3", "null"])
def test_what_is_no_document_is_a_sentence_too(text: str) -> None:
    cache.store(ceilings())
    cache.file_of(conditions()).write_text(text)
    trouble = cache.load(conditions()).trouble
    assert trouble is not None
    assert trouble.sentence.count("\n") == 0


def test_a_number_beyond_all_is_no_ceiling() -> None:
    edited(lambda _: None)
    path = cache.file_of(conditions())
    path.write_text(path.read_text().replace("60000000000.0", "1e999"))
    assert cache.load(conditions()).trouble is not None


def test_rows_with_a_reason_may_be_missing() -> None:
    found = ceilings()
    few = tuple(time for time in found.forwards if time.rows < 64)
    reasons = {
        "forward of 64": "the context has room for fewer outputs",
        "forward of 128, one output": "it would have taken about 9 s, longer than there was",
        "forward of 512": "the context holds fewer tokens",
    }
    assert why_incredible(ceilings(forwards=few, unknown=reasons)) is None
    reasons.pop("forward of 64")
    told = why_incredible(ceilings(forwards=few, unknown={**reasons, "forward of 641": "of another"}))
    assert told == "the forwards of 64 rows are missing, without a reason"


def test_large_machines_are_believed() -> None:
    assert why_incredible(ceilings()) is None
    found = ceilings(
        context_ns_per_token=about(1e-3), rebuild_ns=about(60e9), load_ns=about(900e9, 3.0),
        reads=(ReadRate(place="memory", set_bytes=1, bytes_per_s=about(64e12)),),
    )  # fmt: skip
    assert why_incredible(found) is None


# One block for many


def test_damaged_files_are_one_block_with_number_and_names() -> None:
    for n in range(9):
        edited(put("bandwidth", "value", value=HUGE), f"{n}.json")
    checks = list(of_ceilings(bundled_target(), FACTS, named="x", now=NOW))
    assert [check.name for check in checks] == ["Damaged files", "Ceilings"]
    names = ", ".join(f"{n}.json" for n in range(9))
    assert checks[0].value == (
        f"9 files of measured ceilings in {cache.folder()} cannot be used (bandwidth is 1e+30 B/s): {names}"
    )
    assert checks[0].remedy == (
        "Damaged files are set aside, and not deleted, when you measure again: stackscope calibrate --model x"
    )


def test_reasons_that_differ_stand_by_the_names_and_many_names_are_counted() -> None:
    for n in range(kept_ceilings.MOST_NAMES + 3):
        edited(put("fixed_ns", value=-float(1 + n)), f"{n:02d}.json")
    told = kept_ceilings.of_damaged(cache.known())
    assert told is not None
    assert "cannot be used: 00.json (the fixed cost is -1 ns), 01.json (the fixed cost is -2 ns)" in told
    assert told.endswith("11.json (the fixed cost is -12 ns), and 3 more")


# Set aside


def test_calibrating_sets_damaged_files_aside_and_deletes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {
        path.name: path.read_text()
        for path in (edited(put("fixed_ns", value=-1.0), "other.json"), edited(put("fixed_ns", value=-2.0)))
    }
    own = cache.file_of(conditions()).name
    monkeypatch.setattr(verb, "measure", lambda *_, **__: ceilings())
    result = CliRunner().invoke(app, ["calibrate", "--json"])
    assert result.exit_code == 0, result.stderr
    [note] = json.loads(result.stdout)["notes"]
    assert "2 files of measured ceilings" in note
    assert "Set aside, not deleted: " in note
    for name, text in texts.items():
        assert f"{name}.damaged" in note
        assert (cache.folder() / f"{name}.damaged").read_text() == text
    assert [path.name for path in cache.folder().glob("*.json")] == [own]
    assert cache.load(conditions()).ceilings == ceilings()
    # Next time there is nothing to tell, and a second one of that name takes another.
    edited(put("fixed_ns", value=-3.0))
    assert cache.store(ceilings())
    assert (cache.folder() / f"{own}.damaged").read_text() == texts[own]
    assert '"fixed_ns": -3.0' in (cache.folder() / f"{own}.damaged-2").read_text()
    assert kept_ceilings.aside() == []


def test_a_folder_in_the_place_of_a_file_is_a_sentence_and_is_set_aside() -> None:
    cache.file_of(conditions()).mkdir(parents=True)
    found = cache.load(conditions())
    assert found.trouble is not None
    assert found.trouble.sentence.endswith(".json cannot be read: Is a directory.")
    assert cache.store(ceilings())
    assert cache.load(conditions()) == cache.Found(ceilings())


# Other versions


def older(document: dict[str, Any], name: str = "old.gguf", version: int = 2) -> None:
    """As another version of Stackscope would have written it: whatever it holds, but for its model."""
    document["format"] = version
    document["ceilings"] = {"conditions": {"model": name}, "rates": [1, 2]}


def test_what_an_older_version_measured_is_said_not_to_count(monkeypatch: pytest.MonkeyPatch) -> None:
    edited(older)
    found = cache.load(conditions())
    assert (found.ceilings, found.trouble) == (None, None)
    assert found.other == cache.OtherVersion(2, "old.gguf")
    assert found.note == (f"The ceilings were measured by {OLDER} and do not count: stackscope calibrate")
    [check] = of_ceilings(bundled_target(), FACTS, named=None, now=NOW)
    assert check.value == (
        f"not measured for {bundled_target().name}. A{OLDER[1:]} measured old.gguf, which does not count here"
    )
    assert check.remedy == "Measure them, when the machine is quiet: stackscope calibrate"
    result = CliRunner().invoke(app, ["calibrate", "--show"])
    assert result.exit_code == 2
    assert "An older version of Stackscope" in result.stderr
    assert result.stderr.endswith("Measure them: stackscope calibrate\n")
    # It is whole: what is measured anew takes its place, and nothing is said of damage.
    monkeypatch.setattr(verb, "measure", lambda *_, **__: ceilings())
    assert json.loads(CliRunner().invoke(app, ["calibrate", "--json"]).stdout)["notes"] == []
    assert cache.load(conditions()) == cache.Found(ceilings())


def test_versions_are_told_apart_and_models_named_once() -> None:
    edited(lambda document: older(document, "b.gguf"), "1.json")
    edited(lambda document: older(document, "a.gguf"), "2.json")
    edited(lambda document: older(document, "a.gguf"), "3.json")
    edited(lambda document: older(document, "c.gguf", 99), "4.json")
    edited(lambda document: document.update(format=1, ceilings={}), "5.json")
    assert kept_ceilings.of_other_versions(cache.known()) == [
        f"A{OLDER[1:]} measured a.gguf, b.gguf, which does not count here",
        f"A newer version of Stackscope (format 99, here {cache.FORMAT}) measured c.gguf, which does not count here",
        f"A{OLDER[1:].replace('format 2', 'format 1')} measured a model that is not named, which does not count here",
    ]


def test_showing_nothing_because_of_damage_says_so() -> None:
    edited(put("fixed_ns", value=-1.0))
    result = CliRunner().invoke(app, ["calibrate", "--show"])
    assert result.exit_code == 2
    assert "is damaged and is not used: the fixed cost is -1 ns. Measure them: stackscope calibrate" in result.stderr
