"""What the contexts of target and draft model hold of every sequence, kept in step: the ids are the same in both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from stackscope.engine.prefix_cache import Copy, CopyWhole, SeqOp, Trim
from stackscope.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stackscope.engine.llama import SequenceRange
    from stackscope.engine.sizing import ContextSize


class Cells(Protocol):
    """The operations of a context's memory; `engine.llama.Context` has them."""

    @property
    def size(self) -> ContextSize: ...

    def remove(self, sequence: int, start: int, stop: int = -1) -> bool: ...

    def copy(self, source: int, target: int, start: int, stop: int) -> None: ...

    def range_of(self, sequence: int) -> SequenceRange: ...


class Memory:
    """The KV of target and draft context, with the same sequence ids in both.

    The draft's copy of a sequence may be shorter: `draft_length[id]` positions of it are valid. Operations that the
    prefix cache asks for are replayed on the draft as far as it goes.
    """

    def __init__(
        self,
        target: Cells,
        draft: Cells | None,
        *,
        kv_cell_bytes: int,
        draft_cell_bytes: int,
        draft_window: int | None = None,
    ) -> None:
        """`draft_window` is the draft model's smallest sliding window in tokens. `None`: it has none."""
        self._target = target
        self._draft = draft
        self._kv_cell_bytes = kv_cell_bytes
        self._draft_cell_bytes = draft_cell_bytes
        self._draft_window = draft_window
        self.draft_length = [0] * target.size.n_seq_max
        self.length = [0] * target.size.n_seq_max
        """Valid positions in the target, of cached paths and slots alike."""
        self.copied_bytes = 0
        """KV bytes really copied so far (split KV)."""

    def apply(self, ops: Iterable[SeqOp]) -> None:
        """Execute operations of the prefix cache, in order."""
        for op in ops:
            if isinstance(op, Copy):
                self._target.copy(op.source, op.target, op.start, op.stop)
                self.length[op.target] = op.stop
                self._share_draft(op.source, op.target, op.stop)
            elif isinstance(op, CopyWhole):
                self._copy_whole(op)
            else:
                assert isinstance(op, Trim)
                self.trim(op.sequence, op.start)

    def _copy_whole(self, op: CopyWhole) -> None:
        held = self.length[op.source]
        self._target.copy(op.source, op.target, -1, -1)
        self.length[op.target] = held
        self.copied_bytes += held * self._kv_cell_bytes
        self._copy_draft(op.source, op.target, op.length)
        self.trim(op.target, op.length)

    # The draft's side. Up to which position two sequences have the same tokens is the caller's to know.

    def usable_draft(self, source: int, stop: int) -> int:
        """How many of the first `stop` positions another sequence could go on from, as the draft's context has them.

        All or none of what is there: window layers must still hold what comes next would look back to.
        """
        stop = min(stop, self.draft_length[source])
        if stop <= 0 or self._draft is None:
            return 0
        if self._draft_window is None:
            return stop
        return stop if self._draft.range_of(source).first <= max(0, stop - self._draft_window) else 0

    def extend_draft(self, source: int, target: int, stop: int) -> None:
        """Bring the draft's copy of `target` as far as that of `source`, whose first `stop` tokens are the same.

        With unified KV they share cells from then on; with split KV it is a real copy.
        """
        if self._target.size.is_unified:
            self._share_draft(source, target, stop)
        else:
            self._copy_draft(source, target, stop)

    def _share_draft(self, source: int, target: int, stop: int) -> None:
        start, stop = self.draft_length[target], self.usable_draft(source, stop)
        if stop > start:
            assert self._draft is not None
            self._draft.copy(source, target, start, stop)
            self.draft_length[target] = stop

    def _copy_draft(self, source: int, target: int, stop: int) -> None:
        stop = self.usable_draft(source, stop)
        if stop > self.draft_length[target]:
            assert self._draft is not None
            self._draft.copy(source, target, -1, -1)
            self.draft_length[target] = self.draft_length[source]
            self.copied_bytes += self.draft_length[source] * self._draft_cell_bytes
            self.trim_draft(target, stop)

    def forget_cached_drafts(self) -> None:
        """Have the draft's context give up what it holds of cached paths; what slots hold stays theirs."""
        for sequence in (*self._target.size.path_ids, *self._target.size.guard_ids):
            self.trim_draft(sequence, 0)

    # Forgetting

    def trim(self, sequence: int, start: int) -> None:
        """Forget positions from `start` on, in both contexts. Raises `EngineError` when the memory cannot."""
        if not self._target.remove(sequence, start):
            raise EngineError(
                f"This model's memory cannot forget a part of sequence {sequence}.",
                remedy="Switch speculation and the prefix cache off for it.",
            )
        self.length[sequence] = min(self.length[sequence], start)
        self.trim_draft(sequence, start)

    def trim_draft(self, sequence: int, start: int) -> None:
        """Forget positions from `start` on in the draft context, if it goes that far."""
        if self._draft is not None and self.draft_length[sequence] > start:
            if not self._draft.remove(sequence, start):
                raise EngineError(
                    "The draft model's memory cannot forget rejected tokens.", remedy="Use another draft."
                )
            self.draft_length[sequence] = start

    def first_position(self, sequence: int) -> int:
        """First position that every layer of the target still holds of a sequence; -1 when it holds none."""
        return self._target.range_of(sequence).first

    def forget_unrecorded(self, sequence: int, start: int) -> bool:
        """After a failed or aborted forward: remove whatever it left beyond `start`, recorded or not.

        False: it cannot be removed, so that all of the sequence must be.
        """
        self.length[sequence] = min(self.length[sequence], start)
        return self._target.remove(sequence, start)

    def forget_draft_unrecorded(self, sequence: int) -> None:
        """After a failed or aborted forward of the draft model: remove whatever it left beyond what is recorded."""
        if self._draft is not None:
            self._draft.remove(sequence, self.draft_length[sequence])
