"""Random traffic under random changes: whatever comes together, nothing is lost, miscounted or said differently."""

from __future__ import annotations

import random
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from stackscope.engine.llama import Context
from stackscope.engine.prefix_cache import PrefixCache
from stackscope.model.catalog import bundled_target
from tests.integration.fuzzing import Fuzz, Plain, troubled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stackscope.engine.prefix_cache import Tokens

pytestmark = pytest.mark.engine

N_STEPS = 300
MOST_STEPS = 1200

LENDING: dict[str, object] = {
    "prefix_cache": True, "cache_tokens": None, "slots": 6, "context_tokens": 2048, "token_budget": 256,
    "synthetic_acceptance": None, "threads": 1,
}  # fmt: skip
"""With which many requests share prefixes."""


@pytest.fixture(scope="module")
def plain() -> Plain:
    return Plain(seed=1)


@contextmanager
def driven(fuzz: Fuzz, *, kind: str = "live") -> Iterator[Fuzz]:
    """An engine that has been driven at random, every law checked after every step, until all its requests ended.

    What comes by chance depends on what the models say, which differs between processors: it goes on until there was a
    change of this `kind`.
    """
    try:
        while fuzz.n_steps < N_STEPS or (fuzz.kinds[kind] == 0 and fuzz.n_steps < MOST_STEPS):
            fuzz.step()
        fuzz.finish()
        yield fuzz
    finally:
        fuzz.engine.close()


@pytest.mark.parametrize("seed", [2, 15, 27])
def test_every_law_holds_whatever_is_switched(plain: Plain, seed: int) -> None:
    with driven(Fuzz(plain, seed), kind="rebuild") as fuzz:
        assert fuzz.kinds["live"] > 20
        assert fuzz.kinds["rebuild"] > 0
        assert len(fuzz.finished) > 20


def test_every_law_holds_when_forwards_are_cut_short_and_room_is_denied(
    plain: Plain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Context, "decode", troubled(random.Random(2)))
    with driven(Fuzz(plain, 2)) as fuzz:
        assert len(fuzz.finished) > 20


def drafting_for_itself(plain: Plain) -> Fuzz:
    """A draft model that is the target: its drafts are the target's own tokens, if its memory is right.

    Drafting is switched on and off, so that its context has to catch up with requests that share prefixes.
    """
    return Fuzz(plain, 104, draft=str(bundled_target()), fixed=LENDING, favourite="speculation")


def test_what_the_draft_model_has_of_a_request_is_the_request_s(plain: Plain) -> None:
    with driven(drafting_for_itself(plain)) as fuzz:
        assert fuzz.rejections[False] > 50
        assert fuzz.rejections[True] <= 0.03 * fuzz.rejections.total()


def test_a_prefix_lent_to_the_wrong_request_is_seen(plain: Plain, monkeypatch: pytest.MonkeyPatch) -> None:
    right = PrefixCache.overlaps

    def wrong(cache: PrefixCache, tokens: Tokens) -> dict[int, int]:
        return right(cache, tokens) | {i: min(len(tokens), len(cache.path(i))) for i in cache._paths.leaves}

    monkeypatch.setattr(PrefixCache, "overlaps", wrong)
    with driven(drafting_for_itself(plain)) as fuzz:
        assert fuzz.rejections[True] > 0.1 * fuzz.rejections.total()
