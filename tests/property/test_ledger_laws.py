"""Laws of the ledger: what must scale, and what must only add."""

from __future__ import annotations

from fractions import Fraction

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackscope.analysis.account import NOTHING, Account
from stackscope.analysis.kv import cells_in_window, kv_bytes_per_token, sequence_state_bytes
from stackscope.analysis.ledger import AttentionGroup, Ledger, WorkSum
from stackscope.records import LayerSummary, ModelSummary, SlotWork, StepRecord, Ubatch
from stackscope.toggles import EngineConfig
from tests.analysis_builders import attention, dense_model, prefill, step

windows = st.one_of(st.none(), st.integers(1, 64))
spans = st.lists(st.tuples(st.integers(0, 300), st.integers(1, 40)), min_size=1, max_size=6)


@st.composite
def layers(draw: st.DrawFn) -> LayerSummary:
    kv_heads = draw(st.sampled_from([1, 2, 4]))
    return attention(
        heads=kv_heads * draw(st.sampled_from([1, 2, 4])),
        kv_heads=kv_heads,
        head=draw(st.sampled_from([32, 64, 128])),
        window=draw(windows),
        shares_kv=draw(st.booleans()),
    )


@st.composite
def models(draw: st.DrawFn) -> ModelSummary:
    return dense_model(
        layers=draw(st.lists(layers(), min_size=1, max_size=5)),
        architecture=draw(st.sampled_from(["llama", "gpt-oss", "llama4"])),
        tied_head=draw(st.booleans()),
    )


@st.composite
def steps(draw: st.DrawFn) -> StepRecord:
    work = [
        prefill(i, new=new, cached=cached, outputs=draw(st.integers(0, new)))
        for i, (cached, new) in enumerate(draw(spans))
    ]
    return step(*work)


def outputs_last(work: SlotWork) -> SlotWork:
    return msgspec.structs.replace(work, outputs=max(work.outputs, 1))


@given(models(), steps())
def test_every_part_is_a_whole_number_and_none_is_negative(model: ModelSummary, one: StepRecord) -> None:
    account = Ledger(model).account(one)
    for value in (*account.exact.named().values(), *account.flops.named().values()):
        assert isinstance(value, int)
        assert value >= 0
    assert account.is_exact


@given(layers(), st.integers(1, 5), steps())
def test_twice_the_blocks_are_exactly_twice_the_work_of_blocks(layer: LayerSummary, n: int, one: StepRecord) -> None:
    """With the last block no exception (it gathers late), everything outside head and embedding doubles."""
    few, many = (
        Ledger(dense_model(layers=[layer] * count, architecture="gpt-oss")).account(one) for count in (n, 2 * n)
    )
    assert many.flops.attention_projections == 2 * few.flops.attention_projections
    assert many.flops.ffn == 2 * few.flops.ffn
    assert many.flops.attention_scores == 2 * few.flops.attention_scores
    assert many.flops.head == few.flops.head
    assert many.exact.attention_weights == 2 * few.exact.attention_weights
    assert many.exact.ffn_weights == 2 * few.exact.ffn_weights
    assert many.exact.kv_read == 2 * few.exact.kv_read
    assert many.exact.kv_written == 2 * few.exact.kv_written
    assert many.exact.head_weights == few.exact.head_weights
    assert many.exact.embedding_rows == few.exact.embedding_rows


@given(layers(), st.integers(1, 6), steps())
def test_cost_is_linear_in_blocks(layer: LayerSummary, n: int, one: StepRecord) -> None:
    """Each further block adds the same: the last one's exception stays one block's."""
    totals = [Ledger(dense_model(layers=[layer] * count)).account(one).total_bytes for count in range(n, n + 3)]
    flops = [Ledger(dense_model(layers=[layer] * count)).account(one).flops.total for count in range(n, n + 3)]
    assert totals[2] - totals[1] == totals[1] - totals[0]
    assert flops[2] - flops[1] == flops[1] - flops[0]


@given(models(), steps())
def test_cost_adds_over_sequences_but_for_the_shared_weights(model: ModelSummary, one: StepRecord) -> None:
    ledger = Ledger(model)
    together = ledger.account(one)
    apart = NOTHING
    for slot in one.work:
        apart += ledger.account(step(slot))
    assert without_weights(together) == without_weights(apart)
    assert together.exact.weights <= apart.exact.weights


def without_weights(account: Account) -> Account:
    exact = msgspec.structs.replace(
        account.exact, attention_weights=0, ffn_weights=0, recurrent_weights=0, head_weights=0, other_weights=0
    )
    return msgspec.structs.replace(account, exact=exact)


@given(models(), steps(), st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_weights_are_linear_in_passes_and_nothing_else_is(
    model: ModelSummary, one: StepRecord, cuts: list[int]
) -> None:
    ledger = Ledger(model)
    with_outputs = msgspec.structs.replace(one, work=tuple(outputs_last(slot) for slot in one.work))
    cut = msgspec.structs.replace(with_outputs, ubatches=tuple(Ubatch(rows, 1) for rows in cuts))
    whole, split = ledger.account(with_outputs), ledger.account(cut)
    assert split.exact.weights == len(cuts) * whole.exact.weights
    assert without_weights(split) == without_weights(whole)


@given(models(), steps(), st.integers(1, 200))
def test_more_cached_tokens_never_cost_less(model: ModelSummary, one: StepRecord, more: int) -> None:
    """Chunked windows are the exception by construction: a new chunk starts empty."""
    if model.architecture == "llama4":
        return
    ledger = Ledger(model)
    longer = tuple(msgspec.structs.replace(slot, cached=slot.cached + more) for slot in one.work)
    before, after = ledger.account(one), ledger.account(msgspec.structs.replace(one, work=longer))
    assert after.exact.kv_read >= before.exact.kv_read
    assert after.flops.attention_scores >= before.flops.attention_scores
    assert after.total_bytes >= before.total_bytes
    if all(layer.window is None for layer in model.layers):
        assert after.exact.kv_read > before.exact.kv_read


@given(models(), steps())
def test_a_window_never_adds_work(model: ModelSummary, one: StepRecord) -> None:
    full = msgspec.structs.replace(
        model, layers=tuple(msgspec.structs.replace(layer, window=None) for layer in model.layers)
    )
    narrow, wide = Ledger(model).account(one), Ledger(full).account(one)
    assert narrow.exact.kv_read <= wide.exact.kv_read
    assert narrow.flops.attention_scores <= wide.flops.attention_scores
    assert narrow.exact.kv_written == wide.exact.kv_written


@given(st.sampled_from([1, 2, 4, 8]), steps())
def test_fewer_kv_heads_read_less_and_compute_the_same(kv_heads: int, one: StepRecord) -> None:
    grouped = Ledger(dense_model(layers=[attention(heads=8, kv_heads=kv_heads)] * 2)).account(one)
    full = Ledger(dense_model(layers=[attention(heads=8, kv_heads=8)] * 2)).account(one)
    assert Fraction(grouped.exact.kv_read, full.exact.kv_read) == Fraction(kv_heads, 8)
    assert grouped.flops.attention_scores == full.flops.attention_scores


@given(spans, windows, st.booleans())
def test_counts_equal_a_walk_over_every_query(
    sequences: list[tuple[int, int]], window: int | None, is_chunked: bool
) -> None:
    """Closed forms against the definition: a query sees what mask and window leave; what is read is the union."""
    group = AttentionGroup(window, is_chunked and window is not None, 1, 1)
    tokens = pairs = 0
    for cached, new in sequences:
        seen: set[int] = set()
        for position in range(cached, cached + new):
            first = 0
            if window is not None:
                first = position // window * window if is_chunked else max(position - window + 1, 0)
            keys = range(first, position + 1)
            pairs += len(keys)
            seen.update(keys)
        tokens += len(seen)
    assert group.count(sequences) == (tokens, pairs)


@given(models(), st.lists(steps(), max_size=5))
def test_counting_first_and_pricing_last_gives_the_same(model: ModelSummary, many: list[StepRecord]) -> None:
    ledger = Ledger(model)
    one_by_one = sum((ledger.account(one) for one in many), NOTHING)
    work = WorkSum()
    for one in many:
        work.add(ledger.count(one))
    assert ledger.price(work.total) == one_by_one
    at_once = ledger.price(ledger.count_steps(many))
    assert (at_once.exact, at_once.flops) == (one_by_one.exact, one_by_one.flops)
    assert at_once.expected.total == pytest.approx(one_by_one.expected.total)


@given(models(), st.integers(0, 400), st.sampled_from(["f16", "q8_0", "q4_0"]))
def test_a_further_token_adds_its_cell_to_the_state(model: ModelSummary, tokens: int, kv_type: str) -> None:
    """While no window is full: 12 bytes and the rows per cache that holds it; never less with more tokens."""
    model = msgspec.structs.replace(model, architecture="llama")
    config = EngineConfig(kv_type_k=kv_type, kv_type_v=kv_type)  # type: ignore[arg-type]
    size, more = (sequence_state_bytes(model, config, n) for n in (tokens + 1, tokens + 2))
    assert size is not None
    assert more is not None
    assert more >= size
    widths = {layer.window for layer in model.layers if layer.window is not None}
    if all(cells_in_window(tokens + 2, width, is_chunked=False) == tokens + 2 for width in widths):
        rows = kv_bytes_per_token(model, config.kv_type_k, config.kv_type_v)
        assert more - size == rows + 12 * (1 + len(widths))
