"""After a forward: tokens become text and history, rejected rows leave the caches, and what ended is finished."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stackscope.engine.turn import TextDelta
from stackscope.records import Emission, FinishReason

if TYPE_CHECKING:
    from stackscope.engine.batching import Entry, Rows
    from stackscope.engine.memory import Memory
    from stackscope.engine.vocabulary import Vocabulary


def emit(
    rows: Rows, vocabulary: Vocabulary, texts: list[TextDelta], *, is_read: bool, step: int, at_ns: int
) -> list[FinishReason | None]:
    """Turn new tokens into text, cut at stop strings; answers why each entry's sequence ends, if it does.

    Where nobody reads the text (`is_read`), only requests that need it themselves are detokenised: 4 to 8 µs a step.
    """
    is_end = vocabulary.is_end
    ends: list[FinishReason | None] = []
    for entry in rows.entries:
        emitted = entry.emitted
        if not emitted:
            ends.append(None)
            continue
        sequence = entry.sequence
        needs_text = is_read or sequence.needs_text
        text, is_stopped = sequence.push_text(emitted) if needs_text else ("", False)
        if entry.accepted > len(emitted):
            entry.accepted = len(emitted)
        end: FinishReason | None = None
        if is_stopped:
            end = "stop"
        elif not sequence.job.ignore_eos and is_end(emitted[-1]):
            end = "eos"
        elif sequence.n + len(emitted) >= sequence.max_n:
            is_asked = sequence.generated + len(emitted) >= sequence.job.max_tokens
            end = "length" if is_asked else "context"
        if text:
            texts.append(TextDelta(sequence.job.id, text))
        sequence.emissions.append(Emission(step, at_ns, len(emitted)))
        ends.append(end)
    return ends


def commit(entries: list[Entry], memory: Memory) -> None:
    """Extend the sequences' histories, and keep of their new rows in the caches only those that belong to them."""
    length = memory.length
    for entry in entries:
        sequence, emitted = entry.sequence, entry.emitted
        length[sequence.slot] = fed = entry.cached + entry.new
        if emitted:
            n = sequence.n
            for token in emitted:  # Mostly one, for which a slice costs numpy three times as much.
                sequence.tokens[n] = token
                n += 1
            sequence.n = n
        if entry.phase == "verify":
            _keep_accepted(entry, fed, memory)
            continue
        sequence.kv = fed
        if entry.phase == "prefill" and fed > sequence.prefilled:
            sequence.prefilled = fed


def _keep_accepted(entry: Entry, fed: int, memory: Memory) -> None:
    """Take the rejected drafts out of the caches; `fed` positions are in them."""
    sequence = entry.sequence
    n_drafts = len(sequence.draft)
    sequence.n_drafted += n_drafts
    sequence.n_accepted += entry.accepted
    # The newest token is never in the cache, even when it was a draft that an end or a limit made the last.
    sequence.kv = min(entry.cached + 1 + entry.accepted, sequence.n - 1)
    if sequence.kv < fed:
        memory.trim(sequence.slot, sequence.kv)
    if sequence.adaptive is not None:
        sequence.adaptive.observe(n_drafts, entry.accepted)
    sequence.clear_draft()
