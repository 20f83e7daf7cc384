"""What each change did: which stretches are compared, which are not and why, and when something is said at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from stackscope.analysis.live.effects import MOST_EFFECTS, MOST_WARM_UP_NS
from stackscope.records import ConfigEvent
from tests.random_rates import KINDS
from tests.unit.blocks import HALF, SECOND, WOBBLE, Session

if TYPE_CHECKING:
    from stackscope.toggles import Setting

N_SIMULATIONS = 100


def steady(**kwargs: int) -> Session:
    """A session that has run for a minute."""
    session = Session(**kwargs)
    session.run(61)
    return session


class TestOrder:
    def test_it_settles_then_is_being_measured_then_is_measured(self) -> None:
        session = steady()
        at = session.toggle(speculation="ngram")
        assert session.states(at, [75.0] * 12) == ["settling", "measuring", "measured"]
        effect = session.effect(at)
        assert effect.tokens is not None
        assert effect.tokens.value == pytest.approx(1.5, rel=0.01)
        assert effect.tokens.low < 1.5 < effect.tokens.high
        assert [effect.before, effect.after] == pytest.approx([100, 150], rel=0.01)
        assert (effect.before_s, effect.after_s) == (60.0, 4.5)
        assert effect.why is None

    def test_it_says_what_is_awaited(self) -> None:
        session = steady()
        at = session.toggle(speculation="ngram")
        waits = [session.effect(at).why]
        for _ in range(7):
            session.run(0.5)
            waits.append(session.effect(at).why)
        assert waits == [
            "another 1 s", "another 1 s", "another 1 s",
            "another 3 s", "another 2 s", "another 2 s", "another 1 s", "another 1 s",
        ]  # fmt: skip

    def test_no_difference_is_called_that(self) -> None:
        session = steady()
        at = session.toggle(threads=2)
        session.run(20)
        effect = session.effect(at)
        assert effect.state == "not distinguishable"
        assert effect.tokens is not None
        assert not effect.tokens.is_distinguishable

    def test_it_is_refined_for_a_minute_and_no_longer(self) -> None:
        session = steady()
        at = session.toggle(threads=2)
        lengths = []
        for _ in range(160):
            session.run(0.5, rates=(150.0,))
            lengths.append(session.effect(at).after_s)
        assert sorted(set(lengths)) == [0.0, 3.0, 4.5, 7.0, 10.5, 16.0, 24.0, 36.0, 54.0, 60.0]

    def test_what_varies_too_much_is_watched_for_longer_and_then_left(self) -> None:
        session = steady()
        at = session.toggle(threads=2)
        wild = (300.0, 0.0, 20.0, 10.0, 250.0, 5.0, 400.0)
        session.run(6, rates=wild)
        effect = session.effect(at)
        assert (effect.state, effect.tokens, effect.why) == (
            "measuring",
            None,
            "the speed varies too much to tell yet",
        )
        session.toggle(threads=1)
        effect = session.effect(at)
        assert (effect.state, effect.tokens, effect.why) == (
            "not comparable",
            None,
            "the speed varied too much to tell",
        )

    def test_the_next_change_freezes_it_with_all_there_is(self) -> None:
        session = steady()
        first = session.toggle(threads=2)
        session.run(10, speed=2)
        second = session.toggle(threads=1)
        frozen = session.effect(first)
        assert (frozen.state, frozen.after_s) == ("measured", 9.0)
        session.run(10)
        assert session.effect(first) is frozen
        effect = session.effect(second)
        assert effect.tokens is not None
        assert [effect.before_s, effect.tokens.value] == pytest.approx([9, 0.5], rel=0.02)

    def test_the_end_of_the_session_freezes_it_too(self) -> None:
        session = steady()
        at = session.toggle(threads=2)
        session.run(2)
        session.effects.end(session.now_ns)
        effect = session.effect(at)
        assert (effect.state, effect.why) == ("not comparable", "the session ended after 2 s, too soon to measure")


class TestStretches:
    def test_what_came_right_after_a_change_is_left_out(self) -> None:
        session = steady()
        at = session.toggle(speculation="draft")
        session.run(1, speed=0.01)
        session.run(2, speed=0.01, is_settling=True)
        assert session.effect(at).why == "the draft model is catching up"
        session.run(10, speed=1.5)
        effect = session.effect(at)
        assert effect.tokens is not None
        assert effect.tokens.value == pytest.approx(1.5, rel=0.01)

    def test_so_is_the_beginning_of_the_session(self) -> None:
        session = Session()
        session.run(1, speed=0.01)
        session.run(10)
        at = session.toggle(threads=2)
        session.run(5)
        assert session.effect(at).before == pytest.approx(100, rel=0.01)

    def test_a_block_across_the_change_counts_on_neither_side(self) -> None:
        session = steady()
        session.now_ns += HALF // 2
        at = session.toggle(threads=2)
        session.now_ns -= HALF // 2
        session.block(10_000.0)
        session.run(10)
        assert session.effect(at).after == pytest.approx(100, rel=0.02)

    def test_after_a_rebuild_the_prefill_of_what_was_put_back_is_left_out(self) -> None:
        session = steady()
        at = session.toggle("rebuild", took_s=2, kv_type_k="q8_0")
        for _ in range(8):
            session.block(1.0, 400.0)
        assert session.effect(at).why == "prompts are being prefilled"
        session.run(10, speed=1.2)
        effect = session.effect(at)
        assert effect.tokens is not None
        assert effect.tokens.value == pytest.approx(1.2, rel=0.01)
        assert effect.after_s == 7.0

    def test_so_is_the_refilling_of_the_prefix_cache(self) -> None:
        session = Session()
        session.run(61, found=1.8)
        at = session.toggle("rebuild", took_s=1, kv_type_k="q8_0")
        session.run(5, speed=0.5, found=0.2)
        assert session.effect(at).state == "settling"
        session.run(10, found=1.8)
        assert session.effect(at).state == "not distinguishable"

    def test_but_not_for_ever(self) -> None:
        session = Session()
        session.run(61, found=1.8)
        at = session.toggle("rebuild", took_s=1, kv_type_k="q8_0")
        session.run(MOST_WARM_UP_NS / SECOND + 20, speed=0.5, found=0.2)
        effect = session.effect(at)
        assert effect.state == "not comparable"
        assert effect.why == (
            "the prefix cache spares another part of the work: "
            "0.20 prompt tokens computed per output token before, 1.80 after"
        )

    def test_where_the_workload_runs_out_nothing_is_measured_any_more(self) -> None:
        session = steady()
        at = session.toggle(threads=2)
        session.run(10)
        session.run(20, speed=0.2, busy=1.0)
        assert session.effect(at).state == "not distinguishable"

    @pytest.mark.parametrize("block_ns", [HALF, 2_300_000_000], ids=["spread over blocks", "one block each"])
    def test_steps_may_take_longer_than_a_block(self, block_ns: int) -> None:
        rates = [8 / seconds for seconds in (2.2, 2.5, 2.1, 2.4) for _ in range(4 if block_ns == HALF else 1)]
        session = Session()
        session.run(60, rates=rates, block_ns=block_ns)
        at = session.toggle(threads=2)
        session.run(60, rates=[2 * rate for rate in rates], block_ns=block_ns)
        effect = session.effect(at)
        assert effect.state == "measured"
        assert effect.tokens is not None
        assert effect.tokens.value == pytest.approx(2, rel=0.03)

    def test_few_blocks_with_tokens_are_waited_for(self) -> None:
        session = steady()
        at = session.toggle(threads=2)
        for i in range(14):
            session.block(400.0 if i % 6 == 5 else 0.0, 800.0 if i % 6 == 5 else 0.0)
        assert (session.effect(at).state, session.effect(at).why) == ("measuring", "more tokens")


class TestComparable:
    @pytest.mark.parametrize(
        ("changed", "before", "after", "told"),
        [
            ({"speculation": "ngram"}, 0.95, 0.16, "95.0 % of its cores before, 16.0 % after"),
            ({"speculation": "ngram"}, 0.3, 0.95, "30.0 % of its cores before, 95.0 % after"),
            ({"speculation": "ngram"}, 0.3, 0.3, "30.0 % of its cores before, 30.0 % after"),
            ({"speculation": "ngram"}, 0.95, 0.9, None),
            ({"speculation": "ngram"}, 0.6, 0.6, None),
            ({"speculation": "ngram"}, None, 0.2, None),
            ({"threads": 4}, 0.95, 0.5, None),
        ],
    )
    def test_cores_that_others_took_are_no_effect(
        self, changed: dict[str, Any], before: float | None, after: float, told: str | None
    ) -> None:
        """Whoever begins to compile beside a run must not make a change look slow, nor its prediction wrong."""
        session = Session()
        session.cores = before
        session.run(20)
        at = session.toggle(**changed)
        session.cores = after
        session.run(20, speed=0.5)
        effect = session.effect(at)
        if told is None:
            assert (effect.state, effect.why) == ("measured", None)
        else:
            assert effect.tokens is None
            assert (effect.state, effect.why) == ("not comparable", f"something else ran: the engine had {told}")

    @pytest.mark.parametrize(
        ("changed", "after", "why"),
        [
            (
                {"threads": 2},
                {"prompts": 4.0},
                "the work differs: 2.00 prompt tokens per output token before, 4.00 after",
            ),
            ({"threads": 2}, {"prompts": 2.2}, None),
            (
                {"threads": 2},
                {"found": 1.5},
                "the prefix cache spares another part of the work: "
                "2.00 prompt tokens computed per output token before, 0.50 after",
            ),
            ({"prefix_cache": True}, {"found": 1.5}, None),
            ({"threads": 2}, {"busy": 3.0}, "the load differs: 4.00 requests in flight before, 3.00 after"),
            ({"threads": 2}, {"busy": 3.8}, None),
            ({"slots": 3}, {"busy": 3.0}, None),
        ],
    )
    def test_the_work_must_be_the_same_unless_the_change_explains_it(
        self, changed: dict[str, Setting], after: dict[str, float], why: str | None
    ) -> None:
        session = steady()
        at = session.toggle(**changed)  # type: ignore[arg-type]
        session.run(20, **after)  # type: ignore[arg-type]
        effect = session.effect(at)
        assert effect.why == why
        assert effect.state == ("not distinguishable" if why is None else "not comparable")
        assert (effect.tokens is None) is (why is not None)

    def test_a_few_prompts_more_in_a_short_stretch_are_chance(self) -> None:
        session = Session()
        lumps = [0.0, 0.0, 0.0, 800.0]
        for i in range(122):
            session.block(50.0, lumps[i % 4])
        at = session.toggle(threads=2)
        for i in range(10):
            session.block(50.0, lumps[(i + 1) % 4] * 1.5)
        assert session.effect(at).state == "not distinguishable"

    def test_another_load_ends_a_stretch_and_is_itself_measured(self) -> None:
        session = steady()
        first = session.toggle(threads=2)
        session.run(10)
        second = session.offer(concurrency=2)
        session.run(20, speed=0.6, busy=2.0)
        assert session.effect(first).after_s == 9.0
        effect = session.effect(second)
        assert effect.state == "measured"
        assert effect.tokens is not None
        assert effect.tokens.value == pytest.approx(0.6, rel=0.01)

    def test_the_load_that_is_already_offered_is_no_change(self) -> None:
        session = steady()
        at = session.toggle(threads=2)
        session.run(10)
        assert session.effects.effect_of(session.offer(concurrency=4)) is None
        session.run(10)
        assert session.effect(at).after_s == 16.0

    def test_an_engine_that_keeps_up_with_arrivals_shows_no_effect(self) -> None:
        session = Session(concurrency=None)
        session.run(61, busy=1.5)
        at = session.toggle(speculation="draft")
        session.run(20, busy=1.0)
        assert session.effect(at).why == (
            "requests arrive more slowly than slots fall free, so the speed is that of the arrivals"
        )

    def test_nothing_before_is_nothing_to_compare_with(self) -> None:
        session = Session()
        at = session.toggle(threads=2)
        session.run(20)
        effect = session.effect(at)
        assert effect.state == "not comparable"
        assert effect.why == "nothing of the configuration before it could be measured"

    def test_a_configuration_that_ran_too_briefly_is_told(self) -> None:
        session = Session()
        session.run(3)
        at = session.toggle(threads=2)
        session.run(20)
        assert session.effect(at).why == "only 2 s of the configuration before it could be measured"


class TestSequences:
    def test_changes_in_quick_succession_are_measured_together(self) -> None:
        session = steady()
        hasty = []
        for length in (4, 5, 6):
            hasty.append(session.toggle(draft_length=length))
            session.run(0.5, speed=0.1)
        session.run(10, speed=1.4)
        assert [session.effect(at).why for at in hasty] == [
            "changed again after 500 ms, too soon to measure",
            "changed again after 500 ms, too soon to measure",
            "with the 2 changes before it",
        ]
        effect = session.effect(hasty[-1])
        assert effect.tokens is not None
        assert effect.tokens.value == pytest.approx(1.4, rel=0.02)

    def test_but_not_with_what_was_long_ago(self) -> None:
        session = steady()
        for i in range(40):
            at = session.toggle(threads=1 + i % 2)
            session.run(2)
        session.run(10)
        assert session.effect(at).why == "only 1 s of the configuration before it could be measured"

    def test_refusals_and_events_that_change_nothing_are_passed_over(self) -> None:
        session = steady()
        at = session.toggle(threads=2)
        session.run(5)
        now = session.now_ns
        session.effects.add_change(ConfigEvent(at_ns=now, epoch=1, kind="refused", changes={"slots": (4, 0)}))
        session.effects.add_change(ConfigEvent(at_ns=now, epoch=1, kind="live", by="engine"))
        assert session.effects.effect_of(now) is None
        session.run(6)
        assert session.effect(at).after_s == 7.0

    def test_a_change_whose_event_was_lost_ends_the_stretch(self) -> None:
        session = steady()
        at = session.toggle(threads=2)
        session.run(10)
        session.epoch += 1
        session.run(20, speed=5)
        assert session.effect(at).after == pytest.approx(100, rel=0.02)
        late = session.toggle(threads=1)
        session.run(5)
        assert session.effect(late).before == pytest.approx(500, rel=0.02)

    def test_old_effects_are_forgotten(self) -> None:
        session = steady()
        times = []
        for i in range(MOST_EFFECTS + 10):
            times.append(session.toggle(threads=1 + i % 2))
            session.run(0.5)
        remembered = [at for at in times if session.effects.effect_of(at) is not None]
        assert remembered == times[10:]


@pytest.mark.parametrize("kind", ["independent", "alike", "rare lulls"])
def test_however_often_one_looks_no_effect_is_seldom_taken_for_one(kind: str) -> None:
    random = np.random.default_rng(5)
    n_wrong = 0
    for _ in range(N_SIMULATIONS):
        session = Session()
        session.run(61, rates=KINDS[kind](random, 122))
        at = session.toggle(threads=2)
        n_wrong += "measured" in session.states(at, [rate / 2 for rate in KINDS[kind](random, 122)])
    assert n_wrong <= 0.08 * N_SIMULATIONS


def test_the_rates_of_these_tests_are_around_100() -> None:
    assert sum(WOBBLE) / len(WOBBLE) == 100
