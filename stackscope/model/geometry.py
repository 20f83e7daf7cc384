"""Per-layer geometry from a GGUF file's metadata: heads, window, shared KV, recurrent state, latent attention.

Follows `llama_model_base::load_hparams` and `llama_hparams` of llama.cpp, key by key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackscope.characters import harmless
from stackscope.errors import ModelFileError
from stackscope.model import architectures as a
from stackscope.model.files import shown
from stackscope.records import LayerSummary

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MAX_LAYERS: Final = 512
"""LLAMA_MAX_LAYERS: the library asserts beyond it."""


class Keys:
    """The metadata of one architecture; every getter raises `ModelFileError` on a value of the wrong kind."""

    def __init__(self, path: Path, architecture: str, metadata: Mapping[str, object]) -> None:
        self.path = path
        self.architecture = architecture
        self._metadata = metadata

    def integer(self, name: str) -> int | None:
        """A whole number that is not negative. `None`: the file does not say."""
        value = self._value(name)
        return None if value is None else self._whole(name, value)

    def number(self, name: str, default: int = 0) -> int:
        """As `integer`, with what the library assumes when the file does not say."""
        value = self.integer(name)
        return default if value is None else value

    def required(self, name: str) -> int:
        value = self.integer(name)
        if value is None:
            key = f"{harmless(self.architecture)}.{name}"
            raise ModelFileError(f"{shown(self.path)} does not say its {key}.", remedy=_CONVERT)
        return value

    def per_layer(self, name: str, n_layers: int, *, default: list[int]) -> list[int]:
        """One number per layer; a single number in the file holds for all, `default` when it does not say."""
        value = self._value(name)
        if value is None:
            return default
        if not isinstance(value, list):
            return [self._whole(name, value)] * n_layers
        if len(value) != n_layers:
            raise self._wrong(name, f"{len(value)} values for {n_layers} layers")
        return [self._whole(name, element) for element in value]

    def flags(self, name: str) -> list[bool] | None:
        """A list of yes and no (as bools or as numbers). `None`: the file has none, or a single number instead."""
        value = self._value(name)
        return [self._whole(name, element) != 0 for element in value] if isinstance(value, list) else None

    def _value(self, name: str) -> object:
        key = f"{self.architecture}.{name}"
        value = self._metadata.get(key)
        if value is None and key in self._metadata:
            raise self._wrong(name, "no usable value")
        return value

    def _whole(self, name: str, value: object) -> int:
        if not isinstance(value, int) or value < 0:  # a bool is an int, and counts as 0 or 1
            raise self._wrong(name, repr(value))
        return int(value)

    def _wrong(self, name: str, what: str) -> ModelFileError:
        key = f"{harmless(self.architecture)}.{name}"
        return ModelFileError(f"{shown(self.path)} has {what} for {key}.", remedy=_CONVERT)


_CONVERT: Final = "Convert the model anew, or get it from another source."


def n_layers(keys: Keys) -> int:
    """Blocks that a forward runs: those in the file, less the ones that only predict further tokens (MTP)."""
    blocks = keys.required("block_count")
    extra = keys.number("nextn_predict_layers")
    if not 0 < blocks <= MAX_LAYERS or extra >= blocks:
        raise ModelFileError(
            f"{shown(keys.path)} claims {blocks} blocks, {extra} of them for prediction.", remedy=_CONVERT
        )
    return blocks - extra


def layers(keys: Keys) -> tuple[LayerSummary, ...]:
    """Geometry of every block that a forward runs."""
    count, blocks = n_layers(keys), keys.required("block_count")
    heads = keys.per_layer("attention.head_count", blocks, default=[0] * blocks)
    kv_heads = keys.per_layer("attention.head_count_kv", blocks, default=heads)
    recurrent = _recurrent(keys, kv_heads, count)
    windows = _windows(keys, count)
    state = _state_elements(keys, heads)
    attends = [_attends(keys, il, recurrent[il]) for il in range(count)]
    own_kv = _own_kv_layers(keys, blocks)
    is_latent = keys.number("attention.key_length_mla") > 0 and keys.number("attention.value_length_mla") > 0
    found: list[LayerSummary] = []
    for il in range(count):
        n_kv = kv_heads[il] if attends[il] else 0
        key_length, value_length = _head_lengths(keys, heads, is_windowed=windows[il] is not None)
        found.append(
            LayerSummary(
                heads=heads[il] if n_kv > 0 else 0,
                kv_heads=n_kv,
                key_length=key_length if n_kv > 0 else 0,
                value_length=value_length if n_kv > 0 else 0,
                window=windows[il] if n_kv > 0 else None,
                shares_kv=il >= own_kv,
                recurrent_state=state if recurrent[il] else 0,
                mla_rank=n_kv * key_length if is_latent and n_kv > 0 else None,
            )
        )
    return tuple(found)


def _head_lengths(keys: Keys, heads: list[int], *, is_windowed: bool) -> tuple[int, int]:
    """Elements of one head's key and value; windowed blocks may have their own."""
    if heads[0] == 0 and keys.architecture != "plamo2":  # the library then leaves them at zero
        return 0, 0
    even = keys.required("embedding_length") // heads[0] if heads[0] > 0 else 0
    lengths = []
    for name in ("attention.key_length", "attention.value_length"):
        full = keys.integer(name)
        length = even if full is None else full
        own = keys.integer(f"{name}_swa") if is_windowed else None
        lengths.append(length if own is None else own)
    if keys.architecture in ("kimi-k3", "glm5-next"):  # the cache holds the compressed latent
        lengths[1] = keys.required("attention.kv_lora_rank")
    return lengths[0], lengths[1]


def _windows(keys: Keys, count: int) -> list[int | None]:
    """Window of every block in tokens, as far as it attends; `None` is full attention."""
    rule = a.WINDOWS.get(keys.architecture)
    if rule is None or (rule.only_layers is not None and rule.only_layers != count):
        return [None] * count
    window = keys.integer("attention.sliding_window")
    if window is None:
        window = rule.default
    if window is None or window == 0:
        return [None] * count
    if rule.fixed is not None:
        window = rule.fixed
    listed = keys.flags("attention.sliding_window_pattern")
    if listed is None:
        listed = _pattern(keys, rule, count)
    listed = [*listed, *[False] * count][:count]
    return [window if is_windowed else None for is_windowed in listed]


def _pattern(keys: Keys, rule: a.WindowRule, count: int) -> list[bool]:
    """`llama_hparams::set_swa_pattern`; the period may stand in the file."""
    if rule.period is None:
        raise ModelFileError(f"{shown(keys.path)} does not list its sliding-window layers.", remedy=_CONVERT)
    period = keys.number("attention.sliding_window_pattern", rule.period)
    if period == 0:
        return [True] * count
    if rule.dense_first:
        return [il % period != 0 for il in range(count)]
    return [il % period < period - 1 for il in range(count)]


def _own_kv_layers(keys: Keys, blocks: int) -> int:
    """Leading blocks with a KV cache of their own; `has_kv` of the library."""
    if keys.architecture == "gemma4":
        return blocks - (keys.number("attention.shared_kv_layers"))
    return a.OWN_KV_LAYERS.get(keys.architecture, blocks)


def _recurrent(keys: Keys, kv_heads: list[int], count: int) -> list[bool]:
    """Which blocks keep a recurrent state."""
    if keys.architecture in a.RECURRENT or keys.architecture in a.RECURRENT_AND_ATTENDING:
        return [True] * count
    if keys.architecture in a.RECURRENT_WITHOUT_KV:
        return [kv_heads[il] == 0 and not _is_mlp(keys, il) for il in range(count)]
    if keys.architecture in a.FULL_ATTENTION_INTERVAL:
        interval = keys.number("full_attention_interval", a.FULL_ATTENTION_INTERVAL[keys.architecture])
        blocks = keys.required("block_count")
        spread = [int(interval == 0 or (il + 1) % interval != 0) for il in range(blocks)]
        return [flag != 0 for flag in keys.per_layer("attention.recurrent_layers", blocks, default=spread)[:count]]
    return [False] * count


def _attends(keys: Keys, il: int, is_recurrent: bool) -> bool:
    if keys.architecture in a.RECURRENT_AND_ATTENDING:
        return True
    return not is_recurrent and not _is_mlp(keys, il)


def _is_mlp(keys: Keys, il: int) -> bool:
    if keys.architecture not in a.MLP_BLOCKS:
        return False
    blocks = keys.required("block_count")
    return keys.per_layer("feed_forward_length", blocks, default=[0] * blocks)[il] > 0


def _state_elements(keys: Keys, heads: list[int]) -> int:
    """`n_embd_r` + `n_embd_s`: the rolling inputs and the state proper of one recurrent block, per sequence."""
    embedding = keys.required("embedding_length")
    wkv = keys.number("wkv.head_size")
    if wkv > 0:
        return keys.number("token_shift_count", 2) * embedding + embedding * wkv
    kernel, inner = keys.number("ssm.conv_kernel"), keys.number("ssm.inner_size")
    state, groups = keys.number("ssm.state_size"), keys.number("ssm.group_count")
    kda = keys.number("kda.head_dim")
    rolling = max(kernel - 1, 0) * (inner + 2 * groups * state)
    short = keys.number("shortconv.l_cache")
    if short > 0:
        rolling = embedding * (short - 1)
    elif kda > 0:
        rolling = 3 * (kernel - 1 if kernel > 0 else 3) * heads[0] * kda
    if kda > 0:
        return rolling + kda * kda * heads[0]
    if keys.architecture == "minimax-01":
        key_length, _ = _head_lengths(keys, heads, is_windowed=False)
        return rolling + key_length * key_length * heads[0]
    return rolling + state * inner
