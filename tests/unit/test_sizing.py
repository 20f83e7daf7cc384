"""The size of a context, and every refusal that keeps a bad number out of native code."""

from __future__ import annotations

import msgspec
import pytest

from stackscope.engine import sizing
from stackscope.errors import ToggleRefusedError
from stackscope.records import LayerSummary, ModelSummary
from stackscope.toggles import EngineConfig

LAB_LAYER = LayerSummary(heads=4, kv_heads=2, key_length=64, value_length=64)


def model(**changes: object) -> ModelSummary:
    base = ModelSummary(
        name="lab", path="lab.gguf", architecture="llama", file_bytes=1, tensor_bytes=1, parameters=1, vocabulary=4096,
        context=2048, embedding=256, layers=(LAB_LAYER,) * 6, tensors=(),
    )  # fmt: skip
    return msgspec.structs.replace(base, **changes)


def resolve(config: EngineConfig, spec: ModelSummary | None = None) -> sizing.ContextSize:
    return sizing.resolve(config, spec if spec is not None else model(), usable_threads=2)


def test_the_default_context_serves_eight_slots_and_grows_to_sixteen_live() -> None:
    size = resolve(EngineConfig())
    assert size.slots_max == 16
    assert size.draft_length_max == 8
    assert size.n_seq_max == 16 + 32
    assert size.n_outputs_max == 16 * 9  # slots × (draft length + 1), more than the 48 sequence ids
    assert size.n_batch == 512
    assert size.n_ctx == 8 * 2048
    assert size.n_ctx_seq == 2048
    assert list(size.path_ids) == list(range(16, 48))
    assert size.threads == 2


def test_output_rows_never_fall_below_one_per_sequence_id() -> None:
    size = resolve(EngineConfig(slots=1, slots_max=1, draft_length=1, draft_length_max=1, cache_paths=64))
    assert size.n_outputs_max == 65  # 1 × 2 rows asked for, 65 ids: the library asserts on less


def test_split_kv_gives_each_sequence_its_own_padded_stream() -> None:
    size = resolve(EngineConfig(slots=2, slots_max=2, cache_paths=2, unified_kv=False, context_tokens=2000))
    assert size.n_ctx_seq == 512  # 2000 / 4 sequences, rounded up to 256 cells
    assert size.n_ctx == 4 * 512


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("token_budget", 0), ("token_budget", -1), ("token_budget", 2**31), ("slots", 0), ("slots", 257),
        ("draft_length", 0), ("context_tokens", 0), ("context_tokens", 2**31), ("threads", 0), ("block_tokens", 0),
        ("cache_paths", 0), ("synthetic_acceptance", 1.5), ("synthetic_acceptance", float("nan")), ("gpu_layers", -2),
        ("ngram_min", 5), ("tensor_split", (-1.0,)), ("slots_max", 4), ("draft_length_max", 2),
    ],
)  # fmt: skip
def test_a_bad_number_is_refused_with_its_name_and_a_remedy(name: str, value: object) -> None:
    with pytest.raises(ToggleRefusedError, match=name) as caught:
        resolve(msgspec.structs.replace(EngineConfig(), **{name: value}))
    assert caught.value.remedy


def test_more_sequence_ids_than_the_library_has_are_refused() -> None:
    with pytest.raises(ToggleRefusedError, match="257 of 256"):
        resolve(EngineConfig(slots=2, slots_max=2, cache_paths=255))


def test_a_quantised_v_cache_needs_flash_attention() -> None:
    with pytest.raises(ToggleRefusedError, match=r"q8_0.*flash attention"):
        resolve(EngineConfig(kv_type_v="q8_0", flash_attention=False))
    assert resolve(EngineConfig(kv_type_k="q8_0", flash_attention=False)).n_ctx > 0


def test_block_types_need_head_sizes_that_are_whole_blocks() -> None:
    odd = LayerSummary(heads=4, kv_heads=2, key_length=80, value_length=64)
    with pytest.raises(ToggleRefusedError, match="multiples of 32; this model has 80"):
        resolve(EngineConfig(kv_type_k="q8_0"), model(layers=(odd,)))


def test_kv_bytes_of_a_cell_add_up_over_layers() -> None:
    # 6 layers × (2 heads × 64) × (K + V) × 2 bytes
    assert sizing.kv_bytes_per_cell(EngineConfig(), model()) == 6 * 128 * 2 * 2
    # q8_0 stores 32 elements in 34 bytes
    quantised = EngineConfig(kv_type_k="q8_0", kv_type_v="q8_0")
    assert sizing.kv_bytes_per_cell(quantised, model()) == 6 * 2 * 128 // 32 * 34


def test_recurrent_and_sharing_layers_store_no_kv() -> None:
    recurrent = LayerSummary(heads=0, kv_heads=0, key_length=0, value_length=0, recurrent_state=1024)
    sharing = msgspec.structs.replace(LAB_LAYER, shares_kv=True)
    spec = model(layers=(LAB_LAYER, recurrent, sharing))
    assert sizing.kv_bytes_per_cell(EngineConfig(), spec) == 128 * 2 * 2


def test_a_context_larger_than_free_memory_is_refused_before_it_is_created() -> None:
    config = EngineConfig(context_tokens=2**30)
    estimate = sizing.memory_estimate(config, resolve(config), model())
    assert estimate >= 2**30 * 3072
    with pytest.raises(ToggleRefusedError, match=r"would take 3298.5 GB and 1.0 GB are free"):
        sizing.check_memory(2**30 * 3072 + 2 * 10**6, 10**9)
    sizing.check_memory(estimate, None)  # unknown refuses nothing


def test_logit_rows_cost_one_vocabulary_row_each() -> None:
    # 144 rows × 4096 × 4 bytes, beside 16,384 cells × 3,072 bytes
    size = resolve(EngineConfig())
    assert sizing.memory_estimate(EngineConfig(), size, model()) == 144 * 4096 * 4 + 16_384 * 3072


def test_live_changes_stay_below_what_the_context_was_sized_for() -> None:
    size = resolve(EngineConfig())
    assert sizing.fits_live(EngineConfig(slots=16, draft_length=8, token_budget=512), size) is None
    assert "16 slots" in str(sizing.fits_live(EngineConfig(slots=17), size))
    assert "drafts of 8" in str(sizing.fits_live(EngineConfig(draft_length=9), size))
    assert "512 rows" in str(sizing.fits_live(EngineConfig(token_budget=513), size))


def held(config: EngineConfig, longest: int, spec: ModelSummary | None = None) -> sizing.ContextSize:
    spec = spec if spec is not None else model()
    return sizing.resolve(config, spec, usable_threads=2, longest_request=longest)


def test_a_split_cache_that_nobody_gave_a_size_holds_the_longest_request() -> None:
    split = EngineConfig(unified_kv=False)
    assert held(split, 0).n_ctx_seq == held(split, 1024).n_ctx_seq == 1024
    assert held(split, 1115).n_ctx_seq == 1536  # A quarter more, for requests to come, rounded up to 256 cells.
    assert held(split, 1115).n_ctx == 1536 * 48
    assert held(split, 2040).n_ctx_seq == 2048
    assert held(split, 3000).n_ctx_seq == 2048  # The model's own.
    assert held(split, 9000, model(context=32_768)).n_ctx_seq == 9216  # Beyond what is usual there is no surplus.


def test_so_does_a_unified_one() -> None:
    long = model(context=100_000)
    assert held(EngineConfig(slots=1), 0, long).n_ctx_seq == 4096
    assert held(EngineConfig(slots=1), 50_000, long).n_ctx_seq == 50_176


def test_a_size_that_was_asked_for_stays_and_has_no_room_for_a_longer_request() -> None:
    split = EngineConfig(unified_kv=False, context_tokens=48 * 512)
    size = held(split, 1115)
    assert size.n_ctx_seq == 512
    sizing.check_room(split, size, 512)
    with pytest.raises(ToggleRefusedError) as caught:
        sizing.check_room(split, size, 1115)
    assert str(caught.value) == (
        "A request in flight may take 1,115 tokens, and a sequence would hold 512, as split KV parts the context among"
        " 48 sequences. Try again when such requests have ended, or start with --context 61440."
    )
    assert held(msgspec.structs.replace(split, context_tokens=61_440), 1115).n_ctx_seq >= 1115
    unified = EngineConfig(context_tokens=768)
    with pytest.raises(ToggleRefusedError, match=r"would hold 768\. .* start with --context 1280\."):
        sizing.check_room(unified, held(unified, 1115), 1115)


@pytest.mark.parametrize("context", [None, 48 * 4096])
@pytest.mark.parametrize("unified", [True, False])
def test_no_more_than_the_model_was_trained_for_is_promised(context: int | None, *, unified: bool) -> None:
    config = EngineConfig(unified_kv=unified, context_tokens=context)
    with pytest.raises(ToggleRefusedError) as caught:
        sizing.check_room(config, held(config, 2049), 2049)
    assert str(caught.value) == (
        "A request in flight may take 2,049 tokens, and a sequence would hold 2,048, the context that the model was"
        " trained for. Try again when such requests have ended."
    )
