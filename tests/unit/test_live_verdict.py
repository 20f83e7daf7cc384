"""The verdict by phase shares: a name only where it is clear, and one that does not flicker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from stackscope.analysis.live.snapshot import PARTS, Part, Window
from stackscope.analysis.live.verdict import DECODE, DRAFTING, GROUPS, HOLD_NS, HOST, IDLE, PREFILL, Verdicts, leader

if TYPE_CHECKING:
    from stackscope.analysis.live.snapshot import Verdict

BIN_NS = 500_000_000


def parts(**shares: float) -> dict[str, float]:
    assert sum(shares.values()) == pytest.approx(1)
    return {name: shares.get(name, 0.0) for name in PARTS}


def window(shares: dict[str, float], **figures: float) -> Window:
    named = tuple(Part(name, share * 2e9, share) for name, share in shares.items())
    return Window(wall_ns=2_000_000_000, parts=named, **figures)  # type: ignore[arg-type]


def grouped(**shares: float) -> dict[str, float]:
    return {name: shares.get(name.split()[0].lower(), 0.0) for name in GROUPS}


DECODING = parts(decode=0.5, verify=0.2, draft=0.2, sample=0.05, idle=0.05)
DRAFTS = parts(decode=0.3, draft=0.6, sample=0.1)


def told(*course: tuple[int, dict[str, float]]) -> Verdict:
    """The verdict after shares at some times, worded with the last of them."""
    verdicts = Verdicts()
    for at_ns, shares in course:
        verdicts.update(at_ns, shares)
    return verdicts.verdict(window(course[-1][1], bytes_per_step=2e8, forward_bytes_per_s=1.2e10, step_ns=15e6))


def throughout(shares: dict[str, float], seconds: float, *, after: int = 0) -> list[tuple[int, dict[str, float]]]:
    return [(after + k * BIN_NS, shares) for k in range(int(seconds * 1e9) // BIN_NS + 1)]


def test_all_parts_but_the_unexplained_are_in_one_group() -> None:
    members = [part for group in GROUPS.values() for part in group]
    assert sorted(members) == sorted(set(PARTS) - {"unexplained"})


def test_nothing_is_named_before_it_has_led_for_two_seconds() -> None:
    early = told(*throughout(DECODING, 1.5))
    assert (early.name, early.share) == (None, None)
    assert early.sentence == "decode forward leads; it is named if it still does in 0.5 s"
    found = told(*throughout(DECODING, 2.0))
    assert (found.name, found.since_ns) == (DECODE, 0)
    assert found.share == pytest.approx(0.7)


def test_it_says_that_it_goes_by_phases_alone() -> None:
    found = told(*throughout(DECODING, 2.0))
    assert found.basis == "phases"
    assert found.sentence == "steps of 15 ms move 200 MB at 12.0 GB/s (modelled); by phase shares alone"
    assert found.rejected == ("drafting 20.0 %", "host 5.00 %", "idle 5.00 %")


def test_another_name_takes_over_after_two_seconds_and_remembers_the_last() -> None:
    course = throughout(DECODING, 4.0)
    assert told(*course, *throughout(DRAFTS, 1.5, after=5 * 10**9)).name == DECODE
    found = told(*course, *throughout(DRAFTS, 2.0, after=5 * 10**9))
    assert (found.name, found.previous, found.since_ns) == (DRAFTING, DECODE, 5 * 10**9)


def test_a_name_left_far_behind_goes_sooner() -> None:
    """A toggle can turn everything over; a name with a few per cent should not stand for long."""
    far = parts(decode=0.05, prefill=0.95)
    course = throughout(DECODING, 4.0)
    assert told(*course, *throughout(far, 0.5, after=5 * 10**9)).name == DECODE
    assert told(*course, *throughout(far, 1.0, after=5 * 10**9)).name == PREFILL


def test_what_is_next_to_nothing_is_not_worth_rejecting() -> None:
    found = told(*throughout(parts(decode=0.98, idle=0.016, draft=0.004), 2.0))
    assert found.rejected == ("idle 1.60 %",)


def test_what_goes_back_and_forth_does_not_flicker() -> None:
    course = throughout(DECODING, 4.0)
    for second in range(5, 40, 2):
        course += [(second * 10**9, DRAFTS), ((second + 1) * 10**9, DECODING)]
    found = told(*course)
    assert (found.name, found.previous, found.since_ns) == (DECODE, None, 0)


def test_the_share_is_always_that_of_the_name() -> None:
    """Also while another leads, but not for long enough."""
    found = told(*throughout(DECODING, 4.0), (5 * 10**9, DRAFTS))
    assert found.name == DECODE
    assert found.share == pytest.approx(0.3)


def test_above_a_tenth_unexplained_nothing_is_named() -> None:
    unclear = parts(decode=0.85, unexplained=0.15)
    assert told(*throughout(unclear, 4.0)).name is None
    assert "15.0 % of the time is unexplained" in told(*throughout(unclear, 4.0)).sentence
    before = told(*throughout(DECODING, 4.0), *throughout(unclear, 2.0, after=5 * 10**9))
    assert (before.name, before.previous) == (None, DECODE)


@pytest.mark.parametrize(
    ("shares", "name"),
    [
        (grouped(decode=0.36, prefill=0.34, host=0.3), DECODE),
        (grouped(decode=0.34, prefill=0.33, host=0.33), None),
        (grouped(decode=0.34, prefill=0.23, host=0.2, idle=0.2), DECODE),
        (grouped(decode=0.34, prefill=0.25, host=0.2, idle=0.2), None),
        (grouped(idle=1.0), IDLE),
        (grouped(decode=0.89), None),
        (grouped(decode=0.91), DECODE),
    ],
)
def test_a_name_takes_a_share_or_a_lead(shares: dict[str, float], name: str | None) -> None:
    assert leader(shares) == name


def test_without_a_leader_the_first_two_are_told() -> None:
    even = parts(decode=0.34, prefill=0.33, sample=0.33)
    assert told(*throughout(even, 4.0)).sentence == (
        "nothing dominates: decode forward 34.0 %, prefill 33.0 %; by phase shares alone"
    )


def test_each_name_comes_with_one_number() -> None:
    verdicts = {
        PREFILL: (parts(prefill=1.0), {"prefill_tokens_per_s": 299.0}, "prompts are computed at 299 tok/s"),
        DRAFTING: (parts(draft=1.0), {"acceptance": 0.4}, "40.0 % of what is drafted enters the output"),
        HOST: (parts(sample=0.2, schedule=0.8), {}, "most of it scheduling, 80.0 %"),
        IDLE: (parts(idle=0.9, decode=0.1), {}, "steps run for 10.0 % of the time"),
        DECODE: (parts(decode=1.0), {"step_ns": 2e6}, "steps take 2 ms"),
    }
    for name, (shares, figures, sentence) in verdicts.items():
        found = Verdicts()
        for at_ns, same in throughout(shares, HOLD_NS / 1e9):
            found.update(at_ns, same)
        told = found.verdict(window(shares, **figures))
        assert (told.name, told.sentence) == (name, f"{sentence}; by phase shares alone")


def test_without_figures_nothing_is_said() -> None:
    verdicts = Verdicts()
    verdicts.update(0, None)
    verdicts.update(HOLD_NS, None)
    assert verdicts.verdict(Window()).name is None


def test_where_no_more_will_come_nothing_is_waited_for() -> None:
    verdicts = Verdicts()
    verdicts.update(0, DECODING)
    short = msgspec.structs.replace(window(DECODING), wall_ns=1_200_000_000)
    assert verdicts.verdict(short, is_over=True).sentence == (
        "the run was too short to name anything: 1.2 s of steps, 2 s are needed"
    )
    assert verdicts.verdict(window(DECODING), is_over=True).sentence == (
        "decode forward led at the end, but not for the 2 s that a name takes"
    )
