"""Where drafts come from: n-gram look-up in the sequence's own history, or a draft model batched over sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from stackscope.engine.adaptive import adaptive_length
from stackscope.engine.choose import argmax
from stackscope.engine.llama import DecodeStatus
from stackscope.engine.ngram import NgramDrafter
from stackscope.engine.sampling import NumpyTruncation, distribution_from_logits, draw
from stackscope.engine.ubatches import split_equal
from stackscope.records import DraftForward

if TYPE_CHECKING:
    from stackscope.engine.backend import Memory
    from stackscope.engine.llama import Context
    from stackscope.engine.sequence import Sequence
    from stackscope.records import Ubatch
    from stackscope.toggles import EngineConfig


class Want(NamedTuple):
    """A sequence that may be drafted for, and how many tokens at most."""

    sequence: Sequence
    n: int


class KeepUp(NamedTuple):
    """A sequence in prefill, and the position up to which the target will hold it after this step."""

    sequence: Sequence
    until: int


class Drafted(NamedTuple):
    """What drafting cost."""

    forwards: tuple[DraftForward, ...] = ()
    settling: bool = False
    """Some sequence's draft context has not caught up with its history yet."""
    aborted: bool = False


def wish(running: list[Sequence], config: EngineConfig) -> None:
    """Decide how many tokens each decoding sequence should have drafted: never past its limit."""
    n_decoding = sum([s.is_decoding for s in running])
    for sequence in running:
        if not sequence.is_decoding:
            continue
        cap = min(config.draft_length, sequence.max_n - sequence.n - 1)
        if config.adaptive_draft:
            if sequence.adaptive is None:
                sequence.adaptive = adaptive_length()
            cap = sequence.adaptive.choose(cap, n_decoding)
        sequence.want = max(0, cap)


class DraftSource(Protocol):
    """Fills `draft` (and `draft_q`) of the wanted sequences."""

    def propose(self, wants: list[Want], keep_up: list[KeepUp], rows: int) -> Drafted:
        """Draft at most `want.n` tokens for each; `rows` bounds what is fed to catch up."""


class NgramDrafts:
    """Prompt look-up: the continuation of the last earlier occurrence of the history's suffix."""

    def __init__(self, n_min: int, n_max: int) -> None:
        self._n_min = n_min
        self._n_max = n_max

    def propose(self, wants: list[Want], keep_up: list[KeepUp], rows: int) -> Drafted:
        del keep_up, rows
        for sequence, n in wants:
            drafter = sequence.ngram
            if drafter is None:
                drafter = sequence.ngram = NgramDrafter(self._n_min, self._n_max)
                sequence.ngram_n = 0
            if sequence.ngram_n < sequence.n:
                drafter.extend(sequence.tokens[sequence.ngram_n : sequence.n].tolist())
                sequence.ngram_n = sequence.n
            sequence.draft = drafter.propose(n)
            sequence.draft_q = [None] * len(sequence.draft)
        return Drafted()


class ModelDrafts:
    """A draft model whose context mirrors the target's sequences, one forward per drafted position for all of them."""

    def __init__(self, context: Context, memory: Memory) -> None:
        self._context = context
        self._memory = memory

    def propose(self, wants: list[Want], keep_up: list[KeepUp], rows: int) -> Drafted:
        forwards: list[DraftForward] = []
        drafting, spans, n_rows, settling = self._fill_catch_up(wants, keep_up, rows)
        if n_rows == 0:
            return Drafted((), settling)
        while True:
            status = self._context.decode(n_rows)
            if status != DecodeStatus.OK:
                self._undo(spans, wants)
                return Drafted(tuple(forwards), settling, status == DecodeStatus.ABORTED)
            for sequence, _, new in spans:
                self._memory.draft_length[sequence.slot] += new
            forwards.append(self._record(spans, drafting))
            self._take(drafting)
            drafting = [want for want in drafting if len(want.sequence.draft) < want.n]
            if not drafting:
                return Drafted(tuple(forwards), settling)
            spans, n_rows = self._fill_next(drafting)

    def _record(self, spans: list[tuple[Sequence, int, int]], drafting: list[Want]) -> DraftForward:
        """The forward just run; drafting sequences asked for the logits of their last row."""
        ubatches: tuple[Ubatch, ...] = ()
        n_outputs = len(drafting)
        size = self._context.size
        if not size.is_unified:
            drafting_slots = {want.sequence.slot for want in drafting}
            rows = [(s.slot, new, int(s.slot in drafting_slots)) for s, _, new in spans]
            ubatches = split_equal(rows, size.n_ubatch)
        shape = tuple([(cached, new) for _, cached, new in spans])
        return DraftForward(shape, n_outputs, ubatches if len(ubatches) > 1 else ())

    def _fill_catch_up(
        self, wants: list[Want], keep_up: list[KeepUp], rows: int
    ) -> tuple[list[Want], list[tuple[Sequence, int, int]], int, bool]:
        """Rows that bring the draft context level with each history; (caught up, spans, rows, settling)."""
        drafting: list[Want] = []
        spans: list[tuple[Sequence, int, int]] = []
        n_rows = 0
        settling = False
        rows = min(rows, self._context.batch.capacity)
        for want in wants:
            sequence = want.sequence
            sequence.clear_draft()
            if want.n == 0:
                continue
            held = self._memory.draft_length[sequence.slot]
            take = min(sequence.n - held, rows - n_rows)
            is_level = held + take == sequence.n
            settling |= not is_level
            if take <= 0:
                continue
            self._fill(sequence, held, take, n_rows, output=is_level)
            spans.append((sequence, held, take))
            n_rows += take
            if is_level:
                drafting.append(want)
        for sequence, until in keep_up:
            held = self._memory.draft_length[sequence.slot]
            take = min(until - held, rows - n_rows)
            settling |= sequence.kv - held > 0
            if take > 0:
                self._fill(sequence, held, take, n_rows, output=False)
                spans.append((sequence, held, take))
                n_rows += take
        return drafting, spans, n_rows, settling

    def _fill(self, sequence: Sequence, start: int, n: int, row: int, *, output: bool) -> None:
        batch = self._context.batch
        stop = row + n
        batch.token[row:stop] = sequence.tokens[start : start + n]
        batch.position[row:stop] = range(start, start + n)
        batch.sequence[row:stop] = sequence.slot
        batch.output[row:stop] = 0
        if output:
            batch.output[stop - 1] = 1

    def _fill_next(self, drafting: list[Want]) -> tuple[list[tuple[Sequence, int, int]], int]:
        batch = self._context.batch
        n = len(drafting)
        spans = [(w.sequence, self._memory.draft_length[w.sequence.slot], 1) for w in drafting]
        batch.token[:n] = [w.sequence.draft[-1] for w in drafting]
        batch.position[:n] = [cached for _, cached, _ in spans]
        batch.sequence[:n] = [w.sequence.slot for w in drafting]
        batch.output[:n] = 1
        return spans, n

    def _take(self, drafting: list[Want]) -> None:
        """Choose each drafting sequence's next token from the forward's logit rows."""
        if not drafting:
            return
        logits = self._context.logits(len(drafting))
        choices = argmax(logits)
        for row, want in enumerate(drafting):
            sequence = want.sequence
            if sequence.rng is None:
                sequence.draft.append(choices[row])
                sequence.draft_q.append(None)
                continue
            sampling = sequence.job.sampling
            ids, kept = NumpyTruncation.of(sampling).candidates(logits[row])
            q = distribution_from_logits(ids, kept, sampling.temperature)
            sequence.draft.append(draw(q, sequence.rng.random()))
            sequence.draft_q.append(q)

    def _undo(self, spans: list[tuple[Sequence, int, int]], wants: list[Want]) -> None:
        """The forward did not complete: forget its rows, and draft nothing this step."""
        for sequence, _, _ in spans:
            self._memory.forget_draft_unrecorded(sequence.slot)
        for want in wants:
            # Drafts of earlier forwards of this round are in the context too, and nobody will verify them.
            self._memory.trim_draft(want.sequence.slot, want.sequence.n)
            want.sequence.clear_draft()
