"""What steps of one configuration teach: a belief for each block, and how far steps stray from it."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import numpy as np

from stackscope.analysis.timing import beliefs as believed
from stackscope.analysis.timing.design import BLOCKS, COLUMNS_OF, by_parameter
from stackscope.analysis.timing.drawing import Belief
from stackscope.analysis.timing.forwards import COLUMNS, WEIGHTS
from stackscope.analysis.timing.model import Errors, Seen
from stackscope.analysis.timing.sampled import times_by_block, unpacked
from stackscope.analysis.timing.solving import FEW, NO_DATA, Data, Posterior, Prior, scale_of, solve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.analysis.timing.curves import Floats
    from stackscope.analysis.timing.design import Design
    from stackscope.analysis.timing.sampled import Kept
    from stackscope.records import Ceilings
    from stackscope.toggles import EngineConfig

STARVED: Final = 0.9
"""A step whose threads had less than this share of what they mostly have was starved: it waited, and teaches nothing
about bytes and FLOPs."""

DRIFT: Final = 0.05
"""Standard deviation (ln) of a machine's level from one window of time to another, while nothing else is known of it:
over 28 windows of the recordings in `profiles`, the medians of like steps strayed by 0.049."""
WINDOW_NS: Final = 5_000_000_000
"""For so long the level is taken to be one: a hundred steps of a window say no more of it than one."""
FEW_IN_WINDOW: Final = 3
"""Steps that show the level of a window."""
FEW_WINDOWS: Final = 4
"""So many windows say as much of how the level drifts as is known beforehand."""

COLDER: Final = 1.0
"""What reading weights that fit the last cache takes longer between other work than in a row of forwards, which leave
part of them in the nearer caches, as a share of that (standard deviation): the bundled target's took 0.3 ms more."""
NEARER_BYTES: Final = 16e6
"""What the nearer caches of some cores hold at most: of larger weights, no more than that can have been in them."""
LEAST_COLDER: Final = 0.15
"""That share at least: the last cache may be shared with others."""

DRAFT_SLOWER: Final = 0.2
"""How much a draft model's forwards are slower between the target's than by themselves (ln, standard deviation)."""
DRAFT_EVICTED: Final = 0.6
"""The same when it would stay in the processor's cache, were it not for the target."""

_USUAL: Final = {
    "ngram.sequence": 4_000.0, "ngram.token": 500.0,
    "model.forward": 80_000.0, "model.sequence": 4_000.0, "model.token": 6_000.0,
    "sample.step": 5_000.0, "sample.output": 2_000.0, "sample.drafted": 1_000.0,
    "host.step": 60_000.0, "host.sequence": 12_000.0, "host.chunk": 200_000.0, "host.row": 300.0,
}  # fmt: skip
"""Nanoseconds of what is not the models', on a core of some 3 GHz."""
_ARGMAX_NS: Final = 0.4
"""Of looking through the logits of one row, per token of the vocabulary."""


class Learned(NamedTuple):
    """What is known of one configuration."""

    beliefs: tuple[Belief, ...]
    seen: Seen
    errors: Errors
    level: float
    starved: float
    unstarved: tuple[Kept, ...]
    """The steps that it was learned from."""
    shares_at_best: float | None
    """CPU share that the engine's threads mostly had. `None`: not known."""


def priors(
    design: Design, config: EngineConfig, ceilings: Ceilings | None, *, rates: Ceilings | None = None
) -> tuple[tuple[Prior, Data], ...]:
    """What is believed of each block, and measured, before any step.

    `rates`: ceilings of another model on the same machine, of which only the rates count.
    """
    rates = ceilings or rates
    target = believed.prior(design.target, ceilings or _rates_only(rates))
    measured = NO_DATA
    if ceilings is not None:
        measured = believed.calibration(design.target, ceilings, (*ceilings.forwards, *ceilings.contexts))
        if ceilings.fits_cache:
            nearer = min(max(NEARER_BYTES / max(design.target.body_bytes, 1), LEAST_COLDER), 1.0)
            target = target._replace(colder=(WEIGHTS, COLDER * nearer * float(target.mean[WEIGHTS])))
    model = design.target.ledger.model
    sample = _plain("sample", {"output": 2_000.0 + _ARGMAX_NS * model.vocabulary})
    draft = _draft_prior(design, config, rates)
    return (target, measured), draft, (sample, NO_DATA), (_plain("host"), NO_DATA)


def _plain(block: str, known: dict[str, float] | None = None) -> Prior:
    names = COLUMNS_OF[block].parameters
    mean = np.array([(known or {}).get(name.partition(".")[2], _USUAL[name]) for name in names])
    return Prior(mean, 1.5 * mean, np.zeros((0, len(mean))), 1.0)


def _draft_prior(design: Design, config: EngineConfig, ceilings: Ceilings | None) -> tuple[Prior, Data]:
    """Of obtaining drafts. Without a draft model, its forwards' parameters are there but never used."""
    names = [name.partition(".")[2] for name in COLUMNS_OF["draft"].parameters]
    n = len(COLUMNS.parameters)
    look = np.array([_USUAL[name] for name in names[n:]])
    mean, sd = np.concatenate((np.zeros(n), look)), np.concatenate((np.ones(n), 1.5 * look))
    if design.draft is None:
        return Prior(mean, sd, np.zeros((0, len(mean))), 0.3), NO_DATA
    is_its = ceilings is not None and ceilings.draft == PurePath(config.draft_model or "").name
    forward = believed.prior(design.draft, _rates_only(ceilings))
    mean[:n], sd[:n] = forward.mean, forward.sd
    likeness = np.concatenate((forward.likeness, np.zeros((len(forward.likeness), len(look)))), axis=1)
    data = NO_DATA
    if ceilings is not None and is_its and ceilings.draft_forwards:
        data = believed.calibration(design.draft, ceilings, ceilings.draft_forwards)
        data = data._replace(columns=np.concatenate((data.columns, np.zeros((len(data.times), len(look)))), axis=1))
    is_evicted = is_its and ceilings is not None and bool(ceilings.draft_fits_cache) and not ceilings.fits_cache
    slower = DRAFT_EVICTED if is_evicted else DRAFT_SLOWER
    return Prior(mean, sd, likeness, 0.1 if len(data.times) else 0.7, slower), data


def _rates_only(ceilings: Ceilings | None) -> Ceilings | None:
    """Without what holds for the target's forwards alone."""
    if ceilings is None:
        return None
    return msgspec.structs.replace(ceilings, fixed_ns=None)


def learn(given: Sequence[tuple[Prior, Data]], steps: Sequence[Kept], *, origin: str, seen: Seen) -> Learned:
    """Fit every block to steps, in the order of time. `seen` is what was measured beside them."""
    usable, starved, best = _unstarved(steps)
    all_columns = unpacked(steps)
    columns = all_columns if len(usable) == len(steps) else unpacked(usable)
    all_times, times = times_by_block(steps), times_by_block(usable)
    posteriors: list[Posterior] = []
    found: list[Belief] = []
    for index, (name, (prior, calibration)) in enumerate(zip(BLOCKS, given, strict=True)):
        of_all = name in ("sample", "host")
        data = (
            _data(name, steps, all_columns[index], all_times[:, index])
            if of_all
            else _data(name, usable, columns[index], times[:, index])
        )
        posterior = solve(prior, calibration, data)
        posteriors.append(posterior)
        found.append(Belief(COLUMNS_OF[name].parameters, posterior.mean, posterior.root, origin=origin))
    rows = [one for kept in usable for one in kept.rows]
    seen = Seen(
        tuple(sorted({*seen.rows, *(one for one in set(rows) if rows.count(one) > 1)})),
        max([seen.deepest, *(kept.deepest for kept in usable)]),
        max([seen.cells, *(kept.cells for kept in usable)]),
    )
    errors = _errors(found, usable, columns, times)
    return Learned(tuple(found), seen, errors, posteriors[0].level, starved, tuple(usable), best)


def _unstarved(steps: Sequence[Kept]) -> tuple[list[Kept], float, float | None]:
    """Steps whose threads had what they mostly have; the share of the others; and what they mostly have."""
    shares = [kept.share for kept in steps if kept.share is not None]
    if len(shares) < FEW:
        return list(steps), 0.0, None
    best = min(1.0, float(np.quantile(shares, 0.9)))
    usable = [kept for kept in steps if kept.share is None or kept.share >= STARVED * best]
    return usable, 1.0 - len(usable) / len(steps), best


def _data(name: str, steps: Sequence[Kept], columns: Floats, every: Floats) -> Data:
    """The steps that have something of this block in them. `columns` and times are the block's, of all steps."""
    has_work = (every > 0.0) & columns.any(axis=1)
    if not has_work.any():
        return NO_DATA
    numbers: dict[tuple[object, ...], int] = {}
    kinds = [
        numbers.setdefault((kept.rows, kept.outputs), len(numbers))
        for kept, is_used in zip(steps, has_work.tolist(), strict=True)
        if is_used
    ]
    times = every[has_work]
    return Data(by_parameter(COLUMNS_OF[name], columns[has_work]), times, np.zeros(len(times)), np.array(kinds))


def _errors(found: Sequence[Belief], steps: Sequence[Kept], columns: Sequence[Floats], times: Floats) -> Errors:
    """How whole steps stray from the prediction, and how much of that they have in common with their neighbours."""
    if len(steps) < FEW:
        return Errors(0.05, DRIFT, ())
    predicted = np.zeros(len(steps))
    for name, belief, of_block in zip(BLOCKS, found, columns, strict=True):
        predicted += by_parameter(COLUMNS_OF[name], of_block) @ belief.mean
    logs = np.log(np.maximum(times.sum(axis=1), 1.0)) - np.log(np.maximum(predicted, 1.0))
    residual = scale_of(logs)
    quantiles = np.quantile(logs, np.linspace(0.0, 1.0, 41))
    return Errors(residual, _drift(steps, logs, 3 * residual), tuple(quantiles.tolist()))


def _drift(steps: Sequence[Kept], logs: Floats, most: float) -> float:
    """Standard deviation of the level from one window of time to another.

    Only what came in several windows tells: what came in one alone has taken its level for its own time. Steps stray by
    no more than `most` from their window, as far as this goes.
    """
    kinds: dict[tuple[object, ...], dict[int, list[float]]] = {}
    for kept, log in zip(steps, logs.tolist(), strict=True):
        kinds.setdefault((kept.rows, kept.outputs), {}).setdefault(kept.at_ns // WINDOW_NS, []).append(log)
    total, n = FEW_WINDOWS * DRIFT**2, float(FEW_WINDOWS)
    for windows in kinds.values():
        of = [np.array(logs) for logs in windows.values() if len(logs) >= FEW_IN_WINDOW]
        if len(of) > 1:
            medians = np.array([float(np.median(one)) for one in of])
            within = [np.clip(one - median, -most, most) for one, median in zip(of, medians, strict=True)]
            chance = sum([float(one.var()) / len(one) for one in within])
            total += max(0.0, float(medians.var()) * len(of) - chance)
            n += len(of) - 1
    return float(np.sqrt(total / n))


def seen_by(ceilings: Ceilings | None) -> Seen:
    """What a calibration measured."""
    if ceilings is None:
        return Seen()
    rows = tuple(sorted({time.rows for time in ceilings.forwards}))
    deepest = max([time.cached for time in ceilings.contexts], default=0)
    cells = max([time.cells for time in ceilings.contexts], default=0)
    return Seen(rows, deepest, cells)


def learned_before(beliefs: Sequence[Belief]) -> tuple[tuple[Prior, Data], ...]:
    """What was derived from another configuration, as something to begin with."""
    given: list[tuple[Prior, Data]] = []
    for belief in beliefs:
        sd = np.maximum(belief.sd, 0.05 * belief.mean + 1e-3)
        given.append((Prior(belief.mean, sd, np.zeros((0, len(sd))), 0.3), NO_DATA))
    return tuple(given)
