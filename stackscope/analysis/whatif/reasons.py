"""A prediction in words: what limits afterwards, and the sentence with the numbers that it rests on.

What gains most is told first, then what it costs, then what remains.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from stackscope import units
from stackscope.analysis.timing.terms import TERMS
from stackscope.analysis.whatif import moves
from stackscope.analysis.whatif.evaluate import contributions
from stackscope.analysis.whatif.moves import NAMES, SMALL, Move, Told
from stackscope.analysis.whatif.wording import weight_bits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stackscope.analysis.whatif.evaluate import Evaluation
    from stackscope.analysis.whatif.predict import Comparison
    from stackscope.analysis.whatif.working_point import WorkingPoint
    from stackscope.records import Cause
    from stackscope.toggles import Setting

CAUSES: Final[Mapping[str, Cause]] = {
    "weights": "weight bandwidth",
    "head": "LM head",
    "compute": "compute",
    "attention": "KV and attention",
    "resident": "resident-prefix tax",
    "draft": "draft overhead",
    "sample": "sampling",
    "host": "host scheduling",
    "prefill": "prefill interference",
}
"""What is named when a term is the largest. What a forward takes whatever is in it is no cause."""

_SINGULAR: Final = frozenset({"head", "compute", "resident", "fixed", "draft", "sample", "host", "prefill"})

_SPECULATION: Final = frozenset(
    {
        "speculation", "draft_length", "draft_length_max", "adaptive_draft", "synthetic_acceptance", "ngram_min",
        "ngram_max",
    }
)  # fmt: skip
_BATCH: Final = frozenset({"slots", "slots_max", "concurrency", "rate"})
_FORWARD: Final = _SPECULATION | _BATCH
_CACHE: Final = frozenset({"prefix_cache", "cache_tokens"})
_BUDGET: Final = frozenset({"token_budget"})
_GROUPS: Final = (
    _FORWARD,
    _CACHE,
    _BUDGET,
    frozenset({"model"}),
    # One part: a quantised cache needs the fused pass, so that its type alone may be no configuration.
    frozenset({"kv_type_k", "kv_type_v", "flash_attention"}),
    frozenset({"unified_kv"}),
    frozenset({"threads"}),
)
"""Settings that are told together, in the order in which they are told."""
_LAYOUT_TERMS: Final = ("weights", "head", "compute", "attention", "resident", "fixed", "draft")
"""What the number of passes and the cells that they scan can change: neither sampling nor the host's work."""


class _Effect(NamedTuple):
    """What some settings do themselves."""

    names: frozenset[str]
    subject: str
    is_plural: bool
    term: str | None
    """The term of a step that they change most, or `prefill`. `None`: they hardly change anything."""
    other: str | None
    """The one that they change most the other way round. `None`: hardly any."""
    move: Move


def bottleneck(parts: Mapping[str, float]) -> Cause | None:
    """The cause that the largest part stands for. `None`: there is no part, or it is no cause."""
    largest = max(parts, key=parts.__getitem__)
    return CAUSES.get(largest) if parts[largest] > 0.0 else None


def reason(
    point: WorkingPoint,
    compared: Comparison,
    changes: Mapping[str, tuple[Setting, Setting]],
    under: Callable[[frozenset[str]], Evaluation | str],
) -> str:
    """One sentence with its numbers. `under` evaluates only those of the changes that it is given the names of: each
    part of a combination is told by what it does itself, and what several do to one term is told once."""
    if all(before == after for before, after in changes.values()):
        return "Nothing changes."
    told = []
    if compared.is_of_arrivals and not changes.keys() & {"rate"}:
        told.append("requests arrive more slowly than they are served, so tokens/s stay and only latency changes")
    elif compared.is_overrun:
        told.append("requests then arrive faster than they can be served")
    told += _Telling(point, compared, changes, under).clauses()
    largest = _largest(compared.after)
    if largest is not None:
        told.append(largest)
    sentence = "; ".join(told)
    return f"{sentence[:1].upper()}{sentence[1:]}."


class _Telling:
    """Tells the parts of a change."""

    def __init__(
        self,
        point: WorkingPoint,
        compared: Comparison,
        changes: Mapping[str, tuple[Setting, Setting]],
        under: Callable[[frozenset[str]], Evaluation | str],
    ) -> None:
        self._point, self._changes, self._under = point, changes, under
        self._whole = Move(compared.before, compared.after)
        self._parts = _parts(frozenset(changes))

    def clauses(self) -> list[str]:
        made = {part: self._move(part) for part in self._parts}
        known = {part: move for part, move in made.items() if move is not None}
        if len(known) < len(made):
            return [f"together the changes make {_step_takes(self._whole)}"]
        effects: dict[str | None, list[_Effect]] = {}
        for part, move in known.items():
            if not part & (_FORWARD | _CACHE | _BUDGET):
                effect = self._effect(part, move)
                effects.setdefault(effect.term, []).append(effect)
        told: list[Told] = []
        is_prefill_told = "prefill" in effects or any(part & _CACHE for part in known)
        for part, move in known.items():
            if part & _FORWARD:
                told.append(Told(move.gain, self._forward(part, move)))
            elif part & _CACHE:
                words = self._prompts(part, effects.pop("prefill", []), is_idle_told="resident" in effects)
                told.append(Told(move.gain, words))
            elif part & _BUDGET:
                told.append(Told(move.gain, self._chunks(move, is_prefill_told=is_prefill_told)))
        for term, alike in effects.items():
            gain = -math.inf if term is None else max(one.move.gain for one in alike)
            told.append(Told(gain, self._term(term, alike)))
        clauses = [one.text for one in sorted(told, key=lambda one: -one.gain)]
        if len(known) > 1 and any(part & _FORWARD for part in known):
            clauses.append(f"together the changes make {_step_takes(self._whole)}{self._drafting(self._whole)}")
        return clauses

    def _move(self, names: frozenset[str]) -> Move | None:
        """What only these changes do. `None`: not known."""
        if names == self._changes.keys():
            return self._whole
        after = self._under(names)
        return None if isinstance(after, str) else Move(self._whole.before, after)

    def _forward(self, names: frozenset[str], move: Move) -> str:
        before, after = move
        does, is_idle = [], False
        if names & _SPECULATION:
            was, becomes = float(before.tokens[0]), float(after.tokens[0])
            words = f"brings {_rather(units.number(becomes), units.number(was))} tokens per sequence"
            does.append(Told(moves.log_ratio(becomes, was), words))
        if names & _BATCH:
            was, becomes = before.sequences, after.sequences
            if was <= 0.0 or becomes <= 0.0:
                does = does or [Told(0.0, "serves another batch")]
            elif abs(becomes - was) < 0.01 * was or units.number(becomes) == units.number(was):
                is_idle = True
            else:
                words = f"serves {units.number(becomes)} rather than {units.number(was)} sequences"
                does.append(Told(moves.log_ratio(becomes, was), words))
        idle = "no more requests are in flight than before"
        if not does:
            return idle
        if len(self._parts) == 1:
            words = f"takes {_rather(_step(after), _step(before))}{self._drafting(move)}"
            does.append(Told(moves.log_ratio(before.terms.total, after.terms.total), words))
        told = f"a forward {moves.gains_first(does)}"
        return f"{idle}; {told}" if is_idle else told

    def _drafting(self, move: Move) -> str:
        terms = move.after.terms
        is_told = self._changes.keys() & _SPECULATION and terms.draft > SMALL * terms.total
        return f", of which drafting {units.milliseconds(terms.draft)}" if is_told else ""

    def _prompts(self, names: frozenset[str], alike: list[_Effect], *, is_idle_told: bool) -> str:
        """What becomes of prefill, with those other parts that are told by it as well."""
        move = self._move(names.union(*(one.names for one in alike)))
        who = moves.listed([*(one.subject for one in alike), "the change of the prefix cache"])
        if move is None:
            return f"{who} change prefill" if alike else f"{who} changes prefill"
        before, after = move
        told, of_all = moves.prefill_changes(move), moves.prefill_changes(self._whole)
        alone = _alone(told, of_all)
        with_what = f"with {who}{alone}, " if alike or alone else ""
        share = self._point.minute_hit_rate if self._point.config.prefix_cache else None
        found = "" if share is None else f" ({units.percent(share)} of prompt tokens were found in the last minute)"
        falls = moves.falls(move)
        does = [Told(falls["prefill"], f"prefill {told}{found}")]
        resident = after.terms.resident - before.terms.resident
        if not is_idle_told and before.whole_tokens > 0.0 and abs(resident) > SMALL * before.terms.total:
            verb = "add" if resident > 0 else "no longer take"
            words = f"idle cells {verb} {units.milliseconds(abs(resident))} a step"
            does.append(Told(falls["resident"], words))
        return f"{with_what}{moves.gains_first(does)}"

    def _chunks(self, move: Move, *, is_prefill_told: bool) -> str:
        """What becomes of a step with a prompt, and of prefill unless that is told by another part."""
        before, after = self._changes["token_budget"]
        durations = moves.prompt_steps(move)
        told, of_all = moves.changes(*durations), moves.changes(*moves.prompt_steps(self._whole))
        alone = f"with that{_alone(told, of_all)} " if told != of_all else ""
        does = [Told(moves.log_ratio(*durations), f"a step with a prompt {told}")]
        prefill = moves.falls(move)["prefill"] / max(float(move.before.total_ns[0]), 1e-9)
        if abs(prefill) > SMALL and move.before.whole_tokens > 0.0:
            fewer = f"{'fewer' if prefill > 0.0 else 'more'} steps have a prompt"
            does.append(Told(prefill, fewer if is_prefill_told else f"prefill {moves.prefill_changes(move)}"))
        chunks = f"prompts come in chunks of up to {_number(after)} rather than {_number(before)} rows"
        return f"{chunks}, and {alone}{moves.gains_first(does)}"

    def _effect(self, names: frozenset[str], move: Move) -> _Effect:
        """What some settings do to the term of a step that they are about."""
        after = {name: self._changes[name][1] for name in sorted(names)}
        subject, is_plural, terms = _subject(self._point, after)
        term, other = moves.largest_moves(move, terms)
        if term is None and abs(move.gain) >= moves.NOTICED:
            term, other = moves.largest_moves(move, TERMS, small=0.0)  # Little of each adds up.
        # With other changes beside it, that term may be what one of those is told by.
        return _Effect(names, subject, is_plural, term, other if len(self._parts) == 1 else None, move)

    def _term(self, term: str | None, alike: list[_Effect]) -> str:
        """One clause for all that change one term most, or that hardly change any."""
        subject = moves.listed([one.subject for one in alike])
        is_only = len(self._parts) == 1
        if term is None:
            word = "" if is_only else " each" if len(alike) > 1 else " alone"
            return f"{subject} would{word} hardly change a step of {_step(self._whole.before)}"
        move = alike[0].move if len(alike) == 1 else self._move(frozenset().union(*(one.names for one in alike)))
        if move is None:
            return f"{subject} together change {NAMES[term]}"
        terms = [term]
        if len(alike) == 1 and alike[0].other is not None:
            terms = sorted([term, alike[0].other], key=moves.falls(move).__getitem__, reverse=True)
        is_alone = any(moves.ends(move, one)[1] != moves.ends(self._whole, one)[1] for one in terms)
        both = " together" if len(alike) > 1 or alike[0].names >= {"kv_type_v", "flash_attention"} else ""
        seen = [one for one in terms if len(set(moves.ends(move, one))) > 1] or terms[:1]
        told = " but ".join([moves.becomes(move, one, _s(alike)) for one in seen])
        return f"{subject}{both}{' alone' if is_alone else ''} {told}"


def _parts(names: frozenset[str]) -> list[frozenset[str]]:
    parts = [names & group for group in _GROUPS if names & group]
    rest = names.difference(*_GROUPS)
    return [*parts, rest] if rest else parts


def _alone(told: str, of_all: str) -> str:
    """The word that is due where all changes together make another number than the one that is told."""
    return "" if told == of_all else " alone"


def _s(alike: list[_Effect]) -> str:
    return "" if len(alike) > 1 or alike[0].is_plural else "s"


def _rather(after: str, before: str) -> str:
    """`9.00 ms rather than 7.00 ms`."""
    return f"the same {after}" if after == before else f"{after} rather than {before}"


def _step_takes(move: Move) -> str:
    return f"a step take {_rather(_step(move.after), _step(move.before))}"


def _subject(point: WorkingPoint, after: Mapping[str, Setting]) -> tuple[str, bool, tuple[str, ...]]:
    """What changes, as the subject of a sentence; whether it is a plural; and the terms that it is about."""
    if "model" in after:
        return f"{weight_bits(point, str(after['model']))} weights", True, ("weights", "head")
    if after.keys() & {"kv_type_k", "kv_type_v", "flash_attention"}:
        kinds = dict.fromkeys(str(after[name]) for name in ("kv_type_k", "kv_type_v") if name in after)
        named = [f"a KV cache in {'/'.join(kinds)}"] if kinds else []
        if "flash_attention" in after:
            named.append(f"attention {'in one fused pass' if after['flash_attention'] else 'not fused'}")
        return " and ".join(named), len(named) > 1, ("attention",)
    if "unified_kv" in after:
        return ("one KV cache for all" if after["unified_kv"] else "a KV cache for each sequence"), False, _LAYOUT_TERMS
    if "threads" in after:
        threads = after["threads"]
        if not isinstance(threads, int):
            return "all cores", True, TERMS
        return units.counted(threads, "thread"), threads != 1, TERMS
    return ", ".join(sorted(name.replace("_", " ") for name in after)) or "it", len(after) > 1, TERMS


def _largest(after: Evaluation) -> str | None:
    parts = contributions(after)
    total = sum(parts.values())
    if total <= 0.0:
        return None
    name = max(parts, key=parts.__getitem__)
    verb = "dominates" if name in _SINGULAR else "dominate"
    if name == "prefill":
        return f"{NAMES[name]} then {verb} with {units.percent(parts[name] / total)} of the time"
    return f"{NAMES[name]} then {verb} at {units.milliseconds(getattr(after.terms, name))} a step"


def _step(one: Evaluation) -> str:
    return units.milliseconds(one.terms.total)


def _number(value: Setting) -> str:
    return units.count(value) if isinstance(value, int) else str(value)
