"""A screen that is left open for hours takes no more memory than one that is left open for some minutes."""

from __future__ import annotations

import gc
import itertools
import sys
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from stackscope.analysis.diagnosis.evidence import Stall
from stackscope.analysis.diagnosis.stalls import sentence
from stackscope.analysis.explainer import MOST_STALLS, Explainer
from stackscope.analysis.live.effects import MOST_EFFECTS
from stackscope.analysis.live.view import LiveView
from stackscope.analysis.timing.fit import MOST_CONDITIONS
from stackscope.analysis.timing.model import TimeModel
from stackscope.records import ConfigEvent, Prediction, StepRecord
from stackscope.toggles import EngineConfig
from tests.unit.record_builders import SyntheticEngine, make_header

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stackscope.records import AnyRecord
    from stackscope.toggles import Setting

S: Final = 1_000_000_000
HOUR_S: Final = 3_600
TOGGLE_S: Final = 4
LOOK_S: Final = 15
CONFIG: Final = EngineConfig(model="/models/synthetic-F16.gguf", threads=2)
TOGGLES: Final[tuple[tuple[str, tuple[Setting, ...]], ...]] = (
    ("threads", (1, 2, 3, 4)), ("kv_type_k", ("q8_0", "f16")), ("flash_attention", (False, True)), ("slots", (4, 8)),
    ("unified_kv", (False, True)), ("token_budget", (64, 128, 256)), ("prefix_cache", (False, True)),
)  # fmt: skip


def toggled() -> Iterator[tuple[EngineConfig, dict[str, tuple[Setting, Setting]]]]:
    """Configurations, each after one more toggle, and what that changed."""
    config = CONFIG
    for n in itertools.count():
        name, values = TOGGLES[n % len(TOGGLES)]
        before = getattr(config, name)
        after = values[n // len(TOGGLES) % len(values)]
        if after != before:
            config = msgspec.structs.replace(config, **{name: after})
            yield config, {name: (before, after)}


def an_hour() -> Iterator[AnyRecord]:
    """Four requests at a time, and a toggle every four seconds that was predicted."""
    changes = toggled()
    epoch, next_toggle_ns = 0, TOGGLE_S * S
    for record in SyntheticEngine(seed=3, slots=4, decode_ns=350_000_000).records(100_000):
        if not isinstance(record, StepRecord):
            yield record
            continue
        step = msgspec.structs.replace(record, epoch=epoch)
        yield step
        if step.end_ns >= HOUR_S * S:
            return
        if step.end_ns >= next_toggle_ns:
            next_toggle_ns = step.end_ns + TOGGLE_S * S
            epoch += 1
            config, made = next(changes)
            yield Prediction(at_ns=step.end_ns, changes=made)
            yield ConfigEvent(at_ns=step.end_ns, epoch=epoch, kind="live", changes=made, config=config)


def reached(root: object) -> Iterator[object]:
    """Everything that an object holds, directly or not. What is in a record is not followed."""
    seen: set[int] = set()
    left: list[object] = [root]
    while left:
        one = left.pop()
        if id(one) not in seen and not isinstance(one, type | ModuleType | FunctionType):
            seen.add(id(one))
            yield one
            left += gc.get_referents(one)


def n_bytes(root: object) -> int:
    """Size of every container and array that is reached from an object; records count as the places that they take."""
    return sum(one.nbytes if isinstance(one, np.ndarray) else sys.getsizeof(one, 0) for one in reached(root))


def test_an_hour_of_toggles_takes_as_much_as_half_of_it() -> None:
    explainer = Explainer(cpu_ns=itertools.count(0, 30_000_000).__next__)  # As dear as on a slow machine.
    view = LiveView(explainer=explainer)
    view.write(make_header(config=CONFIG, workload={"concurrency": 4}))
    sizes: list[int] = []
    look_ns = size_ns = n_changes = 0
    for record in an_hour():
        view.write(record)
        n_changes += isinstance(record, ConfigEvent)
        if isinstance(record, StepRecord) and record.end_ns >= look_ns:
            look_ns = record.end_ns + LOOK_S * S
            view.snapshot(record.end_ns)
            if record.end_ns >= size_ns:
                size_ns = record.end_ns + HOUR_S * S // 12
                sizes.append(n_bytes(view))
    snapshot = view.snapshot(HOUR_S * S)
    assert n_changes > 2 * MOST_EFFECTS
    assert snapshot.score is not None
    assert len(snapshot.score.outcomes) <= MOST_EFFECTS + 1
    assert max(sizes[6:]) < 1.1 * max(sizes[:6])
    assert max(sizes) < 6_000_000
    # Of each configuration that is remembered: its own, with and without what it knows, and what it was derived from.
    assert sum(isinstance(one, TimeModel) for one in reached(view)) <= 4 * MOST_CONDITIONS


def test_of_many_stalls_the_newest_are_kept_with_the_longest_and_all_are_counted() -> None:
    explainer = Explainer()
    for n in range(3 * MOST_STALLS):
        explainer.remember_stalls((Stall(n, (900 if n == 5 else 2) * S, 1e6), Stall(n + 1, 2 * S, 1e6)))
    found = explainer.explanation(0)
    numbers = [stall.n for stall in found.stalls]
    assert numbers == [5, *range(2 * MOST_STALLS + 2, 3 * MOST_STALLS + 1)]
    assert found.n_stalls == 3 * MOST_STALLS + 1
    told = sentence(found.stalls, found.n_stalls)
    assert told is not None
    assert told.startswith(f"{3 * MOST_STALLS + 1} steps stalled, one for 15")
