"""Measured ceilings as they are printed: against stored texts, and what is said of those that are not to be trusted."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pytest

from stackscope.report import ceilings as report
from tests.unit.ceilings_builders import about, ceilings, conditions

if TYPE_CHECKING:
    from stackscope.records.ceilings import Ceilings

GOLDEN: Final = Path(__file__).parent.parent / "golden"
UPDATE: Final = "UPDATE_GOLDEN"
"""Environment variable that has the stored texts written anew, to be read before they are committed."""

NOW: Final = datetime(2026, 10, 1, 14, 5, tzinfo=UTC)

BARE: Final = ceilings(
    conditions=conditions(kv_type_v="q8_0", flash_attention=False), is_quiet=False, foreign_share=None,
    cache_bytes=None, fits_cache=None, draft_fits_cache=None, reads=(), types=(), forwards=(), contexts=(),
    context_ns_per_token=None, kv_read_bytes_per_s=None, fixed_ns=None, draft=None, draft_forwards=(),
    rebuild_ns=None, load_ns=None, handoff=None, compute=None, bandwidth=None,
    unknown={"reading memory": "there is not enough memory free to go beyond the cache"},
)  # fmt: skip
CASES: Final = {"whole": ceilings(), "bare": BARE}


def lines(found: Ceilings, width: int) -> list[str]:
    return report.shown(found, width, now=NOW).plain.split("\n")


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("name", CASES)
def test_it_looks_as_stored(name: str, width: int) -> None:
    shown = report.shown(CASES[name], width, now=NOW).plain + "\n"
    path = GOLDEN / f"ceilings-{name}-{width}.txt"
    if os.environ.get(UPDATE):
        path.write_text(shown, encoding="utf-8")
    assert shown == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [76, 80, 100])
@pytest.mark.parametrize("name", CASES)
def test_lines_keep_to_the_width_without_trailing_spaces(name: str, width: int) -> None:
    for line in lines(CASES[name], width):
        assert line == line.rstrip()
        assert len(line) <= width, line


def test_a_busy_machine_and_old_age_are_said() -> None:
    assert not any(line.startswith("note") for line in lines(ceilings(), 80))
    busy = "\n".join(lines(ceilings(is_quiet=False, foreign_share=1.23), 80))
    assert "others took 123 % of a CPU" in busy
    assert "note          the machine was not quiet: these may be too low; sessions take" in busy
    old = report.shown(ceilings(), 80, now=NOW + timedelta(days=100)).plain
    assert "note          they are old: measure again with `stackscope calibrate`" in old


def test_an_unsteady_figure_is_marked() -> None:
    steady, unsteady = ceilings(rebuild_ns=about(1e8, 0.099)), ceilings(rebuild_ns=about(1e8, 0.10))
    assert "contexts made anew in 100 ms (spread 9.90 %)" in "\n".join(lines(steady, 80))
    assert "contexts made anew in 100 ms (spread 10.0 % (!))" in "\n".join(lines(unsteady, 80))
    [kind] = ceilings().types
    rates = ceilings(types=(msgspec.structs.replace(kind, matrix_flops_per_s=about(62e9, 0.1)),))
    [line] = [line for line in lines(rates, 100) if line.startswith("f16")]
    assert line.endswith("10.0 % (!)")


def test_one_line_has_both_ceilings_and_their_age() -> None:
    assert report.one_line(ceilings(), NOW) == (
        "at most 60.0 GB/s and 66.0 GFLOP/s on 2 threads; measured 2 h 05 min ago"
    )
    assert report.one_line(BARE, NOW) == (
        "- and - on 2 threads; measured 2 h 05 min ago; whether the machine was quiet is not known"
    )
