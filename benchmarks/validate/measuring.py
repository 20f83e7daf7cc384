"""Scenarios in which time is predicted: sweeps of batch and context, toggles one by one and in pairs, draft lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from benchmarks.validate.scenarios import FAULTY, Block, Scenario, fixed, visits
from stackscope.workload.spec import Length, WorkloadSpec

if TYPE_CHECKING:
    from stackscope.records import DraftKind

BLOCK_S: Final = 4.0

LEARNED: Final = (1, 2, 4, 8)
HELD_OUT: Final = (3, 6)
"""Batches that a model has seen, and those that it has to say something about all the same."""


def _sweep(stand: Any, seconds: float) -> Scenario:
    """Every learned batch, the held-out ones, and the learned ones once more."""
    batches = (*LEARNED, *HELD_OUT, *LEARNED[::-1])
    blocks = tuple(Block(seconds=seconds, concurrency=batch) for batch in batches)
    workload = fixed("code", 48, 160, LEARNED[0])
    return Scenario(
        name=f"{stand} batches", goal="time", stand=stand, workload=workload, blocks=blocks, is_quick=stand == "lab"
    )


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


# Drafts come late: shadows need time to see how they would do, and forget it with other weights.
SCENARIOS: Final = (
    _sweep("lab", 2.5),
    _sweep("gemma", 3.0),
    *(_context(tokens, 5.0) for tokens in CONTEXTS),
    _toggles(
        "toggles lab", (OTHER_WEIGHTS, ONE_THREAD, KV_Q8, NGRAM, DRAFT, DRAFT | KV_Q8, DRAFT | ONE_THREAD),
        stand="lab", workload=fixed("code", 64, 48, 2), settings={"draft_length": 3},
    ),
    _toggles(
        "toggles lab, eight",
        (ONE_THREAD, FOUR_SLOTS, TWO_SLOTS, KV_Q8, ONE_THREAD | FOUR_SLOTS, ONE_THREAD | TWO_SLOTS),
        stand="lab", workload=fixed("code", 64, 160, 8), settings={"slots": 8},
    ),
    _toggles(
        "toggles drafts",
        (ONE_THREAD, UNDRAFTED, ONE_THREAD | UNDRAFTED, {"draft_length": 7}, {"draft_length": 1}),
        stand="lab", workload=fixed("code", 64, 48, 1), settings={"speculation": "draft", "draft_length": 3},
    ),
    _toggles(
        "toggles small drafts", (TWO_SLOTS, UNDRAFTED, TWO_SLOTS | UNDRAFTED, {"draft_length": 6}, {"draft_length": 1}),
        stand="small", workload=fixed("code", 64, 48, 4),
        settings={"speculation": "draft", "draft_length": 3, "slots": 4},
    ),
    _toggles(
        "toggles copies", (ONE_SLOT, UNDRAFTED, ONE_SLOT | UNDRAFTED, {"draft_length": 6}, {"draft_length": 1}),
        stand="lab", workload=fixed("copy", 64, 48, 2),
        settings={"speculation": "ngram", "draft_length": 3, "slots": 2},
    ),
    _toggles(
        "toggles gemma", (ONE_THREAD, KV_Q8, {"flash_attention": False}, TWO_SLOTS, ONE_THREAD | TWO_SLOTS),
        stand="gemma", workload=fixed("code", 64, 96, 4), settings={"slots": 4},
    ),
    _toggles(
        "toggles prompts",
        (NO_PREFIXES, SMALL_BUDGET, ONE_THREAD, NO_PREFIXES | SMALL_BUDGET, NO_PREFIXES | ONE_THREAD),
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
