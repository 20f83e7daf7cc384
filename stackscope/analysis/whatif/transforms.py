"""The same work under another configuration: what steps it would take.

Each function takes one aspect of the recorded work and a setting, and answers what becomes of it. Together they are a
function of the *resulting* configuration alone, so that the order of changes cannot matter, and a change and its
reverse cancel. Where the configuration is the recorded one, the steps are the recorded ones.

Rounds that differ by chance (whether a drafter finds anything) are a mixture of steps with their probabilities,
because the time of a forward is no smooth function of its rows.
"""

from __future__ import annotations

import math
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from stackscope.analysis.timing.shapes import Shape
from stackscope.analysis.ubatches import split_equal
from stackscope.analysis.whatif.working_point import Chunk, Decoding
from stackscope.records import DraftForward, Ubatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.analysis.whatif.working_point import Round
    from stackscope.toggles import EngineConfig

UNLIKELY: Final = 0.02
"""Steps of a mixture that are rarer are left out."""
PREFILL_SHARE: Final = 4
"""The scheduler keeps one row in so many for a prompt that waits, however much there is to draft."""
_EXACT_UP_TO: Final = 3
"""Sequences up to which all numbers of drafts are told apart; beyond, the two next to the mean."""
_NO_LIMIT: Final = 1 << 20


class Drafting(NamedTuple):
    """How sequences are drafted for, and what comes of it."""

    source: str = "off"
    is_recorded: bool = False
    """As in the recorded steps, each sequence with its own drafts."""
    length: int = 0
    """Tokens drafted at most."""
    coverage: float = 0.0
    """Share of rounds in which there is something to draft."""
    mean: float = 0.0
    """Tokens drafted in those."""
    whole: float = 0.0
    """Share of rounds in which everything drafted is accepted: the draft model then has two tokens to catch up."""


class Prompts(NamedTuple):
    """How prompts are computed."""

    factor: float = 1.0
    """Prompt tokens computed, relative to the recorded ones."""
    takes_back: bool = False
    """What was found in the prefix cache is computed instead, `factor` times as much as the rounds show."""


class Step(NamedTuple):
    """One step of a mixture: a recorded round under another configuration."""

    share: float
    sequences: int
    """That decode in it."""
    prompts: int
    """That advance in it."""
    decode: Shape | None
    """Its decoding part, prompts left out. `None`: nothing decodes."""
    mixed: Shape | None
    """The same with its prompts. `None`: it has none."""
    times: float = 1.0
    """Forwards with prompts for each recorded one."""


def forwards(
    one: Round,
    config: EngineConfig,
    *,
    recorded: EngineConfig,
    load: float,
    drafting: Drafting,
    prompts: Prompts,
    idle_cells: int | None,
    slots: int | None = None,
) -> list[Step]:
    """A recorded round under `config`, as a mixture whose shares sum to 1.

    `load`: requests in flight relative to the recorded ones, no more than `slots` in any round. `idle_cells`: KV cells
    of cached prefixes that nobody uses; `None` leaves them as they are.
    """
    making = _Making(one, config, recorded, drafting, idle_cells)
    steps = []
    chunks, groups = together(one.chunks, load)
    for count_share, sequences in batches(one, load, len(chunks), config.token_budget, slots):
        spare = config.token_budget - len(sequences)
        if chunks:
            spare -= min(max(1, config.token_budget // PREFILL_SHARE), sum([chunk.new for chunk in chunks]))
        for share, drafts in drafts_of(sequences, drafting, max(0, spare)):
            decode = making.shape(sequences, drafts, ()) if sequences else None
            mixed, times = None, 1.0
            if chunks:
                room = max(1, config.token_budget - len(sequences) - sum(drafts))
                was_full = one.shape.rows >= recorded.token_budget
                made, times = rechunked(chunks, prompts, room, was_full)
                mixed = making.shape(sequences, drafts, made)
            steps.append(Step(count_share * share, len(sequences), len(chunks), decode, mixed, groups * times))
    return steps


def together(chunks: tuple[Chunk, ...], load: float) -> tuple[tuple[Chunk, ...], float]:
    """The prompts that meet in one forward when `load` times as many requests are in flight, and how many such
    forwards there are for each recorded one: with fewer requests, prompts meet less often."""
    n = min(len(chunks), math.ceil(len(chunks) * load - 1e-9))
    if n == len(chunks):
        return chunks, 1.0
    chosen = tuple(chunks[int((i + 0.5) * len(chunks) / n)] for i in range(n))
    return chosen, sum([chunk.new for chunk in chunks]) / sum([chunk.new for chunk in chosen])


def batches(
    one: Round, load: float, prompts: int, token_budget: int, slots: int | None = None
) -> list[tuple[float, tuple[Decoding, ...]]]:
    """The sequences that decode together when `load` times as many requests are in flight, as a mixture.

    `prompts` of them prefill, and do not decode. `slots` hold no more of both; `None`: as many as there are.
    """
    if load == 1.0:
        return [(1.0, one.decoding[:token_budget])]
    in_flight = one.requests * load if slots is None else min(one.requests * load, float(slots))
    wanted = min(max(in_flight - prompts, 0.0), float(token_budget))
    low = math.floor(wanted + 1e-9)
    part = max(wanted - low, 0.0)
    options = [(1.0 - part, low), (part, low + 1)]
    likely = [(share, n) for share, n in options if share > UNLIKELY]
    total = sum(share for share, _ in likely)
    return [(share / total, _alike(one, n)) for share, n in likely]


def _alike(one: Round, n: int) -> tuple[Decoding, ...]:
    """`n` sequences like those of a round, old and young ones in proportion, in slots of no particular order."""
    known = one.decoding or tuple(Decoding(chunk.cached + chunk.new) for chunk in one.chunks)
    slots = list(range(n))
    Random(n).shuffle(slots)  # As requests come and go, the order of slots is soon that of chance.
    return tuple(
        Decoding(kept.cached, kept.drafted, slots[i])
        for i, kept in enumerate(known[int((i + 0.5) * len(known) / n)] for i in range(n))
    )


def drafts_of(sequences: Sequence[Decoding], drafting: Drafting, spare: int) -> list[tuple[float, tuple[int, ...]]]:
    """Tokens drafted for each sequence, as a mixture; together no more than `spare`."""
    n = len(sequences)
    if drafting.source == "off" or n == 0:
        return [(1.0, (0,) * n)]
    if drafting.is_recorded:
        return [(1.0, _within(tuple(one.drafted for one in sequences), spare))]
    mixture: list[tuple[float, tuple[int, ...]]] = []
    for share, covered in _covered(n, drafting.coverage):
        total = covered * drafting.mean
        low, part = int(total + 1e-9), total - int(total + 1e-9)
        if covered == 1 and 0.15 < part < 0.85:
            options = [(share * (1.0 - part), low), (share * part, low + 1)]
        else:
            options = [(share, round(total))]
        for likely, tokens in options:
            even, more = divmod(tokens, covered) if covered > 0 else (0, 0)
            drafts = tuple(even + (i < more) for i in range(covered)) + (0,) * (n - covered)
            mixture.append((likely, _within(drafts, spare)))
    mixture = [(share, drafts) for share, drafts in mixture if share > UNLIKELY]
    whole = sum(share for share, _ in mixture)
    return [(share / whole, drafts) for share, drafts in mixture]


def _covered(n: int, coverage: float) -> list[tuple[float, int]]:
    """How many of `n` sequences have a draft: all possibilities, or the two next to the mean."""
    coverage = min(max(coverage, 0.0), 1.0)
    if n <= _EXACT_UP_TO:
        return [(math.comb(n, c) * coverage**c * (1.0 - coverage) ** (n - c), c) for c in range(n + 1)]
    low = math.floor(n * coverage + 1e-9)
    part = max(n * coverage - low, 0.0)
    return [(1.0 - part, low), (part, min(low + 1, n))]


def _within(drafts: tuple[int, ...], spare: int) -> tuple[int, ...]:
    """As the scheduler shares them when the token budget is short: whoever wants little gets it."""
    if sum(drafts) <= spare:
        return drafts
    given = [0] * len(drafts)
    left = len(drafts)
    for index in sorted(range(len(drafts)), key=drafts.__getitem__):
        given[index] = min(drafts[index], spare // left)
        spare -= given[index]
        left -= 1
    return tuple(given)


def rechunked(
    chunks: tuple[Chunk, ...], prompts: Prompts, room: int, was_full: bool
) -> tuple[tuple[Chunk, ...], float]:
    """The chunks of one forward of at most `room` prompt rows, and how many such forwards compute the same prompts.

    A chunk of a longer prompt is as large as there is room, and takes from the prompt's other chunks or leaves to them;
    but only if it was limited by room before (`was_full`), or less is computed now. What changes its size ends where
    it did, or lies in the middle of what it stands for.
    """
    wanted = [_wanted(chunk, prompts) for chunk in chunks]
    limits = [chunk.computed * one / chunk.new for chunk, one in zip(chunks, wanted, strict=True)]
    total, whole = sum(wanted), sum(limits)
    sizes = list(wanted)
    if total > room:
        part = room / total if whole > total * (1.0 + 1e-9) else 1.0 / math.ceil(total / room)
        sizes = [one * part for one in wanted]
    elif total < room and (was_full or total < sum([chunk.new for chunk in chunks])):
        sizes = [max(one, min(limit, one * room / total)) for one, limit in zip(wanted, limits, strict=True)]
    rows = [max(1, round(size)) for size in sizes]
    times = total / sum(rows)
    made = []
    for chunk, new, needed in zip(chunks, rows, wanted, strict=True):
        end = chunk.cached + chunk.new
        cached = max(0, round(end - (max(needed, new) + new) / 2))
        made.append(Chunk(cached, new, chunk.computed, chunk.found, chunk.slot))
    return tuple(made), times


def _wanted(chunk: Chunk, prompts: Prompts) -> float:
    """Prompt tokens to compute instead of a chunk's."""
    if prompts.takes_back:
        return chunk.new * max((chunk.computed + chunk.found) / chunk.computed * prompts.factor, 1.0)
    return chunk.new * max(prompts.factor, 1.0 / chunk.computed)


class _Making(NamedTuple):
    """Makes the steps of one round."""

    one: Round
    config: EngineConfig
    recorded: EngineConfig
    drafting: Drafting
    idle_cells: int | None

    def shape(self, sequences: tuple[Decoding, ...], drafts: tuple[int, ...], chunks: tuple[Chunk, ...]) -> Shape:
        one, unified = self.one, self.config.unified_kv
        spans = tuple([(s.cached, 1 + n) for s, n in zip(sequences, drafts, strict=True)])
        spans += tuple([(chunk.cached, chunk.new) for chunk in chunks])
        outputs = len(sequences) + sum(drafts) + (one.chunk_outputs if chunks else 0)
        is_same = unified == self.recorded.unified_kv and outputs == one.shape.outputs
        if is_same and sorted(spans) == sorted(one.shape.spans):
            passes = one.shape.passes
        elif unified:
            passes = (Ubatch(sum([new for _, new in spans]), outputs),)
        else:
            passes = _split(sequences, drafts, chunks, one.chunk_outputs)
        held = sum([cached + new for cached, new in spans])
        if self.idle_cells is None:
            cells = max(0, one.shape.cells + held - sum([cached + new for cached, new in one.shape.spans]))
        else:
            cells = held + self.idle_cells
        draft: tuple[DraftForward, ...] = ()
        if self.drafting.source == "draft":
            draft = draft_forwards(sequences, drafts, chunks, self.drafting.whole, is_unified=unified)
        return Shape(spans, outputs, passes, draft, cells, sum(drafts))


def _split(
    sequences: tuple[Decoding, ...], drafts: tuple[int, ...], chunks: tuple[Chunk, ...], chunk_outputs: int
) -> tuple[Ubatch, ...]:
    """Passes of a batch over a split cache: sequences in slots that are no neighbours are not taken together."""
    rows = [(s.slot, 1 + n, 1 + n) for s, n in zip(sequences, drafts, strict=True)]
    taken = {slot for slot, _, _ in rows}
    for i, chunk in enumerate(chunks):
        slot = chunk.slot if chunk.slot not in taken else max(taken) + 1
        taken.add(slot)
        rows.append((slot, chunk.new, int(i < chunk_outputs)))
    return split_equal(rows, _NO_LIMIT)


def draft_forwards(
    sequences: tuple[Decoding, ...],
    drafts: tuple[int, ...],
    chunks: tuple[Chunk, ...],
    whole: float,
    *,
    is_unified: bool = True,
) -> tuple[DraftForward, ...]:
    """Forwards of the draft model for one round: one per drafted position, for all sequences that get so far.

    The first feeds each sequence what the last round committed and the draft's context lacks: the bonus token, and the
    last draft as well where everything was accepted (a share `whole` of them). It computes the prompts too.
    """
    drafting = [(s, n) for s, n in zip(sequences, drafts, strict=True) if n > 0]
    if not drafting and not chunks:
        return ()
    n_behind = round(whole * len(drafting))
    behind = [int(i < n_behind) for i in range(len(drafting))]
    first = [(s.slot, max(s.cached - late, 0), 1 + late) for (s, _), late in zip(drafting, behind, strict=True)]
    first += [(chunk.slot, chunk.cached, chunk.new) for chunk in chunks]
    made = [_draft_forward(first, len(drafting), is_unified)]
    for position in range(1, max([n for _, n in drafting], default=0)):
        rows = [(s.slot, s.cached + position, 1) for s, n in drafting if n > position]
        made.append(_draft_forward(rows, len(rows), is_unified))
    return tuple(made)


def _draft_forward(rows: list[tuple[int, int, int]], outputs: int, is_unified: bool) -> DraftForward:
    """One forward, of sequences given as (slot, cached, new); those that draft come first."""
    passes: tuple[Ubatch, ...] = ()
    if not is_unified and len(rows) > 1:
        passes = split_equal([(slot, new, int(i < outputs)) for i, (slot, _, new) in enumerate(rows)], _NO_LIMIT)
    return DraftForward(tuple([(cached, new) for _, cached, new in rows]), outputs, passes if len(passes) > 1 else ())
