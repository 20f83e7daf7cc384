"""Measured ceilings: what they hold for, how they are kept, and what becomes of a damaged file."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec
import pytest

from stackscope.errors import ModelFileError, StackscopeError
from stackscope.hardware import ceilings as cache
from stackscope.hardware.caches import last_level_bytes
from stackscope.records.ceilings import Ceiling, Limits
from stackscope.toggles import EngineConfig
from tests.unit.ceilings_builders import ceilings, conditions

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CONFIG = EngineConfig(model="/somewhere/synthetic.gguf", threads=2)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STACKSCOPE_CACHE", str(tmp_path / "cache"))


# What they hold for


def test_conditions_hold_for_the_configuration_that_was_measured() -> None:
    given = conditions()
    assert given.hold_for(CONFIG)
    assert given.hold_for(msgspec.structs.replace(CONFIG, threads=None))
    for change in (
        {"model": "/somewhere/other.gguf"}, {"threads": 1}, {"kv_type_k": "q8_0"}, {"flash_attention": False},
        {"unified_kv": False}, {"swa_full": False}, {"gpu_layers": 0},
    ):  # fmt: skip
        assert not given.hold_for(msgspec.structs.replace(CONFIG, **change)), change
    assert given.hold_for(msgspec.structs.replace(CONFIG, slots=1, speculation="ngram"))


def test_a_session_keeps_the_ceilings_that_its_changes_leave_true() -> None:
    found = ceilings()
    assert found.limits(CONFIG) == Limits(found.compute, found.bandwidth)
    assert found.limits(msgspec.structs.replace(CONFIG, kv_type_k="q8_0")) == Limits(found.compute, found.bandwidth)
    # Another target may not fit the cache, and has other kernels; reading memory is the machine's.
    other = found.limits(msgspec.structs.replace(CONFIG, model="other.gguf"))
    assert other == Limits(None, Ceiling(value=15e9, kind="memory", spread=0.02))
    assert found.limits(msgspec.structs.replace(CONFIG, threads=1)) == Limits(None, None)


def test_what_a_busy_machine_reached_is_no_ceiling() -> None:
    assert ceilings(is_quiet=False, foreign_share=0.5).limits(CONFIG) == Limits(None, None)
    # Where nobody says who else was there, it is what there is.
    unknown = ceilings(is_quiet=False, foreign_share=None)
    assert unknown.limits(CONFIG) == Limits(unknown.compute, unknown.bandwidth)


def test_conditions_are_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"12345")
    config = EngineConfig(model=str(path), tensor_split=(3.0, 1.0))
    found = cache.conditions(config, library="L", threads=3, waiting="W")
    assert (found.model, found.model_bytes, found.threads) == ("model.gguf", 5, 3)
    assert found.placement == "layers -1, gpu 0, split layer 3,1"
    assert found.hold_for(config)
    os.utime(path, ns=(0, 1))
    assert cache.conditions(config, library="L", threads=3, waiting="W") != found
    with pytest.raises(ModelFileError, match="No such file"):
        cache.conditions(EngineConfig(model=str(tmp_path / "gone.gguf")), library="L", threads=3, waiting="W")


# Keeping


def test_what_is_stored_is_found_under_the_same_conditions_only() -> None:
    assert cache.load(conditions()) == cache.Found(None)
    assert list(cache.known()) == []
    assert cache.store(ceilings())
    assert cache.load(conditions()) == cache.Found(ceilings())
    assert cache.load(conditions(threads=1)) == cache.Found(None)
    assert cache.load(conditions(library="another build")) == cache.Found(None)
    assert list(cache.known()) == [cache.Found(ceilings())]
    assert [path.suffix for path in cache.folder().iterdir()] == [".json"]  # nothing half written is left


def test_a_busy_machine_does_not_replace_what_a_quiet_one_said() -> None:
    busy = ceilings(is_quiet=False, foreign_share=0.7)
    assert cache.store(busy)
    assert cache.store(ceilings())
    assert not cache.store(busy)
    assert cache.load(conditions()).ceilings == ceilings()


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text[:0],
        lambda text: text.replace(b'"threads": 2', b'"threads": "two"'),
        lambda text: text.replace(b"2026-10-01T12:00:00+00:00", b"yesterday"),
        lambda text: b"\xff" + text,
        lambda _: b"[" * 100_000,
    ],
)
def test_a_damaged_file_is_one_sentence_and_measured_again(damage: Callable[[bytes], bytes]) -> None:
    cache.store(ceilings())
    path = cache.file_of(conditions())
    path.write_bytes(damage(path.read_bytes()))
    found = cache.load(conditions())
    assert found.ceilings is None
    assert found.trouble is not None
    assert found.trouble.sentence.startswith("The file of measured ceilings ")
    assert " is damaged and is not used: " in found.trouble.sentence
    assert list(cache.known()) == [found]
    assert cache.store(ceilings())
    assert cache.load(conditions()) == cache.Found(ceilings())


def test_files_of_another_format_do_not_count() -> None:
    cache.store(ceilings())
    path = cache.file_of(conditions())
    path.write_bytes(path.read_bytes().replace(f'"format": {cache.FORMAT}'.encode(), b'"format": 0'))
    assert cache.load(conditions()) == cache.Found(None, other=cache.OtherVersion(0, "synthetic.gguf"))


def test_a_cache_that_cannot_be_written_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("STACKSCOPE_CACHE", str(tmp_path / "file"))
    with pytest.raises(StackscopeError, match="cannot be kept in"):
        cache.store(ceilings())


def test_what_concerns_another_draft_model_is_left_out() -> None:
    cache.store(ceilings())
    assert cache.fitting(conditions(), draft="synthetic-draft.gguf").ceilings == ceilings()
    found = cache.fitting(conditions(), draft=None).ceilings
    assert found == ceilings(draft=None, draft_forwards=(), draft_fits_cache=None)
    assert cache.fitting(conditions(threads=1), draft=None) == cache.Found(None)


def test_ages() -> None:
    measured = datetime(2026, 10, 1, 12, tzinfo=UTC)
    assert cache.age_ns(ceilings(), measured + timedelta(minutes=2)) == 120 * 10**9
    assert cache.age_ns(ceilings(), measured - timedelta(days=1)) == 0
    assert not cache.is_old(ceilings(), measured + timedelta(days=90))
    assert cache.is_old(ceilings(), measured + timedelta(days=91))


def test_a_hand_over_saves_and_loads_one_after_the_other() -> None:
    handoff = ceilings().handoff
    assert handoff is not None
    # 1 / (1/6 + 1/3) = 2 GB/s
    assert handoff.bytes_per_s == pytest.approx(2e9)


# The processor's caches


def caches(root: Path, cpu: int, *lines: tuple[str, str, str, str]) -> None:
    for index, texts in enumerate(lines):
        folder = root / f"sys/devices/system/cpu/cpu{cpu}/cache/index{index}"
        folder.mkdir(parents=True)
        for name, text in zip(("level", "type", "size", "shared_cpu_list"), texts, strict=True):
            (folder / name).write_text(f"{text}\n")


def test_last_level_caches_are_counted_once_each(tmp_path: Path) -> None:
    for cpu, shared in ((0, "0-1"), (1, "0-1"), (2, "2-3")):
        caches(tmp_path, cpu, ("1", "Instruction", "64K", f"{cpu}"), ("3", "Unified", "32768K", shared))
    assert last_level_bytes([0, 1], tmp_path) == 32 << 20
    assert last_level_bytes([0, 1, 2], tmp_path) == 64 << 20
    assert last_level_bytes([0, 3], tmp_path) is None  # nobody says what CPU 3 has
    assert last_level_bytes([], tmp_path) is None


def test_a_cache_whose_size_is_not_told_is_none(tmp_path: Path) -> None:
    caches(tmp_path, 0, ("2", "Unified", "", "0"), ("1", "Data", "48K", "0"))
    assert last_level_bytes([0], tmp_path) is None
