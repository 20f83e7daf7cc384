"""Where drafts come from: n-gram look-up in the sequence's own history, or a draft model batched over sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

import numpy as np

from stackscope.engine.adaptive import adaptive_length
from stackscope.engine.choose import argmax
from stackscope.engine.llama import DecodeStatus
from stackscope.engine.ngram import NgramDrafter
from stackscope.engine.sampling import NumpyTruncation, distribution_from_logits, draw
from stackscope.engine.ubatches import split_equal
from stackscope.records import DraftForward

if TYPE_CHECKING:
    from stackscope.engine.backend import Backend
    from stackscope.engine.llama import Context
    from stackscope.engine.memory import Memory
    from stackscope.engine.residents import Residents
    from stackscope.engine.scheduler import Plan
    from stackscope.engine.sequence import Sequence
    from stackscope.records import Ubatch
    from stackscope.toggles import EngineConfig

    Span: TypeAlias = tuple[Sequence, int, int]
    """A sequence, the tokens that the draft's context holds of it, and those that it is fed."""

BEHIND: Final = 16
"""Tokens that the draft's context may lack of a sequence before it is asked whether the cache has them: to ask takes
longer than to compute so few."""

DENIED_ROUNDS: Final = 256
"""Rounds without drafts after there was no room for a sequence: to find out anew costs what it computes until then, and
a line in the log."""


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


NOT_DRAFTED: Final = Drafted()


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


def ask(source: DraftSource, plan: Plan, running: list[Sequence], token_budget: int) -> Drafted:
    """Have a source draft what the plan allows each decoding sequence, and keep up with those that prefill."""
    by_slot = {s.slot: s for s in running}
    wants = [Want(by_slot[slot], n) for slot, n in plan.decode]
    keep_up = [KeepUp(by_slot[slot], by_slot[slot].kv + n) for slot, n in plan.prefill]
    return source.propose(wants, keep_up, token_budget)


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


def draft_source(config: EngineConfig, backend: Backend, residents: Residents) -> DraftSource | None:
    """The source that a configuration asks for. `None`: nothing is drafted."""
    if config.speculation == "ngram":
        return NgramDrafts(config.ngram_min, config.ngram_max)
    if config.speculation == "draft":
        assert backend.draft is not None
        return ModelDrafts(backend.draft, backend.memory, residents)
    return None


class ModelDrafts:
    """A draft model whose context mirrors the target's sequences, one forward per drafted position for all of them.

    Where its context lacks what the target has of a sequence, the first that has those tokens computes them, and
    whoever shares a cached prefix with it borrows them.
    """

    def __init__(self, context: Context, memory: Memory, residents: Residents) -> None:
        self._context = context
        self._memory = memory
        self._residents = residents
        self._denied: set[Sequence] = set()
        """Those for which there was no room lately."""
        self._n_denied_rounds = 0

    def propose(self, wants: list[Want], keep_up: list[KeepUp], rows: int) -> Drafted:
        forwards: list[DraftForward] = []
        drafting, spans, n_rows, settling = self._fill_catch_up(wants, keep_up, rows)
        if n_rows == 0:
            return Drafted((), settling)
        sequences = [want.sequence for want in wants] + [each.sequence for each in keep_up]
        while True:
            status = self._forward(drafting, spans, n_rows, sequences)
            if status == DecodeStatus.NO_ROOM:
                return Drafted(tuple(forwards), True)
            if status != DecodeStatus.OK:
                self._undo(spans, wants)
                return Drafted(tuple(forwards), settling, status == DecodeStatus.ABORTED)
            for sequence, _, new in spans:
                self._memory.draft_length[sequence.slot] += new
                if new >= BEHIND:
                    self._residents.lend_draft(sequence)
            forwards.append(self._record(spans, drafting))
            self._take(drafting)
            drafting = [want for want in drafting if len(want.sequence.draft) < want.n]
            if not drafting:
                return Drafted(tuple(forwards), settling or bool(self._denied))
            spans, n_rows = self._fill_next(drafting)

    def _forward(self, drafting: list[Want], spans: list[Span], n_rows: int, sequences: list[Sequence]) -> int:
        """Run the batch; where there is no room for all of it, without the last of the sequences.

        Room can be short although the target has enough: what sequences came to share in the target before the draft's
        context had it, and cannot borrow, it holds for each of them. The last one gives up what it holds, then the one
        before; `spans` and `drafting` are cut to what ran.
        """
        status = self._context.decode(n_rows)
        if status == DecodeStatus.NO_ROOM:
            self._residents.make_draft_room(sequences)
            status = self._context.decode(n_rows)
        while status == DecodeStatus.NO_ROOM:
            sequence = sequences.pop()
            is_fed = spans[-1][0] is sequence
            self._denied.add(sequence)
            if not is_fed and self._memory.draft_length[sequence.slot] == 0:
                continue
            self._memory.trim_draft(sequence.slot, 0)
            sequence.clear_draft()
            if is_fed:
                n_rows -= spans.pop()[2]
                drafting[:] = [want for want in drafting if want.sequence is not sequence]
                if not spans:
                    break
            status = self._context.decode(n_rows)
        return status

    def _record(self, spans: list[Span], drafting: list[Want]) -> DraftForward:
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
    ) -> tuple[list[Want], list[Span], int, bool]:
        """Rows that bring the draft context level with each history; (caught up, spans, rows, settling)."""
        drafting: list[Want] = []
        spans: list[Span] = []
        n_rows = 0
        settling = False
        rows = min(rows, self._context.batch.capacity)
        self._readmit()
        for want in wants:
            sequence = want.sequence
            sequence.clear_draft()
            if want.n == 0:
                continue
            held = self._held(sequence)
            take = self._rows_for(sequence, held, sequence.n, rows - n_rows, spans)
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
            held = self._held(sequence)
            take = self._rows_for(sequence, held, until, rows - n_rows, spans)
            settling |= sequence.kv - held > 0
            if take > 0:
                self._fill(sequence, held, take, n_rows, output=False)
                spans.append((sequence, held, take))
                n_rows += take
        return drafting, spans, n_rows, settling

    def _readmit(self) -> None:
        """Give those for which there was no room another chance after some rounds."""
        if self._denied:
            self._n_denied_rounds += 1
            if self._n_denied_rounds > DENIED_ROUNDS:
                self._denied.clear()
                self._n_denied_rounds = 0

    def _held(self, sequence: Sequence) -> int:
        """How much of a sequence the draft's context holds, after borrowing what the cache has of it."""
        if sequence.kv - self._memory.draft_length[sequence.slot] >= BEHIND:
            self._residents.borrow_draft(sequence)
        return self._memory.draft_length[sequence.slot]

    def _rows_for(self, sequence: Sequence, held: int, until: int, room: int, spans: list[Span]) -> int:
        """How many tokens to feed of those from `held` to `until`, none while another computes the same."""
        if sequence in self._denied:
            return 0
        far = held + BEHIND
        if sequence.kv >= far and self._residents.lends_beyond(sequence, far):
            for other, start, new in spans:
                if start + new >= far and new >= BEHIND and np.array_equal(other.tokens[:far], sequence.tokens[:far]):
                    return 0
        return min(until - held, room)

    def _fill(self, sequence: Sequence, start: int, n: int, row: int, *, output: bool) -> None:
        batch = self._context.batch
        stop = row + n
        batch.token[row:stop] = sequence.tokens[start : start + n]
        batch.position[row:stop] = range(start, start + n)
        batch.sequence[row:stop] = sequence.slot
        batch.output[row:stop] = 0
        if output:
            batch.output[stop - 1] = 1

    def _fill_next(self, drafting: list[Want]) -> tuple[list[Span], int]:
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

    def _undo(self, spans: list[Span], wants: list[Want]) -> None:
        """The forward did not complete: forget its rows, and draft nothing this step."""
        for sequence, _, _ in spans:
            self._memory.forget_draft_unrecorded(sequence.slot)
        for want in wants:
            # Drafts of earlier forwards of this round are in the context too, and nobody will verify them.
            self._memory.trim_draft(want.sequence.slot, want.sequence.n)
            want.sequence.clear_draft()
