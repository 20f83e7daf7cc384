"""What forbids a verdict on two sessions, and what the reader of one should know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from stackscope import units
from stackscope.analysis.comparing.cores import STATE_POINTS, cpu_shares, is_apart, is_starved
from stackscope.analysis.comparing.differences import EXTENT
from stackscope.analysis.comparing.loads import told
from stackscope.analysis.metrics import counts, load, time

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stackscope.analysis.comparing.differences import Difference
    from stackscope.analysis.comparing.digest import Digest

HIT_POINTS: Final = 0.05
"""Hit rates that differ by less are alike."""
PRESSURE_POINTS: Final = 0.20
"""The same of the pressure on its processors, which an engine with a thread for every core raises by itself."""
LENGTHS: Final = 0.10
"""Outputs whose lengths differ by less, relatively, are alike."""
SAME_REQUESTS: Final = 0.9
"""Share of the requests that both must have served, for them to have done the same work."""
SWAPPING: Final = 1e6
"""Bytes per second that are worth a remark."""

HIT_SETTINGS: Final = frozenset(
    {
        "prefix_cache", "block_tokens", "cache_tokens", "cache_paths", "slots", "slots_max", "context_tokens",
        "unified_kv", "swa_full", "kv_type_k", "kv_type_v",
    }
)  # fmt: skip
"""Settings that change by themselves what a prefix cache finds."""


class Concern(msgspec.Struct, frozen=True, kw_only=True):
    """Something that bears on what a comparison means."""

    kind: str
    """What it is about, for machines."""
    text: str
    """A sentence."""
    is_barrier: bool = False
    """It forbids a verdict: other things than the configuration would be compared."""


def concerns(a: Digest, b: Digest, found: Sequence[Difference], letters: tuple[str, str]) -> tuple[Concern, ...]:
    """All of them, the barriers first. `letters` are what the sessions are called."""
    made = [
        *_same_recording(a, b, letters),
        *_nothing_ran(a, b, letters),
        *_loads(a, b, letters),
        *_workloads(a, b, found),
        *_caches(a, b, found, letters),
        *_throttling(a, b, letters),
        *_synthetic(a, b, letters),
        *_epochs(a, b, letters),
        *_models(found),
        *_machines(a, b, found, letters),
        *_outputs(a, b, letters),
        *_recordings(a, b, letters),
        *_many(found),
    ]
    return tuple(sorted(made, key=lambda one: not one.is_barrier))


def did_same_work(a: Digest, b: Digest, found: Sequence[Difference]) -> bool:
    """Whether both served the same requests: what they did in a portion of their progress is then alike."""
    if any(one.area == "workload" and one.name not in EXTENT for one in found) or not a.header.workload:
        return False
    common, same = _common(a, b)
    most = max(len(a.requests.ids), len(b.requests.ids))
    if most == 0 or common < SAME_REQUESTS * most or same < SAME_REQUESTS * common:
        return False
    tokens = [digest.total("emitted") for digest in (a, b)]
    return min(tokens) >= (1 - LENGTHS) * max(tokens) > 0


def _common(a: Digest, b: Digest) -> tuple[int, int]:
    """(requests with numbers that both have, those of them whose prompts are as long)."""
    _, at_a, at_b = np.intersect1d(a.requests.ids, b.requests.ids, return_indices=True)
    same = a.requests.prompt_tokens[at_a] == b.requests.prompt_tokens[at_b]
    return len(at_a), int(np.count_nonzero(same))


def _same_recording(a: Digest, b: Digest, letters: tuple[str, str]) -> Iterator[Concern]:
    """One compared with itself, or with its own beginning: every step took as long, to the nanosecond."""
    if a.header != b.header:
        return
    one, other = (digest.distributions[time.StepTime.tag].values for digest in (a, b))
    n = min(len(one), len(other))
    if n == 0 or not np.array_equal(one[:n], other[:n]):
        return
    if len(one) != len(other):
        short, whole = letters if len(one) == n else letters[::-1]
        yield Concern(kind="same recording", text=f"{short} is the beginning of {whole}: they are one recording.")
    elif np.array_equal(a.blocks, b.blocks):
        yield Concern(kind="same recording", text=f"{letters[0]} and {letters[1]} are the same recording.")


def _nothing_ran(a: Digest, b: Digest, letters: tuple[str, str]) -> Iterator[Concern]:
    for letter, digest in zip(letters, (a, b), strict=True):
        if not digest[counts.Forwards]:
            yield Concern(kind="nothing ran", text=f"In {letter} no forward ran to its end.", is_barrier=True)


def _loads(a: Digest, b: Digest, letters: tuple[str, str]) -> Iterator[Concern]:
    for letter, digest in zip(letters, (a, b), strict=True):
        if len(digest.loads) > 1:
            text = f"The load changed during {letter}: {told([span.load for span in digest.loads])}."
            yield Concern(kind="load changed", text=text, is_barrier=True)


def _workloads(a: Digest, b: Digest, found: Sequence[Difference]) -> Iterator[Concern]:
    names = {one.name: one for one in found if one.area == "workload"}
    if not a.header.workload or not b.header.workload:
        yield Concern(kind="workload", text="What one of them was asked is not recorded.")
        return
    names.pop("load", None)  # `_loads` says it.
    seed = names.pop("seed", None)
    if seed is not None:
        text = f"The workloads have different seeds, {seed.a} and {seed.b}: the prompts were not the same."
        yield Concern(kind="seed", text=text, is_barrier=True)
    extent = [name for name in names if name in EXTENT]
    others = [name.replace("_", " ") for name in names if name not in EXTENT]
    if others:
        text = f"The workloads are not the same: {', '.join(others)}."
        yield Concern(kind="workload", text=text, is_barrier=True)
    if extent:
        yield Concern(kind="extent", text="The workloads are not equally long.")
    common, same = _common(a, b)
    if not others and seed is None and common > 0 and same < SAME_REQUESTS * common:
        text = f"Prompts with the same number differ in length, {common - same:,} of {common:,}."
        yield Concern(kind="prompts", text=text)


def _caches(a: Digest, b: Digest, found: Sequence[Difference], letters: tuple[str, str]) -> Iterator[Concern]:
    rates = [digest[load.HitRate] for digest in (a, b)]
    warm = [letter for letter, digest in zip(letters, (a, b), strict=True) if digest.warm_blocks > 0]
    if len(warm) == 1:
        text = f"The prefix cache of {warm[0]} was warm from the start, the other's was empty."
        yield Concern(kind="warm cache", text=text, is_barrier=True)
    one, other = rates
    if one is None or other is None or abs(one - other) < HIT_POINTS:
        return
    hits = f"{letters[0]} found {units.percent(one)} of the prompt tokens in its prefix cache, {letters[1]}"
    hits = f"{hits} {units.percent(other)}"
    is_set_alike = not any(each.area == "configuration" and each.name in HIT_SETTINGS for each in found)
    cut, served = _cut_off(a, b, letters), [len(digest.requests.ids) for digest in (a, b)]
    if cut:
        text = f"{hits}: {cut} cut off, which may be all of it."
    elif not a.header.workload or not b.header.workload:
        text = f"{hits}: what they were asked is not recorded of both, and may be why."
    elif any(each.area == "workload" for each in found):
        text = f"{hits}: the workloads are not the same, which may be all of it."
    elif is_set_alike and min(served) < SAME_REQUESTS * max(served):
        text = f"{hits}: they served {served[0]:,} and {served[1]:,} requests, which may be all of it."
    elif is_set_alike:
        text = f"{hits}, though both are set alike: as after a run that left its prefixes behind."
    else:
        text = f"{hits}: with other settings of slots or cache, that is part of the effect."
    yield Concern(kind="hit rate", text=text, is_barrier=is_set_alike and not cut)


def _cut_off(a: Digest, b: Digest, letters: tuple[str, str]) -> str:
    """Who ends early, with a verb; empty: nobody."""
    cut = [letter for letter, digest in zip(letters, (a, b), strict=True) if digest.is_cut_off]
    return f"{' and '.join(cut)} {'is' if len(cut) == 1 else 'are'}" if cut else ""


def _throttling(a: Digest, b: Digest, letters: tuple[str, str]) -> Iterator[Concern]:
    states = [digest.machine.throttled for digest in (a, b)]
    reasons = sorted({reason for state in states for reason in state or ()})
    for reason in reasons:
        shares = [None if state is None else state.get(reason, 0.0) for state in states]
        known = [share for share in shares if share is not None]
        if max(known) < STATE_POINTS:
            continue
        told = " and ".join(
            f"{letter} in {units.percent(share)}" for letter, share in zip(letters, shares, strict=True) if share
        )
        text = f"The GPU's clocks were held down ({reason}) for {told} of the readings."
        is_barrier = len(known) == 1 or abs(known[0] - known[1]) >= STATE_POINTS
        yield Concern(kind="throttled", text=text, is_barrier=is_barrier)
    quotas = [digest.machine.quota_share or 0.0 for digest in (a, b)]
    if max(quotas) >= STATE_POINTS:
        text = (
            f"A quota of the container held the engine up in {units.percent(quotas[0])} of the periods of {letters[0]},"
            f" {units.percent(quotas[1])} of {letters[1]}."
        )
        yield Concern(kind="quota", text=text, is_barrier=abs(quotas[0] - quotas[1]) >= STATE_POINTS)


def _synthetic(a: Digest, b: Digest, letters: tuple[str, str]) -> Iterator[Concern]:
    marked = [letter for letter, one in zip(letters, (a, b), strict=True) if one[counts.InvalidOutputSteps]]
    if len(marked) == 1:
        text = (
            f"The acceptance of {marked[0]} is synthetic: its output is not the model's, and its speed is not either."
        )
        yield Concern(kind="synthetic", text=text, is_barrier=True)
    elif marked:
        text = "The acceptance of both is synthetic: their times are real, acceptance and A are what was asked for."
        yield Concern(kind="synthetic", text=text)


def _epochs(a: Digest, b: Digest, letters: tuple[str, str]) -> Iterator[Concern]:
    for letter, digest in zip(letters, (a, b), strict=True):
        if len(digest.epochs) > 1:
            text = f"{letter} ran under {len(digest.epochs)} configurations, and its figures mix them."
            yield Concern(kind="epochs", text=text, is_barrier=True)


def _models(found: Sequence[Difference]) -> Iterator[Concern]:
    if any(one.area == "model" and one.name in ("parameters", "architecture") for one in found):
        yield Concern(kind="model", text="They ran different models, not variants of one.")


def _machines(a: Digest, b: Digest, found: Sequence[Difference], letters: tuple[str, str]) -> Iterator[Concern]:
    names = {one.name for one in found if one.area == "machine"}
    if names & {"host", "device"}:
        yield Concern(kind="machine", text="They ran on different machines.")
    if any(name == "library" or name.startswith("with ") for name in names):
        yield Concern(kind="library", text="The inference library was not the same build.")
    pressures = [digest.machine.cpu_pressure for digest in (a, b)]
    one, other = pressures
    if one is not None and other is not None and abs(one - other) >= PRESSURE_POINTS:
        text = (
            f"Something waited for a core {units.percent(one)} of the time in {letters[0]} and {units.percent(other)}"
            f" in {letters[1]}: the machine was not equally quiet."
        )
        yield Concern(kind="pressure", text=text)
    yield from _cores(a, b, found, letters)
    for letter, digest in zip(letters, (a, b), strict=True):
        swapped = digest.machine.swap_bytes_per_s
        if swapped is not None and swapped > SWAPPING:
            yield Concern(kind="swap", text=f"The machine of {letter} swapped {units.bandwidth(swapped)}.")


def _cores(a: Digest, b: Digest, found: Sequence[Difference], letters: tuple[str, str]) -> Iterator[Concern]:
    """What the engine had of its cores, where that decides as well."""
    shares = cpu_shares((a, b))
    told = " and ".join(
        f"{units.percent(share)} of the time in {letter}"
        for letter, share in zip(letters, shares, strict=True)
        if share is not None
    )
    if is_starved(shares) and is_apart(shares) and not _has_other_cores(a, b, found):
        text = (
            f"The engine's threads really ran {told}, with as many of them in both: what kept them from running would"
            " be compared as well."
        )
        yield Concern(kind="cpu share", text=text, is_barrier=True)
    elif is_starved(shares):
        text = f"The engine's threads really ran {told}: what kept them from their cores decides this as well."
        yield Concern(kind="cpu share", text=text)
    elif is_apart(shares):
        yield Concern(kind="cpu share", text=f"The engine's threads really ran {told}.")


def _has_other_cores(a: Digest, b: Digest, found: Sequence[Difference]) -> bool:
    """Threads or cores are not as many in both: how much of them the threads got may be the effect itself."""
    cores = {digest.header.cores for digest in (a, b)} - {None}
    return len(cores) > 1 or any(one.area == "configuration" and one.name == "threads" for one in found)


def _outputs(a: Digest, b: Digest, letters: tuple[str, str]) -> Iterator[Concern]:
    means = [float(one.requests.output_tokens.mean()) if len(one.requests.ids) else 0.0 for one in (a, b)]
    if min(means) > 0 and min(means) < (1 - LENGTHS) * max(means):
        text = (
            f"Outputs are {units.number(means[0])} tokens long on average in {letters[0]}, {units.number(means[1])} in"
        )
        cut = _cut_off(a, b, letters)
        why = f"{cut} cut off, which may be why" if cut else "the work was not the same"
        yield Concern(kind="output lengths", text=f"{text} {letters[1]}: {why}.")
    for letter, digest in zip(letters, (a, b), strict=True):
        failed = (digest[counts.Requests] or {}).get("error", 0)
        if failed > 0:
            text = f"{units.counted(failed, 'request')} of {units.count(digest.n_finished)} failed in {letter}."
            yield Concern(kind="failed requests", text=text)


def _recordings(a: Digest, b: Digest, letters: tuple[str, str]) -> Iterator[Concern]:
    begun = [letter for letter, one in zip(letters, (a, b), strict=True) if (one.first_step or 0) > 0]
    if len(begun) == 1 and a.warmup_ns == 0:
        text = (
            f"The recording of {begun[0]} begins in the middle of a session, so that only the other's has a cold start."
        )
        yield Concern(kind="middle", text=f"{text} --warmup leaves it out.")
    for letter, digest in zip(letters, (a, b), strict=True):
        if digest.truncated is not None:
            yield Concern(kind="cut off", text=f"{letter}: {digest.truncated}")
        elif digest.footer is not None and digest.footer.reason in ("engine-died", "error"):
            yield Concern(kind="ended early", text=f"The engine of {letter} failed before the end.")
        if digest.left_out is not None:
            yield Concern(kind="left out", text=f"{letter}: {digest.left_out}")


def _many(found: Sequence[Difference]) -> Iterator[Concern]:
    settings = [one.name for one in found if one.area == "configuration" and one.name not in ("model", "draft_model")]
    if len(settings) > 1:
        text = f"{len(settings)} settings differ; which of them did it, two sessions cannot say."
        yield Concern(kind="several settings", text=text)
