"""The description of a workload: one frozen value for the wire, the session header and the screen."""

from __future__ import annotations

import math
import re
from pathlib import PurePath
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from stackscope import units
from stackscope.errors import WorkloadError
from stackscope.toggles import Sampling

BuiltIn: TypeAlias = Literal["code", "chat", "rag", "copy", "unique"]
Format: TypeAlias = Literal["auto", "jsonl", "sharegpt", "openai-batch", "mooncake"]
Arrivals: TypeAlias = Literal["poisson", "gamma", "uniform", "trace"]
LengthKind: TypeAlias = Literal["fixed", "uniform", "lognormal", "geometric"]

BUILT_INS: Final[tuple[BuiltIn, ...]] = get_args(BuiltIn)

MOST_TOKENS: Final = 10_000_000
"""No length may exceed this: far above any context, far below what overflows a C int."""
MOST_RATE: Final = 1_000_000.0
MOST_CONCURRENCY: Final = 1_000_000

# A length without a `high` is cut at this many means: it changes the mean of a geometric by 0.3 %, and without a bound
# no document could be sized so that question and answer still fit.
TAIL_MEANS: Final = 8


class Length(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A distribution of token or turn counts, always whole, at least 1, and bounded."""

    kind: LengthKind = "fixed"
    mean: float | None = None
    """Mean before clipping. `None` with `uniform`, which is given by `low` and `high`."""
    spread: float = 0.0
    """Lognormal only: coefficient of variation, standard deviation ÷ mean."""
    low: int = 1
    """Draws below are raised to it."""
    high: int | None = None
    """Draws above are lowered to it. `None`: eight means."""

    @classmethod
    def fixed(cls, tokens: int) -> Length:
        return cls(kind="fixed", mean=float(tokens))

    @classmethod
    def uniform(cls, low: int, high: int) -> Length:
        return cls(kind="uniform", low=low, high=high)

    @classmethod
    def lognormal(cls, mean: float, spread: float) -> Length:
        return cls(kind="lognormal", mean=mean, spread=spread)

    @classmethod
    def geometric(cls, mean: float) -> Length:
        return cls(kind="geometric", mean=mean)

    @property
    def most(self) -> int:
        """The largest value a draw can take."""
        if self.high is not None:
            return self.high
        mean = 1.0 if self.mean is None else self.mean
        return max(self.low, round(mean) if self.kind == "fixed" else math.ceil(TAIL_MEANS * mean))

    def __str__(self) -> str:
        match self.kind:
            case "fixed":
                return f"{self.mean:g}"
            case "uniform":
                return f"{self.low}..{self.high}"
            case "lognormal":
                return f"lognormal({self.mean:g}, {self.spread:g})"
            case "geometric":
                return f"geometric({self.mean:g})"


class WorkloadSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What traffic to offer: which prompts, how long, how many, how fast. Everything random comes from `seed`."""

    name: BuiltIn | None = None
    """A built-in workload. `None`: `path` names a file."""
    path: str | None = None
    format: Format = "auto"
    """How to read `path`; `auto` decides by its first line."""

    requests: int | None = None
    """Stop after this many. `None`: no such limit; a file is then started over at its end."""
    duration_s: float | None = None
    """Offer nothing that arrives later than this many seconds after the start. `None`: no such limit."""

    concurrency: int = 8
    """Closed loop: requests in flight. Open loop: conversations kept open at a time. Also how many conversations are
    numbered in one go, so that a run with another concurrency may reach other turns of them."""
    rate: float | None = None
    """Open loop: requests per second. `None`: closed loop, unless `arrivals` is `trace`."""
    arrivals: Arrivals = "poisson"
    """Gaps of the open loop; `trace` takes the arrival times of the file."""
    burstiness: float = 1.0
    """Gamma arrivals only: shape of the gaps (variance = mean² ÷ shape); 1 is Poisson, less is burstier."""
    time_scale: float = 1.0
    """Trace arrivals only: seconds of the run per second of the trace; 0.5 replays twice as fast."""

    prompt_tokens: Length | None = None
    """Length of what belongs to one request: the code before the cursor, one chat message, a question about a
    document, the passage to copy, a whole unshared prompt. `None`: as the built-in comes."""
    output_tokens: Length | None = None
    """Tokens to generate at most, request by request. `None`: as the built-in comes or the file says."""
    max_tokens: int | None = None
    """Cap on every request's output. `None`: no cap but the context."""
    shared_tokens: int | None = None
    """`chat`: length of the system prompt; `rag`: length of a document. `None`: as the built-in comes."""
    documents: int | None = None
    """`code`: files; `rag`: documents. `None`: as the built-in comes."""
    turns: Length | None = None
    """`chat`: user messages per conversation. `None`: as the built-in comes."""
    token_scale: float = 1.0
    """Mooncake traces only: multiplies the block of 512 tokens and every length, to fit a small context."""

    truncate: bool = False
    """Leave out the middle of a file's prompt that does not fit the context. False: refuse it, naming its line."""
    template: Literal["model", "plain"] = "model"
    """How messages become text: by the model's chat template where it has one, or always as plain text."""
    sampling: Sampling = Sampling()
    """What a file does not say itself, request by request."""
    ignore_eos: bool = False
    seed: int = 0

    @property
    def is_open_loop(self) -> bool:
        """Requests arrive by themselves, whether or not earlier ones have finished."""
        return self.rate is not None or self.arrivals == "trace"

    @property
    def is_endless(self) -> bool:
        return self.requests is None and self.duration_s is None


RANGES: Final[dict[str, tuple[float, float]]] = {
    "requests": (1, 10**12),
    "duration_s": (0.001, 10**9),
    "concurrency": (1, MOST_CONCURRENCY),
    "rate": (1e-6, MOST_RATE),
    "burstiness": (0.001, 1_000),
    "time_scale": (1e-6, 1e6),
    "token_scale": (1e-3, 1),
    "max_tokens": (1, MOST_TOKENS),
    "shared_tokens": (1, MOST_TOKENS),
    "documents": (1, 10_000),
    "seed": (0, 2**63 - 1),
    "sampling.temperature": (0, 100),
    "sampling.top_k": (0, 2**31 - 1),
    "sampling.top_p": (0, 1),
    "sampling.min_p": (0, 1),
}
"""Least and most of every number, by its field. `None` is always allowed."""


def parse_length(text: str) -> Length:
    """Read a length as it is typed: `128`, `64..256`, `lognormal(200, 0.6)` (mean, variation) or `geometric(200)`.

    Raises WorkloadError for anything else, numbers of more digits than Python reads among them.
    """
    number = r"\s*([0-9]{1,99}(?:\.[0-9]{1,99})?)\s*"
    stripped = text.strip().lower()
    if match := re.fullmatch(r"([0-9]{1,99})", stripped):
        length = Length.fixed(int(match[1]))
    elif match := re.fullmatch(r"([0-9]{1,99})\s*\.\.\s*([0-9]{1,99})", stripped):
        length = Length.uniform(int(match[1]), int(match[2]))
    elif match := re.fullmatch(rf"lognormal\({number},{number}\)", stripped):
        length = Length.lognormal(float(match[1]), float(match[2]))
    elif match := re.fullmatch(rf"geometric\({number}\)", stripped):
        length = Length.geometric(float(match[1]))
    else:
        raise WorkloadError(
            f"{text!r} is not a length.", remedy="Write 128, 64..256, lognormal(200, 0.6) or geometric(200)."
        )
    validate_length("a length", length)
    return length


def describe(spec: WorkloadSpec) -> str:
    """The workload on one line: what, how offered, until when, from which seed."""
    parts = [spec.name if spec.name is not None else PurePath(spec.path or "").name]
    if spec.rate is not None:
        shape = f" (burstiness {spec.burstiness:g})" if spec.arrivals == "gamma" else ""
        parts.append(f"open loop, {spec.rate:g} requests/s, {spec.arrivals}{shape}")
    elif spec.arrivals == "trace":
        parts.append("open loop, the trace's arrivals" + (f" × {spec.time_scale:g}" if spec.time_scale != 1 else ""))
    else:
        parts.append(f"closed loop, {spec.concurrency} in flight")
    parts += [
        f"{label} {value}"
        for label, value in (
            ("prompt", spec.prompt_tokens),
            ("output", spec.output_tokens),
            ("output ≤", spec.max_tokens),
            ("shared", spec.shared_tokens),
            ("documents", spec.documents),
            ("turns", spec.turns),
        )
        if value is not None
    ]
    if spec.token_scale != 1:
        parts.append(f"tokens × {spec.token_scale:g}")
    if spec.requests is not None:
        parts.append(units.counted(spec.requests, "request"))
    if spec.duration_s is not None:
        parts.append(units.duration(round(spec.duration_s * 1e9)))
    if spec.is_endless:
        parts.append("endless")
    parts.append(f"seed {spec.seed}")
    return " · ".join(parts)


def validate(spec: WorkloadSpec) -> None:
    """Refuse a description that contradicts itself or leaves the range in which it means something.

    Touches no file. Raises WorkloadError with one sentence.
    """
    if (spec.name is None) == (spec.path is None):
        raise WorkloadError(
            "A workload is either a built-in or a file.", remedy=f"Name one of {', '.join(BUILT_INS)}, or give a path."
        )
    if spec.name is not None and spec.name not in BUILT_INS:
        raise WorkloadError(f"There is no built-in workload {spec.name!r}.", remedy=f"Use {', '.join(BUILT_INS)}.")
    _validate_choices(spec)
    _validate_numbers(spec)
    _validate_loop(spec)
    _refuse_unused(spec)


def validate_length(label: str, length: Length) -> None:
    """Refuse a length without a mean, with an empty range or out of bounds. Raises WorkloadError."""
    if length.kind not in get_args(LengthKind):
        raise WorkloadError(f"{label}: there is no distribution {length.kind!r}.")
    if length.kind == "uniform":
        if length.high is None:
            raise WorkloadError(f"{label}: a uniform length needs a highest value.")
    elif length.mean is None:
        raise WorkloadError(f"{label}: a {length.kind} length needs a mean.")
    else:
        _between(f"the mean of {label}", length.mean, 1, MOST_TOKENS)
    _between(f"the spread of {label}", length.spread, 0, 10)
    _between(f"the lowest value of {label}", length.low, 1, MOST_TOKENS)
    if length.high is not None:
        _between(f"the highest value of {label}", length.high, 1, MOST_TOKENS)
        if length.high < length.low:
            raise WorkloadError(f"the highest value of {label}, {length.high}, is below the lowest, {length.low}.")


def _between(label: str, value: float, low: float, high: float, *, setting: str | None = None) -> None:
    # Written so that NaN fails too.
    if not low <= value <= high:
        raise WorkloadError(f"{label} must lie between {low:,} and {high:,}, not at {value}.", setting=setting)


def _validate_choices(spec: WorkloadSpec) -> None:
    for label, value, choices in (
        ("format", spec.format, get_args(Format)),
        ("arrivals", spec.arrivals, get_args(Arrivals)),
        ("template", spec.template, ("model", "plain")),
    ):
        if value not in choices:
            raise WorkloadError(f"{label}: there is no {value!r}.", remedy=f"Use {', '.join(choices)}.", setting=label)


def _validate_numbers(spec: WorkloadSpec) -> None:
    for label, (low, high) in RANGES.items():
        value = getattr(spec.sampling if "." in label else spec, label.removeprefix("sampling."))
        if value is not None:
            _between(label, value, low, high, setting=label)
    for label, length in (
        ("prompt_tokens", spec.prompt_tokens),
        ("output_tokens", spec.output_tokens),
        ("turns", spec.turns),
    ):
        if length is not None:
            validate_length(label, length)


def _validate_loop(spec: WorkloadSpec) -> None:
    if spec.arrivals == "trace" and spec.rate is not None:
        raise WorkloadError(
            "Arrivals come either from the trace or at a rate.",
            remedy="Leave out the rate; a time scale stretches or shrinks a trace.",
        )
    if spec.arrivals == "trace" and spec.path is None:
        raise WorkloadError(f"The built-in workload {spec.name} has no trace of arrivals.", remedy="Give a rate.")
    if spec.burstiness != 1 and spec.arrivals != "gamma":
        raise WorkloadError(
            f"burstiness has no meaning for {spec.arrivals} arrivals.",
            remedy="Use gamma arrivals.",
            setting="burstiness",
        )
    if spec.time_scale != 1 and spec.arrivals != "trace":
        raise WorkloadError(
            "time_scale only stretches the arrivals of a trace.", remedy="Use trace arrivals.", setting="time_scale"
        )
    if spec.rate is None and spec.arrivals in ("gamma", "uniform"):
        raise WorkloadError(f"{spec.arrivals} arrivals need a rate.", remedy="Give requests per second.")


def _refuse_unused(spec: WorkloadSpec) -> None:
    """An option that a workload would ignore is refused: the user believes it does something."""
    what = f"the workload {spec.name}" if spec.name is not None else "a file"
    used: dict[str, tuple[str | None, ...]] = {
        "prompt_tokens": BUILT_INS,
        "shared_tokens": ("chat", "rag"),
        "documents": ("code", "rag"),
        "turns": ("chat",),
        "format": (None,),
        "token_scale": (None,),
        "truncate": (None,),
    }
    defaults = WorkloadSpec()
    for option, users in used.items():
        if getattr(spec, option) != getattr(defaults, option) and spec.name not in users:
            raise WorkloadError(f"{option} has no meaning for {what}.", remedy="Leave it out.", setting=option)
