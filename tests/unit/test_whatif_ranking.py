"""What is recommended, what is not, what is said of changes that get in each other's way, and how long it takes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import msgspec
import pytest

from stackscope.analysis.timing.terms import Terms
from stackscope.analysis.whatif import breakevens
from stackscope.analysis.whatif.candidates import MOST_PAIRS, Candidate, pairs, singles
from stackscope.analysis.whatif.predict import Predictor
from stackscope.analysis.whatif.ranking import LEAST_GAIN, MOST_STRAY, Ranking, rank
from stackscope.analysis.whatif.wording import label
from stackscope.engine.allowances import Allowances
from stackscope.records import Estimate
from tests.unit.whatif_engine import LotCurve, Traffic, recorded
from tests.unit.whatif_machine import CONFIG, FOUR_BITS, Machine, Times, stated_point

if TYPE_CHECKING:
    from stackscope.analysis.ledgers import Pricing
    from stackscope.analysis.timing.shapes import Shape

WIDE: Final = msgspec.structs.replace(CONFIG, slots=16)


@pytest.fixture(scope="module")
def ranking() -> Ranking:
    point = recorded(Machine(row_ns=0.4e6), WIDE, Traffic(concurrency=4))
    point = msgspec.structs.replace(point, rules=Allowances(cores=2))
    predictor = Predictor(point)
    return rank(predictor, 7, breakevens.all_of(predictor))


def test_every_toggle_is_among_the_candidates() -> None:
    point = msgspec.structs.replace(stated_point(lambda *_: Terms(weights=1e6)), rules=Allowances(cores=4))
    made = singles(point)
    families = {one.family for one in made}
    assert families == {
        "speculation", "weights", "KV type", "flash attention", "unified KV", "prefix cache", "slots", "token budget",
        "threads",
    }  # fmt: skip
    lengths = {one.changes["draft_length"] for one in made if one.changes.get("speculation") == "ngram"}
    assert lengths == set(range(1, 9))
    for one in made:
        assert any(getattr(point.config, name) != value for name, value in one.changes.items())


def test_running_drafts_may_be_switched_off_or_made_longer() -> None:
    running = msgspec.structs.replace(CONFIG, speculation="ngram", draft_length=3, draft_length_max=4)
    made = singles(stated_point(lambda *_: Terms(weights=1e6), running))
    changes = [one.changes for one in made if one.family == "speculation"]
    assert {"speculation": "off"} in changes
    assert {"draft_length": 2} in changes
    assert {"draft_length": 8, "draft_length_max": 8} in changes
    assert {"draft_length": 3} not in changes


def test_a_quantised_cache_brings_flash_attention_with_it() -> None:
    plain = msgspec.structs.replace(CONFIG, flash_attention=False)
    made = singles(stated_point(lambda *_: Terms(weights=1e6), plain))
    kinds = [one.changes for one in made if one.family == "KV type"]
    assert kinds
    assert all(change["flash_attention"] is True for change in kinds)


def test_pairs_join_families_and_never_contradict_themselves() -> None:
    some = [Candidate(str(n), {f"s{n}": n}) for n in range(8)] + [Candidate("0", {"s9": 1})]
    made = pairs(some)
    assert len(made) == MOST_PAIRS
    assert made[0].changes == {"s0": 0, "s1": 1}
    assert all(len(set(one.family.split(" + "))) == 2 for one in made)
    assert pairs([Candidate("a", {"x": 1}), Candidate("b", {"x": 2})]) == []


def test_ranked_by_gain_with_what_is_not_known_last(ranking: Ranking) -> None:
    gains = [one.gain.value if one.gain is not None else None for one in ranking.singles]
    known = [gain for gain in gains if gain is not None]
    assert known == sorted(known, reverse=True)
    assert gains[: len(known)] == known
    assert all(one.prediction.at_ns == 7 for one in ranking.singles)
    assert all(one.prediction.reason for one in ranking.singles)


def test_only_what_can_be_told_from_nothing_is_recommended(ranking: Ranking) -> None:
    recommended = ranking.recommended
    assert recommended
    for one in recommended:
        assert one.gain is not None
        assert one.gain.low > 1.0
        assert one.gain.value >= LEAST_GAIN
    families = [one.candidate.family for one in recommended if " + " not in one.candidate.family]
    assert len(set(families)) == len(families)


def test_the_obvious_is_found(ranking: Ranking) -> None:
    labels = [one.label for one in ranking.recommended]
    assert any("4.5-bit weights" in one for one in labels)


def test_a_gain_that_ends_with_the_batch_is_called_out(ranking: Ranking) -> None:
    said = [one for one in ranking.contradictions if "helps alone" in one]
    assert said
    assert "above batch" in said[0]
    assert any("less than the product" in one for one in ranking.contradictions)


def test_what_helps_alone_and_not_together_is_called_out() -> None:
    """Drafts use compute that memory leaves idle; with small weights there is none left."""

    def roof(shape: Shape, own: Pricing) -> Terms:
        assert own.target is not None
        memory, compute = own.target.weights.ffn.bytes * 1.0, 1e6 * shape.rows
        return Terms(weights=memory, compute=max(0.0, compute - memory))

    point = stated_point(roof, curves={"draft": LotCurve(0.4, 1.0, frozenset({3}))})
    ranking = rank(Predictor(msgspec.structs.replace(point, rules=None)))
    said = next(one for one in ranking.contradictions if one.startswith("Draft-model drafts of 3"))
    assert said == "Draft-model drafts of 3: helps alone, but not with 4.5-bit weights."


def test_an_open_loop_is_ranked_by_how_much_sooner_tokens_come() -> None:
    point = msgspec.structs.replace(
        recorded(Machine(), WIDE, Traffic(concurrency=4)), concurrency=None, rate=1.0, idle_share=0.3
    )
    ranking = rank(Predictor(point))
    best = ranking.recommended[0]
    assert best.prediction.tokens == Estimate(1.0, 1.0, 1.0)
    assert best.prediction.step_gap is not None
    assert best.gain is not None
    assert best.gain.value == pytest.approx(1.0 / best.prediction.step_gap.value)


def test_ranking_everything_is_quick() -> None:
    """The live screen asks every few seconds. Twice what it takes on a quiet machine."""
    point = recorded(Machine(), WIDE, Traffic(concurrency=16))
    point = msgspec.structs.replace(point, rules=Allowances(cores=2))
    rank(Predictor(point))
    spent = []
    for _ in range(3):
        began = time.process_time()
        rank(Predictor(point))
        spent.append(time.process_time() - began)
    assert min(spent) < 0.3


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"speculation": "ngram", "draft_length": 3}, "n-gram drafts of 3"),
        ({"speculation": "off"}, "no speculation"),
        ({"draft_length": 5}, "drafts of 5"),
        ({"model": FOUR_BITS}, "4.5-bit weights"),
        ({"kv_type_k": "q8_0", "kv_type_v": "q8_0"}, "KV q8_0"),
        ({"kv_type_k": "q8_0", "kv_type_v": "q8_0", "flash_attention": True}, "KV q8_0"),
        ({"flash_attention": False, "kv_type_k": "f16", "kv_type_v": "f16"}, "KV f16 and flash attention off"),
        ({"kv_type_k": "q8_0"}, "kv type k q8_0"),
        ({"slots": 16, "slots_max": 16}, "16 slots"),
        ({"threads": 1}, "1 thread"),
        ({"prefix_cache": True}, "prefix cache on"),
        ({"cache_tokens": None}, "no cache limit"),
        ({"cache_tokens": 4096}, "a cache limit of 4,096 tokens"),
        ({"unified_kv": False}, "unified KV off"),
        ({"context_tokens": None}, "context tokens not limited"),
        ({"rate": 0.5}, "rate 0.50"),
        ({"model": FOUR_BITS, "slots": 2}, "4.5-bit weights and 2 slots"),
    ],
)
def test_labels(changes: dict[str, str | int | bool | None], words: str) -> None:
    assert label(stated_point(lambda *_: Terms(weights=1e6)), changes) == words


@pytest.mark.parametrize(
    ("unknown", "residual", "doubt"),
    [
        ({}, MOST_STRAY - 0.01, None),
        ({"head": "cannot be told apart"}, 0.0, None),
        ({"starvation": "the engine's threads had 85% of their cores at most"}, 0.1, None),
        ({"starvation": "the engine's threads had 40% of their cores at most"}, 0.5, "single steps stray by 50 %"),
        ({}, MOST_STRAY + 0.01, "single steps stray by 41.0 %"),
    ],
)
def test_nothing_is_recommended_from_times_that_cannot_carry_it(
    unknown: dict[str, str], residual: float, doubt: str | None
) -> None:
    point = recorded(Machine(row_ns=0.4e6), WIDE, Traffic(concurrency=4))
    times = Times(Machine(row_ns=0.4e6), point.config, point.pricing, residual)
    times.unknown = unknown
    found = rank(Predictor(msgspec.structs.replace(point, times=times, rules=Allowances(cores=2))))
    assert any(one.gain is not None for one in found.singles)
    if doubt is None:
        assert found.doubt is None
        return
    assert doubt in str(found.doubt)
    assert (found.recommended, found.pairs, found.contradictions) == ((), (), ())
    assert not any(one.is_recommended for one in found.singles)
