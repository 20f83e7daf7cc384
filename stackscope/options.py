"""Every setting of a run in one table: what it sets, how it is spelled on the command line, what it means.

The command line is generated from it, and so are the `STACKSCOPE_*` variables; a settings file may set any field of
the sections directly.
"""

from __future__ import annotations

from functools import cache
from math import inf
from typing import Any, Final, Literal, get_type_hints

import msgspec

from stackscope import toggles, units
from stackscope.analysis.metrics.base import ServiceLimits
from stackscope.toggles import EngineConfig, Sampling
from stackscope.workload import spec
from stackscope.workload.spec import WorkloadSpec


class OutputOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where the results of a run go."""

    json: bool = False
    """Print one JSON object instead of a summary for people."""
    record: bool = True
    record_path: str | None = None
    """File or folder to record to. `None`: a name of its own in the usual folder."""
    record_text: bool = False
    """Store prompts and outputs too, not only their lengths."""


class LimitOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a request must keep to count as good. `None`: no limit of that kind."""

    ttft_ms: float | None = None
    """From arrival to the first token."""
    tpot_ms: float | None = None
    """Per output token after the first."""

    @property
    def service(self) -> ServiceLimits:
        """The limits in nanoseconds, as metrics take them."""
        ttft_ns, tpot_ns = (None if ms is None else round(ms * 1e6) for ms in (self.ttft_ms, self.tpot_ms))
        return ServiceLimits(ttft_ns=ttft_ns, tpot_ns=tpot_ns)


class ScreenOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the live screen looks."""

    theme: Literal["auto", "dark", "light", "ansi", "mono"] = "auto"
    """`auto`: what fits the terminal. `ansi`: the terminal's own sixteen colours. `mono`: none."""
    ascii: bool | None = None
    """Draw with ASCII characters alone. `None`: where the terminal has no others."""
    refresh_hz: float = 4.0
    """Most redraws per second."""


class Range(msgspec.Struct, frozen=True):
    """The values that a number may have: all above `least`, or with a `most`, from one to the other."""

    least: float
    most: float = inf
    is_above: bool = False
    """It is above `least` even with a `most`."""

    def __contains__(self, value: float) -> bool:
        is_above = self.is_above or self.most == inf
        return (value > self.least if is_above else value >= self.least) and value <= self.most

    def described(self, kind: str) -> str:
        """What is allowed in words; `kind` says of what."""
        if self.most == inf:
            return f"{kind} above {units.exact(self.least)}"
        if self.is_above:
            return f"{kind} above {units.exact(self.least)}, up to {units.exact(self.most)}"
        return f"{kind} from {units.exact(self.least)} to {units.exact(self.most)}"


SECTIONS: Final[dict[str, type[msgspec.Struct]]] = {
    "engine": EngineConfig,
    "sampling": Sampling,
    "workload": WorkloadSpec,
    "output": OutputOptions,
    "limits": LimitOptions,
    "screen": ScreenOptions,
}
"""The tables of a settings file that have a fixed set of keys."""

KEYS: Final = "keys"
"""The table that gives actions of the screen keys of one's own. Which actions there are, the screen knows."""

RANGES: Final[dict[str, Range]] = {
    "limits.ttft_ms": Range(0),
    "limits.tpot_ms": Range(0),
    "screen.refresh_hz": Range(0.1, 10),
    **{f"engine.{name}": Range(*bounds) for name, bounds in toggles.RANGES.items()},
    "engine.shadow_share": Range(0, 1, is_above=True),
    "engine.tensor_split": Range(0, 1e9),
    **{name if "." in name else f"workload.{name}": Range(*bounds) for name, bounds in spec.RANGES.items()},
}
"""Of what a field may be whatever the others are: checked where it is still known where a value came from."""

NESTED: Final = frozenset({"workload.sampling"})
"""Fields that are a section of their own."""

PATHS: Final = frozenset({"engine.model", "engine.draft_model", "workload.path", "output.record_path"})


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One option of `stackscope run`."""

    flags: str
    """As typer takes them: `--slots`, or `--prefix-cache/--no-prefix-cache`."""
    targets: tuple[str, ...]
    """The fields it sets, as `section.field`; several of one type share a value."""
    help: str
    metavar: str | None = None
    """What stands for the value in the help. `None`: its type."""

    @property
    def name(self) -> str:
        """As a Python identifier: `prefix_cache`."""
        return self.flags.split("/")[0].removeprefix("--").replace("-", "_")

    @property
    def variable(self) -> str:
        """The environment variable: `STACKSCOPE_PREFIX_CACHE`."""
        return f"STACKSCOPE_{self.name.upper()}"


@cache
def field_types() -> dict[str, Any]:
    """The type of every field that a settings file may set, as `{"engine.slots": int}`."""
    return {
        f"{section}.{field}": hint
        for section, struct in SECTIONS.items()
        for field, hint in get_type_hints(struct).items()
        if field in struct.__struct_fields__ and f"{section}.{field}" not in NESTED
    }


@cache
def field_defaults() -> dict[str, Any]:
    """The value of every field when nobody sets it."""
    return {
        f"{section}.{field}": getattr(struct(), field)
        for section, struct in SECTIONS.items()
        for field in struct.__struct_fields__
        if f"{section}.{field}" not in NESTED
    }


def _engine(flags: str, field: str, help: str, metavar: str | None = None) -> Option:
    return Option(flags=flags, targets=(f"engine.{field}",), help=help, metavar=metavar)


def _sampling(flags: str, field: str, help: str) -> Option:
    return Option(flags=flags, targets=(f"sampling.{field}",), help=help)


def _workload(flags: str, field: str, help: str, metavar: str | None = None) -> Option:
    return Option(flags=flags, targets=(f"workload.{field}",), help=help, metavar=metavar)


def _output(flags: str, field: str, help: str, metavar: str | None = None) -> Option:
    return Option(flags=flags, targets=(f"output.{field}",), help=help, metavar=metavar)


def _limit(flags: str, field: str, help: str) -> Option:
    return Option(flags=flags, targets=(f"limits.{field}",), help=help, metavar="MS")


def _screen(flags: str, field: str, help: str, metavar: str | None = None) -> Option:
    return Option(flags=flags, targets=(f"screen.{field}",), help=help, metavar=metavar)


_LENGTH: Final = "LENGTH"

OPTIONS: Final[tuple[Option, ...]] = (
    _engine("--model", "model", "Target: a .gguf file, or a name from `stackscope models list`.", "FILE|NAME"),
    _engine("--draft", "draft_model", "Draft model with the target's tokenizer, for --speculation draft.", "FILE|NAME"),
    _workload("--workload", "name", "Traffic: code, chat, rag, copy, unique, or a file of prompts.", "NAME|FILE"),
    _workload("--requests", "requests", "Stop after so many requests (`run`: 64 when --duration is not given either)."),
    _workload("--duration", "duration_s", "Offer nothing that arrives later than this.", "SECONDS"),
    _workload("--concurrency", "concurrency", "Closed loop: requests in flight."),
    _workload("--rate", "rate", "Open loop: requests per second, by --arrivals.", "PER_SECOND"),
    _workload("--arrivals", "arrivals", "Gaps of the open loop; trace takes the file's own times."),
    _workload("--burstiness", "burstiness", "Gamma arrivals: 1 is Poisson, less is burstier."),
    _workload("--time-scale", "time_scale", "Trace arrivals: 0.5 replays twice as fast."),
    _workload("--max-tokens", "max_tokens", "Cap on every request's output."),
    _workload(
        "--prompt-tokens", "prompt_tokens", "Length of a prompt's own part: 128, 64..256, geometric(200).", _LENGTH
    ),
    _workload("--output-tokens", "output_tokens", "Tokens to generate, request by request.", _LENGTH),
    _workload("--shared-tokens", "shared_tokens", "Length of the chat workload's system prompt, or of a rag document."),
    _workload("--documents", "documents", "How many files or documents the code and rag workloads share."),
    _workload("--turns", "turns", "User messages per conversation of the chat workload.", _LENGTH),
    _workload("--format", "format", "How to read a workload file."),
    _workload("--token-scale", "token_scale", "Mooncake traces: multiplies every length."),
    _workload("--truncate/--no-truncate", "truncate", "Cut the middle out of prompts that do not fit."),
    _workload("--template", "template", "Render messages by the model's own chat template, or plainly."),
    _workload("--ignore-eos/--no-ignore-eos", "ignore_eos", "Generate on past the end-of-sequence token."),
    _sampling("--temperature", "temperature", "0 is greedy."),
    _sampling("--top-k", "top_k", "Keep the k most probable tokens; 0 keeps all."),
    _sampling("--top-p", "top_p", "Keep the smallest set that reaches this probability."),
    _sampling("--min-p", "min_p", "Keep tokens at least this fraction as probable as the best."),
    Option(
        flags="--seed",
        targets=("workload.seed", "sampling.seed", "engine.seed"),
        help="All that is random comes from it.",
    ),
    _engine("--speculation", "speculation", "Where drafts come from."),
    _engine("--draft-length", "draft_length", "Tokens drafted per sequence and step at most."),
    _engine("--adaptive/--no-adaptive", "adaptive_draft", "Adapt the draft length to what is accepted."),
    _engine("--ngram-min", "ngram_min", "Shortest suffix that the n-gram drafter looks up."),
    _engine("--ngram-max", "ngram_max", "Longest suffix that the n-gram drafter looks up."),
    _engine("--synthetic-acceptance", "synthetic_acceptance", "Accept drafts at this rate; the text is then invalid."),
    _engine("--prefix-cache/--no-prefix-cache", "prefix_cache", "Keep prompts' KV for requests that begin the same."),
    _engine("--block-tokens", "block_tokens", "Granularity of the prefix cache."),
    _engine("--cache-tokens", "cache_tokens", "Most tokens that idle cached prefixes hold."),
    _engine("--cache-paths", "cache_paths", "Cached paths; each owns a sequence id."),
    _engine("--slots", "slots", "Requests in the batch at most."),
    _engine("--token-budget", "token_budget", "Rows of one forward at most; longer prompts are prefilled in chunks."),
    _engine("--context", "context_tokens", "KV cells of the whole context."),
    _engine("--slots-max", "slots_max", "Slots that the context is sized for."),
    _engine("--draft-length-max", "draft_length_max", "Draft length that the context is sized for."),
    Option(flags="--kv-type", targets=("engine.kv_type_k", "engine.kv_type_v"), help="Type of the KV cache, K and V."),
    _engine("--kv-type-k", "kv_type_k", "Type of the K cache alone."),
    _engine("--kv-type-v", "kv_type_v", "Type of the V cache alone."),
    _engine(
        "--flash-attention/--no-flash-attention", "flash_attention", "Fused attention; a quantised V cache needs it."
    ),
    _engine("--unified-kv/--split-kv", "unified_kv", "One KV cache for all sequences, or a part for each."),
    _engine("--swa-full/--no-swa-full", "swa_full", "Keep sliding-window layers' cells beyond the window."),
    _engine("--threads", "threads", "Engine threads (the usable physical cores when not given)."),
    _engine("--shadows/--no-shadows", "shadows", "Find out beside the traffic what is off would do (1 % of the time)."),
    _engine("--shadow-share", "shadow_share", "Part of the time that this may take (0.008, and 0.002 around it)."),
    _engine(
        "--causal-probes/--no-causal-probes",
        "causal_probes",
        "Delay a part of a step now and then, to see what it holds up.",
    ),
    _engine("--gpu-layers", "gpu_layers", "Layers to offload where the build can; -1 is all."),
    _engine("--main-gpu", "main_gpu", "Index of the GPU for what is not split."),
    _engine("--split-mode", "split_mode", "How the model is split over several GPUs."),
    _engine("--tensor-split", "tensor_split", "Share of each GPU: 3,1.", "SHARES"),
    _limit("--ttft-limit", "ttft_ms", "Longest time to first token of a request that counts as good."),
    _limit("--tpot-limit", "tpot_ms", "Longest time per output token of such a request."),
    _output("--json/--no-json", "json", "Print one JSON object instead of the summary."),
    _output("--record", "record_path", "File or folder to record to.", "PATH"),
    _output("--recording/--no-record", "record", "Whether to record the run at all."),
    _output("--record-text/--no-record-text", "record_text", "Record prompts and outputs, not only their lengths."),
    _screen("--theme", "theme", "Colours of the live screen; auto is what fits the terminal."),
    _screen(
        "--ascii/--no-ascii", "ascii", "Draw the live screen with ASCII alone (as the terminal can, if not given)."
    ),
    _screen("--refresh", "refresh_hz", "Most redraws of the live screen per second.", "HZ"),
)
"""In the order of the help. An option with several targets comes before those that refine one of them."""
