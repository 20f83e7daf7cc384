"""Where the time of a step moved, by part. The phases are exact; how the target's forward divides is modelled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from stackscope.analysis.comparing.cores import cpu_shares, is_apart, is_starved
from stackscope.analysis.comparing.counting import PARTS
from stackscope.analysis.metrics.base import ratio, unknown_needs
from stackscope.analysis.totals import PHASES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stackscope.analysis.comparing.differences import Difference
    from stackscope.analysis.comparing.digest import Digest

BY_TERMS: Final = {
    "weights": "weights", "head": "head", "compute": "more rows", "attention": "KV",
    "resident": "others' cells", "fixed": "fixed",
}  # fmt: skip
"""What the terms of the time model are called here."""

BY_BYTES: Final = dict(zip(PARTS, ("weights", "head", "KV", "other"), strict=True))

ROWS: Final = BY_TERMS["compute"]
WAITING: Final = "waiting for cores"
REST: Final = "not split further"

ROW_SETTINGS: Final = frozenset(
    {
        "model", "kv_type_k", "kv_type_v", "flash_attention", "unified_kv", "threads", "gpu_layers", "main_gpu",
        "split_mode", "tensor_split",
    }
)  # fmt: skip
"""Settings that change what a row of a forward takes."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the mean step, in nanoseconds."""

    name: str
    a_ns: float
    b_ns: float
    a_token_ns: float | None
    """The same per token that entered an output. `None`: there was none."""
    b_token_ns: float | None

    @property
    def change_ns(self) -> float:
        return self.b_ns - self.a_ns

    @property
    def token_change_ns(self) -> float | None:
        if self.a_token_ns is None or self.b_token_ns is None:
            return None
        return self.b_token_ns - self.a_token_ns


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """The mean step of two sessions, in parts."""

    step: Part
    phases: tuple[Part, ...]
    """They sum to the step; those that are 0 in both are left out."""
    decode: tuple[Part, ...]
    """Parts of the decode phase, which they sum to. Empty: not known."""
    split: str
    """How the decode phase was divided, or why it was not, as a sentence."""


def moved(a: Digest, b: Digest, found: Sequence[Difference], letters: tuple[str, str]) -> Moved | None:
    """Where the time of a step moved. `None`: one of them has no steps, or does not know their phases.

    `found` is what differs, `letters` what the sessions are called.
    """
    if not (_is_known(a) and _is_known(b)):
        return None
    scales = [(1 / digest.total("steps"), ratio(1.0, digest.total("emitted"))) for digest in (a, b)]

    def part(name: str, one: float, other: float) -> Part:
        tokens = [
            None if per_token is None else ns * per_token
            for ns, (_, per_token) in zip((one, other), scales, strict=True)
        ]
        return Part(
            name=name, a_ns=one * scales[0][0], b_ns=other * scales[1][0], a_token_ns=tokens[0], b_token_ns=tokens[1]
        )

    phases = [part(name, a.total(name), b.total(name)) for name in PHASES]
    parts, split = _forward_parts(a, b, found, letters)
    return Moved(
        step=part("step", a.total("busy"), b.total("busy")),
        phases=tuple(one for one in phases if one.a_ns > 0 or one.b_ns > 0),
        decode=tuple(
            part(name, parts[0][name], parts[1][name])
            for name in (parts[0] if parts else ())
            if parts[0][name] > 0 or parts[1][name] > 0
        ),
        split=split,
    )


def anatomy(digest: Digest) -> dict[str, float] | None:
    """Nanoseconds of the mean step by part, those of the live anatomy in its order, the idle time before it included.

    `None`: there are no steps, or their phases are not known.
    """
    if not _is_known(digest):
        return None
    found = {name: digest.total(name) for name in (*PHASES, "forward", "prefill_part", "verify_part", "idle")}
    parts = {
        "prefill": found["prefill_part"],
        "decode": found["forward"] - found["prefill_part"] - found["verify_part"],
        "verify": found["verify_part"],
        "draft": found["draft"],
        "sample": found["sample"],
        "schedule": found["admit"] + found["build"] + found["commit"],
        "emit": found["emit"],
        "shadow": found["shadow"],
        "idle": found["idle"],
        "unexplained": found["other"] + found["decode"] - found["forward"],
    }
    return {name: max(ns, 0.0) / digest.total("steps") for name, ns in parts.items()}


def _is_known(digest: Digest) -> bool:
    return digest.total("steps") > 0 and "phases" not in unknown_needs(digest.header)


def _forward_parts(
    a: Digest, b: Digest, found: Sequence[Difference], letters: tuple[str, str]
) -> tuple[tuple[Mapping[str, float], ...], str]:
    """(nanoseconds of each session's decode phase by part, how it was divided in words)."""
    decoding = [digest.total("decode") for digest in (a, b)]
    waiting = _waiting(a, b, decoding)
    running = [whole - lost for whole, lost in zip(decoding, waiting, strict=True)]
    by_terms = [digest.terms if isinstance(digest.terms, str) else _by_terms(digest) for digest in (a, b)]
    terms = [one for one in by_terms if not isinstance(one, str)]
    if len(terms) == 2:
        parts = [{name: share * ns for name, share in one.items()} for one, ns in zip(terms, running, strict=True)]
        worst = max(_misfit(digest, ns / whole) for digest, ns, whole in zip((a, b), running, decoding, strict=True))
        split = (
            "The forward is divided by the time model, calibrated and fitted to these steps, and scaled to what was"
            f" measured (by {worst:.0%} at most)."
        )
    else:
        counted = _by_bytes(a, b, running, can_tell_rows=_take_alike_rows(found))
        if counted is None:
            return (), "How the forward divides is not known: a model's geometry is not recorded."
        parts, split = counted, f"{_how_by_bytes(counted)} {_why_no_terms(by_terms, letters)}"
    if any(lost > 0 for lost in waiting):
        parts = [{**one, WAITING: lost} for one, lost in zip(parts, waiting, strict=True)]
        split = f"{split} Waiting for cores is what its threads did not run of it, and measured."
    return tuple(parts), split


def _waiting(a: Digest, b: Digest, decoding: Sequence[float]) -> list[float]:
    """Nanoseconds of each decode phase in which the threads did not run, where that bears on the comparison."""
    shares = cpu_shares((a, b))
    known = [share for share in shares if share is not None]
    if len(known) < 2 or not (is_starved(known) or is_apart(known)):
        return [0.0, 0.0]
    return [max(1.0 - share, 0.0) * ns for share, ns in zip(known, decoding, strict=True)]


def _by_terms(digest: Digest) -> dict[str, float] | str:
    """Shares of a forward that the time model gives each part. `str`: why it does not."""
    found = digest.terms
    assert not isinstance(found, str)
    if found.predicted_ns <= 0:
        return "it predicts no time"
    return {BY_TERMS[name]: ns / found.predicted_ns for name, ns in found.terms.items()}


def _misfit(digest: Digest, share: float) -> float:
    """How far the model is off on average, relatively, of the share of the measured time that it is to divide."""
    found = digest.terms
    assert not isinstance(found, str)
    return abs(share * found.measured_ns / found.predicted_ns - 1)


def _why_no_terms(by_terms: Sequence[dict[str, float] | str], letters: tuple[str, str]) -> str:
    """Of whom the time model says nothing, and why, as a sentence."""
    whys = [(letter, one) for letter, one in zip(letters, by_terms, strict=True) if isinstance(one, str)]
    if len({why for _, why in whys}) == 1:
        whys = [(" and ".join(letter for letter, _ in whys), whys[0][1])]
    return f"The time model says nothing {'; '.join(f'of {who}: {why}' for who, why in whys)}."


# By bytes: what takes the same bytes is not what moved.


def _take_alike_rows(found: Sequence[Difference]) -> bool:
    """Whether nothing differs that changes what a row takes, so that more of them explain more time."""
    return not any(
        one.area == "machine"
        or (one.area == "model" and not one.name.startswith("draft "))
        or (one.area == "configuration" and (one.name in ROW_SETTINGS or one.name == "configuration"))
        for one in found
    )


def _by_bytes(a: Digest, b: Digest, running: Sequence[float], *, can_tell_rows: bool) -> list[dict[str, float]] | None:
    """Nanoseconds of each part, a byte taking as long in both: as in the session that takes less for one.

    What the other takes beyond that is no matter of bytes. As many more rows as it has are put down to those, and what
    is left is not split. `None`: bytes are not known.
    """
    sizes = [{BY_BYTES[name]: digest.total(name) for name in PARTS} for digest in (a, b)]
    wholes = [sum(one.values()) for one in sizes]
    rows = [ratio(digest.total("rows"), digest.total("forwards")) for digest in (a, b)]
    if min(wholes) <= 0:
        return None
    per_byte = min(ns / whole for ns, whole in zip(running, wholes, strict=True))
    made = []
    for size, whole, ns, own, other in zip(sizes, wholes, running, rows, rows[::-1], strict=True):
        reading = whole * per_byte
        beyond = max(ns - reading, 0.0)
        more = max(own / other - 1.0, 0.0) if can_tell_rows and own is not None and other else 0.0
        for_rows = min(beyond, reading * more)
        parts = {name: n_bytes * per_byte for name, n_bytes in size.items()}
        made.append({**parts, ROWS: for_rows, REST: beyond - for_rows})
    return made


def _how_by_bytes(parts: Sequence[Mapping[str, float]]) -> str:
    told = "The forward is divided by the bytes that the ledger counts, each taking as long in both."
    if any(one[ROWS] > 0 for one in parts):
        told = f"{told} Beyond them, time that grew no more than rows did is put down to {ROWS} (arithmetic)."
    return told
