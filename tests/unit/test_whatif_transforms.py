"""What becomes of a recorded step under another setting: each aspect by itself, on numbers small enough to check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import pytest

from stackscope.analysis.timing.shapes import Shape
from stackscope.analysis.whatif.transforms import (
    Drafting,
    Prompts,
    batches,
    draft_forwards,
    drafts_of,
    forwards,
    rechunked,
    together,
)
from stackscope.analysis.whatif.working_point import Chunk, Decoding, Round
from stackscope.records import DraftForward, Ubatch
from tests.unit.whatif_machine import CONFIG

if TYPE_CHECKING:
    from stackscope.analysis.whatif.transforms import Step
    from stackscope.toggles import EngineConfig

THREE: Final = (Decoding(100, 0, 0), Decoding(50, 0, 1), Decoding(10, 0, 2))


def plain(*decoding: Decoding) -> Round:
    n = len(decoding)
    spans = tuple((one.cached, 1 + one.drafted) for one in decoding)
    rows = sum(new for _, new in spans)
    return Round(Shape(spans, rows, (Ubatch(rows, rows),), (), sum(map(sum, spans)), rows - n), decoding)


def mixed(decoding: tuple[Decoding, ...], *chunks: Chunk, outputs: int = 0) -> Round:
    spans = tuple((one.cached, 1) for one in decoding) + tuple((one.cached, one.new) for one in chunks)
    rows = sum(new for _, new in spans)
    n = len(decoding) + outputs
    return Round(Shape(spans, n, (Ubatch(rows, n),), (), sum(map(sum, spans)), 0), decoding, chunks, outputs)


def made(one: Round, config: EngineConfig = CONFIG, *, load: float = 1.0, drafting: Drafting | None = None,
         prompts: Prompts | None = None, idle_cells: int | None = None) -> list[Step]:  # fmt: skip
    return forwards(
        one, config, recorded=CONFIG, load=load, drafting=drafting or Drafting(is_recorded=True),
        prompts=prompts or Prompts(), idle_cells=idle_cells,
    )  # fmt: skip


def test_nothing_changed_is_the_recorded_step() -> None:
    one = mixed(THREE, Chunk(0, 40, 60), Chunk(20, 30, 30, 20), outputs=1)
    [step] = made(one)
    assert step.share == 1.0
    assert step.times == 1.0
    assert step.mixed == one.shape
    assert step.decode is not None
    assert step.decode.spans == ((100, 1), (50, 1), (10, 1))
    assert step.decode.cells == one.shape.cells - 40 - 50


def test_recorded_passes_stay_even_where_the_library_would_cut_otherwise() -> None:
    one = plain(*THREE)
    cut = Round(msgspec.structs.replace(one.shape, passes=(Ubatch(2, 2), Ubatch(1, 1))), one.decoding)
    [step] = made(cut)
    assert step.decode is not None
    assert step.decode.passes == (Ubatch(2, 2), Ubatch(1, 1))


def test_twice_the_load_is_twice_the_sequences_with_contexts_in_proportion() -> None:
    [(share, sequences)] = batches(plain(*THREE), 2.0, 0, 256)
    assert share == 1.0
    assert [one.cached for one in sequences] == [100, 100, 50, 50, 10, 10]
    assert sorted(one.slot for one in sequences) == list(range(6))


def test_half_a_sequence_is_one_step_in_two() -> None:
    mixture = batches(plain(*THREE), 0.5, 0, 256)
    assert [(share, len(sequences)) for share, sequences in mixture] == [(0.5, 1), (0.5, 2)]


def test_who_prefills_does_not_decode() -> None:
    [(_, sequences)] = batches(mixed((), Chunk(0, 40, 40)), 4.0, 1, 256)
    assert [one.cached for one in sequences] == [40, 40, 40]


def test_no_more_sequences_than_the_token_budget_has_rows() -> None:
    [(_, sequences)] = batches(plain(*THREE), 1.0, 0, 2)
    assert len(sequences) == 2
    [(_, sequences)] = batches(plain(*THREE), 4.0, 0, 5)
    assert len(sequences) == 5


def test_prompts_meet_less_often_with_fewer_requests() -> None:
    chunks = (Chunk(0, 30, 30), Chunk(0, 50, 50), Chunk(0, 40, 40), Chunk(0, 60, 60))
    fewer, groups = together(chunks, 0.5)
    assert len(fewer) == 2
    assert groups * sum(one.new for one in fewer) == pytest.approx(180)
    assert together(chunks, 2.0) == (chunks, 1.0)


def test_a_drafter_that_finds_something_in_half_the_rounds() -> None:
    """Of two sequences, both, one or none have a draft of 3: 1/4, 1/2, 1/4."""
    mixture = drafts_of(THREE[:2], Drafting("ngram", length=3, coverage=0.5, mean=3.0), 100)
    assert mixture == [(0.25, (0, 0)), (0.5, (3, 0)), (0.25, (3, 3))]


def test_many_sequences_have_the_two_next_numbers_of_drafts() -> None:
    mixture = drafts_of([Decoding(10)] * 10, Drafting("ngram", length=2, coverage=0.35, mean=2.0), 100)
    assert [(round(share, 6), sum(drafts)) for share, drafts in mixture] == [(0.5, 6), (0.5, 8)]


def test_drafts_that_are_shorter_at_times_are_a_mixture_of_lengths() -> None:
    mixture = drafts_of([Decoding(10)], Drafting("draft", length=3, coverage=1.0, mean=2.5), 100)
    assert mixture == [(0.5, (2,)), (0.5, (3,))]


def test_the_token_budget_shares_out_drafts_evenly() -> None:
    [(_, drafts)] = drafts_of(THREE, Drafting("draft", length=4, coverage=1.0, mean=4.0), 7)
    assert sorted(drafts) == [2, 2, 3]


def test_verification_has_a_row_and_an_output_for_each_draft() -> None:
    [step] = made(plain(*THREE), drafting=Drafting("draft", length=3, coverage=1.0, mean=3.0))
    assert step.decode is not None
    assert step.decode.spans == ((100, 4), (50, 4), (10, 4))
    assert step.decode.outputs == 12
    assert step.decode.drafted == 9
    assert step.decode.passes == (Ubatch(12, 12),)


def test_the_draft_model_runs_once_per_drafted_position() -> None:
    """After a round accepted whole (half of them) it has two tokens to catch up."""
    forwards_made = draft_forwards(THREE[:2], (2, 1), (), 0.5)
    assert forwards_made == (DraftForward(((99, 2), (50, 1)), 2), DraftForward(((101, 1),), 1))


def test_the_draft_model_computes_prompts_too() -> None:
    [forward] = draft_forwards((), (), (Chunk(0, 40, 40),), 0.0)
    assert forward == DraftForward(((0, 40),), 0)


def test_a_smaller_budget_cuts_prompts_into_more_chunks_of_the_same_tokens() -> None:
    chunks, times = rechunked((Chunk(0, 90, 90),), Prompts(), 40, False)
    assert [one.new for one in chunks] == [30]
    assert times == 3.0
    assert chunks[0].cached == 30  # the middle one of 0–30, 30–60, 60–90


def test_a_larger_budget_takes_more_only_of_prompts_that_did_not_fit() -> None:
    chunk = Chunk(0, 50, 120)
    assert rechunked((chunk,), Prompts(), 200, False) == ((chunk,), 1.0)
    larger, times = rechunked((chunk,), Prompts(), 200, True)
    assert [one.new for one in larger] == [120]
    assert times == pytest.approx(50 / 120)


def test_a_chunk_that_was_cut_short_leaves_the_rest_to_the_next() -> None:
    """253 of 300 rows fitted; drafts now take 3 of the room: forwards of 250, 1.2 % more of them."""
    [chunk], times = rechunked((Chunk(0, 253, 300),), Prompts(), 250, True)
    assert chunk.new == 250
    assert times == pytest.approx(253 / 250)


def test_two_chunks_of_which_the_cache_leaves_little_become_one() -> None:
    """Of 253 and 47 rows, 30 % are left: 90 rows in one forward, of which the two recorded ones are 84 % and 16 %."""
    first, second = (rechunked((Chunk(c, n, 300),), Prompts(0.3), 253, n == 253) for c, n in ((0, 253), (253, 47)))
    assert [one.new for one in (*first[0], *second[0])] == [90, 90]
    assert first[1] + second[1] == pytest.approx(1.0)


def test_what_the_cache_finds_is_not_computed_and_ends_where_it_did() -> None:
    [chunk], times = rechunked((Chunk(0, 100, 100),), Prompts(0.3), 256, False)
    assert (chunk.cached, chunk.new) == (70, 30)
    assert times == 1.0


def test_without_the_cache_what_was_found_is_computed() -> None:
    [chunk], times = rechunked((Chunk(60, 40, 40, 60),), Prompts(takes_back=True), 256, False)
    assert (chunk.cached, chunk.new) == (0, 100)
    assert times == 1.0


def test_a_prompt_found_whole_still_computes_its_last_token() -> None:
    [chunk], _ = rechunked((Chunk(0, 100, 100),), Prompts(0.0), 256, False)
    assert (chunk.cached, chunk.new) == (99, 1)


def test_idle_cells_go_with_the_prefix_cache() -> None:
    one = plain(*THREE)
    crowded = Round(msgspec.structs.replace(one.shape, cells=5000), one.decoding)
    [as_is], [empty] = made(crowded), made(crowded, idle_cells=0)
    assert as_is.decode is not None
    assert empty.decode is not None
    assert as_is.decode.cells == 5000
    assert empty.decode.cells == 163  # 160 cached, and a row each


def test_a_split_cache_reads_weights_again_for_ragged_drafts() -> None:
    """Rows 1, 3 and 1: first one of each, then two of the one in the middle."""
    split = msgspec.structs.replace(CONFIG, unified_kv=False)
    one = plain(Decoding(100, 0, 0), Decoding(50, 2, 1), Decoding(10, 0, 2))
    [step] = made(one, split, drafting=Drafting("ngram", is_recorded=True))
    assert step.decode is not None
    assert step.decode.passes == (Ubatch(3, 3), Ubatch(2, 2))


def test_slots_that_are_no_neighbours_are_not_taken_together() -> None:
    split = msgspec.structs.replace(CONFIG, unified_kv=False)
    [step] = made(plain(Decoding(100, 0, 3), Decoding(50, 0, 0), Decoding(10, 0, 1)), split)
    assert step.decode is not None
    assert step.decode.passes == (Ubatch(1, 1), Ubatch(2, 2))
