"""From recordings to the rows of the table."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Final

from benchmarks.validate import (
    against,
    against_tau,
    figures,
    measuring,
    naming,
    pace,
    score_naming,
    score_tau,
    score_time,
    score_toggles,
)
from benchmarks.validate.checks import Accounting, Following, Seen, failures
from benchmarks.validate.figures import HEALTHY, Figure
from benchmarks.validate.mutants import MUTANTS
from benchmarks.validate.reading import read
from benchmarks.validate.rows import Row, Scored
from benchmarks.validate.score_toggles import MEMORY
from stackscope.analysis.whatif.baselines import Roofline
from stackscope.units import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarks.validate.figures import Judged, Named
    from benchmarks.validate.reading import Recording, Stretch
    from benchmarks.validate.scenarios import Scenario
    from benchmarks.validate.score_time import Foretold, Predicted
    from benchmarks.validate.score_toggles import Toggle
    from benchmarks.validate.state import Folder
    from stackscope.records import AnyRecord, StepRecord

EVERY: Final = 8
"""Of so many recordings, the checks of bytes and FLOPs look at one,"""
SPECIAL: Final = 3
"""and at so many of each kind of those that have what few have."""
DELAY_TOLERANCE: Final = 0.05
LEAST_HELD: Final = 0.80
MOST_HELD: Final = 0.97
"""Of intervals that are to hold nine times in ten: more often says that they are too wide."""
TAU_GOAL: Final = 0.01
"""Of a replay over the very requests that were drafted for."""


class Scores:
    """Scores the recordings of a folder. Nothing here knows how they should come out, the labels of `naming` aside."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._notes: list[str] = []
        self._checked: list[Recording] = []
        self._n_read = 0
        self._special: Counter[str] = Counter()
        self._paces: dict[str, float] = {}
        """Of the machine, in sessions that were left alone."""

    @property
    def _n_missing(self) -> int:
        """Sessions of a run of this kind that have not been staged."""
        wanted = (*measuring.SCENARIOS, *measuring.TAU, *naming.SCENARIOS)
        is_quick = self._folder.state.is_quick
        return sum(self._folder.recording(one.name) is None for one in wanted if one.is_quick or not is_quick)

    def all(self) -> Scored:
        """Every figure that there are recordings for."""
        rows = [*self._times(), *self._toggles(), *self._naming(), *self._drafts(), *self._checks()]
        held_up = pace.note(self._paces)
        if held_up is not None:
            self._notes.append(held_up)
        return Scored([*rows, pace.row(self._paces)], self._notes, self._n_missing)

    def _recording(self, name: str) -> Recording | None:
        path = self._folder.recording(name)
        if path is None:
            return None
        found = read(path)
        self._n_read += 1
        # What only some have, several passes and requests that were put back, catches most.
        kinds = [kind for kind in _special(found) if self._special[kind] < SPECIAL]
        self._special.update(kinds)
        if kinds or self._n_read % EVERY == 1:
            self._checked.append(found)
        return found

    def _of(self, scenarios: Iterable[Scenario]) -> list[tuple[Scenario, Recording]]:
        """Those that were staged. Each is read when it is scored."""
        pairs = [(one, found) for one in scenarios if (found := self._recording(one.name)) is not None]
        for scenario, recording in pairs:
            known = pace.pace(recording.records) if pace.is_left_alone(scenario) else None
            if known is not None:
                self._paces[scenario.name] = known
        return pairs

    def _times(self) -> list[Row]:
        within: list[Foretold] = []
        late: list[Foretold] = []
        batches: list[Foretold] = []
        beside: list[tuple[list[Predicted], list[Predicted]]] = []
        roles = measuring.SWEEP
        for _, recording in self._of(one for one in measuring.SCENARIOS if one.name.endswith("batches")):
            again = score_time.foretold_blocks(recording, *roles.in_range)
            within += again
            batches += score_time.foretold_blocks(recording, roles.held_out)
            late += score_time.foretold_blocks(recording, roles.halves)
            beside += [(one.steps, _by_sheet(one.stretch)) for one in again if one.steps]
        contexts = [found for _, found in self._of(one for one in measuring.SCENARIOS if "context" in one.name)]
        deep = score_time.across(contexts[:-1], contexts[-1]) if len(contexts) > 1 else []
        quants: list[Predicted] = []
        for _, recording in self._of(one for one in measuring.SCENARIOS if one.goal == "toggles"):
            quants += score_time.after_changes(recording, frozenset(measuring.KV_Q8))
            quants += score_time.after_changes(recording, frozenset(measuring.OTHER_WEIGHTS))
        errors = [step.error for one in within for step in one.steps]
        later = [step.error for one in late for step in one.steps]
        unseen = [step for one in batches for step in one.steps]
        every = [*(step for one in within for step in one.steps), *unseen, *deep, *quants]
        return [
            Row("step time, in range: median error", figures.quantile(errors, 0.5), at_most=0.05,
                simpler=against.of_steps(beside)),
            Row("step time, in range: p90 error", figures.quantile(errors, 0.9), at_most=0.12),
            Row("step time, in range, the second half by the first: median error", figures.quantile(later, 0.5)),
            Row("step time, in range, the second half by the first: p90 error", figures.quantile(later, 0.9)),
            *(
                Row(f"step time, held-out {what}: median error", _median(found), at_most=0.10)
                for what, found in (("batch", unseen), ("context", deep), ("KV and weight types", quants))
            ),
            Row("step time: 90 % intervals hold", figures.share(sum(p.is_covered for p in every), len(every)),
                at_least=LEAST_HELD, at_most=MOST_HELD),
        ]  # fmt: skip

    def _toggles(self) -> list[Row]:
        found: list[Toggle] = []
        for scenario, recording in self._of(one for one in measuring.SCENARIOS if one.goal == "toggles"):
            found += score_toggles.toggles(recording, scenario.name)
        for one in found:
            if one.judged is None:
                self._notes.append(f"{one.session}: {one.name} was not predicted: {one.why_not}")
        singles, pairs = [one for one in found if not one.is_pair], [one for one in found if one.is_pair]
        judged, paired = _judged(singles), _judged(pairs)
        everything = [*judged, *paired]
        return [
            Row("single toggles: sign right", figures.sign_right(judged), at_least=0.95,
                simpler=against.of_signs(singles)),
            Row("single toggles: sign right, where visits hardly agree on it included",
                figures.sign_right(judged, at_all=True)),
            Row("single toggles: median |ln error|", figures.median_error(judged), at_most=0.07,
                simpler=against.of_errors(singles)),
            Row("pairs: median |ln error|", figures.median_error(paired), at_most=0.10,
                simpler=against.of_errors(pairs)),
            Row("toggles: 90 % intervals hold", figures.coverage(everything), at_least=LEAST_HELD,
                at_most=MOST_HELD),
            Row("toggles that were predicted", figures.share(len(everything), len(found))),
        ]  # fmt: skip

    def _naming(self) -> list[Row]:
        verdicts: list[Named] = []
        memory: list[Named] = []
        phases: list[Named] = []
        weak: list[Named] = []
        bounds: list[float] = []
        delays: list[float] = []
        responses: dict[str, list[tuple[float, float]]] = {}
        for scenario, recording in self._of(naming.SCENARIOS):
            staged = self._folder.state.staged[scenario.name]
            if staged.foreign is not None and staged.foreign >= score_naming.LEAST_SHARE:
                self._notes.append(
                    f"{scenario.name}: not counted, somebody took {staged.foreign:.0%} of a CPU meanwhile"
                )
                continue
            said = score_naming.verdict(scenario, recording)
            verdict = score_naming.judged(scenario, said.name)
            # What has too small a share for a name need not have it; but no other may be given for it either.
            is_weak = verdict.said in (verdict.truth, HEALTHY) and score_naming.did_too_little(scenario, recording)
            if is_weak:
                weak.append(verdict)
                self._notes.append(
                    f"{scenario.name} took less than a tenth of the time: {said.name or 'nothing'} named"
                )
            else:
                verdicts.append(verdict)
                memory.append(score_naming.judged(scenario, score_naming.always_memory(recording)))
                phases.append(score_naming.judged(scenario, score_naming.largest_phase(recording)))
                if verdict.truth != verdict.said:
                    self._notes.append(f"{scenario.name}: {said.name or 'nothing'} was named, not {verdict.truth}")
            slower = score_naming.slow_down(scenario, recording)
            if slower is not None and scenario.cause is not None:
                responses.setdefault(scenario.family, []).append((scenario.dose, slower))
                if said.name == scenario.cause and said.share is not None and 0 < said.share < 1:
                    bounds.append(abs(math.log(1 / (1 - said.share) / slower)))
            if scenario.delay_ms > 0:
                delays += _delay_errors(scenario, recording)
        families = [[slower for _, slower in sorted(found)] for found in responses.values() if len(found) > 1]
        others = {MEMORY: memory, against.PHASE: phases}
        return [
            Row("causes: macro-F1", figures.naming(verdicts), is_share=False, at_least=0.9,
                simpler=against.of_names(verdicts, others)),
            Row("causes: macro-F1, faults of less than a tenth of the time included",
                figures.naming([*verdicts, *weak]), is_share=False),
            Row("placebos: false alarms", figures.alarms(verdicts), at_most=0.05,
                simpler=against.of_alarms(verdicts, others)),
            Row("without the cause: median |ln error| of the bound", figures.quantile(bounds, 0.5)),
            Row("injected delay: median error", figures.quantile(delays, 0.5), at_most=DELAY_TOLERANCE),
            Row("larger doses do more", figures.share(sum(map(figures.is_monotone, families)), len(families))),
        ]  # fmt: skip

    def _followed(self, without: str) -> list[Following]:
        """By source, the requests without drafts, in a session of that name, and with drafts of several lengths."""
        found = []
        undrafted = self._recording(without)
        for source in measuring.SOURCES:
            by_length: dict[int, list[AnyRecord]] = {}
            for length in measuring.TAU_LENGTHS:
                recording = self._recording(measuring.tau_name(source, length))
                if recording is not None:
                    by_length[length] = recording.records
            if undrafted is not None and by_length:
                found.append(Following(source, undrafted.records, by_length))
        return found

    def _drafts(self) -> list[Row]:
        rows = []
        for followed in self._followed(measuring.FOLLOWED):
            what = f"{followed.source}, {followed.share:.0%} of the tokens"
            worst = against_tau.worst(followed)
            rows.append(
                Row(f"τ at another length, replayed: worst error ({what})", worst.replayed, at_most=TAU_GOAL,
                    simpler=() if worst.law is None else (worst.law,))
            )  # fmt: skip
        for followed in self._followed(measuring.SAMPLED):
            points: list[float] = []
            drafted: list[int] = []
            for length, records in followed.by_length.items():
                shadow = score_tau.replayed(followed.without, followed.source, length)
                real = score_tau.happened(records)
                drafted.append(shadow.drafted)
                if shadow.acceptance is not None and real.acceptance is not None:
                    points.append(abs(shadow.acceptance - real.acceptance))
            what = f"{followed.source}, {min(drafted):,} drafted tokens at least"
            rows += [
                Row(f"shadow acceptance against real: worst ({what})", _worst(points), at_most=0.05),
                Row(f"τ by the shadows' sample of requests: worst error ({followed.source}, {followed.share:.0%} of "
                    "the tokens)", _worst(_replay_errors(followed))),
            ]  # fmt: skip
        return rows

    def _checks(self) -> list[Row]:
        seen = Seen(self._checked, self._followed(measuring.FOLLOWED))
        wrong = failures(Accounting(), seen)
        self._notes += [f"CHECK FAILED: {one}" for one in wrong]
        caught = [mutant.name for mutant in MUTANTS if failures(mutant, seen)]
        missed = [mutant.name for mutant in MUTANTS if mutant.name not in caught]
        is_judged = not missed or self._n_missing == 0
        if missed:
            why = "that no check caught" if is_judged else f"not judged: {counted(self._n_missing, 'session')} missing"
            self._notes.append(f"wrong accountings {why}: {', '.join(missed)}")
        return [
            Row("checks of bytes, FLOPs and counts that fail", Figure(len(wrong)), is_share=False, at_most=0),
            Row(f"wrong accountings caught, of {len(MUTANTS)}", Figure(len(caught)), is_share=False,
                at_least=len(MUTANTS) if is_judged else None),
        ]  # fmt: skip


def _median(found: Sequence[Predicted]) -> Figure:
    return figures.quantile([one.error for one in found], 0.5)


def _replay_errors(followed: Following) -> list[float]:
    """Of tokens per round at each length, replayed against tried."""
    lengths = followed.by_length
    replays = {length: score_tau.replayed(followed.without, followed.source, length).tau for length in lengths}
    return score_tau.errors(lengths, replays)


def _worst(errors: Sequence[float]) -> Figure:
    return Figure(max(errors), n=len(errors)) if errors else figures.UNKNOWN


def _judged(found: Sequence[Toggle]) -> list[Judged]:
    return [judged for one in found if (judged := one.judged) is not None]


def _by_sheet(stretch: Stretch) -> list[Predicted]:
    """The steps of a block by a data sheet."""
    if stretch.config is None:
        return []
    peaks = score_toggles.SHEET_BANDWIDTH, score_toggles.sheet_flops(stretch.config)
    return score_time.by_roofline(stretch.steps, Roofline(stretch.pricing, *peaks))


def _delay_errors(scenario: Scenario, recording: Recording) -> list[float]:
    """How far what a phase has gained is from what was injected, relative to that."""
    if len(recording.stretches) < 2 or not scenario.engine.endswith(("SlowSampler", "SlowScheduler")):
        return []
    is_sampler = scenario.engine.endswith("SlowSampler")

    def spent(steps: Sequence[StepRecord]) -> float:
        taken = sorted(step.phases.sample if is_sampler else step.phases.build for step in steps if step.work)
        return float(taken[len(taken) // 2]) if taken else 0.0

    gained = spent(recording.stretches[1].steps) - spent(recording.stretches[0].steps)
    return [abs(gained / (scenario.delay_ms * 1e6) - 1)]


def _special(recording: Recording) -> list[str]:
    """What it has that few have: passes that all have outputs, which only split KV makes, and requests put back."""
    steps = [step for stretch in recording.stretches for step in stretch.steps]
    requests = [request for stretch in recording.stretches for request in stretch.requests]
    found = {
        "ragged": any(len(step.passes) > 1 and all(one.outputs for one in step.passes) for step in steps),
        "put back": any(request.requeues or request.preemptions for request in requests),
    }
    return [kind for kind, has in found.items() if has]
