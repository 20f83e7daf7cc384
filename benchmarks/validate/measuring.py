"""Scenarios in which time is predicted: sweeps of batch and context, toggles one by one and in pairs, draft lengths."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from benchmarks.validate.scenarios import FAULTY, Block, Scenario, fixed, visits
from stackscope.workload.spec import Length, WorkloadSpec

if TYPE_CHECKING:
    from stackscope.records import DraftKind

BLOCK_S: Final = 4.0

LEARNED: Final = (1, 2, 4, 8)
HELD_OUT: Final = (3, 6)
"""Batches that a model has seen, and those that it has to say something about all the same."""


class Asked(NamedTuple):
    """Blocks of a session that are predicted, and those before them that this is learned from."""

    learned: tuple[int, ...]
    blocks: tuple[int, ...]


class Sweep(NamedTuple):
    """Blocks of a session by their part in it. Every learned batch is visited four times: up, down, up and down.

    Its odd visits are learned and each even one is predicted by the odd ones before it: eight pairs of blocks, a few
    seconds apart, so that a drift of the machine is hardly an error of the model. With all of the first half learned
    and all of the second predicted, it is: that is told beside it.
    """

    in_range: tuple[Asked, ...]
    held_out: Asked
    halves: Asked


PASSES: Final = (LEARNED, LEARNED[::-1], HELD_OUT, LEARNED, LEARNED[::-1])


def _roles() -> Sweep:
    ends = list(accumulate(map(len, PASSES), initial=0))
    up, down, held_out, again, back = (tuple(range(*span)) for span in pairwise(ends))
    pairs = Asked(up, down), Asked((*up, *again), back)
    return Sweep(pairs, Asked(up, held_out), Asked((*up, *down), (*again, *back)))


SWEEP: Final = _roles()


def _sweep(stand: Any, seconds: float) -> Scenario:
    """Batches by their slots, whose number holds at once: a lower concurrency would wait for requests to end."""
    blocks = tuple(Block(seconds=seconds, settings={"slots": batch}) for one in PASSES for batch in one)
    most = max(map(max, PASSES))
    return Scenario(
        name=f"{stand} batches", goal="time", stand=stand, workload=fixed("code", 48, 160, most), blocks=blocks,
        settings={"slots": most}, is_quick=stand == "lab",
    )  # fmt: skip


def _context(tokens: int, seconds: float) -> Scenario:
    """Two requests about one document of so many tokens, on Gemma."""
    workload = WorkloadSpec(
        name="rag", concurrency=1, documents=1, shared_tokens=tokens, prompt_tokens=Length.fixed(24),
        output_tokens=Length.fixed(300), ignore_eos=True,
    )  # fmt: skip
    blocks = (Block(seconds=1.0 + tokens / 170), Block(seconds=seconds, concurrency=2))
    return Scenario(
        name=f"gemma context {tokens}", goal="time", stand="gemma", workload=workload, blocks=blocks,
        settings={"context_tokens": 16384, "token_budget": 512},
    )  # fmt: skip


CONTEXTS: Final = (256, 1024, 4096)
"""The last is held out."""

DRAFT: Final = {"speculation": "draft"}
NGRAM: Final = {"speculation": "ngram"}
ONE_THREAD: Final = {"threads": 1}
KV_Q8: Final = {"kv_type_k": "q8_0", "kv_type_v": "q8_0"}
OTHER_WEIGHTS: Final = {"model": "stand:lab-q8"}
NO_PREFIXES: Final = {"prefix_cache": False}
SMALL_BUDGET: Final = {"token_budget": 64}


def _toggles(name: str, toggles: tuple[dict[str, Any], ...], *, seconds: float = BLOCK_S, **fields: Any) -> Scenario:
    return Scenario(name=name, goal="toggles", blocks=visits(toggles, seconds), **fields)


UNDRAFTED: Final = {"speculation": "off"}
ONE_SLOT: Final = {"slots": 1}
TWO_SLOTS: Final = {"slots": 2}
FOUR_SLOTS: Final = {"slots": 4}
SIX_DRAFTED: Final = {"draft_length": 6}


# Pairs are of what depends on each other: drafts on slots and weights, prefixes on slots and budgets. Speed-ups do not
# multiply there. Threads, which hardly depend on anything, are there for comparison.
# Drafts come late: shadows need time to see how they would do, and forget it with other weights.
SCENARIOS: Final = (
    _sweep("lab", 2.2),
    _sweep("gemma", 2.2),
    *(_context(tokens, 5.0) for tokens in CONTEXTS),
    _toggles(
        "toggles lab",
        (OTHER_WEIGHTS, ONE_THREAD, KV_Q8, NGRAM, DRAFT, DRAFT | KV_Q8, DRAFT | ONE_THREAD, NGRAM | OTHER_WEIGHTS),
        stand="lab", workload=fixed("code", 64, 48, 2), settings={"draft_length": 3},
    ),
    _toggles(
        "toggles lab, eight",
        (ONE_THREAD, FOUR_SLOTS, TWO_SLOTS, KV_Q8, NGRAM, ONE_THREAD | TWO_SLOTS, NGRAM | FOUR_SLOTS,
         NGRAM | TWO_SLOTS),
        stand="lab", workload=fixed("code", 64, 160, 8), settings={"slots": 8, "draft_length": 3},
    ),
    _toggles(
        "toggles drafts",
        (ONE_THREAD, UNDRAFTED, ONE_THREAD | UNDRAFTED, {"draft_length": 7}, {"draft_length": 1}, FOUR_SLOTS,
         FOUR_SLOTS | UNDRAFTED),
        stand="lab", workload=fixed("code", 64, 48, 4),
        settings={"speculation": "draft", "draft_length": 3, "slots": 1},
    ),
    _toggles(
        "toggles small drafts",
        (TWO_SLOTS, UNDRAFTED, TWO_SLOTS | UNDRAFTED, SIX_DRAFTED, {"draft_length": 1}, SIX_DRAFTED | TWO_SLOTS),
        stand="small", workload=fixed("code", 64, 48, 4),
        settings={"speculation": "draft", "draft_length": 3, "slots": 4},
    ),
    _toggles(
        "toggles copies",
        (ONE_SLOT, UNDRAFTED, ONE_SLOT | UNDRAFTED, SIX_DRAFTED, {"draft_length": 1}, SIX_DRAFTED | ONE_SLOT),
        stand="lab", workload=fixed("copy", 64, 48, 2),
        settings={"speculation": "ngram", "draft_length": 3, "slots": 2},
    ),
    _toggles(
        "toggles gemma", (ONE_THREAD, KV_Q8, {"flash_attention": False}, TWO_SLOTS, NGRAM, NGRAM | TWO_SLOTS),
        stand="gemma", workload=fixed("code", 64, 96, 4), settings={"slots": 4, "draft_length": 3},
    ),
    _toggles(
        "toggles prompts",
        (NO_PREFIXES, SMALL_BUDGET, ONE_THREAD, ONE_SLOT, NO_PREFIXES | SMALL_BUDGET, NO_PREFIXES | ONE_THREAD,
         NO_PREFIXES | ONE_SLOT),
        stand="small", workload=WorkloadSpec(
            name="rag", concurrency=3, documents=2, shared_tokens=256, prompt_tokens=Length.fixed(24),
            output_tokens=Length.fixed(32), ignore_eos=True,
        ),
    ),
    Scenario(
        name="toggles short", goal="toggles", stand="lab", workload=fixed("code", 64, 48, 2), is_quick=True,
        blocks=visits((ONE_THREAD, ONE_SLOT, DRAFT), BLOCK_S, rounds=1), settings={"draft_length": 3},
    ),
)  # fmt: skip


SOURCES: Final[tuple[DraftKind, ...]] = ("ngram", "draft")
TAU_LENGTHS: Final = (1, 3, 5)
TAU_TRAFFIC: Final = WorkloadSpec(
    name="code", concurrency=2, requests=150, prompt_tokens=Length.fixed(96), output_tokens=Length.fixed(128),
    ignore_eos=True,
)  # fmt: skip
"""Some seconds; enough for the few requests in which a near tie is decided otherwise to weigh little."""


def tau_name(source: str, length: int) -> str:
    """The scenario with real drafts of a length."""
    return f"{source}, {length} drafted"


def _drafting(kind: str, length: int) -> Scenario:
    """The same requests with drafts of one length."""
    return Scenario(
        name=tau_name(kind, length), goal="tau", stand="small", workload=TAU_TRAFFIC, is_quick=length == 3,
        settings={"speculation": kind, "draft_length": length}, blocks=(Block(seconds=60.0),),
    )  # fmt: skip


FOLLOWED: Final = "no drafts, all followed"
"""The requests of the sessions with drafts, each of them followed by both shadows."""
SAMPLED: Final = "no drafts, some followed"
"""Requests of the same kind, of which shadows follow what they have time for."""
SAMPLED_SHARE: Final = 0.05
"""Of the time, for those shadows: what they have by default follows one request in a hundred with a draft model, and a
minute of that is less than the 2,000 drafted tokens that the goal is meant for."""
TAU: Final = (
    Scenario(
        name=FOLLOWED, goal="tau", stand="small", workload=TAU_TRAFFIC, settings={"draft_length": 3},
        engine=FAULTY + "FollowsAll", blocks=(Block(seconds=60.0),), is_quick=True,
    ),
    Scenario(
        name=SAMPLED, goal="tau", stand="small", workload=fixed("code", 96, 128, 2),
        settings={"draft_length": 3, "shadow_share": SAMPLED_SHARE},
        blocks=(Block(seconds=60.0),),
    ),
    *(_drafting(kind, length) for kind in SOURCES for length in TAU_LENGTHS),
)  # fmt: skip
