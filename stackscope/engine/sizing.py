"""From a configuration and a model to the exact size of a context, or the reason why there can be none.

Pure arithmetic and refusals: the library asserts and aborts on most of what is checked here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from stackscope.analysis.kv import kv_bytes_per_token
from stackscope.errors import ToggleRefusedError
from stackscope.model.ggml_types import BY_NAME
from stackscope.toggles import CELL_PADDING, LEAST_DRAFT_SIZE, MOST_ROWS, MOST_SEQUENCES, ORDERED, RANGES

if TYPE_CHECKING:
    from stackscope.records import ModelSummary
    from stackscope.toggles import EngineConfig

DEFAULT_SLOT_CONTEXT: Final = 4096
DEFAULT_CONTEXT_CAP: Final = 32_768
"""Cells of a context nobody asked for: enough to work with, small enough to fit beside the model."""
DEFAULT_STREAM: Final = 1024
"""Cells of each stream of a split cache that nobody gave a size, while no request is longer."""
MIN_BATCH: Final = 512
MODEST: Final = 0.25
"""Of the free memory, what a context may take for requests that may never come."""


class ContextSize(msgspec.Struct, frozen=True, kw_only=True):
    """What a context is created with. Live toggles move below these limits; beyond one is a rebuild."""

    n_ctx: int
    """KV cells of the whole context."""
    n_ctx_seq: int
    """Most tokens that one sequence can hold."""
    n_batch: int
    n_ubatch: int
    n_seq_max: int
    n_outputs_max: int
    """Logit rows that one forward may ask for."""
    slots_max: int
    draft_length_max: int
    threads: int
    is_unified: bool
    n_paths: int
    """Sequence ids owned by cached paths; they follow those of the slots."""
    has_guards: bool
    """Every cached path has a second id: the library gives away sliding-window cells that carry only one."""

    @property
    def path_ids(self) -> range:
        return range(self.slots_max, self.slots_max + self.n_paths)

    @property
    def guard_ids(self) -> range:
        first = self.slots_max + self.n_paths
        return range(first, first + self.n_paths) if self.has_guards else range(0)


def resolve(config: EngineConfig, model: ModelSummary, *, usable_threads: int, longest_request: int = 0) -> ContextSize:
    """The context that a configuration needs. Raises `ToggleRefusedError` with the reason it cannot exist.

    `longest_request` is the tokens, prompt and output together, of the longest request that is known of: where no
    size was asked for, a sequence holds it, as far as the model's own context goes.
    """
    _check_numbers(config)
    _check_types(config, model)
    slots_max = config.slots_max if config.slots_max is not None else max(config.slots, 16)
    draft_max = config.draft_length_max
    if draft_max is None:
        draft_max = max(config.draft_length, LEAST_DRAFT_SIZE)
    has_guards = config.unified_kv and smallest_window(model) is not None
    n_seq = slots_max + config.cache_paths * (2 if has_guards else 1)
    _require(
        n_seq <= MOST_SEQUENCES,
        f"{slots_max} slots and {config.cache_paths} cached paths need {n_seq} of {MOST_SEQUENCES} sequence ids.",
        "Lower --slots or --cache-paths.",
    )
    rows = slots_max * (draft_max + 1)
    n_batch = max(MIN_BATCH, config.token_budget, rows)
    _require(
        n_batch <= MOST_ROWS,
        f"{slots_max} slots × {draft_max + 1} rows, or the token budget, need a batch of {n_batch} rows.",
        f"Stay at or below {MOST_ROWS}: lower --slots, --draft-length or --token-budget.",
    )
    n_ctx, n_ctx_seq = _cells(config, model, n_seq, longest_request)
    return ContextSize(
        n_ctx=n_ctx,
        n_ctx_seq=n_ctx_seq,
        n_batch=n_batch,
        n_ubatch=n_batch,
        n_seq_max=n_seq,
        # The library reserves an output row per sequence id whatever is asked, and asserts on less.
        n_outputs_max=max(rows, n_seq),
        slots_max=slots_max,
        draft_length_max=draft_max,
        threads=config.threads if config.threads is not None else usable_threads,
        is_unified=config.unified_kv,
        n_paths=config.cache_paths,
        has_guards=has_guards,
    )


def _cells(config: EngineConfig, model: ModelSummary, n_seq: int, longest: int) -> tuple[int, int]:
    """(cells of the context, most tokens of one sequence)."""
    if model.context > 0:
        longest = min(longest, model.context)
    per_slot = min(model.context, DEFAULT_SLOT_CONTEXT) if model.context > 0 else DEFAULT_SLOT_CONTEXT
    if config.unified_kv:
        wanted = config.context_tokens
        if wanted is None:
            wanted = max(min(config.slots * per_slot, DEFAULT_CONTEXT_CAP), per_slot, longest)
        cells = _padded(wanted)
        # The model's declared context bounds a sequence; cells beyond it only serve more sequences.
        return cells, min(cells, model.context) if model.context > 0 else cells
    if config.context_tokens is not None:
        per_stream = _padded(max(1, config.context_tokens // n_seq))
    else:
        per_stream = _padded(_stream(per_slot, longest))
    bound = min(per_stream, model.context) if model.context > 0 else per_stream
    return per_stream * n_seq, bound


def _stream(per_slot: int, longest: int) -> int:
    """Tokens of one stream of a split cache that nobody gave a size: every sequence id has one, used or not."""
    least = min(per_slot, DEFAULT_STREAM)
    if longest <= least:
        return least
    # Requests to come may be somewhat longer than all before them.
    return max(longest, min(longest + longest // 4, per_slot))


def longest_with_room(
    config: EngineConfig, model: ModelSummary, *, usable_threads: int, most: int, longest: int, free: int | None
) -> int:
    """Tokens of the longest request that a context is rebuilt for: `most`, all that could be asked for before, where
    that takes little of the `free` bytes, else the `longest` so far. Raises `ToggleRefusedError`."""
    size = resolve(config, model, usable_threads=usable_threads, longest_request=most)
    is_modest = free is not None and memory_estimate(config, size, model) <= MODEST * free
    return most if is_modest else longest


def check_room(config: EngineConfig, size: ContextSize, longest_request: int) -> None:
    """Refuse a context in which a request in flight would be cut short. `longest_request`: its tokens, with output."""
    if longest_request <= size.n_ctx_seq:
        return
    what = f"A request in flight may take {longest_request:,} tokens, and a sequence would hold {size.n_ctx_seq:,}"
    later = "Try again when such requests have ended"
    streams = 1 if config.unified_kv else size.n_seq_max
    if config.context_tokens is None or size.n_ctx // streams > size.n_ctx_seq:
        raise ToggleRefusedError(f"{what}, the context that the model was trained for.", remedy=f"{later}.")
    why = "" if config.unified_kv else f", as split KV parts the context among {streams} sequences"
    raise ToggleRefusedError(
        f"{what}{why}.",
        remedy=f"{later}, or start with --context {streams * _padded(longest_request)}.",
    )


def _padded(cells: int) -> int:
    return -(-cells // CELL_PADDING) * CELL_PADDING


def _require(holds: bool, message: str, remedy: str) -> None:
    if not holds:
        raise ToggleRefusedError(message, remedy=remedy)


def _check_numbers(config: EngineConfig) -> None:
    for name, (low, high) in RANGES.items():
        value = getattr(config, name)
        if value is not None:
            _require(low <= value <= high, f"{name} is {value}.", f"Choose {low} to {high}.")
    for name, other in ORDERED:
        value, most = getattr(config, name), getattr(config, other)
        if value is not None and most is not None:
            _require(value <= most, f"{name} {value} is above {other} {most}.", "Lower the one, or raise the other.")
    _require(
        0.0 < config.shadow_share <= 1.0,
        f"shadow_share is {config.shadow_share}.",
        "Choose a part of the time, up to 1, or switch shadows off.",
    )
    _require(
        all(0.0 <= share < 1e9 for share in config.tensor_split),
        f"tensor_split {config.tensor_split} has a negative or absurd share.",
        "Give one non-negative number per device.",
    )


def _check_types(config: EngineConfig, model: ModelSummary) -> None:
    v_quantised = BY_NAME[config.kv_type_v].is_quantized
    _require(
        not v_quantised or config.flash_attention,
        f"A quantised V cache ({config.kv_type_v}) needs flash attention, which is off.",
        "Switch flash attention on, or keep the V cache at f16.",
    )
    for layer in model.layers:
        if layer.kv_heads == 0:
            continue
        for what, kind, width in (
            ("K", config.kv_type_k, layer.key_length),
            ("V", config.kv_type_v, layer.value_length),
        ):
            block = BY_NAME[kind].block
            _require(
                width % block == 0,
                f"A {kind} {what} cache needs head sizes that are multiples of {block}; this model has {width}.",
                "Choose f16 for it.",
            )


def smallest_window(model: ModelSummary) -> int | None:
    """Tokens of the narrowest sliding window. `None`: every layer attends to everything."""
    return min((layer.window for layer in model.layers if layer.window is not None), default=None)


def kv_bytes_per_cell(config: EngineConfig, model: ModelSummary) -> int:
    """Bytes of KV that one cell takes over all layers."""
    return kv_bytes_per_token(model, config.kv_type_k, config.kv_type_v)


def memory_estimate(config: EngineConfig, size: ContextSize, model: ModelSummary) -> int:
    """Bytes that a context takes beside the weights: KV cells and one vocabulary row of f32 per output."""
    return size.n_ctx * kv_bytes_per_cell(config, model) + size.n_outputs_max * model.vocabulary * 4


def check_memory(estimate: int, available: int | None) -> None:
    """Refuse a context that cannot fit. `available` None: unknown, nothing is refused."""
    if available is not None and estimate > available:
        raise ToggleRefusedError(
            f"The context would take {estimate / 1e9:.1f} GB and {available / 1e9:.1f} GB are free.",
            remedy="Ask for fewer --context tokens or --slots, or a smaller --kv-type.",
        )


def fits_live(config: EngineConfig, size: ContextSize) -> str | None:
    """Why a live change goes beyond what the context was sized for. `None`: it fits."""
    if config.slots > size.slots_max:
        return f"the context is sized for {size.slots_max} slots"
    if config.draft_length > size.draft_length_max:
        return f"the context is sized for drafts of {size.draft_length_max}"
    if config.token_budget > size.n_batch:
        return f"the context is sized for batches of {size.n_batch} rows"
    return None
