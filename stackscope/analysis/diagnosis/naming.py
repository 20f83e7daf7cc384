"""Names what limits, or says why nothing is named; a name stands until another has led for a while, or it is gone.

In this order: what requests wait for, what is lost, what the work needs. Within one kind, a name needs a share of at
least 35 %, or a lead of ten points, and a finding that is confirmed. A small loss goes before a large need only where
the need is confirmed: what is not might be a loss itself; and never before a larger share of work that is the engine's
own, which no model needs. None is named before enough forwards have run, and none for
wall time while more than a tenth of it is unexplained.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from stackscope import units
from stackscope.analysis.diagnosis.judge import Judged, judge
from stackscope.analysis.diagnosis.notes import notes
from stackscope.records import Cause, Finding

if TYPE_CHECKING:
    from stackscope.analysis.diagnosis.evidence import Evidence

LEAST_SHARE: Final = 0.35
LEAST_LEAD: Final = 0.10
MOST_UNEXPLAINED: Final = 0.10
LEAST_FORWARDS: Final = 8
MOST_IDLE: Final = 0.50
"""An engine that has nothing to do for longer than this is limited by nothing."""
TOGETHER: Final = 0.50
"""Two causes that cannot be told apart are named together if they take this much."""
OWN_WORK: Final[frozenset[Cause]] = frozenset({"sampling", "host scheduling"})
"""Needs that no model has by itself: where one takes most, that is what limits, whatever else is lost a little."""
APART: Final = 0.05
"""Shares that differ by less cannot be told apart: by half of it, if the larger stands alone; by twice as much, if both
stand. A name that stands may fall short of share and lead by as much."""
MOST_SETTLING: Final = 0.25
HOLD_NS: Final = 2_000_000_000
"""How long another name must lead before it takes over."""
SHORT_HOLD_NS: Final = 1_000_000_000
"""The same where it has left the name that stands far behind."""
LONG_HOLD_NS: Final = 5_000_000_000
"""How long a name may stand by nothing but its having stood, or while now this and now that would be named instead:
as long as what the evidence is of. Hysteresis is against flicker, and what has been otherwise for so long is none."""
LEAST_LEFT: Final = LEAST_LEAD - APART
"""Below this no cause is named, not even one that stands: it has neither share nor lead."""
JUMP_NS: Final = 6_000_000_000
"""Between two looks, from which on what was named before says nothing of what holds now."""
FAR: Final = 3.0
"""Times the share of the name that stands."""


class NameChange(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict has changed: an event. `None` is no name."""

    at_ns: int
    before: Cause | None
    after: Cause | None
    sentence: str
    """Why: the claim of the new finding, or why nothing is named."""


class Naming(msgspec.Struct, frozen=True, kw_only=True):
    """What limits now."""

    at_ns: int = 0
    name: Cause | None = None
    share: float | None = None
    """Of the wall time; of requests' time for `queueing`, and of both together for `co-limited`."""
    finding: Finding | None = None
    """What speaks for the name now; confirmed when it was named."""
    together: tuple[Finding, ...] = ()
    """The two of `co-limited`."""
    sentence: str = "no step has run yet"
    """The claim, or why nothing is named."""
    rejected: tuple[Finding, ...] = ()
    """All other causes: those that take time too, largest first, then those that do not apply, each with its reason."""
    ahead: tuple[Finding, ...] = ()
    """Those of them that lead by now: the name only stands because it has stood. What would be named is first."""
    shares: tuple[tuple[str, float], ...] = ()
    """Of the wall time by cause, `idle` and `unexplained` included; they sum to 1. Largest first."""
    unexplained: float | None = None
    since_ns: int | None = None
    previous: Cause | None = None
    """What other name was there before."""
    change: NameChange | None = None
    """The verdict changed with this one."""
    notes: tuple[str, ...] = ()
    """What has to be said beside it: what looks like a fault and is none."""


class Choice(NamedTuple):
    """What one window by itself would be called."""

    name: Cause | None
    share: float | None
    finding: Finding | None
    together: tuple[Finding, ...]
    sentence: str
    is_refusal: bool
    """Nothing may be named now, whatever stood before."""


def choose(evidence: Evidence, judged: Judged, standing: Cause | None = None, *, is_over: bool = False) -> Choice:
    """The name of a window. `standing` is what was named before: between one and two causes it has the benefit.

    `is_over`: no more steps will come.
    """
    refusal = _too_early(evidence, is_over=is_over)
    if refusal is not None:
        return _nothing(refusal, is_refusal=True)
    waits, losses, needs = judged.of_kind("wait"), judged.of_kind("loss"), judged.of_kind("need")
    for finding in waits:
        # Counted from the stamps of requests: what of the wall time is unexplained does not touch it.
        if finding.is_confirmed and (finding.share or 0.0) >= LEAST_SHARE:
            return _named(finding)
    if judged.unexplained > MOST_UNEXPLAINED:
        return _nothing(_too_much(evidence, judged), is_refusal=True)
    if losses and losses[0].is_confirmed and _dominates(losses, standing):
        loss = losses[0]
        if (loss.share or 0.0) < LEAST_SHARE and _is_own_work(needs, standing, over=loss):
            return _named(needs[0])
        doubtful = None if (loss.share or 0.0) >= LEAST_SHARE else _doubtful(judged, loss)
        return _named(loss) if doubtful is None else _likely(doubtful)
    idle = judged.share_of("idle")
    largest = max([share for name, share in judged.shares if name not in ("idle", "unexplained")], default=0.0)
    if idle >= MOST_IDLE or (idle >= LEAST_SHARE and idle > largest):
        return _nothing(f"nothing limits: the engine waits for requests for {units.percent(idle)} of the time")
    return _needed(judged, needs, standing)


def _too_early(evidence: Evidence, *, is_over: bool) -> str | None:
    """Why nothing can be said at all, and what is missing. `None`: something can."""
    if evidence.times.wall <= 0.0:
        return "no step has run in the last seconds"
    if evidence.forwards < LEAST_FORWARDS and evidence.times.idle < MOST_IDLE * evidence.times.wall:
        when = "beside a stall" if evidence.stalls else "in the last seconds" if is_over else "so far"
        forwards = units.counted(evidence.forwards, "forward")
        return f"{forwards} {when}, {LEAST_FORWARDS} are needed to name anything"
    if evidence.settling > MOST_SETTLING:
        paying = f"the after-effects of a change are paid in {units.percent(evidence.settling)} of the last steps"
        until = "" if is_over else f": something is named once they are in less than {units.percent(MOST_SETTLING)}"
        return f"{paying}{until}"
    return None


def _too_much(evidence: Evidence, judged: Judged) -> str:
    """What it is that keeps everything from being named."""
    stalled = evidence.stalled_ns / evidence.times.wall
    if judged.unexplained - stalled <= MOST_UNEXPLAINED:
        return f"stalled for {units.percent(stalled)} of the time, too much to name anything"
    return f"{units.percent(judged.unexplained)} of the time is unexplained, too much to name anything"


def _dominates(findings: list[Finding], standing: Cause | None) -> bool:
    """Whether the first, and largest, has share or lead enough for a name."""
    first = findings[0].share or 0.0
    second = (findings[1].share or 0.0) if len(findings) > 1 else 0.0
    slack = APART if findings[0].cause == standing else 0.0
    return first >= LEAST_SHARE - slack or first - second >= LEAST_LEAD - slack


def _is_own_work(needs: list[Finding], standing: Cause | None, *, over: Finding) -> bool:
    """Whether the largest need is the engine's own work, would be named, and takes more than a loss."""
    if not needs or needs[0].cause not in OWN_WORK or not needs[0].is_confirmed:
        return False
    return (needs[0].share or 0.0) >= max(LEAST_SHARE, over.share or 0.0) and _dominates(needs, standing)


def _doubtful(judged: Judged, named: Finding) -> Finding | None:
    """What takes so much more of the wall time than a cause that it would lead, if only it were confirmed."""
    least = (named.share or 0.0) + LEAST_LEAD
    doubtful = [one for kind in ("loss", "need") for one in judged.of_kind(kind) if not one.is_confirmed]
    return next((one for one in doubtful if (one.share or 0.0) >= least), None)


def _needed(judged: Judged, needs: list[Finding], standing: Cause | None) -> Choice:
    """The name among what the work needs; what has no name of its own competes as well."""
    for name in ("forward, undivided", "fixed per forward"):
        share = judged.share_of(name)
        if not needs or share > (needs[0].share or 0.0):
            what = "the forward, which no time model divides yet" if name[:7] == "forward" else f"what is {name}"
            return _nothing(f"{what}, is most of the time ({units.percent(share)}); no cause can be named for it")
    first, *others = needs
    doubtful = first if not first.is_confirmed else _doubtful(judged, first)
    share = first.share or 0.0
    second = (others[0].share or 0.0) if others else 0.0
    apart = 2.0 * APART if standing == "co-limited" else 0.5 * APART if standing == first.cause else APART
    are_close = bool(others) and share - second < apart and share + second >= TOGETHER
    if doubtful is not None:
        return _likely(doubtful)
    if are_close and others[0].is_confirmed:
        return _co_limited(first, others[0])
    if not are_close and _dominates(needs, standing):
        return _named(first)
    two = [f"{finding.cause} {units.percent(finding.share)}" for finding in needs[:2]]
    return _nothing(f"nothing dominates: {', '.join(two)}")


def _likely(doubtful: Finding) -> Choice:
    """No name, but which one it would be, and what is missing for it."""
    return _nothing(
        f"{doubtful.cause} is the likely one, with {units.percent(doubtful.share)} of the time, "
        f"but not confirmed: {doubtful.against}"
    )


def _seconds(ns: int) -> str:
    """Whole seconds as such, else to a tenth."""
    return units.number(ns / 1e9, unit="s", places=0 if ns % 1_000_000_000 == 0 else 1)


def _nothing(why: str, *, is_refusal: bool = False) -> Choice:
    return Choice(None, None, None, (), why, is_refusal)


def _named(finding: Finding) -> Choice:
    return Choice(finding.cause, finding.share, finding, (), finding.claim, False)


def _co_limited(first: Finding, second: Finding) -> Choice:
    share = (first.share or 0.0) + (second.share or 0.0)
    both = Finding(
        cause="co-limited",
        share=share,
        is_confirmed=True,
        claim=f"{first.cause} ({units.percent(first.share)}) and {second.cause} ({units.percent(second.share)}) limit "
        "together: they cannot be told apart",
        evidence=(first.claim, second.claim, *first.evidence[:2], *second.evidence[:2]),
        counterfactual=f"{first.cause}: {first.counterfactual}; {second.cause}: {second.counterfactual}",
        falsifier="making one of the two cheaper gains as much as both shares",
    )
    return Choice("co-limited", share, both, (first, second), both.claim, False)


def _as_now(shown: Choice, judged: Judged) -> Choice | None:
    """What stands, with the figures of now: those of the rejected beside it are of the same seconds.

    `None`: nothing is left of it.
    """
    found = {one.cause: one for one in judged.findings if one.claim and (one.share or 0.0) >= LEAST_LEFT}
    if shown.together:
        first, second = (found.get(finding.cause) for finding in shown.together)
        return None if first is None or second is None else _co_limited(first, second)
    finding = None if shown.name is None else found.get(shown.name)
    return None if finding is None else _named(finding)


class Namer:
    """Follows the evidence. What is named changes only after another choice has stood for two seconds, or once nothing
    is left of it."""

    def __init__(self) -> None:
        self._shown = _nothing("no step has run yet")
        self._since_ns: int | None = None
        self._names: tuple[Cause, ...] = ()
        """The last name and the one before it, stretches without a name left out: no name follows itself."""
        self._leads: Choice | None = None
        """What would be named instead of what stands. `None`: the evidence is for what is shown."""
        self._candidate: Cause | None = None
        self._candidate_since_ns: int | None = None
        self._updated_ns: int | None = None
        self._agreed_ns: int | None = None
        """When the evidence last had for a name what is shown."""
        self._began_ns: int | None = None
        """When the first step began. `None`: not known."""
        self._unaided: Cause | None = None
        """What would be named if nothing stood, and since when."""
        self._unaided_since_ns: int | None = None

    def begin(self, at_ns: int) -> None:
        """The first step began then."""
        self._began_ns = at_ns

    def update(self, evidence: Evidence, *, is_over: bool = False) -> Naming:
        """Take the evidence of the last seconds, at times that do not go back. `is_over`: no more steps will come."""
        judged = judge(evidence)
        choice = self._choose(evidence, judged, is_over=is_over)
        change = self._follow(evidence.at_ns, choice, judged, is_over=is_over)
        self._leads = choice if choice.name != self._shown.name else None
        return self._naming(evidence, judged, change)

    def _choose(self, evidence: Evidence, judged: Judged, *, is_over: bool) -> Choice:
        """With the benefit that what stands has, unless something else would have been named without it for long."""
        unaided = choose(evidence, judged, is_over=is_over)
        if self._unaided_since_ns is None or unaided.name != self._unaided:
            self._unaided, self._unaided_since_ns = unaided.name, evidence.at_ns
        if evidence.at_ns - self._unaided_since_ns >= LONG_HOLD_NS:
            return unaided
        return choose(evidence, judged, self._shown.name, is_over=is_over)

    def _follow(self, at_ns: int, choice: Choice, judged: Judged, *, is_over: bool) -> NameChange | None:
        """Decide what is shown from now on; the change, if the name did."""
        shown = self._shown
        updated_ns, self._updated_ns = self._updated_ns, at_ns
        if choice.name == shown.name:
            self._shown, self._candidate_since_ns, self._agreed_ns = choice, None, at_ns
            return None
        # Where nobody looked for long, there is no name that could flicker.
        if choice.is_refusal or self._is_unseen(at_ns, updated_ns):
            self._candidate_since_ns = None
            return self._change(at_ns, at_ns, choice)
        if self._candidate_since_ns is None or choice.name != self._candidate:
            self._candidate, self._candidate_since_ns = choice.name, at_ns
        is_far = choice.share is not None and shown.share is not None and choice.share >= FAR * shown.share
        stood_ns = 0 if self._agreed_ns is None or shown.name is None else at_ns - self._agreed_ns
        is_held = at_ns - self._candidate_since_ns < (SHORT_HOLD_NS if is_far else HOLD_NS) and stood_ns < LONG_HOLD_NS
        if is_held:
            held = None if shown.name is None else _as_now(shown, judged)
            if held is None and choice.name is not None:
                # Where nothing is left of a name, the next has to lead as long as any: two may take turns.
                held = _nothing(self._why_held(at_ns, choice, is_over))
            if held is not None and held.name == shown.name:
                self._shown = held
                return None
            return self._change(at_ns, at_ns, choice if held is None else held)
        since_ns, self._candidate_since_ns = self._candidate_since_ns, None
        return self._change(at_ns, since_ns, choice)

    def _why_held(self, at_ns: int, choice: Choice, is_over: bool) -> str:
        """What would be named, and how much is missing until it is."""
        seen_ns = HOLD_NS if self._began_ns is None else at_ns - self._began_ns
        led_ns = 0 if self._candidate_since_ns is None else at_ns - self._candidate_since_ns
        if is_over and seen_ns < HOLD_NS:
            seen, needed = _seconds(seen_ns), _seconds(HOLD_NS)
            return f"the run was too short to name anything: {seen} of steps, {needed} are needed"
        who = " and ".join(finding.cause for finding in choice.together) or str(choice.name)
        if is_over:
            return f"{who} led at the end, but not for the {_seconds(HOLD_NS)} that a name takes"
        left = _seconds(max(HOLD_NS - led_ns, 0))
        if choice.together:
            return f"{who} lead together; they are named if they still do in {left}"
        return f"{who} leads; it is named if it still does in {left}"

    def _is_unseen(self, at_ns: int, updated_ns: int | None) -> bool:
        """Whether so much went by since the last look, or before the first, that nothing said then holds now."""
        if updated_ns is not None:
            return at_ns - updated_ns > JUMP_NS
        return self._began_ns is not None and at_ns - self._began_ns >= HOLD_NS

    def _change(self, at_ns: int, since_ns: int, choice: Choice) -> NameChange:
        before = self._shown.name
        if choice.name is not None and choice.name not in self._names[-1:]:
            self._names = (*self._names[-1:], choice.name)
        self._shown, self._since_ns, self._agreed_ns = choice, since_ns, at_ns
        return NameChange(at_ns=at_ns, before=before, after=choice.name, sentence=choice.sentence)

    def _naming(self, evidence: Evidence, judged: Judged, change: NameChange | None) -> Naming:
        shown = self._shown
        mine = {finding.cause for finding in shown.together} | {shown.name}
        others = [finding for finding in judged.findings if finding.cause not in mine]
        others.sort(key=lambda finding: (finding.claim == "", -(finding.share or 0.0)))
        return Naming(
            at_ns=evidence.at_ns,
            name=shown.name,
            share=shown.share,
            finding=shown.finding,
            together=shown.together,
            sentence=shown.sentence,
            rejected=tuple(others),
            ahead=tuple(self._ahead(others)),
            shares=judged.shares,
            unexplained=judged.unexplained if judged.shares else None,
            since_ns=self._since_ns,
            previous=next((name for name in reversed(self._names) if name != shown.name), None),
            change=change,
            notes=notes(evidence),
        )

    def _ahead(self, others: list[Finding]) -> list[Finding]:
        """Of the other causes, those that lead while what is shown stands by nothing but its having stood."""
        shown, leads = self._shown, self._leads
        if shown.name is None or leads is None:
            return []
        would_be = {finding.cause for finding in leads.together} | {leads.name}
        found = [
            one
            for one in others
            # The share of queueing is of another whole.
            if one.cause in would_be or (one.claim and one.cause != "queueing" and _leads(one, shown))
        ]
        return sorted(found, key=lambda one: one.cause not in would_be)


def _leads(finding: Finding, shown: Choice) -> bool:
    """It takes more than what stands."""
    return (finding.share or 0.0) > (shown.share or 0.0)
