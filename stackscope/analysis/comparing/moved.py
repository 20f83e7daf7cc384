"""Where the time of a step moved, by part. The phases are exact; how the target's forward divides is modelled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from stackscope.analysis.comparing.counting import PARTS
from stackscope.analysis.metrics.base import ratio, unknown_needs
from stackscope.analysis.totals import PHASES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stackscope.analysis.comparing.digest import Digest

BY_TERMS: Final = {
    "weights": "weights", "head": "head", "compute": "more rows", "attention": "KV", "resident": "idle prefixes",
    "fixed": "fixed",
}  # fmt: skip
"""What the terms of the time model are called here."""

BY_BYTES: Final = dict(zip(PARTS, ("weights", "head", "KV", "other"), strict=True))


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


def moved(a: Digest, b: Digest) -> Moved | None:
    """Where the time of a step moved. `None`: one of them has no steps, or does not know their phases."""
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
    shares, split = _shares(a, b)
    decoding = [digest.total("decode") for digest in (a, b)]
    return Moved(
        step=part("step", a.total("busy"), b.total("busy")),
        phases=tuple(one for one in phases if one.a_ns > 0 or one.b_ns > 0),
        decode=tuple(
            part(name, shares[0][name] * decoding[0], shares[1][name] * decoding[1])
            for name in (shares[0] if shares else ())
            if shares[0][name] > 0 or shares[1][name] > 0
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


def _shares(a: Digest, b: Digest) -> tuple[tuple[Mapping[str, float], ...], str]:
    """(how each session's decode phase divides, in words)."""
    modelled = [_by_terms(digest) for digest in (a, b)]
    terms = [one for one in modelled if not isinstance(one, str)]
    if len(terms) == 2:
        worst = max((_misfit(digest) for digest in (a, b)), default=0.0)
        return tuple(terms), (
            "The forward is divided by the time model, calibrated and fitted to these steps, and scaled to what was"
            f" measured (by {worst:.0%} at most)."
        )
    why = next(one for one in modelled if isinstance(one, str))
    counted = [_by_bytes(digest) for digest in (a, b)]
    known = [one for one in counted if one is not None]
    if len(known) < 2:
        return (), "How the forward divides is not known: a model's geometry is not recorded."
    return tuple(known), (
        "The forward is divided by the bytes that the ledger counts, as if all took the same time; arithmetic is not in"
        f" it. The time model says nothing: {why}."
    )


def _by_terms(digest: Digest) -> dict[str, float] | str:
    found = digest.terms
    if isinstance(found, str):
        return found
    if found.predicted_ns <= 0:
        return "it predicts nothing"
    return {BY_TERMS[name]: ns / found.predicted_ns for name, ns in found.terms.items()}


def _misfit(digest: Digest) -> float:
    """How far the model is off on average, relatively."""
    found = digest.terms
    assert not isinstance(found, str)
    return abs(found.measured_ns / found.predicted_ns - 1)


def _by_bytes(digest: Digest) -> dict[str, float] | None:
    sizes = {BY_BYTES[name]: digest.total(name) for name in PARTS}
    whole = sum(sizes.values())
    return {name: size / whole for name, size in sizes.items()} if whole > 0 else None
